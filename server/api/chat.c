// chat.c - POST /v1/chat/completions. The fields are read on the loop thread; the writers of JSON run under the
// generation's lock on engine threads.
#include <jansson.h>
#include <string.h>

#include "server/api/chunks.h"
#include "server/api/generate.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/messages.h"
#include "server/request.h"

static const struct field chat_fields[] = {
    {"messages", FIELD_HONOURED, 0},
    {"max_completion_tokens", FIELD_HONOURED, 0},
    {"top_logprobs", FIELD_HONOURED, 0},
    {"reasoning_effort", FIELD_HONOURED, 0},
    {"chat_template_kwargs", FIELD_HONOURED, 0},
    {"add_generation_prompt", FIELD_HONOURED, 0},
    {"continue_final_message", FIELD_HONOURED, 0},
    {"documents", FIELD_HONOURED, 0},
    {"tools", FIELD_HONOURED, 0},

    {"verbosity", FIELD_ACCEPTED, 0},
    {"prediction", FIELD_ACCEPTED, 0},  // a hint for speed; its token counts are reported as 0
    {"parallel_tool_calls", FIELD_ACCEPTED, 0},

    {"tool_choice", FIELD_REFUSED, NEUTRAL_NO_CALL},
    {"functions", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"function_call", FIELD_REFUSED, NEUTRAL_NO_CALL},
    {"modalities", FIELD_REFUSED, NEUTRAL_TEXT},
    {"audio", FIELD_REFUSED, NEUTRAL_NULL},
    {"web_search_options", FIELD_REFUSED, NEUTRAL_NULL},
    {"moderation", FIELD_REFUSED, NEUTRAL_NULL},
    {"chat_template", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"echo", FIELD_REFUSED, NEUTRAL_FALSE},
    {"best_of", FIELD_REFUSED, NEUTRAL_ONE},
    {"suffix", FIELD_REFUSED, NEUTRAL_EMPTY},
};

// ---- fields

static void read_logprobs(struct generation *g, struct fields *f)
{
    bool wanted = false;
    int64_t top = 0;
    api_fields_bool(f, "logprobs", &wanted);
    api_fields_int(f, "top_logprobs", 0, 20, &top);
    if (top && !wanted)
        api_fields_fail(f, "invalid_value", "top_logprobs", "Invalid 'top_logprobs': it needs 'logprobs' to be true.");
    g->settings.logprobs = wanted ? (int)top : -1;
}

// Tools may be listed when none may be called; they are then not shown to the model.
static void read_tools(struct fields *f)
{
    const json_t *tools, *choice = api_fields_get(f, "tool_choice");
    bool none = json_is_string(choice) && !strcmp(json_string_value(choice), "none");
    if (api_fields_array(f, "tools", &tools) && json_array_size(tools) && !none)
        api_fields_fail(f, "unsupported_parameter", "tools",
                        "Unsupported parameter: 'tools' is not supported by this server.");
}

// ---- JSON

static void add_token(const struct token_alternative *a, struct buf *out)
{
    buf_add_str(out, "{\"token\":");
    api_jsonout_string(out, a->bytes, a->len);
    buf_add_str(out, ",\"logprob\":");
    api_jsonout_float(out, a->logprob);
    buf_add_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < a->len; i++)
        buf_printf(out, i ? ",%d" : "%d", (unsigned char)a->bytes[i]);
    buf_add_char(out, ']');
}

// lists[0]: the elements of logprobs.content.
static void add_logprobs(struct choice *c, const struct event *ev)
{
    struct buf *out = &c->lists[0];
    if (ev->channel != CHANNEL_CONTENT)
        return;
    for (size_t i = 0; i < ev->ntokens; i++) {
        const struct token_logprob *t = &ev->tokens[i];
        if (out->len)
            buf_add_char(out, ',');
        add_token(&t->token, out);
        buf_add_str(out, ",\"top_logprobs\":[");
        for (int k = 0; k < t->ntop; k++) {
            if (k)
                buf_add_char(out, ',');
            add_token(&t->top[k], out);
            buf_add_char(out, '}');
        }
        buf_add_str(out, "]}");
    }
}

static void add_text(const struct buf *text, struct buf *out)
{
    api_jsonout_string(out, text->data ? text->data : "", text->len);
}

static void add_calls(const struct choice *c, struct buf *out)
{
    int n = 0;
    for (int i = 0; i < c->ncalls; i++) {
        if (!c->calls[i].whole)  // cut by the token limit
            continue;
        buf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
                   n++ ? "," : ",\"tool_calls\":[", c->calls[i].id);
        api_jsonout_text(out, c->calls[i].name);
        buf_add_str(out, ",\"arguments\":");
        add_text(&c->calls[i].arguments, out);
        buf_add_str(out, "}}");
    }
    if (n)
        buf_add_char(out, ']');
}

static void add_message(const struct choice *c, struct buf *out)
{
    buf_add_str(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->ncalls && !c->text.len)
        buf_add_str(out, "null");
    else
        add_text(&c->text, out);
    buf_add_str(out, ",\"refusal\":null,\"annotations\":[]");
    if (c->reasoning.len) {
        buf_add_str(out, ",\"reasoning_content\":");
        add_text(&c->reasoning, out);
    }
    add_calls(c, out);
    buf_add_char(out, '}');
}

// Id, type and name once, in the first piece of a call.
static void add_call_piece(const struct choice *c, const struct event *ev, struct buf *out)
{
    const struct choice_call *call = &c->calls[ev->call];
    buf_printf(out, "{\"tool_calls\":[{\"index\":%d,", ev->call);
    if (ev->name) {
        buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", call->id);
        api_jsonout_text(out, call->name);
        buf_add_str(out, ",\"arguments\":");
    } else {
        buf_add_str(out, "\"function\":{\"arguments\":");
    }
    api_jsonout_string(out, ev->text ? ev->text : "", ev->len);
    buf_add_str(out, "}}]}");
}

static void add_piece(const struct choice *c, const struct event *ev, struct buf *out)
{
    if (ev->channel == CHANNEL_CALL) {
        add_call_piece(c, ev, out);
        return;
    }
    buf_add_str(out, ev->channel == CHANNEL_REASONING ? "{\"reasoning_content\":" : "{\"content\":");
    api_jsonout_string(out, ev->text ? ev->text : "", ev->len);
    buf_add_char(out, '}');
}

static void add_choice(const struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out)
{
    const struct choice *c = &g->choices[index];
    const struct buf *list = &c->lists[0];
    buf_printf(out, "{\"index\":%d,", index);
    if (part == PART_WHOLE)
        add_message(c, out);
    else if (part == PART_OPENING)
        buf_add_str(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}");
    else
        buf_add_str(out, "\"delta\":");
    if (part == PART_PIECE)
        add_piece(c, ev, out);
    else if (part == PART_LAST)
        buf_add_str(out, "{}");
    if (g->settings.logprobs >= 0 && (part == PART_WHOLE || list->len))
        buf_printf(out, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", list->len ? list->data : "");
    else
        buf_add_str(out, ",\"logprobs\":null");
    buf_add_str(out, ",\"finish_reason\":");
    api_jsonout_text(out, part == PART_WHOLE || part == PART_LAST ? api_generate_finish_name(c) : NULL);
    buf_add_char(out, '}');
}

static void begin(struct generation *g)
{
    static const struct api_chunk_format chunks = {"chat.completion", "chat.completion.chunk", true, add_choice};
    api_chunks_begin(g, &chunks);
}

static const struct api_format format = {
    .id_prefix = "chatcmpl-",
    .context_param = "messages",
    .begin = begin,
    .open = api_chunks_open,
    .text = api_chunks_text,
    .finish = api_chunks_finish,
    .progress = api_chunks_progress,
    .end = api_chunks_end,
    .done = true,
    .whole = api_chunks_whole,
    .logprobs = add_logprobs,
};

// ---- the handler

void api_chat_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, chat_fields, sizeof chat_fields / sizeof *chat_fields, api_generate_fields,
                     api_generate_nfields);
    struct generation *g = api_generate_new(r, &format);
    api_generate_read(g, &f, CAN_CHAT);
    if (!api_generate_limit(g, &f, "max_completion_tokens", 1))
        api_generate_limit(g, &f, "max_tokens", 1);
    read_logprobs(g, &f);
    read_tools(&f);
    if (!f.failed) {
        struct task *t = api_generate_add(g);
        api_messages_prompt(&f, &t->arena, &t->generate.prompt);
    }
    if (f.failed)
        api_fields_reply(&f);
    else
        api_generate_start(g);
}
