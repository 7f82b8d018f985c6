// schema_check.c - whether a value satisfies a schema: for the values of enum and const, beside which anything may stand.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/mem.h"
#include "engine/grammar/format.h"
#include "engine/grammar/schema_int.h"

enum { CHECK_COST = 256 };  // bytes of text that would take about as long

// Numbers that differ as doubles differ; only the others are looked at digit by digit.
static bool equal(const json_t *a, const json_t *b)
{
    struct decimal x, y;
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b) && decimal_of_json(a, &x) && decimal_of_json(b, &y) &&
               decimal_compare(&x, &y) == 0;
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        for (size_t i = 0; i < json_array_size(a); i++)
            if (json_array_size(a) != json_array_size(b) || !equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return json_array_size(a) == json_array_size(b);
    }
    if (!json_is_object(a))
        return json_equal(a, b);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)a, key, v) {
        const json_t *other = json_object_get(b, key);
        if (!other || !equal(v, other))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

static bool type_fits(const json_t *v, const char *type)
{
    struct decimal d;
    switch (json_typeof(v)) {
    case JSON_NULL: return !strcmp(type, "null");
    case JSON_TRUE:
    case JSON_FALSE: return !strcmp(type, "boolean");
    case JSON_STRING: return !strcmp(type, "string");
    case JSON_ARRAY: return !strcmp(type, "array");
    case JSON_OBJECT: return !strcmp(type, "object");
    default: break;
    }
    return !strcmp(type, "number") || (!strcmp(type, "integer") && decimal_of_json(v, &d) && decimal_is_integer(&d));
}

static bool types_fit(const json_t *types, const json_t *v)
{
    if (!types || json_is_string(types))
        return !types || type_fits(v, json_string_value(types));
    for (size_t i = 0; i < json_array_size(types); i++)
        if (type_fits(v, json_string_value(json_array_get(types, i))))
            return true;
    return false;
}

// Most often the list is the one that v comes from.
static bool listed(struct schema *s, const json_t *list, const json_t *v)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        if (json_array_get(list, i) == v)
            return true;
    for (size_t i = 0; i < n && s->work > 0; i++, s->work--)
        if (equal(json_array_get(list, i), v))
            return true;
    return false;
}

static bool number_fits(const struct schema *s, uint32_t item, const json_t *v)
{
    static const struct {
        const char *keyword;
        int sign;
        bool exclusive;
    } bounds[] = {{"minimum", 1, false}, {"exclusiveMinimum", 1, true}, {"maximum", -1, false}, {"exclusiveMaximum", -1, true}};
    struct decimal x, y;
    if (!decimal_of_json(v, &x))
        return false;
    for (size_t i = 0; i < 4; i++) {
        const json_t *b = schema_get(s, item, bounds[i].keyword);
        if (!b)
            continue;
        int c = decimal_of_json(b, &y) ? bounds[i].sign * decimal_compare(&x, &y) : -1;
        if (c < 0 || (c == 0 && bounds[i].exclusive))
            return false;
    }
    const json_t *m = schema_get(s, item, "multipleOf");
    double of = m ? json_number_value(m) : 1;
    return !m || (of >= 1 && of == (double)(unsigned)of && decimal_is_multiple(&x, (unsigned)of));
}

static bool in_range(const struct schema *s, uint32_t item, const char *min, const char *max, size_t n)
{
    const json_t *lo = schema_get(s, item, min), *hi = schema_get(s, item, max);
    return (!lo || (double)n >= json_number_value(lo)) && (!hi || (double)n <= json_number_value(hi));
}

static bool string_fits(struct schema *s, uint32_t item, const json_t *v)
{
    const char *text = json_string_value(v);
    size_t len = json_string_length(v), n = 0;
    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xC0) != 0x80;
    if (!in_range(s, item, "minLength", "maxLength", n))
        return false;
    static const char *const keywords[] = {"pattern", "format"};
    for (int i = 0; i < 2; i++) {
        const json_t *p = schema_get(s, item, keywords[i]);
        if (!p || (i == 1 && format_find(json_string_value(p)) != FORMAT_ENFORCED))
            continue;
        const struct chardfa *d = schema_pattern(s, item, keywords[i], p);
        if (!d || !chardfa_matches(d, text, len))
            return false;
    }
    return true;
}

static bool array_fits(struct schema *s, uint32_t item, const json_t *v)
{
    struct schema_list self = {.v = &item, .n = 1};
    size_t n = json_array_size(v);
    bool said;
    if (!in_range(s, item, "minItems", "maxItems", n))
        return false;
    for (size_t i = 0; i < n && !s->failed; i++) {
        struct schema_list set = {0};
        schema_item_set(s, &self, (uint32_t)i, &set, &said);
        bool ok = schema_check_all(s, &set, json_array_get(v, i));
        free(set.v);
        for (size_t k = 0; k < i && ok && json_is_true(schema_get(s, item, "uniqueItems")); k++)
            ok = !equal(json_array_get(v, i), json_array_get(v, k));
        if (!ok)
            return false;
    }
    return true;
}

static bool dependencies_fit(struct schema *s, uint32_t item, const char *keyword, const json_t *v)
{
    const char *name;
    json_t *then;
    json_object_foreach((json_t *)schema_get(s, item, keyword), name, then) {
        if (!json_object_get(v, name))
            continue;
        for (size_t i = 0; i < json_array_size(then); i++)
            if (!json_object_get(v, json_string_value(json_array_get(then, i))))
                return false;
        if (!json_is_array(then) && !schema_check(s, schema_child(s, item, keyword, name, then), v))
            return false;
    }
    return true;
}

static bool object_fits(struct schema *s, uint32_t item, const json_t *v)
{
    struct schema_list self = {.v = &item, .n = 1};
    const json_t *required = schema_get(s, item, "required");
    const char *key;
    size_t len;
    json_t *one;
    if (!in_range(s, item, "minProperties", "maxProperties", json_object_size(v)))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_keylen_foreach((json_t *)v, key, len, one) {
        struct schema_list set = {0};
        schema_property_set(s, &self, key, len, &set);
        bool ok = schema_check_all(s, &set, one);
        free(set.v);
        if (!ok)
            return false;
    }
    return dependencies_fit(s, item, "dependentRequired", v) && dependencies_fit(s, item, "dependentSchemas", v) &&
           dependencies_fit(s, item, "dependencies", v);
}

static size_t fitting(struct schema *s, uint32_t item, const char *keyword, const json_t *v)
{
    const json_t *list = schema_get(s, item, keyword);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        n += schema_check(s, schema_child(s, item, keyword, index, json_array_get(list, i)), v);
    }
    return n;
}

static bool others_fit(struct schema *s, uint32_t item, const json_t *v)
{
    const json_t *ref = schema_get(s, item, "$ref"), *not = schema_get(s, item, "not");
    uint32_t target;
    if (ref && (!schema_resolve(s, item, json_string_value(ref), &target) || !schema_check(s, target, v)))
        return false;
    if (not && schema_check(s, schema_child(s, item, "not", NULL, not), v))
        return false;
    return fitting(s, item, "allOf", v) == json_array_size(schema_get(s, item, "allOf")) &&
           (!schema_get(s, item, "anyOf") || fitting(s, item, "anyOf", v) > 0) &&
           (!schema_get(s, item, "oneOf") || fitting(s, item, "oneOf", v) == 1);
}

static bool fits(struct schema *s, uint32_t item, const json_t *v)
{
    const json_t *values = schema_get(s, item, "enum"), *one = schema_get(s, item, "const");
    if (!types_fit(schema_get(s, item, "type"), v) || (values && !listed(s, values, v)) || (one && !equal(one, v)))
        return false;
    if (json_is_number(v) && !number_fits(s, item, v))
        return false;
    if (json_is_string(v) && !string_fits(s, item, v))
        return false;
    if (json_is_array(v) && !array_fits(s, item, v))
        return false;
    if (json_is_object(v) && !object_fits(s, item, v))
        return false;
    return others_fit(s, item, v);
}

bool schema_check(struct schema *s, uint32_t item, const json_t *v)
{
    if (s->failed)
        return false;
    if (json_is_boolean(s->items[item].schema))
        return json_is_true(s->items[item].schema);
    if (s->depth >= SCHEMA_MAX_DEPTH || s->steps == 0 || s->work == 0 || cancel_due(CHECK_COST)) {
        schema_fail(s, ERR_TOO_LARGE, item, NULL, "the schema takes too long to compile.");
        return false;
    }
    s->steps--;
    s->depth++;
    bool ok = fits(s, item, v);
    s->depth--;
    return ok && !s->failed;
}

bool schema_check_all(struct schema *s, const struct schema_list *flat, const json_t *v)
{
    for (uint32_t i = 0; i < flat->n; i++)
        if (!schema_check(s, flat->v[i], v))
            return false;
    return true;
}
