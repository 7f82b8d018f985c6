// tools.c - see the header. Loop thread, but for what turns answers back.
#include "server/api/tools.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "server/api/fields.h"

enum { PATH = 96, MAX_TOOLS = 1024, MAX_NAME = 64 };

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

struct reader {
    struct fields *f;
    struct arena *arena;
    struct api_tools *out;
    struct api_tool *all;
    const char *list, *choice;  // the fields' names
    bool none;                  // nothing may be called
};

// One tool on its way through.
struct tool {
    struct reader *r;
    size_t index;
    const char *holder;   // where its name and parameters stand: "function", "custom"; "": in the tool itself
    const json_t *in;
    json_t *function;     // what the engine gets
};

static const json_t *get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return v && !json_is_null(v) ? v : NULL;
}

static void missing(struct fields *f, const char *path)
{
    api_fields_fail(f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
}

// ---- one tool

static void path_of(const struct tool *t, const char *rest, char *ret_path)
{
    snprintf(ret_path, PATH, "%s[%zu]%s%s%s%s", t->r->list, t->index, *t->holder ? "." : "", t->holder, *rest ? "." : "", rest);
}

static bool is_name(const char *s)
{
    size_t n = strlen(s);
    return n >= 1 && n <= MAX_NAME && strspn(s, name_letters) == n;
}

static const struct api_tool *find(const struct api_tools *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->all[i].name, name))
            return &t->all[i];
    return NULL;
}

static const char *read_name(struct tool *t)
{
    char path[PATH];
    const char *name;
    const json_t *v = get(t->in, "name");
    path_of(t, "name", path);
    if (!v)
        missing(t->r->f, path);
    else if (!api_fields_as_string(t->r->f, v, path, &name))
        return "";
    else if (!is_name(name) || json_string_length(v) != strlen(name))
        api_fields_fail(t->r->f, "invalid_value", path,
                        "Invalid '%s': expected 1 to %d letters, digits, underscores or dashes.", path, MAX_NAME);
    else if (find(t->r->out, name))
        api_fields_fail(t->r->f, "invalid_value", path, "Invalid '%s': there is another tool of the name '%s'.", path, name);
    else
        return arena_strdup(t->r->arena, name);
    return "";
}

static void copy(struct tool *t, const char *name, const json_t *v)
{
    if (v)
        json_object_set(t->function, name, (json_t *)v);
}

static void read_description(struct tool *t)
{
    char path[PATH];
    const char *s;
    const json_t *v = get(t->in, "description");
    path_of(t, "description", path);
    if (v && api_fields_as_string(t->r->f, v, path, &s))
        copy(t, "description", v);
}

// Templates iterate over the properties of an object: one without any has an empty list of them.
static json_t *with_properties(const json_t *schema)
{
    json_t *made = json_copy((json_t *)schema);
    json_object_set_new(made, "type", json_string("object"));
    if (!get(made, "properties"))
        json_object_set_new(made, "properties", json_object());
    return made;
}

static void read_parameters(struct tool *t, const char *name)
{
    char path[PATH];
    const json_t *v = get(t->in, "parameters"), *type = json_object_get(v, "type");
    path_of(t, "parameters", path);
    if (!v) {
        json_object_set_new(t->function, "parameters", json_pack("{s:s, s:{}, s:b}", "type", "object", "properties",
                                                                 "additionalProperties", 0));
    } else if (!json_is_object(v)) {
        api_fields_wrong_type(t->r->f, v, path, "an object");
    } else if (type && (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0)) {
        api_fields_fail(t->r->f, "invalid_function_parameters", path,
                        "Invalid schema for function '%s': its type must be 'object'.", name);
    } else if (type || !json_object_size(v)) {
        json_object_set_new(t->function, "parameters", with_properties(v));
    } else {
        copy(t, "parameters", v);
    }
}

static void read_strict(struct tool *t)
{
    char path[PATH];
    const json_t *v = get(t->in, "strict");
    path_of(t, "strict", path);
    if (v && !json_is_boolean(v))
        api_fields_wrong_type(t->r->f, v, path, "a boolean");
    copy(t, "strict", v);
}

// ---- custom tools

static void set_input(struct tool *t, json_t *schema)
{
    json_object_set_new(t->function, "parameters",
                        json_pack("{s:s, s:{s:o}, s:[s], s:b}", "type", "object", "properties", "input", schema, "required",
                                  "input", "additionalProperties", 0));
}

// A pattern: all of the input must match it.
static json_t *pattern_schema(const char *pattern)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b, "^(?:%s)$", pattern);
    json_t *schema = b.over ? NULL : json_pack("{s:s, s:s}", "type", "string", "pattern", b.data);
    buf_done(&b);
    return schema;
}

static void read_format(struct tool *t)
{
    char path[PATH];
    const json_t *format = get(t->in, "format"), *grammar = get(format, "grammar");
    const char *type = json_string_value(get(format, "type"));
    path_of(t, "format", path);
    if (!format || (type && !strcmp(type, "text"))) {
        set_input(t, json_pack("{s:s}", "type", "string"));
        return;
    }
    if (!json_is_object(format)) {
        api_fields_wrong_type(t->r->f, format, path, "an object");
        return;
    }
    grammar = grammar ? grammar : format;
    const char *syntax = json_string_value(get(grammar, "syntax")), *definition = json_string_value(get(grammar, "definition"));
    json_t *schema = type && !strcmp(type, "grammar") && syntax && !strcmp(syntax, "regex") && definition
                         ? pattern_schema(definition) : NULL;
    if (!schema) {
        api_fields_fail(t->r->f, "unsupported_value", path,
                        "Unsupported value: '%s' must be {\"type\": \"text\"} or a grammar whose syntax is 'regex', with its "
                        "definition.", path);
        return;
    }
    set_input(t, schema);
    json_object_set_new(t->function, "strict", json_true());
}

// ---- the list

static const char *kind_of(struct tool *t, const json_t *tool)
{
    char path[PATH];
    const char *type;
    const json_t *v = get(tool, "type");
    if (t->r->out->functions)
        return "function";
    path_of(t, "type", path);
    if (!v) {
        missing(t->r->f, path);
    } else if (api_fields_as_string(t->r->f, v, path, &type)) {
        if (!strcmp(type, "function") || !strcmp(type, "custom"))
            return type;
        api_fields_fail(t->r->f, "unsupported_value", path,
                        "Unsupported value: '%.40s' tools are not supported by this server. Supported are 'function' and "
                        "'custom'.", type);
    }
    return NULL;
}

// What holds the name: an object called like the tool's type, or the tool itself.
static bool open_tool(struct tool *t, const json_t *tool, const char *type)
{
    char path[PATH];
    const json_t *inner = get(tool, type);
    t->in = tool;
    if (t->r->out->functions || (t->r->out->nesting == TOOLS_FLAT && !inner))
        return true;
    t->holder = type;
    t->in = inner;
    path_of(t, "", path);
    if (!inner)
        missing(t->r->f, path);
    else if (!json_is_object(inner))
        api_fields_wrong_type(t->r->f, inner, path, "an object");
    return json_is_object(inner);
}

static void read_tool(struct reader *r, const json_t *tool, json_t *list)
{
    char path[PATH];
    struct tool t = {.r = r, .index = r->out->n, .holder = ""};
    path_of(&t, "", path);
    if (!json_is_object(tool)) {
        api_fields_wrong_type(r->f, tool, path, "an object");
        return;
    }
    const char *type = kind_of(&t, tool);
    if (!type || !open_tool(&t, tool, type))
        return;
    bool custom = !strcmp(type, "custom");
    const char *name = read_name(&t);
    t.function = json_pack("{s:s}", "name", name);
    read_description(&t);
    if (custom) {
        read_format(&t);
    } else {
        read_parameters(&t, name);
        read_strict(&t);
    }
    r->all[r->out->n++] = (struct api_tool){name, custom};
    json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", t.function));
}

static void drop_json(void *v)
{
    json_decref(v);
}

static void read_list(struct reader *r, const json_t *tools)
{
    size_t n = json_array_size(tools);
    if (!n)
        return;
    if (n > MAX_TOOLS) {
        api_fields_fail(r->f, "array_above_max_length", r->list,
                        "Invalid '%s': array too long. Expected at most %d, but got %zu instead.", r->list, MAX_TOOLS, n);
        return;
    }
    json_t *list = json_array();
    arena_defer(r->arena, drop_json, list);
    r->out->list = list;
    r->out->all = r->all = arena_alloc(r->arena, n * sizeof *r->all);
    for (size_t i = 0; i < n && !r->f->failed; i++)
        read_tool(r, json_array_get(tools, i), list);
}

// ---- which may be called

static void bad_choice(struct reader *r, const char *what, const char *name)
{
    api_fields_fail(r->f, "invalid_value", r->choice, "Invalid value for '%s': %s '%.64s'.", r->choice, what, name);
}

// The name in {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...}; NULL after a failure.
static const char *chosen_name(struct reader *r, const json_t *v)
{
    const char *type = r->out->functions ? "function" : json_string_value(get(v, "type"));
    const json_t *inner = type ? get(v, type) : NULL;
    const char *name = json_string_value(get(json_is_object(inner) ? inner : v, "name"));
    const struct api_tool *found = name ? find(r->out, name) : NULL;
    if (type && strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
        bad_choice(r, "there are no tools of type", type);
    else if (!type || !name)
        api_fields_fail(r->f, "invalid_value", r->choice,
                        "Invalid value for '%s': expected the type and the name of a tool.", r->choice);
    else if (!found || found->custom != !strcmp(type, "custom"))
        bad_choice(r, "there is no tool of the name", name);
    else
        return found->name;
    return NULL;
}

static void name_one(struct reader *r, const json_t *v)
{
    const char *name = chosen_name(r, v), **names = arena_alloc(r->arena, sizeof *names);
    if (!name)
        return;
    names[0] = name;
    r->out->rules = (struct tool_rules){TOOLS_REQUIRED, names, 1, true};
}

static void read_mode(struct reader *r, const char *mode)
{
    if (!strcmp(mode, "required"))
        r->out->rules.choice = TOOLS_REQUIRED;
    else if (strcmp(mode, "auto") != 0)
        bad_choice(r, "expected 'none', 'auto' or 'required', but got", mode);
}

static void name_several(struct reader *r, const json_t *v)
{
    const json_t *inner = get(v, "allowed_tools"), *from = json_is_object(inner) ? inner : v, *tools = get(from, "tools");
    const char *mode = json_string_value(get(from, "mode"));
    size_t n = json_array_size(tools);
    if (!mode || !n) {
        api_fields_fail(r->f, "invalid_value", r->choice,
                        "Invalid value for '%s': allowed_tools needs a 'mode' and 'tools'.", r->choice);
        return;
    }
    if (n > MAX_TOOLS) {
        api_fields_fail(r->f, "array_above_max_length", r->choice,
                        "Invalid '%s': array too long. Expected at most %d tools, but got %zu instead.", r->choice, MAX_TOOLS, n);
        return;
    }
    read_mode(r, mode);
    const char **names = arena_alloc(r->arena, n * sizeof *names);
    for (size_t i = 0; i < n && !r->f->failed; i++)
        names[i] = chosen_name(r, json_array_get(tools, i));
    r->out->rules.names = names;
    r->out->rules.nnames = n;
}

static void read_choice(struct reader *r)
{
    const json_t *v = api_fields_get(r->f, r->choice);
    const char *word = json_string_value(v), *type = json_string_value(get(v, "type"));
    if (!v)
        return;
    if (word && !strcmp(word, "none"))
        r->none = true;
    else if (word && (!r->out->functions || strcmp(word, "required") != 0))
        read_mode(r, word);
    else if (word)
        bad_choice(r, "expected 'none', 'auto' or a name, but got", word);
    else if (!json_is_object(v))
        api_fields_wrong_type(r->f, v, r->choice, "a string or an object");
    else if (type && !strcmp(type, "allowed_tools"))
        name_several(r, v);
    else
        name_one(r, v);
    if (!r->out->n && r->out->rules.choice == TOOLS_REQUIRED)
        api_fields_fail(r->f, "invalid_value", r->choice, "Invalid value for '%s': it needs '%s'.", r->choice, r->list);
}

// ---- all of it

// The deprecated fields say the same as the others, less of it.
static void read_fields(struct reader *r)
{
    const json_t *tools = NULL, *functions = NULL;
    bool parallel = true;
    api_fields_array(r->f, "tools", &tools);
    if (r->out->nesting == TOOLS_NESTED)
        api_fields_array(r->f, "functions", &functions);
    if (json_array_size(tools) && json_array_size(functions))
        api_fields_fail(r->f, "invalid_value", "functions", "Invalid 'functions': 'tools' are given, too. Use 'tools' alone.");
    r->out->functions = json_array_size(functions) || (r->out->nesting == TOOLS_NESTED && !json_array_size(tools) &&
                                                       !api_fields_get(r->f, "tool_choice") &&
                                                       api_fields_get(r->f, "function_call"));
    r->list = r->out->functions ? "functions" : "tools";
    r->choice = r->out->functions ? "function_call" : "tool_choice";
    read_list(r, r->out->functions ? functions : tools);
    if (!r->f->failed)
        read_choice(r);
    if (api_fields_bool(r->f, "parallel_tool_calls", &parallel) && !parallel)
        r->out->rules.single = true;
    r->out->rules.single |= r->out->functions;  // a message has room for one function_call
}

void api_tools_read(struct fields *f, struct arena *a, enum api_tools_nesting nesting, struct api_tools *ret_tools)
{
    struct reader r = {.f = f, .arena = a, .out = ret_tools};
    *ret_tools = (struct api_tools){.nesting = nesting};
    read_fields(&r);
    if (f->failed || r.none || !ret_tools->n) {
        ret_tools->list = NULL;
        ret_tools->rules = (struct tool_rules){0};
    }
}

bool api_tools_custom(const struct api_tools *t, const char *name)
{
    const struct api_tool *found = t ? find(t, name) : NULL;
    return found && found->custom;
}

// Arguments the model wrote itself need not be what was asked for: then they are the input.
void api_tools_input(const char *arguments, size_t len, struct buf *out)
{
    json_t *v = json_loadb(arguments, len, JSON_ALLOW_NUL, NULL);
    const json_t *input = json_object_get(v, "input");
    if (json_is_string(input))
        buf_add(out, json_string_value(input), json_string_length(input));
    else
        buf_add(out, arguments, len);
    json_decref(v);
}

// Where the request has what list has as tools[i].function.parameters.
static void place_parameters(const struct api_tools *t, size_t i, err *e)
{
    const char *nested = t->nesting == TOOLS_FLAT || t->functions ? "" : t->all[i].custom ? "custom." : "function.";
    snprintf(e->param, sizeof e->param, "%s[%zu].%s%s", t->functions ? "functions" : "tools", i, nested,
             t->all[i].custom ? "format" : "parameters");
}

const char *api_tools_word(const struct api_tools *t, err *e)
{
    size_t i;
    int end = 0;
    if (!t || !t->n)
        return NULL;
    if (sscanf(e->param, "tools[%zu].function.parameters%n", &i, &end) == 1 && end && i < t->n) {
        place_parameters(t, i, e);
        if (t->all[i].custom)
            return "invalid_value";
        if (strncmp(e->text, "Invalid schema for function", 27) != 0)
            err_wrap(e, "Invalid schema for function '%s'", t->all[i].name);
        return "invalid_function_parameters";
    }
    if (t->functions && !strncmp(e->param, "tools", 5))
        snprintf(e->param, sizeof e->param, "functions");
    else if (t->functions && !strcmp(e->param, "tool_choice"))
        snprintf(e->param, sizeof e->param, "function_call");
    return NULL;
}
