// responses.c - POST /v1/responses and /v1/responses/input_tokens.
//
//     fields (loop thread) ──▶ earlier items from the store (thread pool) ──▶ messages, task (loop thread)
//                       └───── none are asked for ────────────────────────────▲
//
// The second step may wait for the disk and parses much JSON; only it runs meanwhile. Items: responses_items.h; the answer:
// responses_answer.h; what is kept: stored.h.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/api/fields.h"
#include "server/api/generate.h"
#include "server/api/handlers.h"
#include "server/api/job.h"
#include "server/api/messages.h"
#include "server/api/responses_answer.h"
#include "server/api/responses_items.h"
#include "server/api/stored.h"
#include "server/api/structured.h"
#include "server/request.h"
#include "server/responses.h"
#include "server/server.h"

// A request between its steps, in its arena.
struct asked {
    struct fields f;
    struct generation *g;
    struct api_answer *answer;
    bool count;        // only the prompt's tokens
    bool gone;         // nobody waits any more
    json_t *list;      // "input" as items
    json_t *resolved;  // the same without references; NULL: there are none
    json_t *earlier;   // items before it; NULL: none
    json_t *kwargs;    // what the template sees beside the messages; NULL: nothing
    struct api_stored_problem problem;
    struct api_job job;  // with count
    size_t ntokens;
};

static const struct field responses_fields[] = {
    {"input", FIELD_HONOURED, "string|[object]"},
    {"instructions", FIELD_HONOURED, "string"},
    {"max_output_tokens", FIELD_HONOURED, "integer 1.."},
    {"top_logprobs", FIELD_HONOURED, "integer 0..20"},
    {"include", FIELD_HONOURED, "[string]"},
    {"text", FIELD_HONOURED, "object"},
    {"tools", FIELD_HONOURED, "[object]"},
    {"tool_choice", FIELD_HONOURED, "string|object"},
    {"parallel_tool_calls", FIELD_HONOURED, "boolean"},
    API_REASONING_FIELDS,
    {"chat_template_kwargs", FIELD_HONOURED, "object"},
    {"store", FIELD_HONOURED, "boolean"},
    {"previous_response_id", FIELD_HONOURED, "string"},
    {"metadata", FIELD_HONOURED, "object"},
    {"truncation", FIELD_HONOURED, "string: disabled auto"},
    {"max_tool_calls", FIELD_HONOURED, "integer 1.."},

    {"background", FIELD_REFUSED, NEUTRAL_FALSE},
    {"conversation", FIELD_REFUSED, NEUTRAL_NULL},
    {"prompt", FIELD_REFUSED, NEUTRAL_NULL},
    {"moderation", FIELD_REFUSED, NEUTRAL_NULL},
    {"context_management", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"logprobs", FIELD_REFUSED, NEUTRAL_FALSE},         // "include" asks for them here
    {"return_progress", FIELD_REFUSED, NEUTRAL_FALSE},  // clients end at events they do not know
    {"timings_per_token", FIELD_REFUSED, NEUTRAL_FALSE},
    {"return_token_ids", FIELD_REFUSED, NEUTRAL_FALSE},
};
API_BODY(api_responses_create, responses_fields, generate);
API_BODY(api_responses_count, responses_fields, generate);

static void drop_json(void *v)
{
    json_decref(v);
}

// ---- fields

static bool one_of(struct fields *f, const json_t *v, const char *path, const char *const *values, const char *listed)
{
    const char *s;
    if (!v || json_is_null(v) || !api_fields_as_string(f, v, path, &s))
        return false;
    for (; *values; values++)
        if (!strcmp(s, *values))
            return true;
    api_fields_fail(f, "invalid_value", path, "Invalid value: '%.60s'. Supported values are: %s.", s, listed);
    return false;
}

static void read_include(struct fields *f, struct generation *g, struct api_answer *a)
{
    static const char *const known[] = {"message.output_text.logprobs", "reasoning.encrypted_content",
                                        "file_search_call.results", "web_search_call.results",
                                        "web_search_call.action.sources", "message.input_image.image_url",
                                        "computer_call_output.output.image_url", "code_interpreter_call.outputs", NULL};
    const json_t *list = NULL, *v;
    int top = 0;
    size_t i;
    api_fields_small(f, "top_logprobs", &top);
    api_fields_array(f, "include", &list);
    json_array_foreach(list, i, v) {
        const char *path = i < 1000 ? arena_printf(&f->r->arena, "include[%zu]", i) : "include";
        if (!json_is_string(v))
            api_fields_wrong_type(f, v, path, "a string");
        else if (!one_of(f, v, path, known, "'message.output_text.logprobs' and 'reasoning.encrypted_content'"))
            return;
        else if (!strcmp(json_string_value(v), known[0]))
            g->settings.logprobs = top;
        else if (!strcmp(json_string_value(v), known[1]))
            a->encrypted = true;
    }
}

static void read_text(struct fields *f, struct generation *g)
{
    static const char *const levels[] = {"low", "medium", "high", NULL};
    const json_t *text;
    if (!api_fields_object(f, "text", &text))
        return;
    const json_t *format = json_object_get(text, "format");
    if (format && !json_is_null(format))
        api_structured_flat(f, &g->r->arena, format, &g->settings.grammar);
    one_of(f, json_object_get(text, "verbosity"), "text.verbosity", levels, "'low', 'medium' and 'high'");
}

static void read_reasoning(struct fields *f, struct generation *g, struct api_answer *a)
{
    static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
    const json_t *o = api_fields_get(f, "reasoning");
    api_reasoning_read(f, &a->reasoning);
    g->settings.reasoning_max = a->reasoning.max;
    g->settings.split = !a->reasoning.raw;
    if (a->reasoning.raw && a->tools.list)
        api_fields_fail(f, "invalid_value", "reasoning_format",
                        "Invalid 'reasoning_format': with tools the answer is told apart; 'none' is not possible.");
    static const char *const names[][2] = {{"summary", "reasoning.summary"}, {"generate_summary", "reasoning.generate_summary"}};
    for (int i = 0; i < 2; i++)
        a->summary |= one_of(f, json_object_get(o, names[i][0]), names[i][1], summaries, "'auto', 'concise' and 'detailed'");
}

static void read_truncation(struct fields *f)
{
    const char *s;
    if (!api_fields_string(f, "truncation", &s) || !strcmp(s, "disabled"))
        return;
    if (!strcmp(s, "auto"))
        api_fields_fail(f, "unsupported_value", "truncation", "Unsupported value: 'truncation' of 'auto' is not supported by this "
                        "server, which never drops a part of the input. Supported is 'disabled'.");
    else
        api_fields_fail(f, "invalid_value", "truncation", "Invalid value: '%.40s'. Supported values are: 'disabled'.", s);
}

static void read_others(struct fields *f, struct generation *g, struct api_answer *a)
{
    static const char *const texts[] = {"instructions", "user", "safety_identifier", "prompt_cache_key"};
    const json_t *ignored;
    const char *text;
    int64_t calls;
    a->store = true;
    api_fields_bool(f, "store", &a->store);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        api_fields_string(f, texts[i], &text);
    api_fields_string(f, "previous_response_id", &a->previous);
    api_fields_int(f, "max_tool_calls", &calls);  // of hosted tools, of which there are none
    api_fields_object(f, "metadata", &ignored);
    if (g->settings.n != 1)
        api_fields_fail(f, "unsupported_value", "n", "Unsupported value: 'n' must be 1; a response is one answer.");
}

static void read_fields(struct asked *q)
{
    struct fields *f = &q->f;
    struct generation *g = q->g;
    struct api_answer *a = q->answer;
    api_generate_read(g, f, CAN_CHAT);
    if (!api_generate_limit(g, f, "max_output_tokens"))
        api_generate_limit(g, f, "max_tokens");
    api_tools_read(f, &g->r->arena, TOOLS_FLAT, &a->tools);
    g->tools = &a->tools;
    g->settings.tools = a->tools.rules;
    read_reasoning(f, g, a);
    read_text(f, g);
    read_include(f, g, a);
    read_truncation(f);
    read_others(f, g, a);
    q->kwargs = api_messages_kwargs(f);
    arena_defer(&g->r->arena, drop_json, q->kwargs);
    q->list = api_responses_items_list(f, a->previous != NULL);
    arena_defer(&g->r->arena, drop_json, q->list);
}

// ---- what the answer repeats of the request

static void set_given(json_t *o, const struct fields *f, const char *name, json_t *otherwise)
{
    const json_t *v = api_fields_get(f, name);
    json_object_set_new(o, name, v ? json_incref((json_t *)v) : json_incref(otherwise));
    json_decref(otherwise);
}

// Tools as this endpoint writes them, whichever way they came.
static json_t *flat_tools(const struct fields *f)
{
    json_t *list = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)api_fields_get(f, "tools"), i, tool) {
        json_t *type = json_object_get(tool, "type"), *inner = json_object_get(tool, json_string_value(type));
        json_t *flat = json_copy(json_is_object(inner) ? inner : tool);
        json_object_set(flat, "type", type);
        if (!json_object_get(flat, "strict") && !strcmp(json_string_value(type), "function"))
            json_object_set_new(flat, "strict", json_null());
        json_array_append_new(list, flat);
    }
    return list;
}

static json_t *text_settings(const struct fields *f)
{
    const json_t *text = api_fields_get(f, "text"), *format = json_object_get(text, "format");
    const json_t *verbosity = json_object_get(text, "verbosity");
    json_t *o = json_object();
    json_object_set_new(o, "format", format && !json_is_null(format) ? json_incref((json_t *)format)
                                                                     : json_pack("{s:s}", "type", "text"));
    json_object_set_new(o, "verbosity", json_is_string(verbosity) ? json_incref((json_t *)verbosity) : json_string("medium"));
    return o;
}

static json_t *reasoning_settings(const struct fields *f, const struct api_answer *a)
{
    const json_t *summary = json_object_get(api_fields_get(f, "reasoning"), "summary");
    json_t *o = json_pack("{s:s?}", "effort", a->reasoning.effort);
    json_object_set_new(o, "summary", json_is_string(summary) ? json_incref((json_t *)summary)
                                      : a->summary ? json_string("auto") : json_null());
    return o;
}

static json_t *echo_of(const struct asked *q)
{
    const struct fields *f = &q->f;
    json_t *o = json_object();
    set_given(o, f, "instructions", json_null());
    set_given(o, f, "max_output_tokens", json_null());
    set_given(o, f, "max_tool_calls", json_null());
    set_given(o, f, "parallel_tool_calls", json_true());
    set_given(o, f, "previous_response_id", json_null());
    set_given(o, f, "prompt_cache_key", json_null());
    json_object_set_new(o, "reasoning", reasoning_settings(f, q->answer));
    set_given(o, f, "safety_identifier", json_null());
    set_given(o, f, "temperature", json_real(1));
    json_object_set_new(o, "text", text_settings(f));
    set_given(o, f, "tool_choice", json_string("auto"));
    json_object_set_new(o, "tools", flat_tools(f));
    set_given(o, f, "top_logprobs", json_integer(0));
    set_given(o, f, "top_p", json_real(1));
    json_object_set_new(o, "truncation", json_string("disabled"));
    set_given(o, f, "user", json_null());
    set_given(o, f, "metadata", json_object());
    return o;
}

// ,"name":value ... : members without their braces.
static const char *echo_text(const struct asked *q)
{
    json_t *o = echo_of(q);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(o);
    if (!text)
        return "";
    text[0] = ',';
    text[strlen(text) - 1] = 0;
    arena_defer(&q->g->r->arena, free, text);
    return text;
}

// ---- the prompt

static void keep_input(struct asked *q)
{
    struct api_answer *a = q->answer;
    struct arena *arena = &q->g->r->arena;
    json_t *kept = api_responses_items_kept(q->list);
    arena_defer(arena, drop_json, kept);
    a->input = kept;
    a->ninput = json_array_size(kept);
    a->input_ids = arena_alloc(arena, (a->ninput + 1) * sizeof *a->input_ids);
    for (size_t i = 0; i < a->ninput; i++)
        a->input_ids[i] = json_string_value(json_object_get(json_array_get(kept, i), "id"));
}

// Messages of the whole conversation; a new reference, NULL after a failure.
static json_t *read_messages(struct asked *q)
{
    size_t nearlier = json_array_size(q->earlier);
    json_t *items = nearlier ? json_copy(q->earlier) : json_array();
    const struct api_responses_reader reader = {responses_secret(q->answer->kept), RESPONSES_SECRET};
    const json_t *instructions = api_fields_get(&q->f, "instructions");
    json_array_extend(items, q->list);
    json_t *messages = api_responses_items_messages(&q->f, &reader, items, nearlier);
    json_decref(items);
    if (messages && instructions)
        json_array_insert_new(messages, 0, json_pack("{s:s, s:O}", "role", "system", "content", instructions));
    if (messages && !json_array_size(messages)) {
        api_fields_fail(&q->f, "invalid_value", "input", "Invalid 'input': there is no message in it.");
        json_decref(messages);
        return NULL;
    }
    return messages;
}

static void fill_prompt(const struct asked *q, struct task *t, json_t *messages, struct prompt *p)
{
    p->messages = api_messages_own(&t->arena, messages);
    p->kwargs = api_messages_own(&t->arena, q->kwargs);
    p->tools = api_messages_own(&t->arena, q->answer->tools.list);
    p->add_generation_prompt = true;
}

// ---- counting

static struct asked *asked_of(struct api_job *job)
{
    return (struct asked *)((char *)job - offsetof(struct asked, job));
}

static void on_count(struct api_job *job, const struct event *ev)
{
    if (ev->kind == EVENT_IDS)
        asked_of(job)->ntokens = ev->nids;
}

static void answer_count(struct api_job *job)
{
    const struct asked *q = asked_of(job);
    err e = job->error;
    if (!e.code) {
        reply_json(job->r, 200, json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens", (json_int_t)q->ntokens));
        return;
    }
    api_responses_answer_format.word(q->g, &e);
    api_fields_clean(e.text);
    reply_error(job->r, &e);
}

static void start_count(struct asked *q, json_t *messages)
{
    api_job_init(&q->job, q->g->r, on_count, answer_count);
    api_job_read(&q->job, &q->f);
    struct task *t = api_job_task(&q->job, TASK_TOKENIZE, q->g->model->name);
    fill_prompt(q, t, messages, &t->tokenize.prompt);
    api_job_start(&q->job, t);
}

// ---- the steps

static void start_answer(struct asked *q, json_t *messages)
{
    struct task *t = api_generate_add(q->g);
    fill_prompt(q, t, messages, &t->generate.prompt);
    keep_input(q);
    q->answer->echo = echo_text(q);
    if (q->answer->store && responses_failing(q->answer->kept))
        request_set_header(q->g->r, "x-oxinferd-store", "memory");
    api_generate_start(q->g);
}

static void start(struct asked *q)
{
    json_t *messages = read_messages(q);
    if (q->f.failed)
        api_fields_reply(&q->f);
    else if (q->count)
        start_count(q, messages);
    else
        start_answer(q, messages);
    json_decref(messages);
}

static void on_gone(struct request *r)
{
    struct asked *q = r->ud;
    q->gone = true;
}

// On a thread of the pool; the arena is the loop's.
static void look_up(struct request *r)
{
    struct asked *q = r->ud;
    const struct api_answer *a = q->answer;
    q->resolved = api_stored_resolve(a->kept, a->owner, q->list, &q->problem);
    if (q->resolved && a->previous)
        q->earlier = api_stored_conversation(a->kept, a->owner, a->previous, &q->problem);
}

static void looked_up(struct request *r)
{
    struct asked *q = r->ud;
    r->on_gone = NULL;
    arena_defer(&r->arena, drop_json, q->resolved);
    arena_defer(&r->arena, drop_json, q->earlier);
    q->list = q->resolved;
    if (q->gone)
        err_set(&q->problem.e, ERR_CANCELLED, "the client has gone");
    if (!q->problem.e.code)
        start(q);
    else if (q->gone || q->problem.status == 500)
        reply_error(r, &q->problem.e);
    else
        reply_problem(r, q->problem.status, "invalid_request_error", q->problem.code, &q->problem.e);
}

static bool refers(const json_t *list)
{
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)list, i, item)
        if (api_responses_items_reference(item))
            return true;
    return false;
}

static void create(struct request *r, bool count)
{
    struct asked *q = arena_alloc(&r->arena, sizeof *q);
    q->count = count;
    api_fields_init(&q->f, r);
    api_fields_check(&q->f, &api_responses_create_body);
    q->g = api_generate_new(r, &api_responses_answer_format);
    q->answer = api_responses_answer_new(q->g);
    q->answer->kept = responses_ref(server_responses(r->server));
    q->answer->owner = api_stored_owner(r);
    read_fields(q);
    if (q->f.failed) {
        api_fields_reply(&q->f);
        return;
    }
    if (!q->answer->previous && !refers(q->list)) {
        start(q);
        return;
    }
    r->ud = q;
    r->on_gone = on_gone;
    request_work(r, look_up, looked_up);
}

void api_responses_create(struct request *r)
{
    create(r, false);
}

void api_responses_count(struct request *r)
{
    create(r, true);
}
