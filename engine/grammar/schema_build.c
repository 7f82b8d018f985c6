// schema_build.c - alternatives to nodes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/grammar/jsontext.h"
#include "engine/grammar/number.h"
#include "engine/grammar/schema_int.h"

enum { MAX_VALUE_BYTES = 256 << 10 };

struct alternative {
    struct schema *s;
    const struct schema_list *flat;
    const struct schema_merged *m;
    struct schema_list *out;  // nodes
};

uint32_t schema_dfa_node(struct schema *s, uint32_t item, struct chardfa *c, bool json, bool tracked)
{
    struct bytedfa *d;
    err e = {0};
    uint32_t node = 0;
    if (s->failed || !c)
        return 0;
    if (chardfa_is_empty(c))
        return 0;
    if (bytedfa_make(c, json, tracked, &d, &e))
        schema_fail_automaton(s, item, NULL, &e);
    else
        node = nodes_bytes(s->g, d, tracked);
    return node;
}

static void give(const struct alternative *a, uint32_t node)
{
    if (node)
        schema_push(a->out, node);
}

// ---- given values

// Those that satisfy everything, as texts.
static void value_texts(const struct alternative *a, struct buf *texts, struct schema_list *ends)
{
    json_t *list = schema_values(a->s, a->m->values);
    buf_init(texts, MAX_VALUE_BYTES);
    for (size_t i = 0; i < json_array_size(list) && !a->s->failed; i++) {
        const json_t *v = json_array_get(list, i);
        if (!schema_check_all(a->s, a->flat, v))
            continue;
        jsontext_value(v, texts);
        schema_push(ends, (uint32_t)texts->len);
    }
    if (texts->over)
        schema_fail(a->s, ERR_TOO_LARGE, a->m->values, "enum", "has values of more than %d KB together.",
                    MAX_VALUE_BYTES >> 10);
    json_decref(list);
}

static void split(const struct buf *texts, const struct schema_list *ends, const char **list, size_t *lens)
{
    for (uint32_t i = 0; i < ends->n; i++) {
        size_t from = i ? ends->v[i - 1] : 0;
        list[i] = texts->data + from;
        lens[i] = ends->v[i] - from;
    }
}

static void add_values(const struct alternative *a)
{
    struct buf texts;
    struct schema_list ends = {0};
    value_texts(a, &texts, &ends);
    const char **list = mem_new((ends.n + 1) * sizeof *list);
    size_t *lens = mem_new((ends.n + 1) * sizeof *lens);
    if (!a->s->failed && ends.n) {
        split(&texts, &ends, list, lens);
        give(a, nodes_literals(a->s->g, list, lens, ends.n));
    }
    free(list);
    free(lens);
    free(ends.v);
    buf_done(&texts);
}

// null and booleans that are not taken away.
static void add_words(const struct alternative *a)
{
    static const char *const words[] = {"null", "false", "true"};
    json_t *excluded = schema_excluded(a->s, a->flat);
    const char *list[3];
    size_t lens[3], n = 0;
    for (int i = 0; i < 3; i++) {
        bool allowed = a->m->types & (i == 0 ? TYPE_NULL : TYPE_BOOLEAN);
        for (size_t k = 0; k < json_array_size(excluded); k++) {
            const json_t *v = json_array_get(excluded, k);
            allowed &= !(i == 0 ? json_is_null(v) : i == 1 ? json_is_false(v) : json_is_true(v));
        }
        if (!allowed)
            continue;
        list[n] = words[i];
        lens[n++] = strlen(words[i]);
    }
    json_decref(excluded);
    if (n)
        give(a, nodes_literals(a->s->g, list, lens, n));
}

// ---- numbers and strings

// Whole numbers have one spelling each, so some can be taken away.
static void exclude_integers(struct schema *s, const struct schema_list *flat, struct chardfa_budget *b, struct chardfa **d)
{
    json_t *excluded = schema_excluded(s, flat);
    err e = {0};
    for (size_t i = 0; i < json_array_size(excluded) && !s->failed; i++) {
        struct decimal x;
        const json_t *v = json_array_get(excluded, i);
        if (!json_is_number(v) || !decimal_of_json(v, &x) || !decimal_is_integer(&x))
            continue;
        char text[DECIMAL_INT + 2];
        const char *p = text;
        size_t n = (size_t)snprintf(text, sizeof text, "%s%.*s", x.negative ? "-" : "", x.nint ? x.nint : 1,
                                    x.nint ? x.integer : "0");
        struct chardfa *one, *rest;
        if (chardfa_texts(&p, &n, 1, b, &one, &e))
            break;
        if (!chardfa_minus(*d, one, b, &rest, &e)) {
            chardfa_free(*d);
            *d = rest;
        }
        chardfa_free(one);
    }
    if (e.code)
        schema_fail_automaton(s, flat->v[0], "not", &e);
    json_decref(excluded);
}

struct chardfa *schema_number(struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    struct number_spec spec = {.integer = !(m->types & TYPE_NUMBER), .min = m->has_min ? &m->min : NULL,
                               .max = m->has_max ? &m->max : NULL, .exclusive_min = m->exclusive_min,
                               .exclusive_max = m->exclusive_max, .multiple = m->multiple};
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *d = NULL;
    err e = {0};
    if (number_compile(&spec, &b, &d, &e))
        schema_fail_automaton(s, flat->v[0], m->multiple ? "multipleOf" : m->has_min ? "minimum" : "maximum", &e);
    else if (spec.integer)
        exclude_integers(s, flat, &b, &d);
    s->work = b.work;
    return d;
}

static void add_number(const struct alternative *a)
{
    struct chardfa *d = schema_number(a->s, a->flat, a->m);
    give(a, schema_dfa_node(a->s, a->flat->v[0], d, false, false));
    chardfa_free(d);
}

static void add_string(const struct alternative *a)
{
    const struct schema_merged *m = a->m;
    if (!m->automaton) {
        if (m->min_length <= m->max_length)
            give(a, nodes_string(a->s->g, m->min_length, m->max_length));
        return;
    }
    struct chardfa *d = schema_string(a->s, a->flat, m);
    give(a, schema_dfa_node(a->s, a->flat->v[0], d, true, false));
    chardfa_free(d);
}

// ---- arrays

// Items that must differ: strings, whole numbers, or given values; told apart by their text.
static uint32_t unique_item(const struct alternative *a, const struct schema_list *set)
{
    struct schema *s = a->s;
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_merged *m = mem_new(sizeof *m);
    struct schema_list none = {0};
    uint32_t node = 0;
    schema_expand(s, NULL, set, f);
    if (!s->failed && f->n == 1)
        schema_merge(s, &f->v[0], m);
    struct alternative item = {s, &f->v[0], m, &none};
    bool words = f->n == 1 && m->types && !(m->types & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN));
    if (s->failed || f->n == 0) {
    } else if (f->n == 1 && (m->values != UINT32_MAX || words)) {
        if (words && m->values == UINT32_MAX)
            add_words(&item);
        else
            add_values(&item);
        const struct literals *l = none.n ? s->g->list[none.v[0]].literals : NULL;
        struct chardfa_budget b = {SCHEMA_MAX_VALUES * 64, s->work};
        struct chardfa *d = NULL;
        size_t *lens = mem_new(((l ? l->n : 0) + 1) * sizeof *lens);
        err e = {0};
        for (uint32_t i = 0; l && i < l->n; i++)
            lens[i] = l->lens[i];
        if (l && chardfa_texts(l->texts, lens, l->n, &b, &d, &e))
            schema_fail_automaton(s, a->flat->v[0], "uniqueItems", &e);
        node = schema_dfa_node(s, a->flat->v[0], d, false, true);
        s->work = b.work;
        free(lens);
        chardfa_free(d);
    } else if (f->n == 1 && (m->types == TYPE_STRING || m->types == TYPE_INTEGER)) {
        struct chardfa *d = m->types == TYPE_STRING ? schema_string(s, &f->v[0], m) : schema_number(s, &f->v[0], m);
        node = schema_dfa_node(s, a->flat->v[0], d, m->types == TYPE_STRING, true);
        chardfa_free(d);
    } else {
        schema_fail(s, ERR_UNSUPPORTED, a->flat->v[0], "uniqueItems",
                    "is supported only for items that are all strings, all integers, or given values.");
    }
    free(none.v);
    schema_expand_done(f);
    free(f);
    free(m);
    return node;
}

static uint32_t item_node(const struct alternative *a, uint32_t index, bool *said)
{
    struct schema_list set = {0};
    schema_item_set(a->s, a->flat, index, &set, said);
    uint32_t node = schema_node(a->s, &set);
    free(set.v);
    return node;
}

static void add_array(const struct alternative *a)
{
    const struct schema_merged *m = a->m;
    struct schema *s = a->s;
    struct array_def d = {.min = m->min_items, .max = m->max_items, .nprefix = schema_prefix_length(s, a->flat)};
    bool said;
    d.unique = m->unique && m->max_items > 1;
    d.prefix = mem_new((d.nprefix + 1) * sizeof *d.prefix);
    for (uint32_t i = 0; i < d.nprefix && !s->failed; i++)
        d.prefix[i] = item_node(a, i, &said);
    if (d.unique && d.nprefix > 0) {
        schema_fail(s, ERR_UNSUPPORTED, a->flat->v[0], "uniqueItems", "is not supported beside 'prefixItems'.");
    } else if (d.unique) {
        struct schema_list set = {0};
        schema_item_set(s, a->flat, UINT32_MAX, &set, &said);
        d.rest = unique_item(a, &set);
        d.max = d.rest ? d.max : 0;
        d.unique = d.rest != 0;
        free(set.v);
    } else if (d.max > d.nprefix) {
        uint32_t rest = item_node(a, UINT32_MAX, &said);
        d.rest = said || d.nprefix == 0 || d.min > d.nprefix ? rest : 0;
    }
    if (!s->failed)
        give(a, nodes_array(s->g, &d));
    free(d.prefix);
}

// ---- objects

static void add_name(struct schema_names *l, const char *name, size_t len)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->len[i] == len && !memcmp(l->name[i], name, len))
            return;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->name = mem_resize(l->name, l->cap * sizeof *l->name);
        l->len = mem_resize(l->len, l->cap * sizeof *l->len);
    }
    l->name[l->n] = name;
    l->len[l->n++] = len;
}

void schema_names_done(struct schema_names *l)
{
    free(l->name);
    free(l->len);
}

void schema_find_names(struct schema *s, const struct schema_list *flat, struct schema_names *l)
{
    for (uint32_t i = 0; i < flat->n; i++) {
        const char *key;
        size_t len;
        json_t *v;
        json_object_keylen_foreach((json_t *)schema_get(s, flat->v[i], "properties"), key, len, v)
            if (l->n <= NODES_MAX_PROPERTIES)
                add_name(l, key, len);
    }
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *list = schema_get(s, flat->v[i], "required");
        for (size_t k = 0; k < json_array_size(list) && l->n <= NODES_MAX_PROPERTIES; k++)
            add_name(l, json_string_value(json_array_get(list, k)), json_string_length(json_array_get(list, k)));
    }
    if (l->n > NODES_MAX_PROPERTIES)
        schema_fail(s, ERR_TOO_LARGE, flat->v[0], "properties", "has more than %d names.", NODES_MAX_PROPERTIES);
}

// Narrows names to what propertyNames allows.
static void name_rules(struct schema *s, const struct schema_list *flat, struct chardfa **d)
{
    struct schema_flats *f = mem_new(sizeof *f);
    struct schema_merged *m = mem_new(sizeof *m);
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        const json_t *v = schema_get(s, flat->v[i], "propertyNames");
        if (!v)
            continue;
        uint32_t item = schema_child(s, flat->v[i], "propertyNames", NULL, v);
        struct schema_list one = {.v = &item, .n = 1};
        schema_expand(s, NULL, &one, f);
        if (f->n > 1)
            schema_fail(s, ERR_UNSUPPORTED, item, NULL, "'propertyNames' is not supported with alternatives.");
        struct chardfa *names = NULL;
        if (!s->failed && f->n == 1)
            schema_merge(s, &f->v[0], m);
        if (!s->failed && f->n == 1 && m->types & TYPE_STRING)
            names = schema_string(s, &f->v[0], m);
        else if (!s->failed) {
            struct chardfa_budget b = {CHARDFA_STATES, s->work};
            (void)!chardfa_texts(NULL, NULL, 0, &b, &names, NULL);
        }
        schema_narrow(s, item, "additionalProperties", d, names, false);
        chardfa_free(names);
        schema_expand_done(f);
    }
    free(f);
    free(m);
}

// Undeclared names that match just these patterns.
static void add_class(const struct alternative *a, struct object_def *o, const struct chardfa *others,
                      const struct schema_patterns *p, unsigned matched)
{
    struct schema *s = a->s;
    uint32_t item = a->flat->v[0];
    struct schema_list set = {0};
    schema_extra_set(s, a->flat, p, matched, &set);
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *d = NULL;
    if (!s->failed && !schema_has_false(s, &set) && !chardfa_intersect(others, others, &b, &d, NULL)) {
        for (uint32_t k = 0; k < p->n && !s->failed; k++)
            schema_narrow(s, item, "additionalProperties", &d, p->dfa[k], !(matched >> k & 1));
        uint32_t name = schema_dfa_node(s, item, d, true, true);
        if (name && !s->failed)
            o->extras[o->nextras++] = (struct extra){name, schema_node(s, &set)};
    }
    chardfa_free(d);
    free(set.v);
}

static void add_extras(const struct alternative *a, struct object_def *o, const struct schema_names *l)
{
    struct schema *s = a->s;
    struct schema_patterns p;
    bool closed = schema_is_closed(s, a->flat);
    schema_find_patterns(s, a->flat, &p);
    if (s->failed || (closed && p.n == 0))
        return;
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *others = chardfa_any(), *declared = NULL;
    err e = {0};
    if (chardfa_texts(l->name, l->len, l->n, &b, &declared, &e))
        schema_fail_automaton(s, a->flat->v[0], "properties", &e);
    s->work = b.work;
    schema_narrow(s, a->flat->v[0], "additionalProperties", &others, declared, true);
    name_rules(s, a->flat, &others);
    for (unsigned matched = closed ? 1 : 0; matched < 1u << p.n && !s->failed; matched++)
        add_class(a, o, others, &p, matched);
    chardfa_free(declared);
    chardfa_free(others);
}

bool schema_may_have_extras(const struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    for (uint32_t i = 0; i < flat->n; i++)
        if (json_is_false(schema_get(s, flat->v[i], "additionalProperties")) &&
            !schema_get(s, flat->v[i], "patternProperties"))
            return false;
    return m->max_properties > 0;
}

static void add_object(const struct alternative *a)
{
    struct schema *s = a->s;
    struct object_def o = {.min = a->m->min_properties, .max = a->m->max_properties};
    struct schema_names all = {0}, written = {0};
    struct buf text;
    struct schema_list ends = {0};
    buf_init(&text, 4 << 20);
    schema_find_names(s, a->flat, &all);
    o.properties = mem_new((all.n + 1) * sizeof *o.properties);
    for (uint32_t i = 0; i < all.n && !s->failed; i++) {
        struct schema_list set = {0};
        bool required = schema_requires(s, a->flat, all.name[i]);
        schema_property_set(s, a->flat, all.name[i], all.len[i], &set);
        if (required || !schema_has_false(s, &set)) {
            jsontext_string(all.name[i], all.len[i], &text);
            schema_push(&ends, (uint32_t)text.len);
            o.properties[o.nproperties++] = (struct property){.node = schema_node(s, &set), .required = required};
        }
        free(set.v);
    }
    if (text.over)
        schema_fail(s, ERR_TOO_LARGE, a->flat->v[0], "properties", "has names of more than 4 MB.");
    if (!s->failed && schema_may_have_extras(s, a->flat, a->m))
        add_extras(a, &o, &all);
    written.name = mem_new((ends.n + 1) * sizeof *written.name);
    written.len = mem_new((ends.n + 1) * sizeof *written.len);
    if (!s->failed) {
        split(&text, &ends, written.name, written.len);
        give(a, nodes_object(s->g, &o, written.name, written.len));
    }
    free(o.properties);
    schema_names_done(&all);
    schema_names_done(&written);
    free(ends.v);
    buf_done(&text);
}

// ---- the whole

static void build_flat(struct schema *s, const struct schema_list *flat, struct schema_list *out)
{
    struct schema_merged *m = mem_new(sizeof *m);
    struct alternative a = {s, flat, m, out};
    schema_merge(s, flat, m);
    if (s->failed) {
    } else if (m->values != UINT32_MAX) {
        add_values(&a);
    } else {
        if (m->types & TYPE_OBJECT)
            add_object(&a);
        if (m->types & TYPE_ARRAY)
            add_array(&a);
        if (m->types & TYPE_STRING)
            add_string(&a);
        if (m->types & (TYPE_NUMBER | TYPE_INTEGER))
            add_number(&a);
        if (m->types & (TYPE_NULL | TYPE_BOOLEAN))
            add_words(&a);
    }
    free(m);
}

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

static uint32_t open_node(struct schema *s, const struct schema_list *set, bool styled)
{
    struct schema_list sorted = {0};
    uint32_t node = 0;
    if (set->n == 0)  // nothing is said: anything goes
        schema_push(&sorted, schema_made(s, 0, json_true()));
    for (uint32_t i = 0; i < set->n; i++)
        schema_push(&sorted, set->v[i]);
    struct schema_list given = {0};
    for (uint32_t i = 0; i < sorted.n; i++)
        schema_push(&given, sorted.v[i]);  // properties keep the order in which schemas were met
    qsort(sorted.v, sorted.n, sizeof *sorted.v, by_number);
    if (styled)
        schema_push(&sorted, UINT32_MAX);  // no item: of the key alone
    if (s->failed || map_get(s->by_set, (const char *)sorted.v, sorted.n * sizeof *sorted.v, &node)) {
        free(given.v);
    } else {
        node = nodes_open(s->g);
        map_put(s->by_set, (const char *)sorted.v, sorted.n * sizeof *sorted.v, node);
        if (s->npending == s->pending_cap) {
            s->pending_cap = s->pending_cap ? 2 * s->pending_cap : 32;
            s->pending = mem_resize(s->pending, s->pending_cap * sizeof *s->pending);
        }
        s->pending[s->npending++] = (struct schema_pending){given, node, styled};
    }
    free(sorted.v);
    return node;
}

uint32_t schema_node(struct schema *s, const struct schema_list *set)
{
    return open_node(s, set, false);
}

uint32_t schema_styled_node(struct schema *s, const struct schema_list *set)
{
    return open_node(s, set, true);
}

void schema_build_all(struct schema *s)
{
    struct schema_flats *f = mem_new(sizeof *f);
    while (s->npending > 0 && !s->failed) {
        struct schema_pending p = s->pending[--s->npending];
        struct schema_list nodes = {0};
        schema_expand(s, NULL, &p.set, f);
        for (uint32_t i = 0; i < f->n && !s->failed; i++)
            (p.styled ? schema_style_fill : build_flat)(s, &f->v[i], &nodes);
        if (!s->failed && !nodes_check(s->g, s->e))
            nodes_fill(s->g, p.node, nodes.v, nodes.n);
        else
            s->failed = true;
        schema_expand_done(f);
        free(nodes.v);
        free(p.set.v);
    }
    free(f);
}
