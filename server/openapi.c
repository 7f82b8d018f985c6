// openapi.c - see the header. The text depends on nothing but the build; the first request makes it, for all that follow. Loop
// thread.
#include "server/openapi.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/fields.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/version.h"

// ---- what is described

#define DECLARE_NO_BODY(handler)
#define DECLARE_JSON(handler) extern const struct api_body handler##_body;
#define DECLARE_UPLOAD(handler) extern const struct api_body handler##_body;
#define ROUTE(method, path, auth, body, handler) DECLARE_##body(handler)
#define MISSING(path)
#include "server/routes.def"
#undef ROUTE
#undef MISSING

#define FIELDS_NO_BODY(handler) NULL
#define FIELDS_JSON(handler) &handler##_body
#define FIELDS_UPLOAD(handler) &handler##_body
static const struct described {
    const char *method, *path, *handler;
    enum route_auth auth;
    enum route_body body;
    const struct api_body *fields;
} routes[] = {
#define ROUTE(method, path, auth, body, handler) {method, path, #handler, ROUTE_##auth, ROUTE_##body, FIELDS_##body(handler)},
#define MISSING(path) {NULL, path, NULL, ROUTE_KEY, ROUTE_NOT_BUILT, NULL},
#include "server/routes.def"
#undef ROUTE
#undef MISSING
};
enum { NROUTES = sizeof routes / sizeof *routes };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *text;

// ---- what a field may be (api/fields.h)

static bool take(const char **at, const char *word)
{
    size_t n = strlen(word);
    bool there = !strncmp(*at, word, n);
    *at += there ? n : 0;
    return there;
}

static json_t *number(const char *from, size_t n)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.*s", (int)n, from);
    return strchr(digits, '.') ? json_real(strtod(digits, NULL)) : json_integer(strtoll(digits, NULL, 10));
}

// "FROM..TO", either may be missing.
static void read_range(const char **at, json_t *schema)
{
    size_t n = strspn(*at, "-0123456789.");
    const char *dots = memmem(*at, n, "..", 2), *end = *at + n;
    if (!dots)
        return;
    if (dots > *at)
        json_object_set_new(schema, "minimum", number(*at, (size_t)(dots - *at)));
    if (dots + 2 < end)
        json_object_set_new(schema, "maximum", number(dots + 2, (size_t)(end - dots - 2)));
    *at = end;
}

static void read_words(const char **at, json_t *schema)
{
    json_t *words = json_array();
    while (take(at, " ")) {
        size_t n = strcspn(*at, " |],}");
        json_array_append_new(words, json_stringn(*at, n));
        *at += n;
    }
    json_object_set_new(schema, "enum", words);
}

static json_t *read_what(const char **at);

// "NAME WHAT, NAME WHAT}": members of an object.
static void read_members(const char **at, json_t *schema)
{
    json_t *members = json_object();
    do {
        const char *name = *at;
        size_t n = strcspn(name, " ");
        *at += n;
        take(at, " ");
        json_object_setn_new(members, name, n, read_what(at));
    } while (take(at, ", "));
    take(at, "}");
    json_object_set_new(schema, "properties", members);
}

static json_t *read_one(const char **at)
{
    if (take(at, "[")) {
        json_t *schema = json_pack("{s:s, s:o}", "type", "array", "items", read_what(at));
        take(at, "]");
        return schema;
    }
    size_t n = strcspn(*at, " :|],}");
    json_t *schema = json_object();
    if (n == 4 && !strncmp(*at, "file", n))
        json_object_update_new(schema, json_pack("{s:s, s:s}", "type", "string", "contentMediaType", "application/octet-stream"));
    else if (n != 3 || strncmp(*at, "any", n) != 0)
        json_object_set_new(schema, "type", json_stringn(*at, n));
    *at += n;
    if (take(at, " {"))
        read_members(at, schema);
    else if (take(at, ":"))
        read_words(at, schema);
    else if (take(at, " "))
        read_range(at, schema);
    return schema;
}

static json_t *read_what(const char **at)
{
    json_t *schema = read_one(at);
    if (**at != '|')
        return schema;
    json_t *list = json_pack("[o]", schema);
    while (take(at, "|"))
        json_array_append_new(list, read_one(at));
    return json_pack("{s:o}", "anyOf", list);
}

static json_t *may_be_null(json_t *schema)
{
    json_t *type = json_object_get(schema, "type"), *words = json_object_get(schema, "enum");
    if (!json_object_size(schema) || (json_is_string(type) && !strcmp(json_string_value(type), "null")))
        return schema;
    json_array_append_new(json_object_get(schema, "anyOf"), json_pack("{s:s}", "type", "null"));
    if (type)
        json_object_set_new(schema, "type", json_pack("[O, s]", type, "null"));
    json_array_append_new(words, json_null());
    return schema;
}

// ---- bodies

static bool has(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (!strcmp(json_string_value(json_array_get(names, i)), name))
            return true;
    return false;
}

static void add_field(const struct field *k, json_t *properties, json_t *required, json_t *refused)
{
    const char *at = k->what;
    if (json_object_get(properties, k->name) || has(refused, k->name))
        return;  // the endpoint's own row stands before a shared one
    if (k->use == FIELD_REFUSED) {
        json_array_append_new(refused, json_string(k->name));
        return;
    }
    bool needed = at && take(&at, "!");
    json_t *schema = at ? read_what(&at) : json_object();
    if (needed)
        json_array_append_new(required, json_string(k->name));
    else
        schema = may_be_null(schema);
    if (k->use == FIELD_ACCEPTED)
        json_object_set_new(schema, "description", json_string("Accepted; it has no influence on the answer."));
    json_object_set_new(properties, k->name, schema);
}

static json_t *body_schema(const struct api_body *b)
{
    json_t *properties = json_object(), *required = json_array(), *refused = json_array();
    for (size_t i = 0; i < b->nown; i++)
        add_field(&b->own[i], properties, required, refused);
    for (size_t i = 0; i < *b->nshared; i++)
        add_field(&b->shared[i], properties, required, refused);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "object", "properties", properties, "required", required, "x-refused", refused);
}

static const char *body_name(const struct described *d)
{
    return !strncmp(d->handler, "api_", 4) ? d->handler + 4 : d->handler;
}

static json_t *body_of(const struct described *d)
{
    json_t *schema = json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", body_name(d)));
    const char *type = d->body == ROUTE_UPLOAD ? "multipart/form-data" : "application/json";
    return json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", type, "schema", schema);
}

// ---- routes

static json_t *security(enum route_auth auth)
{
    if (auth == ROUTE_ADMIN)
        return json_pack("[{s:[]}]", "adminKey");
    if (auth == ROUTE_CHANGE)
        return json_pack("[{s:[]}, {}]", "adminKey");
    if (auth == ROUTE_KEY)
        return json_pack("[{s:[]}, {}]", "apiKey");  // a server without keys asks for none
    return json_array();
}

// "/v1/models/*" as OpenAPI writes it; the rest of the path may have slashes.
static char *template_of(const char *path)
{
    size_t n = strlen(path);
    char *t = NULL;
    bool rest = path[n - 1] == '*';
    if (asprintf(&t, "%.*s%s", (int)(n - rest), path, rest ? "{rest}" : "") < 0)
        abort();
    return t;
}

static json_t *operation(const struct described *d)
{
    json_t *o = json_object(), *error = json_pack("{s:s}", "$ref", "#/components/responses/Error");
    json_object_set_new(o, "operationId", json_sprintf("%s %s", d->method, d->path));
    bool admin = d->auth == ROUTE_ADMIN || d->auth == ROUTE_CHANGE;
    json_object_set_new(o, "tags", json_pack("[s]", admin ? "administration" : d->auth == ROUTE_KEY ? "models" : "service"));
    json_object_set_new(o, "security", security(d->auth));
    if (d->path[strlen(d->path) - 1] == '*')
        json_object_set_new(o, "parameters", json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "rest", "in", "path", "required", 1,
                                                       "schema", "type", "string"));
    if (d->fields)
        json_object_set_new(o, "requestBody", body_of(d));
    json_object_set_new(o, "responses", json_pack("{s:{s:s}, s:o}", "200", "description", "The answer.", "default", error));
    return o;
}

static void add_route(const struct described *d, json_t *paths, json_t *schemas)
{
    static const char *const lower[][2] = {{"GET", "get"}, {"POST", "post"}, {"DELETE", "delete"}, {"PUT", "put"}};
    char *path = template_of(d->path);
    json_t *item = json_object_get(paths, path);
    if (!item)
        json_object_set_new(paths, path, item = json_object());
    for (size_t i = 0; i < sizeof lower / sizeof *lower; i++)
        if (!strcmp(d->method, lower[i][0]))
            json_object_set_new(item, lower[i][1], operation(d));
    free(path);
    if (d->fields && !json_object_get(schemas, body_name(d)))
        json_object_set_new(schemas, body_name(d), body_schema(d->fields));
}

// ---- the document

static json_t *error_schema(void)
{
    json_t *nullable = json_pack("{s:[s, s]}", "type", "string", "null"), *string = json_pack("{s:s}", "type", "string");
    json_t *error = json_pack("{s:s, s:[s, s, s, s], s:{s:O, s:O, s:O, s:O}}", "type", "object", "required", "message", "type",
                              "param", "code", "properties", "message", string, "type", string, "param", nullable, "code", nullable);
    json_decref(nullable);
    json_decref(string);
    return json_pack("{s:s, s:[s], s:{s:o}}", "type", "object", "required", "error", "properties", "error", error);
}

static void make(void)
{
    json_t *paths = json_object(), *missing = json_array(), *schemas = json_pack("{s:o}", "Error", error_schema());
    for (int i = 0; i < NROUTES; i++) {
        if (routes[i].method)
            add_route(&routes[i], paths, schemas);
        else
            json_array_append_new(missing, json_string(routes[i].path));
    }
    json_t *responses = json_pack("{s:{s:s, s:{s:{s:{s:s}}}}}", "Error", "description", "What went wrong.", "content",
                                  "application/json", "schema", "$ref", "#/components/schemas/Error");
    json_t *schemes = json_pack("{s:{s:s, s:s}, s:{s:s, s:s}}", "apiKey", "type", "http", "scheme", "bearer", "adminKey", "type",
                                "http", "scheme", "bearer");
    json_t *all = json_pack("{s:s, s:{s:s, s:s}, s:o, s:{s:o, s:o, s:o}, s:o}", "openapi", "3.1.0", "info", "title", "oxinferd",
                            "version", VERSION, "paths", paths, "components", "schemas", schemas, "responses", responses,
                            "securitySchemes", schemes, "x-not-built", missing);
    text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
}

void openapi_get(struct request *r)
{
    pthread_once(&once, make);
    if (text) {
        reply_text(r, 200, "application/json", text, strlen(text));
        return;
    }
    err e;
    err_set(&e, ERR_MEMORY, "no memory for the description");
    reply_error(r, &e);
}
