// Bodies. Memory grows with what has really arrived, never with what Content-Length promises.
#include "server/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "server/state.h"
#include "server/upload.h"

static bool grow(struct exchange *x, size_t need)
{
    size_t cap = x->body_cap ? x->body_cap : 4096;
    while (cap < need)
        cap += cap / 2;
    char *body = realloc(x->r.body, cap);
    if (!body)
        return false;
    x->r.body = body;
    x->body_cap = cap;
    return true;
}

err_code body_add(struct exchange *x, const char *data, size_t n, err *e)
{
    struct server *s = x->r.server;
    size_t max = s->config.max_body, total, need;
    if (!size_add(x->r.body_len, n, &total) || total > max)
        return err_set(e, ERR_TOO_LARGE, "The request body is larger than the limit of %zu bytes (the setting max_body).",
                       max);
    if (s->body_bytes + n > max * BODIES_FACTOR)
        return err_set(e, ERR_BUSY, "Too many request bodies are being read at once; please retry.");
    if (!size_add(total, 1, &need) || (need > x->body_cap && !grow(x, need)))
        return err_set(e, ERR_MEMORY, "No memory for a request body of %zu bytes.", total);
    memcpy(x->r.body + x->r.body_len, data, n);
    x->r.body_len = total;
    x->r.body[total] = 0;
    x->accounted += n;
    s->body_bytes += n;
    return ERR_OK;
}

err_code body_add_upload(struct exchange *x, const char *data, size_t n, err *e)
{
    struct server *s = x->r.server;
    size_t max = s->config.max_upload, total;
    if (!size_add(x->r.body_len, n, &total) || total > max + UPLOAD_FORM_MAX)
        return err_set(e, ERR_TOO_LARGE, "The upload is larger than the limit of %zu bytes (the setting max_upload).",
                       max);
    if (s->upload_bytes + n > max * UPLOADS_FACTOR + UPLOAD_FORM_MAX)
        return err_set(e, ERR_BUSY, "Too many uploads are being read at once; please retry.");
    x->r.body_len = total;
    x->uploaded += n;
    s->upload_bytes += n;
    if (x->parse_error.code)
        return ERR_OK;
    if (upload_add(x->r.upload, data, n, &x->parse_error) == ERR_TOO_LARGE) {
        *e = x->parse_error;
        return e->code;
    }
    return ERR_OK;
}

void body_release(struct exchange *x)
{
    x->r.server->upload_bytes -= x->uploaded;
    x->uploaded = 0;
    x->r.server->body_bytes -= x->accounted;
    x->accounted = 0;
}

// *ret_members is right unless it returns true.
static bool too_many(const char *text, size_t n, size_t max, size_t max_members, size_t *ret_members)
{
    size_t values = 0, members = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == ',' || c == '[' || c == '{' || c == ':') {
            members += c != ',';
            if (++values > max || members > max_members)
                return true;
        }
    }
    *ret_members = members;
    return false;
}

bool body_too_many_values(const char *text, size_t n, size_t max, size_t max_members)
{
    size_t ignored;
    return too_many(text, n, max, max_members, &ignored);
}

size_t body_members(const char *text, size_t n)
{
    size_t members = 0;
    (void)too_many(text, n, SIZE_MAX, SIZE_MAX, &members);
    return members;
}

// A name that may stand in an error: ours all look like this.
static bool is_plain(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(name[i] >= 'a' && name[i] <= 'z') && name[i] != '_')
            return false;
    return n > 0;
}

void body_field_at(const char *text, size_t n, char *out, size_t size)
{
    int depth = 0;
    bool key = false;  // the next string is one
    size_t start = 0;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '{' || c == '[') {
            key = c == '{' && depth == 0;
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',') {
            key = depth == 1;
        } else if (c == '"') {
            for (start = ++i; i < n && text[i] != '"'; i++)
                i += text[i] == '\\';
            if (key && depth == 1)
                snprintf(out, size, "%.*s", i <= n && is_plain(text + start, i - start) ? (int)(i - start) : 0, text + start);
            key = false;
        }
    }
}

// Whether what is wrong is one value that JSON has a place for, and not the text around it.
static bool is_value(const json_error_t *je)
{
    switch (json_error_code(je)) {
    case json_error_numeric_overflow:
    case json_error_null_character:
    case json_error_null_byte_in_key:
    case json_error_stack_overflow:
    case json_error_duplicate_key: return true;
    default: return !strncmp(je->text, "invalid Unicode", 15);  // half of a surrogate pair
    }
}

static err_code not_json(const char *text, size_t n, const json_error_t *je, err *e)
{
    char field[64] = "";
    size_t at = je->position < 0 ? 0 : (size_t)je->position;
    if (is_value(je))
        body_field_at(text, at < n ? at : n, field, sizeof field);
    return err_set_param(e, ERR_INVALID, field, "The request body is not valid JSON: line %d, column %d: %s", je->line,
                         je->column, je->text);
}

static void release_json(void *json)
{
    json_decref(json);
}

static err_code parse(struct exchange *x, err *e)
{
    const char *text = x->r.body ? x->r.body : "";
    size_t n = x->r.body_len;
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) {
        text += 3;
        n -= 3;
    }
    if (n == 0)
        return err_set(e, ERR_INVALID, "The request body is empty; a JSON object was expected.");
    if (body_too_many_values(text, n, JSON_VALUES_MAX, JSON_MEMBERS_MAX))
        return err_set(e, ERR_TOO_LARGE, "The request body holds more than %d JSON values, or %d members and containers.",
                       JSON_VALUES_MAX, JSON_MEMBERS_MAX);
    json_error_t je;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!j)
        return not_json(text, n, &je, e);
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(e, ERR_INVALID, "The request body must be a JSON object.");
    }
    x->r.json = j;
    arena_defer(&x->r.arena, release_json, j);
    return ERR_OK;
}

bool body_parse(struct exchange *x)
{
    return parse(x, &x->parse_error) == ERR_OK;
}
