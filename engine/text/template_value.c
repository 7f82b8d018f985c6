// template_value.c - the values of a render: memory with a limit, text with its origin, lists, dicts, comparison.
// Everything belongs to the render's arena and one thread.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/map.h"
#include "base/mem.h"
#include "engine/text/template_int.h"

struct value template_value_fail(struct run *r, err_code code, const char *fmt, ...)
{
    if (!r->failed) {
        char text[480];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        err_set(&r->e, code, "chat template, line %d: %s", r->line, text);
        r->failed = true;
    }
    return (struct value){.type = V_UNDEF, .of = V_ABSENT};
}

bool template_value_charge(struct run *r, size_t bytes)
{
    r->steps += 1 + (int64_t)(bytes >> 6);
    if (r->steps > TEMPLATE_MAX_STEPS)
        template_value_fail(r, ERR_TOO_LARGE, "the template takes more than %d steps", TEMPLATE_MAX_STEPS);
    else if (!r->failed && cancel_due(16 + bytes / 4))
        template_value_fail(r, ERR_CANCELLED, "stopped: nobody waits for it any more");
    return !r->failed;
}

bool template_value_enter(struct run *r)
{
    if (++r->depth > TEMPLATE_EVAL_DEPTH)
        template_value_fail(r, ERR_TOO_LARGE, "nested deeper than %d", TEMPLATE_EVAL_DEPTH);
    return !r->failed;
}

static bool account(struct run *r, size_t bytes)
{
    if (bytes > TEMPLATE_MAX_MEMORY || r->bytes > TEMPLATE_MAX_MEMORY - bytes) {
        template_value_fail(r, ERR_TOO_LARGE, "the template needs more than %d MiB", TEMPLATE_MAX_MEMORY >> 20);
        return false;
    }
    r->bytes += bytes;
    return true;
}

static void release(void *p)
{
    free(p);
}

void *template_value_alloc(struct run *r, size_t bytes)
{
    if (bytes <= TEMPLATE_SMALL) {
        account(r, bytes + 16);
        return arena_alloc(&r->arena, bytes);
    }
    if (!account(r, bytes))
        return NULL;
    void *p = mem_try(bytes);
    if (!p) {
        template_value_fail(r, ERR_MEMORY, "no memory for %zu bytes", bytes);
        return NULL;
    }
    arena_defer(&r->arena, release, p);
    return p;
}

// ---- text being built

static bool grow(struct run *r, struct out *o, size_t more)
{
    if (o->cap - o->len >= more)
        return true;
    size_t need, cap;
    if (!size_add(o->len, more, &need) || need > TEMPLATE_MAX_OUTPUT) {
        template_value_fail(r, ERR_TOO_LARGE, "a text grows over %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
        return false;
    }
    cap = need < 64 ? 64 : need + need / 2;
    if (!account(r, (cap - o->cap) * (o->mask ? 2 : 1)))
        return false;
    char *p = realloc(o->p, cap);
    if (p)
        o->p = p;
    uint8_t *mask = o->mask ? realloc(o->mask, cap) : NULL;
    if (mask)
        o->mask = mask;
    if (!p || (o->mask && !mask)) {
        template_value_fail(r, ERR_MEMORY, "no memory for %zu bytes", cap);
        return false;
    }
    o->cap = cap;
    return true;
}

static bool need_mask(struct run *r, struct out *o)
{
    if (o->mask)
        return true;
    if (!account(r, o->cap))
        return false;
    o->mask = malloc(o->cap);
    if (!o->mask) {
        template_value_fail(r, ERR_MEMORY, "no memory for %zu bytes", o->cap);
        return false;
    }
    memset(o->mask, o->untrusted, o->len);
    return true;
}

static void add(struct run *r, struct out *o, const char *p, size_t n, const uint8_t *mask, bool untrusted)
{
    if (!n || !template_value_charge(r, n) || !grow(r, o, n))
        return;
    if (!o->len && !o->mask)
        o->untrusted = untrusted;
    if ((o->mask || mask || untrusted != o->untrusted) && !need_mask(r, o))
        return;
    memcpy(o->p + o->len, p, n);
    if (mask)
        memcpy(o->mask + o->len, mask, n);
    else if (o->mask)
        memset(o->mask + o->len, untrusted, n);
    o->len += n;
}

void template_value_out(struct run *r, struct out *o, const char *p, size_t n, bool untrusted)
{
    add(r, o, p, n, NULL, untrusted);
}

void template_value_out_str(struct run *r, struct out *o, const struct str *s)
{
    add(r, o, s->p, s->len, s->mask, s->untrusted);
}

void template_value_out_sub(struct run *r, struct out *o, const struct str *s, size_t from, size_t to)
{
    if (from < to)
        add(r, o, s->p + from, to - from, s->mask ? s->mask + from : NULL, s->untrusted);
}

static void out_done(struct run *r, struct out *o)
{
    r->bytes -= o->p ? o->cap * (o->mask ? 2 : 1) : 0;
    free(o->p);
    free(o->mask);
    *o = (struct out){0};
}

struct value template_value_out_take(struct run *r, struct out *o)
{
    struct str *s = template_value_alloc(r, sizeof *s);
    *s = (struct str){.p = "", .len = o->len, .untrusted = o->untrusted};
    if (o->len && o->len <= TEMPLATE_SMALL) {
        char *p = template_value_alloc(r, o->len);
        memcpy(p, o->p, o->len);
        s->p = p;
        if (o->mask)
            s->mask = memcpy(template_value_alloc(r, o->len), o->mask, o->len);
        out_done(r, o);
    } else if (o->len) {
        s->p = o->p;
        s->mask = o->mask;
        arena_defer(&r->arena, release, o->p);
        arena_defer(&r->arena, release, o->mask);
        *o = (struct out){0};
    } else {
        out_done(r, o);
    }
    return (struct value){.type = V_STR, .s = s};
}

// ---- strings

struct value template_value_str(struct run *r, const char *p, size_t len, bool untrusted)
{
    struct str *s = template_value_alloc(r, sizeof *s);
    *s = (struct str){.p = p, .len = len, .untrusted = untrusted};
    return (struct value){.type = V_STR, .s = s};
}

struct value template_value_text(struct run *r, const char *p)
{
    return template_value_str(r, p, strlen(p), false);
}

struct value template_value_sub(struct run *r, const struct str *s, size_t from, size_t to)
{
    struct str *n = template_value_alloc(r, sizeof *n);
    *n = (struct str){
        .p = s->p + from, .len = to - from, .mask = s->mask ? s->mask + from : NULL, .untrusted = s->untrusted};
    return (struct value){.type = V_STR, .s = n};
}

// a + b. The newest result keeps room behind it, so a loop that appends to one text copies it a few times only: no
// string reaches past its own length, so what lies behind it is free as long as nobody else has taken it.
struct value template_value_concat(struct run *r, const struct str *a, const struct str *b)
{
    size_t len = a->len + b->len, room;
    if (!a->len || !b->len)
        return template_value_sub(r, a->len ? a : b, 0, len);
    if (len > TEMPLATE_MAX_OUTPUT)
        return template_value_fail(r, ERR_TOO_LARGE, "a text grows over %d MiB", TEMPLATE_MAX_OUTPUT >> 20);
    if (!template_value_charge(r, b->len))
        return template_value_str(r, "", 0, false);
    bool mixed = a->mask || b->mask || a->untrusted != b->untrusted;
    struct str *s = template_value_alloc(r, sizeof *s);
    *s = (struct str){.p = a->p, .len = len, .untrusted = a->untrusted};
    if (!mixed && r->tail == a->p + a->len && r->tail_room >= b->len) {
        memcpy(r->tail, b->p, b->len);
        r->tail += b->len;
        r->tail_room -= b->len;
        return (struct value){.type = V_STR, .s = s};
    }
    template_value_charge(r, len);
    room = len < 64 || mixed ? len : len * 2;
    char *p = template_value_alloc(r, room);
    uint8_t *mask = mixed ? template_value_alloc(r, len) : NULL;
    if (!p || (mixed && !mask))
        return template_value_str(r, "", 0, false);
    memcpy(p, a->p, a->len);
    memcpy(p + a->len, b->p, b->len);
    if (mixed) {
        a->mask ? memcpy(mask, a->mask, a->len) : memset(mask, a->untrusted, a->len);
        b->mask ? memcpy(mask + a->len, b->mask, b->len) : memset(mask + a->len, b->untrusted, b->len);
    } else if (room > len) {
        r->tail = p + len;
        r->tail_room = room - len;
    }
    s->p = p;
    s->mask = mask;
    return (struct value){.type = V_STR, .s = s};
}

static size_t char_length(unsigned char c)
{
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

size_t template_value_chars(const struct str *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++)
        n += ((unsigned char)s->p[i] & 0xC0) != 0x80;
    return n;
}

size_t template_value_offset(const struct str *s, size_t chars)
{
    size_t i = 0;
    for (; chars && i < s->len; chars--)
        i += char_length((unsigned char)s->p[i]);
    return i < s->len ? i : s->len;
}

struct value template_value_char(struct run *r, const struct str *s, size_t *pos)
{
    size_t from = *pos, to = from + char_length((unsigned char)s->p[from]);
    *pos = to < s->len ? to : s->len;
    return template_value_sub(r, s, from, *pos);
}

// ---- sequences

struct seq *template_value_seq(struct run *r, enum seq_kind kind, size_t room)
{
    struct seq *s = template_value_alloc(r, sizeof *s);
    *s = (struct seq){.kind = kind};
    if (room && room < (TEMPLATE_MAX_MEMORY / sizeof *s->v)) {
        s->v = template_value_alloc(r, room * sizeof *s->v);
        s->cap = s->v ? room : 0;
    }
    return s;
}

void template_value_push(struct run *r, struct seq *s, struct value v)
{
    if (!template_value_charge(r, 0))
        return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct value *bigger = template_value_alloc(r, cap * sizeof *bigger);
        if (!bigger)
            return;
        if (s->n)
            memcpy(bigger, s->v, s->n * sizeof *bigger);
        s->v = bigger;
        s->cap = cap;
    }
    s->v[s->n++] = v;
}

struct value template_value_of_seq(struct seq *s)
{
    return (struct value){.type = V_SEQ, .seq = s};
}

// ---- dicts

enum { DICT_LINEAR = 8 };  // up to so many entries are searched one by one

struct dict *template_value_dict(struct run *r)
{
    return template_value_alloc(r, sizeof(struct dict));
}

static uint64_t hash_of(struct run *r, struct value k)
{
    uint64_t h = 0;
    int64_t i;
    switch (k.type) {
    case V_STR:
        return map_hash(k.s->p, k.s->len);
    case V_BOOL:
    case V_INT:
        template_ops_as_int(k, &i);
        return (uint64_t)i * 0x9E3779B97F4A7C15u;
    case V_FLOAT:  // equal numbers have one hash
        i = k.f > -9e18 && k.f < 9e18 ? (int64_t)k.f : 0;
        return (double)i == k.f ? (uint64_t)i * 0x9E3779B97F4A7C15u : map_hash(&k.f, sizeof k.f);
    case V_SEQ:
        if (k.seq->kind == SEQ_TUPLE && template_value_enter(r))
            for (size_t n = 0; n < k.seq->n; n++)
                h = h * 31 + hash_of(r, k.seq->v[n]);
        r->depth -= k.seq->kind == SEQ_TUPLE;
        return h;
    default:
        return k.type;
    }
}

static bool hashable(struct value k, int depth)
{
    if (k.type == V_DICT || k.type == V_NAMESPACE || depth > 16)
        return false;
    if (k.type != V_SEQ)
        return true;
    if (k.seq->kind != SEQ_TUPLE)
        return false;
    for (size_t i = 0; i < k.seq->n; i++)
        if (!hashable(k.seq->v[i], depth + 1))
            return false;
    return true;
}

static void index_add(struct dict *d, size_t entry)
{
    size_t at = (size_t)d->e[entry].hash & (d->nindex - 1);
    while (d->index[at])
        at = (at + 1) & (d->nindex - 1);
    d->index[at] = (uint32_t)entry + 1;
}

static void reindex(struct run *r, struct dict *d)
{
    size_t n = 32;
    while (n < d->cap * 2)
        n *= 2;
    d->index = template_value_alloc(r, n * sizeof *d->index);
    d->nindex = d->index ? n : 0;
    for (size_t i = 0; i < d->n && d->index; i++)
        index_add(d, i);
}

static struct dict_entry *lookup(struct run *r, const struct dict *d, struct value k, uint64_t h)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (d->e[i].hash == h && template_value_equal(r, d->e[i].k, k))
                return &d->e[i];
        return NULL;
    }
    for (size_t at = (size_t)h & (d->nindex - 1); d->index[at]; at = (at + 1) & (d->nindex - 1)) {
        struct dict_entry *e = &d->e[d->index[at] - 1];
        if (e->hash == h && template_value_equal(r, e->k, k))
            return e;
    }
    return NULL;
}

void template_value_put(struct run *r, struct dict *d, struct value k, struct value v)
{
    if (!hashable(k, 0)) {
        template_value_fail(r, ERR_INVALID, "unhashable type: '%s'", template_value_type(k));
        return;
    }
    uint64_t h = hash_of(r, k);
    struct dict_entry *old = template_value_charge(r, 0) ? lookup(r, d, k, h) : NULL;
    if (r->failed)
        return;
    if (old) {
        old->v = v;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct dict_entry *bigger = template_value_alloc(r, cap * sizeof *bigger);
        if (!bigger)
            return;
        if (d->n)
            memcpy(bigger, d->e, d->n * sizeof *bigger);
        d->e = bigger;
        d->cap = cap;
        d->e[d->n++] = (struct dict_entry){k, v, h};
        if (d->n > DICT_LINEAR)
            reindex(r, d);
        return;
    }
    d->e[d->n++] = (struct dict_entry){k, v, h};
    if (d->index)
        index_add(d, d->n - 1);
}

void template_value_put_text(struct run *r, struct dict *d, const char *k, struct value v)
{
    template_value_put(r, d, template_value_text(r, k), v);
}

const struct value *template_value_find(struct run *r, const struct dict *d, struct value k)
{
    if (!hashable(k, 0))
        return NULL;
    struct dict_entry *e = lookup(r, d, k, hash_of(r, k));
    return e ? &e->v : NULL;
}

const struct value *template_value_find_text(struct run *r, const struct dict *d, const struct str *k)
{
    return template_value_find(r, d, (struct value){.type = V_STR, .s = k});
}

void template_value_remove(struct run *r, struct dict *d, struct value k)
{
    struct dict_entry *e = hashable(k, 0) ? lookup(r, d, k, hash_of(r, k)) : NULL;
    if (!e)
        return;
    size_t i = (size_t)(e - d->e);
    template_value_charge(r, d->n * sizeof *e);
    memmove(e, e + 1, (d->n - i - 1) * sizeof *e);
    d->n--;
    if (d->index) {
        memset(d->index, 0, d->nindex * sizeof *d->index);
        for (size_t n = 0; n < d->n; n++)
            index_add(d, n);
    }
}

// A snapshot of d.items(), d.keys() or d.values().
struct value template_value_view(struct run *r, const struct dict *d, enum seq_kind kind)
{
    struct seq *s = template_value_seq(r, kind, d->n);
    s->untrusted = d->untrusted;
    for (size_t i = 0; i < d->n && !r->failed; i++) {
        struct value v = kind == SEQ_KEYS ? d->e[i].k : d->e[i].v;
        if (kind == SEQ_ITEMS) {
            struct seq *pair = template_value_seq(r, SEQ_TUPLE, 2);
            pair->untrusted = d->untrusted;
            template_value_push(r, pair, d->e[i].k);
            template_value_push(r, pair, d->e[i].v);
            v = template_value_of_seq(pair);
        }
        template_value_push(r, s, v);
    }
    return template_value_of_seq(s);
}

struct seq *template_value_iterate(struct run *r, struct value v)
{
    struct seq *s;
    switch (v.type) {
    case V_SEQ:
        if (v.seq->kind == SEQ_ITER && v.seq->consumed)
            break;
        v.seq->consumed = true;
        return v.seq;
    case V_STR:
        s = template_value_seq(r, SEQ_LIST, 0);
        for (size_t i = 0; i < v.s->len && !r->failed;)
            template_value_push(r, s, template_value_char(r, v.s, &i));
        return s;
    case V_DICT:
        return template_value_view(r, v.dict, SEQ_KEYS).seq;
    case V_UNDEF:
        break;
    default:
        template_value_fail(r, ERR_INVALID, "'%s' object is not iterable", template_value_type(v));
    }
    return template_value_seq(r, SEQ_LIST, 0);
}

// ---- truth and comparison

bool template_value_truth(struct value v)
{
    switch (v.type) {
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->len != 0;
    case V_SEQ:
        return v.seq->kind == SEQ_ITER || v.seq->n != 0;
    case V_DICT:
        return v.dict->n != 0;
    case V_UNDEF:
    case V_NONE:
        return false;
    default:
        return true;
    }
}

static bool equal_seq(struct run *r, const struct seq *a, const struct seq *b)
{
    bool items = a->kind != SEQ_ITER && a->kind != SEQ_VALUES;
    if (a == b)
        return true;
    if (a->kind != b->kind || !items || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!template_value_equal(r, a->v[i], b->v[i]))
            return false;
    return true;
}

static bool equal_dict(struct run *r, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n && !r->failed; i++) {
        const struct value *v = template_value_find(r, b, a->e[i].k);
        if (!v || !template_value_equal(r, a->e[i].v, *v))
            return false;
    }
    return true;
}

bool template_value_equal(struct run *r, struct value a, struct value b)
{
    double x, y;
    int64_t i, j;
    if (template_ops_as_int(a, &i) && template_ops_as_int(b, &j))
        return i == j;
    if (template_ops_as_float(a, &x) && template_ops_as_float(b, &y))
        return x == y;
    if (a.type != b.type)
        return false;
    bool same = false;
    if (!template_value_enter(r) || !template_value_charge(r, a.type == V_STR ? a.s->len : 0)) {
        r->depth--;
        return false;
    }
    switch (a.type) {
    case V_NONE:
    case V_UNDEF:
        same = true;
        break;
    case V_STR:
        same = a.s->len == b.s->len && !memcmp(a.s->p, b.s->p, a.s->len);
        break;
    case V_SEQ:
        same = equal_seq(r, a.seq, b.seq);
        break;
    case V_DICT:
        same = equal_dict(r, a.dict, b.dict);
        break;
    default:
        same = a.func == b.func;
    }
    r->depth--;
    return same;
}

static int order_str(const struct str *a, const struct str *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n ? memcmp(a->p, b->p, n) : 0;  // UTF-8 sorts as its characters do
    return c ? (c > 0) - (c < 0) : a->len < b->len ? -1 : a->len > b->len;
}

int template_value_order(struct run *r, struct value a, struct value b)
{
    double x, y;
    int64_t i, j;
    int c = 0;
    if (template_ops_as_int(a, &i) && template_ops_as_int(b, &j))
        return i < j ? -1 : i > j;
    if (template_ops_as_float(a, &x) && template_ops_as_float(b, &y))
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;  // 2: a NaN
    if (a.type == V_UNDEF || b.type == V_UNDEF) {
        template_value_undefined(r, a.type == V_UNDEF ? a : b);
        return 0;
    }
    template_value_charge(r, a.type == V_STR ? a.s->len : 0);
    if (a.type == V_STR && b.type == V_STR)
        return order_str(a.s, b.s);
    if (a.type != V_SEQ || b.type != V_SEQ || a.seq->kind != b.seq->kind || a.seq->kind > SEQ_TUPLE) {
        template_value_fail(r, ERR_INVALID, "'%s' and '%s' cannot be put in order", template_value_type(a),
                            template_value_type(b));
        return 0;
    }
    if (template_value_enter(r)) {
        size_t n = a.seq->n < b.seq->n ? a.seq->n : b.seq->n, k = 0;
        while (k < n && template_value_equal(r, a.seq->v[k], b.seq->v[k]))
            k++;
        c = k < n ? template_value_order(r, a.seq->v[k], b.seq->v[k]) : a.seq->n < b.seq->n ? -1 : a.seq->n > b.seq->n;
    }
    r->depth--;
    return c;
}

bool template_value_contains(struct run *r, struct value item, struct value in)
{
    switch (in.type) {
    case V_STR:
        if (item.type == V_STR && template_value_charge(r, in.s->len))
            return template_text_find(in.s, item.s, 0, in.s->len) >= 0;
        template_value_fail(r, ERR_INVALID, "'in <string>' requires string as left operand, not %s",
                            template_value_type(item));
        return false;
    case V_DICT:
        if (hashable(item, 0))
            return template_value_find(r, in.dict, item);
        template_value_fail(r, ERR_INVALID, "unhashable type: '%s'", template_value_type(item));
        return false;
    case V_SEQ:
    case V_UNDEF: {
        const struct seq *s = template_value_iterate(r, in);
        for (size_t i = 0; i < s->n && !r->failed; i++)
            if (template_value_equal(r, s->v[i], item))
                return true;
        return false;
    }
    default:
        template_value_fail(r, ERR_INVALID, "argument of type '%s' is not iterable", template_value_type(in));
        return false;
    }
}

// Merges the two sorted halves of from[0..n) into to.
static void merge(struct run *r, const struct value *keys, const size_t *from, size_t half, size_t n, size_t *to,
                  bool reverse)
{
    size_t i = 0, j = half;
    for (size_t k = 0; k < n; k++) {
        bool right = i == half;
        if (!right && j < n && template_value_charge(r, 0)) {
            int c = reverse ? template_value_order(r, keys[from[i]], keys[from[j]])
                            : template_value_order(r, keys[from[j]], keys[from[i]]);
            right = c < 0;
        }
        to[k] = right ? from[j++] : from[i++];
    }
}

static void sort_range(struct run *r, const struct value *keys, size_t *order, size_t *spare, size_t n, bool reverse)
{
    if (n < 2 || r->failed)
        return;
    sort_range(r, keys, order, spare, n / 2, reverse);
    sort_range(r, keys, order + n / 2, spare, n - n / 2, reverse);
    merge(r, keys, order, n / 2, n, spare, reverse);
    memcpy(order, spare, n * sizeof *order);
}

size_t *template_value_sort(struct run *r, const struct value *keys, size_t n, bool reverse)
{
    size_t *order = template_value_alloc(r, (n + 1) * 2 * sizeof *order);
    for (size_t i = 0; i < n && order; i++)
        order[i] = i;
    if (order)
        sort_range(r, keys, order, order + n, n, reverse);
    return r->failed ? NULL : order;
}

const char *template_value_type(struct value v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool", "int", "float", "str", "", "dict", "Namespace",
                                        "Macro", "function", "LoopContext", "argument"};
    static const char *const seqs[] = {"list", "tuple", "range", "generator", "dict_items", "dict_keys", "dict_values"};
    return v.type == V_SEQ ? seqs[v.seq->kind] : names[v.type];
}

struct value template_value_undefined(struct run *r, struct value v)
{
    static const char *const names[] = {"Undefined",
                                        "None",
                                        "bool object",
                                        "int object",
                                        "float object",
                                        "str object",
                                        "list object",
                                        "dict object",
                                        "Namespace object",
                                        "macro object",
                                        "function object",
                                        "loop object",
                                        ""};
    if (!v.s)
        return template_value_fail(r, ERR_INVALID, "%s has no such element",
                                   v.of == V_ABSENT ? "the value" : names[v.of]);
    int n = v.s->len < 200 ? (int)v.s->len : 200;
    if (v.of == V_ABSENT)
        return template_value_fail(r, ERR_INVALID, "'%.*s' is undefined", n, v.s->p);
    return template_value_fail(r, ERR_INVALID, "'%s' has no attribute '%.*s'", names[v.of], n, v.s->p);
}
