// chat_prepare.c - messages of a request in the shape a template takes (chat_traits). Works on shallow copies, and in time that
// grows with the request: it has tens of thousands of messages, parts or calls when somebody wants it to.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "engine/text/answer_int.h"
#include "engine/text/chat_int.h"

enum { MAX_TEXT = TEMPLATE_MAX_OUTPUT };

static bool is_role(const json_t *m, const char *role)
{
    const char *r = json_string_value(json_object_get(m, "role"));
    return r && !strcmp(r, role);
}

static void add_string(struct buf *text, const char *between, const json_t *s)
{
    if (text->len && json_string_length(s))
        buf_add_str(text, between);
    buf_add(text, json_string_value(s), json_string_length(s));
}

// Ends it.
static json_t *taken(struct buf *text)
{
    json_t *v = json_stringn(text->data ? text->data : "", text->len);
    buf_done(text);
    return v ? v : json_string("");
}

static json_t *joined(const json_t *a, const char *between, const json_t *b)
{
    struct buf text;
    buf_init(&text, MAX_TEXT);
    add_string(&text, between, a);
    add_string(&text, between, b);
    return taken(&text);
}

// ---- one message

// The texts of parts that are all text; NULL when there are others.
static json_t *parts_text(const json_t *parts)
{
    const json_t *part;
    size_t i;
    struct buf text;
    buf_init(&text, MAX_TEXT);
    json_array_foreach(parts, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *t = json_object_get(part, "text");
        if (!type || strcmp(type, "text") || !json_is_string(t)) {
            buf_done(&text);
            return NULL;
        }
        add_string(&text, "", t);
    }
    return taken(&text);
}

static json_t *text_of(const json_t *m)
{
    json_t *content = json_object_get(m, "content"), *text = json_is_array(content) ? parts_text(content) : NULL;
    if (text)
        return text;
    return json_is_string(content) ? json_incref(content) : json_string("");
}

static void set_content(const struct chat_traits *t, json_t *m)
{
    json_t *content = json_object_get(m, "content"), *text = NULL;
    if (t->text_content && json_is_array(content))
        text = parts_text(content);
    else if (!t->text_content && json_is_string(content))
        text = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    if (text)
        json_object_set_new(m, "content", text);
}

// As transformers: the reasoning of a message is found under every name templates use.
static void set_reasoning(json_t *m)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (size_t i = 0; i < 3 && !reasoning; i++)
        reasoning = json_object_get(m, names[i]);
    if (!reasoning)
        return;
    if (!json_object_get(m, "thinking"))
        json_object_set(m, "thinking", reasoning);
    json_object_set(m, "reasoning_content", reasoning);
}

static json_t *without_nulls(const json_t *in)
{
    json_t *m = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)in, key, v)
        if (!json_is_null(v))
            json_object_set(m, key, v);
    return m;
}

// ---- calls

// Nine letters and digits that stand for an id; the same id always gives the same.
static json_t *short_id(const json_t *id)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *s = json_string_value(id);
    uint64_t h = 0xCBF29CE484222325u;  // FNV-1a
    char out[10] = {0};
    size_t plain = strspn(s, digits);
    if (plain == 9 && !s[9])
        return json_string(s);
    for (size_t i = 0; i < json_string_length(id); i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    for (int i = 0; i < 9; i++, h /= 62)
        out[i] = digits[h % 62];
    return json_string(out);
}

static void set_id(const struct chat_traits *t, json_t *holder, const char *key)
{
    json_t *id = json_object_get(holder, key);
    if (!t->any_call_id && json_is_string(id))
        json_object_set_new(holder, key, short_id(id));
}

static json_t *dump(const struct chat *c, json_t *value)
{
    json_t *kwargs = json_pack("{s:O}", "value", value), *text = NULL;
    struct template_input in = {.kwargs = kwargs};
    struct rendered r;
    err e;
    if (!template_render(c->dump, &in, &r, &e)) {
        text = json_stringn(r.text, r.len);
        rendered_done(&r);
    }
    json_decref(kwargs);
    return text ? text : json_string("{}");
}

// The arguments as an object, whether they came as one or as JSON text; a new reference, NULL: they are neither.
static json_t *arguments_object(json_t *given)
{
    if (!given || json_is_null(given))
        return json_object();
    if (json_is_object(given))
        return json_incref(given);
    const char *s = json_string_value(given);
    if (!s)
        return NULL;
    if (!s[strspn(s, " \t\r\n")])
        return json_object();
    json_t *v = json_loadb(s, json_string_length(given), JSON_ALLOW_NUL, NULL);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

static json_t *prepare_call(const struct chat *c, const json_t *in, size_t message, size_t at, err *e)
{
    char where[80];
    json_t *function = json_object_get(in, "function");
    snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", message, at);
    if (!json_is_object(in) || !json_is_string(json_object_get(function, "name"))) {
        err_set_param(e, ERR_INVALID, where, "a tool call must be an object with function.name");
        return NULL;
    }
    json_t *object = arguments_object(json_object_get(function, "arguments"));
    if (!object) {
        strncat(where, ".function.arguments", sizeof where - strlen(where) - 1);
        err_set_param(e, ERR_INVALID, where, "the arguments of the call to '%.60s' must be a JSON object",
                      json_string_value(json_object_get(function, "name")));
        return NULL;
    }
    json_t *call = json_copy((json_t *)(uintptr_t)in), *f = json_copy(function);
    // Text that came as text stays as the client (and once the model) wrote it.
    json_t *given = json_object_get(function, "arguments");
    if (c->traits.object_arguments)
        json_object_set(f, "arguments", object);
    else if (!json_is_string(given) || !json_string_length(given))
        json_object_set_new(f, "arguments", dump(c, object));
    json_object_set_new(call, "function", f);
    set_id(&c->traits, call, "id");
    json_decref(object);
    return call;
}

// Calls behind the content, for templates that do not show them: as the model was told to write them, where that is as
// objects (s), else as lines of JSON.
static void write_calls(const struct chat *c, json_t *m, json_t *calls, const struct answer_style *s)
{
    char *const *mark = s && s->form == FORM_OBJECT ? s->mark : NULL;
    json_t *call, *before = text_of(m), *written, *both;
    struct buf text;
    size_t i;
    buf_init(&text, MAX_TEXT);
    buf_add_str(&text, mark ? mark[MARK_SECTION] : "");
    json_array_foreach(calls, i, call) {
        json_t *f = json_object_get(call, "function"), *one = json_object();
        json_object_set(one, mark && *mark[MARK_NAME_KEY] ? mark[MARK_NAME_KEY] : "name", json_object_get(f, "name"));
        json_object_set_new(one, mark && *mark[MARK_ARGUMENTS_KEY] ? mark[MARK_ARGUMENTS_KEY] : "arguments",
                            arguments_object(json_object_get(f, "arguments")));
        json_t *line = dump(c, one);
        buf_add_str(&text, !i ? "" : mark ? mark[MARK_SEPARATOR] : "\n");
        buf_add_str(&text, mark ? mark[MARK_CALL] : "");
        buf_add(&text, json_string_value(line), json_string_length(line));
        buf_add_str(&text, mark ? mark[MARK_CALL_END] : "");
        json_decref(line);
        json_decref(one);
    }
    buf_add_str(&text, mark ? mark[MARK_SECTION_END] : "");
    written = json_stringn(text.data ? text.data : "", text.len);
    both = joined(before, "\n", written);
    json_object_set_new(m, "content", both);
    json_decref(before);
    json_decref(written);
    buf_done(&text);
    set_content(&c->traits, m);
    json_object_del(m, "tool_calls");
}

static err_code set_calls(const struct chat *c, json_t *m, size_t index, err *e)
{
    json_t *in = json_object_get(m, "tool_calls"), *calls, *call;
    size_t i;
    if (!json_is_array(in))
        return ERR_OK;
    calls = json_array();
    json_array_foreach(in, i, call) {
        json_t *prepared = prepare_call(c, call, index, i, e);
        if (!prepared) {
            json_decref(calls);
            return e->code;
        }
        json_array_append_new(calls, prepared);
    }
    json_object_set_new(m, "tool_calls", calls);
    if (!json_array_size(calls))
        json_object_del(m, "tool_calls");
    return ERR_OK;
}

// After the results are in order, which needs the calls.
static void finish_calls(const struct chat *c, json_t *m, bool with_tools)
{
    json_t *calls = json_object_get(m, "tool_calls"), *content = json_object_get(m, "content");
    if (!json_array_size(calls))
        return;
    if (!c->traits.calls)
        write_calls(c, m, calls, with_tools ? chat_answer_style(c, true) : NULL);
    else if (c->traits.null_content && !json_string_length(content) && !json_is_array(content))
        json_object_set_new(m, "content", json_null());
}

static json_t *prepare_message(const struct chat *c, const json_t *in, size_t index, err *e)
{
    char where[40];
    snprintf(where, sizeof where, "messages[%zu]", index);
    if (!json_is_object(in) || !json_is_string(json_object_get(in, "role"))) {
        err_set_param(e, ERR_INVALID, where, "a message must be an object with a role");
        return NULL;
    }
    json_t *m = without_nulls(in);
    if (!c->traits.developer && is_role(m, "developer"))
        json_object_set_new(m, "role", json_string("system"));
    set_reasoning(m);
    set_id(&c->traits, m, "tool_call_id");
    set_content(&c->traits, m);
    if (set_calls(c, m, index, e)) {
        json_decref(m);
        return NULL;
    }
    return m;
}

// ---- results in the order of their calls

// The calls of a message by their ids.
struct places {
    struct map *of;  // the first of an id
    bool ids;        // all have one
};

static struct places places_of(const json_t *calls)
{
    struct places p = {map_new(json_array_size(calls)), true};
    const json_t *call;
    uint32_t known;
    size_t i;
    json_array_foreach(calls, i, call) {
        const json_t *id = json_object_get(call, "id");
        p.ids = p.ids && json_is_string(id);
        if (json_is_string(id) && !map_get(p.of, json_string_value(id), json_string_length(id), &known))
            map_put(p.of, json_string_value(id), json_string_length(id), (uint32_t)i);
    }
    return p;
}

// Position of a result's call; -1: it has no id or the calls have none; -2: there is no such call.
static int call_of(const json_t *result, const struct places *p)
{
    const json_t *id = json_object_get(result, "tool_call_id");
    uint32_t at;
    if (!json_is_string(id))
        return -1;
    if (map_get(p->of, json_string_value(id), json_string_length(id), &at))
        return (int)at;
    return p->ids ? -2 : -1;
}

struct placed {
    int call;
    size_t at;  // among the messages
};

static int by_call(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

// Results without an id keep their place among the others.
static err_code order_results(json_t *messages, size_t from, size_t n, const struct places *calls, err *e)
{
    char where[60];
    struct placed *sorted = mem_new(n * sizeof *sorted + 1);
    size_t *places = mem_new(n * sizeof *places + 1), found = 0;
    for (size_t i = from; i < from + n; i++) {
        int call = call_of(json_array_get(messages, i), calls);
        if (call == -2) {
            free(places);
            free(sorted);
            snprintf(where, sizeof where, "messages[%zu].tool_call_id", i);
            return err_set_param(e, ERR_INVALID, where, "no call of the assistant message before it has this id");
        }
        if (call < 0)
            continue;
        places[found] = i;
        sorted[found++] = (struct placed){call, i};
    }
    qsort(sorted, found, sizeof *sorted, by_call);
    json_t *all = json_array();
    for (size_t i = 0; i < found; i++)
        json_array_append(all, json_array_get(messages, sorted[i].at));
    for (size_t i = 0; i < found; i++)
        json_array_set(messages, places[i], json_array_get(all, i));
    json_decref(all);
    free(places);
    free(sorted);
    return ERR_OK;
}

static size_t results_after(const json_t *messages, size_t i)
{
    size_t n = i + 1;
    while (n < json_array_size(messages) && is_role(json_array_get(messages, n), "tool"))
        n++;
    return n - i - 1;
}

// Runs on messages as the client sent them, so that places in errors are the client's.
static err_code order_all(json_t *messages, err *e)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        size_t n = json_array_size(calls) ? results_after(messages, i) : 0;
        if (n == 0)
            continue;
        struct places p = places_of(calls);
        err_code code = order_results(messages, i + 1, n, &p, e);
        map_free(p.of);
        if (code)
            return code;
    }
    return ERR_OK;
}

// ---- the conversation

// An assistant message with several calls as one message a call, each followed by its results.
static void split_message(json_t *out, json_t *messages, size_t i, size_t results)
{
    json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls"), *call;
    struct places p = places_of(calls);
    size_t k, used = 0;
    json_array_foreach(calls, k, call) {
        json_t *one = json_copy(m);
        json_object_set_new(one, "tool_calls", json_pack("[O]", call));
        if (k && json_is_string(json_object_get(one, "content")))
            json_object_set_new(one, "content", json_string(""));
        json_array_append_new(out, one);
        for (; used < results; used++) {
            json_t *r = json_array_get(messages, i + 1 + used);
            int of = call_of(r, &p);
            bool last = k + 1 == json_array_size(calls), mine = of == (int)k || (of < 0 && used == k);
            if (!mine && !last)
                break;
            json_array_append(out, r);
        }
    }
    map_free(p.of);
}

static json_t *split_calls(json_t *messages)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (json_array_size(json_object_get(m, "tool_calls")) < 2) {
            json_array_append(out, m);
            continue;
        }
        size_t results = results_after(messages, i);
        split_message(out, messages, i, results);
        i += results;
    }
    json_decref(messages);
    return out;
}

// to's text, a blank line, and from's text or the other way round, as the content of `to`.
static void add_text(const struct chat_traits *t, json_t *to, const json_t *from, bool in_front)
{
    json_t *a = text_of(in_front ? from : to), *b = text_of(in_front ? to : from);
    json_object_set_new(to, "content", joined(a, "\n\n", b));
    set_content(t, to);
    json_decref(a);
    json_decref(b);
}

// Several texts, blank lines between them, as the content of `to`.
struct gathered {
    json_t *to;  // NULL: nothing is gathered
    struct buf text;
};

static void gather(struct gathered *g, json_t *to, const json_t *from)
{
    json_t *first = g->to ? NULL : text_of(to), *text = text_of(from);
    if (!g->to) {
        buf_init(&g->text, MAX_TEXT);
        add_string(&g->text, "", first);
    }
    g->to = to;
    add_string(&g->text, "\n\n", text);
    json_decref(first);
    json_decref(text);
}

static void gather_end(const struct chat_traits *t, struct gathered *g)
{
    if (!g->to)
        return;
    json_object_set_new(g->to, "content", taken(&g->text));
    set_content(t, g->to);
    g->to = NULL;
}

// Results as user messages, joined with their neighbours: such templates want user and assistant in turn.
static json_t *results_as_user(const struct chat_traits *t, json_t *messages)
{
    json_t *out = json_array(), *m, *last = NULL;
    size_t i;
    bool was_result = false;
    struct gathered g = {0};
    json_array_foreach(messages, i, m) {
        bool result = is_role(m, "tool");
        if (was_result && (result || is_role(m, "user"))) {
            gather(&g, last, m);
            was_result = result;
            continue;
        }
        gather_end(t, &g);
        last = m;
        was_result = result;
        if (result) {
            json_object_set_new(m, "role", json_string("user"));
            json_object_del(m, "tool_call_id");
        }
        json_array_append(out, m);
    }
    gather_end(t, &g);
    json_decref(messages);
    return out;
}

// All system messages as one at the front, with the role of the first: developer is the same to a template that knows
// it.
static json_t *merge_system(const struct chat_traits *t, json_t *messages)
{
    json_t *out = json_array(), *m, *first = NULL;
    size_t i;
    struct gathered g = {0};
    json_array_foreach(messages, i, m)
        if (!is_role(m, "system") && !is_role(m, "developer"))
            json_array_append(out, m);
        else if (!first)
            json_array_insert(out, 0, first = m);
        else
            gather(&g, first, m);
    gather_end(t, &g);
    json_decref(messages);
    return out;
}

// The system text in front of the first user message. Without a user the template is left to say what it thinks.
static void system_to_user(const struct chat_traits *t, json_t *messages)
{
    json_t *system = json_array_get(messages, 0), *user = NULL;
    if (!is_role(system, "system"))
        return;
    for (size_t i = 1; i < json_array_size(messages) && !user; i++)
        if (is_role(json_array_get(messages, i), "user"))
            user = json_array_get(messages, i);
    if (!user)
        return;
    add_text(t, user, system, true);
    json_array_remove(messages, 0);
}

// ---- ids that are names

// New ids for the calls of message i, numbered on from *index, and for the results behind it.
static void name_calls(json_t *messages, size_t i, size_t *index)
{
    json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls"), *call;
    size_t results = results_after(messages, i), k;
    struct places p = places_of(calls);
    char id[200];
    for (size_t r = 0; r < results; r++) {
        json_t *m = json_array_get(messages, i + 1 + r);
        int of = call_of(m, &p);
        call = json_array_get(calls, of < 0 ? r : (size_t)of);
        const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
        snprintf(id, sizeof id, "functions.%.150s:%zu", name ? name : "", *index + (of < 0 ? r : (size_t)of));
        if (call)
            json_object_set_new(m, "tool_call_id", json_string(id));
    }
    json_array_foreach(calls, k, call) {
        const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
        snprintf(id, sizeof id, "functions.%.150s:%zu", name ? name : "", *index + k);
        json_object_set_new(call, "id", json_string(id));
    }
    *index += json_array_size(calls);
    map_free(p.of);
}

static void name_all(json_t *messages)
{
    size_t index = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (json_array_size(json_object_get(json_array_get(messages, i), "tool_calls")))
            name_calls(messages, i, &index);
}

// ---- tools for templates that show none

// The tools and how to call them, as the style answer_style_generic reads it.
static json_t *tools_text(const struct chat *c, const json_t *tools)
{
    struct buf text;
    const json_t *tool;
    size_t i;
    buf_init(&text, MAX_TEXT);
    buf_add_str(&text, "# Tools\n\nYou can call these functions:\n\n");
    json_array_foreach(tools, i, tool) {
        json_t *function = json_object_get(tool, "function");
        json_t *line = dump(c, function ? function : (json_t *)(uintptr_t)tool);
        buf_add(&text, json_string_value(line), json_string_length(line));
        buf_add_str(&text, "\n");
        json_decref(line);
    }
    buf_add_str(&text, "\nTo call one, answer with a JSON object of its name and arguments like this, once for each call:\n\n"
                       ANSWER_GENERIC_CALL "{\"name\": \"NAME\", \"arguments\": {\"KEY\": VALUE}}" ANSWER_GENERIC_CALL_END
                       "\n\nYou then get what they return. Answer in words when no function helps.");
    json_t *v = json_stringn(text.data ? text.data : "", text.len);
    buf_done(&text);
    return v ? v : json_string("");
}

static void add_tools(const struct chat *c, json_t *messages, const json_t *tools)
{
    json_t *m = json_object(), *first = json_array_get(messages, 0);
    json_object_set_new(m, "role", json_string("system"));
    json_object_set_new(m, "content", tools_text(c, tools));
    if (is_role(first, "system") || is_role(first, "developer")) {
        add_text(&c->traits, first, m, false);
    } else {
        set_content(&c->traits, m);
        json_array_insert(messages, 0, m);
    }
    json_decref(m);
}

err_code chat_prepare(const struct chat *c, const struct json_t *messages, const struct json_t *tools,
                      struct json_t **ret_messages, err *e)
{
    const struct chat_traits *t = &c->traits;
    bool generic = json_array_size(tools) && !t->tools;
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = prepare_message(c, json_array_get(messages, i), i, e);
        if (!m) {
            json_decref(out);
            return e->code;
        }
        json_array_append_new(out, m);
    }
    if (order_all(out, e)) {
        json_decref(out);
        return e->code;
    }
    for (size_t i = 0; i < json_array_size(out); i++)
        finish_calls(c, json_array_get(out, i), json_array_size(tools) > 0);
    if (t->named_ids)
        name_all(out);
    if (generic)
        add_tools(c, out, tools);
    else if (json_array_size(tools) && t->tools_in_system && !is_role(json_array_get(out, 0), "system"))
        json_array_insert_new(out, 0, json_pack("{s:s, s:s}", "role", "system", "content", ""));
    if (t->calls && !t->many_calls)
        out = split_calls(out);
    if (!t->results)
        out = results_as_user(t, out);
    if (!t->late_system)
        out = merge_system(t, out);
    if (!t->system)
        system_to_user(t, out);
    *ret_messages = out;
    return ERR_OK;
}
