// chat.c - POST /v1/chat/completions. The fields are read on the loop thread; the writers of JSON run under the
// generation's lock on engine threads.
#include <jansson.h>
#include <string.h>

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

static void add_message(enum api_part part, const char *text, size_t len, struct buf *out)
{
    static const char *const names[] = {
        [PART_WHOLE] = "\"message\":{\"role\":\"assistant\",\"content\":",
        [PART_OPENING] = "\"delta\":{\"role\":\"assistant\",\"content\":",
        [PART_PIECE] = "\"delta\":{\"content\":",
        [PART_LAST] = "\"delta\":{",
    };
    static const char *const ends[] = {
        [PART_WHOLE] = ",\"refusal\":null,\"annotations\":[]}",
        [PART_OPENING] = ",\"refusal\":null}",
        [PART_PIECE] = "}",
        [PART_LAST] = "}",
    };
    buf_add_str(out, names[part]);
    if (part != PART_LAST)
        api_jsonout_string(out, text, len);
    buf_add_str(out, ends[part]);
}

static void add_choice(const struct generation *g, int index, enum api_part part, const char *text, size_t len,
                       struct buf *out)
{
    const struct choice *c = &g->choices[index];
    const struct buf *list = &c->lists[0];
    buf_printf(out, "{\"index\":%d,", index);
    add_message(part, text, len, out);
    if (g->settings.logprobs >= 0 && (part == PART_WHOLE || list->len))
        buf_printf(out, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", list->len ? list->data : "");
    else
        buf_add_str(out, ",\"logprobs\":null");
    buf_add_str(out, ",\"finish_reason\":");
    api_jsonout_text(out, part == PART_WHOLE || part == PART_LAST ? api_generate_finish_name(c) : NULL);
    buf_add_char(out, '}');
}

static const struct api_format format = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .context_param = "messages",
    .opens = true,
    .choice = add_choice,
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
