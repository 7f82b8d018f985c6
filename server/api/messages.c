// messages.c - checks chat messages field by field and copies them into the shape templates expect. Loop thread only.
//
// The copy is shallow: strings are shared with the request's own JSON by reference count.
#include "server/api/messages.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "engine/engine.h"
#include "server/api/fields.h"
#include "server/api/reasoning.h"

enum { PATH = 96, MAX_CONTENT = 1 << 30, MAX_MESSAGES = 1 << 16 };

// One message on its way through.
struct message {
    struct fields *f;
    const json_t *in;
    json_t *out;
    const char *role;
    int index;
};

static const json_t *get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return v && !json_is_null(v) ? v : NULL;
}

// Written only when something is wrong: a chat may have thousands of messages.
static void path_of(const struct message *m, const char *rest, char *ret_path)
{
    snprintf(ret_path, PATH, "messages[%d]%s%s", m->index, *rest ? "." : "", rest);
}

static void missing(struct fields *f, const char *path)
{
    api_fields_fail(f, "missing_required_parameter", path, "Missing required parameter: '%s'.", path);
}

static bool is_role(const struct message *m, const char *role)
{
    return !strcmp(m->role, role);
}

// ---- content

static void refuse_part(struct message *m, const char *path, const char *type)
{
    static const char *const media[] = {"image_url", "input_audio", "file", "video_url", "input_image", "audio_url"};
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (!strcmp(type, media[i])) {
            api_fields_fail(m->f, "unsupported_value", path,
                            "Unsupported value: '%s' content is not supported with this model, which reads text.",
                            type);
            return;
        }
    api_fields_fail(m->f, "invalid_value", path, "Invalid value: '%.40s'. Supported values are: 'text'%s.", type,
                    is_role(m, "assistant") ? " and 'refusal'" : "");
}

static void add_part(struct message *m, const json_t *part, int at, struct buf *text)
{
    char path[PATH], field[40];
    snprintf(field, sizeof field, "content[%d]", at);
    path_of(m, field, path);
    if (!json_is_object(part)) {
        api_fields_wrong_type(m->f, part, path, "an object");
        return;
    }
    const char *type = json_string_value(json_object_get(part, "type"));
    snprintf(field, sizeof field, "content[%d].type", at);
    path_of(m, field, path);
    if (!type) {
        missing(m->f, path);
        return;
    }
    bool refusal = !strcmp(type, "refusal") && is_role(m, "assistant");
    if (strcmp(type, "text") && !refusal) {
        refuse_part(m, path, type);
        return;
    }
    snprintf(field, sizeof field, "content[%d].%s", at, type);
    path_of(m, field, path);
    const json_t *v = get(part, type);
    const char *s;
    if (!v)
        missing(m->f, path);
    else if (api_fields_as_string(m->f, v, path, &s))
        buf_add(text, s, json_string_length(v));
}

// Parts joined to one string; NULL after a failure.
static json_t *join_parts(struct message *m, const json_t *parts)
{
    char path[PATH];
    path_of(m, "content", path);
    if (!json_array_size(parts)) {
        api_fields_empty(m->f, path);
        return NULL;
    }
    struct buf text;
    buf_init(&text, MAX_CONTENT);
    for (size_t i = 0; i < json_array_size(parts) && !m->f->failed; i++)
        add_part(m, json_array_get(parts, i), (int)i, &text);
    if (text.over)
        api_fields_fail(m->f, "string_above_max_length", path, "Invalid '%s': string too long.", path);
    json_t *joined = m->f->failed ? NULL : json_stringn(text.data ? text.data : "", text.len);
    buf_done(&text);
    return joined;
}

// An assistant may say nothing when it called something or refused.
static json_t *no_content(struct message *m)
{
    char path[PATH];
    const json_t *refusal = get(m->in, "refusal");
    if (is_role(m, "assistant") && json_is_string(refusal))
        return json_incref((json_t *)refusal);
    if (is_role(m, "assistant") && (get(m->in, "tool_calls") || get(m->in, "function_call")))
        return json_string("");
    const json_t *null = json_object_get(m->in, "content");
    path_of(m, "content", path);
    if (null)
        api_fields_wrong_type(m->f, null, path, "a string or an array of content parts");
    else
        missing(m->f, path);
    return NULL;
}

static void read_content(struct message *m)
{
    char path[PATH];
    const json_t *v = get(m->in, "content");
    json_t *content = NULL;
    if (!v) {
        content = no_content(m);
    } else if (json_is_string(v)) {
        content = json_incref((json_t *)v);
    } else if (json_is_array(v)) {
        content = join_parts(m, v);
    } else {
        path_of(m, "content", path);
        api_fields_wrong_type(m->f, v, path, "a string or an array of content parts");
    }
    if (content)
        json_object_set_new(m->out, "content", content);
}

// ---- tool calls of earlier turns

// Both spellings of no arguments.
static bool is_blank(const char *s)
{
    return !s[strspn(s, " \t\r\n")];
}

// Arguments as the object they stand for; templates print it or walk through it. NULL after a failure.
static json_t *read_arguments(struct message *m, const json_t *v, const char *path)
{
    const char *text = "";
    if (json_is_object(v))
        return json_incref((json_t *)v);
    if (v && !api_fields_as_string(m->f, v, path, &text))
        return NULL;
    if (is_blank(text))
        return json_object();
    json_t *parsed = api_fields_json(m->f, path, text, json_string_length(v));
    if (json_is_object(parsed))
        return parsed;
    if (!m->f->failed)
        api_fields_fail(m->f, "invalid_value", path, "Invalid '%s': expected the text of a JSON object, but got %s.", path,
                    parsed ? "another kind of JSON" : "no JSON");
    json_decref(parsed);
    return NULL;
}

// What stands in a call's "function" or "custom", as a function with arguments. NULL after a failure.
static json_t *read_function(struct message *m, const json_t *function, bool custom, const char *path)
{
    char at[PATH];
    const char *name = NULL, *input = "";
    if (!json_is_object(function)) {
        if (function)
            api_fields_wrong_type(m->f, function, path, "an object");
        else
            missing(m->f, path);
        return NULL;
    }
    const json_t *v = get(function, "name");
    snprintf(at, sizeof at, "%.80s.name", path);
    if (!v)
        missing(m->f, at);
    if (!v || !api_fields_as_string(m->f, v, at, &name))
        return NULL;
    v = get(function, custom ? "input" : "arguments");
    snprintf(at, sizeof at, "%.80s.%s", path, custom ? "input" : "arguments");
    if (!custom) {
        json_t *arguments = read_arguments(m, v, at);
        return arguments ? json_pack("{s:s, s:o}", "name", name, "arguments", arguments) : NULL;
    }
    if (v && !api_fields_as_string(m->f, v, at, &input))
        return NULL;
    return json_pack("{s:s, s:{s:s}}", "name", name, "arguments", "input", input);
}

// "function" or "custom", where the call's name is; NULL after a failure.
static const char *call_type(struct message *m, const json_t *call, int at)
{
    char path[PATH], field[48];
    const json_t *type = get(call, "type");
    if (!type || (json_is_string(type) && !strcmp(json_string_value(type), "function")))
        return "function";
    if (json_is_string(type) && !strcmp(json_string_value(type), "custom"))
        return "custom";
    snprintf(field, sizeof field, "tool_calls[%d].type", at);
    path_of(m, field, path);
    api_fields_fail(m->f, "unsupported_value", path,
                    "Unsupported value for '%s'. Supported values are: 'function' and 'custom'.", path);
    return NULL;
}

static void read_call(struct message *m, const json_t *call, int at, json_t *calls)
{
    char path[PATH], field[48];
    const char *s, *type;
    snprintf(field, sizeof field, "tool_calls[%d]", at);
    path_of(m, field, path);
    if (!json_is_object(call)) {
        api_fields_wrong_type(m->f, call, path, "an object");
        return;
    }
    if (!(type = call_type(m, call, at)))
        return;
    const json_t *id = get(call, "id");
    snprintf(field, sizeof field, "tool_calls[%d].id", at);
    path_of(m, field, path);
    if (id && !api_fields_as_string(m->f, id, path, &s))
        return;
    snprintf(field, sizeof field, "tool_calls[%d].%s", at, type);
    path_of(m, field, path);
    json_t *function = read_function(m, get(call, type), !strcmp(type, "custom"), path);
    if (!function)
        return;
    json_t *out = json_pack("{s:s, s:o}", "type", "function", "function", function);
    if (id)
        json_object_set(out, "id", (json_t *)id);
    json_array_append_new(calls, out);
}

static void read_calls(struct message *m)
{
    char path[PATH];
    const json_t *list = get(m->in, "tool_calls"), *old = get(m->in, "function_call");
    if (!is_role(m, "assistant") || (!list && !old))
        return;
    json_t *calls = json_array();
    path_of(m, "tool_calls", path);
    if (list && !json_is_array(list))
        api_fields_wrong_type(m->f, list, path, "an array of objects");
    for (size_t i = 0; i < json_array_size(list) && !m->f->failed; i++)
        read_call(m, json_array_get(list, i), (int)i, calls);
    path_of(m, "function_call", path);
    json_t *function = old && !m->f->failed ? read_function(m, old, false, path) : NULL;
    if (function)
        json_array_append_new(calls, json_pack("{s:s, s:o}", "type", "function", "function", function));
    if (json_array_size(calls))
        json_object_set_new(m->out, "tool_calls", calls);
    else
        json_decref(calls);
}

// ---- one message

static void read_role(struct message *m)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    char path[PATH];
    const json_t *v = get(m->in, "role");
    m->role = json_is_string(v) ? json_string_value(v) : "";
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (is_role(m, roles[i])) {
            json_object_set_new(m->out, "role", json_string(is_role(m, "function") ? "tool" : m->role));
            return;
        }
    path_of(m, "role", path);
    if (!v)
        missing(m->f, path);
    else if (!json_is_string(v))
        api_fields_wrong_type(m->f, v, path, "a string");
    else
        api_fields_fail(m->f, "invalid_value", path,
                        "Invalid value: '%.40s'. Supported values are: 'system', 'developer', 'user', 'assistant', "
                        "'tool' and 'function'.", m->role);
}

static void read_string(struct message *m, const char *name, bool required)
{
    char path[PATH];
    const json_t *v = get(m->in, name);
    if (json_is_string(v))
        json_object_set(m->out, name, (json_t *)v);
    if (json_is_string(v) || (!v && !required))
        return;
    path_of(m, name, path);
    if (!v)
        missing(m->f, path);
    else
        api_fields_wrong_type(m->f, v, path, "a string");
}

// Refers to an answer of ours; there are none.
static void refuse_audio(struct message *m)
{
    char path[PATH];
    if (!get(m->in, "audio"))
        return;
    path_of(m, "audio", path);
    api_fields_fail(m->f, "unsupported_value", path,
                    "Unsupported value: '%s' refers to an audio answer, which this server does not keep.", path);
}

// A thinking model's thoughts, under the name most templates look for.
static void read_thoughts(struct message *m)
{
    const json_t *thoughts = get(m->in, "reasoning");
    read_string(m, "reasoning_content", false);
    if (json_is_string(thoughts) && !json_object_get(m->out, "reasoning_content"))
        json_object_set(m->out, "reasoning_content", (json_t *)thoughts);
}

// What templates of other servers' users look at (thinking, ...).
static void copy_others(struct message *m)
{
    static const char *const handled[] = {"role", "content", "name", "tool_calls", "tool_call_id", "function_call",
                                          "refusal", "audio", "annotations", "reasoning_content"};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)m->in, name, v) {
        bool known = json_is_null(v);
        for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
            known |= !strcmp(name, handled[i]);
        if (!known)
            json_object_set(m->out, name, v);
    }
}

static json_t *read_message(struct fields *f, const json_t *in, int index)
{
    struct message m = {.f = f, .in = in, .index = index};
    if (!json_is_object(in)) {
        char path[PATH];
        path_of(&m, "", path);
        api_fields_wrong_type(f, in, path, "an object");
        return NULL;
    }
    m.out = json_object();
    read_role(&m);
    if (!f->failed)
        read_content(&m);
    if (!f->failed)
        read_calls(&m);
    if (!f->failed)
        read_string(&m, "name", is_role(&m, "function"));
    if (!f->failed)
        read_string(&m, "tool_call_id", is_role(&m, "tool"));
    if (!f->failed && is_role(&m, "assistant"))
        read_thoughts(&m);
    refuse_audio(&m);
    copy_others(&m);
    if (f->failed) {
        json_decref(m.out);
        return NULL;
    }
    return m.out;
}

static bool has_role(const json_t *m, const char *role)
{
    return !strcmp(json_string_value(json_object_get(m, "role")), role);
}

// A result answers one of the calls of the last message that made any. Calls without an id are answered by order.
static void check_result(struct fields *f, const json_t *result, const json_t *calls, int index)
{
    const json_t *id = json_object_get(result, "tool_call_id"), *call;
    size_t i;
    if (!json_is_string(id))
        return;
    json_array_foreach(calls, i, call) {
        const json_t *of = json_object_get(call, "id");
        if (!of || json_equal(of, id))
            return;
    }
    if (calls)
        api_fields_fail(f, NULL, "messages",
                        "Invalid 'messages[%d].tool_call_id': '%.64s' is none of the 'tool_calls' of the assistant message "
                        "before it.", index, json_string_value(id));
    else
        api_fields_fail(f, NULL, "messages",
                        "Invalid 'messages[%d]': a message of role 'tool' must follow an assistant message with 'tool_calls'.",
                        index);
}

static json_t *read_messages(struct fields *f)
{
    const json_t *list = api_fields_get(f, "messages");
    if (api_fields_missing(f, "messages"))
        return NULL;
    if (!json_is_array(list)) {
        api_fields_wrong_type(f, list, "messages", "an array of objects");
        return NULL;
    }
    if (!json_array_size(list)) {
        api_fields_empty(f, "messages");
        return NULL;
    }
    if (json_array_size(list) > MAX_MESSAGES) {
        api_fields_fail(f, "array_above_max_length", "messages",
                        "Invalid 'messages': array too long. Expected at most %d messages.", MAX_MESSAGES);
        return NULL;
    }
    json_t *out = json_array();
    const json_t *calls = NULL;
    for (size_t i = 0; i < json_array_size(list) && !f->failed; i++) {
        json_t *m = read_message(f, json_array_get(list, i), (int)i);
        if (!m)
            break;
        json_array_append_new(out, m);
        if (has_role(m, "tool"))
            check_result(f, m, calls, (int)i);
        calls = json_object_get(m, "tool_calls") ? json_object_get(m, "tool_calls") : calls;
    }
    if (f->failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

// The array is not empty.
static bool ends_with_assistant(const json_t *messages)
{
    return has_role(json_array_get(messages, json_array_size(messages) - 1), "assistant");
}

// An assistant's text at the end is the beginning of the answer, as llama-server has it; a call is a turn of its own.
static bool ends_with_beginning(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return ends_with_assistant(messages) && !json_object_get(last, "tool_calls") &&
           json_string_length(json_object_get(last, "content")) > 0;
}

// ---- the whole prompt

// The template's own variables. Those the server sets itself cannot be replaced.
static void check_kwargs(struct fields *f, const json_t *kwargs)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt",
                                      "continue_final_message", "bos_token", "eos_token"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(kwargs, own[i]))
            api_fields_fail(f, "invalid_value", "chat_template_kwargs",
                            "Invalid 'chat_template_kwargs': '%s' is set by the request's other fields.", own[i]);
}

// What a template sees beside the messages; NULL: nothing. A new reference.
json_t *api_messages_kwargs(struct fields *f)
{
    const json_t *given = NULL;
    struct api_reasoning reasoning;
    if (api_fields_object(f, "chat_template_kwargs", &given))
        check_kwargs(f, given);
    api_reasoning_read(f, &reasoning);
    json_t *kwargs = api_reasoning_kwargs(&reasoning);
    if (!kwargs)
        return json_incref((json_t *)given);
    if (given)
        json_object_update(kwargs, (json_t *)given);
    return kwargs;
}

static void read_turn(struct fields *f, struct prompt *p)
{
    bool generation_prompt = true;
    bool said = api_fields_bool(f, "add_generation_prompt", &generation_prompt);
    if (!api_fields_bool(f, "continue_final_message", &p->continue_final_message) && !said && p->messages)
        p->continue_final_message = ends_with_beginning(p->messages);
    p->add_generation_prompt = generation_prompt && !p->continue_final_message;
    if (p->continue_final_message && said && generation_prompt)
        api_fields_fail(f, "invalid_value", "continue_final_message",
                        "Invalid 'continue_final_message': it cannot be true together with 'add_generation_prompt'.");
    if (p->messages && p->continue_final_message && !ends_with_assistant(p->messages))
        api_fields_fail(f, "invalid_value", "continue_final_message",
                        "Invalid 'continue_final_message': the last message is not the assistant's.");
}

static void drop_json(void *v)
{
    json_decref(v);
}

json_t *api_messages_own(struct arena *a, const json_t *v)
{
    json_t *copy = v ? json_deep_copy(v) : NULL;
    arena_defer(a, drop_json, copy);
    return copy;
}

void api_messages_prompt(struct fields *f, struct arena *a, struct prompt *ret_prompt)
{
    struct prompt p = {0};
    const json_t *documents = NULL;
    api_fields_array(f, "documents", &documents);
    json_t *messages = p.messages = read_messages(f), *kwargs = api_messages_kwargs(f);
    read_turn(f, &p);
    if (!f->failed) {
        p.messages = api_messages_own(a, messages);
        p.kwargs = api_messages_own(a, kwargs);
        p.documents = api_messages_own(a, documents);
        *ret_prompt = p;
    }
    json_decref(messages);
    json_decref(kwargs);
}
