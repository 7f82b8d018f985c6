// responses_items.c - see the header.
#include "server/api/responses_items.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "server/api/fields.h"
#include "server/api/responses_token.h"

enum { PATH = 96, MAX_TEXT = 1 << 30, MAX_ITEMS = 1 << 16 };

// Items on their way into messages.
struct walk {
    struct fields *f;
    const struct api_responses_reader *reader;
    size_t nearlier, index;
    json_t *messages;
    json_t *calls;     // call_id -> name of the tool
    json_t *open;      // call_id -> what it is, of calls without an output so far
    json_t *turn;      // the assistant's message that adjacent items join; one of messages; NULL: none
    struct buf thoughts;  // of the turn, so far
};

static const json_t *get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return v && !json_is_null(v) ? v : NULL;
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

static void path_of(const struct walk *w, const char *rest, char *ret_path)
{
    if (w->index < w->nearlier)
        snprintf(ret_path, PATH, "previous_response_id");
    else
        snprintf(ret_path, PATH, "input[%zu]%s%s", w->index - w->nearlier, *rest ? "." : "", rest);
}

static void missing(struct walk *w, const char *rest)
{
    char path[PATH];
    path_of(w, rest, path);
    api_fields_fail(w->f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
}

static void wrong_type(struct walk *w, const json_t *v, const char *rest, const char *expected)
{
    char path[PATH];
    path_of(w, rest, path);
    api_fields_wrong_type(w->f, v, path, expected);
}

// A string member; NULL after a failure, or when an optional one is not there.
static const json_t *string_of(struct walk *w, const json_t *item, const char *name, bool required)
{
    const json_t *v = get(item, name);
    if (json_is_string(v))
        return v;
    if (v)
        wrong_type(w, v, name, "a string");
    else if (required)
        missing(w, name);
    return NULL;
}

// ---- parts

// Which types of parts hold text, and under what name.
struct part_kind {
    const char *type, *member;
    bool user, assistant;
};
static const struct part_kind kinds[] = {
    {"input_text", "text", true, true}, {"output_text", "text", false, true}, {"refusal", "refusal", false, true},
    {"text", "text", true, true},       {"summary_text", "text", false, true},
};

static const struct part_kind *kind_of(const char *type, bool assistant)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type) && (assistant ? kinds[i].assistant : kinds[i].user))
            return &kinds[i];
    return NULL;
}

static void refuse_part(struct walk *w, const char *rest, const char *type, bool assistant)
{
    static const char *const media[] = {"input_image", "input_file", "input_audio", "image_url", "file", "computer_screenshot"};
    char path[PATH];
    path_of(w, rest, path);
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (!strcmp(type, media[i])) {
            api_fields_fail(w->f, "unsupported_value", path,
                            "Unsupported value: '%s' content is not supported with this model, which reads text.", type);
            return;
        }
    api_fields_fail(w->f, "invalid_value", path, "Invalid value: '%.40s'. Supported values are: %s.", type,
                    assistant ? "'output_text' and 'refusal'" : "'input_text'");
}

static void add_part(struct walk *w, const json_t *part, const char *list, size_t at, bool assistant, struct buf *text)
{
    char rest[64];
    snprintf(rest, sizeof rest, "%s[%zu]", list, at);
    if (!json_is_object(part)) {
        wrong_type(w, part, rest, "an object");
        return;
    }
    const json_t *v = get(part, "type");
    snprintf(rest, sizeof rest, "%s[%zu].type", list, at);
    if (!json_is_string(v)) {
        if (v)
            wrong_type(w, v, rest, "a string");
        else
            missing(w, rest);
        return;
    }
    const struct part_kind *kind = kind_of(json_string_value(v), assistant);
    if (!kind) {
        refuse_part(w, rest, json_string_value(v), assistant);
        return;
    }
    v = get(part, kind->member);
    snprintf(rest, sizeof rest, "%s[%zu].%s", list, at, kind->member);
    if (json_is_string(v))
        buf_add(text, json_string_value(v), json_string_length(v));
    else if (v)
        wrong_type(w, v, rest, "a string");
    else
        missing(w, rest);
}

// A string, or an array of parts joined to one. NULL after a failure.
static json_t *read_content(struct walk *w, const json_t *item, const char *name, bool assistant)
{
    char path[PATH];
    const json_t *v = get(item, name);
    if (json_is_string(v))
        return json_incref((json_t *)v);
    if (!v) {
        missing(w, name);
        return NULL;
    }
    path_of(w, name, path);
    if (!json_is_array(v)) {
        wrong_type(w, v, name, "a string or an array of content parts");
        return NULL;
    }
    if (!json_array_size(v) && !assistant) {
        api_fields_empty(w->f, path);
        return NULL;
    }
    struct buf text;
    buf_init(&text, MAX_TEXT);
    for (size_t i = 0; i < json_array_size(v) && !w->f->failed; i++)
        add_part(w, json_array_get(v, i), name, i, assistant, &text);
    if (text.over)
        api_fields_fail(w->f, "string_above_max_length", path, "Invalid '%s': string too long.", path);
    json_t *joined = w->f->failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    buf_done(&text);
    return joined;
}

// ---- the assistant's turn

static void end_turn(struct walk *w)
{
    if (w->thoughts.len) {
        json_t *all = json_stringn(w->thoughts.data, w->thoughts.len);
        json_object_set_new(w->turn, "reasoning_content", all ? all : json_string(""));
    }
    buf_clear(&w->thoughts);
    w->turn = NULL;
}

static json_t *open_turn(struct walk *w)
{
    if (!w->turn) {
        w->turn = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        json_array_append_new(w->messages, w->turn);
    }
    return w->turn;
}

static bool has_content(const json_t *turn)
{
    return turn && json_string_length(json_object_get(turn, "content"));
}

// A second message is a turn of its own.
static void add_answer(struct walk *w, json_t *content)
{
    if (has_content(w->turn))
        end_turn(w);
    json_object_set_new(open_turn(w), "content", content);
}

// One that was cut cannot be expected to have an output.
static void note_open(struct walk *w, const json_t *item, const char *call_id)
{
    const char *status = text_of(item, "status"), *type = text_of(item, "type");
    if (!status || strcmp(status, "incomplete") != 0)
        json_object_set_new(w->open, call_id, json_string(!strcmp(type, "function_call") ? "function call" : "custom tool call"));
}

static void add_call(struct walk *w, const json_t *item, const json_t *call_id, const json_t *name, json_t *arguments)
{
    json_t *turn = open_turn(w), *calls = json_object_get(turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(turn, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", call_id, "type", "function", "function", "name",
                                           name, "arguments", arguments));
    json_object_set(w->calls, json_string_value(call_id), (json_t *)name);
    note_open(w, item, json_string_value(call_id));
}

// ---- one kind of item each

static void read_message(struct walk *w, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const json_t *v = string_of(w, item, "role", true);
    const char *role = NULL;
    for (size_t i = 0; v && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(json_string_value(v), roles[i]))
            role = roles[i];
    if (v && !role) {
        char path[PATH];
        path_of(w, "role", path);
        api_fields_fail(w->f, "invalid_value", path,
                        "Invalid value: '%.40s'. Supported values are: 'user', 'assistant', 'system' and 'developer'.",
                        json_string_value(v));
    }
    if (!role)
        return;
    bool assistant = !strcmp(role, "assistant");
    json_t *content = read_content(w, item, "content", assistant);
    if (!content)
        return;
    if (assistant) {
        add_answer(w, content);
        return;
    }
    end_turn(w);
    json_array_append_new(w->messages, json_pack("{s:s, s:o}", "role", role, "content", content));
}

// Arguments as an object, as templates want them. A call that the token limit cut was never made: it is passed over.
static void read_call(struct walk *w, const json_t *item)
{
    const json_t *call_id = string_of(w, item, "call_id", true), *name = call_id ? string_of(w, item, "name", true) : NULL;
    const json_t *arguments = get(item, "arguments");
    if (!name)
        return;
    if (!arguments) {
        missing(w, "arguments");
        return;
    }
    if (!json_is_string(arguments) && !json_is_object(arguments)) {
        wrong_type(w, arguments, "arguments", "a string");
        return;
    }
    char path[PATH];
    const char *text = json_string_value(arguments), *status = text_of(item, "status");
    bool blank = text && !text[strspn(text, " \t\r\n")];
    path_of(w, "arguments", path);
    json_t *parsed = blank ? json_object() : text ? api_fields_json(w->f, path, text, json_string_length(arguments)) :
                                                    json_incref((json_t *)arguments);
    if (json_is_object(parsed)) {
        add_call(w, item, call_id, name, parsed);
        return;
    }
    json_decref(parsed);
    if (!w->f->failed && !(status && !strcmp(status, "incomplete")))
        api_fields_fail(w->f, "invalid_value", path, "Invalid '%s': expected the text of a JSON object, but got '%.40s'.", path,
                        text);
}

static void read_custom_call(struct walk *w, const json_t *item)
{
    const json_t *call_id = string_of(w, item, "call_id", true), *name = call_id ? string_of(w, item, "name", true) : NULL;
    const json_t *input = name ? string_of(w, item, "input", true) : NULL;
    if (input)
        add_call(w, item, call_id, name, json_pack("{s:O}", "input", input));
}

static void read_result(struct walk *w, const json_t *item)
{
    const json_t *call_id = string_of(w, item, "call_id", true);
    if (!call_id)
        return;
    if (!json_object_get(w->calls, json_string_value(call_id))) {
        const char *what = !strcmp(text_of(item, "type"), "function_call_output") ? "function call" : "custom tool call";
        api_fields_fail(w->f, NULL, "input", "No tool call found for %s output with call_id %.70s.", what, json_string_value(call_id));
        return;
    }
    json_object_del(w->open, json_string_value(call_id));
    json_t *content = read_content(w, item, "output", false);
    if (!content)
        return;
    end_turn(w);
    json_array_append_new(w->messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", call_id, "content", content));
}

static void add_texts(struct walk *w, const json_t *item, const char *name, struct buf *text)
{
    const json_t *list = get(item, name), *part;
    size_t i;
    if (list && !json_is_array(list))
        wrong_type(w, list, name, "an array of objects");
    json_array_foreach(list, i, part) {
        const json_t *v = json_object_get(part, "text");
        if (json_is_string(v) && text->len)
            buf_add_str(text, "\n\n");
        if (json_is_string(v))
            buf_add(text, json_string_value(v), json_string_length(v));
    }
}

// What a token of ours holds; an empty one is none.
static void read_token(struct walk *w, const json_t *item, struct buf *text)
{
    const json_t *token = string_of(w, item, "encrypted_content", false);
    const char *id = text_of(item, "id");
    char path[PATH];
    if (!json_string_length(token) ||
        api_responses_token_read(w->reader->secret, w->reader->secret_len, json_string_value(token), text))
        return;
    path_of(w, "encrypted_content", path);
    api_fields_fail(w->f, "invalid_encrypted_content", path, "The encrypted content for item %.70s could not be verified.",
                    id ? id : "without an id");
}

// What was thought: our own token, the text itself, or its summary.
static void read_reasoning(struct walk *w, const json_t *item)
{
    struct buf text;
    buf_init(&text, MAX_TEXT);
    read_token(w, item, &text);
    if (!text.len)
        add_texts(w, item, "content", &text);
    if (!text.len)
        add_texts(w, item, "summary", &text);
    if (has_content(w->turn))
        end_turn(w);
    if (text.len && !text.over) {
        json_t *turn = open_turn(w);
        if (w->thoughts.len)
            buf_add_str(&w->thoughts, "\n\n");
        else
            json_object_set_new(turn, "reasoning_content", json_string(""));  // its place among the members
        buf_add(&w->thoughts, text.data, text.len);
    }
    buf_done(&text);
}

// A trace of what a hosted tool did: nothing of it belongs into the prompt.
static void skip_item(struct walk *w, const json_t *item)
{
    (void)w, (void)item;
}

// What it holds would be lost.
static void refuse_item(struct walk *w, const json_t *item)
{
    char path[PATH];
    path_of(w, "type", path);
    api_fields_fail(w->f, "unsupported_value", path, "Unsupported value: items of type '%.40s' are not supported by this server.",
                    text_of(item, "type"));
}

static const struct {
    const char *type;
    void (*read)(struct walk *w, const json_t *item);
} types[] = {
    {"message", read_message},
    {"function_call", read_call},
    {"function_call_output", read_result},
    {"custom_tool_call", read_custom_call},
    {"custom_tool_call_output", read_result},
    {"reasoning", read_reasoning},
    {"web_search_call", skip_item},
    {"mcp_list_tools", skip_item},
    {"file_search_call", refuse_item},
    {"code_interpreter_call", refuse_item},
    {"image_generation_call", refuse_item},
    {"computer_call", refuse_item},
    {"computer_call_output", refuse_item},
    {"local_shell_call", refuse_item},
    {"local_shell_call_output", refuse_item},
    {"shell_call", refuse_item},
    {"shell_call_output", refuse_item},
    {"apply_patch_call", refuse_item},
    {"apply_patch_call_output", refuse_item},
    {"mcp_call", refuse_item},
    {"mcp_approval_request", refuse_item},
    {"mcp_approval_response", refuse_item},
    {"compaction", refuse_item},
};

static void read_item(struct walk *w, const json_t *item)
{
    char path[PATH];
    const json_t *v = get(item, "type");
    path_of(w, "", path);
    if (!json_is_object(item)) {
        api_fields_wrong_type(w->f, item, path, "an object");
        return;
    }
    if (!v && get(item, "role")) {
        read_message(w, item);
        return;
    }
    if (!json_is_string(v)) {
        if (v)
            wrong_type(w, v, "type", "a string");
        else
            missing(w, "type");
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(json_string_value(v), types[i].type)) {
            types[i].read(w, item);
            return;
        }
    path_of(w, "type", path);
    api_fields_fail(w->f, "invalid_value", path, "Invalid value: '%.40s'. Supported values are: 'message', 'function_call', "
                    "'function_call_output', 'custom_tool_call', 'custom_tool_call_output', 'reasoning' and 'item_reference'.",
                    json_string_value(v));
}

// ---- all of them

json_t *api_responses_items_list(struct fields *f, bool has_previous)
{
    const json_t *v = api_fields_get(f, "input");
    if (!v && has_previous)
        return json_array();
    if (!v) {
        api_fields_missing(f, "input");
        return NULL;
    }
    if (json_is_string(v))
        return json_pack("[{s:s, s:s, s:O}]", "type", "message", "role", "user", "content", v);
    if (!json_is_array(v))
        api_fields_wrong_type(f, v, "input", "a string or an array of items");
    else if (!json_array_size(v) && !has_previous)
        api_fields_empty(f, "input");
    else if (json_array_size(v) > MAX_ITEMS)
        api_fields_fail(f, "array_above_max_length", "input", "Invalid 'input': array too long. Expected at most %d items.",
                        MAX_ITEMS);
    return f->failed ? NULL : json_incref((json_t *)v);
}

const char *api_responses_items_reference(const json_t *item)
{
    const json_t *type = get(item, "type");
    const char *id = text_of(item, "id");
    bool is = type ? json_is_string(type) && !strcmp(json_string_value(type), "item_reference") : id && !get(item, "role");
    return is && id ? id : NULL;
}

// A turn of which only thoughts came says nothing.
static json_t *without_empty_turns(json_t *messages)
{
    json_t *kept = json_array(), *m;
    size_t i;
    json_array_foreach(messages, i, m)
        if (strcmp(text_of(m, "role"), "assistant") != 0 || has_content(m) || json_object_get(m, "tool_calls"))
            json_array_append(kept, m);
    json_decref(messages);
    return kept;
}

static void check_open(const struct walk *w)
{
    const char *id = json_object_iter_key(json_object_iter(w->open));
    if (id)
        api_fields_fail(w->f, NULL, "input", "No tool output found for %s %.70s.", text_of(w->open, id), id);
}

json_t *api_responses_items_messages(struct fields *f, const struct api_responses_reader *r, const json_t *items,
                                     size_t nearlier)
{
    struct walk w = {.f = f, .reader = r, .nearlier = nearlier, .messages = json_array(), .calls = json_object(),
                     .open = json_object()};
    buf_init(&w.thoughts, SIZE_MAX);
    for (; w.index < json_array_size(items) && !f->failed; w.index++)
        read_item(&w, json_array_get(items, w.index));
    end_turn(&w);
    buf_done(&w.thoughts);
    check_open(&w);
    json_decref(w.calls);
    json_decref(w.open);
    if (f->failed) {
        json_decref(w.messages);
        return NULL;
    }
    return without_empty_turns(w.messages);
}

// ---- as they are kept

void api_responses_items_id(const char *prefix, char ret_id[API_RESPONSES_ID])
{
    snprintf(ret_id, API_RESPONSES_ID, "%.24s%016llx%016llx", prefix, (unsigned long long)rng_os(), (unsigned long long)rng_os());
}

static const char *prefix_of(const char *type)
{
    static const char *const prefixes[][2] = {{"message", "msg_"}, {"function_call", "fc_"}, {"function_call_output", "fco_"},
                                              {"custom_tool_call", "ctc_"}, {"custom_tool_call_output", "ctco_"},
                                              {"reasoning", "rs_"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strcmp(type, prefixes[i][0]))
            return prefixes[i][1];
    return "item_";
}

static void keep_content(json_t *item)
{
    const json_t *content = json_object_get(item, "content");
    const char *role = text_of(item, "role");
    if (!json_is_string(content) || !role)
        return;
    json_t *part;
    if (!strcmp(role, "assistant"))
        part = json_pack("{s:s, s:O, s:[], s:[]}", "type", "output_text", "text", content, "annotations", "logprobs");
    else
        part = json_pack("{s:s, s:O}", "type", "input_text", "text", content);
    json_object_set_new(item, "content", json_pack("[o]", part));
}

json_t *api_responses_items_kept(const json_t *items)
{
    json_t *kept = json_deep_copy(items), *item;
    size_t i;
    json_array_foreach(kept, i, item) {
        char id[API_RESPONSES_ID];
        if (!get(item, "type"))
            json_object_set_new(item, "type", json_string("message"));
        const char *type = text_of(item, "type"), *given = text_of(item, "id");
        if (!given || !*given || strlen(given) >= API_RESPONSES_ID) {
            api_responses_items_id(prefix_of(type), id);
            json_object_set_new(item, "id", json_string(id));
        }
        if (!get(item, "status") && strcmp(type, "reasoning") != 0)
            json_object_set_new(item, "status", json_string("completed"));
        if (!strcmp(type, "message"))
            keep_content(item);
    }
    return kept;
}
