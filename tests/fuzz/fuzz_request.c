// Any bytes as the body of a request: the first ('0' to '4') chooses the endpoint, the rest is JSON, read as the server reads it. The
// handler answers once, or hands over tasks; those are then played to their end, so that answers are written too. The
// engine and the transport are replaced by what stands here.
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "server/api/handlers.h"
#include "server/body.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_TASKS = 64 };

static struct {
    struct task *tasks[MAX_TASKS];
    int ntasks, answers;
} run;

// ---- what the handlers call

struct task *task_new(enum task_kind kind)
{
    struct task *t = mem_new(sizeof *t);
    t->kind = kind;
    if (kind == TASK_GENERATE)
        t->generate = (struct generate){.n = 1, .max_tokens = -1, .logprobs = -1,
                                        .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    return t;
}

void task_free(struct task *t)
{
    arena_done(&t->arena);
    free(t);
}

err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e)
{
    (void)en;
    if (run.ntasks == MAX_TASKS)
        return err_set(e, ERR_BUSY, "too many");
    *ret_ticket = (struct ticket){(uint32_t)run.ntasks, 1};
    run.tasks[run.ntasks++] = t;
    return ERR_OK;
}

void engine_cancel(struct engine *en, struct ticket ticket)
{
    (void)en, (void)ticket;
}

bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info)
{
    (void)en;
    *ret_info = (struct model_info){.name = "m", .family = "llama", .format = "gguf", .can = CAN_CHAT | CAN_COMPLETE,
                                    .state = MODEL_READY, .context = 512, .vocab = 300};
    return !strcmp(name, "m");
}

err_code engine_room(struct engine *en, const char *account, size_t bytes, err *e)
{
    (void)en, (void)account, (void)bytes, (void)e;
    return ERR_OK;
}

err_code engine_load_model(struct engine *en, const char *name, err *e)
{
    (void)en, (void)name, (void)e;
    return ERR_OK;
}

err_code engine_unload_model(struct engine *en, const char *name, err *e)
{
    (void)en, (void)name, (void)e;
    return ERR_OK;
}

void request_again(struct request *r)
{
    (void)r;
}

int engine_models(struct engine *en, struct model_info *ret_infos, int max)
{
    if (max > 0)
        (void)engine_find_model(en, "m", ret_infos);
    return 1;
}

struct engine *server_engine(struct server *s)
{
    return (struct engine *)s;
}

const struct server_config *server_settings(const struct server *s)
{
    static const struct server_config settings = {.max_prompts = 40};
    (void)s;
    return &settings;
}

const char *request_header(const struct request *r, const char *name)
{
    (void)r, (void)name;
    return NULL;
}

void request_set_header(struct request *r, const char *name, const char *value)
{
    (void)r;
    if (strpbrk(name, "\r\n") || strpbrk(value, "\r\n"))
        abort();
}

void request_problem(struct request *r, const err *e)
{
    (void)r, (void)e;
}

void request_note(struct request *r, const struct request_facts *facts)
{
    (void)r, (void)facts;
}

void reply_json(struct request *r, int status, struct json_t *body)
{
    (void)r;
    if (!body || status < 200 || status == 500)
        abort();
    run.answers++;
    json_decref(body);
}

void reply_text(struct request *r, int status, const char *type, const char *text, size_t len)
{
    (void)type;
    reply_json(r, status, json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL));
}

struct json_t *reply_error_json(const err *e)
{
    return json_pack("{s:s, s:s}", "message", e->text, "param", e->param);
}

void reply_problem(struct request *r, int status, const char *type, const char *code, const err *e)
{
    (void)type, (void)code;
    reply_json(r, status, reply_error_json(e));
}

void reply_error(struct request *r, const err *e)
{
    reply_json(r, e->code == ERR_INTERNAL ? 500 : 400, reply_error_json(e));
}

void reply_error_code(struct request *r, const err *e, const char *code)
{
    (void)code;
    reply_error(r, e);
}

struct sse *reply_sse(struct request *r)
{
    return (struct sse *)r;
}

bool sse_send_named(struct sse *s, const char *name, const char *data, size_t len)
{
    (void)s, (void)name;
    json_t *event = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
    if (!event || memchr(data, '\n', len))
        abort();
    json_decref(event);
    return true;
}

bool sse_send(struct sse *s, const char *data, size_t len)
{
    return sse_send_named(s, NULL, data, len);
}

bool sse_send_json(struct sse *s, struct json_t *event)
{
    (void)s;
    json_decref(event);
    return true;
}

void sse_end(struct sse *s, bool with_done)
{
    (void)s, (void)with_done;
    run.answers++;
}

// ---- the engine's part

static void emit(struct task *t, struct event ev)
{
    t->on_event(t, &ev);
}

// A thought, a call of the first tool, and one that is cut.
static void play_calls(struct task *t, int choice)
{
    const json_t *function = json_object_get(json_array_get(t->generate.prompt.tools, 0), "function");
    struct event ev = {.kind = EVENT_TEXT, .choice = choice, .channel = CHANNEL_CALL, .text = "{\"input\":\"\\u00e9", .len = 16};
    if (t->generate.split)
        emit(t, (struct event){.kind = EVENT_TEXT, .choice = choice, .channel = CHANNEL_REASONING, .text = "hm", .len = 2});
    if (!function)
        return;
    ev.name = json_string_value(json_object_get(function, "name"));
    emit(t, ev);
    emit(t, (struct event){.kind = EVENT_TEXT, .choice = choice, .channel = CHANNEL_CALL, .call_ends = true, .text = "\"}", .len = 2});
    ev.call = 1;
    emit(t, ev);
}

static void play_generation(struct task *t)
{
    const struct token_alternative top[] = {{.id = 5, .bytes = "\xf0\x9f", .len = 2, .logprob = -1},
                                            {.id = 6, .bytes = "\"", .len = 1, .logprob = -2},
                                            {.id = 7, .logprob = -3}};  // a model without a tokenizer
    const struct token_logprob tokens[] = {{top[0], top, t->generate.logprobs > 1 ? 3 : 0, 1, true},
                                           {top[2], top, t->generate.logprobs > 1 ? 2 : 0, 3, false}};
    for (int i = 0; i < t->generate.n; i++) {
        emit(t, (struct event){.kind = EVENT_TEXT, .choice = i, .text = "a\"\n", .len = 3, .tokens = tokens,
                               .ntokens = t->generate.logprobs >= 0 ? 2 : 0});
        play_calls(t, i);
        emit(t, (struct event){.kind = EVENT_FINISH, .choice = i, .finish = t->generate.prompt.tools ? FINISH_CALLS : FINISH_STOP});
    }
}

static void play(struct task *t)
{
    static const int32_t ids[] = {1, 2};
    const struct token_alternative pieces[] = {{.bytes = "a", .len = 1}, {.bytes = "\xff", .len = 1}};
    emit(t, (struct event){.kind = EVENT_START, .usage = {3, 0, 0, 0}});
    if (t->kind == TASK_GENERATE)
        play_generation(t);
    else if (t->kind == TASK_TOKENIZE)
        emit(t, (struct event){.kind = EVENT_IDS, .ids = ids, .nids = 2, .pieces = t->tokenize.with_pieces ? pieces : NULL});
    else
        emit(t, (struct event){.kind = EVENT_TEXT, .text = "text", .len = 4});
    emit(t, (struct event){.kind = EVENT_END, .usage = {3, 0, 1, 0}});
    task_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const handlers[])(struct request *r) = {api_chat_create, api_completions_create, api_tokenize_encode,
                                                          api_tokenize_decode, api_tokenize_render};
    char field[16];
    body_field_at((const char *)data, size, field, sizeof field);  // reads any text
    if (size < 1 || body_too_many_values((const char *)data + 1, size - 1, 1 << 16, 1 << 14))
        return 0;
    json_t *json = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(json)) {
        struct request r = {.path = "/", .method = "POST", .tail = "", .key_id = "", .peer = "", .id = "req_1", .json = json};
        memset(&run, 0, sizeof run);
        handlers[(uint8_t)(data[0] - '0') % (sizeof handlers / sizeof *handlers)](&r);
        for (int i = 0; i < run.ntasks; i++)
            play(run.tasks[i]);
        if (run.answers != 1)
            abort();
        arena_done(&r.arena);
    }
    json_decref(json);
    return 0;
}
