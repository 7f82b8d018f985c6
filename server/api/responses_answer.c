// responses_answer.c - see the header.
#include "server/api/responses_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/api/jsonout.h"
#include "server/api/logprobs.h"
#include "server/api/responses_token.h"
#include "server/reply.h"
#include "server/request.h"
#include "server/responses.h"

enum {
    MAX_TEXT = 256 << 20,
    RING = 256 << 10,    // what may wait for a slow reader beside what is said again at the end
    REPEATS = 5,         // a text comes back in the last events of its part, its item and the response
};

static const char *const prefixes[] = {[API_ITEM_REASONING] = "rs_", [API_ITEM_MESSAGE] = "msg_", [API_ITEM_CALL] = "fc_",
                                       [API_ITEM_CUSTOM] = "ctc_"};

static struct choice_call *last_call(const struct generation *g)
{
    return &g->choices[0].calls[g->choices[0].ncalls - 1];
}

static void add_text(const struct buf *text, struct buf *out)
{
    api_jsonout_string(out, text->len ? text->data : "", text->len);
}

static const char *data_of(const struct buf *b)
{
    return b->len ? b->data : "";
}

// ---- the response object

static void add_usage(const struct usage *u, struct buf *out)
{
    buf_printf(out,
               "{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
               "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d}",
               u->prompt_tokens, u->cached_tokens, u->completion_tokens, u->reasoning_tokens,
               u->prompt_tokens + u->completion_tokens);
}

// Of the values that the published list has; what else went wrong is the server's.
static const char *code_of(const err *e)
{
    return e->code == ERR_QUOTA ? "rate_limit_exceeded" : e->code == ERR_INVALID || e->code == ERR_CONTEXT ? "invalid_prompt"
                                                                                                         : "server_error";
}

static void add_error(const err *e, struct buf *out)
{
    const char *type, *code;
    (void)reply_status_of(e->code, &type, &code);
    buf_printf(out, "{\"code\":\"%s\",\"message\":", code_of(e));
    api_jsonout_text(out, e->text);
    buf_printf(out, ",\"type\":\"%s\"}", type);
}

// e NULL: nothing went wrong. Usage stands in the object when the answer has ended.
static void add_response(const struct generation *g, const char *status, const err *e, struct buf *out)
{
    const struct api_answer *a = g->own;
    bool ended = !strcmp(status, "completed") || !strcmp(status, "incomplete");
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"completed_at\":", g->r->answer_id,
               (long long)a->created);
    if (ended)
        buf_printf(out, "%lld", (long long)clock_unix_s());
    else
        buf_add_str(out, "null");
    buf_printf(out, ",\"status\":\"%s\",\"background\":false,\"error\":", status);
    if (e)
        add_error(e, out);
    else
        buf_add_str(out, "null");
    buf_add_str(out, ",\"incomplete_details\":");
    buf_add_str(out, !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buf_add_str(out, ",\"model\":");
    api_jsonout_text(out, g->model->name);
    buf_printf(out, ",\"output\":[%s]%s,\"service_tier\":\"%s\",\"store\":%s,\"usage\":", data_of(&a->output), a->echo,
               g->caller.tier ? g->caller.tier : "default", a->store ? "true" : "false");
    if (ended)
        add_usage(&g->usage, out);
    else
        buf_add_str(out, "null");
    buf_add_char(out, '}');
}

// ---- events

// Every event: {"type", "sequence_number", and the members that the caller adds. The scratch buffer until send_event.
static struct buf *begin_event(struct generation *g, const char *type)
{
    struct api_answer *a = g->own;
    buf_clear(&a->event);
    buf_printf(&a->event, "{\"type\":\"%s\",\"sequence_number\":%d", type, a->sequence);
    return &a->event;
}

static void send_event(struct generation *g, const char *type)
{
    struct api_answer *a = g->own;
    buf_add_char(&a->event, '}');
    a->sequence++;
    if (g->stream && !g->dead)
        api_generate_send(g, type, a->event.data, a->event.len);
}

// One about the open item: its id and place.
static struct buf *begin_item_event(struct generation *g, const char *type)
{
    const struct api_answer *a = g->own;
    struct buf *out = begin_event(g, type);
    buf_printf(out, ",\"item_id\":\"%s\",\"output_index\":%d", a->id, a->nitems - 1);
    return out;
}

static void send_response(struct generation *g, const char *type, const char *status, const err *e)
{
    struct buf *out = begin_event(g, type);
    buf_add_str(out, ",\"response\":");
    add_response(g, status, e, out);
    send_event(g, type);
}

// A ring that holds a text once would be too small for all the times it comes.
static void allow(struct generation *g)
{
    const struct api_answer *a = g->own;
    if (g->sse && !g->dead)
        sse_allow(g->sse, RING + 3 * strlen(a->echo) + REPEATS * (a->output.len + a->text.len + a->logprobs.len));
}

// ---- items

static const char *part_type(const struct api_answer *a)
{
    return a->open == API_ITEM_MESSAGE ? "output_text" : a->summary ? "summary_text" : "reasoning_text";
}

// The part of a message or of reasoning; empty when it is opened.
static void add_part(const struct api_answer *a, bool full, struct buf *out)
{
    buf_printf(out, "{\"type\":\"%s\",\"text\":", part_type(a));
    if (full)
        add_text(&a->text, out);
    else
        buf_add_str(out, "\"\"");
    if (a->open == API_ITEM_MESSAGE)
        buf_printf(out, ",\"annotations\":[],\"logprobs\":[%s]", full ? data_of(&a->logprobs) : "");
    buf_add_char(out, '}');
}

static void add_reasoning(const struct api_answer *a, bool full, struct buf *out)
{
    buf_add_str(out, ",\"summary\":[");
    if (full && a->summary)
        add_part(a, true, out);
    buf_add_char(out, ']');
    if (!a->summary) {
        buf_add_str(out, ",\"content\":[");
        if (full)
            add_part(a, true, out);
        buf_add_char(out, ']');
    }
    if (!a->encrypted || !full)
        return;
    const unsigned char *secret = responses_secret(a->kept);
    buf_add_str(out, ",\"encrypted_content\":\"");
    api_responses_token_make(secret, RESPONSES_SECRET, data_of(&a->text), a->text.len, out);
    buf_add_char(out, '"');
}

static void add_input(const struct buf *arguments, struct buf *out)
{
    struct buf input;
    buf_init(&input, MAX_TEXT);
    api_tools_input(data_of(arguments), arguments->len, &input);
    add_text(&input, out);
    buf_done(&input);
}

// Arguments are never an empty text, which is no JSON, unless the call was cut.
static void add_arguments(const struct choice_call *call, struct buf *out)
{
    if (call->arguments.len || !call->whole)
        add_text(&call->arguments, out);
    else
        buf_add_str(out, "\"{}\"");
}

static void add_call(const struct generation *g, bool full, struct buf *out)
{
    const struct api_answer *a = g->own;
    const struct choice_call *call = last_call(g);
    bool custom = a->open == API_ITEM_CUSTOM;
    buf_printf(out, ",\"call_id\":\"%s\",\"name\":", call->id);
    api_jsonout_text(out, call->name);
    buf_add_str(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (!full)
        buf_add_str(out, "\"\"");
    else if (custom)
        add_input(&call->arguments, out);
    else
        add_arguments(call, out);
}

static void add_item(const struct generation *g, const char *status, struct buf *out)
{
    static const char *const types[] = {[API_ITEM_REASONING] = "reasoning", [API_ITEM_MESSAGE] = "message",
                                        [API_ITEM_CALL] = "function_call", [API_ITEM_CUSTOM] = "custom_tool_call"};
    const struct api_answer *a = g->own;
    bool full = strcmp(status, "in_progress") != 0;
    buf_printf(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", a->id, types[a->open], status);
    if (a->open == API_ITEM_REASONING) {
        add_reasoning(a, full, out);
    } else if (a->open == API_ITEM_MESSAGE) {
        buf_add_str(out, ",\"role\":\"assistant\",\"content\":[");
        if (full)
            add_part(a, true, out);
        buf_add_char(out, ']');
    } else {
        add_call(g, full, out);
    }
    buf_add_char(out, '}');
}

static void note_id(struct generation *g)
{
    struct api_answer *a = g->own;
    if (a->nids == a->ids_cap) {
        a->ids_cap = a->ids_cap ? 2 * a->ids_cap : 8;
        a->ids = mem_resize(a->ids, (size_t)a->ids_cap * sizeof *a->ids);
    }
    a->ids[a->nids++] = arena_strdup(&g->r->arena, a->id);
}

static const char *index_name(const struct api_answer *a)
{
    return a->open == API_ITEM_REASONING && a->summary ? "summary_index" : "content_index";
}

static void send_part(struct generation *g, bool full)
{
    const struct api_answer *a = g->own;
    bool summary = a->open == API_ITEM_REASONING && a->summary;
    const char *type = summary ? full ? "response.reasoning_summary_part.done" : "response.reasoning_summary_part.added"
                               : full ? "response.content_part.done" : "response.content_part.added";
    struct buf *out = begin_item_event(g, type);
    buf_printf(out, ",\"%s\":0,\"part\":", index_name(a));
    add_part(a, full, out);
    send_event(g, type);
}

static void send_item(struct generation *g, const char *type, const char *status)
{
    const struct api_answer *a = g->own;
    struct buf *out = begin_event(g, type);
    buf_printf(out, ",\"output_index\":%d,\"item\":", a->nitems - 1);
    add_item(g, status, out);
    send_event(g, type);
}

static void open_item(struct generation *g, enum api_item kind)
{
    struct api_answer *a = g->own;
    a->open = kind;
    a->nitems++;
    a->spoke |= kind != API_ITEM_REASONING;
    buf_clear(&a->text);
    buf_clear(&a->logprobs);
    api_responses_items_id(prefixes[kind], a->id);
    note_id(g);
    send_item(g, "response.output_item.added", "in_progress");
    if (kind == API_ITEM_REASONING || kind == API_ITEM_MESSAGE)
        send_part(g, false);
}

static void close_text(struct generation *g)
{
    const struct api_answer *a = g->own;
    const char *type = a->open == API_ITEM_MESSAGE ? "response.output_text.done"
                     : a->summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done";
    struct buf *out = begin_item_event(g, type);
    buf_printf(out, ",\"%s\":0,\"text\":", index_name(a));
    add_text(&a->text, out);
    if (a->open == API_ITEM_MESSAGE)
        buf_printf(out, ",\"logprobs\":[%s]", data_of(&a->logprobs));
    send_event(g, type);
    send_part(g, true);
}

static void send_delta(struct generation *g, const char *type, const char *text, size_t len)
{
    struct buf *out = begin_item_event(g, type);
    buf_add_str(out, ",\"delta\":");
    api_jsonout_string(out, text, len);
    send_event(g, type);
}

// A call without arguments has {}, which nobody has said yet; the input of a custom one is known only now.
static void close_call(struct generation *g)
{
    const struct api_answer *a = g->own;
    const struct choice_call *call = last_call(g);
    struct buf *out;
    if (a->open == API_ITEM_CUSTOM) {
        out = begin_item_event(g, "response.custom_tool_call_input.delta");
        buf_add_str(out, ",\"delta\":");
        add_input(&call->arguments, out);
        send_event(g, "response.custom_tool_call_input.delta");
        out = begin_item_event(g, "response.custom_tool_call_input.done");
        buf_add_str(out, ",\"input\":");
        add_input(&call->arguments, out);
        send_event(g, "response.custom_tool_call_input.done");
        return;
    }
    if (call->whole && !call->arguments.len)
        send_delta(g, "response.function_call_arguments.delta", "{}", 2);
    out = begin_item_event(g, "response.function_call_arguments.done");
    buf_add_str(out, ",\"name\":");
    api_jsonout_text(out, call->name);
    buf_add_str(out, ",\"arguments\":");
    add_arguments(call, out);
    send_event(g, "response.function_call_arguments.done");
}

static void close_item(struct generation *g, const char *status)
{
    struct api_answer *a = g->own;
    if (a->open == API_ITEM_NONE)
        return;
    if (a->open == API_ITEM_CALL || a->open == API_ITEM_CUSTOM) {
        status = last_call(g)->whole ? "completed" : status;
        buf_clear(&a->text);
        buf_add(&a->text, data_of(&last_call(g)->arguments), last_call(g)->arguments.len);
    }
    allow(g);
    if (a->open == API_ITEM_CALL || a->open == API_ITEM_CUSTOM)
        close_call(g);
    else
        close_text(g);
    send_item(g, "response.output_item.done", status);
    if (a->output.len)
        buf_add_char(&a->output, ',');
    add_item(g, status, &a->output);
    a->open = API_ITEM_NONE;
}

// ---- what the engine says

static void on_open(struct generation *g)
{
    allow(g);
    send_response(g, "response.created", "in_progress", NULL);
    send_response(g, "response.in_progress", "in_progress", NULL);
}

static void on_call(struct generation *g, const struct event *ev)
{
    struct api_answer *a = g->own;
    if (ev->name) {
        close_item(g, "completed");
        open_item(g, api_tools_custom(&a->tools, ev->name) ? API_ITEM_CUSTOM : API_ITEM_CALL);
    }
    if (a->open == API_ITEM_CALL && ev->len)
        send_delta(g, "response.function_call_arguments.delta", ev->text, ev->len);
    if (ev->call_ends)
        close_item(g, "completed");
}

static void send_content(struct generation *g, const struct event *ev)
{
    struct api_answer *a = g->own;
    struct buf *list = &g->choices[0].lists[0], *out = begin_item_event(g, "response.output_text.delta");
    buf_add_str(out, ",\"content_index\":0,\"delta\":");
    api_jsonout_string(out, ev->text ? ev->text : "", ev->len);
    buf_printf(out, ",\"logprobs\":[%s]", data_of(list));
    send_event(g, "response.output_text.delta");
    if (list->len && a->logprobs.len)
        buf_add_char(&a->logprobs, ',');
    buf_add(&a->logprobs, data_of(list), list->len);
    buf_clear(list);
}

static void send_thought(struct generation *g, const struct event *ev)
{
    const struct api_answer *a = g->own;
    const char *type = a->summary ? "response.reasoning_summary_text.delta" : "response.reasoning_text.delta";
    struct buf *out = begin_item_event(g, type);
    buf_printf(out, ",\"%s\":0,\"delta\":", index_name(a));
    api_jsonout_string(out, ev->text, ev->len);
    send_event(g, type);
}

static void on_text(struct generation *g, int index, const struct event *ev)
{
    struct api_answer *a = g->own;
    enum api_item kind = ev->channel == CHANNEL_REASONING ? API_ITEM_REASONING : API_ITEM_MESSAGE;
    (void)index;
    if (ev->channel == CHANNEL_CALL) {
        on_call(g, ev);
        return;
    }
    if (!ev->len && !g->choices[0].lists[0].len)
        return;
    if (kind == API_ITEM_REASONING && (a->reasoning.hidden || !ev->len))
        return;
    if (a->open != kind) {
        close_item(g, "completed");
        open_item(g, kind);
    }
    buf_add(&a->text, ev->text, ev->len);
    if (kind == API_ITEM_MESSAGE)
        send_content(g, ev);
    else
        send_thought(g, ev);
}

// An answer that says nothing is an empty message: the turn was the model's all the same.
static void on_finish(struct generation *g, int index)
{
    struct api_answer *a = g->own;
    bool cut = g->choices[index].finish == FINISH_LENGTH;
    const char *status = cut ? "incomplete" : "completed";
    close_item(g, status);
    if (!a->spoke && (!cut || !a->nitems)) {
        open_item(g, API_ITEM_MESSAGE);
        close_item(g, status);
    }
}

// ---- the end

static const char *status_of(const struct generation *g)
{
    return g->choices[0].finish == FINISH_LENGTH ? "incomplete" : "completed";
}

static const char **all_ids(const struct generation *g)
{
    const struct api_answer *a = g->own;
    const char **ids = arena_alloc(&g->r->arena, ((size_t)a->nids + a->ninput + 1) * sizeof *ids);
    for (int i = 0; i < a->nids; i++)
        ids[i] = a->ids[i];
    for (size_t i = 0; i < a->ninput; i++)
        ids[(size_t)a->nids + i] = a->input_ids[i];
    return ids;
}

// True when the store has it. The object is the one that the client gets.
static bool keep(const struct generation *g, const struct buf *object)
{
    const struct api_answer *a = g->own;
    char *input = object->over ? NULL : json_dumps(a->input, JSON_COMPACT);
    if (!input)
        return false;
    struct responses_kept k = {.owner = a->owner, .id = g->r->answer_id, .previous = a->previous, .object = object->data,
                               .input = input, .items = all_ids(g), .nitems = (size_t)a->nids + a->ninput,
                               .created_unix_s = a->created};
    bool kept = responses_put(a->kept, &k);
    free(input);
    return kept;
}

// The finished object; what could not be kept says so.
static void add_finished(const struct generation *g, struct buf *out)
{
    struct api_answer *a = g->own;
    size_t from = out->len;
    add_response(g, status_of(g), NULL, out);
    if (!a->store)
        return;
    struct buf object = {.data = out->data + from, .len = out->len - from, .over = out->over};
    a->store = keep(g, &object);
    if (a->store)
        return;
    out->len = from;
    add_response(g, status_of(g), NULL, out);
}

static void on_end(struct generation *g)
{
    const char *type = g->choices[0].finish == FINISH_LENGTH ? "response.incomplete" : "response.completed";
    allow(g);
    struct buf *out = begin_event(g, type);
    buf_add_str(out, ",\"response\":");
    add_finished(g, out);
    send_event(g, type);
}

static void on_whole(struct generation *g, struct buf *out)
{
    const struct api_answer *a = g->own;
    add_finished(g, out);
    out->over |= a->output.over || a->text.over || a->logprobs.over;
}

static void on_failed(struct generation *g, const err *e)
{
    struct api_answer *a = g->own;
    const char *type, *code;
    (void)reply_status_of(e->code, &type, &code);
    struct buf *out = begin_event(g, "error");
    buf_printf(out, ",\"error\":{\"type\":\"%s\",\"code\":\"%s\",\"message\":", type, code ? code : code_of(e));
    api_jsonout_text(out, e->text);
    buf_add_str(out, ",\"param\":");
    api_jsonout_text(out, *e->param ? e->param : NULL);
    buf_add_char(out, '}');
    send_event(g, "error");
    a->store = false;
    send_response(g, "response.failed", "failed", e);
}

// Fields of the request under the names it uses.
static void word(const struct generation *g, err *e)
{
    static const char schema[] = "Invalid schema for text.format.schema";
    (void)g;
    if (e->code == ERR_CONTEXT) {
        size_t n = strlen(e->text);
        snprintf(e->text + n, sizeof e->text - n, " The input exceeds the context window of this model.");
    }
    if (!strncmp(e->param, "messages", 8))
        snprintf(e->param, sizeof e->param, "input");
    if (!strncmp(e->text, schema, sizeof schema - 1)) {  // what clients look for, whatever the field is called
        char rest[sizeof e->text];
        snprintf(rest, sizeof rest, "%s", e->text + sizeof schema - 1);
        snprintf(e->text, sizeof e->text, "Invalid schema for response_format%.470s", rest);
    }
}

static void on_begin(struct generation *g)
{
    struct api_answer *a = g->own;
    a->created = clock_unix_s();
}

const struct api_format api_responses_answer_format = {
    .id_prefix = "resp_",
    .context_param = "input",
    .begin = on_begin,
    .open = on_open,
    .text = on_text,
    .finish = on_finish,
    .pieces = true,
    .end = on_end,
    .failed = on_failed,
    .whole = on_whole,
    .word = word,
    .logprobs = api_logprobs_add,
};

static void release(void *object)
{
    struct api_answer *a = object;
    buf_done(&a->text);
    buf_done(&a->logprobs);
    buf_done(&a->output);
    buf_done(&a->event);
    free(a->ids);
    responses_unref(a->kept);
}

struct api_answer *api_responses_answer_new(struct generation *g)
{
    struct api_answer *a = arena_alloc(&g->r->arena, sizeof *a);
    buf_init(&a->text, MAX_TEXT);
    buf_init(&a->logprobs, MAX_TEXT);
    buf_init(&a->output, MAX_TEXT);
    buf_init(&a->event, MAX_TEXT);
    arena_defer(&g->r->arena, release, a);
    g->own = a;
    return a;
}
