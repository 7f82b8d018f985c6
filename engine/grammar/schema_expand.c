// schema_expand.c - schemas that all hold at a place, as alternatives that need no further looking up: $ref and allOf are
// followed, of anyOf and oneOf one branch after the other is taken, `not` and dependencies are rewritten.
//
// oneOf is anyOf where no value can satisfy two branches; where that cannot be shown it is refused.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/schema_int.h"

struct entry {
    uint32_t item, from;  // from: the entry that brought it; UINT32_MAX: the set itself
};

struct choice {  // branches of which one must hold
    uint32_t item, entry;
    struct schema_list branches;
};

struct expansion {
    struct schema *s;
    struct entry *entries;
    uint32_t n, cap;
    struct choice *choices;
    uint32_t nchoices, choices_cap;
    bool never;
    struct schema_flats *out;
};

static void add(struct expansion *x, uint32_t item, uint32_t from);

static struct choice *new_choice(struct expansion *x, uint32_t entry)
{
    if (x->nchoices == x->choices_cap) {
        x->choices_cap = x->choices_cap ? 2 * x->choices_cap : 8;
        x->choices = mem_resize(x->choices, x->choices_cap * sizeof *x->choices);
    }
    struct choice *c = &x->choices[x->nchoices++];
    *c = (struct choice){.item = x->entries[entry].item, .entry = entry};
    return c;
}

// ---- rewriting

static json_t *absent(const char *name)
{
    return json_pack("{s:{s:b}}", "properties", name, 0);
}

// Either the name is absent, or `then` holds.
static void depend(struct expansion *x, uint32_t entry, const char *name, uint32_t then)
{
    uint32_t item = x->entries[entry].item, without = schema_made(x->s, item, absent(name));
    struct choice *c = new_choice(x, entry);
    schema_push(&c->branches, without);
    schema_push(&c->branches, then);
}

static void add_dependencies(struct expansion *x, uint32_t entry, const char *keyword)
{
    uint32_t item = x->entries[entry].item;
    const json_t *map = schema_get(x->s, item, keyword);
    const char *name;
    json_t *v;
    if (map && !json_is_object(map))
        schema_fail(x->s, ERR_INVALID, item, keyword, "must be an object.");
    json_object_foreach((json_t *)map, name, v) {
        uint32_t then = json_is_array(v) ? schema_made(x->s, item, json_pack("{s:O}", "required", v))
                                         : schema_child(x->s, item, keyword, name, v);
        if (x->s->failed)
            return;
        depend(x, entry, name, then);
    }
}

static json_t *complement(const json_t *types)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    json_t *list = json_array();
    size_t n = json_is_array(types) ? json_array_size(types) : 1;
    for (size_t k = 0; k < 6; k++) {
        bool excluded = false;
        for (size_t i = 0; i < n; i++)
            excluded |= !strcmp(json_string_value(json_is_array(types) ? json_array_get(types, i) : types), names[k]);
        if (!excluded)
            json_array_append_new(list, json_string(names[k]));
    }
    return list;
}

static bool excludes_integers_alone(const json_t *types)
{
    bool integer = false, number = false;
    size_t n = json_is_array(types) ? json_array_size(types) : 1;
    for (size_t i = 0; i < n; i++) {
        const char *t = json_string_value(json_is_array(types) ? json_array_get(types, i) : types);
        integer |= !strcmp(t, "integer");
        number |= !strcmp(t, "number");
    }
    return integer && !number;
}

// The one keyword of a schema that says something; NULL: none or several.
static const char *only_keyword(const json_t *schema, int *ret_count)
{
    const char *key, *found = NULL;
    json_t *v;
    *ret_count = 0;
    json_object_foreach((json_t *)schema, key, v)
        if (!schema_is_annotation(key)) {
            found = key;
            ++*ret_count;
        }
    return *ret_count == 1 ? found : NULL;
}

static void not_required(struct expansion *x, uint32_t entry, const json_t *names)
{
    uint32_t item = x->entries[entry].item;
    struct schema_list branches = {0};
    for (size_t i = 0; i < json_array_size(names); i++) {
        json_t *one = absent(json_string_value(json_array_get(names, i)));
        json_object_set_new(one, "type", json_string("object"));
        schema_push(&branches, schema_made(x->s, item, one));
    }
    new_choice(x, entry)->branches = branches;
}

static void not_any(struct expansion *x, uint32_t entry, const json_t *schemas)
{
    for (size_t i = 0; i < json_array_size(schemas) && !x->s->failed; i++)
        add(x, schema_made(x->s, x->entries[entry].item, json_pack("{s:O}", "not", json_array_get(schemas, i))), entry);
}

static void add_not(struct expansion *x, uint32_t entry, const json_t *v)
{
    struct schema *s = x->s;
    uint32_t item = x->entries[entry].item;
    int n = 0;
    const char *key = only_keyword(v, &n);
    const json_t *value = key ? json_object_get(v, key) : NULL;
    if (json_is_false(v))
        return;
    if (json_is_true(v) || n == 0) {
        x->never = true;
    } else if (key && !strcmp(key, "not")) {
        add(x, schema_child(s, item, "not", "not", value), entry);
    } else if (key && !strcmp(key, "type") && !excludes_integers_alone(value)) {
        json_t *types = complement(value);
        x->never |= json_array_size(types) == 0;
        add(x, schema_made(s, item, x->never ? json_true() : json_pack("{s:O}", "type", types)), entry);
        json_decref(types);
    } else if (key && !strcmp(key, "required") && json_array_size(value)) {
        not_required(x, entry, value);
    } else if (key && !strcmp(key, "anyOf") && json_is_array(value)) {
        not_any(x, entry, value);
    } else if (!key || (strcmp(key, "enum") != 0 && strcmp(key, "const") != 0)) {  // those are for schema_merge
        schema_fail(s, ERR_UNSUPPORTED, item, "not", "is not supported with this schema.");
    }
}

// ---- one of

static bool disjoint(struct schema *s, const struct schema_flats *a, const struct schema_flats *b, int depth);

static bool values_disjoint(struct schema *s, const struct schema_list *a, uint32_t values, const struct schema_list *b)
{
    json_t *list = schema_values(s, values);
    bool apart = true;
    for (size_t i = 0; i < json_array_size(list) && apart; i++) {
        const json_t *v = json_array_get(list, i);
        apart = !schema_check_all(s, a, v) || !schema_check_all(s, b, v);
    }
    json_decref(list);
    return apart;
}

static bool strings_disjoint(struct schema *s, const struct schema_list *a, const struct schema_merged *ma,
                             const struct schema_list *b, const struct schema_merged *mb)
{
    struct chardfa *x = schema_string(s, a, ma), *y = schema_string(s, b, mb), *both = NULL;
    struct chardfa_budget budget = {CHARDFA_STATES, s->work};
    err e;
    bool apart = x && y && !chardfa_intersect(x, y, &budget, &both, &e) && chardfa_is_empty(both);
    s->work = budget.work;
    chardfa_free(x);
    chardfa_free(y);
    chardfa_free(both);
    return apart;
}

static bool numbers_disjoint(const struct schema_merged *a, const struct schema_merged *b)
{
    for (int i = 0; i < 2; i++) {
        const struct schema_merged *low = i ? a : b, *high = i ? b : a;
        if (!low->has_max || !high->has_min)
            continue;
        int c = decimal_compare(&low->max, &high->min);
        if (c < 0 || (c == 0 && (low->exclusive_max || high->exclusive_min)))
            return true;
    }
    return false;
}

static bool sets_disjoint(struct schema *s, const struct schema_list *a, const struct schema_list *b, int depth)
{
    struct schema_flats *x = mem_new(sizeof *x), *y = mem_new(sizeof *y);
    schema_expand(s, NULL, a, x);
    schema_expand(s, NULL, b, y);
    bool apart = !s->failed && disjoint(s, x, y, depth);
    schema_expand_done(x);
    schema_expand_done(y);
    free(x);
    free(y);
    return apart;
}

// A name that one of them requires: the other forbids it, or requires it with another value.
static bool name_parts(struct schema *s, const struct schema_list *a, const struct schema_list *b, const char *name,
                       size_t len, int depth)
{
    struct schema_list x = {0}, y = {0};
    schema_property_set(s, a, name, len, &x);
    schema_property_set(s, b, name, len, &y);
    bool apart = schema_has_false(s, &y);
    if (!apart && schema_requires(s, b, name) && depth > 0)
        apart = sets_disjoint(s, &x, &y, depth - 1);
    free(x.v);
    free(y.v);
    return apart;
}

static bool objects_disjoint(struct schema *s, const struct schema_list *a, const struct schema_list *b, int depth)
{
    for (uint32_t i = 0; i < a->n && !s->failed; i++) {
        const json_t *required = schema_get(s, a->v[i], "required");
        for (size_t k = 0; k < json_array_size(required) && !s->failed; k++) {
            const json_t *name = json_array_get(required, k);
            if (name_parts(s, a, b, json_string_value(name), json_string_length(name), depth))
                return true;
        }
    }
    return false;
}

static bool flats_disjoint(struct schema *s, const struct schema_list *a, const struct schema_list *b, int depth)
{
    struct schema_merged *ma = mem_new(2 * sizeof *ma), *mb = ma + 1;
    schema_merge(s, a, ma);
    schema_merge(s, b, mb);
    unsigned both = ma->types & mb->types;
    bool apart = both == 0;
    if (!apart && ma->values != UINT32_MAX)
        apart = values_disjoint(s, a, ma->values, b);
    else if (!apart && mb->values != UINT32_MAX)
        apart = values_disjoint(s, b, mb->values, a);
    else if (!apart && !(both & (TYPE_NULL | TYPE_BOOLEAN)))
        apart = (!(both & TYPE_STRING) || strings_disjoint(s, a, ma, b, mb)) &&
                (!(both & (TYPE_NUMBER | TYPE_INTEGER)) || numbers_disjoint(ma, mb)) &&
                (!(both & TYPE_ARRAY) || ma->max_items < mb->min_items || mb->max_items < ma->min_items) &&
                (!(both & TYPE_OBJECT) || objects_disjoint(s, a, b, depth) || objects_disjoint(s, b, a, depth));
    free(ma);
    return apart;
}

static bool disjoint(struct schema *s, const struct schema_flats *a, const struct schema_flats *b, int depth)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++)
            if (s->failed || !flats_disjoint(s, &a->v[i], &b->v[k], depth))
                return false;
    return true;
}

// "Exactly one of these names": branches of one required name each. Then each branch also forbids the others' names.
static bool name_branches(struct expansion *x, const json_t *list, struct schema_list *ret)
{
    size_t n = json_array_size(list);
    int keys;
    for (size_t i = 0; i < n; i++) {
        const json_t *b = json_array_get(list, i);
        const char *key = only_keyword(b, &keys);
        if (!key || strcmp(key, "required") != 0 || json_array_size(json_object_get(b, "required")) != 1)
            return false;
    }
    uint32_t item = x->entries[x->n - 1].item;
    for (size_t i = 0; i < n; i++) {
        json_t *properties = json_object(), *b = json_array_get(list, i);
        for (size_t k = 0; k < n; k++)
            if (k != i)
                json_object_set_new(properties, json_string_value(json_array_get(json_object_get(json_array_get(list, k), "required"), 0)),
                                    json_false());
        json_t *made = json_pack("{s:s, s:O, s:o}", "type", "object", "required", json_object_get(b, "required"),
                                 "properties", properties);
        schema_push(ret, schema_made(x->s, item, made));
    }
    return true;
}

static void check_disjoint(struct expansion *x, const struct choice *c)
{
    struct schema *s = x->s;
    struct schema_list plain = {0};
    struct schema_flats *flats = mem_new(c->branches.n * sizeof *flats);
    for (uint32_t i = 0; i < x->n; i++)
        schema_push(&plain, x->entries[i].item);
    for (uint32_t i = 0; i < c->branches.n && !s->failed; i++) {
        struct schema_list one = {.v = &c->branches.v[i], .n = 1};
        schema_expand(s, &plain, &one, &flats[i]);
        for (uint32_t k = 0; k < i && !s->failed; k++)
            if (!disjoint(s, &flats[k], &flats[i], 4) && !s->failed)
                schema_fail(s, ERR_UNSUPPORTED, c->item, "oneOf",
                            "is not supported: it cannot be shown that a value satisfies only one of branches %u and %u. "
                            "Use 'anyOf'.", k, i);
    }
    for (uint32_t i = 0; i < c->branches.n; i++)
        schema_expand_done(&flats[i]);
    free(flats);
    free(plain.v);
}

// ---- following

static void add_choice(struct expansion *x, uint32_t entry, const char *keyword)
{
    uint32_t item = x->entries[entry].item;
    const json_t *list = schema_get(x->s, item, keyword);
    struct schema_list branches = {0};
    bool one = !strcmp(keyword, "oneOf"), names = one && list && name_branches(x, list, &branches);
    for (size_t i = 0; i < json_array_size(list) && !names; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        schema_push(&branches, schema_child(x->s, item, keyword, index, json_array_get(list, i)));
    }
    if (branches.n == 0)
        return;
    struct choice *c = new_choice(x, entry);
    c->branches = branches;
    if (one && !names && branches.n > 1 && !x->s->failed) {
        struct choice copy = *c;  // x->choices may move
        check_disjoint(x, &copy);
    }
}

static void follow(struct expansion *x, uint32_t entry)
{
    struct schema *s = x->s;
    uint32_t item = x->entries[entry].item, target;
    const json_t *ref = schema_get(s, item, "$ref"), *all = schema_get(s, item, "allOf"), *not = schema_get(s, item, "not");
    if (ref && schema_resolve(s, item, json_string_value(ref), &target))
        add(x, target, entry);
    for (size_t i = 0; i < json_array_size(all) && !s->failed; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        add(x, schema_child(s, item, "allOf", index, json_array_get(all, i)), entry);
    }
    if (not && !s->failed)
        add_not(x, entry, not);
}

static bool comes_from(const struct expansion *x, uint32_t entry, uint32_t item)
{
    for (; entry != UINT32_MAX; entry = x->entries[entry].from)
        if (x->entries[entry].item == item)
            return true;
    return false;
}

static uint32_t append(struct expansion *x, uint32_t item, uint32_t from)
{
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 16;
        x->entries = mem_resize(x->entries, x->cap * sizeof *x->entries);
    }
    x->entries[x->n] = (struct entry){item, from};
    return x->n++;
}

static void add(struct expansion *x, uint32_t item, uint32_t from)
{
    struct schema *s = x->s;
    if (s->failed)
        return;
    if (s->steps == 0) {
        schema_fail(s, ERR_TOO_LARGE, item, NULL, "the schema takes too long to compile.");
        return;
    }
    s->steps--;
    if (from != UINT32_MAX && comes_from(x, from, item)) {
        if (!schema_is(s, item, true))
            schema_fail(s, ERR_INVALID, item, NULL, "a schema refers to itself without any value in between.");
        return;
    }
    for (uint32_t i = 0; i < x->n; i++)
        if (x->entries[i].item == item)
            return;
    uint32_t entry = append(x, item, from);
    x->never |= schema_is(s, item, false);
    follow(x, entry);
    if (s->failed)
        return;
    add_choice(x, entry, "anyOf");
    add_choice(x, entry, "oneOf");
    add_dependencies(x, entry, "dependentRequired");
    add_dependencies(x, entry, "dependentSchemas");
    add_dependencies(x, entry, "dependencies");
}

static void emit(struct expansion *x)
{
    struct schema_flats *out = x->out;
    if (out->n == SCHEMA_MAX_FLATS) {
        schema_fail(x->s, ERR_TOO_LARGE, x->entries[0].item, NULL, "the schema has more than %d alternatives in one place.",
                    SCHEMA_MAX_FLATS);
        return;
    }
    struct schema_list *l = &out->v[out->n++];
    for (uint32_t i = 0; i < x->n; i++)
        schema_push(l, x->entries[i].item);
}

static void forget_choices(struct expansion *x, uint32_t n)
{
    while (x->nchoices > n)
        free(x->choices[--x->nchoices].branches.v);
}

static void solve(struct expansion *x, uint32_t at)
{
    if (x->never || x->s->failed)
        return;
    if (at == x->nchoices) {
        emit(x);
        return;
    }
    struct choice c = x->choices[at];
    uint32_t n = x->n, nchoices = x->nchoices;
    for (uint32_t i = 0; i < c.branches.n && !x->s->failed; i++) {
        add(x, c.branches.v[i], c.entry);
        solve(x, at + 1);
        x->n = n;
        forget_choices(x, nchoices);
        x->never = false;
    }
}

void schema_expand(struct schema *s, const struct schema_list *plain, const struct schema_list *set,
                   struct schema_flats *ret)
{
    struct expansion x = {.s = s, .out = ret};
    ret->n = 0;
    if (++s->depth > SCHEMA_MAX_DEPTH)
        schema_fail(s, ERR_TOO_LARGE, UINT32_MAX, NULL, "the schema is too deep.");
    for (uint32_t i = 0; plain && i < plain->n; i++)
        append(&x, plain->v[i], UINT32_MAX);
    for (uint32_t i = 0; i < set->n; i++)
        add(&x, set->v[i], UINT32_MAX);
    solve(&x, 0);
    forget_choices(&x, 0);
    free(x.entries);
    free(x.choices);
    s->depth--;
}

void schema_expand_done(struct schema_flats *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        free(f->v[i].v);
    memset(f, 0, sizeof *f);
}
