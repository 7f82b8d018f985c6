// decide.c - POST /v1/decide: one typed question, and GET /v1/decide/info. The field names, the answer and the form of the
// errors are those of the decision models' own server; "native" and "mass" are ours.
//
//     {"kind": "noul" | "score" | "choice", "state": text | object | array, "question": text, "options": [text, ...]}
//
// What its second, reasoning stage would need (strategy, thinking, system2_only) is refused, and so are images.
// Loop thread; the answer is written by whoever ends the task.
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/judge.h"
#include "server/api/pyjson.h"
#include "server/reply.h"
#include "server/request.h"

enum { MAX_STATE = 1 << 30 };

static const char trained[] = "jev27-bare-v1", untrained[] = "labels-v1";  // protocol
static const char *const kinds[] = {"noul", "score", "choice"};
static const char *const bools[] = {"false", "true"}, *const ints[] = {"0", "1", "2", "3", "4", "5"};

// ---- errors, in the form callers of this address know: the code is the status, a number

struct problem {
    bool set;
    char text[512];
    const char *param;  // NULL: not about the form of a field
};

__attribute__((format(printf, 3, 4))) static void refuse(struct problem *p, const char *param, const char *fmt, ...)
{
    if (p->set)
        return;
    p->set = true;
    p->param = param;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    va_end(ap);
    api_fields_clean(p->text);
}

static void reply_refusal(struct request *r, const char *text, const char *param)
{
    json_t *error = json_pack("{s:s, s:s, s:i}", "message", text, "type", param ? "Bad Request" : "BadRequestError", "code",
                              400);
    if (error && param)
        json_object_set_new(error, "param", json_string(param));
    reply_json(r, 400, json_pack("{s:o}", "error", error));
}

static void fail(struct judge *j, const err *e)
{
    const char *type, *code;
    if (reply_status_of(e->code, &type, &code) == 400)
        reply_refusal(j->r, e->text, NULL);
    else
        reply_error(j->r, e);
}

// ---- fields

static int choose(struct problem *p, const json_t *v, const char *name, const char *const *words, int n)
{
    for (int i = 0; i < n && json_is_string(v); i++)
        if (!strcmp(json_string_value(v), words[i]))
            return i;
    char list[200] = "";
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s'%s'", i == 0 ? "" : i == n - 1 ? " or " : ", ",
                 words[i]);
    refuse(p, name, "1 validation error:\n  body.%s: Input should be %s", name, list);
    return 0;
}

static const char *need_string(struct problem *p, const json_t *body, const char *name)
{
    const json_t *v = json_object_get(body, name);
    if (!v)
        refuse(p, name, "1 validation error:\n  body.%s: Field required", name);
    else if (!json_is_string(v))
        refuse(p, name, "1 validation error:\n  body.%s: Input should be a valid string", name);
    return json_is_string(v) ? json_string_value(v) : "";
}

static void read_options(struct problem *p, const json_t *v, struct request *r, struct ask *a)
{
    if (!v || json_is_null(v))
        return;
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        refuse(p, "options", "1 validation error:\n  body.options: Input should be a valid list");
    const char **options = n ? arena_alloc(&r->arena, n * sizeof *options) : NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(v, i);
        if (!json_is_string(o))
            refuse(p, "options", "1 validation error:\n  body.options.%zu: Input should be a valid string", i);
        options[i] = json_string_value(o);
    }
    if (a->kind != DECIDE_ENUM)
        return;
    a->options = options;
    a->noptions = n;
}

static void refuse_image(struct problem *p)
{
    refuse(p, NULL, "images need a model with a vision tower, and this one has none; send text");
}

// One element of a state that is an array.
static void add_part(struct problem *p, const json_t *v, struct buf *out)
{
    const json_t *type = json_object_get(v, "type"), *text = json_object_get(v, "text");
    const char *t = json_is_string(type) ? json_string_value(type) : "";
    if (json_is_string(v))
        buf_add(out, json_string_value(v), json_string_length(v));
    else if (json_object_get(v, "image") || !strcmp(t, "image_url"))
        refuse_image(p);
    else if (!strcmp(t, "text") && json_is_string(text))
        buf_add(out, json_string_value(text), json_string_length(text));
    else
        api_pyjson_dump(out, v);
}

static const char *read_state(struct problem *p, const json_t *v, struct request *r)
{
    if (!v)
        return "";
    if (json_is_string(v) || json_is_object(v))
        return api_judge_text(r, v);
    if (!json_is_array(v)) {
        refuse(p, "state", "1 validation error:\n  body.state: Input should be a valid string, dictionary or list");
        return "";
    }
    struct buf b;
    buf_init(&b, MAX_STATE);
    for (size_t i = 0; i < json_array_size(v); i++)
        add_part(p, json_array_get(v, i), &b);
    return api_judge_keep(r, &b);
}

// What belongs to the reasoning stage: right types first, then whether it asks for anything.
static void check_second_stage(struct problem *p, const json_t *body, enum decide_kind kind)
{
    static const char *const strategies[] = {"auto", "single", "tournament", "permute"};
    static const char *const thinkings[] = {"default", "off", "auto", "on"};
    const json_t *v = json_object_get(body, "strategy");
    int strategy = v && !json_is_null(v) ? choose(p, v, "strategy", strategies, 4) : 0;
    v = json_object_get(body, "thinking");
    int thinking = v && !json_is_null(v) ? choose(p, v, "thinking", thinkings, 4) : 0;
    if (strategy > 1)
        refuse(p, NULL, "strategy '%s' is not built, expected 'single' or 'auto'", strategies[strategy]);
    if (thinking > 1 && kind == DECIDE_INT)
        refuse(p, NULL, "thinking is supported for noul and choice");
    if (thinking > 1)
        refuse(p, NULL, "thinking '%s' is not built, expected 'off' or 'default'", thinkings[thinking]);
    if (json_is_true(json_object_get(body, "system2_only")))
        refuse(p, NULL, "system2_only is not built");
    v = json_object_get(body, "reasoning_effort");
    if (v && !json_is_null(v))
        refuse(p, NULL, "reasoning_effort is not supported by this model");
}

static void check_attachments(struct problem *p, const json_t *v)
{
    if (!v || json_is_null(v))
        return;
    const json_t *images = json_object_get(v, "images");
    if (!json_is_object(v) || (images && !json_is_array(images)))
        refuse(p, "attachments", "1 validation error:\n  body.attachments: Input should be {\"images\": [...]}");
    if (json_array_size(images))
        refuse_image(p);
}

static void check_count(struct problem *p, const struct judge *j)
{
    const struct ask *a = &j->asks[0];
    int most = j->model->max_options;
    if (a->kind == DECIDE_ENUM && (a->noptions < 2 || a->noptions > (size_t)most))
        refuse(p, NULL, "choice needs 2-%d options, got %zu", most, a->noptions);
}

// ---- the answer

static const char *option(const struct ask *a, int i)
{
    return a->kind == DECIDE_ENUM ? a->options[i] : a->kind == DECIDE_BOOL ? bools[i] : ints[i];
}

static void write(const struct judge *j, struct buf *out)
{
    const struct ask *a = &j->asks[0];
    const char *kind = kinds[a->kind];
    buf_printf(out, "{\"kind\":\"%s\",\"effective_kind\":\"%s\",\"options\":[", kind, kind);
    for (int i = 0; i < (int)a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        api_jsonout_text(out, option(a, i));
    }
    buf_add_str(out, "],\"probabilities\":[");
    for (size_t i = 0; i < a->n; i++) {
        if (i)
            buf_add_char(out, ',');
        api_pyjson_float(out, a->p[i]);
    }
    buf_printf(out, "],\"choice_index\":%d,\"choice\":", a->best);
    api_jsonout_text(out, option(a, a->best));
    buf_printf(out, ",\"adaptation\":\"%s\",\"protocol\":\"%s\",\"model\":",
               !a->native ? "labels" : a->wide ? "wide-labels" : "native", a->native ? trained : untrained);
    api_jsonout_text(out, j->model->name);
    const struct usage *u = &j->usage;
    buf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}", u->prompt_tokens,
               u->completion_tokens, u->prompt_tokens + u->completion_tokens);
    buf_add_str(out, ",\"elapsed_seconds\":");
    api_pyjson_float(out, (double)(clock_ns() - j->r->received_ns) * 1e-9);
    buf_printf(out, ",\"num_model_requests\":1,\"native\":%s,\"mass\":", a->native ? "true" : "false");
    api_judge_mass(a, out);
    buf_add_char(out, '}');
}

// ---- handlers

// Everything about the form of the body.
static void read_body(struct problem *p, struct request *r, struct judge *j)
{
    struct ask *a = &j->asks[0];
    const json_t *kind = json_object_get(r->json, "kind");
    if (!kind)
        refuse(p, "kind", "1 validation error:\n  body.kind: Field required");
    else
        a->kind = (enum decide_kind)choose(p, kind, "kind", kinds, 3);
    a->text = need_string(p, r->json, "question");
    j->state = read_state(p, json_object_get(r->json, "state"), r);
    read_options(p, json_object_get(r->json, "options"), r, a);
}

static const struct field decide_fields[] = {
    {"kind", FIELD_HONOURED, "!string: noul score choice"},
    {"state", FIELD_HONOURED, "string|object|array"},
    {"question", FIELD_HONOURED, "!string"},
    {"options", FIELD_HONOURED, "[string]"},
    {"model", FIELD_HONOURED, "string"},
    {"strategy", FIELD_HONOURED, "string: auto single"},
    {"thinking", FIELD_HONOURED, "string: default off"},
    {"system2_only", FIELD_HONOURED, "boolean"},
    {"reasoning_effort", FIELD_HONOURED, "null"},
    {"attachments", FIELD_HONOURED, "object"},
    {"threshold", FIELD_ACCEPTED, 0},
    {"think_budget", FIELD_ACCEPTED, 0},
    {"chat_template_kwargs", FIELD_ACCEPTED, 0},
    {"return_reasoning", FIELD_ACCEPTED, 0},
    {"debug", FIELD_ACCEPTED, 0},
};
API_BODY(api_decide_create, decide_fields, caller);

void api_decide_create(struct request *r)
{
    struct fields f;
    struct problem p = {0};
    struct judge *j = api_judge_new(r, 1);
    api_fields_init(&f, r);
    api_fields_check(&f, &api_decide_create_body);
    read_body(&p, r, j);
    if (!p.set && !f.failed && api_judge_model(j, &f)) {
        check_count(&p, j);
        check_second_stage(&p, r->json, j->asks[0].kind);
        check_attachments(&p, json_object_get(r->json, "attachments"));
    }
    j->write = write;
    j->fail = fail;
    if (p.set)
        reply_refusal(r, p.text, p.param);
    else if (f.failed)
        api_fields_reply(&f);
    else
        api_judge_start(j);
}

// The model named in the query, else the first that decides.
static bool find_model(struct request *r, struct fields *f, struct judge *j)
{
    const char *name = request_query(r, "model");
    json_t *object = name ? json_pack("{s:s}", "model", name) : json_object();
    f->object = object;
    bool ok = object && api_judge_model(j, f);
    json_decref(object);
    f->object = NULL;
    return ok;
}

void api_decide_info(struct request *r)
{
    struct fields f;
    struct judge *j = api_judge_new(r, 1);
    const struct model_info *m = j->model;
    api_fields_init(&f, r);
    if (!find_model(r, &f, j)) {
        api_fields_reply(&f);
        return;
    }
    json_t *temperatures = json_pack("{s:f, s:f, s:f}", "noul", m->temperatures[DECIDE_BOOL], "score",
                                     m->temperatures[DECIDE_INT], "choice", m->temperatures[DECIDE_ENUM]);
    json_t *defaults = json_pack("{s:s, s:s, s:n, s:n, s:n}", "strategy", "single", "thinking", "off", "threshold", "mix",
                                 "think_budget");
    reply_json(r, 200, json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:{}, s:b}", "protocol", m->native_decisions ? trained : untrained, "model", m->name,
                                 "model_type", m->family, "max_options", m->max_options, "native_choice_options",
                                 m->trained_options, "temperatures", temperatures, "defaults", defaults,
                                 "reasoning_controls", "native", m->native_decisions));
}
