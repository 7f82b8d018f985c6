// tokenize.c - POST /tokenize, /detokenize and /apply-template, as llama-server answers them, and the first two also as
// vLLM does (its fields `prompt` and `messages`): one engine task each, whose events are collected and answered when it ends.
//
// The collector lives in the request's arena. The handler fills it on the loop thread; after the submit only the engine
// thread that runs the task's events touches it, except for the ticket, which only the loop thread does.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/api/caller.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/messages.h"
#include "server/api/models.h"
#include "server/api/reasoning.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_ANSWER = 256 << 20 };

struct collector {
    struct request *r;
    const char *name;  // the answer's one field
    bool pieces;
    uint64_t limit;    // 0, or what one request may have: the answer is vLLM's
    size_t count;
    struct buf out;    // text, or the elements of an array
    struct ticket ticket;
};

// ---- events

static void add_piece(struct collector *c, int32_t id, const struct token_alternative *piece)
{
    buf_printf(&c->out, "{\"id\":%d,\"piece\":", (int)id);
    if (utf8_valid(piece->bytes, piece->len)) {
        api_jsonout_string(&c->out, piece->bytes, piece->len);
    } else {
        for (size_t i = 0; i < piece->len; i++)
            buf_printf(&c->out, "%c%d", i ? ',' : '[', (unsigned char)piece->bytes[i]);
        buf_add_char(&c->out, ']');
    }
    buf_add_char(&c->out, '}');
}

static void add_ids(struct collector *c, const struct event *ev)
{
    c->count += ev->nids;
    for (size_t i = 0; i < ev->nids; i++) {
        if (c->out.len)
            buf_add_char(&c->out, ',');
        if (c->pieces && ev->pieces)
            add_piece(c, ev->ids[i], &ev->pieces[i]);
        else
            buf_printf(&c->out, "%d", (int)ev->ids[i]);
    }
}

static void answer(struct collector *c, bool text)
{
    struct buf json;
    buf_init(&json, MAX_ANSWER);
    buf_printf(&json, "{\"%s\":", c->name);
    if (text) {
        api_jsonout_string(&json, c->out.data ? c->out.data : "", c->out.len);
    } else {
        buf_add_char(&json, '[');
        buf_add(&json, c->out.data ? c->out.data : "", c->out.len);
        buf_add_char(&json, ']');
    }
    if (text && !strcmp(c->name, "content")) {  // vLLM's name for it
        buf_add_str(&json, ",\"prompt\":");
        api_jsonout_string(&json, c->out.data ? c->out.data : "", c->out.len);
    }
    if (c->limit)
        buf_printf(&json, ",\"count\":%zu,\"max_model_len\":%llu,\"token_strs\":null", c->count, (unsigned long long)c->limit);
    buf_add_char(&json, '}');
    if (json.over || c->out.over) {
        err e;
        err_set(&e, ERR_INTERNAL, "the answer is larger than %d MB", MAX_ANSWER >> 20);
        reply_error(c->r, &e);
    } else {
        reply_text(c->r, 200, "application/json", json.data, json.len);
    }
    buf_done(&json);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct collector *c = t->ud;
    if (ev->kind == EVENT_TEXT) {
        buf_add(&c->out, ev->text, ev->len);
    } else if (ev->kind == EVENT_IDS) {
        add_ids(c, ev);
    } else if (ev->kind == EVENT_END && ev->error.code) {
        err e = ev->error;
        api_fields_clean(e.text);
        reply_error(c->r, &e);
    } else if (ev->kind == EVENT_END) {
        answer(c, t->kind != TASK_TOKENIZE);
    }
}

static void on_gone(struct request *r)
{
    const struct collector *c = r->ud;
    engine_cancel(server_engine(r->server), c->ticket);
}

// ---- submitting

static void release(void *object)
{
    struct collector *c = object;
    buf_done(&c->out);
}

static struct task *make_task(enum task_kind kind, const struct model_info *model)
{
    struct task *t = task_new(kind);
    t->model = arena_strdup(&t->arena, model->name);
    return t;
}

// Takes the task, which is NULL when f has failed.
static void start(struct fields *f, struct task *t, const char *name, uint64_t limit)
{
    struct request *r = f->r;
    struct api_caller caller;
    api_caller_read(&caller, f);
    if (f->failed) {
        if (t)
            task_free(t);
        api_fields_reply(f);
        return;
    }
    api_caller_fill(&caller, t);
    struct collector *c = arena_alloc(&r->arena, sizeof *c);
    *c = (struct collector){.r = r, .name = name, .pieces = t->tokenize.with_pieces, .limit = limit};
    buf_init(&c->out, MAX_ANSWER);
    arena_defer(&r->arena, release, c);
    t->on_event = on_event;
    t->ud = c;
    r->ud = c;
    r->on_gone = on_gone;
    err e = {0};
    struct ticket ticket;
    if (engine_submit(server_engine(r->server), t, &ticket, &e)) {
        task_free(t);
        reply_error(r, &e);
    } else {
        c->ticket = ticket;
    }
}

// The text, as memory of the task.
static void read_content(struct fields *f, struct task *t, const char *name)
{
    const json_t *v = api_fields_get(f, name);
    size_t len = json_string_length(v);
    char *copy = mem_try(len + 1);
    if (!copy) {
        api_fields_fail(f, "invalid_value", name, "Invalid '%s': no memory for %zu bytes.", name, len);
        return;
    }
    memcpy(copy, json_string_value(v), len);
    arena_defer(&t->arena, free, copy);
    t->tokenize.prompt.text = copy;
    t->tokenize.prompt.text_len = len;
}

static void read_chat(struct fields *f, struct task *t)
{
    const json_t *tools = NULL;
    api_fields_array(f, "tools", &tools);
    api_messages_prompt(f, &t->arena, &t->tokenize.prompt);
    t->tokenize.prompt.tools = json_array_size(tools) ? api_messages_own(&t->arena, tools) : NULL;
}

// What goes with messages.
#define API_PROMPT_FIELDS                                                                                              \
    {"tools", FIELD_HONOURED, "[object]"}, {"documents", FIELD_HONOURED, "[object]"},                                  \
    {"add_generation_prompt", FIELD_HONOURED, "boolean"}, {"continue_final_message", FIELD_HONOURED, "boolean"},       \
    {"chat_template_kwargs", FIELD_HONOURED, "object"}

static const struct field encode_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"content", FIELD_HONOURED, "string"},
    {"prompt", FIELD_HONOURED, "string"},
    {"add_special", FIELD_HONOURED, "boolean"},
    {"add_special_tokens", FIELD_HONOURED, "boolean"},
    {"with_pieces", FIELD_HONOURED, "boolean"},
    {"return_token_strs", FIELD_REFUSED, NEUTRAL_FALSE},

    {"messages", FIELD_HONOURED, "[object]"},  // from here on: of a chat
    API_PROMPT_FIELDS,
    API_REASONING_FIELDS,
};
API_BODY(api_tokenize_encode, encode_fields, caller);

// Which of the three holds what is to be told in ids. What another one says would be lost: it is refused.
static const char *source(struct fields *f)
{
    const char *name = "content";
    bool chat = false;
    if (!api_fields_get(f, name))
        name = api_fields_get(f, "prompt") ? "prompt" : api_fields_get(f, "messages") ? "messages" : name;
    else if (api_fields_get(f, "prompt"))
        api_fields_fail(f, "invalid_value", "prompt", "Invalid 'prompt': 'content' is there as well. Only one of them may be.");
    for (size_t i = 0; strcmp(name, "messages") && i < sizeof encode_fields / sizeof *encode_fields; i++) {
        const char *field = encode_fields[i].name;
        chat = chat || !strcmp(field, "messages");
        if (chat && api_fields_get(f, field))
            api_fields_fail(f, "invalid_value", field, "Invalid '%s': it goes with 'messages' and without '%s'.", field, name);
    }
    return name;
}

void api_tokenize_encode(struct request *r)
{
    struct fields f;
    struct model_info model;
    const char *text;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_tokenize_encode_body);
    const char *name = source(&f);
    bool chat = !strcmp(name, "messages"), vllm = chat || !strcmp(name, "prompt"), add_special = vllm && !chat, pieces = false;
    if (!chat && !api_fields_missing(&f, name))
        api_fields_string(&f, name, &text);
    api_fields_bool(&f, "add_special", &add_special);
    api_fields_bool(&f, "add_special_tokens", &add_special);
    api_fields_bool(&f, "with_pieces", &pieces);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_TOKENIZE, &model) : NULL;
    if (t) {
        if (chat)
            read_chat(&f, t);
        else
            read_content(&f, t, name);
        t->tokenize.add_special = add_special;
        t->tokenize.with_pieces = pieces;
    }
    start(&f, t, "tokens", t && vllm ? (uint64_t)model.context : 0);
}

// Ids of the field "tokens", as memory of the task.
static void read_tokens(struct fields *f, struct task *t, const json_t *list, const struct model_info *model)
{
    size_t n = json_array_size(list), bytes;
    int32_t *ids = size_mul(n + 1, sizeof *ids, &bytes) ? mem_try(bytes) : NULL;
    if (!ids) {
        api_fields_fail(f, "invalid_value", "tokens", "Invalid 'tokens': more ids than there is memory for.");
        return;
    }
    arena_defer(&t->arena, free, ids);
    int64_t last = model->vocab - 1, id = 0;
    for (size_t i = 0; i < n && api_fields_as_int(f, json_array_get(list, i), "tokens", 0, last, &id); i++)
        ids[i] = (int32_t)id;
    t->tokenize.prompt.ids = ids;
    t->tokenize.prompt.nids = n;
}

static const struct field decode_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"tokens", FIELD_HONOURED, "![integer]"},
};
API_BODY(api_tokenize_decode, decode_fields, caller);

void api_tokenize_decode(struct request *r)
{
    struct fields f;
    struct model_info model;
    const json_t *tokens = NULL;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_tokenize_decode_body);
    if (!api_fields_missing(&f, "tokens"))
        api_fields_array(&f, "tokens", &tokens);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_DETOKENIZE, &model) : NULL;
    if (t)
        read_tokens(&f, t, tokens, &model);
    start(&f, t, "content", 0);
}

static const struct field render_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"messages", FIELD_HONOURED, "![object]"},
    API_PROMPT_FIELDS,
    API_REASONING_FIELDS,
};
API_BODY(api_tokenize_render, render_fields, caller);

void api_tokenize_render(struct request *r)
{
    struct fields f;
    struct model_info model;
    const json_t *tools = NULL;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_tokenize_render_body);
    api_fields_array(&f, "tools", &tools);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_RENDER, &model) : NULL;
    if (t) {
        api_messages_prompt(&f, &t->arena, &t->tokenize.prompt);
        t->tokenize.prompt.tools = json_array_size(tools) ? api_messages_own(&t->arena, tools) : NULL;
    }
    start(&f, t, "prompt", 0);
}
