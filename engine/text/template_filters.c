// template_filters.c - the filters: v|name(arguments). One function each, and the table at the end.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template_int.h"

static bool given(struct value v)
{
    return v.type != V_ABSENT;
}

static bool flag(struct value v)
{
    return given(v) && template_value_truth(v);
}

static struct value integer(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}

static const struct str *as_str(struct run *r, struct value v)
{
    return template_format_str(r, v).s;
}

static struct value undefined(void)
{
    return (struct value){.type = V_UNDEF, .of = V_ABSENT};
}

// ---- reaching into items: attribute="a.b.0"

static struct value path_item(struct run *r, struct value item, struct value path, struct value fallback)
{
    if (path.type != V_STR) {
        if (!given(path) || path.type == V_NONE)
            return item;
        item = template_ops_item(r, item, path);
        return item.type == V_UNDEF && given(fallback) && fallback.type != V_NONE ? fallback : item;
    }
    struct str dot = {.p = ".", .len = 1};
    struct value parts = template_text_split(r, path.s, &dot, -1, false);
    for (size_t i = 0; !r->failed && i < parts.seq->n; i++) {
        struct value key = parts.seq->v[i];
        if (key.s->len && key.s->len < 10 && template_text_is(key.s, "digit"))
            key = integer(strtoll(key.s->p, NULL, 10));
        item = template_ops_item(r, item, key);
        if (item.type == V_UNDEF && given(fallback) && fallback.type != V_NONE)
            item = fallback;
    }
    return item;
}

static struct value sort_key(struct run *r, struct value v, bool case_sensitive)
{
    return !case_sensitive && v.type == V_STR ? template_text_case(r, v.s, CASE_LOWER) : v;
}

static struct value *keys_of(struct run *r, const struct seq *s, struct value path, struct value fallback,
                             bool case_sensitive)
{
    struct value *keys = template_value_alloc(r, (s->n + 1) * sizeof *keys);
    for (size_t i = 0; keys && i < s->n && !r->failed; i++)
        keys[i] = sort_key(r, path_item(r, s->v[i], path, fallback), case_sensitive);
    return r->failed ? NULL : keys;
}

// sort(attribute="a,b"): a list of keys an item
static struct value *multi_keys(struct run *r, const struct seq *s, struct value paths, bool case_sensitive)
{
    struct value absent = {.type = V_ABSENT};
    struct str comma = {.p = ",", .len = 1};
    if (paths.type != V_STR || template_text_find(paths.s, &comma, 0, paths.s->len) < 0)
        return keys_of(r, s, paths, absent, case_sensitive);
    const struct seq *parts = template_text_split(r, paths.s, &comma, -1, false).seq;
    struct value *keys = template_value_alloc(r, (s->n + 1) * sizeof *keys);
    for (size_t i = 0; keys && i < s->n && !r->failed; i++) {
        struct seq *key = template_value_seq(r, SEQ_LIST, parts->n);
        for (size_t k = 0; k < parts->n; k++)
            template_value_push(r, key, sort_key(r, path_item(r, s->v[i], parts->v[k], absent), case_sensitive));
        keys[i] = template_value_of_seq(key);
    }
    return r->failed ? NULL : keys;
}

static struct seq *in_order(struct run *r, const struct seq *s, const struct value *keys, bool reverse)
{
    struct seq *sorted = template_value_seq(r, SEQ_LIST, s->n);
    size_t *order = keys ? template_value_sort(r, keys, s->n, reverse) : NULL;
    sorted->untrusted = s->untrusted;
    for (size_t i = 0; order && i < s->n; i++)
        template_value_push(r, sorted, s->v[order[i]]);
    return sorted;
}

// ---- sequences

static struct value f_length(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    switch (v->type) {
    case V_UNDEF:
        return integer(0);
    case V_STR:
        template_value_charge(r, v->s->len);
        return integer((int64_t)template_value_chars(v->s));
    case V_DICT:
        return integer((int64_t)v->dict->n);
    case V_LOOP:
        return integer((int64_t)v->loop->items->n);
    default:
        if (v->type == V_SEQ && v->seq->kind != SEQ_ITER)
            return integer((int64_t)v->seq->n);
        return template_value_fail(r, ERR_INVALID, "object of type '%s' has no len()", template_value_type(*v));
    }
}

static struct value f_first(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    return s->n ? s->v[0] : undefined();
}

static struct value f_last(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    if (v->type == V_SEQ && v->seq->kind == SEQ_ITER)
        return template_value_fail(r, ERR_INVALID, "'generator' object is not reversible");
    const struct seq *s = template_value_iterate(r, v[0]);
    return s->n ? s->v[s->n - 1] : undefined();
}

static struct value copy_as(struct run *r, struct value v, enum seq_kind kind, bool reverse)
{
    const struct seq *s = template_value_iterate(r, v);
    struct seq *n = template_value_seq(r, kind, s->n);
    n->untrusted = s->untrusted || (v.type == V_DICT && v.dict->untrusted);
    for (size_t i = 0; i < s->n && !r->failed; i++)
        template_value_push(r, n, s->v[reverse ? s->n - 1 - i : i]);
    return template_value_of_seq(n);
}

static struct value f_list(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return copy_as(r, v[0], SEQ_LIST, false);
}

static struct value f_reverse(struct run *r, const struct value *v, const struct args *a)
{
    static const struct value backwards[3] = {{.type = V_NONE}, {.type = V_NONE}, {.type = V_INT, .i = -1}};
    (void)a;
    return v->type == V_STR ? template_ops_slice(r, v[0], backwards) : copy_as(r, v[0], SEQ_ITER, true);
}

static struct value f_items(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    if (v->type == V_UNDEF)
        return template_value_of_seq(template_value_seq(r, SEQ_ITER, 0));
    if (v->type != V_DICT)
        return template_value_fail(r, ERR_INVALID, "can only get item pairs from a mapping, not '%s'",
                                   template_value_type(*v));
    return copy_as(r, template_value_view(r, v->dict, SEQ_ITEMS), SEQ_ITER, false);
}

static struct value f_dictsort(struct run *r, const struct value *v, const struct args *a)
{
    bool by_value = given(v[2]) && v[2].type == V_STR && v[2].s->len == 5;
    (void)a;
    if (v->type != V_DICT)
        return template_value_fail(r, ERR_INVALID, "dictsort needs a mapping, not '%s'", template_value_type(*v));
    struct seq *items = template_value_view(r, v->dict, SEQ_ITEMS).seq;
    return template_value_of_seq(
        in_order(r, items, keys_of(r, items, integer(by_value), v[4], flag(v[1])), flag(v[3])));
}

static struct value f_sort(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    return template_value_of_seq(in_order(r, s, multi_keys(r, s, v[3], flag(v[2])), flag(v[1])));
}

static struct value f_unique(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct value *keys = keys_of(r, s, v[2], v[3], flag(v[1]));
    struct seq *kept = template_value_seq(r, SEQ_ITER, 0);
    struct dict *seen = template_value_dict(r);
    for (size_t i = 0; keys && i < s->n && !r->failed; i++) {
        size_t n = seen->n;
        template_value_put(r, seen, keys[i], integer(1));
        if (seen->n > n)
            template_value_push(r, kept, s->v[i]);
    }
    return template_value_of_seq(kept);
}

static struct value extreme(struct run *r, const struct value *v, int sign)
{
    const struct seq *s = template_value_iterate(r, v[0]);
    struct value *keys = keys_of(r, s, v[2], (struct value){.type = V_ABSENT}, flag(v[1]));
    size_t best = 0;
    for (size_t i = 1; keys && i < s->n && !r->failed; i++)
        if (template_value_order(r, keys[i], keys[best]) * sign > 0)
            best = i;
    return s->n ? s->v[best] : undefined();
}

static struct value f_min(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return extreme(r, v, -1);
}

static struct value f_max(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return extreme(r, v, 1);
}

static struct value f_sum(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct value total = given(v[2]) ? v[2] : integer(0);
    if (total.type == V_STR)
        return template_value_fail(r, ERR_INVALID, "sum() can't sum strings");
    for (size_t i = 0; i < s->n && !r->failed; i++)
        total = template_ops_binary(r, T_ADD, total, path_item(r, s->v[i], v[1], (struct value){.type = V_ABSENT}));
    return total;
}

static struct value f_join(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct str empty = {.p = ""};
    const struct str *sep = given(v[1]) ? as_str(r, v[1]) : &empty;
    struct out o = {0};
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        if (i)
            template_value_out_str(r, &o, sep);
        template_format_print(r, &o, path_item(r, s->v[i], v[2], (struct value){.type = V_ABSENT}));
    }
    return template_value_out_take(r, &o);
}

static struct value f_batch(struct run *r, const struct value *v, const struct args *a)
{
    int64_t n;
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct seq *rows = template_value_seq(r, SEQ_ITER, 0), *row = NULL;
    template_ops_int(r, v[1], &n);
    if (n < 1)
        return template_value_fail(r, ERR_INVALID, "batch needs a positive number");
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        if (!row || row->n == (size_t)n) {
            row = template_value_seq(r, SEQ_LIST, 0);
            template_value_push(r, rows, template_value_of_seq(row));
        }
        template_value_push(r, row, s->v[i]);
    }
    while (row && given(v[2]) && v[2].type != V_NONE && row->n < (size_t)n && !r->failed)
        template_value_push(r, row, v[2]);
    return template_value_of_seq(rows);
}

static struct value f_slice(struct run *r, const struct value *v, const struct args *a)
{
    int64_t n;
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct seq *columns = template_value_seq(r, SEQ_ITER, 0);
    template_ops_int(r, v[1], &n);
    if (n < 1)
        return template_value_fail(r, ERR_INVALID, "slice needs a positive number");
    size_t each = s->n / (size_t)n, extra = s->n % (size_t)n, at = 0;
    for (size_t k = 0; k < (size_t)n && !r->failed; k++) {
        struct seq *column = template_value_seq(r, SEQ_LIST, 0);
        for (size_t i = 0; i < each + (k < extra); i++)
            template_value_push(r, column, s->v[at++]);
        if (given(v[2]) && v[2].type != V_NONE && k >= extra)
            template_value_push(r, column, v[2]);
        template_value_push(r, columns, template_value_of_seq(column));
    }
    return template_value_of_seq(columns);
}

static struct value f_groupby(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    const struct seq *s = template_value_iterate(r, v[0]);
    struct value *keys = keys_of(r, s, v[1], v[2], flag(v[3]));
    size_t *order = keys ? template_value_sort(r, keys, s->n, false) : NULL;
    struct seq *groups = template_value_seq(r, SEQ_LIST, 0), *group = NULL;
    for (size_t i = 0; order && i < s->n && !r->failed; i++) {
        struct value item = s->v[order[i]];
        if (!group || !template_value_equal(r, keys[order[i]], keys[order[i - 1]])) {
            struct seq *pair = template_value_seq(r, SEQ_TUPLE, 2);
            group = template_value_seq(r, SEQ_LIST, 0);
            template_value_push(r, pair, path_item(r, item, v[1], v[2]));
            template_value_push(r, pair, template_value_of_seq(group));
            template_value_push(r, groups, template_value_of_seq(pair));
        }
        template_value_push(r, group, item);
    }
    return template_value_of_seq(groups);
}

// ---- map, select, reject and their attr forms

// Arguments behind the first n, which are there.
static struct args after(const struct args *a, size_t n)
{
    return (struct args){n ? a->pos + n : a->pos, a->npos - n, a->kw, a->nkw};
}

static struct value f_map(struct run *r, const struct value *v, const struct args *a)
{
    struct seq *out = template_value_seq(r, SEQ_ITER, 0);
    struct value attribute = {.type = V_ABSENT}, fallback = attribute;
    const struct fn_def *def = NULL;
    for (size_t i = 0; i < a->nkw && !a->npos; i++) {
        if (a->kw[i].name->len == 9 && !memcmp(a->kw[i].name->p, "attribute", 9))
            attribute = a->kw[i].v;
        else if (a->kw[i].name->len == 7 && !memcmp(a->kw[i].name->p, "default", 7))
            fallback = a->kw[i].v;
        else
            return template_value_fail(r, ERR_INVALID, "map got an unexpected keyword argument");
    }
    if (!template_value_truth(v[0]))
        return template_value_of_seq(out);
    if (!given(attribute)) {
        if (!a->npos || a->pos[0].type != V_STR)
            return template_value_fail(r, ERR_INVALID, "map requires a filter argument");
        def = template_filters_find(a->pos[0].s->p, a->pos[0].s->len);
        if (!def)
            return template_value_fail(r, ERR_INVALID, "no filter named '%.*s'", (int)(a->pos[0].s->len & 0xFF),
                                       a->pos[0].s->p);
    }
    struct args rest = after(a, a->npos != 0);
    const struct seq *s = template_value_iterate(r, v[0]);
    for (size_t i = 0; i < s->n && !r->failed; i++)
        template_value_push(
            r, out, def ? template_ops_call(r, def, s->v[i], &rest) : path_item(r, s->v[i], attribute, fallback));
    return template_value_of_seq(out);
}

static struct value choose(struct run *r, const struct value *v, const struct args *a, bool attr, bool keep)
{
    struct seq *out = template_value_seq(r, SEQ_ITER, 0);
    struct value path = {.type = V_ABSENT}, absent = path;
    const struct fn_def *test = NULL;
    size_t used = attr;
    if (!template_value_truth(v[0]))
        return template_value_of_seq(out);
    if (a->npos < used)
        return template_value_fail(r, ERR_INVALID, "missing parameter for attribute name");
    if (attr)
        path = a->pos[0];
    if (a->npos > used) {
        struct value name = a->pos[used++];
        test = name.type == V_STR ? template_tests_find(name.s->p, name.s->len) : NULL;
        if (!test)
            return template_value_fail(r, ERR_INVALID, "no test of the name given to select or reject");
    }
    struct args rest = after(a, used);
    const struct seq *s = template_value_iterate(r, v[0]);
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        struct value x = path_item(r, s->v[i], path, absent);
        if (test)
            x = template_ops_call(r, test, x, &rest);
        if (template_value_truth(x) == keep)
            template_value_push(r, out, s->v[i]);
    }
    return template_value_of_seq(out);
}

static struct value f_select(struct run *r, const struct value *v, const struct args *a)
{
    return choose(r, v, a, false, true);
}

static struct value f_reject(struct run *r, const struct value *v, const struct args *a)
{
    return choose(r, v, a, false, false);
}

static struct value f_selectattr(struct run *r, const struct value *v, const struct args *a)
{
    return choose(r, v, a, true, true);
}

static struct value f_rejectattr(struct run *r, const struct value *v, const struct args *a)
{
    return choose(r, v, a, true, false);
}

static struct value f_attr(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    struct value found = v[1].type == V_STR ? template_ops_attr(r, v[0], v[1].s) : undefined();
    return v->type == V_DICT && found.type != V_FUNC ? undefined() : found;
}

// ---- text

static struct value f_string(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return template_format_str(r, v[0]);
}

static struct value f_safe(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    struct str *s = template_value_alloc(r, sizeof *s);
    *s = *as_str(r, v[0]);
    s->markup = true;
    return (struct value){.type = V_STR, .s = s};
}

static struct value f_trim(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    if (given(v[1]) && v[1].type != V_NONE && v[1].type != V_STR)
        return template_value_fail(r, ERR_INVALID, "trim needs characters, not '%s'", template_value_type(v[1]));
    return template_text_strip(r, as_str(r, v[0]), v[1].type == V_STR ? v[1].s : NULL, STRIP_LEFT | STRIP_RIGHT);
}

static struct value f_replace(struct run *r, const struct value *v, const struct args *a)
{
    int64_t count = -1;
    (void)a;
    if (given(v[3]) && v[3].type != V_NONE)
        template_ops_int(r, v[3], &count);
    return template_text_replace(r, as_str(r, v[0]), as_str(r, v[1]), as_str(r, v[2]), count);
}

static struct value f_upper(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return template_text_case(r, as_str(r, v[0]), CASE_UPPER);
}

static struct value f_lower(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return template_text_case(r, as_str(r, v[0]), CASE_LOWER);
}

static struct value f_title(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return template_text_case(r, as_str(r, v[0]), CASE_TITLE_FILTER);
}

static struct value f_capitalize(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    return template_text_case(r, as_str(r, v[0]), CASE_CAPITALIZE);
}

static struct value f_center(struct run *r, const struct value *v, const struct args *a)
{
    int64_t width = 80;
    struct str space = {.p = " ", .len = 1};
    (void)a;
    if (given(v[1]))
        template_ops_int(r, v[1], &width);
    return template_text_pad(r, as_str(r, v[0]), width, 'c', &space);
}

static struct value f_indent(struct run *r, const struct value *v, const struct args *a)
{
    int64_t width = 4;
    (void)a;
    if (v->type != V_STR)
        return v->type == V_UNDEF
                   ? template_value_undefined(r, *v)
                   : template_value_fail(r, ERR_INVALID, "indent needs a string, not '%s'", template_value_type(*v));
    struct value pad = {.type = V_STR, .s = &(struct str){.p = " ", .len = 1}};
    if (v[1].type == V_STR)
        pad = v[1];
    else {
        if (given(v[1]))
            template_ops_int(r, v[1], &width);
        pad = template_ops_binary(r, T_MUL, pad, integer(width));
    }
    struct str newline = {.p = "\n", .len = 1};  // what Jinja appends too, so that a last empty line counts
    const struct seq *s = template_text_lines(r, template_value_concat(r, v->s, &newline).s, false).seq;
    struct out o = {0};
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        if (i)
            template_value_out(r, &o, "\n", 1, v->s->mask || v->s->untrusted);
        if (i == 0 ? flag(v[2]) : flag(v[3]) || s->v[i].s->len)
            template_value_out_str(r, &o, pad.s);
        template_value_out_str(r, &o, s->v[i].s);
    }
    return template_value_out_take(r, &o);
}

static struct value f_truncate(struct run *r, const struct value *v, const struct args *a)
{
    int64_t length = 255, leeway = 5;
    struct str dots = {.p = "...", .len = 3};
    const struct str *s = as_str(r, v[0]), *end = given(v[3]) ? as_str(r, v[3]) : &dots;
    (void)a;
    if (given(v[1]))
        template_ops_int(r, v[1], &length);
    if (given(v[4]) && v[4].type != V_NONE)
        template_ops_int(r, v[4], &leeway);
    int64_t n = (int64_t)template_value_chars(s), tail = (int64_t)template_value_chars(end);
    if (length < tail || leeway < 0)
        return template_value_fail(r, ERR_INVALID, "expected length >= %d", (int)tail);
    if (n <= length + leeway)
        return (struct value){.type = V_STR, .s = s};
    struct str space = {.p = " ", .len = 1};
    size_t cut = template_value_offset(s, (size_t)(length - tail));
    int64_t word = flag(v[2]) ? -1 : template_text_rfind(r, s, &space, 0, cut);
    return template_value_concat(r, template_value_sub(r, s, 0, word >= 0 ? (size_t)word : cut).s, end);
}

static struct value f_wordcount(struct run *r, const struct value *v, const struct args *a)
{
    const struct str *s = as_str(r, v[0]);
    int64_t words = 0;
    bool in_word = false;
    (void)a;
    for (size_t i = 0; i < s->len && template_value_charge(r, 0);) {
        size_t from = i;
        struct value c = template_value_char(r, s, &i);
        bool word = s->p[from] == '_' || template_text_is(c.s, "alnum");
        words += word && !in_word;
        in_word = word;
    }
    return integer(words);
}

static struct value f_escape(struct run *r, const struct value *v, const struct args *a)
{
    struct value safe = f_safe(r, &(struct value){.type = V_STR, .s = &(struct str){.p = ""}}, a);
    return template_ops_binary(r, T_ADD, safe, template_format_str(r, v[0]));
}

static struct value f_format(struct run *r, const struct value *v, const struct args *a)
{
    if (a->nkw) {
        struct dict *d = template_value_dict(r);
        for (size_t i = 0; i < a->nkw; i++)
            template_value_put(r, d, (struct value){.type = V_STR, .s = a->kw[i].name}, a->kw[i].v);
        return template_format_percent(r, as_str(r, v[0]), (struct value){.type = V_DICT, .dict = d});
    }
    struct seq s = {.v = a->pos, .n = a->npos, .kind = SEQ_TUPLE};
    return template_format_percent(r, as_str(r, v[0]), template_value_of_seq(&s));
}

static struct value f_urlencode(struct run *r, const struct value *v, const struct args *a)
{
    const struct str *s = as_str(r, v[0]);
    struct out o = {0};
    (void)a;
    for (size_t i = 0; i < s->len && !r->failed; i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool plain = (c | 32) >= 'a' && (c | 32) <= 'z';
        char hex[4];
        snprintf(hex, sizeof hex, "%%%02X", c);
        if (plain || (c >= '0' && c <= '9') || (c && strchr("_.-~/", c)))
            template_value_out_sub(r, &o, s, i, i + 1);
        else
            template_value_out(r, &o, hex, 3, s->mask ? s->mask[i] : s->untrusted);
    }
    return template_value_out_take(r, &o);
}

// ---- numbers and choices

static struct value f_default(struct run *r, const struct value *v, const struct args *a)
{
    (void)a;
    if (v->type == V_UNDEF || (flag(v[2]) && !template_value_truth(v[0])))
        return given(v[1]) ? v[1] : template_value_text(r, "");
    return v[0];
}

// Python's int(text, base): blanks around, a sign, digits with single underscores.
static bool parse_int(const struct str *s, int64_t base, int64_t *ret_i)
{
    char digits[80];
    size_t n = 0, i = 0;
    for (; i < s->len && n + 1 < sizeof digits; i++) {
        bool joint =
            s->p[i] == '_' && i && i + 1 < s->len && s->p[i - 1] != '_' && s->p[i + 1] != '_' && s->p[i - 1] != '-';
        if (!joint)
            digits[n++] = s->p[i];
    }
    digits[n] = 0;
    char *end, *d = digits + (*digits == '-' || *digits == '+');
    if (i < s->len || !n || !strchr("0123456789abcdefABCDEF", *d) || !*d)
        return false;
    static const char letters[] = "bBoOxX", bases[] = {2, 2, 8, 8, 16, 16};
    const char *k = d[0] == '0' && d[1] ? strchr(letters, d[1]) : NULL;
    if (k && (base == 0 || base == bases[k - letters])) {
        base = bases[k - letters];
        memmove(d, d + 2, strlen(d + 2) + 1);
    }
    if ((base && base < 2) || base > 36)
        return false;
    *ret_i = strtoll(digits, &end, base ? (int)base : 10);
    return *end == 0 && *d && *ret_i != INT64_MAX && *ret_i != INT64_MIN;
}

static bool parse_float(const struct str *s, double *ret_f)
{
    char text[128], *end;
    if (!s->len || s->len >= sizeof text || memchr(s->p, 'x', s->len) || memchr(s->p, 'X', s->len) ||
        memchr(s->p, '(', s->len) || memchr(s->p, 0, s->len))
        return false;
    memcpy(text, s->p, s->len);
    text[s->len] = 0;
    *ret_f = strtod(text, &end);
    return *end == 0 && end != text;
}

static struct value f_int(struct run *r, const struct value *v, const struct args *a)
{
    int64_t i, base = 10;
    double f;
    (void)a;
    struct value fallback = given(v[1]) ? v[1] : integer(0);
    if (given(v[2]))
        template_ops_int(r, v[2], &base);
    if (template_ops_as_int(v[0], &i))
        return integer(i);
    if (v->type == V_UNDEF)
        return template_value_undefined(r, v[0]);
    if (v->type == V_STR) {
        const struct str *s = template_text_strip(r, v->s, NULL, STRIP_LEFT | STRIP_RIGHT).s;
        if (parse_int(s, base, &i))
            return integer(i);
        if (!parse_float(s, &f))
            return fallback;
    } else if (v->type != V_FLOAT) {
        return fallback;
    } else {
        f = v->f;
    }
    if (!isfinite(f))
        return fallback;
    if (fabs(f) >= 9.2e18)
        return template_value_fail(r, ERR_TOO_LARGE, "an integer grows over 64 bits");
    return integer((int64_t)f);
}

static struct value f_float(struct run *r, const struct value *v, const struct args *a)
{
    double f;
    (void)a;
    if (v->type == V_UNDEF)
        return template_value_undefined(r, v[0]);
    if (template_ops_as_float(v[0], &f) ||
        (v->type == V_STR && parse_float(template_text_strip(r, v->s, NULL, STRIP_LEFT | STRIP_RIGHT).s, &f)))
        return (struct value){.type = V_FLOAT, .f = f};
    return given(v[1]) ? v[1] : (struct value){.type = V_FLOAT, .f = 0};
}

static struct value f_abs(struct run *r, const struct value *v, const struct args *a)
{
    double f;
    (void)a;
    if (!template_ops_as_float(v[0], &f))
        return template_ops_negate(r, v[0], false);
    if (v->type == V_FLOAT)
        return (struct value){.type = V_FLOAT, .f = fabs(f)};
    return template_ops_negate(r, v[0], f < 0);
}

static double round_decimal(double f, int64_t precision)
{
    char text[400];
    if (precision > 20 || precision < -300 || !isfinite(f))
        return f;
    if (precision < 0) {
        double unit = pow(10, (double)-precision);
        return nearbyint(f / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return strtod(text, NULL);
}

static struct value f_round(struct run *r, const struct value *v, const struct args *a)
{
    int64_t precision = 0;
    double f;
    (void)a;
    if (given(v[1]))
        template_ops_int(r, v[1], &precision);
    if (!template_ops_as_float(v[0], &f))
        return v->type == V_UNDEF
                   ? template_value_undefined(r, v[0])
                   : template_value_fail(r, ERR_INVALID, "round needs a number, not '%s'", template_value_type(*v));
    const struct str *how = v[2].type == V_STR ? v[2].s : NULL;
    bool common = !how || (how->len == 6 && !memcmp(how->p, "common", 6)),
         ceiling = how && how->len == 4 && !memcmp(how->p, "ceil", 4);
    if (given(v[2]) && !common && !ceiling && !(how && how->len == 5 && !memcmp(how->p, "floor", 5)))
        return template_value_fail(r, ERR_INVALID, "method must be common, ceil or floor");
    if (common && v->type != V_FLOAT && precision >= 0)
        return integer(v->type == V_BOOL ? v->b : v->i);
    if (!common) {
        double scale = pow(10, (double)precision);
        f = (ceiling ? ceil(f * scale) : floor(f * scale)) / scale;
    } else {
        f = round_decimal(f, precision);
    }
    return common && v->type != V_FLOAT ? integer((int64_t)f) : (struct value){.type = V_FLOAT, .f = f};
}

static const struct fn_def filters[] = {
    {"abs", f_abs, "", 0},
    {"attr", f_attr, "name", 1},
    {"batch", f_batch, "linecount,fill_with", 1},
    {"capitalize", f_capitalize, "", 0},
    {"center", f_center, "width", 0},
    {"count", f_length, "", 0},
    {"d", f_default, "default_value,boolean", 0},
    {"default", f_default, "default_value,boolean", 0},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0},
    {"e", f_escape, "", 0},
    {"escape", f_escape, "", 0},
    {"first", f_first, "", 0},
    {"float", f_float, "default", 0},
    {"format", f_format, NULL, 0},
    {"from_json", template_json_parse, "", 0},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1},
    {"indent", f_indent, "width,first,blank", 0},
    {"int", f_int, "default,base", 0},
    {"items", f_items, "", 0},
    {"join", f_join, "d,attribute", 0},
    {"last", f_last, "", 0},
    {"length", f_length, "", 0},
    {"list", f_list, "", 0},
    {"lower", f_lower, "", 0},
    {"map", f_map, NULL, 0},
    {"max", f_max, "case_sensitive,attribute", 0},
    {"min", f_min, "case_sensitive,attribute", 0},
    {"reject", f_reject, NULL, 0},
    {"rejectattr", f_rejectattr, NULL, 0},
    {"replace", f_replace, "old,new,count", 2},
    {"reverse", f_reverse, "", 0},
    {"round", f_round, "precision,method", 0},
    {"safe", f_safe, "", 0},
    {"select", f_select, NULL, 0},
    {"selectattr", f_selectattr, NULL, 0},
    {"slice", f_slice, "slices,fill_with", 1},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0},
    {"string", f_string, "", 0},
    {"sum", f_sum, "attribute,start", 0},
    {"title", f_title, "", 0},
    {"tojson", template_json_dump, "ensure_ascii,indent,separators,sort_keys", 0},
    {"trim", f_trim, "chars", 0},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0},
    {"unique", f_unique, "case_sensitive,attribute", 0},
    {"upper", f_upper, "", 0},
    {"urlencode", f_urlencode, "", 0},
    {"wordcount", f_wordcount, "", 0},
};

const struct fn_def *template_filters_find(const char *name, size_t len)
{
    return template_methods_among(filters, sizeof filters / sizeof *filters, name, len);
}
