// answer_structure.c - the form of a whole answer as a structural tag: reasoning, then content in the form asked for, or
// calls whose arguments fit their functions. Prep threads.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "engine/grammar/structure.h"
#include "engine/text/answer_int.h"

// What the schemas of all functions may take together, as the form of the whole answer has to hold them.
enum { MAX_BYTES = 900 << 10, MAX_PARTS = NODES_MAX / 4 * 3, MAX_MEMORY = NODES_MAX_BYTES / 4 * 3 };

struct maker {
    const struct answer_style *s;
    const struct answer_ask *ask;
    bool required, single;
    size_t bytes, parts, memory, work, steps;  // what the schemas have taken so far; what they may still cost
    err *e;
};

// ---- formats

static json_t *text_format(const char *text, size_t len)
{
    return json_pack("{s:s, s:s%}", "type", "const_string", "value", text, len);
}

static json_t *any_text(void)
{
    return json_pack("{s:s}", "type", "any_text");
}

static json_t *list_format(const char *type, json_t *elements)
{
    if (json_array_size(elements) == 1) {
        json_t *only = json_incref(json_array_get(elements, 0));
        json_decref(elements);
        return only;
    }
    return json_pack("{s:s, s:o}", "type", type, "elements", elements);
}

static json_t *tag_format(const char *begin, json_t *content, const char *end)
{
    return json_pack("{s:s, s:s, s:o, s:s}", "type", "tag", "begin", begin, "content", content, "end", end);
}

// Free text between marks. The one behind it is read up to its first white space and the rest asked for apart: the parser
// takes a mark with less white space as well, and what it reads as the end must not be free text here. behind: the white
// space after the mark is asked for too.
static json_t *text_up_to(const char *begin, const char *mark, bool behind)
{
    size_t n;
    const char *core = answer_mark_core(mark, &n);
    size_t first = strcspn(core, " \n\t\r"), more = (behind ? strlen(core) : n) - first;
    char *end = mem_strndup(core, first);
    json_t *tag = tag_format(begin, any_text(), end);
    free(end);
    return more ? json_pack("{s:s, s:[o, o]}", "type", "sequence", "elements", tag, text_format(core + first, more)) : tag;
}

// Without white space in front; behind only if `behind`.
static char *trimmed(const char *mark, bool behind)
{
    size_t n;
    const char *core = answer_mark_core(mark, &n);
    return mem_strndup(core, behind ? strlen(core) : n);
}

static bool blank(const char *mark)
{
    size_t n;
    answer_mark_core(mark, &n);
    return !n;
}

// ---- the content's form

static json_t *choices(const char *text, size_t len)
{
    return json_pack("{s:s, s:o*}", "type", "choice", "values", json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL));
}

static json_t *form_of(const struct grammar_request *r)
{
    switch (r->kind) {
    case GRAMMAR_JSON_SCHEMA:
        return json_pack("{s:s, s:o*}", "type", "json_schema", "json_schema",
                         json_loadb(r->text, r->len, JSON_DECODE_ANY, NULL));
    case GRAMMAR_JSON_OBJECT: return json_pack("{s:s, s:{s:s}}", "type", "json_schema", "json_schema", "type", "object");
    case GRAMMAR_REGEX: return json_pack("{s:s, s:s%}", "type", "regex", "pattern", r->text, r->len);
    case GRAMMAR_CHOICE: return choices(r->text, r->len);
    case GRAMMAR_GBNF: return json_pack("{s:s, s:s%}", "type", "grammar", "grammar", r->text, r->len);
    default: break;
    }
    json_t *tag = json_loadb(r->text, r->len, 0, NULL), *format = json_object_get(tag, "format");
    if (tag && !format)
        return tag;  // as it was before there were formats
    json_incref(format);
    json_decref(tag);
    return format;
}

// NULL: it may be anything.
static json_t *content_form(const struct maker *m, err *e)
{
    const struct grammar_request *r = m->ask->content;
    if (!r || r->kind == GRAMMAR_NONE)
        return NULL;
    json_t *f = form_of(r);
    if (!f) {
        err_set_param(e, ERR_UNSUPPORTED, r->field ? r->field : "", "this form cannot be combined with tools or reasoning");
        return NULL;
    }
    if (r->field && !json_object_get(f, "field"))
        json_object_set_new(f, "field", json_string(r->field));
    if (r->name)
        json_object_set_new(f, "name", json_string(r->name));
    const char *say = m->s->mark[MARK_SAY], *end = m->s->mark[MARK_SAY_END];
    if (!*say)
        return f;
    return json_pack("{s:s, s:[o, o]}", "type", "or", "elements", tag_format(say, json_incref(f), end), f);
}

// ---- arguments

// The style of structure.h that writes arguments as this style does; NULL: none.
static const char *argument_style(const struct answer_style *s)
{
    switch (s->form) {
    case FORM_BRACES: return "gemma";
    case FORM_PYTHON: return "python";
    case FORM_TAGS: break;
    default: return "json";
    }
    char *key = trimmed(s->mark[MARK_KEY], false), *end = trimmed(s->mark[MARK_VALUE_END], false);
    bool parameter = !strcmp(key, "<parameter=") && !strcmp(s->mark[MARK_KEY_END], ">\n") && !strcmp(end, "</parameter>");
    bool lines = s->mark[MARK_KEY][0] == '\n' || (*s->mark[MARK_VALUE_END] && strchr(s->mark[MARK_VALUE_END] + 1, '\n'));
    bool pair = lines && !strcmp(key, "<arg_key>") && !strcmp(s->mark[MARK_KEY_END], "</arg_key>\n<arg_value>") &&
                !strcmp(end, "</arg_value>");
    free(key);
    free(end);
    return parameter ? "xml_parameter" : pair ? "arg_key" : NULL;
}

static json_t *schema_format(const struct maker *m, json_t *schema, const char *field, const char *name)
{
    const char *style = argument_style(m->s);
    json_t *f = json_pack("{s:s, s:O, s:s, s:s}", "type", "json_schema", "json_schema", schema, "field", field, "name", name);
    if (style && strcmp(style, "json"))
        json_object_set_new(f, "style", json_string(style));
    if (m->s->form == FORM_BRACES)
        json_object_set_new(f, "quote", json_string(m->s->mark[MARK_QUOTE]));
    return f;
}

static err_code compile(struct maker *m, const char *text, err *e)
{
    struct nodes g;
    uint32_t root;
    nodes_init(&g, NODES_JSON_DEPTH);
    g.work = m->work;
    g.steps = m->steps;
    err_code code = structure_compile(text, strlen(text), &g, &root, e);
    m->work = g.work;
    m->steps = g.steps;
    if (!code) {
        m->parts += g.n;
        m->memory += g.bytes;
    }
    nodes_done(&g);
    return code;
}

// Whether it can be enforced, together with those before it.
static err_code compiles(struct maker *m, json_t *format, const char *field, err *e)
{
    json_t *whole = json_pack("{s:s, s:O}", "type", "structural_tag", "format", format);
    char *text = json_dumps(whole, JSON_COMPACT);
    size_t bytes = strlen(text);
    err_code code = m->bytes + bytes > MAX_BYTES ? ERR_TOO_LARGE : compile(m, text, e);
    if (m->bytes + bytes > MAX_BYTES || m->parts > MAX_PARTS || m->memory > MAX_MEMORY)
        code = err_set_param(e, ERR_TOO_LARGE, field, "the schemas of the functions up to this one are too large together");
    else
        m->bytes += bytes;
    free(text);
    json_decref(whole);
    return code;
}

// ---- arguments in tags that no style of structure.h writes: put together from other formats

static bool is_one_of(const char *key, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(key, *list))
            return true;
    return false;
}

// The first keyword that is not among those known; NULL: there is none.
static const char *other_keyword(const json_t *schema, const char *const *known)
{
    static const char *const says_nothing[] = {"title", "description", "default", "examples", "$schema", "$defs",
                                               "definitions", "$comment", NULL};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)schema, key, v)
        if (!is_one_of(key, says_nothing) && !is_one_of(key, known))
            return key;
    return NULL;
}

// A value between its marks: text as it is, or JSON. NULL: it cannot be held to its schema.
static json_t *value_format(json_t *root, json_t *schema, err *e)
{
    static const char *const known[] = {"type", "enum", NULL};
    if (!answer_value_text_only(schema, root)) {
        json_t *own = json_is_object(schema) ? json_copy(schema) : json_object(), *defs = json_object_get(root, "$defs");
        if (defs)
            json_object_set(own, "$defs", defs);
        return json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", own);
    }
    const char *other = other_keyword(schema, known);
    json_t *texts = json_object_get(schema, "enum"), *list, *v;
    size_t i;
    if (other) {
        err_set(e, ERR_UNSUPPORTED, "'%.40s' of a string that is written without quotes", other);
        return NULL;
    }
    if (!json_array_size(texts))
        return any_text();
    list = json_array();
    json_array_foreach(texts, i, v)
        json_array_append_new(list, text_format(json_string_value(v), json_string_length(v)));
    return list_format("or", list);
}

static bool is_required(const json_t *schema, const char *name)
{
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), name))
            return true;
    return false;
}

// Declared members in their order, the ones that are not required if at all. NULL with an error.
static json_t *member_formats(const struct answer_style *s, json_t *schema, const char *field, err *e)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties", "strict", NULL};
    const char *name, *other = other_keyword(schema, known);
    json_t *list = json_array(), *property;
    err why = {0};
    if (strpbrk(s->mark[MARK_KEY_END], MARK_WILD))
        err_set(&why, ERR_UNSUPPORTED, "arguments as this model writes them");
    else if (other)
        err_set(&why, ERR_UNSUPPORTED, "'%.40s' of an object that is written as tags", other);
    json_object_foreach(json_object_get(schema, "properties"), name, property) {
        json_t *value = why.code ? NULL : value_format(schema, property, &why);
        if (!value)
            break;
        struct buf begin;
        buf_init(&begin, 1 << 16);
        buf_printf(&begin, "%s%s%s", s->mark[MARK_KEY], name, s->mark[MARK_KEY_END]);
        bool open = !strcmp(json_string_value(json_object_get(value, "type")), "any_text");
        json_t *tag = open ? text_up_to(begin.data, s->mark[MARK_VALUE_END], true) :
                             tag_format(begin.data, value, s->mark[MARK_VALUE_END]);
        if (open)
            json_decref(value);
        buf_done(&begin);
        if (!is_required(schema, name))
            tag = json_pack("{s:s, s:o}", "type", "optional", "content", tag);
        json_array_append_new(list, tag);
    }
    if (why.code) {
        json_decref(list);
        err_set_param(e, why.code, field, "cannot be enforced: %s", why.text);
        return NULL;
    }
    if (!json_array_size(list))
        json_array_append_new(list, text_format("", 0));
    return json_pack("{s:s, s:o, s:s}", "type", "sequence", "elements", list, "field", field);
}

static json_t *no_arguments(const struct answer_style *s)
{
    const char *text = s->form == FORM_TAGS || s->form == FORM_PYTHON ? "" : "{}";
    return text_format(text, strlen(text));
}

// Arguments of a function whose schema is not asked for and cannot be had.
static json_t *loose_arguments(struct maker *m)
{
    if (m->s->form == FORM_OBJECT || m->s->form == FORM_NAMED)
        return json_pack("{s:s, s:{s:s}}", "type", "json_schema", "json_schema", "type", "object");
    if (m->s->form != FORM_PYTHON && !blank(m->s->mark[MARK_CALL_END]))
        return any_text();
    return NULL;
}

// No schema, or an object for which no members are named: nobody means any arguments by it.
static bool takes_nothing(const json_t *schema)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties", NULL};
    const json_t *properties = json_object_get(schema, "properties"), *more = json_object_get(schema, "additionalProperties");
    if (!json_is_object(schema) || !json_object_size(schema))
        return !schema || json_is_null(schema) || json_is_object(schema);
    return json_is_object(properties) && !json_object_size(properties) && !other_keyword(schema, known) &&
           !json_array_size(json_object_get(schema, "required")) && (!more || json_is_false(more));
}

// NULL with an error; without one: they cannot be given a form, and need none.
static json_t *arguments(struct maker *m, json_t *function, size_t index)
{
    char field[64];
    json_t *schema = json_object_get(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    bool strict = json_is_true(json_object_get(function, "strict")), enforce = strict || m->required;
    err why = {0};
    snprintf(field, sizeof field, "tools[%zu].function.parameters", index);
    if (takes_nothing(schema))
        return no_arguments(m->s);
    json_t *f = argument_style(m->s) ? schema_format(m, schema, field, name) : member_formats(m->s, schema, field, &why);
    if (f && !compiles(m, f, field, &why))
        return f;
    json_decref(f);
    if (!enforce)
        return loose_arguments(m);
    *m->e = why;
    return NULL;
}

// ---- calls

// A mark as formats: texts, and patterns where ids stand.
static void add_mark(json_t *list, const char *mark)
{
    for (const char *id; *mark; mark = id + 1) {
        id = strpbrk(mark, MARK_WILD);
        size_t n = id ? (size_t)(id - mark) : strlen(mark);
        if (n)
            json_array_append_new(list, text_format(mark, n));
        if (!id)
            return;
        const char *pattern = *id == MARK_ID ? "[a-zA-Z0-9]{9}" : "[0-9]{1,3}";
        json_array_append_new(list, json_pack("{s:s, s:s}", "type", "regex", "pattern", pattern));
    }
}

static char *joined(const char *a, const char *b, const char *c, const char *d)
{
    struct buf all;
    buf_init(&all, 1 << 16);
    buf_add_str(&all, a);
    buf_add_str(&all, b);
    buf_add_str(&all, c);
    buf_add_str(&all, d);
    return buf_take(&all);
}

// White space in front of calls is written with what they follow.
static size_t front_space(const char *mark)
{
    return strspn(mark, " \n\t\r");
}

// What stands in front of a call's arguments, with ids in it, and behind them. Freed by the caller.
static void around_arguments(const struct answer_style *s, const char *name, char **ret_before, char **ret_behind)
{
    char *const *mark = s->mark, key[80], end[80];
    const char *call = mark[MARK_CALL] + front_space(mark[MARK_CALL]);
    if (s->form == FORM_OBJECT && !*mark[MARK_OBJECT]) {  // only the keys are known
        snprintf(key, sizeof key, "{\"%s\": \"", mark[MARK_NAME_KEY]);
        snprintf(end, sizeof end, "\", \"%s\": ", mark[MARK_ARGUMENTS_KEY]);
        *ret_before = joined(call, key, name, end);
        *ret_behind = joined("}", mark[MARK_CALL_END], "", "");
    } else if (s->form == FORM_OBJECT) {
        *ret_before = joined(call, mark[MARK_OBJECT], name, mark[MARK_MIDDLE]);
        *ret_behind = joined(mark[MARK_OBJECT_END], mark[MARK_CALL_END], "", "");
    } else if (s->form == FORM_TAGS) {  // the styles write the line feed behind each value
        size_t space = argument_style(s) ? strspn(mark[MARK_KEY], "\n ") : 0;
        snprintf(key, sizeof key, "%.*s", (int)(space < sizeof key ? space : 0), mark[MARK_KEY]);
        *ret_before = joined(call, name, mark[MARK_NAME_END], key);
        *ret_behind = argument_style(s) ? trimmed(mark[MARK_CALL_END], true) : mem_strdup(mark[MARK_CALL_END]);
    } else {
        bool braces = s->form == FORM_BRACES;
        *ret_before = joined(call, name, braces ? "" : mark[MARK_NAME_END], "");
        *ret_behind = joined(s->form == FORM_PYTHON ? ")" : "", mark[MARK_CALL_END], "", "");
    }
}

// One function's call as a tag, which begins and ends with texts.
static json_t *call_tag(const struct answer_style *s, const char *name, json_t *args)
{
    char *before, *behind;
    around_arguments(s, name, &before, &behind);
    json_t *list = json_array(), *first, *last;
    add_mark(list, before);
    json_array_append_new(list, args);
    add_mark(list, behind);
    free(before);
    free(behind);
    first = json_incref(json_array_get(list, 0));
    last = json_incref(json_array_get(list, json_array_size(list) - 1));
    const char *begin = json_string_value(json_object_get(first, "value"));
    const char *end = json_string_value(json_object_get(last, "value"));
    json_array_remove(list, 0);
    if (end && json_array_size(list) > 1)
        json_array_remove(list, json_array_size(list) - 1);
    else
        end = "";
    json_t *tag = tag_format(begin, list_format("sequence", list), end);
    json_decref(first);
    json_decref(last);
    return tag;
}

static bool may_call(const struct tool_rules *r, const char *name)
{
    if (!r || !r->names)
        return true;
    for (size_t i = 0; i < r->nnames; i++)
        if (!strcmp(r->names[i], name))
            return true;
    return false;
}

// The tags of all functions that may be called; NULL: an error, or there is no form for them.
static json_t *call_tags(struct maker *m)
{
    json_t *tags = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)m->ask->tools, i, tool) {
        json_t *f = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || !may_call(m->ask->rules, name))
            continue;
        json_t *args = arguments(m, f, i);
        if (!args) {
            json_decref(tags);
            return NULL;
        }
        json_array_append_new(tags, call_tag(m->s, name, args));
    }
    return tags;
}

// Calls one after another, in their section if the style has one. Takes the tags.
static json_t *call_list(const struct maker *m, json_t *tags)
{
    char *const *mark = m->s->mark, space[40], separator[200], section_begin[400];
    bool once = m->single || (m->s->bare && blank(mark[MARK_SEPARATOR])), section = !blank(mark[MARK_SECTION]);
    snprintf(space, sizeof space, "%.*s", (int)front_space(mark[MARK_CALL]), mark[MARK_CALL]);
    snprintf(separator, sizeof separator, "%s%s", mark[MARK_SEPARATOR], space);
    snprintf(section_begin, sizeof section_begin, "%s%s", mark[MARK_SECTION] + front_space(mark[MARK_SECTION]), space);
    json_t *list = json_pack("{s:s, s:o, s:s, s:b, s:b}", "type", "tags_with_separator", "tags", tags, "separator", separator,
                             "at_least_one", 1, "stop_after_first", once);
    return section ? tag_format(section_begin, list, mark[MARK_SECTION_END]) : list;
}

// The text calls are known by: a mark's first tag.
static char *trigger(const char *mark)
{
    char *core = trimmed(mark, false);
    size_t n = answer_mark_tag(core, strlen(core));
    if (n)
        core[n] = 0;
    return core;
}

// Content of any kind, and calls in it.
static json_t *free_with_calls(const struct maker *m, json_t *tags)
{
    bool section = !blank(m->s->mark[MARK_SECTION]);
    char *begin = trigger(m->s->mark[section ? MARK_SECTION : MARK_CALL]);
    if (section)
        tags = json_pack("[o]", call_list(m, tags));
    json_t *f = json_pack("{s:s, s:[s], s:o, s:b, s:b}", "type", "triggered_tags", "triggers", begin, "tags", tags,
                          "at_least_one", 0, "stop_after_first", m->single);
    free(begin);
    return f;
}

// Content that cannot be taken for a call, or calls.
static json_t *bare_or_text(const struct maker *m, json_t *tags)
{
    bool bracket = !blank(m->s->mark[MARK_SECTION]);
    const char *pattern = bracket ? "[ \\n\\t\\r]*[^ \\n\\t\\r\\[]" : "[ \\n\\t\\r]*[^ \\n\\t\\r{]";
    return json_pack("{s:s, s:{s:s, s:[{s:s, s:[{s:s, s:s}, o]}, o]}}", "type", "optional", "content", "type", "or",
                     "elements", "type", "sequence", "elements", "type", "regex", "pattern", pattern, any_text(),
                     call_list(m, tags));
}

// Calls and content as asked; takes both. content NULL: any.
static json_t *said(const struct maker *m, json_t *tags, json_t *content)
{
    if (!tags)
        return content ? content : any_text();
    if (m->required) {
        json_decref(content);
        return call_list(m, tags);
    }
    if (content)
        return json_pack("{s:s, s:[o, o]}", "type", "or", "elements", content, call_list(m, tags));
    return m->s->bare ? bare_or_text(m, tags) : free_with_calls(m, tags);
}

// Reasoning in front.
static json_t *with_reasoning(const struct maker *m, json_t *rest, bool loose)
{
    if (!answer_thinks(m->s))
        return rest;
    json_t *think = text_up_to(m->ask->thinking ? "" : m->s->mark[MARK_THINK], m->s->mark[MARK_THINK_END], !loose);
    if (!m->ask->thinking)
        think = json_pack("{s:s, s:o}", "type", "optional", "content", think);
    return json_pack("{s:s, s:[o, o]}", "type", "sequence", "elements", think, rest);
}

err_code answer_structure(const struct answer_style *s, const struct answer_ask *ask, char **ret_text, err *e)
{
    err own = {0};
    const struct tool_rules *r = ask->rules;
    struct maker m = {.s = s, .ask = ask, .e = &own, .required = r && r->choice == TOOLS_REQUIRED, .single = r && r->single,
                      .work = NODES_WORK / 2, .steps = NODES_STEPS / 2};
    json_t *tags = s->calls && json_array_size(ask->tools) ? call_tags(&m) : NULL;
    json_t *content = own.code ? NULL : content_form(&m, &own);
    if (tags && !json_array_size(tags)) {
        json_decref(tags);
        tags = NULL;
    }
    if (!own.code && m.required && !tags)
        err_set_param(&own, ERR_UNSUPPORTED, "tool_choice", "no call can be asked for: there are no tools that may be called");
    if (own.code) {
        json_decref(tags);
        json_decref(content);
        if (own.code == ERR_TOO_LARGE)  // the client's affair like anything else that is wrong with it
            own.code = ERR_INVALID;
        if (e)
            *e = own;
        return own.code;
    }
    *ret_text = NULL;
    if (!tags && !content)
        return ERR_OK;
    bool loose = !content && !m.required;
    json_t *format = with_reasoning(&m, said(&m, tags, content), loose);
    json_t *whole = json_pack("{s:s, s:o}", "type", "structural_tag", "format", format);
    *ret_text = json_dumps(whole, JSON_COMPACT);
    json_decref(whole);
    return ERR_OK;
}
