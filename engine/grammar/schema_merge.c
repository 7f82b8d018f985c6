// schema_merge.c - what the schemas of one alternative say about each type, put together.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/format.h"
#include "engine/grammar/number.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_int.h"

enum { FAR = 1000000000, MAX_MIN_ITEMS = 10000, MAX_MIN_LENGTH = 100000, MAX_PROPERTIES_BOUND = 10000 };

static void add_once(struct schema_list *l, uint32_t id)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] == id)
            return;
    schema_push(l, id);
}

// ---- types and values

static unsigned type_bit(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"null", TYPE_NULL}, {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER | TYPE_INTEGER}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < 7; i++)
        if (!strcmp(types[i].name, name))
            return types[i].bits;
    return 0;
}

static unsigned types_of(const json_t *v)
{
    unsigned bits = 0;
    if (!v)
        return TYPE_ALL;
    if (json_is_string(v))
        return type_bit(json_string_value(v));
    for (size_t i = 0; i < json_array_size(v); i++)
        bits |= type_bit(json_string_value(json_array_get(v, i)));
    return bits;
}

json_t *schema_values(const struct schema *s, uint32_t item)
{
    json_t *one = (json_t *)schema_get(s, item, "const"), *list = (json_t *)schema_get(s, item, "enum");
    if (one)
        return json_pack("[O]", one);
    return list ? json_incref(list) : NULL;
}

json_t *schema_excluded(const struct schema *s, const struct schema_list *flat)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *not = schema_get(s, flat->v[i], "not");
        json_t *one = json_object_get(not, "const"), *list = json_object_get(not, "enum");
        if (one)
            json_array_append(out, one);
        if (list)
            json_array_extend(out, list);
    }
    return out;
}

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    case JSON_OBJECT: return TYPE_OBJECT;
    default: return TYPE_NUMBER;
    }
}

// Values that are taken away: strings, null, booleans and, where there are only integers, those. From others they cannot.
static void check_excluded(struct schema *s, const struct schema_list *flat, struct schema_merged *m)
{
    json_t *list = schema_excluded(s, flat);
    for (size_t i = 0; i < json_array_size(list); i++) {
        unsigned type = type_of_value(json_array_get(list, i));
        m->automaton |= type == TYPE_STRING;
        if (type & m->types & (TYPE_NUMBER | TYPE_ARRAY | TYPE_OBJECT))
            schema_fail(s, ERR_UNSUPPORTED, flat->v[0], "not",
                        "is not supported with a value that is a number, an array or an object.");
    }
    json_decref(list);
}

// ---- numbers

static void bound(struct schema *s, uint32_t item, const char *keyword, bool lower, bool exclusive, struct schema_merged *m)
{
    const json_t *v = schema_get(s, item, keyword);
    struct decimal d;
    if (!v)
        return;
    if (!decimal_of_json(v, &d)) {
        schema_fail(s, ERR_UNSUPPORTED, item, keyword, "is not supported with so many digits.");
        return;
    }
    bool *has = lower ? &m->has_min : &m->has_max, *strict = lower ? &m->exclusive_min : &m->exclusive_max;
    struct decimal *now = lower ? &m->min : &m->max;
    int c = *has ? decimal_compare(&d, now) : lower ? 1 : -1;
    if (c == 0)
        *strict |= exclusive;
    if (lower ? c <= 0 : c >= 0)
        return;
    *has = true;
    *now = d;
    *strict = exclusive;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b ? gcd(b, a % b) : a;
}

static void multiple(struct schema *s, uint32_t item, struct schema_merged *m)
{
    const json_t *v = schema_get(s, item, "multipleOf");
    if (!v || !(m->types & (TYPE_NUMBER | TYPE_INTEGER)))
        return;
    double d = json_number_value(v);
    uint32_t of = d >= 1 && d <= NUMBER_MAX_MULTIPLE && d == (double)(uint32_t)d ? (uint32_t)d : 0;
    if (d <= 0)
        schema_fail(s, ERR_INVALID, item, "multipleOf", "must be greater than 0.");
    else if (!of)
        schema_fail(s, ERR_UNSUPPORTED, item, "multipleOf", "is supported with whole numbers of at most %d only.",
                    NUMBER_MAX_MULTIPLE);
    else
        m->multiple = m->multiple ? m->multiple / gcd(m->multiple, of) * of : of;
    if (m->multiple > NUMBER_MAX_MULTIPLE)
        schema_fail(s, ERR_UNSUPPORTED, item, "multipleOf", "makes, with others, multiples of more than %d.",
                    NUMBER_MAX_MULTIPLE);
}

// ---- counts

static uint32_t count_of(const json_t *v)
{
    double d = json_number_value(v);
    return d < FAR ? (uint32_t)d : FAR;
}

static void at_least(const struct schema *s, uint32_t item, const char *keyword, uint32_t *least)
{
    const json_t *v = schema_get(s, item, keyword);
    if (v && count_of(v) > *least)
        *least = count_of(v);
}

static void at_most(const struct schema *s, uint32_t item, const char *keyword, uint32_t *most)
{
    const json_t *v = schema_get(s, item, keyword);
    uint32_t n = v ? count_of(v) : FAR;
    if (n < FAR && n < *most)
        *most = n;
}

static void check_counts(struct schema *s, uint32_t item, struct schema_merged *m)
{
    if (m->types & TYPE_ARRAY && m->min_items > MAX_MIN_ITEMS)
        schema_fail(s, ERR_UNSUPPORTED, item, "minItems", "is supported up to %d.", MAX_MIN_ITEMS);
    if (m->types & TYPE_STRING && m->min_length > MAX_MIN_LENGTH)
        schema_fail(s, ERR_UNSUPPORTED, item, "minLength", "is supported up to %d.", MAX_MIN_LENGTH);
    if (m->max_properties > MAX_PROPERTIES_BOUND)
        m->max_properties = NODES_NO_LIMIT;  // more than an object ever gets
}

static void check_format(struct schema *s, uint32_t item, struct schema_merged *m)
{
    const json_t *format = schema_get(s, item, "format");
    if (schema_get(s, item, "pattern"))
        m->automaton = true;
    if (!format)
        return;
    enum format_use use = format_find(json_string_value(format));
    if (use == FORMAT_REFUSED && m->types & TYPE_STRING)
        schema_fail(s, ERR_UNSUPPORTED, item, "format", "'%s' is not supported.", json_string_value(format));
    m->automaton |= use == FORMAT_ENFORCED;
}

void schema_merge(struct schema *s, const struct schema_list *flat, struct schema_merged *ret)
{
    struct schema_merged *m = ret;
    *m = (struct schema_merged){.types = TYPE_ALL, .values = UINT32_MAX, .max_length = NODES_NO_LIMIT,
                                .max_items = NODES_NO_LIMIT, .max_properties = NODES_NO_LIMIT};
    for (uint32_t i = 0; i < flat->n; i++) {
        uint32_t item = flat->v[i];
        m->types &= types_of(schema_get(s, item, "type"));
        if (m->values == UINT32_MAX && (schema_get(s, item, "enum") || schema_get(s, item, "const")))
            m->values = item;
    }
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        uint32_t item = flat->v[i];
        bound(s, item, "minimum", true, false, m);
        bound(s, item, "exclusiveMinimum", true, true, m);
        bound(s, item, "maximum", false, false, m);
        bound(s, item, "exclusiveMaximum", false, true, m);
        multiple(s, item, m);
        at_least(s, item, "minLength", &m->min_length);
        at_most(s, item, "maxLength", &m->max_length);
        at_least(s, item, "minItems", &m->min_items);
        at_most(s, item, "maxItems", &m->max_items);
        at_least(s, item, "minProperties", &m->min_properties);
        at_most(s, item, "maxProperties", &m->max_properties);
        m->unique |= json_is_true(schema_get(s, item, "uniqueItems"));
        check_format(s, item, m);
    }
    if (flat->n && m->values == UINT32_MAX) {
        check_counts(s, flat->v[0], m);
        check_excluded(s, flat, m);
    }
}

// ---- strings

const struct chardfa *schema_pattern(struct schema *s, uint32_t item, const char *keyword, const json_t *text)
{
    const char *p = json_string_value(text);
    size_t len = json_string_length(text);
    bool format = !strcmp(keyword, "format");
    char *key = arena_printf(&s->arena, "%c%s", format ? 'f' : 'p', p);
    uint32_t at;
    if (s->failed || map_get(s->by_pattern, key, strlen(key), &at))
        return s->failed ? NULL : s->patterns[at];
    struct chardfa_budget b = {CHARDFA_STATES, s->work < CHARDFA_WORK ? s->work : CHARDFA_WORK};
    size_t before = b.work;
    struct chardfa *d;
    err e = {0};
    err_code code = format ? format_compile(p, &b, &d, &e) : regex_compile(p, len, true, &b, &d, &e);
    s->work -= before - b.work;
    if (code) {
        schema_fail_automaton(s, item, keyword, &e);
        return NULL;
    }
    s->patterns = mem_resize(s->patterns, (s->npatterns + 1) * sizeof *s->patterns);
    s->patterns[s->npatterns] = d;
    map_put(s->by_pattern, key, strlen(key), s->npatterns);
    return s->patterns[s->npatterns++];
}

bool schema_narrow(struct schema *s, uint32_t item, const char *keyword, struct chardfa **d, const struct chardfa *by,
                   bool minus)
{
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *out;
    err e = {0};
    if (!by || s->failed)
        return false;
    err_code code = minus ? chardfa_minus(*d, by, &b, &out, &e) : chardfa_intersect(*d, by, &b, &out, &e);
    s->work = b.work;
    if (code) {
        schema_fail_automaton(s, item, keyword, &e);
        return false;
    }
    chardfa_free(*d);
    *d = out;
    return true;
}

// The strings among some JSON values that also satisfy flat (NULL: all of them).
static struct chardfa *texts(struct schema *s, const json_t *list, const struct schema_list *flat)
{
    size_t n = json_array_size(list), used = 0;
    const char **text = mem_new((n + 1) * sizeof *text);
    size_t *lens = mem_new((n + 1) * sizeof *lens);
    struct chardfa_budget b = {SCHEMA_MAX_VALUES * 64, s->work};
    struct chardfa *d = NULL;
    err e = {0};
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v) || (flat && !schema_check_all(s, flat, v)))
            continue;
        text[used] = json_string_value(v);
        lens[used++] = json_string_length(v);
    }
    if (chardfa_texts(text, lens, used, &b, &d, &e))
        schema_fail_automaton(s, flat && flat->n ? flat->v[0] : 0, "enum", &e);
    s->work = b.work;
    free(text);
    free(lens);
    return d;
}

static void exclude(struct schema *s, const struct schema_list *flat, struct chardfa **d)
{
    json_t *list = schema_excluded(s, flat);
    if (json_array_size(list)) {
        struct chardfa *out = texts(s, list, NULL);
        schema_narrow(s, flat->v[0], "not", d, out, true);
        chardfa_free(out);
    }
    json_decref(list);
}

static void limit(struct schema *s, uint32_t item, const struct schema_merged *m, struct chardfa **d)
{
    struct chardfa_budget b = {CHARDFA_STATES, s->work};
    struct chardfa *out;
    err e = {0};
    bool max = m->max_length != NODES_NO_LIMIT;
    if (s->failed || (m->min_length == 0 && !max))
        return;
    err_code code = chardfa_length(*d, m->min_length, max ? m->max_length : CHARDFA_NO_LIMIT, &b, &out, &e);
    s->work = b.work;
    if (code) {
        schema_fail_automaton(s, item, max ? "maxLength" : "minLength", &e);
        return;
    }
    chardfa_free(*d);
    *d = out;
}

struct chardfa *schema_string(struct schema *s, const struct schema_list *flat, const struct schema_merged *m)
{
    struct chardfa *d = NULL;
    if (m->values != UINT32_MAX) {
        json_t *list = schema_values(s, m->values);
        d = texts(s, list, flat);
        json_decref(list);
        return d;
    }
    d = chardfa_any();
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        uint32_t item = flat->v[i];
        const json_t *pattern = schema_get(s, item, "pattern"), *format = schema_get(s, item, "format");
        if (pattern)
            schema_narrow(s, item, "pattern", &d, schema_pattern(s, item, "pattern", pattern), false);
        if (format && format_find(json_string_value(format)) == FORMAT_ENFORCED)
            schema_narrow(s, item, "format", &d, schema_pattern(s, item, "format", format), false);
    }
    if (!s->failed)
        exclude(s, flat, &d);
    if (!s->failed)
        limit(s, flat->v[0], m, &d);
    if (!s->failed)
        return d;
    chardfa_free(d);
    return NULL;
}

// ---- objects

void schema_find_patterns(struct schema *s, const struct schema_list *flat, struct schema_patterns *ret)
{
    ret->n = 0;
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        const json_t *map = schema_get(s, flat->v[i], "patternProperties");
        const char *key;
        json_t *v;
        json_object_foreach((json_t *)map, key, v) {
            bool known = false;
            for (uint32_t k = 0; k < ret->n; k++)
                known |= !strcmp(json_string_value(ret->text[k]), key);
            if (known)
                continue;
            if (ret->n == SCHEMA_MAX_PATTERNS) {
                schema_fail(s, ERR_UNSUPPORTED, flat->v[i], "patternProperties", "is supported with at most %d patterns.",
                            SCHEMA_MAX_PATTERNS);
                return;
            }
            json_t *text = json_string(key);
            ret->dfa[ret->n] = schema_pattern(s, flat->v[i], "patternProperties", text);
            ret->text[ret->n++] = text;
            schema_made(s, flat->v[i], json_pack("{s:o}", "const", text));  // keeps it
        }
    }
}

static void additional(struct schema *s, uint32_t item, struct schema_list *ret)
{
    const json_t *v = schema_get(s, item, "additionalProperties");
    if (v)
        add_once(ret, schema_child(s, item, "additionalProperties", NULL, v));
}

void schema_property_set(struct schema *s, const struct schema_list *flat, const char *name, size_t len,
                         struct schema_list *ret)
{
    json_t *text = json_stringn(name, len);
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        uint32_t item = flat->v[i];
        const json_t *names = schema_get(s, item, "propertyNames"), *map = schema_get(s, item, "patternProperties");
        const json_t *v = json_object_getn(schema_get(s, item, "properties"), name, len);
        const char *key;
        json_t *one;
        bool said = v != NULL;
        if (v)
            add_once(ret, schema_child(s, item, "properties", name, v));
        json_object_foreach((json_t *)map, key, one) {
            json_t *pattern = json_string(key);
            const struct chardfa *d = schema_pattern(s, item, "patternProperties", pattern);
            json_decref(pattern);
            if (!d || !chardfa_matches(d, name, len))
                continue;
            said = true;
            add_once(ret, schema_child(s, item, "patternProperties", key, one));
        }
        if (!said)
            additional(s, item, ret);
        if (names && !s->failed && !schema_check(s, schema_child(s, item, "propertyNames", NULL, names), text))
            schema_push(ret, schema_made(s, item, json_false()));
    }
    json_decref(text);
}

void schema_extra_set(struct schema *s, const struct schema_list *flat, const struct schema_patterns *p, unsigned matched,
                      struct schema_list *ret)
{
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        uint32_t item = flat->v[i];
        const json_t *map = schema_get(s, item, "patternProperties");
        bool said = false;
        for (uint32_t k = 0; k < p->n; k++) {
            const json_t *v = json_object_get(map, json_string_value(p->text[k]));
            if (!v || !(matched >> k & 1))
                continue;
            said = true;
            add_once(ret, schema_child(s, item, "patternProperties", json_string_value(p->text[k]), v));
        }
        if (!said)
            additional(s, item, ret);
    }
}

bool schema_has_false(const struct schema *s, const struct schema_list *set)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (schema_is(s, set->v[i], false))
            return true;
    return false;
}

bool schema_requires(const struct schema *s, const struct schema_list *flat, const char *name)
{
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *list = schema_get(s, flat->v[i], "required");
        for (size_t k = 0; k < json_array_size(list); k++)
            if (!strcmp(json_string_value(json_array_get(list, k)), name))
                return true;
    }
    return false;
}

bool schema_is_closed(const struct schema *s, const struct schema_list *flat)
{
    bool declared = false;
    for (uint32_t i = 0; i < flat->n; i++) {
        const char *key;
        json_t *v;
        if (schema_get(s, flat->v[i], "additionalProperties"))
            return false;
        json_object_foreach((json_t *)schema_get(s, flat->v[i], "properties"), key, v)
            declared |= !json_is_false(v);
    }
    return declared;
}

// ---- arrays

uint32_t schema_prefix_length(struct schema *s, const struct schema_list *flat)
{
    size_t n = 0;
    for (uint32_t i = 0; i < flat->n; i++) {
        const json_t *prefix = schema_get(s, flat->v[i], "prefixItems"), *items = schema_get(s, flat->v[i], "items");
        n = json_array_size(prefix) > n ? json_array_size(prefix) : n;
        n = json_array_size(items) > n ? json_array_size(items) : n;
    }
    return (uint32_t)n;
}

void schema_item_set(struct schema *s, const struct schema_list *flat, uint32_t index, struct schema_list *ret,
                     bool *ret_said)
{
    *ret_said = false;
    for (uint32_t i = 0; i < flat->n && !s->failed; i++) {
        uint32_t item = flat->v[i];
        const json_t *prefix = schema_get(s, item, "prefixItems"), *items = schema_get(s, item, "items");
        const char *keyword = "items", *of_prefix = "prefixItems";
        char name[24];
        if (json_is_array(items)) {  // an older draft's spelling
            of_prefix = "items";
            prefix = items;
            keyword = "additionalItems";
            items = schema_get(s, item, keyword);
        }
        snprintf(name, sizeof name, "%u", index);
        if (index < json_array_size(prefix)) {
            add_once(ret, schema_child(s, item, of_prefix, name, json_array_get(prefix, index)));
            *ret_said = true;
        } else if (items) {
            add_once(ret, schema_child(s, item, keyword, NULL, items));
            *ret_said = true;
        }
    }
}
