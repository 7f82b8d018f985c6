// tokenize.c - POST /tokenize, /detokenize and /apply-template, as llama-server answers them: one engine task each,
// whose events are collected and answered when it ends.
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
#include "server/request.h"
#include "server/server.h"

enum { MAX_ANSWER = 256 << 20 };

struct collector {
    struct request *r;
    const char *name;  // the answer's one field
    bool pieces;
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
static void start(struct fields *f, struct task *t, const char *name)
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
    *c = (struct collector){.r = r, .name = name, .pieces = t->tokenize.with_pieces};
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
static void read_content(struct fields *f, struct task *t)
{
    const json_t *v = api_fields_get(f, "content");
    size_t len = json_string_length(v);
    char *copy = mem_try(len + 1);
    if (!copy) {
        api_fields_fail(f, "invalid_value", "content", "Invalid 'content': no memory for %zu bytes.", len);
        return;
    }
    memcpy(copy, json_string_value(v), len);
    arena_defer(&t->arena, free, copy);
    t->tokenize.prompt.text = copy;
    t->tokenize.prompt.text_len = len;
}

void api_tokenize_encode(struct request *r)
{
    static const struct field known[] = {{"model", FIELD_HONOURED, 0}, {"content", FIELD_HONOURED, 0},
                                         {"add_special", FIELD_HONOURED, 0}, {"with_pieces", FIELD_HONOURED, 0}};
    struct fields f;
    struct model_info model;
    const char *content;
    bool add_special = false, with_pieces = false;
    api_fields_init(&f, r);
    api_fields_check(&f, known, sizeof known / sizeof *known, api_caller_fields, api_caller_nfields);
    if (!api_fields_missing(&f, "content"))
        api_fields_string(&f, "content", &content);
    api_fields_bool(&f, "add_special", &add_special);
    api_fields_bool(&f, "with_pieces", &with_pieces);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_TOKENIZE, &model) : NULL;
    if (t) {
        read_content(&f, t);
        t->tokenize.add_special = add_special;
        t->tokenize.with_pieces = with_pieces;
    }
    start(&f, t, "tokens");
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

void api_tokenize_decode(struct request *r)
{
    static const struct field known[] = {{"model", FIELD_HONOURED, 0}, {"tokens", FIELD_HONOURED, 0}};
    struct fields f;
    struct model_info model;
    const json_t *tokens = NULL;
    api_fields_init(&f, r);
    api_fields_check(&f, known, sizeof known / sizeof *known, api_caller_fields, api_caller_nfields);
    if (!api_fields_missing(&f, "tokens"))
        api_fields_array(&f, "tokens", &tokens);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_DETOKENIZE, &model) : NULL;
    if (t)
        read_tokens(&f, t, tokens, &model);
    start(&f, t, "content");
}

void api_tokenize_render(struct request *r)
{
    static const struct field known[] = {
        {"model", FIELD_HONOURED, 0}, {"messages", FIELD_HONOURED, 0}, {"tools", FIELD_HONOURED, 0},
        {"documents", FIELD_HONOURED, 0}, {"add_generation_prompt", FIELD_HONOURED, 0},
        {"continue_final_message", FIELD_HONOURED, 0}, {"chat_template_kwargs", FIELD_HONOURED, 0},
        {"reasoning_effort", FIELD_HONOURED, 0}};
    struct fields f;
    struct model_info model;
    const json_t *tools = NULL;
    api_fields_init(&f, r);
    api_fields_check(&f, known, sizeof known / sizeof *known, api_caller_fields, api_caller_nfields);
    api_fields_array(&f, "tools", &tools);
    struct task *t = api_models_find(&f, 0, &model) && !f.failed ? make_task(TASK_RENDER, &model) : NULL;
    if (t) {
        api_messages_prompt(&f, &t->arena, &t->tokenize.prompt);
        t->tokenize.prompt.tools = json_array_size(tools) ? api_messages_own(&t->arena, tools) : NULL;
    }
    start(&f, t, "prompt");
}
