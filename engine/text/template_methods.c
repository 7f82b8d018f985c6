// template_methods.c - methods of strings, lists and dicts, and the global functions.
#include <string.h>
#include <time.h>

#include "engine/text/template_int.h"

static bool given(struct value v)
{
    return v.type != V_ABSENT;
}

static struct value integer(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}

static struct value boolean(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}

static struct value none(void)
{
    return (struct value){.type = V_NONE};
}

static const struct str *need_str(struct run *r, struct value v)
{
    static const struct str empty = {.p = ""};
    if (v.type == V_STR)
        return v.s;
    if (v.type == V_UNDEF)
        template_value_undefined(r, v);
    else
        template_value_fail(r, ERR_INVALID, "a string is required, not '%s'", template_value_type(v));
    return &empty;
}

// None and nothing mean "not given"
static const struct str *maybe_str(struct run *r, struct value v)
{
    return given(v) && v.type != V_NONE ? need_str(r, v) : NULL;
}

static int64_t maybe_int(struct run *r, struct value v, int64_t otherwise)
{
    if (given(v) && v.type != V_NONE)
        template_ops_int(r, v, &otherwise);
    return otherwise;
}

#define METHOD(name) static struct value name(struct run *r, const struct value *v, const struct args *a)
#define UNUSED (void)r, (void)v, (void)a

// ---- strings

METHOD(s_strip)
{
    UNUSED;
    return template_text_strip(r, v->s, maybe_str(r, v[1]), STRIP_LEFT | STRIP_RIGHT);
}

METHOD(s_lstrip)
{
    UNUSED;
    return template_text_strip(r, v->s, maybe_str(r, v[1]), STRIP_LEFT);
}

METHOD(s_rstrip)
{
    UNUSED;
    return template_text_strip(r, v->s, maybe_str(r, v[1]), STRIP_RIGHT);
}

METHOD(s_split)
{
    UNUSED;
    return template_text_split(r, v->s, maybe_str(r, v[1]), maybe_int(r, v[2], -1), false);
}

METHOD(s_rsplit)
{
    UNUSED;
    return template_text_split(r, v->s, maybe_str(r, v[1]), maybe_int(r, v[2], -1), true);
}

METHOD(s_splitlines)
{
    UNUSED;
    return template_text_lines(r, v->s, given(v[1]) && template_value_truth(v[1]));
}

METHOD(s_replace)
{
    UNUSED;
    const struct str *from = need_str(r, v[1]), *to = need_str(r, v[2]);
    return template_text_replace(r, v->s, from, to, maybe_int(r, v[3], -1));
}

// Byte range of the characters [start, end) given as v[2], v[3].
static void range_of(struct run *r, const struct value *v, size_t *from, size_t *to)
{
    int64_t n = (int64_t)template_value_chars(v->s), b[2] = {maybe_int(r, v[2], 0), maybe_int(r, v[3], n)};
    for (int i = 0; i < 2; i++) {
        b[i] += b[i] < 0 ? n : 0;
        b[i] = b[i] < 0 ? 0 : b[i];
    }
    *from = b[0] > n ? v->s->len + 1 : template_value_offset(v->s, (size_t)b[0]);
    *to = b[1] > n ? v->s->len : template_value_offset(v->s, (size_t)b[1]);
}

static bool edge(struct run *r, const struct value *v, struct value affix, bool end)
{
    size_t from, to;
    if (affix.type == V_SEQ && affix.seq->kind == SEQ_TUPLE) {
        for (size_t i = 0; i < affix.seq->n && !r->failed; i++)
            if (affix.seq->v[i].type == V_STR && edge(r, v, affix.seq->v[i], end))
                return true;
        return false;
    }
    const struct str *s = need_str(r, affix);
    range_of(r, v, &from, &to);
    if (from > to || s->len > to - from)
        return false;
    return !s->len || !memcmp(v->s->p + (end ? to - s->len : from), s->p, s->len);
}

METHOD(s_startswith)
{
    UNUSED;
    return boolean(edge(r, v, v[1], false));
}

METHOD(s_endswith)
{
    UNUSED;
    return boolean(edge(r, v, v[1], true));
}

static int64_t find(struct run *r, const struct value *v, bool last)
{
    size_t from, to;
    const struct str *sub = need_str(r, v[1]);
    range_of(r, v, &from, &to);
    template_value_charge(r, v->s->len);
    int64_t at = from > v->s->len ? -1
                 : last           ? template_text_rfind(r, v->s, sub, from, to)
                                  : template_text_find(v->s, sub, from, to);
    struct str head = {.p = v->s->p, .len = at < 0 ? 0 : (size_t)at};
    return at < 0 ? -1 : (int64_t)template_value_chars(&head);
}

METHOD(s_find)
{
    UNUSED;
    return integer(find(r, v, false));
}

METHOD(s_rfind)
{
    UNUSED;
    return integer(find(r, v, true));
}

METHOD(s_index)
{
    UNUSED;
    int64_t i = find(r, v, false);
    return i < 0 ? template_value_fail(r, ERR_INVALID, "substring not found") : integer(i);
}

METHOD(s_rindex)
{
    UNUSED;
    int64_t i = find(r, v, true);
    return i < 0 ? template_value_fail(r, ERR_INVALID, "substring not found") : integer(i);
}

METHOD(s_count)
{
    UNUSED;
    size_t from, to;
    const struct str *sub = need_str(r, v[1]);
    int64_t n = 0, at;
    range_of(r, v, &from, &to);
    template_value_charge(r, v->s->len);
    if (!sub->len) {
        struct str part = {.p = v->s->p + from, .len = from <= to ? to - from : 0};
        return integer(from > to ? 0 : (int64_t)template_value_chars(&part) + 1);
    }
    while (from <= to && (at = template_text_find(v->s, sub, from, to)) >= 0) {
        n++;
        from = (size_t)at + sub->len;
    }
    return integer(n);
}

METHOD(s_upper)
{
    UNUSED;
    return template_text_case(r, v->s, CASE_UPPER);
}

METHOD(s_lower)
{
    UNUSED;
    return template_text_case(r, v->s, CASE_LOWER);
}

METHOD(s_title)
{
    UNUSED;
    return template_text_case(r, v->s, CASE_TITLE);
}

METHOD(s_capitalize)
{
    UNUSED;
    return template_text_case(r, v->s, CASE_CAPITALIZE);
}

METHOD(s_swapcase)
{
    UNUSED;
    return template_text_case(r, v->s, CASE_SWAP);
}

#define IS_METHOD(name)                                    \
    METHOD(s_is##name)                                     \
    {                                                      \
        UNUSED;                                            \
        return boolean(template_text_is(v->s, #name));    \
    }
IS_METHOD(alpha)
IS_METHOD(digit)
IS_METHOD(decimal)
IS_METHOD(numeric)
IS_METHOD(alnum)
IS_METHOD(space)
IS_METHOD(lower)
IS_METHOD(upper)

METHOD(s_join)
{
    UNUSED;
    const struct seq *s = template_value_iterate(r, v[1]);
    struct out o = {0};
    for (size_t i = 0; i < s->n && !r->failed; i++) {
        if (i)
            template_value_out_str(r, &o, v->s);
        template_value_out_str(r, &o, need_str(r, s->v[i]));
    }
    return template_value_out_take(r, &o);
}

METHOD(s_format)
{
    UNUSED;
    return template_format_braces(r, v->s, a);
}

static struct value pad(struct run *r, const struct value *v, char align)
{
    static const struct str space = {.p = " ", .len = 1};
    const struct str *fill = maybe_str(r, v[2]);
    return template_text_pad(r, v->s, maybe_int(r, v[1], 0), align, fill ? fill : &space);
}

METHOD(s_center)
{
    UNUSED;
    return pad(r, v, 'c');
}

METHOD(s_ljust)
{
    UNUSED;
    return pad(r, v, '<');
}

METHOD(s_rjust)
{
    UNUSED;
    return pad(r, v, '>');
}

METHOD(s_zfill)
{
    UNUSED;
    static const struct str zero = {.p = "0", .len = 1};
    size_t sign = v->s->len && (*v->s->p == '-' || *v->s->p == '+');
    struct value head = template_value_sub(r, v->s, 0, sign), tail = template_value_sub(r, v->s, sign, v->s->len);
    tail = template_text_pad(r, tail.s, maybe_int(r, v[1], 0) - (int64_t)sign, '>', &zero);
    return r->failed ? tail : template_value_concat(r, head.s, tail.s);
}

static struct value partition(struct run *r, const struct value *v, bool last)
{
    const struct str *sep = need_str(r, v[1]), *s = v->s;
    struct seq *parts = template_value_seq(r, SEQ_TUPLE, 3);
    if (!sep->len)
        return template_value_fail(r, ERR_INVALID, "empty separator");
    template_value_charge(r, s->len);
    int64_t hit = last ? template_text_rfind(r, s, sep, 0, s->len) : template_text_find(s, sep, 0, s->len);
    size_t at = hit >= 0 ? (size_t)hit : last ? 0 : s->len, end = hit >= 0 ? at + sep->len : at;
    template_value_push(r, parts, template_value_sub(r, s, 0, at));
    template_value_push(r, parts, template_value_sub(r, s, at, end));
    template_value_push(r, parts, template_value_sub(r, s, end, s->len));
    return template_value_of_seq(parts);
}

METHOD(s_partition)
{
    UNUSED;
    return partition(r, v, false);
}

METHOD(s_rpartition)
{
    UNUSED;
    return partition(r, v, true);
}

METHOD(s_removeprefix)
{
    UNUSED;
    const struct str *s = need_str(r, v[1]);
    bool hit = s->len <= v->s->len && !memcmp(v->s->p, s->p, s->len);
    return template_value_sub(r, v->s, hit ? s->len : 0, v->s->len);
}

METHOD(s_removesuffix)
{
    UNUSED;
    const struct str *s = need_str(r, v[1]);
    bool hit = s->len <= v->s->len && !memcmp(v->s->p + v->s->len - s->len, s->p, s->len);
    return template_value_sub(r, v->s, 0, v->s->len - (hit ? s->len : 0));
}

static const struct fn_def string_methods[] = {
    {"capitalize", s_capitalize, "", 0},
    {"casefold", s_lower, "", 0},
    {"center", s_center, "width,fillchar", 1},
    {"count", s_count, "sub,start,end", 1},
    {"endswith", s_endswith, "suffix,start,end", 1},
    {"find", s_find, "sub,start,end", 1},
    {"format", s_format, NULL, 0},
    {"index", s_index, "sub,start,end", 1},
    {"isalnum", s_isalnum, "", 0},
    {"isalpha", s_isalpha, "", 0},
    {"isdecimal", s_isdecimal, "", 0},
    {"isdigit", s_isdigit, "", 0},
    {"islower", s_islower, "", 0},
    {"isnumeric", s_isnumeric, "", 0},
    {"isspace", s_isspace, "", 0},
    {"isupper", s_isupper, "", 0},
    {"join", s_join, "iterable", 1},
    {"ljust", s_ljust, "width,fillchar", 1},
    {"lower", s_lower, "", 0},
    {"lstrip", s_lstrip, "chars", 0},
    {"partition", s_partition, "sep", 1},
    {"removeprefix", s_removeprefix, "prefix", 1},
    {"removesuffix", s_removesuffix, "suffix", 1},
    {"replace", s_replace, "old,new,count", 2},
    {"rfind", s_rfind, "sub,start,end", 1},
    {"rindex", s_rindex, "sub,start,end", 1},
    {"rjust", s_rjust, "width,fillchar", 1},
    {"rpartition", s_rpartition, "sep", 1},
    {"rsplit", s_rsplit, "sep,maxsplit", 0},
    {"rstrip", s_rstrip, "chars", 0},
    {"split", s_split, "sep,maxsplit", 0},
    {"splitlines", s_splitlines, "keepends", 0},
    {"startswith", s_startswith, "prefix,start,end", 1},
    {"strip", s_strip, "chars", 0},
    {"swapcase", s_swapcase, "", 0},
    {"title", s_title, "", 0},
    {"upper", s_upper, "", 0},
    {"zfill", s_zfill, "width", 1},
};

// ---- dicts. Those that change one (here and for lists) are refused by Jinja's sandbox; some templates need them.

METHOD(d_get)
{
    UNUSED;
    const struct value *found = template_value_find(r, v->dict, v[1]);
    return found ? *found : given(v[2]) ? v[2] : none();
}

METHOD(d_items)
{
    UNUSED;
    return template_value_view(r, v->dict, SEQ_ITEMS);
}

METHOD(d_keys)
{
    UNUSED;
    return template_value_view(r, v->dict, SEQ_KEYS);
}

METHOD(d_values)
{
    UNUSED;
    return template_value_view(r, v->dict, SEQ_VALUES);
}

METHOD(d_copy)
{
    UNUSED;
    struct dict *d = template_value_dict(r);
    d->untrusted = v->dict->untrusted;
    for (size_t i = 0; i < v->dict->n && !r->failed; i++)
        template_value_put(r, d, v->dict->e[i].k, v->dict->e[i].v);
    return (struct value){.type = V_DICT, .dict = d};
}

METHOD(d_pop)
{
    UNUSED;
    const struct value *found = template_value_find(r, v->dict, v[1]);
    if (!found)
        return given(v[2]) ? v[2] : template_value_fail(r, ERR_INVALID, "pop: the dict has no such key");
    struct value popped = *found;
    template_value_remove(r, v->dict, v[1]);
    return popped;
}

METHOD(d_setdefault)
{
    UNUSED;
    const struct value *found = template_value_find(r, v->dict, v[1]);
    if (found)
        return *found;
    template_value_put(r, v->dict, v[1], given(v[2]) ? v[2] : none());
    return given(v[2]) ? v[2] : none();
}

// Adds a mapping or pairs, then keywords.
static void add_all(struct run *r, struct dict *d, const struct args *a)
{
    if (a->npos && a->pos[0].type == V_DICT) {
        const struct dict *from = a->pos[0].dict;
        d->untrusted |= from->untrusted;
        for (size_t i = 0; i < from->n && from != d && !r->failed; i++)
            template_value_put(r, d, from->e[i].k, from->e[i].v);
    } else if (a->npos) {
        const struct seq *s = template_value_iterate(r, a->pos[0]);
        for (size_t i = 0; i < s->n && !r->failed; i++) {
            const struct seq *pair = template_value_iterate(r, s->v[i]);
            if (pair->n == 2)
                template_value_put(r, d, pair->v[0], pair->v[1]);
            else
                template_value_fail(r, ERR_INVALID, "a dict is made from pairs, not from %zu items", pair->n);
        }
    }
    for (size_t i = 0; i < a->nkw && !r->failed; i++)
        template_value_put(r, d, (struct value){.type = V_STR, .s = a->kw[i].name}, a->kw[i].v);
}

METHOD(d_update)
{
    UNUSED;
    add_all(r, v->dict, a);
    return none();
}

static const struct fn_def dict_methods[] = {
    {"copy", d_copy, "", 0},   {"get", d_get, "key,default", 1},
    {"items", d_items, "", 0}, {"keys", d_keys, "", 0},
    {"pop", d_pop, "key,default", 1}, {"setdefault", d_setdefault, "key,default", 1},
    {"update", d_update, NULL, 0},    {"values", d_values, "", 0},
};

// ---- lists

METHOD(l_append)
{
    UNUSED;
    template_value_push(r, v->seq, v[1]);
    return none();
}

METHOD(l_extend)
{
    UNUSED;
    const struct seq *s = template_value_iterate(r, v[1]);
    for (size_t i = 0, n = s->n; i < n && !r->failed; i++)
        template_value_push(r, v->seq, s->v[i]);
    return none();
}

METHOD(l_insert)
{
    UNUSED;
    int64_t at = maybe_int(r, v[1], 0), n = (int64_t)v->seq->n;
    at += at < 0 ? n : 0;
    at = at < 0 ? 0 : at > n ? n : at;
    template_value_push(r, v->seq, v[2]);
    if (r->failed)
        return none();
    template_value_charge(r, (size_t)n * sizeof *v);
    memmove(v->seq->v + at + 1, v->seq->v + at, (size_t)(n - at) * sizeof *v);
    v->seq->v[at] = v[2];
    return none();
}

METHOD(l_pop)
{
    UNUSED;
    int64_t n = (int64_t)v->seq->n, at = maybe_int(r, v[1], -1);
    at += at < 0 ? n : 0;
    if (at < 0 || at >= n)
        return template_value_fail(r, ERR_INVALID, n ? "pop index out of range" : "pop from empty list");
    struct value popped = v->seq->v[at];
    template_value_charge(r, (size_t)n * sizeof *v);
    memmove(v->seq->v + at, v->seq->v + at + 1, (size_t)(n - at - 1) * sizeof *v);
    v->seq->n--;
    return popped;
}

METHOD(l_index)
{
    UNUSED;
    for (size_t i = 0; i < v->seq->n && !r->failed; i++)
        if (template_value_equal(r, v->seq->v[i], v[1]))
            return integer((int64_t)i);
    return template_value_fail(r, ERR_INVALID, "the value is not in the list");
}

METHOD(l_count)
{
    UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < v->seq->n && !r->failed; i++)
        n += template_value_equal(r, v->seq->v[i], v[1]);
    return integer(n);
}

METHOD(l_copy)
{
    UNUSED;
    static const struct value all[3] = {{.type = V_NONE}, {.type = V_NONE}, {.type = V_NONE}};
    return template_ops_slice(r, *v, all);
}

// The first two are for tuples too.
static const struct fn_def list_methods[] = {
    {"count", l_count, "value", 1},  {"index", l_index, "value", 1}, {"append", l_append, "object", 1},
    {"copy", l_copy, "", 0},         {"extend", l_extend, "iterable", 1}, {"insert", l_insert, "index,object", 2},
    {"pop", l_pop, "index", 0},
};

// ---- loops

METHOD(loop_cycle)
{
    UNUSED;
    if (!a->npos)
        return template_value_fail(r, ERR_INVALID, "no items for cycling given");
    return a->pos[v->loop->i % a->npos];
}

METHOD(loop_changed)
{
    UNUSED;
    struct seq *now = template_value_seq(r, SEQ_TUPLE, a->npos);
    for (size_t i = 0; i < a->npos; i++)
        template_value_push(r, now, a->pos[i]);
    struct value mark = template_value_of_seq(now);
    bool changed = !given(v->loop->changed) || !template_value_equal(r, v->loop->changed, mark);
    v->loop->changed = mark;
    return boolean(changed);
}

static const struct fn_def loop_methods[] = {{"changed", loop_changed, NULL, 0}, {"cycle", loop_cycle, NULL, 0}};

const struct fn_def *template_methods_among(const struct fn_def *defs, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(defs[i].name) == len && !memcmp(defs[i].name, name, len))
            return &defs[i];
    return NULL;
}

static const struct fn_def *search(const struct fn_def *defs, size_t n, const struct str *name)
{
    return template_methods_among(defs, n, name->p, name->len);
}

// ---- globals

METHOD(g_range)
{
    UNUSED;
    int64_t first = maybe_int(r, v[1], 0), last = first, step = maybe_int(r, v[3], 1), count;
    if (given(v[2]))
        last = maybe_int(r, v[2], 0);
    else
        first = 0;
    if (r->failed || step == 0)
        return template_value_fail(r, ERR_INVALID, "range() arg 3 must not be zero");
    double span = step > 0 ? (double)last - (double)first : (double)first - (double)last;
    if (span / (step > 0 ? (double)step : -(double)step) > TEMPLATE_MAX_RANGE)
        return template_value_fail(r, ERR_TOO_LARGE, "a range has more than %d items", TEMPLATE_MAX_RANGE);
    count = span <= 0 ? 0 : step > 0 ? (last - first + step - 1) / step : (first - last - step - 1) / -step;
    struct seq *s = template_value_seq(r, SEQ_RANGE, (size_t)count);
    s->range[0] = first;
    s->range[1] = last;
    s->range[2] = step;
    for (int64_t i = 0; i < count && !r->failed; i++)
        template_value_push(r, s, integer(first + i * step));
    return template_value_of_seq(s);
}

METHOD(g_dict)
{
    UNUSED;
    struct dict *d = template_value_dict(r);
    add_all(r, d, a);
    return (struct value){.type = V_DICT, .dict = d};
}

METHOD(g_namespace)
{
    struct value made = g_dict(r, v, a);
    made.type = V_NAMESPACE;
    for (size_t i = 0; i < made.dict->n; i++)
        if (made.dict->e[i].k.type == V_STR && made.dict->e[i].k.s->len && *made.dict->e[i].k.s->p == '_')
            return template_value_fail(r, ERR_INVALID, "a namespace takes no names that begin with an underscore");
    return made;
}

METHOD(g_raise)
{
    UNUSED;
    const struct str *s = template_format_str(r, v[1]).s;
    if (!r->failed) {
        int n = s->len < sizeof r->e.text ? (int)s->len : (int)sizeof r->e.text;
        err_set(&r->e, ERR_INVALID, "%.*s", n, s->p);
        for (char *c = r->e.text; *c; c++)  // an error is one line
            *c = (unsigned char)*c < ' ' ? ' ' : *c;
        r->failed = true;
    }
    return none();
}

METHOD(g_strftime)
{
    UNUSED;
    const struct str *s = need_str(r, v[1]);
    char format[256], text[1024];
    time_t now = (time_t)r->in->now;
    struct tm tm;
    if (s->len >= sizeof format || memchr(s->p, 0, s->len) || !localtime_r(&now, &tm))
        return template_value_fail(r, ERR_INVALID, "strftime_now: the format is too long");
    memcpy(format, s->p, s->len);
    format[s->len] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, &tm);
#pragma GCC diagnostic pop
    struct out o = {0};
    template_value_out(r, &o, text, n, s->mask || s->untrusted);
    return template_value_out_take(r, &o);
}

// joiner(sep): "" the first time it is called, then sep. State is a one-item list.
METHOD(joiner_call)
{
    UNUSED;
    struct seq *state = v->seq;
    struct value next = state->n > 1 ? state->v[0] : template_value_text(r, "");
    if (state->n == 1)
        template_value_push(r, state, none());
    return next;
}

static struct value bound(struct run *r, const struct fn_def *def, struct seq *state)
{
    struct func *f = template_value_alloc(r, sizeof *f);
    *f = (struct func){def, template_value_of_seq(state)};
    return (struct value){.type = V_FUNC, .func = f};
}

METHOD(g_joiner)
{
    UNUSED;
    static const struct fn_def def = {"joiner", joiner_call, "", 0};
    struct seq *state = template_value_seq(r, SEQ_LIST, 2);
    template_value_push(r, state, given(v[1]) ? v[1] : template_value_text(r, ", "));
    return bound(r, &def, state);
}

static const struct fn_def globals[] = {
    {"dict", g_dict, NULL, 0},          {"joiner", g_joiner, "sep", 0},         {"namespace", g_namespace, NULL, 0},
    {"raise_exception", g_raise, "message", 1}, {"range", g_range, "start,stop,step", 1},
    {"strftime_now", g_strftime, "format", 1},
};

const struct fn_def *template_methods_global(const struct str *name)
{
    return search(globals, sizeof globals / sizeof *globals, name);
}

const struct fn_def *template_methods_find(enum value_type type, enum seq_kind kind, const struct str *name)
{
    if (type == V_STR)
        return search(string_methods, sizeof string_methods / sizeof *string_methods, name);
    if (type == V_DICT)
        return search(dict_methods, sizeof dict_methods / sizeof *dict_methods, name);
    if (type == V_LOOP)
        return search(loop_methods, sizeof loop_methods / sizeof *loop_methods, name);
    if (type == V_SEQ && kind <= SEQ_RANGE)
        return search(list_methods, kind == SEQ_LIST ? sizeof list_methods / sizeof *list_methods : 2, name);
    return NULL;
}
