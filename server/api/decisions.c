// decisions.c - POST /v1/decisions: several questions about one input, in the shape of OpenAI's Decisions API.
//
//     {"model", "input": text | [item, ...],
//      "questions": [{"type": "predicate", "instructions", "name"?}
//                  | {"type": "choice", "instructions", "choices": [{"value": text | boolean, "description"?}], "name"?}
//                  | {"type": "score", "instructions", "levels": [{"label", "description"?}], "name"?}]}
//  -> {"model", "answers": [answer in the order asked], "usage", "diagnostics": [{"label_mass"}]}
//
// Instructions and messages are text or lists of parts: input_text, output_text, refusal and input_json (as Python writes
// its JSON), without a separator. One user message is its content; in a list of several items each is a line
// "role: content", a call "function_call NAME: arguments", its result "function_call_output: output". Questions become
// prompts and numbers as in systemone.c: predicate is noul. diagnostics is ours.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/judge.h"
#include "server/api/pyjson.h"
#include "server/request.h"

enum { MAX_TEXT = 1 << 30, PATH = 120, MAX_ITEMS = 1 << 14 };
enum type { PREDICATE, CHOICE, SCORE };
static const char *const types[] = {"predicate", "choice", "score"};

struct listed {
    const char *name;  // NULL: none
    enum type type;
    const json_t **values;  // choice: values; score: labels
};

struct reading {
    struct fields *f;
    struct judge *j;
};

static void missing(struct fields *f, const char *path)
{
    api_fields_fail(f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
}

// ---- texts

static void add_part(struct fields *f, const json_t *part, const char *path, struct buf *out)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, type && !strcmp(type, "refusal") ? "refusal" : "text");
    const json_t *data = json_object_get(part, "data");
    if (!type)
        missing(f, path);
    else if (!strcmp(type, "input_image"))
        api_fields_fail(f, "unsupported_value", path, "Unsupported value: 'input_image' needs a model with a vision tower, and "
                        "this one has none.");
    else if (!strcmp(type, "input_json") && (json_is_object(data) || json_is_array(data)))
        api_pyjson_dump(out, data);
    else if ((!strcmp(type, "input_text") || !strcmp(type, "output_text") || !strcmp(type, "refusal")) && json_is_string(text))
        buf_add(out, json_string_value(text), json_string_length(text));
    else
        api_fields_fail(f, "invalid_value", path, "Invalid value: '%.40s'. Supported values are: 'input_text' with 'text' and "
                        "'input_json' with 'data'.", type);
}

// A string or a list of parts.
static void add_content(struct fields *f, const json_t *v, const char *path, struct buf *out)
{
    if (!v || json_is_null(v))
        missing(f, path);
    else if (json_is_string(v))
        buf_add(out, json_string_value(v), json_string_length(v));
    else if (!json_is_array(v))
        api_fields_wrong_type(f, v, path, "a string or an array");
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v) && !f->failed; i++)
        add_part(f, json_array_get(v, i), path, out);
}

static void add_call(struct fields *f, const json_t *item, const char *path, const char *field, struct buf *out)
{
    const json_t *name = json_object_get(item, "name");
    if (!json_is_string(name))
        missing(f, path);
    else
        buf_printf(out, " %s: ", json_string_value(name));
    add_content(f, json_object_get(item, field), path, out);
}

static void add_item(struct fields *f, const json_t *item, const char *path, bool alone, struct buf *out)
{
    const json_t *named = json_object_get(item, "type"), *who = json_object_get(item, "role");
    const char *type = json_is_string(named) ? json_string_value(named) : "message", *role = json_string_value(who);
    if (!strcmp(type, "message") && role) {
        if (!alone || strcmp(role, "user"))
            buf_printf(out, "%s: ", role);
        add_content(f, json_object_get(item, "content"), path, out);
    } else if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call")) {
        buf_add_str(out, type);
        add_call(f, item, path, !strcmp(type, "function_call") ? "arguments" : "input", out);
    } else if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output")) {
        buf_printf(out, "%s: ", type);
        add_content(f, json_object_get(item, "output"), path, out);
    } else {
        api_fields_fail(f, "invalid_value", path, "Invalid '%s': expected a message with a 'role', a call or its output.", path);
    }
}

static const char *read_input(struct reading *rd)
{
    struct fields *f = rd->f;
    const json_t *v = api_fields_get(f, "input");
    size_t n = json_array_size(v);
    if (api_fields_missing(f, "input"))
        return "";
    if (json_is_string(v))
        return json_string_value(v);
    if (!json_is_array(v))
        api_fields_wrong_type(f, v, "input", "a string or an array");
    else if (!n)
        api_fields_empty(f, "input");
    else if (n > MAX_ITEMS)
        api_fields_fail(f, "array_above_max_length", "input", "Invalid 'input': expected at most %d items, but got %zu.",
                        MAX_ITEMS, n);
    struct buf b;
    buf_init(&b, MAX_TEXT);
    for (size_t i = 0; i < n && !f->failed; i++) {
        char path[PATH];
        snprintf(path, sizeof path, "input[%zu]", i);
        if (i)
            buf_add_char(&b, '\n');
        add_item(f, json_array_get(v, i), path, n == 1, &b);
    }
    return api_judge_keep(rd->j->r, &b);
}

// ---- questions

// The option's text: its value, with the description behind it.
static const char *option_text(struct reading *rd, const json_t *o, const json_t *value, const char *path)
{
    const json_t *description = json_object_get(o, "description");
    if (description && !json_is_null(description) && !json_is_string(description))
        api_fields_wrong_type(rd->f, description, path, "a string");
    struct buf b;
    buf_init(&b, MAX_TEXT);
    if (json_is_string(value))
        buf_add(&b, json_string_value(value), json_string_length(value));
    else
        api_pyjson_dump(&b, value);
    if (json_is_string(description)) {
        buf_add_str(&b, ": ");
        buf_add(&b, json_string_value(description), json_string_length(description));
    }
    return api_judge_keep(rd->j->r, &b);
}

static bool repeated(const struct listed *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_equal(l->values[i], l->values[n]))
            return true;
    return false;
}

static void read_options(struct reading *rd, const json_t *q, struct ask *a, struct listed *l, const char *path)
{
    const char *list = l->type == CHOICE ? "choices" : "levels", *field = l->type == CHOICE ? "value" : "label";
    const json_t *options = json_object_get(q, list);
    struct arena *arena = &rd->j->r->arena;
    size_t n = json_array_size(options);
    char at[PATH + 60];
    snprintf(at, sizeof at, "%s.%s", path, list);
    a->kind = DECIDE_ENUM;
    if (!json_is_array(options)) {
        missing(rd->f, at);
        return;
    }
    if (!api_judge_count(rd->j, rd->f, n, at))
        return;
    a->options = arena_alloc(arena, n * sizeof *a->options);
    l->values = arena_alloc(arena, n * sizeof *l->values);
    for (size_t i = 0; i < n && !rd->f->failed; i++) {
        const json_t *o = json_array_get(options, i), *value = json_object_get(o, field);
        snprintf(at, sizeof at, "%s.%s[%zu].%s", path, list, i, field);
        if (!json_is_string(value) && !(l->type == CHOICE && json_is_boolean(value))) {
            api_fields_fail(rd->f, "invalid_type", at, "Invalid type for '%s': expected a string%s.", at,
                            l->type == CHOICE ? " or a boolean" : "");
            return;
        }
        l->values[i] = value;
        if (l->type == CHOICE && repeated(l, i))
            api_fields_fail(rd->f, "invalid_value", at, "Invalid '%s': each choice must be unique.", at);
        a->options[a->noptions++] = option_text(rd, o, value, at);
    }
}

static bool type_of(struct fields *f, const json_t *q, const char *path, enum type *ret_type)
{
    const char *name = json_string_value(json_object_get(q, "type"));
    for (int i = 0; name && i < 3; i++)
        if (!strcmp(name, types[i])) {
            *ret_type = (enum type)i;
            return true;
        }
    api_fields_fail(f, "invalid_value", path, "Invalid value: '%.40s' for '%s.type'. Supported values are: 'predicate', "
                    "'choice' and 'score'.", name ? name : "", path);
    return false;
}

static void read_question(struct reading *rd, const json_t *q, int i)
{
    struct ask *a = &rd->j->asks[i];
    struct listed *l = (struct listed *)rd->j->ud + i;
    char path[PATH], at[PATH + 20];
    snprintf(path, sizeof path, "questions[%d]", i);
    if (!json_is_object(q)) {
        api_fields_wrong_type(rd->f, q, path, "an object");
        return;
    }
    const json_t *name = json_object_get(q, "name");
    if (name && !json_is_null(name) && !json_is_string(name))
        api_fields_wrong_type(rd->f, name, path, "a string as 'name'");
    l->name = json_string_value(name);
    if (!type_of(rd->f, q, path, &l->type))
        return;
    struct buf b;
    buf_init(&b, MAX_TEXT);
    snprintf(at, sizeof at, "%s.instructions", path);
    add_content(rd->f, json_object_get(q, "instructions"), at, &b);
    a->text = api_judge_keep(rd->j->r, &b);
    a->kind = DECIDE_BOOL;
    if (l->type != PREDICATE)
        read_options(rd, q, a, l, path);
}

// ---- the answer

static void add_value(const json_t *v, struct buf *out)
{
    if (json_is_string(v))
        api_jsonout_string(out, json_string_value(v), json_string_length(v));
    else
        buf_add_str(out, json_is_true(v) ? "true" : "false");
}

static void add_option(const struct ask *a, const struct listed *l, size_t i, struct buf *out)
{
    if (l->type == SCORE)
        buf_printf(out, "{\"value\":%zu,\"label\":", i);
    else
        buf_add_str(out, "{\"value\":");
    add_value(l->values[i], out);
    buf_add_str(out, ",\"probability\":");
    api_pyjson_float(out, a->p[i]);
    buf_add_char(out, '}');
}

static void add_answer(const struct ask *a, const struct listed *l, struct buf *out)
{
    buf_printf(out, "{\"type\":\"%s\",\"name\":", types[l->type]);
    api_jsonout_text(out, l->name);
    if (l->type == PREDICATE) {
        buf_add_str(out, ",\"probability\":");
        api_pyjson_float(out, a->p[1]);
        buf_add_char(out, '}');
        return;
    }
    buf_add_str(out, l->type == CHOICE ? ",\"choice\":" : ",\"score\":");
    if (l->type == CHOICE)
        add_value(l->values[a->best], out);
    else
        api_pyjson_float(out, api_judge_expected(a));
    buf_add_str(out, ",\"probabilities\":[");
    for (size_t i = 0; i < a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        add_option(a, l, i, out);
    }
    buf_add_str(out, "],\"confidence\":");
    api_pyjson_float(out, api_judge_confidence(a));
    buf_add_char(out, '}');
}

static void write(const struct judge *j, struct buf *out)
{
    const struct listed *listed = j->ud;
    const struct usage *u = &j->usage;
    buf_add_str(out, "{\"model\":");
    api_jsonout_text(out, j->model->name);
    buf_add_str(out, ",\"answers\":[");
    for (int i = 0; i < j->nasks; i++) {
        if (i)
            buf_add_char(out, ',');
        add_answer(&j->asks[i], &listed[i], out);
    }
    buf_printf(out, "],\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
               "\"output_tokens\":0,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%d},\"diagnostics\":[",
               u->prompt_tokens, u->cached_tokens, u->prompt_tokens);
    for (int i = 0; i < j->nasks; i++) {
        buf_add_str(out, i ? ",{\"label_mass\":" : "{\"label_mass\":");
        api_judge_mass(&j->asks[i], out);
        buf_add_char(out, '}');
    }
    buf_add_str(out, "]}");
}

static const json_t *questions_of(struct fields *f)
{
    const json_t *questions = NULL;
    if (api_fields_missing(f, "questions") || !api_fields_array(f, "questions", &questions))
        return NULL;
    size_t n = json_array_size(questions);
    if (!n)
        api_fields_empty(f, "questions");
    if (n > DECIDE_MAX_QUESTIONS)
        api_fields_fail(f, "array_above_max_length", "questions", "Invalid 'questions': expected at most %d questions, but "
                        "got %zu instead.", DECIDE_MAX_QUESTIONS, n);
    return questions;
}

static const struct field decision_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"input", FIELD_HONOURED, "!string|[object]"},
    {"questions", FIELD_HONOURED, "![object]"},
    {"safety_identifier", FIELD_ACCEPTED, 0},
    {"prompt_cache_key", FIELD_ACCEPTED, 0},
    {"prompt_cache_options", FIELD_ACCEPTED, 0},
};
API_BODY(api_decisions_create, decision_fields, caller);

void api_decisions_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_decisions_create_body);
    const json_t *questions = questions_of(&f);
    if (f.failed) {
        api_fields_reply(&f);
        return;
    }
    int n = (int)json_array_size(questions);
    struct judge *j = api_judge_new(r, n);
    struct reading rd = {.f = &f, .j = j};
    j->ud = arena_alloc(&r->arena, (size_t)n * sizeof(struct listed));
    j->write = write;
    if (api_judge_model(j, &f))
        j->state = read_input(&rd);
    for (int i = 0; i < n && !f.failed; i++)
        read_question(&rd, json_array_get(questions, (size_t)i), i);
    if (f.failed)
        api_fields_reply(&f);
    else
        api_judge_start(j);
}
