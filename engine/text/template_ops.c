// template_ops.c - arithmetic, attributes, subscripts, and how built-in functions get their arguments.
#include <math.h>
#include <string.h>

#include "engine/text/template_int.h"

bool template_ops_as_int(struct value v, int64_t *ret_i)
{
    if (v.type != V_INT && v.type != V_BOOL)
        return false;
    *ret_i = v.type == V_INT ? v.i : v.b;
    return true;
}

bool template_ops_as_float(struct value v, double *ret_f)
{
    int64_t i;
    if (v.type == V_FLOAT)
        *ret_f = v.f;
    else if (template_ops_as_int(v, &i))
        *ret_f = (double)i;
    else
        return false;
    return true;
}

struct value template_ops_int(struct run *r, struct value v, int64_t *ret_i)
{
    *ret_i = 0;
    if (template_ops_as_int(v, ret_i))
        return v;
    if (v.type == V_UNDEF)
        return template_value_undefined(r, v);
    return template_value_fail(r, ERR_INVALID, "an integer is required, not '%s'", template_value_type(v));
}

static struct value integer(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}

static struct value real(double f)
{
    return (struct value){.type = V_FLOAT, .f = f};
}

static struct value overflow(struct run *r)
{
    return template_value_fail(r, ERR_TOO_LARGE, "an integer grows over 64 bits");
}

static struct value power(struct run *r, int64_t a, int64_t b)
{
    int64_t result = 1;
    if (b < 0)
        return a ? real(pow((double)a, (double)b))
                 : template_value_fail(r, ERR_INVALID, "0 cannot be raised to a negative power");
    if (a == 0 || a == 1 || a == -1)
        return integer(b == 0 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : a);
    if (b > 64)
        return overflow(r);
    for (; b; b--)
        if (__builtin_mul_overflow(result, a, &result))
            return overflow(r);
    return integer(result);
}

static struct value binary_int(struct run *r, int op, int64_t a, int64_t b)
{
    int64_t c;
    if (!b && (op == T_DIV || op == T_FLOORDIV || op == T_MOD))
        return template_value_fail(r, ERR_INVALID, "division by zero");
    switch (op) {
    case T_ADD:
        return __builtin_add_overflow(a, b, &c) ? overflow(r) : integer(c);
    case T_SUB:
        return __builtin_sub_overflow(a, b, &c) ? overflow(r) : integer(c);
    case T_MUL:
        return __builtin_mul_overflow(a, b, &c) ? overflow(r) : integer(c);
    case T_DIV:
        return real((double)a / (double)b);
    case T_POW:
        return power(r, a, b);
    default:
        if (b == -1)
            return op == T_MOD ? integer(0) : a == INT64_MIN ? overflow(r) : integer(-a);
        c = a % b;
        if (op == T_MOD)
            return integer(c && (c < 0) != (b < 0) ? c + b : c);
        return integer(a / b - (c && (c < 0) != (b < 0)));
    }
}

static struct value binary_float(struct run *r, int op, double a, double b)
{
    if (b == 0 && (op == T_DIV || op == T_FLOORDIV || op == T_MOD))
        return template_value_fail(r, ERR_INVALID, "division by zero");
    double m;
    switch (op) {
    case T_ADD:
        return real(a + b);
    case T_SUB:
        return real(a - b);
    case T_MUL:
        return real(a * b);
    case T_DIV:
        return real(a / b);
    case T_POW:
        m = pow(a, b);
        return isfinite(m) || !isfinite(a) || !isfinite(b) ? real(m)
                                                           : template_value_fail(r, ERR_INVALID, "result too large");
    default:
        m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0))
            m += b;
        return real(op == T_MOD ? m : floor((a - m) / b + 0.5));
    }
}

static struct value repeat(struct run *r, struct value v, int64_t n)
{
    if (v.type == V_STR) {
        struct out o = {0};
        if (n > 0 && v.s->len > (size_t)(TEMPLATE_MAX_OUTPUT / n))
            return template_value_fail(r, ERR_TOO_LARGE, "a text grows over %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
        for (int64_t i = 0; i < n && v.s->len && !r->failed; i++)
            template_value_out_str(r, &o, v.s);
        return template_value_out_take(r, &o);
    }
    struct seq *s = template_value_seq(r, v.seq->kind, 0);
    s->untrusted = v.seq->untrusted;
    for (int64_t i = 0; i < n && v.seq->n && !r->failed; i++)
        for (size_t k = 0; k < v.seq->n && !r->failed; k++)
            template_value_push(r, s, v.seq->v[k]);
    return template_value_of_seq(s);
}

static bool repeatable(struct value v)
{
    return v.type == V_STR || (v.type == V_SEQ && v.seq->kind <= SEQ_TUPLE);
}

static struct value escaped(struct run *r, struct value v)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct out o = {0};
    if (v.s->markup)
        return v;
    for (size_t i = 0; i < v.s->len && !r->failed; i++) {
        const char *k = v.s->p[i] ? strchr(from, v.s->p[i]) : NULL;
        if (k)
            template_value_out(r, &o, to[k - from], strlen(to[k - from]), v.s->mask ? v.s->mask[i] : v.s->untrusted);
        else
            template_value_out_sub(r, &o, v.s, i, i + 1);
    }
    return template_value_out_take(r, &o);
}

// What |safe marks escapes what is added to it, as Markup does.
static struct value add_text(struct run *r, struct value a, struct value b)
{
    if (!a.s->markup && !b.s->markup)
        return template_value_concat(r, a.s, b.s);
    struct value v = template_value_concat(r, escaped(r, a).s, escaped(r, b).s);
    struct str *s = template_value_alloc(r, sizeof *s);
    *s = *v.s;
    s->markup = true;
    v.s = s;
    return v;
}

static struct value add_seq(struct run *r, const struct seq *a, const struct seq *b)
{
    struct seq *s = template_value_seq(r, a->kind, a->n + b->n);
    s->untrusted = a->untrusted || b->untrusted;
    for (size_t i = 0; i < a->n && !r->failed; i++)
        template_value_push(r, s, a->v[i]);
    for (size_t i = 0; i < b->n && !r->failed; i++)
        template_value_push(r, s, b->v[i]);
    return template_value_of_seq(s);
}

struct value template_ops_binary(struct run *r, int op, struct value a, struct value b)
{
    static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "**"};
    int64_t i, j;
    double x, y;
    if (r->failed)
        return a;
    if (template_ops_as_int(a, &i) && template_ops_as_int(b, &j))
        return binary_int(r, op, i, j);
    if (template_ops_as_float(a, &x) && template_ops_as_float(b, &y))
        return binary_float(r, op, x, y);
    if (op == T_MOD && a.type == V_STR)
        return template_format_percent(r, a.s, b);
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        return template_value_undefined(r, a.type == V_UNDEF ? a : b);
    if (op == T_ADD && a.type == V_STR && b.type == V_STR)
        return add_text(r, a, b);
    if (op == T_ADD && a.type == V_SEQ && b.type == V_SEQ && a.seq->kind == b.seq->kind && a.seq->kind <= SEQ_TUPLE)
        return add_seq(r, a.seq, b.seq);
    if (op == T_MUL && repeatable(a) && template_ops_as_int(b, &j))
        return repeat(r, a, j);
    if (op == T_MUL && repeatable(b) && template_ops_as_int(a, &i))
        return repeat(r, b, i);
    return template_value_fail(r, ERR_INVALID, "unsupported operand types for %s: '%s' and '%s'", symbols[op - T_ADD],
                               template_value_type(a), template_value_type(b));
}

struct value template_ops_negate(struct run *r, struct value v, bool minus)
{
    int64_t i;
    if (r->failed)
        return v;
    if (template_ops_as_int(v, &i))
        return !minus ? integer(i) : i == INT64_MIN ? overflow(r) : integer(-i);
    if (v.type == V_FLOAT)
        return real(minus ? -v.f : v.f);
    if (v.type == V_UNDEF)
        return template_value_undefined(r, v);
    return template_value_fail(r, ERR_INVALID, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                               template_value_type(v));
}

bool template_ops_compare(struct run *r, int op, struct value a, struct value b)
{
    if (r->failed)
        return false;
    if (op == T_EQ || op == T_NE)
        return template_value_equal(r, a, b) == (op == T_EQ);
    int c = template_value_order(r, a, b);
    if (c == 2)  // a NaN
        return false;
    return op == T_LT ? c < 0 : op == T_LE ? c <= 0 : op == T_GT ? c > 0 : c >= 0;
}

// ---- attributes and subscripts

static struct value missing(struct value of, const struct str *name)
{
    return (struct value){.type = V_UNDEF, .of = of.type, .s = name};
}

static bool named(const struct str *s, const char *name)
{
    return s->len == strlen(name) && !memcmp(s->p, name, s->len);
}

static struct value at_or_missing(const struct loop *l, size_t i, const struct str *name)
{
    return i < l->items->n ? l->items->v[i] : (struct value){.type = V_UNDEF, .of = V_LOOP, .s = name};
}

static struct value boolean(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}

static struct value loop_attr(struct value v, const struct str *name)
{
    const struct loop *l = v.loop;
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    if (named(name, "index"))
        return integer(i + 1);
    if (named(name, "index0"))
        return integer(i);
    if (named(name, "first"))
        return boolean(i == 0);
    if (named(name, "last"))
        return boolean(i + 1 >= n);
    if (named(name, "length"))
        return integer(n);
    if (named(name, "revindex"))
        return integer(n - i);
    if (named(name, "revindex0"))
        return integer(n - i - 1);
    if (named(name, "previtem"))
        return i ? at_or_missing(l, l->i - 1, name) : missing(v, name);
    if (named(name, "nextitem"))
        return at_or_missing(l, l->i + 1, name);
    if (named(name, "depth"))
        return integer(l->depth0 + 1);
    if (named(name, "depth0"))
        return integer(l->depth0);
    return missing(v, name);
}

// A Python attribute: methods, loop variables, names of a namespace.
static bool python_attr(struct run *r, struct value v, const struct str *name, struct value *ret_v)
{
    if (v.type == V_NAMESPACE) {
        const struct value *found = template_value_find_text(r, v.dict, name);
        if (found)
            *ret_v = *found;
        return found;
    }
    if (v.type == V_LOOP) {
        *ret_v = loop_attr(v, name);
        if (ret_v->type != V_UNDEF || named(name, "previtem") || named(name, "nextitem"))
            return true;
    }
    if (v.type == V_MACRO && named(name, "name")) {
        *ret_v = v.macro->node->value;
        return true;
    }
    const struct fn_def *def = template_methods_find(v.type, v.type == V_SEQ ? v.seq->kind : SEQ_LIST, name);
    if (!def)
        return false;
    struct func *f = template_value_alloc(r, sizeof *f);
    *f = (struct func){def, v};
    *ret_v = (struct value){.type = V_FUNC, .func = f};
    return true;
}

struct value template_ops_attr(struct run *r, struct value v, const struct str *name)
{
    struct value found;
    if (r->failed)
        return v;
    if (v.type == V_UNDEF)  // asking it for one of Python's own names does not raise
        return name->len > 4 && !memcmp(name->p, "__", 2) ? missing(v, name) : template_value_undefined(r, v);
    if (python_attr(r, v, name, &found))
        return found;
    const struct value *item = v.type == V_DICT ? template_value_find_text(r, v.dict, name) : NULL;
    return item ? *item : missing(v, name);
}

struct value template_ops_item(struct run *r, struct value v, struct value key)
{
    struct value found;
    int64_t i, n;
    if (r->failed)
        return v;
    if (v.type == V_UNDEF)
        return template_value_undefined(r, v);
    if (v.type == V_DICT) {
        const struct value *item = template_value_find(r, v.dict, key);
        if (item)
            return *item;
    } else if (v.type == V_SEQ && v.seq->kind <= SEQ_RANGE && template_ops_as_int(key, &i)) {
        i += i < 0 ? (int64_t)v.seq->n : 0;
        if (i >= 0 && i < (int64_t)v.seq->n)
            return v.seq->v[i];
    } else if (v.type == V_STR && template_ops_as_int(key, &i) && template_value_charge(r, v.s->len)) {
        n = (int64_t)template_value_chars(v.s);
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n) {
            size_t at = template_value_offset(v.s, (size_t)i);
            return template_value_char(r, v.s, &at);
        }
    }
    if (key.type == V_STR && python_attr(r, v, key.s, &found))
        return found;
    return missing(v, key.type == V_STR ? key.s : NULL);
}

// Python's slice.indices: start, stop and step for a length.
static bool slice_bounds(struct run *r, const struct value part[3], int64_t n, int64_t b[3])
{
    b[2] = 1;
    if (part[2].type != V_NONE)
        template_ops_int(r, part[2], &b[2]);
    if (b[2] == 0 && !r->failed)
        template_value_fail(r, ERR_INVALID, "slice step cannot be zero");
    int64_t low = b[2] < 0 ? -1 : 0, high = b[2] < 0 ? n - 1 : n;
    for (int k = 0; k < 2; k++) {
        b[k] = (k == 0) == (b[2] > 0) ? low : high;
        if (part[k].type == V_NONE)
            continue;
        template_ops_int(r, part[k], &b[k]);
        if (b[k] < 0)
            b[k] += n;
        b[k] = b[k] < low ? low : b[k] > high ? high : b[k];
    }
    return !r->failed;
}

static struct value slice_text(struct run *r, const struct str *s, const int64_t b[3])
{
    if (b[2] == 1) {
        size_t from = template_value_offset(s, (size_t)b[0]),
               to = b[1] > b[0] ? template_value_offset(s, (size_t)b[1]) : from;
        return template_value_sub(r, s, from, to);
    }
    struct seq *chars = template_value_iterate(r, (struct value){.type = V_STR, .s = s});
    struct out o = {0};
    for (int64_t i = b[0]; (b[2] > 0 ? i < b[1] : i > b[1]) && !r->failed; i += b[2]) {
        template_value_out_str(r, &o, chars->v[i].s);
        if (b[2] > 0 ? i > b[1] - b[2] : i < b[1] - b[2])
            break;
    }
    return template_value_out_take(r, &o);
}

struct value template_ops_slice(struct run *r, struct value v, const struct value part[3])
{
    int64_t b[3];
    if (r->failed)
        return v;
    if (v.type == V_UNDEF)
        return template_value_undefined(r, v);
    if (v.type != V_STR && (v.type != V_SEQ || v.seq->kind > SEQ_RANGE))
        return template_value_fail(r, ERR_INVALID, "'%s' object cannot be sliced", template_value_type(v));
    if (v.type == V_STR)
        template_value_charge(r, v.s->len);
    if (!slice_bounds(r, part, v.type == V_STR ? (int64_t)template_value_chars(v.s) : (int64_t)v.seq->n, b))
        return v;
    if (v.type == V_STR)
        return slice_text(r, v.s, b);
    struct seq *s = template_value_seq(r, v.seq->kind, 0);
    s->untrusted = v.seq->untrusted;
    for (int k = 0; k < 3 && v.seq->kind == SEQ_RANGE; k++)
        s->range[k] = k == 2 ? v.seq->range[2] * b[2] : v.seq->range[0] + b[k] * v.seq->range[2];
    for (int64_t i = b[0]; (b[2] > 0 ? i < b[1] : i > b[1]) && !r->failed; i += b[2]) {
        template_value_push(r, s, v.seq->v[i]);
        if (b[2] > 0 ? i > b[1] - b[2] : i < b[1] - b[2])
            break;
    }
    return template_value_of_seq(s);
}

// ---- arguments of built-in functions

static int param_index(const char *params, const struct str *name)
{
    int i = 1;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, ",");
        if (n == name->len && !memcmp(p, name->p, n))
            return i;
        p += n + (p[n] == ',');
    }
    return 0;
}

static int param_count(const char *params)
{
    int n = *params ? 1 : 0;
    for (; *params; params++)
        n += *params == ',';
    return n;
}

struct value template_ops_call(struct run *r, const struct fn_def *def, struct value self, const struct args *a)
{
    struct value v[FN_PARAMS + 1] = {self};
    if (r->failed)
        return self;
    for (int i = 1; i <= FN_PARAMS; i++)
        v[i] = (struct value){.type = V_ABSENT};
    if (!def->params)
        return def->fn(r, v, a);
    int n = param_count(def->params);
    if (a->npos > (size_t)n)
        return template_value_fail(r, ERR_INVALID, "%s takes at most %d arguments, got %zu", def->name, n, a->npos);
    for (size_t i = 0; i < a->npos; i++)
        v[i + 1] = a->pos[i];
    for (size_t i = 0; i < a->nkw; i++) {
        int at = param_index(def->params, a->kw[i].name);
        if (!at || v[at].type != V_ABSENT)
            return template_value_fail(r, ERR_INVALID, "%s got an unexpected keyword argument '%.*s'", def->name,
                                       (int)(a->kw[i].name->len & 0xFF), a->kw[i].name->p);
        v[at] = a->kw[i].v;
    }
    for (int i = 1; i <= def->min; i++)
        if (v[i].type == V_ABSENT)
            return template_value_fail(r, ERR_INVALID, "%s misses an argument (%d of %s)", def->name, i, def->params);
    return def->fn(r, v, a);
}
