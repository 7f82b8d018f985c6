// template_json.c - JSON of a request to values and back to text as Python's json.dumps writes it.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/text/template_int.h"

static struct value convert(struct run *r, const json_t *j, bool untrusted);

static struct value convert_array(struct run *r, const json_t *j, bool untrusted)
{
    size_t n = json_array_size(j);
    struct seq *s = template_value_seq(r, SEQ_LIST, n);
    s->untrusted = untrusted;
    for (size_t i = 0; i < n && !r->failed; i++)
        template_value_push(r, s, convert(r, json_array_get(j, i), untrusted));
    return template_value_of_seq(s);
}

static struct value convert_object(struct run *r, const json_t *j, bool untrusted)
{
    struct dict *d = template_value_dict(r);
    const char *key;
    json_t *item;
    d->untrusted = untrusted;
    json_object_foreach((json_t *)(uintptr_t)j, key, item) {
        if (r->failed)
            break;
        template_value_put(r, d, template_value_str(r, key, strlen(key), untrusted), convert(r, item, untrusted));
    }
    return (struct value){.type = V_DICT, .dict = d};
}

static struct value convert(struct run *r, const json_t *j, bool untrusted)
{
    struct value v = {.type = V_NONE};
    if (!template_value_enter(r) || !template_value_charge(r, 0)) {
        r->depth--;
        return v;
    }
    switch (j ? json_typeof(j) : JSON_NULL) {
    case JSON_OBJECT:
        v = convert_object(r, j, untrusted);
        break;
    case JSON_ARRAY:
        v = convert_array(r, j, untrusted);
        break;
    case JSON_STRING:
        v = template_value_str(r, json_string_value(j), json_string_length(j), untrusted);
        break;
    case JSON_INTEGER:
        v = (struct value){.type = V_INT, .i = json_integer_value(j)};
        break;
    case JSON_REAL:
        v = (struct value){.type = V_FLOAT, .f = json_real_value(j)};
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = (struct value){.type = V_BOOL, .b = json_is_true(j)};
        break;
    default:
        break;
    }
    r->depth--;
    return v;
}

struct value template_json_value(struct run *r, const struct json_t *j)
{
    return convert(r, j, true);
}

// Templates build control tokens around the role ('<|' + role + '|>'): the few role names there are count as the
// template's own text. They are fixed words, so nothing can be forged with them.
struct value template_json_messages(struct run *r, const struct json_t *j)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", "function", "ipython",
                                        "documents", "context", "model"};
    struct value v = convert(r, j, true);
    for (size_t i = 0; v.type == V_SEQ && i < v.seq->n && !r->failed; i++) {
        struct value m = v.seq->v[i];
        struct str key = {.p = "role", .len = 4};
        const struct value *role = m.type == V_DICT ? template_value_find_text(r, m.dict, &key) : NULL;
        for (size_t k = 0; role && role->type == V_STR && k < sizeof roles / sizeof *roles; k++)
            if (role->s->len == strlen(roles[k]) && !memcmp(role->s->p, roles[k], role->s->len)) {
                template_value_put_text(r, m.dict, "role", template_value_text(r, roles[k]));
                break;
            }
    }
    return v;
}

// ---- tojson

struct dump {
    struct run *r;
    struct out *o;
    bool ascii, sort;
    const struct str *indent, *item, *key;  // indent NULL: one line
    int level;
};

static void text(struct dump *d, const char *s, bool untrusted)
{
    template_value_out(d->r, d->o, s, strlen(s), untrusted);
}

static void dump_str(struct dump *d, const struct str *s)
{
    bool first = s->mask && s->len ? s->mask[0] : s->untrusted;
    text(d, "\"", first);
    size_t from = 0;
    for (size_t i = 0, n; i < s->len && !d->r->failed; i += n) {
        uint32_t cp;
        char esc[16] = "";
        n = (size_t)utf8_decode(s->p + i, s->len - i, &cp);
        n = n ? n : 1;
        unsigned char c = (unsigned char)s->p[i];
        static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
        const char *k = c ? strchr(plain, c) : NULL;
        if (k)
            snprintf(esc, sizeof esc, "\\%c", letter[k - plain]);
        else if (c < 0x20 || (d->ascii && (c == 0x7F || (n > 1 && cp < 0x10000))))
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)(c < 0x80 ? c : cp));
        else if (d->ascii && n > 1)
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (cp >> 10)),
                     (unsigned)(0xDC00 + (cp & 0x3FF)));
        if (!*esc)
            continue;
        template_value_out_sub(d->r, d->o, s, from, i);
        text(d, esc, s->mask ? s->mask[i] : s->untrusted);
        from = i + n;
    }
    template_value_out_sub(d->r, d->o, s, from, s->len);
    text(d, "\"", first);
}

static void newline(struct dump *d, bool untrusted)
{
    if (!d->indent)
        return;
    text(d, "\n", untrusted);
    for (int i = 0; i < d->level && !d->r->failed; i++)
        template_value_out(d->r, d->o, d->indent->p, d->indent->len, untrusted);
}

static void separator(struct dump *d, const struct str *s, bool untrusted)
{
    template_value_out(d->r, d->o, s->p, s->len, untrusted || s->untrusted);
}

static void dump_value(struct dump *d, struct value v, bool untrusted);

static void dump_number(struct dump *d, struct value v, bool untrusted)
{
    char number[40];
    if (v.type == V_INT)
        snprintf(number, sizeof number, "%" PRId64, v.i);
    else if (isnan(v.f) || isinf(v.f))
        snprintf(number, sizeof number, "%s", isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else
        template_format_float(v.f, number);
    text(d, number, untrusted);
}

static void dump_key(struct dump *d, struct value k, bool untrusted)
{
    if (k.type == V_STR) {
        dump_str(d, k.s);
        return;
    }
    if (k.type != V_INT && k.type != V_FLOAT && k.type != V_BOOL && k.type != V_NONE) {
        template_value_fail(d->r, ERR_INVALID, "keys must be str, int, float, bool or None, not %s",
                            template_value_type(k));
        return;
    }
    text(d, "\"", untrusted);
    dump_value(d, k, untrusted);
    text(d, "\"", untrusted);
}

static struct dict_entry *sorted_entries(struct run *r, const struct dict *d)
{
    const struct seq *keys = template_value_view(r, d, SEQ_KEYS).seq;
    size_t *order = template_value_sort(r, keys->v, keys->n, false);
    struct dict_entry *e = template_value_alloc(r, d->n * sizeof *e);
    if (!order || !e)
        return d->e;
    for (size_t i = 0; i < d->n; i++)
        e[i] = d->e[order[i]];
    return e;
}

static void dump_dict(struct dump *d, const struct dict *dict, bool untrusted)
{
    struct dict_entry *e = dict->e;
    untrusted |= dict->untrusted;
    if (d->sort && dict->n > 1)
        e = sorted_entries(d->r, dict);
    text(d, "{", untrusted);
    d->level++;
    for (size_t i = 0; i < dict->n && !d->r->failed; i++) {
        if (i)
            separator(d, d->item, untrusted);
        newline(d, untrusted);
        dump_key(d, e[i].k, untrusted);
        separator(d, d->key, untrusted);
        dump_value(d, e[i].v, untrusted);
    }
    d->level--;
    if (dict->n)
        newline(d, untrusted);
    text(d, "}", untrusted);
}

static void dump_seq(struct dump *d, const struct seq *s, bool untrusted)
{
    untrusted |= s->untrusted;
    text(d, "[", untrusted);
    d->level++;
    for (size_t i = 0; i < s->n && !d->r->failed; i++) {
        if (i)
            separator(d, d->item, untrusted);
        newline(d, untrusted);
        dump_value(d, s->v[i], untrusted);
    }
    d->level--;
    if (s->n)
        newline(d, untrusted);
    text(d, "]", untrusted);
}

static void dump_value(struct dump *d, struct value v, bool untrusted)
{
    if (template_value_enter(d->r) && template_value_charge(d->r, 0)) {
        if (v.type == V_STR)
            dump_str(d, v.s);
        else if (v.type == V_INT || v.type == V_FLOAT)
            dump_number(d, v, untrusted);
        else if (v.type == V_BOOL || v.type == V_NONE)
            text(d, v.type == V_NONE ? "null" : v.b ? "true" : "false", untrusted);
        else if (v.type == V_DICT)
            dump_dict(d, v.dict, untrusted);
        else if (v.type == V_SEQ && v.seq->kind <= SEQ_TUPLE)
            dump_seq(d, v.seq, untrusted);
        else
            template_value_fail(d->r, ERR_INVALID, "object of type %s is not JSON serializable",
                                template_value_type(v));
    }
    d->r->depth--;
}

// x|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)
struct value template_json_dump(struct run *r, const struct value *v, const struct args *a)
{
    static const struct str comma = {.p = ",", .len = 1}, comma_space = {.p = ", ", .len = 2},
                            colon = {.p = ": ", .len = 2};
    (void)a;
    struct out o = {0};
    struct dump d = {.r = r,
                     .o = &o,
                     .item = &comma_space,
                     .key = &colon,
                     .ascii = template_value_truth(v[1]) && v[1].type != V_ABSENT,
                     .sort = v[4].type != V_ABSENT && template_value_truth(v[4])};
    int64_t n;
    if (v[2].type == V_STR) {
        d.indent = v[2].s;
    } else if (v[2].type != V_ABSENT && v[2].type != V_NONE) {
        template_ops_int(r, v[2], &n);
        struct str *spaces = template_value_alloc(r, sizeof *spaces);
        n = r->failed || n < 0 ? 0 : n > 64 ? 64 : n;
        *spaces =
            (struct str){.p = "                                                                ", .len = (size_t)n};
        d.indent = spaces;
    }
    if (d.indent)
        d.item = &comma;
    if (v[3].type != V_ABSENT && v[3].type != V_NONE) {
        const struct seq *s = template_value_iterate(r, v[3]);
        if (s->n != 2 || s->v[0].type != V_STR || s->v[1].type != V_STR)
            return template_value_fail(r, ERR_INVALID, "separators must be two strings");
        d.item = s->v[0].s;
        d.key = s->v[1].s;
    }
    dump_value(&d, v[0], false);
    return template_value_out_take(r, &o);
}

// x|from_json: not in Jinja, but some published templates call it.
struct value template_json_parse(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    if (v[0].type != V_STR)
        return template_value_fail(r, ERR_INVALID, "from_json needs a string, not '%s'", template_value_type(v[0]));
    json_error_t je = {0};
    json_t *j = template_value_charge(r, v[0].s->len * 4)
                    ? json_loadb(v[0].s->p, v[0].s->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je) : NULL;
    if (!j)
        return template_value_fail(r, ERR_INVALID, "from_json: %s", je.text);
    arena_defer(&r->arena, (arena_release *)json_decref, j);
    return convert(r, j, v[0].s->mask || v[0].s->untrusted);
}
