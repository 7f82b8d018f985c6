// schema.c - the document: items, references, the table of keywords. Prep threads; one compilation owns everything.
#include "engine/grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/grammar/jsontext.h"
#include "engine/grammar/schema_int.h"

void schema_push(struct schema_list *l, uint32_t id)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 8;
        l->v = mem_resize(l->v, l->cap * sizeof *l->v);
    }
    l->v[l->n++] = id;
}

// ---- failures

void schema_fail(struct schema *s, err_code code, uint32_t item, const char *keyword, const char *fmt, ...)
{
    if (s->failed)
        return;
    s->failed = true;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *path = item < s->nitems ? s->items[item].path : "()";
    if (keyword)
        err_fill(s->e, code, "", "In context=%s, '%s' %s", path, keyword, text);
    else
        err_fill(s->e, code, "", "In context=%s, %s", path, text);
}

void schema_fail_automaton(struct schema *s, uint32_t item, const char *keyword, const err *why)
{
    schema_fail(s, why->code == ERR_INVALID ? ERR_INVALID : ERR_UNSUPPORTED, item, keyword, "cannot be enforced: %s",
                why->text);
}

// ---- keywords

enum use { ENFORCED, ANNOTATION, REFUSED };
enum shape { ANY, BOOLEAN, COUNT, NUMBER, STRING, STRINGS, SCHEMA, SCHEMAS, SCHEMA_MAP, LIST, TYPES, ITEMS };

static const struct keyword {
    const char *name;
    enum use use;
    enum shape shape;
} keywords[] = {
    {"type", ENFORCED, TYPES}, {"enum", ENFORCED, LIST}, {"const", ENFORCED, ANY},
    {"minimum", ENFORCED, NUMBER}, {"maximum", ENFORCED, NUMBER}, {"exclusiveMinimum", ENFORCED, NUMBER},
    {"exclusiveMaximum", ENFORCED, NUMBER}, {"multipleOf", ENFORCED, NUMBER},
    {"minLength", ENFORCED, COUNT}, {"maxLength", ENFORCED, COUNT}, {"pattern", ENFORCED, STRING},
    {"format", ENFORCED, STRING},
    {"items", ENFORCED, ITEMS}, {"prefixItems", ENFORCED, SCHEMAS}, {"additionalItems", ENFORCED, SCHEMA},
    {"minItems", ENFORCED, COUNT}, {"maxItems", ENFORCED, COUNT}, {"uniqueItems", ENFORCED, BOOLEAN},
    {"properties", ENFORCED, SCHEMA_MAP}, {"patternProperties", ENFORCED, SCHEMA_MAP},
    {"additionalProperties", ENFORCED, SCHEMA}, {"propertyNames", ENFORCED, SCHEMA}, {"required", ENFORCED, STRINGS},
    {"minProperties", ENFORCED, COUNT}, {"maxProperties", ENFORCED, COUNT}, {"dependentRequired", ENFORCED, ANY},
    {"dependentSchemas", ENFORCED, SCHEMA_MAP}, {"dependencies", ENFORCED, ANY},
    {"allOf", ENFORCED, SCHEMAS}, {"anyOf", ENFORCED, SCHEMAS}, {"oneOf", ENFORCED, SCHEMAS}, {"not", ENFORCED, SCHEMA},
    {"$ref", ENFORCED, STRING}, {"$defs", ENFORCED, ANY}, {"definitions", ENFORCED, ANY}, {"$id", ENFORCED, STRING},
    {"$anchor", ENFORCED, STRING}, {"$schema", ENFORCED, STRING},

    {"title", ANNOTATION, ANY}, {"description", ANNOTATION, ANY}, {"default", ANNOTATION, ANY},
    {"examples", ANNOTATION, ANY}, {"example", ANNOTATION, ANY}, {"deprecated", ANNOTATION, ANY},
    {"readOnly", ANNOTATION, ANY}, {"writeOnly", ANNOTATION, ANY}, {"$comment", ANNOTATION, ANY},
    {"contentEncoding", ANNOTATION, ANY}, {"contentMediaType", ANNOTATION, ANY}, {"contentSchema", ANNOTATION, ANY},
    {"$vocabulary", ANNOTATION, ANY}, {"nullable", ANNOTATION, ANY}, {"discriminator", ANNOTATION, ANY},
    {"$dynamicAnchor", ANNOTATION, ANY},
    // These say something only beside another keyword, which is refused where they do.
    {"then", ANNOTATION, SCHEMA}, {"else", ANNOTATION, SCHEMA}, {"minContains", ANNOTATION, COUNT},
    {"maxContains", ANNOTATION, COUNT},

    {"if", REFUSED, ANY}, {"contains", REFUSED, ANY}, {"unevaluatedItems", REFUSED, ANY},
    {"unevaluatedProperties", REFUSED, ANY}, {"$dynamicRef", REFUSED, ANY}, {"$recursiveRef", REFUSED, ANY},
    {"$recursiveAnchor", REFUSED, ANY}, {"extends", REFUSED, ANY}, {"disallow", REFUSED, ANY}, {"divisibleBy", REFUSED, ANY},
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

bool schema_is_annotation(const char *keyword)
{
    const struct keyword *k = find_keyword(keyword);
    return !k || k->use == ANNOTATION;
}

static bool is_schema(const json_t *v)
{
    return json_is_object(v) || json_is_boolean(v);
}

static bool all(const json_t *list, bool (*is)(const json_t *v))
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!is(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

static bool is_string(const json_t *v)
{
    return json_is_string(v);
}

static bool is_map(const json_t *v)
{
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)v, key, one)
        if (!is_schema(one))
            return false;
    return json_is_object(v);
}

static bool is_type(const json_t *v)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (size_t i = 0; i < 7; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), names[i]) == 0)
            return true;
    return false;
}

static bool is_count(const json_t *v)
{
    double d = json_number_value(v);
    return json_is_number(v) && d >= 0 && d == (double)(long long)d && d < 1e15;
}

// What a keyword's value must be; NULL: it is.
static const char *misshapen(const struct schema *s, enum shape shape, const json_t *v)
{
    switch (shape) {
    case BOOLEAN: return json_is_boolean(v) ? NULL : "must be a boolean";
    case COUNT: return is_count(v) ? NULL : "must be a whole number, 0 or more";
    case NUMBER: return json_is_number(v) ? NULL : "must be a number";
    case STRING: return json_is_string(v) ? NULL : "must be a string";
    case STRINGS: return all(v, is_string) ? NULL : "must be an array of strings";
    case SCHEMA: return is_schema(v) ? NULL : "must be a schema";
    case SCHEMAS: return all(v, is_schema) && json_array_size(v) ? NULL : "must be a non-empty array of schemas";
    case SCHEMA_MAP: return is_map(v) ? NULL : "must be an object of schemas";
    case LIST: return json_array_size(v) ? NULL : "must be a non-empty array";
    case TYPES: return is_type(v) || (all(v, is_type) && json_array_size(v)) ? NULL : "must be a type or an array of types";
    case ITEMS: return is_schema(v) || (s->old && all(v, is_schema)) ? NULL : "must be a schema (use 'prefixItems' for a list)";
    default: return NULL;
    }
}

// Refused keywords that say nothing where they stand.
static bool says_nothing(const json_t *schema, const char *keyword, const json_t *v)
{
    static const char *const applicators[] = {"$ref", "allOf", "anyOf", "oneOf", "not", "dependentSchemas", "dependencies"};
    if (!strcmp(keyword, "if"))
        return !json_object_get(schema, "then") && !json_object_get(schema, "else");
    if (strncmp(keyword, "unevaluated", 11) != 0)
        return false;
    if (json_is_true(v) || (json_is_object(v) && !json_object_size(v)))
        return true;
    // Without others beside it, unevaluatedProperties is additionalProperties (schema_get knows).
    for (size_t i = 0; i < sizeof applicators / sizeof *applicators; i++)
        if (json_object_get(schema, applicators[i]))
            return false;
    return !strcmp(keyword, "unevaluatedProperties") && json_is_false(v);
}

static void check_keywords(struct schema *s, uint32_t item)
{
    const json_t *schema = s->items[item].schema;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v) {
        const struct keyword *k = find_keyword(key);
        if (!k)
            continue;
        const char *wrong = misshapen(s, k->shape, v);
        if (wrong)
            schema_fail(s, ERR_INVALID, item, key, "%s.", wrong);
        else if (k->use == REFUSED && !says_nothing(schema, key, v))
            schema_fail(s, ERR_UNSUPPORTED, item, key, "is not supported.");
    }
    if (json_is_array(json_object_get(schema, "enum")) && json_array_size(json_object_get(schema, "enum")) > SCHEMA_MAX_VALUES)
        schema_fail(s, ERR_TOO_LARGE, item, "enum", "has more than %d values.", SCHEMA_MAX_VALUES);
}

// ---- items

static uint32_t intern(struct schema *s, const json_t *schema, const json_t *base, const char *path)
{
    const void *key[2] = {schema, base};
    uint32_t id;
    if (map_get(s->by_pointer, (const char *)key, sizeof key, &id))
        return id;
    if (s->nitems == s->items_cap) {
        s->items_cap = s->items_cap ? 2 * s->items_cap : 64;
        s->items = mem_resize(s->items, s->items_cap * sizeof *s->items);
    }
    if (json_is_string(json_object_get(schema, "$id")) && schema != base)
        base = schema;
    id = s->nitems++;
    s->items[id] = (struct schema_item){schema, base, path};
    map_put(s->by_pointer, (const char *)key, sizeof key, id);
    if (s->nitems > SCHEMA_MAX_ITEMS)
        schema_fail(s, ERR_TOO_LARGE, id, NULL, "the schema has more than %d parts.", SCHEMA_MAX_ITEMS);
    else if (!is_schema(schema))
        schema_fail(s, ERR_INVALID, id, NULL, "a schema must be an object or a boolean.");
    else
        check_keywords(s, id);
    return id;
}

uint32_t schema_child(struct schema *s, uint32_t item, const char *keyword, const char *name, const json_t *schema)
{
    const struct schema_item *i = &s->items[item];
    const void *key[2] = {schema, i->base};
    uint32_t id;
    if (map_get(s->by_pointer, (const char *)key, sizeof key, &id))
        return id;
    size_t n = strlen(i->path);
    if (n > 200)  // only for messages, which are short
        return intern(s, schema, i->base, i->path);
    const char *path = name ? arena_printf(&s->arena, "%.*s%s'%s', '%.40s')", (int)n - 1, i->path, n > 2 ? ", " : "",
                                           keyword, name)
                            : arena_printf(&s->arena, "%.*s%s'%s')", (int)n - 1, i->path, n > 2 ? ", " : "", keyword);
    return intern(s, schema, i->base, path);
}

static void drop(void *v)
{
    json_decref(v);
}

uint32_t schema_made(struct schema *s, uint32_t item, json_t *schema)
{
    arena_defer(&s->arena, drop, schema);
    return intern(s, schema, s->items[item].base, s->items[item].path);
}

const json_t *schema_get(const struct schema *s, uint32_t item, const char *keyword)
{
    const json_t *schema = s->items[item].schema, *v;
    if (s->old && json_object_get(schema, "$ref") && strcmp(keyword, "$ref") != 0)
        return NULL;
    v = json_object_get(schema, keyword);
    if (!v && !strcmp(keyword, "additionalProperties") && json_is_false(json_object_get(schema, "unevaluatedProperties")))
        return json_object_get(schema, "unevaluatedProperties");
    return v;
}

bool schema_is(const struct schema *s, uint32_t item, bool value)
{
    const json_t *v = s->items[item].schema;
    return value ? json_is_true(v) || (json_is_object(v) && !json_object_size(v)) : json_is_false(v);
}

// ---- references

static void note_id(struct schema *s, const char *name, bool anchor, const json_t *schema, const json_t *base)
{
    if (s->nids == s->ids_cap) {
        s->ids_cap = s->ids_cap ? 2 * s->ids_cap : 8;
        s->ids = mem_resize(s->ids, s->ids_cap * sizeof *s->ids);
    }
    s->ids[s->nids++] = (struct schema_id){name, anchor, schema, base};
}

static void find_ids(struct schema *s, const json_t *v, const json_t *base, int depth)
{
    static const char *const data[] = {"enum", "const", "default", "examples", "example"};
    if (depth > SCHEMA_MAX_DEPTH) {
        schema_fail(s, ERR_TOO_LARGE, UINT32_MAX, NULL, "the schema is nested more than %d deep.", SCHEMA_MAX_DEPTH);
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        find_ids(s, json_array_get(v, i), base, depth + 1);
    if (!json_is_object(v))
        return;
    const json_t *id = json_object_get(v, "$id"), *anchor = json_object_get(v, "$anchor");
    if (json_is_string(id)) {
        base = v;
        note_id(s, json_string_value(id), false, v, v);
    }
    if (json_is_string(anchor))
        note_id(s, json_string_value(anchor), true, v, base);
    const char *key;
    json_t *one;
    json_object_foreach((json_t *)v, key, one) {
        bool skip = false;
        for (size_t i = 0; i < sizeof data / sizeof *data; i++)
            skip |= !strcmp(key, data[i]);
        if (!skip && !s->failed)
            find_ids(s, one, base, depth + 1);
    }
}

// Follows "/a/b/0" from a resource.
static const json_t *follow(const char *pointer, const json_t **base)
{
    const json_t *v = *base;
    while (*pointer && v) {
        const char *end = strchr(pointer + 1, '/');
        size_t n = end ? (size_t)(end - pointer - 1) : strlen(pointer + 1);
        v = jsontext_member(v, pointer + 1, n);
        pointer += n + 1;
        if (*pointer && json_is_string(json_object_get(v, "$id")))
            *base = v;
    }
    return v;
}

static const struct schema_id *find_id(const struct schema *s, const char *name, size_t len, const json_t *base)
{
    for (uint32_t i = 0; i < s->nids; i++) {
        const struct schema_id *id = &s->ids[i];
        if (base ? !id->anchor || id->base != base : id->anchor)
            continue;
        size_t n = strlen(id->name);
        bool whole = n == len && !memcmp(id->name, name, len);
        bool last = !base && n > len && !memcmp(id->name + n - len, name, len) && id->name[n - len - 1] == '/';
        if (len && (whole || last))
            return id;
    }
    return NULL;
}

bool schema_resolve(struct schema *s, uint32_t item, const char *ref, uint32_t *ret_item)
{
    const char *hash = strchr(ref, '#');
    size_t n = hash ? (size_t)(hash - ref) : strlen(ref);
    const json_t *base = s->items[item].base, *v = NULL;
    const struct schema_id *id = n ? find_id(s, ref, n, NULL) : NULL;
    if (n && !id) {
        schema_fail(s, ERR_UNSUPPORTED, item, "$ref", "to '%.80s' is not supported: only references within the schema are.",
                    ref);
        return false;
    }
    base = id ? id->base : base;
    if (!hash || !hash[1])
        v = base;
    else if (hash[1] == '/')
        v = follow(hash + 1, &base);
    else if ((id = find_id(s, hash + 1, strlen(hash + 1), base)))
        v = id->schema;
    if (!v) {
        schema_fail(s, ERR_INVALID, item, "$ref", "to '%.80s' leads nowhere.", ref);
        return false;
    }
    size_t len = strlen(ref);
    *ret_item = intern(s, v, base, arena_printf(&s->arena, "('%.*s')", (int)(len < 80 ? len : 80), ref));
    return !s->failed;
}

// ---- the whole

static bool is_old(const json_t *schema)
{
    const char *text = json_string_value(json_object_get(schema, "$schema"));
    return text && (strstr(text, "draft-03") || strstr(text, "draft-04") || strstr(text, "draft-05") ||
                    strstr(text, "draft-06") || strstr(text, "draft-07"));
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void begin(struct schema *s, const json_t *schema, struct nodes *g, err *e)
{
    *s = (struct schema){.g = g, .root = schema, .by_pointer = map_new(64), .by_set = map_new(64), .by_pattern = map_new(16),
                         .work = least(g->work, SCHEMA_WORK), .steps = least(g->steps, SCHEMA_MAX_STEPS), .e = e,
                         .old = is_old(schema)};
    s->work_given = s->work;
    s->steps_given = s->steps;
    find_ids(s, schema, schema, 0);
}

static void done(struct schema *s)
{
    s->g->work -= s->work_given - s->work;
    s->g->steps -= s->steps_given - s->steps;
    for (uint32_t i = 0; i < s->npatterns; i++)
        chardfa_free(s->patterns[i]);
    free(s->patterns);
    for (uint32_t i = 0; i < s->npending; i++)
        free(s->pending[i].set.v);
    free(s->pending);
    free(s->items);
    free(s->ids);
    map_free(s->by_pointer);
    map_free(s->by_set);
    map_free(s->by_pattern);
    arena_done(&s->arena);
}

err_code schema_compile_styled(const json_t *schema, enum schema_style style, const char *quote, struct nodes *g,
                               uint32_t *ret_root, err *e)
{
    err local;
    struct schema s;
    struct schema_list set = {0};
    uint32_t root = 0;
    begin(&s, schema, g, e ? e : &local);
    s.style = style;
    s.quote = quote && *quote ? quote : "<|\"|>";
    if (!s.failed) {
        schema_push(&set, intern(&s, schema, schema, "()"));
        root = s.failed ? 0 : style == SCHEMA_JSON ? schema_node(&s, &set) : schema_style_root(&s, &set);
        schema_build_all(&s);
    }
    if (!s.failed && nodes_check(g, s.e))
        s.failed = true;
    if (!s.failed)
        *ret_root = root;
    free(set.v);
    done(&s);
    return s.failed ? s.e->code : ERR_OK;
}

err_code schema_compile(const json_t *schema, struct nodes *g, uint32_t *ret_root, err *e)
{
    return schema_compile_styled(schema, SCHEMA_JSON, NULL, g, ret_root, e);
}

enum schema_form schema_form_of(const json_t *schema, const char *name)
{
    err e;
    struct schema s;
    struct schema_list set = {0};
    struct nodes g;
    enum schema_form form = SCHEMA_FORM_JSON;
    nodes_init(&g, NODES_JSON_DEPTH);
    begin(&s, schema, &g, &e);
    if (!s.failed)
        schema_push(&set, intern(&s, schema, schema, "()"));
    if (!s.failed)
        form = schema_style_form(&s, &set, name);
    free(set.v);
    done(&s);
    nodes_done(&g);
    return form;
}
