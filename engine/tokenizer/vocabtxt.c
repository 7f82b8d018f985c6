// vocabtxt.c - a folder that has BERT's vocab.txt (a token a line) and no tokenizer.json: makes the tokenizer.json that
// the same options of tokenizer_config.json stand for, and opens that. Runs while a model is opened.

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/model.h"

enum { MAX_FILE = 64 << 20 };

static char *path_of(const char *folder)
{
    static const char name[] = "/vocab.txt";
    char *path = mem_new(strlen(folder) + sizeof name);
    strcpy(path, folder);
    return strcat(path, name);
}

bool tokenizer_vocabtxt_has(const char *folder)
{
    char *path = path_of(folder);
    bool has = file_exists(path);
    free(path);
    return has;
}

// {"token": line number}. Of equal lines the last one counts, as in the reference.
static err_code read_vocab(const char *path, json_t *vocab, err *e)
{
    char *text;
    size_t len;
    err_code rc = file_read(path, MAX_FILE, &text, &len, e);
    if (rc)
        return rc;
    if (!utf8_valid(text, len))
        rc = err_set(e, ERR_CORRUPT, "%s is not UTF-8", path);
    json_int_t line = 0;
    for (size_t at = 0, n; !rc && at < len; at += n + 1, line++) {
        const char *end = memchr(text + at, '\n', len - at);
        n = end ? (size_t)(end - text) - at : len - at;
        size_t used = n && text[at + n - 1] == '\r' ? n - 1 : n;
        if (memchr(text + at, 0, used))
            rc = err_set(e, ERR_CORRUPT, "%s: line %lld has a zero byte", path, (long long)line + 1);
        else
            json_object_setn_new(vocab, text + at, used, json_integer(line));
    }
    free(text);
    return rc;
}

// A token's spelling in tokenizer_config.json: a text, or an object with its content.
static const char *spelling(const json_t *config, const char *key, const char *fallback)
{
    const json_t *j = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(j) ? json_object_get(j, "content") : j);
    return text ? text : fallback;
}

static json_t *option(const json_t *config, const char *key, bool fallback)
{
    const json_t *j = json_object_get(config, key);
    return json_boolean(json_is_boolean(j) ? json_is_true(j) : fallback);
}

static json_t *special_tokens(const json_t *config, const json_t *vocab)
{
    static const char *const names[][2] = {{"pad_token", "[PAD]"}, {"unk_token", "[UNK]"}, {"cls_token", "[CLS]"},
                                           {"sep_token", "[SEP]"}, {"mask_token", "[MASK]"}};
    json_t *list = json_array();
    for (int i = 0; i < 5; i++) {
        const char *text = spelling(config, names[i][0], names[i][1]);
        const json_t *id = json_object_get(vocab, text);
        if (id)
            json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b}", "id", json_integer_value(id), "content", text,
                                                  "special", 1, "normalized", 0));
    }
    return list;
}

static err_code make_json(const json_t *config, json_t *vocab, json_t **ret_json, err *e)
{
    const char *cls = spelling(config, "cls_token", "[CLS]"), *sep = spelling(config, "sep_token", "[SEP]");
    const json_t *cls_id = json_object_get(vocab, cls), *sep_id = json_object_get(vocab, sep);
    const json_t *accents = json_object_get(config, "strip_accents");
    if (!cls_id || !sep_id)
        return err_set(e, ERR_CORRUPT, "vocab.txt has no token '%.60s'", cls_id ? sep : cls);
    json_t *normal = json_pack("{s:s, s:b, s:o, s:o}", "type", "BertNormalizer", "clean_text", 1, "lowercase",
                               option(config, "do_lower_case", true), "handle_chinese_chars",
                               option(config, "tokenize_chinese_chars", true));
    json_object_set_new(normal, "strip_accents",
                        json_is_boolean(accents) ? json_boolean(json_is_true(accents)) : json_null());
    *ret_json = json_pack("{s:o, s:o, s:{s:s}, s:{s:s, s:[s, I], s:[s, I]}, s:{s:s}, s:{s:s, s:O, s:s}}",
                          "added_tokens", special_tokens(config, vocab), "normalizer", normal,
                          "pre_tokenizer", "type", "BertPreTokenizer",
                          "post_processor", "type", "BertProcessing", "sep", sep, json_integer_value(sep_id),
                          "cls", cls, json_integer_value(cls_id),
                          "decoder", "type", "WordPiece",
                          "model", "type", "WordPiece", "vocab", vocab, "unk_token", spelling(config, "unk_token", "[UNK]"));
    return *ret_json ? ERR_OK : err_set(e, ERR_CORRUPT, "vocab.txt and tokenizer_config.json cannot be joined");
}

err_code tokenizer_vocabtxt_open(const char *folder, const struct tokenizer_json_files *files,
                                 struct tokenizer **ret_tokenizer, err *e)
{
    char *path = path_of(folder);
    json_t *vocab = json_object(), *json = NULL;
    struct tokenizer_json_files all = *files;
    err_code rc = read_vocab(path, vocab, e);
    if (rc == ERR_OK)
        rc = make_json(files->config, vocab, &json, e);
    all.tokenizer = json;
    if (rc == ERR_OK)
        rc = tokenizer_hf_open(&all, ret_tokenizer, e);
    json_decref(json);
    json_decref(vocab);
    free(path);
    return rc;
}
