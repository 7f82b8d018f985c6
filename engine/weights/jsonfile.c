// jsonfile.c - bounded JSON reading. Runs on the thread that opens a model.

#include "engine/weights/jsonfile.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

// Counts values and nesting in one pass over the text, which need not be valid JSON: a tree costs tens of bytes for a
// value of two characters, so this comes before jansson.
static err_code check_bounds(const char *file, const char *text, size_t len, err *e)
{
    size_t values = 1;
    int depth = 0;
    bool string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
            continue;
        }
        string = c == '"';
        values += c == ',' || c == ':' || c == '[' || c == '{';
        if ((c == '[' || c == '{') && ++depth > JSONFILE_DEPTH)
            return err_set(e, ERR_TOO_LARGE, "%s: JSON nested more than %d levels deep", file, JSONFILE_DEPTH);
        depth -= (c == ']' || c == '}') && depth > 0;
    }
    if (values > JSONFILE_VALUES)
        return err_set(e, ERR_TOO_LARGE, "%s: JSON of %zu values, at most %d are read", file, values, JSONFILE_VALUES);
    return ERR_OK;
}

static bool is_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// What Python writes and jansson does not read, at p: its length in the text, 0 for anything else, and what to put in
// its place. tokenizer_config.json often has an integer of 31 digits, for a length without a limit.
static size_t foreign(const char *p, size_t left, const char **ret_text, size_t *ret_keep)
{
    static const struct {
        const char *word, *text;
    } words[] = {{"Infinity", "1.7976931348623157e308"}, {"-Infinity", "-1.7976931348623157e308"}, {"NaN", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if (left >= n && memcmp(p, words[i].word, n) == 0) {
            *ret_text = words[i].text;
            *ret_keep = 0;
            return n;
        }
    }
    size_t n = 0;
    bool whole = true;
    for (; n < left && is_number(p[n]); n++)
        whole = whole && p[n] != '.' && p[n] != 'e' && p[n] != 'E';
    if (!whole || n < 19)
        return 0;
    *ret_text = ".0";
    *ret_keep = n;
    return n;
}

// The text with foreign numbers put right, to be freed; NULL when it has none or memory is short.
static char *put_right(const char *text, size_t len, size_t *ret_len)
{
    const char *with;
    size_t at = 0, n, keep;
    bool string = false, changed = false;
    char *out = len <= SIZE_MAX / 3 - 1 ? malloc(len * 3 + 1) : NULL;
    for (size_t i = 0; out && i < len; i += n) {
        n = 1;
        if (string && text[i] == '\\' && i + 1 < len)
            n = 2;
        string ^= text[i] == '"';
        size_t found = string || (i && is_number(text[i - 1])) ? 0 : foreign(text + i, len - i, &with, &keep);
        n = found ? found : n;
        memcpy(out + at, text + i, found ? keep : n);
        at += found ? keep : n;
        if (!found)
            continue;
        memcpy(out + at, with, strlen(with));
        at += strlen(with);
        changed = true;
    }
    if (!changed) {
        free(out);
        return NULL;
    }
    *ret_len = at;
    return out;
}

static json_t *load(const char *text, size_t len, enum jsonfile_mode mode, json_error_t *why)
{
    json_t *j = json_loadb(text, len, mode == JSONFILE_STRICT ? JSON_REJECT_DUPLICATES : JSON_ALLOW_NUL, why);
    char *right = j || mode == JSONFILE_STRICT ? NULL : put_right(text, len, &len);
    if (right)
        j = json_loadb(right, len, JSON_ALLOW_NUL, why);
    free(right);
    return j;
}

err_code jsonfile_parse(const char *file, const char *text, size_t len, enum jsonfile_mode mode,
                        struct json_t **ret_json, err *e)
{
    err_code rc = check_bounds(file, text, len, e);
    if (rc)
        return rc;
    json_error_t je;
    json_t *j = load(text, len, mode, &je);
    if (!j) {
        for (char *p = je.text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7F)
                *p = ' ';
        return err_set(e, ERR_CORRUPT, "%s: not valid JSON at byte %d: %s", file, je.position, je.text);
    }
    if (!json_is_object(j) && mode != JSONFILE_ANY) {
        json_decref(j);
        return err_set(e, ERR_CORRUPT, "%s: JSON array found, expected an object", file);
    }
    *ret_json = j;
    return ERR_OK;
}

err_code jsonfile_read(const char *path, enum jsonfile_mode mode, struct json_t **ret_json, err *e)
{
    char *text;
    size_t len;
    err_code rc = file_read(path, JSONFILE_SIDE, &text, &len, e);
    if (rc)
        return rc;
    rc = jsonfile_parse(path, text, len, mode, ret_json, e);
    free(text);
    return rc;
}
