// structured.c - see the header. Loop thread only.
#include "server/api/structured.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "server/request.h"

struct reader {
    struct fields *f;
    struct arena *arena;
    struct grammar_request *out;
    bool probabilities;
};

static void set(struct reader *r, const char *field, enum grammar_kind kind, const char *text, size_t len)
{
    if (r->out->kind != GRAMMAR_NONE) {
        api_fields_fail(r->f, "invalid_value", field,
                        "Invalid '%s': '%s' says already which form the answer must have. Only one of them may.", field,
                        r->out->field);
        return;
    }
    *r->out = (struct grammar_request){kind, arena_strndup(r->arena, text, len), len, arena_strdup(r->arena, field), NULL};
}

// Bytes that a value has at least, as JSON; beyond what a form may have it is not looked at any further.
static size_t weight(const json_t *v)
{
    size_t sum = json_is_string(v) ? json_string_length(v) : 1, i;
    const char *key;
    const json_t *one;
    json_object_foreach((json_t *)v, key, one) {
        if (sum > GRAMMAR_MAX_TEXT)
            break;
        sum += strlen(key) + weight(one);
    }
    json_array_foreach(v, i, one) {
        if (sum > GRAMMAR_MAX_TEXT)
            break;
        sum += weight(one);
    }
    return sum;
}

// What the engine would refuse is not written out here: that takes the loop's time.
static bool too_long(struct reader *r, const char *field, size_t len)
{
    if (len <= GRAMMAR_MAX_TEXT)
        return false;
    api_fields_fail(r->f, "invalid_value", field, "Invalid '%s': string too long. Expected at most %d bytes in all.", field,
                    GRAMMAR_MAX_TEXT);
    return true;
}

static void set_json(struct reader *r, const char *field, enum grammar_kind kind, const json_t *v)
{
    if (too_long(r, field, weight(v)))
        return;
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        set(r, field, kind, text, strlen(text));
    else
        api_fields_fail(r->f, "invalid_value", field, "Invalid '%s': it cannot be read.", field);
    free(text);
}

static void set_text(struct reader *r, const char *field, enum grammar_kind kind, const json_t *v)
{
    if (!json_is_string(v))
        api_fields_wrong_type(r->f, v, field, "a string");
    else if (!too_long(r, field, json_string_length(v)))
        set(r, field, kind, json_string_value(v), json_string_length(v));
}

// A schema, or its text.
static void set_schema(struct reader *r, const char *field, const json_t *v)
{
    if (json_is_object(v) || json_is_boolean(v))
        set_json(r, field, GRAMMAR_JSON_SCHEMA, v);
    else if (!json_is_string(v))
        api_fields_wrong_type(r->f, v, field, "an object");
    else if (!too_long(r, field, json_string_length(v)))
        set(r, field, GRAMMAR_JSON_SCHEMA, json_string_value(v), json_string_length(v));
}

// The form before `format` was there, {"structures": [{"begin", "schema", "end"}], "triggers": [TEXT]}, as it is now.
static json_t *of_structures(const json_t *tag)
{
    json_t *tags = json_array(), *one;
    size_t i;
    json_array_foreach(json_object_get(tag, "structures"), i, one)
        json_array_append_new(tags, json_pack("{s:s, s:O*, s:O*, s:{s:s, s:O*}}", "type", "tag", "begin",
                                              json_object_get(one, "begin"), "end", json_object_get(one, "end"), "content",
                                              "type", "json_schema", "json_schema", json_object_get(one, "schema")));
    return json_pack("{s:s, s:{s:s, s:o, s:O*}}", "type", "structural_tag", "format", "type", "triggered_tags", "tags", tags,
                     "triggers", json_object_get(tag, "triggers"));
}

// A structural tag, or its text.
static void set_structure(struct reader *r, const char *field, const json_t *v)
{
    if (json_is_string(v) && too_long(r, field, json_string_length(v)))
        return;
    json_t *parsed = json_is_string(v) ? json_loadb(json_string_value(v), json_string_length(v), 0, NULL) : NULL;
    const json_t *tag = parsed ? parsed : v;
    json_t *old = json_is_array(json_object_get(tag, "structures")) ? of_structures(tag) : NULL;
    if (json_is_object(tag))
        set_json(r, field, GRAMMAR_STRUCTURE, old ? old : tag);
    else if (json_is_string(v))
        api_fields_fail(r->f, "invalid_value", field, "Invalid '%s': a text that is not a JSON object.", field);
    else
        api_fields_wrong_type(r->f, v, field, "an object");
    json_decref(old);
    json_decref(parsed);
}

static void set_choices(struct reader *r, const char *field, const json_t *v)
{
    const json_t *one;
    size_t i;
    if (!json_is_array(v))
        api_fields_wrong_type(r->f, v, field, "an array of strings");
    json_array_foreach(v, i, one)
        if (!json_is_string(one))
            api_fields_wrong_type(r->f, one, field, "strings in the array");
    set_json(r, field, GRAMMAR_CHOICE, v);
}

// ---- response_format

static void read_name(struct reader *r, const char *path, const json_t *v)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *name = json_string_value(v);
    if (!v || json_is_null(v) || r->f->failed)
        return;
    if (!name)
        api_fields_wrong_type(r->f, v, path, "a string");
    else if (!*name || strlen(name) > 64 || strspn(name, allowed) != strlen(name))
        api_fields_fail(r->f, "invalid_value", path, "Invalid '%s': expected 1 to 64 letters, digits, underscores or dashes.",
                        path);
    else
        r->out->name = arena_strdup(r->arena, name);
}

static void read_json_schema(struct reader *r, const json_t *format)
{
    const json_t *v = json_object_get(format, "json_schema"), *schema = json_object_get(format, "schema");
    const json_t *strict = json_object_get(v, "strict");
    if (v && !json_is_object(v)) {
        api_fields_wrong_type(r->f, v, "response_format.json_schema", "an object");
        return;
    }
    if (!v && !schema) {
        api_fields_fail(r->f, "missing_required_parameter", "response_format.json_schema",
                        "Missing required parameter: 'response_format.json_schema'.");
        return;
    }
    if (strict && !json_is_boolean(strict) && !json_is_null(strict))
        api_fields_wrong_type(r->f, strict, "response_format.json_schema.strict", "a boolean");
    schema = v && json_object_get(v, "schema") ? json_object_get(v, "schema") : schema;
    if (!schema || json_is_null(schema))
        set(r, "response_format", GRAMMAR_JSON_OBJECT, "", 0);
    else if (json_is_object(schema) || json_is_boolean(schema))
        set_json(r, "response_format", GRAMMAR_JSON_SCHEMA, schema);
    else
        api_fields_wrong_type(r->f, schema, "response_format.json_schema.schema", "an object");
    read_name(r, "response_format.json_schema.name", json_object_get(v, "name"));
}

static void read_format(struct reader *r)
{
    const json_t *format;
    if (!api_fields_object(r->f, "response_format", &format))
        return;
    const json_t *v = json_object_get(format, "type"), *schema = json_object_get(format, "schema");
    const char *type = json_string_value(v);
    if (!v)
        api_fields_fail(r->f, "missing_required_parameter", "response_format.type",
                        "Missing required parameter: 'response_format.type'.");
    else if (!type)
        api_fields_wrong_type(r->f, v, "response_format.type", "a string");
    else if (!strcmp(type, "json_object") && json_is_object(schema))  // llama-server's spelling
        set_json(r, "response_format", GRAMMAR_JSON_SCHEMA, schema);
    else if (!strcmp(type, "json_object"))
        set(r, "response_format", GRAMMAR_JSON_OBJECT, "", 0);
    else if (!strcmp(type, "json_schema"))
        read_json_schema(r, format);
    else if (!strcmp(type, "structural_tag"))
        set_structure(r, "response_format", format);
    else if (strcmp(type, "text") != 0)
        api_fields_fail(r->f, "unsupported_value", "response_format",
                        "Unsupported value: 'response_format' of type '%.40s' is not supported. Supported are 'text', "
                        "'json_object', 'json_schema' and 'structural_tag'.", type);
}

// ---- text.format of responses: the same without the inner object, which is accepted, too

static void read_flat_schema(struct reader *r, const json_t *format)
{
    const json_t *inner = json_object_get(format, "json_schema"), *from = json_is_object(inner) ? inner : format;
    const json_t *schema = json_object_get(from, "schema"), *strict = json_object_get(from, "strict");
    const json_t *name = json_object_get(from, "name");
    if (!name || json_is_null(name))
        api_fields_fail(r->f, "missing_required_parameter", "text.format.name", "Missing required parameter: 'text.format.name'.");
    else if (!schema || json_is_null(schema))
        api_fields_fail(r->f, "missing_required_parameter", "text.format.schema",
                        "Missing required parameter: 'text.format.schema'.");
    else if (strict && !json_is_boolean(strict) && !json_is_null(strict))
        api_fields_wrong_type(r->f, strict, "text.format.strict", "a boolean");
    else if (json_is_object(schema) || json_is_boolean(schema))
        set_json(r, "text.format.schema", GRAMMAR_JSON_SCHEMA, schema);
    else
        api_fields_wrong_type(r->f, schema, "text.format.schema", "an object");
    read_name(r, "text.format.name", name);
}

void api_structured_flat(struct fields *f, struct arena *a, const json_t *format, struct grammar_request *ret_grammar)
{
    struct reader r = {f, a, ret_grammar, false};
    const json_t *v = json_object_get(format, "type");
    const char *type = json_string_value(v);
    if (!json_is_object(format))
        api_fields_wrong_type(f, format, "text.format", "an object");
    else if (!v)
        api_fields_fail(f, "missing_required_parameter", "text.format.type", "Missing required parameter: 'text.format.type'.");
    else if (!type)
        api_fields_wrong_type(f, v, "text.format.type", "a string");
    else if (!strcmp(type, "json_object"))
        set(&r, "text.format", GRAMMAR_JSON_OBJECT, "", 0);
    else if (!strcmp(type, "json_schema"))
        read_flat_schema(&r, format);
    else if (strcmp(type, "text") != 0)
        api_fields_fail(f, "invalid_value", "text.format.type",
                        "Invalid value: '%.40s'. Supported values are: 'text', 'json_object' and 'json_schema'.", type);
}

// ---- the others

static void read_one(struct reader *r, const char *field, const char *name, const json_t *v)
{
    if (!v || json_is_null(v))
        return;
    if (!strcmp(name, "json"))
        set_schema(r, field, v);
    else if (!strcmp(name, "regex"))
        set_text(r, field, GRAMMAR_REGEX, v);
    else if (!strcmp(name, "choice"))
        set_choices(r, field, v);
    else if (!strcmp(name, "structural_tag"))
        set_structure(r, field, v);
    else
        set_text(r, field, GRAMMAR_GBNF, v);
}

static void read_probabilities(struct reader *r, const char *path, const json_t *v)
{
    if (!json_is_boolean(v) && !json_is_null(v))
        api_fields_wrong_type(r->f, v, path, "a boolean");
    r->probabilities = json_is_true(v);
}

static void read_structured(struct reader *r)
{
    static const char *const names[] = {"json", "regex", "choice", "grammar", "structural_tag"};
    const json_t *map;
    const char *key;
    json_t *v;
    if (!api_fields_object(r->f, "structured_outputs", &map))
        return;
    json_object_foreach((json_t *)map, key, v) {
        bool known = false;
        const char *path = arena_printf(r->arena, "structured_outputs.%.40s", key);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            known |= !strcmp(key, names[i]);
        if (known)
            read_one(r, path, key, v);
        else if (!strcmp(key, "probabilities"))
            read_probabilities(r, path, v);
        else if (!strcmp(key, "json_object") && json_is_true(v))
            set(r, path, GRAMMAR_JSON_OBJECT, "", 0);
        else if (!json_is_null(v) && !json_is_false(v))
            api_fields_fail(r->f, "unsupported_parameter", path, "Unsupported parameter: '%s' is not supported by this server.",
                            path);
    }
}

static void set_choosing(struct reader *r, struct generate *g)
{
    bool choice = g->grammar.kind == GRAMMAR_CHOICE;
    if (r->probabilities && !choice)
        api_fields_fail(r->f, "invalid_value", "structured_outputs.probabilities",
                        "Invalid 'structured_outputs.probabilities': only an answer that is one of several texts, as 'choice' says, "
                        "has them.");
    g->choosing = choice && r->probabilities ? CHOOSE_SCORED
                : choice && g->sampling.temperature == 0 ? CHOOSE_LIKELIEST : CHOOSE_BY_TOKEN;
}

void api_structured_read(struct fields *f, struct arena *a, struct generate *g)
{
    static const char *const guided[][2] = {{"guided_json", "json"}, {"guided_regex", "regex"}, {"guided_choice", "choice"},
                                            {"guided_grammar", "grammar"}, {"json_schema", "json"}, {"grammar", "grammar"}};
    struct reader r = {f, a, &g->grammar, false};
    read_format(&r);
    read_structured(&r);
    for (size_t i = 0; i < sizeof guided / sizeof *guided; i++) {
        const json_t *v = api_fields_get(f, guided[i][0]);
        bool nothing = json_is_string(v) && !json_string_length(v);  // as some clients send it
        if (v && !nothing)
            read_one(&r, guided[i][0], guided[i][1], v);
    }
    set_choosing(&r, g);
}

struct grammar_request api_structured_copy(const struct grammar_request *g, struct arena *a)
{
    struct grammar_request to = *g;
    if (g->kind == GRAMMAR_NONE)
        return to;
    to.text = arena_strndup(a, g->text, g->len);
    to.field = arena_strdup(a, g->field);
    to.name = g->name ? arena_strdup(a, g->name) : NULL;
    return to;
}
