// answer_value.c - values of arguments that models write in other forms than JSON, as JSON. Any thread; nothing is kept.
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/grammar/jsontext.h"
#include "engine/text/answer_int.h"

enum { MAX_DEPTH = 100, MAX_SCHEMAS = 1000, MAX_NESTED = 64 };

// ---- schemas

const json_t *answer_value_schema(const json_t *tools, const char *name, const char *key, size_t len, const json_t **ret_root)
{
    json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        json_t *f = json_object_get(tool, "function"), *parameters = json_object_get(f, "parameters");
        const char *n = json_string_value(json_object_get(f, "name"));
        if (!n || strcmp(n, name))
            continue;
        *ret_root = parameters;
        return json_object_getn(json_object_get(parameters, "properties"), key, len);
    }
    *ret_root = NULL;
    return NULL;
}

// A bit for each type of JSON.
enum { T_NULL = 1, T_BOOLEAN = 2, T_NUMBER = 4, T_STRING = 8, T_ARRAY = 16, T_OBJECT = 32, T_ANY = 63 };

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return T_NULL;
    case JSON_TRUE: case JSON_FALSE: return T_BOOLEAN;
    case JSON_INTEGER: case JSON_REAL: return T_NUMBER;
    case JSON_STRING: return T_STRING;
    case JSON_ARRAY: return T_ARRAY;
    default: return T_OBJECT;
    }
}

static unsigned named_type(const json_t *v)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    const char *s = json_string_value(v);
    for (int i = 0; s && i < 6; i++)
        if (!strcmp(s, names[i]))
            return 1u << i;
    return s && !strcmp(s, "integer") ? T_NUMBER : 0;
}

// "#/$defs/x"
static const json_t *followed(const json_t *root, const char *ref)
{
    if (strncmp(ref, "#/", 2))
        return NULL;
    for (ref += 2; root && *ref;) {
        size_t n = strcspn(ref, "/");
        root = jsontext_member(root, ref, n);
        ref += n + (ref[n] == '/');
    }
    return root;
}

static unsigned types_of_all(const json_t *values)
{
    unsigned found = 0;
    size_t i;
    const json_t *v;
    json_array_foreach(values, i, v)
        found |= type_of(v);
    return found;
}

struct look {
    const json_t *root;
    int left;  // schemas that are looked at: references can lead to themselves
};

static unsigned types(struct look *l, const json_t *schema, int depth);

static unsigned types_of_any(struct look *l, const json_t *schemas, int depth)
{
    unsigned found = 0;
    size_t i;
    const json_t *v;
    json_array_foreach(schemas, i, v)
        found |= types(l, v, depth);
    return found;
}

// What every keyword admits, as far as it can be seen: T_ANY when nothing is said. The grammar of calls decides alike
// (schema_form_of), and what it writes is read here.
static unsigned types(struct look *l, const json_t *schema, int depth)
{
    static const char *const any[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *ref = json_object_get(schema, "$ref"), *v;
    unsigned may = T_ANY, named = named_type(type);
    size_t i;
    json_array_foreach(type, i, v)
        named |= named_type(v);
    if (named)
        may = named;
    if (depth == MAX_NESTED || l->left-- <= 0)
        return may;
    if (json_is_string(ref))
        may &= types(l, followed(l->root, json_string_value(ref)), depth + 1);
    if ((v = json_object_get(schema, "const")))
        may &= type_of(v);
    if (json_array_size(v = json_object_get(schema, "enum")))
        may &= types_of_all(v);
    for (int k = 0; k < 2; k++)
        if (json_array_size(v = json_object_get(schema, any[k])))
            may &= types_of_any(l, v, depth + 1);
    json_array_foreach(json_object_get(schema, "allOf"), i, v)
        may &= types(l, v, depth + 1);
    return may;
}

static unsigned types_of(const json_t *schema, const json_t *root)
{
    struct look l = {root, MAX_SCHEMAS};
    return types(&l, schema, 0);
}

bool answer_value_text_only(const json_t *schema, const json_t *root)
{
    return types_of(schema, root) == T_STRING;
}

// ---- text

void answer_value_escape(struct buf *out, const char *p, size_t n)
{
    static const char names[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (size_t at = 0; at < n; at++) {
        size_t plain = at;
        while (plain < n && (unsigned char)p[plain] >= 0x20 && p[plain] != '"' && p[plain] != '\\')
            plain++;
        buf_add(out, p + at, plain - at);
        at = plain;
        if (at == n)
            break;
        const char *name = names;
        while (*name && *name != p[at])
            name += 2;
        if (p[at] && *name)
            buf_add(out, (char[]){'\\', name[1]}, 2);
        else
            buf_printf(out, "\\u%04x", (unsigned char)p[at]);
    }
}

static void add_string(struct buf *out, const char *p, size_t n)
{
    buf_add_char(out, '"');
    answer_value_escape(out, p, n);
    buf_add_char(out, '"');
}

static void trim(const char **p, size_t *n)
{
    while (*n && answer_mark_space((*p)[*n - 1]))
        (*n)--;
    while (*n && answer_mark_space(**p)) {
        (*p)++;
        (*n)--;
    }
}

static bool is_word(const char *p, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(p, word, n);
}

// The literals of JSON, also as Python prints them.
static const char *literal(const char *p, size_t n)
{
    if (is_word(p, n, "true") || is_word(p, n, "True"))
        return "true";
    if (is_word(p, n, "false") || is_word(p, n, "False"))
        return "false";
    return is_word(p, n, "null") || is_word(p, n, "None") ? "null" : NULL;
}

static unsigned literal_type(const char *name)
{
    return *name == 'n' ? T_NULL : T_BOOLEAN;
}

// ---- values with names and strings of their own: a small reader for both forms

struct reader {
    struct buf *out;
    const char *quote;  // FORM_BRACES; NULL: Python
    size_t quote_len;
    const char *p, *end;
    int depth;
};

static bool value(struct reader *r);

static void skip(struct reader *r)
{
    while (r->p < r->end && answer_mark_space(*r->p))
        r->p++;
}

static bool take(struct reader *r, char c)
{
    skip(r);
    if (r->p == r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

// Hexadecimal digits at p as \uXXXX; how many there were, 0: too few.
static int hex_escape(struct reader *r, int digits)
{
    char text[5] = "0000";
    if (r->end - r->p < digits)
        return 0;
    for (int i = 0; i < digits; i++) {
        if (!r->p[i] || !strchr("0123456789abcdefABCDEF", r->p[i]))
            return 0;
        text[4 - digits + i] = r->p[i];
    }
    buf_printf(r->out, "\\u%s", text);
    return digits;
}

// Behind a backslash in a string of Python.
static void python_escape(struct reader *r)
{
    static const char names[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    char c = *r->p++;
    int digits = c == 'x' ? hex_escape(r, 2) : c == 'u' ? hex_escape(r, 4) : 0;
    r->p += digits;
    if (digits || c == '\n')
        return;
    for (const char *n = names; *n; n += 2)
        if (*n == c) {
            answer_value_escape(r->out, n + 1, 1);
            return;
        }
    answer_value_escape(r->out, (char[]){'\\', c}, 2);
}

static bool python_string(struct reader *r)
{
    char quote = *r->p++;
    buf_add_char(r->out, '"');
    while (r->p < r->end && *r->p != quote) {
        const char *from = r->p;
        while (r->p < r->end && *r->p != quote && *r->p != '\\')
            r->p++;
        answer_value_escape(r->out, from, (size_t)(r->p - from));
        if (r->p + 1 < r->end && *r->p == '\\') {
            r->p++;
            python_escape(r);
        } else if (r->p < r->end && *r->p == '\\') {
            return false;
        }
    }
    buf_add_char(r->out, '"');
    return take(r, quote);
}

static bool at_quote(const struct reader *r)
{
    return r->quote_len && (size_t)(r->end - r->p) >= r->quote_len && !memcmp(r->p, r->quote, r->quote_len);
}

static bool quoted_string(struct reader *r)
{
    const char *from = r->p += r->quote_len;
    while (r->p < r->end && !at_quote(r))
        r->p++;
    if (r->p == r->end)
        return false;
    add_string(r->out, from, (size_t)(r->p - from));
    r->p += r->quote_len;
    return true;
}

static bool key(struct reader *r)
{
    skip(r);
    if (r->p < r->end && !r->quote && (*r->p == '"' || *r->p == '\''))
        return python_string(r) && take(r, ':');
    if (at_quote(r))
        return quoted_string(r) && take(r, ':');
    const char *from = r->p;
    while (r->p < r->end && *r->p != ':' && !strchr(",{}[]", *r->p))
        r->p++;
    if (!r->quote || r->p == r->end || *r->p != ':')
        return false;
    size_t n = (size_t)(r->p++ - from);
    trim(&from, &n);
    add_string(r->out, from, n);
    return true;
}

static bool list(struct reader *r, char close, bool object)
{
    buf_add_char(r->out, object ? '{' : '[');
    bool first = true;
    while (!take(r, close)) {
        if (!first && !take(r, ','))
            return false;
        if (!first && take(r, close))  // Python takes a comma behind the last
            break;
        buf_add_str(r->out, first ? "" : ", ");
        first = false;
        if (object && !key(r))
            return false;
        buf_add_str(r->out, object ? ": " : "");
        if (!value(r))
            return false;
    }
    buf_add_char(r->out, object ? '}' : ']');
    return true;
}

static bool is_json(const char *p, size_t n)
{
    struct answer_json j;
    enum answer_json_step step = JSON_MORE;
    answer_json_start(&j);
    for (size_t i = 0; i < n; i++)
        if (step != JSON_MORE || (step = answer_json_step(&j, (unsigned char)p[i])) == JSON_BAD)
            return false;
    return n && (step == JSON_END || answer_json_step(&j, ' ') == JSON_AFTER);
}

// A number, a literal or, in FORM_BRACES, a bare word.
static bool scalar(struct reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && !strchr(",]})", *r->p))
        r->p++;
    size_t n = (size_t)(r->p - from);
    trim(&from, &n);
    const char *name = literal(from, n);
    if (name)
        buf_add_str(r->out, name);
    else if (is_json(from, n))
        buf_add(r->out, from, n);
    else if (r->quote && n)
        add_string(r->out, from, n);
    else
        return false;
    return true;
}

static bool value(struct reader *r)
{
    skip(r);
    if (r->p == r->end || r->depth == MAX_DEPTH)
        return false;
    char c = *r->p;
    if (at_quote(r))
        return quoted_string(r);
    if (!r->quote && (c == '"' || c == '\''))
        return python_string(r);
    if (c != '{' && c != '[' && (c != '(' || r->quote))
        return scalar(r);
    r->p++;
    r->depth++;
    bool good = list(r, c == '{' ? '}' : c == '[' ? ']' : ')', c == '{');
    r->depth--;
    return good;
}

// False, and nothing is written, when the text is no value.
static bool read_value(struct buf *out, const char *quote, const char *p, size_t n)
{
    struct reader r = {.out = out, .quote = quote, .quote_len = quote ? strlen(quote) : 0, .p = p, .end = p + n};
    size_t before = out->len;
    bool good = value(&r);
    skip(&r);
    if (good && r.p == r.end)
        return true;
    out->len = before;
    return false;
}

static void value_or_string(struct buf *out, const char *quote, const char *p, size_t n)
{
    if (read_value(out, quote, p, n))
        return;
    trim(&p, &n);
    add_string(out, p, n);
}

void answer_value_text(struct buf *out, const json_t *schema, const json_t *root, const char *p, size_t n)
{
    unsigned want = types_of(schema, root);
    want = want ? want : T_ANY;  // nothing could be right
    const char *s = p;
    size_t len = n;
    trim(&s, &len);
    const char *name = literal(s, len);
    if (name && (literal_type(name) & want)) {
        buf_add_str(out, name);
        return;
    }
    if (want == (T_STRING | T_NULL)) {
        add_string(out, p, n);
        return;
    }
    json_t *v = json_loadb(s, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    unsigned opens = len && *s == '{' ? T_OBJECT : len && *s == '[' ? T_ARRAY : 0;
    if (v && (type_of(v) & want))
        buf_add(out, s, len);
    else if (v || !(opens & want) || !read_value(out, NULL, s, len))  // some templates print dictionaries as Python does
        add_string(out, p, n);
    json_decref(v);
}

void answer_value_braces(struct buf *out, const char *quote, const char *p, size_t n)
{
    value_or_string(out, quote, p, n);
}

void answer_value_python(struct buf *out, const char *p, size_t n)
{
    value_or_string(out, NULL, p, n);
}
