// fields.c - fields of a JSON request: types, ranges, what is refused by name and what is ignored aloud.
//
// The texts follow the API's own ("Invalid type for 'n': expected an integer, but got a string instead."), because
// people search for them. Runs on the loop thread, inside a handler; owns nothing.
#include "server/api/fields.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/models.h"
#include "server/body.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_FIELDS = 1000, MAX_IGNORED_TEXT = 512, MAX_IGNORED_NAME = 64, MEMBERS_MAX = 1 << 16 };

void api_fields_init(struct fields *f, struct request *r)
{
    *f = (struct fields){.r = r, .object = r->json};
}

// ---- failures

static const char *const misleading[] = {"429", "rate limit", "request too large",
                                         "the server had an error processing your request"};

static bool misleads(const char *text)
{
    for (size_t i = 0; i < sizeof misleading / sizeof *misleading; i++)
        if (strcasestr(text, misleading[i]))
            return true;
    return false;
}

void api_fields_clean(char *text)
{
    // What was found stands last in our texts: without it the message still says what was expected.
    static const char *const cuts[] = {", but got ", ". However", "; ", ": "};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts && misleads(text); i++) {
        char *at = strstr(text, cuts[i]);
        if (at)
            memcpy(at, ".", 2);
    }
    if (misleads(text))
        strcpy(text, "Invalid value.");
}

static void fail(struct fields *f, int status, const char *code, const char *param, const char *fmt, va_list ap)
{
    if (f->failed)
        return;
    f->failed = true;
    f->status = status;
    f->code = code;
    char text[sizeof f->e.text];
    vsnprintf(text, sizeof text, fmt, ap);
    api_fields_clean(text);
    err_set_param(&f->e, status == 404 ? ERR_NOT_FOUND : ERR_INVALID, param ? param : "", "%s", text);
}

void api_fields_fail(struct fields *f, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(f, 400, code, param, fmt, ap);
    va_end(ap);
}

void api_fields_fail_status(struct fields *f, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(f, status, code, param, fmt, ap);
    va_end(ap);
}

void api_fields_reply(struct fields *f)
{
    if (f->await) {
        api_models_await(f);
        return;
    }
    reply_problem(f->r, f->status, "invalid_request_error", f->code, &f->e);
}

static const char *kind_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a decimal number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

void api_fields_wrong_type(struct fields *f, const json_t *v, const char *path, const char *expected)
{
    api_fields_fail(f, "invalid_type", path, "Invalid type for '%s': expected %s, but got %s instead.", path, expected,
                    kind_of(v));
}

void api_fields_empty(struct fields *f, const char *path)
{
    api_fields_fail(f, "empty_array", path,
                    "Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array "
                    "instead.", path);
}

// ---- known, refused and unknown fields

static bool equals(const json_t *v, double number)
{
    return json_is_number(v) && json_number_value(v) == number;
}

static bool is_text(const json_t *v)
{
    const json_t *type = json_is_object(v) ? json_object_get(v, "type")
                         : json_is_array(v) && json_array_size(v) == 1 ? json_array_get(v, 0) : NULL;
    return json_is_string(type) && !strcmp(json_string_value(type), "text");
}

static bool is_empty(const json_t *v)
{
    return (json_is_string(v) && !json_string_length(v)) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

static bool is_no_call(const json_t *v)
{
    return json_is_string(v) && (!strcmp(json_string_value(v), "none") || !strcmp(json_string_value(v), "auto"));
}

static bool is_false(const json_t *v)
{
    return json_is_false(v);
}

static bool is_true(const json_t *v)
{
    return json_is_true(v);
}

static bool is_zero(const json_t *v)
{
    return equals(v, 0) || json_is_false(v);
}

static bool is_one(const json_t *v)
{
    return equals(v, 1);
}

static bool asks_nothing(const json_t *v, const char *neutral)
{
    static const struct {
        const char *neutral;
        bool (*is)(const json_t *v);
    } kinds[] = {{NEUTRAL_EMPTY, is_empty}, {NEUTRAL_FALSE, is_false}, {NEUTRAL_TRUE, is_true}, {NEUTRAL_ZERO, is_zero},
                 {NEUTRAL_ONE, is_one},     {NEUTRAL_NO_CALL, is_no_call}, {NEUTRAL_TEXT, is_text}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].neutral, neutral))
            return json_is_null(v) || kinds[i].is(v);
    return json_is_null(v);
}

static const struct field *find(const struct field *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

static const struct field *row_of(const struct api_body *body, const char *name)
{
    const struct field *k = body ? find(body->own, body->nown, name) : NULL;
    return k || !body ? k : find(body->shared, *body->nshared, name);
}

static bool fits_header(const char *name)
{
    size_t n = strlen(name);
    return n && n <= MAX_IGNORED_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

static void list_ignored(char *list, size_t size, const char *name)
{
    const char *shown = fits_header(name) ? name : "?";
    size_t used = strlen(list);
    if (used + strlen(shown) + 3 < size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", shown);
}

// What other servers call a field of ours.
static const char *our_name(const char *name)
{
    static const char *const pairs[][2] = {
        {"num_inference_steps", "steps"}, {"cfg_scale", "guidance_scale"},
        {"sample_method", "scheduler"},      {"sampler", "scheduler"},         {"sampler_name", "scheduler"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(name, pairs[i][0]))
            return pairs[i][1];
    return NULL;
}

static void refuse(struct fields *f, const struct field *k, const json_t *v)
{
    const char *ours = our_name(k->name);
    const json_t *type = json_is_object(v) ? json_object_get(v, "type") : NULL;
    if (!strcmp(k->what, NEUTRAL_TEXT) && json_is_string(type))
        api_fields_fail(f, "unsupported_value", k->name,
                        "Unsupported value: '%s' of type '%.40s' is not supported with this model.", k->name,
                        json_string_value(type));
    else
        api_fields_fail(f, "unsupported_parameter", k->name,
                        "Unsupported parameter: '%s' is not supported by this server.%s%s%s", k->name,
                        ours ? " Use '" : "", ours ? ours : "", ours ? "' instead." : "");
}

static void unknown(struct fields *f, bool strict, const char *name, char *ignored)
{
    if (strict)
        api_fields_fail(f, "unknown_parameter", name, "Unknown parameter: '%.80s'.", name);
    else
        list_ignored(ignored, MAX_IGNORED_TEXT, name);
}

// Whether "object {NAME WHAT, NAME WHAT}" lists it.
static bool is_listed(const char *what, const char *name)
{
    size_t n = strlen(name);
    int depth = 0;
    for (const char *at = what; *at; at++) {
        depth += *at == '{';
        depth -= *at == '}';
        bool begins = depth == 1 && (*at == '{' || !strncmp(at, ", ", 2));
        const char *member = at + (*at == '{' ? 1 : 2);
        if (begins && !strncmp(member, name, n) && member[n] == ' ')
            return true;
    }
    return false;
}

// Members of an object whose row lists those that it may have.
static void check_members(struct fields *f, const struct field *k, const json_t *object, bool strict, char *ignored)
{
    const char *name;
    json_t *v;
    if (k->use != FIELD_HONOURED || !k->what || strncmp(k->what, "object {", 8) != 0)
        return;
    json_object_foreach((json_t *)object, name, v) {
        char path[MAX_IGNORED_NAME + 32];
        snprintf(path, sizeof path, "%.24s.%s", k->name, name);
        if (!is_listed(k->what, name))
            unknown(f, strict, path, ignored);
    }
}

void api_fields_check(struct fields *f, const struct api_body *body)
{
    char ignored[MAX_IGNORED_TEXT] = "";
    if (json_object_size(f->object) > MAX_FIELDS) {
        api_fields_fail(f, "object_above_max_length", NULL, "Too many fields. Expected at most %d.", MAX_FIELDS);
        return;
    }
    f->body = body;
    bool strict = server_settings(f->r->server)->strict_fields;
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)f->object, name, v) {
        const struct field *k = row_of(body, name);
        if (k && k->use == FIELD_REFUSED && !asks_nothing(v, k->what))
            refuse(f, k, v);
        else if (!k)
            unknown(f, strict, name, ignored);
        else
            check_members(f, k, v, strict, ignored);
    }
    if (*ignored)
        request_set_header(f->r, "x-ignored-fields", ignored);
}

// ---- values

const json_t *api_fields_get(const struct fields *f, const char *name)
{
    const json_t *v = json_object_get(f->object, name);
    return v && !json_is_null(v) ? v : NULL;
}

bool api_fields_missing(struct fields *f, const char *name)
{
    if (api_fields_get(f, name))
        return false;
    api_fields_fail(f, "missing_required_parameter", name, "Missing required parameter: '%s'.", name);
    return true;
}

// 1.0 is an integer; 1.5 and values outside int64 are not.
static bool integral(const json_t *v, int64_t *ret_value)
{
    if (json_is_integer(v)) {
        *ret_value = json_integer_value(v);
        return true;
    }
    double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d != floor(d) || fabs(d) >= 9.2e18)
        return false;
    *ret_value = (int64_t)d;
    return true;
}

bool api_fields_as_int(struct fields *f, const json_t *v, const char *path, int64_t min, int64_t max,
                       int64_t *ret_value)
{
    int64_t i;
    if (!integral(v, &i)) {
        api_fields_wrong_type(f, v, path, "an integer");
        return false;
    }
    if (i < min) {
        api_fields_fail(f, "integer_below_min_value", path,
                        "Invalid '%s': integer below minimum value. Expected a value >= %lld, but got %lld instead.",
                        path, (long long)min, (long long)i);
        return false;
    }
    if (i > max) {
        api_fields_fail(f, "integer_above_max_value", path,
                        "Invalid '%s': integer above maximum value. Expected a value <= %lld, but got %lld instead.",
                        path, (long long)max, (long long)i);
        return false;
    }
    *ret_value = i;
    return true;
}

bool api_fields_as_number(struct fields *f, const json_t *v, const char *path, double min, double max,
                          double *ret_value)
{
    if (!json_is_number(v)) {
        api_fields_wrong_type(f, v, path, "a decimal number");
        return false;
    }
    double d = json_number_value(v);
    if (!(d >= min)) {
        api_fields_fail(f, "decimal_below_min_value", path,
                        "Invalid '%s': decimal below minimum value. Expected a value >= %g, but got %g instead.",
                        path, min, d);
        return false;
    }
    if (d > max) {
        api_fields_fail(f, "decimal_above_max_value", path,
                        "Invalid '%s': decimal above maximum value. Expected a value <= %g, but got %g instead.",
                        path, max, d);
        return false;
    }
    *ret_value = d;
    return true;
}

bool api_fields_as_string(struct fields *f, const json_t *v, const char *path, const char **ret_value)
{
    if (!json_is_string(v)) {
        api_fields_wrong_type(f, v, path, "a string");
        return false;
    }
    *ret_value = json_string_value(v);
    return true;
}

json_t *api_fields_json(struct fields *f, const char *path, const char *text, size_t len)
{
    f->members += body_members(text, len);
    if (f->members <= MEMBERS_MAX)
        return json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    api_fields_fail_status(f, 413, NULL, path, "Invalid '%s': the JSON in strings of this request has more than %d members and "
                           "containers.", path, MEMBERS_MAX);
    return NULL;
}

// The ends of "FROM..TO" in a field's row; an empty text where it is open.
struct range {
    const char *from, *to;
};

static bool range_of(struct fields *f, const char *name, const char *kind, struct range *ret_range)
{
    const struct field *k = row_of(f->body, name);
    const char *at = k && k->what ? strstr(k->what, kind) : NULL;
    if (k && k->use != FIELD_HONOURED)
        return false;  // this endpoint does not have it, and what is there asks for nothing
    if (!at) {
        api_fields_fail(f, "unsupported_parameter", name, "Unsupported parameter: '%s' is not supported here.", name);
        return false;
    }
    at += strlen(kind);
    size_t n = strspn(at, " -0123456789.");
    const char *dots = memmem(at, n, "..", 2);
    ret_range->from = dots && *at == ' ' && dots > at + 1 ? at + 1 : "";
    ret_range->to = dots && dots + 2 < at + n ? dots + 2 : "";
    return true;
}

static bool int_within(struct fields *f, const char *name, int64_t most, int64_t *ret_value)
{
    const json_t *v = api_fields_get(f, name);
    struct range r;
    if (!v || !range_of(f, name, "integer", &r))
        return false;
    int64_t min = *r.from ? strtoll(r.from, NULL, 10) : INT64_MIN, max = *r.to ? strtoll(r.to, NULL, 10) : most;
    return api_fields_as_int(f, v, name, min, max < most ? max : most, ret_value);
}

bool api_fields_int(struct fields *f, const char *name, int64_t *ret_value)
{
    return int_within(f, name, INT64_MAX, ret_value);
}

bool api_fields_small(struct fields *f, const char *name, int *ret_value)
{
    int64_t i;
    if (!int_within(f, name, INT_MAX, &i))
        return false;
    *ret_value = (int)i;
    return true;
}

bool api_fields_number(struct fields *f, const char *name, double *ret_value)
{
    const json_t *v = api_fields_get(f, name);
    struct range r;
    if (!v || !range_of(f, name, "number", &r))
        return false;
    return api_fields_as_number(f, v, name, *r.from ? strtod(r.from, NULL) : -INFINITY, *r.to ? strtod(r.to, NULL) : INFINITY,
                                ret_value);
}

bool api_fields_float(struct fields *f, const char *name, float *ret_value)
{
    double d;
    if (!api_fields_number(f, name, &d))
        return false;
    *ret_value = (float)d;
    return true;
}

bool api_fields_bool(struct fields *f, const char *name, bool *ret_value)
{
    const json_t *v = api_fields_get(f, name);
    if (!v)
        return false;
    if (!json_is_boolean(v)) {
        api_fields_wrong_type(f, v, name, "a boolean");
        return false;
    }
    *ret_value = json_is_true(v);
    return true;
}

bool api_fields_string(struct fields *f, const char *name, const char **ret_value)
{
    const json_t *v = api_fields_get(f, name);
    return v && api_fields_as_string(f, v, name, ret_value);
}

bool api_fields_array(struct fields *f, const char *name, const json_t **ret_value)
{
    const json_t *v = api_fields_get(f, name);
    if (!v)
        return false;
    if (!json_is_array(v)) {
        api_fields_wrong_type(f, v, name, "an array");
        return false;
    }
    *ret_value = v;
    return true;
}

bool api_fields_object(struct fields *f, const char *name, const json_t **ret_value)
{
    const json_t *v = api_fields_get(f, name);
    if (!v)
        return false;
    if (!json_is_object(v)) {
        api_fields_wrong_type(f, v, name, "an object");
        return false;
    }
    *ret_value = v;
    return true;
}
