// chat_probe.c - learns what shape of messages a template takes by rendering small conversations at load and looking
// whether their texts come through.
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "engine/text/chat_int.h"

enum { PROBE_NOW = 1700000000 };

static json_t *say(const char *role, const char *content)
{
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

static json_t *probe_tools(void)
{
    return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}]", "type", "function", "function", "name",
                     "prb_tool", "description", "prb_description", "parameters", "type", "object", "properties",
                     "prb_arg", "type", "string", "description", "prb", "required", "prb_arg");
}

// One render; takes both arguments. The text, freed by the caller; NULL when the template refuses.
static char *render(const struct chat *c, json_t *messages, json_t *tools)
{
    struct template_input in = {.messages = messages, .tools = tools, .bos_token = "<s>", .eos_token = "</s>",
                                .add_generation_prompt = true, .now = PROBE_NOW};
    struct rendered r = {0};
    err e;
    bool failed = template_render(c->template[tools && c->template[1]], &in, &r, &e);
    json_decref(messages);
    json_decref(tools);
    if (failed)
        return NULL;
    free(r.spans);
    return r.text;
}

static bool shows(const struct chat *c, json_t *messages, json_t *tools, const char *first, const char *second)
{
    char *text = render(c, messages, tools);
    bool yes = text && strstr(text, first) && (!second || strstr(text, second));
    free(text);
    return yes;
}

static json_t *list_of(json_t *a, json_t *b, json_t *c, json_t *d)
{
    json_t *items[4] = {a, b, c, d}, *list = json_array();
    for (int i = 0; i < 4 && items[i]; i++)
        json_array_append_new(list, items[i]);
    return list;
}

// Whether a user's message comes through at all: as a string or as parts, without tools or only with them (the template
// loops over tools without asking whether there are any).
static bool probe_text(struct chat *c, bool *ret_tools)
{
    struct chat_traits *t = &c->traits;
    json_t *parts = json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text", "text", "prb_user");
    bool found = false;
    for (int i = 0; i < 4 && !found; i++) {
        t->text_content = !(i & 1);
        *ret_tools = i & 2;
        json_t *m = t->text_content ? list_of(say("user", "prb_user"), NULL, NULL, NULL) : json_incref(parts);
        found = shows(c, m, *ret_tools ? probe_tools() : NULL, "prb_user", NULL);
    }
    json_decref(parts);
    return found;
}

static void probe_system(struct chat *c, bool with_tools)
{
    struct chat_traits *t = &c->traits;
    if (!t->text_content) {  // probed with strings only: such templates are rare and of one style
        t->system = t->late_system = true;
        return;
    }
    json_t *one = list_of(say("system", "prb_one"), say("user", "prb_user"), NULL, NULL);
    json_t *two = list_of(say("system", "prb_one"), say("system", "prb_two"), say("user", "prb_user"), NULL);
    t->system = shows(c, one, with_tools ? probe_tools() : NULL, "prb_one", NULL);
    t->late_system = shows(c, two, with_tools ? probe_tools() : NULL, "prb_one", "prb_two");
    json_t *late = list_of(say("system", "prb_one"), say("user", "prb_user"), say("assistant", "prb_answer"),
                           say("system", "prb_two"));
    json_array_append_new(late, say("user", "prb_more"));
    t->late_system &= shows(c, late, with_tools ? probe_tools() : NULL, "prb_one", "prb_two");
}

static json_t *call(const char *id, const char *name, bool object)
{
    json_t *arguments = object ? json_pack("{s:s}", "prb_arg", "prb_val") : json_string("{\"prb_arg\": \"prb_val\"}");
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

// A user's question, the calls in calls[0..n) and, if asked for, a result for each.
static json_t *with_calls(const struct chat_traits *t, json_t **calls, int n, bool results)
{
    json_t *m = list_of(say("user", "prb_user"), NULL, NULL, NULL), *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append(list, calls[i]);
    json_array_append_new(m, json_pack("{s:s, s:o, s:o}", "role", "assistant", "content",
                                       t->null_content ? json_null() : json_string(""), "tool_calls", list));
    for (int i = 0; i < n && results; i++) {
        json_t *r = say("tool", i ? "prb_result_two" : "prb_result");
        json_object_set(r, "tool_call_id", json_object_get(calls[i], "id"));
        json_array_append_new(m, r);
    }
    for (int i = 0; i < n; i++)
        json_decref(calls[i]);
    return m;
}

// The id calls are probed with: one that every template takes, or one that holds the name.
static const char *probe_id(const struct chat_traits *t)
{
    return t->named_ids ? "functions.prb_tool:0" : "abcdefghi";
}

// 0: refused or not shown; 1: the call is there but its arguments are not JSON, or quoted twice; 2: right
static int judge(const struct chat *c, const struct chat_traits *t, bool results)
{
    json_t *one[] = {call(probe_id(t), "prb_tool", t->object_arguments)};
    json_t *tools = probe_tools(), *no_call = list_of(say("user", "prb_user"), NULL, NULL, NULL);
    char *before = render(c, no_call, json_incref(tools)), *text = render(c, with_calls(t, one, 1, results), tools);
    int score = 0;
    // The call must add a mention of the name to what the list of tools shows.
    size_t names = 0, listed = 0;
    for (const char *s = text; s && (s = strstr(s, "prb_tool")); s++)
        names++;
    for (const char *s = before; s && (s = strstr(s, "prb_tool")); s++)
        listed++;
    if (text && names > listed)
        score = strstr(text, "prb_val") && !strstr(text, "{'prb_arg'") && !strstr(text, "\\\"prb_arg") ? 2 : 1;
    free(before);
    free(text);
    return score;
}

static int best_shape(struct chat *c, bool results)
{
    struct chat_traits *t = &c->traits, best = *t;
    int score = 0;
    for (int i = 0; i < 4; i++) {  // in this order when several do
        t->object_arguments = !(i & 1);
        t->null_content = i & 2;
        int now = judge(c, t, results);
        if (now > score) {
            score = now;
            best = *t;
        }
    }
    *t = best;
    return score;
}

static void probe_calls(struct chat *c)
{
    struct chat_traits *t = &c->traits;
    t->calls = false;
    for (int i = 0; i < 2 && !t->calls; i++) {
        t->named_ids = i;
        t->calls = best_shape(c, true) > 0 || best_shape(c, false) > 0;
    }
    t->named_ids &= t->calls;
    t->tools = shows(c, list_of(say("user", "prb_user"), NULL, NULL, NULL), probe_tools(), "prb_tool", NULL);
    t->tools_in_system = !t->tools && shows(c, list_of(say("system", ""), say("user", "prb_user"), NULL, NULL), probe_tools(),
                                            "prb_tool", NULL);
    t->tools |= t->tools_in_system;
    if (!t->calls) {
        json_t *m = list_of(say("user", "prb_user"), say("assistant", "prb_call"), say("tool", "prb_result"), NULL);
        t->results = shows(c, m, probe_tools(), "prb_result", NULL);
        return;
    }
    json_t *one[] = {call(probe_id(t), "prb_tool", t->object_arguments)};
    t->results = shows(c, with_calls(t, one, 1, true), probe_tools(), "prb_result", NULL);
    json_t *two[] = {call(probe_id(t), "prb_tool", t->object_arguments),
                     call(t->named_ids ? "functions.prb_second:1" : "abcdefghj", "prb_second", t->object_arguments)};
    t->many_calls = shows(c, with_calls(t, two, 2, t->results), probe_tools(), "prb_second", NULL);
    json_t *other[] = {call(t->named_ids ? probe_id(t) : "call_prb_0123456789abcdef", "prb_tool", t->object_arguments)};
    t->any_call_id = shows(c, with_calls(t, other, 1, t->results), probe_tools(), "prb_tool", NULL);
}

void chat_probe(struct chat *c)
{
    // What is found out below replaces this: messages pass as they are.
    c->traits = (struct chat_traits){.system = true, .late_system = true, .developer = true, .text_content = true,
                                     .tools = true, .calls = true, .many_calls = true, .any_call_id = true, .results = true,
                                     .object_arguments = true};
    bool with_tools;
    if (!probe_text(c, &with_tools)) {  // it wants something no probe has
        c->traits.text_content = true;
        return;
    }
    probe_system(c, with_tools);
    probe_calls(c);
    c->traits.developer = strstr(c->source[0], "developer") != NULL;
}
