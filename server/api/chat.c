// chat.c - POST /v1/chat/completions. The fields are read on the loop thread; the writers of JSON run under the
// generation's lock on engine threads.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/api/chunks.h"
#include "server/api/generate.h"
#include "server/api/handlers.h"
#include "server/api/jsonout.h"
#include "server/api/logprobs.h"
#include "server/api/messages.h"
#include "server/api/reasoning.h"
#include "server/api/tools.h"
#include "server/request.h"

enum { MAX_METADATA = 16, MAX_METADATA_VALUE = 512, MAX_LABEL = 64 };

// g->own: what the answer's form depends on.
struct chat {
    struct api_tools tools;
    struct api_reasoning reasoning;
    const char *echo;  // text in front of every answer; NULL: none
};

static const struct field chat_fields[] = {
    {"messages", FIELD_HONOURED, "![object]"},
    {"max_completion_tokens", FIELD_HONOURED, "integer 1.."},
    {"max_tokens", FIELD_HONOURED, "integer 1.."},
    {"logprobs", FIELD_HONOURED, "boolean"},
    {"top_logprobs", FIELD_HONOURED, "integer 0..20"},
    API_REASONING_FIELDS,
    {"chat_template_kwargs", FIELD_HONOURED, "object"},
    {"add_generation_prompt", FIELD_HONOURED, "boolean"},
    {"continue_final_message", FIELD_HONOURED, "boolean"},
    {"documents", FIELD_HONOURED, "[object]"},
    {"tools", FIELD_HONOURED, "[object]"},
    {"tool_choice", FIELD_HONOURED, "string|object"},
    {"parallel_tool_calls", FIELD_HONOURED, "boolean"},
    {"functions", FIELD_HONOURED, "[object]"},
    {"function_call", FIELD_HONOURED, "string|object"},
    {"modalities", FIELD_HONOURED, "[string]"},
    {"echo", FIELD_HONOURED, "boolean"},
    {"verbosity", FIELD_HONOURED, "string: low medium high"},   // its value is checked; neither changes the answer
    {"prediction", FIELD_HONOURED, "object"},

    {"audio", FIELD_REFUSED, NEUTRAL_NULL},
    {"parse_tool_calls", FIELD_REFUSED, NEUTRAL_TRUE},
    {"web_search_options", FIELD_REFUSED, NEUTRAL_NULL},
    {"moderation", FIELD_REFUSED, NEUTRAL_NULL},
    {"chat_template", FIELD_REFUSED, NEUTRAL_EMPTY},
    {"best_of", FIELD_REFUSED, NEUTRAL_ONE},
    {"suffix", FIELD_REFUSED, NEUTRAL_EMPTY},
};
API_BODY(api_chat_create, chat_fields, generate);

// ---- fields

static void read_logprobs(struct generation *g, struct fields *f)
{
    bool wanted = false;
    int top = 0;
    api_fields_bool(f, "logprobs", &wanted);
    api_fields_small(f, "top_logprobs", &top);
    if (top && !wanted)
        api_fields_fail(f, "invalid_value", "top_logprobs", "Invalid 'top_logprobs': it needs 'logprobs' to be true.");
    if (api_fields_get(f, "logprobs"))  // else as n_probs says
        g->settings.logprobs = wanted ? top : -1;
}

static void one_of(struct fields *f, const char *name, const char *const *values, const char *listed)
{
    const char *v;
    if (!api_fields_string(f, name, &v))
        return;
    for (; *values; values++)
        if (!strcmp(v, *values))
            return;
    api_fields_fail(f, "invalid_value", name, "Invalid value: '%.40s'. Supported values are: %s.", v, listed);
}

static void read_modalities(struct fields *f)
{
    const json_t *list, *v;
    size_t i;
    if (!api_fields_array(f, "modalities", &list))
        return;
    json_array_foreach(list, i, v) {
        if (!json_is_string(v))
            api_fields_wrong_type(f, v, "modalities", "an array of strings");
        else if (strcmp(json_string_value(v), "text") != 0)
            api_fields_fail(f, "unsupported_value", "modalities",
                            "Unsupported value: '%.40s' is not supported with this model, which answers in text.",
                            json_string_value(v));
    }
}

static void read_prediction(struct fields *f)
{
    const json_t *o;
    if (!api_fields_object(f, "prediction", &o))
        return;
    const char *type = json_string_value(json_object_get(o, "type"));
    const json_t *content = json_object_get(o, "content");
    if (!type || strcmp(type, "content") != 0)
        api_fields_fail(f, "invalid_value", "prediction.type", "Invalid 'prediction.type': expected 'content'.");
    else if (!json_is_string(content) && !json_is_array(content))
        api_fields_wrong_type(f, content ? content : o, "prediction.content", "a string or an array of text parts");
}

static size_t characters(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (s[i] & 0xC0) != 0x80;
    return n;
}

// Labels for whoever sent the request. Values that are no text are left alone.
static void read_labels(struct fields *f)
{
    const json_t *map;
    const char *key, *id;
    json_t *v;
    if (api_fields_string(f, "safety_identifier", &id) && characters(id, strlen(id)) > MAX_LABEL)
        api_fields_fail(f, "string_above_max_length", "safety_identifier",
                        "Invalid 'safety_identifier': string too long. Expected at most %d characters.", MAX_LABEL);
    api_fields_string(f, "prompt_cache_key", &id);
    if (!api_fields_object(f, "metadata", &map))
        return;
    if (json_object_size(map) > MAX_METADATA)
        api_fields_fail(f, "object_above_max_length", "metadata",
                        "Invalid 'metadata': too many entries. Expected at most %d.", MAX_METADATA);
    json_object_foreach((json_t *)map, key, v) {
        char path[96];
        snprintf(path, sizeof path, "metadata.%.80s", key);
        if (characters(key, strlen(key)) > MAX_LABEL)
            api_fields_fail(f, "string_above_max_length", "metadata",
                            "Invalid 'metadata': key too long. Expected at most %d characters.", MAX_LABEL);
        else if (json_is_string(v) && characters(json_string_value(v), json_string_length(v)) > MAX_METADATA_VALUE)
            api_fields_fail(f, "string_above_max_length", path,
                            "Invalid '%s': string too long. Expected at most %d characters.", path, MAX_METADATA_VALUE);
    }
}

static void read_harmless(struct fields *f)
{
    static const char *const levels[] = {"low", "medium", "high", NULL};
    bool store;
    one_of(f, "verbosity", levels, "'low', 'medium' and 'high'");
    api_fields_bool(f, "store", &store);
    read_modalities(f);
    read_prediction(f);
    read_labels(f);
}

static void read_reasoning(struct generation *g, struct fields *f, struct chat *c)
{
    api_reasoning_read(f, &c->reasoning);
    g->settings.reasoning_max = c->reasoning.max;
    g->settings.split = !c->reasoning.raw;
    if (c->reasoning.raw && c->tools.list)
        api_fields_fail(f, "invalid_value", "reasoning_format",
                        "Invalid 'reasoning_format': with tools the answer is told apart; 'none' is not possible.");
}

static void read_tools(struct generation *g, struct fields *f, struct chat *c)
{
    api_tools_read(f, &g->r->arena, TOOLS_NESTED, &c->tools);
    g->tools = &c->tools;
    g->settings.tools = c->tools.rules;
}

// ---- JSON

static void add_text(const struct buf *text, struct buf *out)
{
    api_jsonout_string(out, text->data ? text->data : "", text->len);
}

static bool is_custom(const struct generation *g, const struct choice_call *call)
{
    const struct chat *chat = g->own;
    return api_tools_custom(&chat->tools, call->name);
}

static bool as_functions(const struct generation *g)
{
    const struct chat *chat = g->own;
    return chat->tools.functions;
}

// The arguments of a call, all of them: never an empty text, which is no JSON.
static void add_arguments(const struct choice_call *call, bool custom, struct buf *out)
{
    struct buf input;
    if (!custom) {
        api_jsonout_string(out, call->arguments.len ? call->arguments.data : "{}", call->arguments.len ? call->arguments.len : 2);
        return;
    }
    buf_init(&input, call->arguments.len + 1);
    api_tools_input(call->arguments.len ? call->arguments.data : "{}", call->arguments.len ? call->arguments.len : 2, &input);
    add_text(&input, out);
    buf_done(&input);
}

static void add_call(const struct generation *g, const struct choice_call *call, struct buf *out)
{
    bool custom = is_custom(g, call);
    const char *type = custom ? "custom" : "function";
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"%s\":{\"name\":", call->id, type, type);
    api_jsonout_text(out, call->name);
    buf_add_str(out, custom ? ",\"input\":" : ",\"arguments\":");
    add_arguments(call, custom, out);
    buf_add_str(out, "}}");
}

static void add_function_call(const struct choice_call *call, struct buf *out)
{
    buf_add_str(out, ",\"function_call\":{\"name\":");
    api_jsonout_text(out, call->name);
    buf_add_str(out, ",\"arguments\":");
    add_arguments(call, false, out);
    buf_add_char(out, '}');
}

// A call cut by the token limit is left out.
static void add_calls(const struct generation *g, const struct choice *c, struct buf *out)
{
    int n = 0;
    for (int i = 0; i < c->ncalls; i++) {
        const struct choice_call *call = &c->calls[i];
        if (!call->whole)
            continue;
        if (as_functions(g)) {
            add_function_call(call, out);
            return;
        }
        buf_add_str(out, n++ ? "," : ",\"tool_calls\":[");
        add_call(g, call, out);
    }
    if (n)
        buf_add_char(out, ']');
}

static bool called(const struct choice *c)
{
    return c->ncalls && c->calls[0].whole;
}

static void add_content(const struct chat *chat, const struct choice *c, struct buf *out)
{
    size_t before = chat->echo ? strlen(chat->echo) : 0;
    if (!before && !c->text.len && called(c)) {
        buf_add_str(out, "null");
        return;
    }
    if (!before) {
        add_text(&c->text, out);
        return;
    }
    struct buf text;
    buf_init(&text, before + c->text.len + 1);
    buf_add(&text, chat->echo, before);
    buf_add(&text, c->text.data, c->text.len);
    add_text(&text, out);
    buf_done(&text);
}

static void add_message(const struct generation *g, const struct choice *c, struct buf *out)
{
    const struct chat *chat = g->own;
    buf_add_str(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    add_content(chat, c, out);
    buf_add_str(out, ",\"refusal\":null,\"annotations\":[]");
    if (c->reasoning.len && !chat->reasoning.hidden) {
        buf_add_str(out, ",\"reasoning_content\":");
        add_text(&c->reasoning, out);
    }
    add_calls(g, c, out);
    buf_add_char(out, '}');
}

// ---- pieces of a stream

// Of a custom call the input is known when its arguments are complete; of another one that has none they are {}.
static void add_call_text(const struct choice_call *call, const struct event *ev, bool custom, struct buf *out)
{
    if ((custom || !call->arguments.len) && ev->call_ends)
        add_arguments(call, custom, out);
    else if (custom)
        buf_add_str(out, "\"\"");
    else
        api_jsonout_string(out, ev->text ? ev->text : "", ev->len);
}

static void add_function_piece(const struct choice_call *call, const struct event *ev, struct buf *out)
{
    buf_add_str(out, "{\"function_call\":{");
    if (ev->name) {
        buf_add_str(out, "\"name\":");
        api_jsonout_text(out, call->name);
        buf_add_char(out, ',');
    }
    buf_add_str(out, "\"arguments\":");
    add_call_text(call, ev, false, out);
    buf_add_str(out, "}}");
}

// Id, type and name once, in the first piece of a call.
static void add_call_piece(const struct generation *g, const struct choice *c, const struct event *ev, struct buf *out)
{
    const struct choice_call *call = &c->calls[ev->call];
    bool custom = is_custom(g, call);
    const char *type = custom ? "custom" : "function";
    if (as_functions(g)) {
        add_function_piece(call, ev, out);
        return;
    }
    buf_printf(out, "{\"tool_calls\":[{\"index\":%d,", ev->call);
    if (ev->name)
        buf_printf(out, "\"id\":\"%s\",\"type\":\"%s\",", call->id, type);
    buf_printf(out, "\"%s\":{", type);
    if (ev->name) {
        buf_add_str(out, "\"name\":");
        api_jsonout_text(out, call->name);
        buf_add_char(out, ',');
    }
    buf_add_str(out, custom ? "\"input\":" : "\"arguments\":");
    add_call_text(call, ev, custom, out);
    buf_add_str(out, "}}]}");
}

// Whether an event has anything to show.
static bool shows(const struct generation *g, const struct choice *c, const struct event *ev)
{
    const struct chat *chat = g->own;
    if (ev->channel == CHANNEL_CONTENT)
        return ev->len || c->lists[0].len;
    if (ev->channel == CHANNEL_REASONING)
        return ev->len && !chat->reasoning.hidden;
    const struct choice_call *call = &c->calls[ev->call];
    if (is_custom(g, call))
        return ev->name || ev->call_ends;
    return ev->name || ev->len || (ev->call_ends && !call->arguments.len);
}

static void add_piece(const struct generation *g, const struct choice *c, const struct event *ev, struct buf *out)
{
    if (!shows(g, c, ev)) {  // ids alone
        buf_add_str(out, "{\"content\":\"\"}");
        return;
    }
    if (ev->channel == CHANNEL_CALL) {
        add_call_piece(g, c, ev, out);
        return;
    }
    buf_add_str(out, ev->channel == CHANNEL_REASONING ? "{\"reasoning_content\":" : "{\"content\":");
    api_jsonout_string(out, ev->text ? ev->text : "", ev->len);
    buf_add_char(out, '}');
}

static void send_text(struct generation *g, int index, const struct event *ev)
{
    const struct choice *c = &g->choices[index];
    if (shows(g, c, ev) || c->ids.len)
        api_chunks_text(g, index, ev);
}

static void open_chunks(struct generation *g)
{
    const struct chat *chat = g->own;
    api_chunks_open(g);
    for (int i = 0; chat->echo && i < g->ntasks * g->settings.n; i++)
        api_chunks_text(g, i, &(struct event){.kind = EVENT_TEXT, .text = chat->echo, .len = strlen(chat->echo)});
}

// ---- one choice

static const char *finish_name(const struct generation *g, const struct choice *c)
{
    return as_functions(g) && c->finish == FINISH_CALLS ? "function_call" : api_generate_finish_name(c);
}

static void add_choice(const struct generation *g, int index, enum api_part part, const struct event *ev, struct buf *out)
{
    const struct choice *c = &g->choices[index];
    const struct buf *list = &c->lists[0];
    buf_printf(out, "{\"index\":%d,", index);
    if (part == PART_WHOLE)
        add_message(g, c, out);
    else if (part == PART_OPENING)
        buf_add_str(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}");
    else
        buf_add_str(out, "\"delta\":");
    if (part == PART_PIECE)
        add_piece(g, c, ev, out);
    else if (part == PART_LAST)
        buf_add_str(out, "{}");
    if (g->settings.logprobs >= 0 && (part == PART_WHOLE || list->len))
        buf_printf(out, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", list->len ? list->data : "");
    else
        buf_add_str(out, ",\"logprobs\":null");
    buf_add_str(out, ",\"finish_reason\":");
    bool ends = part == PART_WHOLE || part == PART_LAST;
    api_jsonout_text(out, ends ? finish_name(g, c) : NULL);
    if (ends)
        api_generate_probabilities(g, index, out);
    buf_add_char(out, '}');
}

static void begin(struct generation *g)
{
    static const struct api_chunk_format chunks = {"chat.completion", "chat.completion.chunk", true, true, add_choice};
    api_chunks_begin(g, &chunks);
}

static const struct api_format format = {
    .id_prefix = "chatcmpl-",
    .context_param = "messages",
    .begin = begin,
    .open = open_chunks,
    .text = send_text,
    .finish = api_chunks_finish,
    .progress = api_chunks_progress,
    .end = api_chunks_end,
    .done = true,
    .probabilities = true,
    .whole = api_chunks_whole,
    .logprobs = api_logprobs_add,
};

// ---- the handler

// vLLM's echo: an answer that continues a message has that message's text in front.
static void read_echo(struct fields *f, struct chat *c, const struct prompt *p)
{
    bool echo = false;
    if (!api_fields_bool(f, "echo", &echo) || !echo || !p->continue_final_message)
        return;
    const json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));
    c->echo = text && *text ? arena_strdup(&f->r->arena, text) : NULL;
}

static void add_task(struct generation *g, struct fields *f, struct chat *c)
{
    struct task *t = api_generate_add(g);
    struct prompt *p = &t->generate.prompt;
    api_messages_prompt(f, &t->arena, p);
    p->tools = api_messages_own(&t->arena, c->tools.list);
    if (!f->failed)
        read_echo(f, c, p);
}

void api_chat_create(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &api_chat_create_body);
    struct generation *g = api_generate_new(r, &format);
    struct chat *c = g->own = arena_alloc(&r->arena, sizeof *c);
    api_generate_read(g, &f, CAN_CHAT);
    if (!api_generate_limit(g, &f, "max_completion_tokens"))
        api_generate_limit(g, &f, "max_tokens");
    read_logprobs(g, &f);
    read_tools(g, &f, c);
    read_reasoning(g, &f, c);
    read_harmless(&f);
    if (!f.failed)
        add_task(g, &f, c);
    if (f.failed)
        api_fields_reply(&f);
    else
        api_generate_start(g);
}
