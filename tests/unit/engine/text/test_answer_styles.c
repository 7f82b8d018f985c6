// What is found out about each template's way to write reasoning and calls, and that what the template itself writes of a
// turn is read back as it was, in whatever pieces, and fits the form the turn is asked to have.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/structure.h"
#include "engine/text/answer_int.h"
#include "engine/text/chat.h"

#define CHATS "tests/fixtures/templates/chat/"

// What a turn shows of a message: reasoning, content beside calls, content alone, calls.
// R_T: reasoning beside calls only; ALONE: one call a message; REPR: values as Python prints them, which the form does not write.
enum { R = 1, C = 2, S = 4, T = 8, ALONE = 16, R_T = 32, REPR = 64 };

// A style whose calls are JSON objects between <tool_call> and </tool_call>, a line each.
#define OBJECT                                                                                                         \
    " call=\"<tool_call>\\n\" call_end=\"\\n</tool_call>\" separator=\"\\n\" name_key=\"name\" "                       \
    "arguments_key=\"arguments\" object=\"{\"name\": \"\" middle=\"\", \"arguments\": \" object_end=\"}\""

static const struct {
    const char *name;   // of the template; the published families it is in the manner of
    const char *style;  // answer_style_text
    int shows;
} rows[] = {
    // Command-R7B
    {"action_thinking_response",
     "object turn=\"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>\" think=\"<|START_THINKING|>\""
     " think_end=\"<|END_THINKING|>\" say=\"<|START_RESPONSE|>\" say_end=\"<|END_RESPONSE|>\""
     " section=\"<|START_ACTION|>[\" section_end=\"\\n]<|END_ACTION|>\" call=\"\\n    \" separator=\",\""
     " name_key=\"tool_name\" arguments_key=\"parameters\""
     " object=\"{\"tool_call_id\": \"#\", \"tool_name\": \"\" middle=\"\", \"parameters\": \" object_end=\"}\"",
     R | S | T},
    {"action_results",
     "object turn=\"<|START_TURN|><|CHATBOT|>\" section=\"<|ACTION|>[\" section_end=\"]<|/ACTION|>\""
     " call=\"\\n    \" separator=\",\" name_key=\"tool\" arguments_key=\"parameters\""
     " object=\"{\"call\": #, \"tool\": \"\" middle=\"\", \"parameters\": \" object_end=\"}\"",
     S | T},
    // Command-R
    {"turn_tokens_documents",
     "object turn=\"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>\" section=\"\\nAction:\\n[\" section_end=\"\\n]\""
     " call=\"\\n    \" separator=\",\" name_key=\"tool_name\" arguments_key=\"parameters\""
     " object=\"{\"tool_name\": \"\" middle=\"\",\\n    \"parameters\": \" object_end=\"}\"",
     C | S | T},
    // GLM-4.5
    {"arg_key_value",
     "tags turn=\"<|assistant|>\" think=\"<think>\" think_end=\"</think>\\n\" call=\"<tool_call>\""
     " call_end=\"\\n</tool_call>\" key=\"\\n<arg_key>\" key_end=\"</arg_key>\\n<arg_value>\""
     " value_end=\"</arg_value>\"",
     R | C | S | T},
    // Gemma 4, functiongemma
    {"braces_channel_thought",
     "braces turn=\"<|turn>model\\n\" think=\"<|channel>thought\\n\" think_end=\"\\n<channel|>\""
     " call=\"<|tool_call>call:\" call_end=\"<tool_call|>\" name_end=\"{\" quote=\"<|\"|>\"",
     R | C | S | T},
    {"braces_declarations",
     "braces turn=\"<start_of_turn>model\\n\" call=\"<start_function_call>call:\""
     " call_end=\"<end_function_call>\" name_end=\"{\" quote=\"<escape>\"",
     C | S | T},
    // Mistral: v11, v3
    {"bracket_call_args",
     "named think=\"[THINK]\" think_end=\"[/THINK]\" call=\"[TOOL_CALLS]\" name_end=\"[CALL_ID]*[ARGS]\"",
     R | C | S | T},
    {"bracket_tools",
     "object section=\"[TOOL_CALLS][\" section_end=\"]\" separator=\", \" name_key=\"name\""
     " arguments_key=\"arguments\" object=\"{\"name\": \"\" middle=\"\", \"arguments\": \""
     " object_end=\", \"id\": \"*\"}\"",
     S | T},
    // LFM2
    {"call_start_python",
     "python turn=\"<|im_start|>assistant\\n\" section=\"<|tool_call_start|>[\""
     " section_end=\"]<|tool_call_end|>\" separator=\", \" name_end=\"(\" quote=\"\"\"",
     S | T | REPR},
    // DeepSeek: R1, V3.1
    {"fullwidth_namespace",
     "named turn=\"<｜Assistant｜>\" think=\"<think>\\n\" think_end=\"\\n</think>\\n\\n\""
     " section=\"<｜calls▁begin｜>\" section_end=\"<｜calls▁end｜>\" call=\"<｜call▁begin｜>function<｜sep｜>\""
     " call_end=\"\\n```<｜call▁end｜>\" separator=\"\\n\" name_end=\"\\n```json\\n\"",
     S | T},
    {"fullwidth_thinking_switch",
     "named turn=\"<｜Assistant｜>\" think=\"<think>\" think_end=\"</think>\" section=\"<｜calls▁begin｜>\""
     " section_end=\"<｜calls▁end｜>\" call=\"<｜call▁begin｜>\" call_end=\"<｜call▁end｜>\" name_end=\"<｜sep｜>\"",
     C | S | T},
    // Llama: 3.1, 3.x, 4
    {"headers_lead_ipython",
     "object bare turn=\"<|start_header_id|>assistant<|end_header_id|>\\n\\n\" lead=\"<|python_tag|>\""
     " name_key=\"name\" arguments_key=\"parameters\" object=\"{\"name\": \"\" middle=\"\", \"parameters\": \""
     " object_end=\"}\"",
     S | T | ALONE},
    {"headers_tools_date",
     "object bare turn=\"<|start_header_id|>assistant<|end_header_id|>\\n\\n\" name_key=\"name\""
     " arguments_key=\"parameters\" object=\"{\"name\": \"\" middle=\"\", \"parameters\": \" object_end=\"}\"",
     S | T | ALONE},
    {"headers_python_list",
     "python bare turn=\"<|header_start|>assistant<|header_end|>\\n\\n\" section=\"[\" section_end=\"]\""
     " separator=\", \" name_end=\"(\" quote=\"\"\"",
     S | T},
    // MiniMax-M2
    {"invoke_xml",
     "tags turn=\"]~b]ai\\n\" think=\"<think>\\n\" think_end=\"\\n</think>\\n\\n\" section=\"\\n\\n<calls>\\n\""
     " section_end=\"</calls>\" call=\"<invoke name=\"\" call_end=\"</invoke>\\n\" name_end=\"\">\""
     " key=\"<parameter name=\"\" key_end=\"\">\" value_end=\"</parameter>\"",
     R | C | S | T},
    // Qwen3.5, Qwen3, Qwen2.5, Qwen3-Coder
    {"late_system_refused",
     "tags turn=\"<|im_start|>assistant\\n\" think=\"<think>\\n\" think_end=\"\\n</think>\\n\\n\""
     " call=\"<tool_call>\\n<function=\" call_end=\"\\n</function>\\n</tool_call>\" separator=\"\\n\""
     " name_end=\">\" key=\"\\n<parameter=\" key_end=\">\\n\" value_end=\"\\n</parameter>\"",
     C | S | T},
    {"thinking_multistep",
     "object turn=\"<|im_start|>assistant\\n\" think=\"<think>\\n\" think_end=\"\\n</think>\\n\\n\"" OBJECT,
     R | C | S | T},
    {"xml_json_tools",
     "object turn=\"<|im_start|>assistant\\n\"" OBJECT,
     C | S | T},
    {"xml_parameters",
     "tags turn=\"<|im_start|>assistant\\n\" call=\"<tool_call>\\n<function=\""
     " call_end=\"\\n</function>\\n</tool_call>\" separator=\"\\n\" name_end=\">\" key=\"\\n<parameter=\""
     " key_end=\">\\n\" value_end=\"\\n</parameter>\"",
     C | S | T | REPR},
    // Phi-4-mini
    {"pipes_tool_list",
     "object turn=\"<|assistant|>\" section=\"<|tool_call|>[\" section_end=\"]<|/tool_call|>\" separator=\", \" name_key=\"name\""
     " arguments_key=\"arguments\" object=\"{\"name\": \"\" middle=\"\", \"arguments\": \" object_end=\"}\"",
     S},
    // Hermes
    {"python_signatures",
     "object turn=\"<|im_start|>assistant\\n\" call=\"<tool_call>\" call_end=\"</tool_call>\" separator=\"\\n\""
     " name_key=\"name\" arguments_key=\"arguments\" object=\"{\"name\": \"\" middle=\"\", \"arguments\": \""
     " object_end=\"}\"",
     S | T},
    // Granite: 3.x, 3.3
    {"role_tags_date",
     "object turn=\"<|start_of_role|>assistant<|end_of_role|>\" section=\"<|tool_call|>[\" section_end=\"]\""
     " separator=\", \" name_key=\"name\" arguments_key=\"arguments\" object=\"{\"name\": \"\""
     " middle=\"\", \"arguments\": \" object_end=\"}\"",
     C | S | T},
    {"roles_think_response",
     "object turn=\"<|start_of_role|>assistant<|end_of_role|>\" think=\"<think>\\n\""
     " think_end=\"\\n</think>\\n\\n\" say=\"<response>\" say_end=\"</response>\" section=\"<|tool_call|>[\""
     " section_end=\"]\" separator=\", \" name_key=\"name\" arguments_key=\"arguments\""
     " object=\"{\"name\": \"\" middle=\"\", \"arguments\": \" object_end=\"}\"",
     S},
    // Kimi K2
    {"sections",
     "named turn=\"<|im_assistant|>assistant<|im_middle|>\" think=\"<think>\" think_end=\"</think>\""
     " section=\"<|calls|>\" section_end=\"<|/calls|>\" call=\"<|call|>functions.\" name_end=\":#<|args|>\"",
     R_T | C | S | T},
    // SmolLM3
    {"generation_blocks",
     "object generic turn=\"<|im_start|>assistant\\n\" think=\"<think>\\n\" think_end=\"\\n</think>\\n\"" OBJECT,
     S},
    // no calls of their own
    {"chatml",
     "object generic turn=\"<|im_start|>assistant\\n\"" OBJECT,
     S},
    {"turns_system_merged",
     "object generic turn=\"<start_of_turn>model\\n\"" OBJECT,
     S},
};

static struct chat *open_style(const char *name)
{
    char path[256], *source;
    size_t len;
    err e = {0};
    struct chat *c = NULL;
    snprintf(path, sizeof path, CHATS "%s.jinja", name);
    if (file_read(path, TEMPLATE_MAX_SOURCE, &source, &len, &e) || chat_open_source(source, len, NULL, 0, &c, &e))
        fail_msg("%s (run from the repository root)", e.text);
    free(source);
    return c;
}

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"day\":{\"type\":\"integer\"},\"extra\":{\"type\":\"object\",\"properties\":{\"list\":{\"type\":\"array\","
    "\"items\":{\"type\":[\"number\",\"string\"]}},\"wind\":{\"type\":\"boolean\"}}},\"ok\":{\"type\":\"boolean\"},"
    "\"place\":{\"type\":\"string\"},\"text\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{}}}}]";
static const char calls_text[] =
    "[{\"id\":\"aaaaaaaa1\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":{\"day\":3,"
    "\"extra\":{\"list\":[1,2.5,\"x, y)}\"],\"wind\":true},\"ok\":false,\"place\":\"007\",\"text\":\"Z\\u00fcrich <b> & \\\"q\\\"\\nline {a}[b](c), d=1\"}}},"
    "{\"id\":\"aaaaaaaa2\",\"type\":\"function\",\"function\":{\"name\":\"clock\",\"arguments\":{}}}]";
#define REASONING "need two:\nfirst <b>,\n\nthen it"
#define CONTENT "Let me see, 1 < 2."

// The prompt, freed by the caller. Takes the messages.
static char *render(const struct chat *c, json_t *messages, json_t *tools, bool generate)
{
    struct prompt p = {.messages = messages, .tools = tools, .add_generation_prompt = generate};
    struct rendered r = {0};
    err e = {0};
    if (chat_render(c, &p, "<s>", "</s>", 1700000000, &r, &e))
        fail_msg("%s", e.text);
    json_decref(messages);
    free(r.spans);
    return r.text;
}

static json_t *turn(const char *reasoning, const char *content, json_t *calls)
{
    json_t *m = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "q", "role", "assistant", "content", content);
    if (reasoning)
        json_object_set_new(json_array_get(m, 1), "reasoning_content", json_string(reasoning));
    if (calls)
        json_object_set(json_array_get(m, 1), "tool_calls", calls);
    return m;
}

// What the model would have written of this turn: without the prompt in front of it and the turn's end. Freed by the caller.
static char *written(const struct chat *c, json_t *messages, json_t *tools)
{
    char *all = render(c, messages, tools, false), *one = render(c, turn(NULL, "SAID", NULL), tools, false);
    char *ask = render(c, json_pack("[{s:s, s:s}]", "role", "user", "content", "q"), tools, true);
    const char *mark = chat_answer_style(c, true)->mark[MARK_TURN], *end = strstr(one, "SAID") + 4;
    size_t n, from = 0, len = strlen(all), tail = strlen(end);
    const char *core = answer_mark_core(mark, &n);
    for (size_t i = 0; n && i + n <= len; i++)
        if (!memcmp(all + i, core, n))
            from = i + n;
    for (const char *space = core + n; from && *space && all[from] == *space; space++)
        from++;
    from = from ? from : strlen(ask);
    while (tail && (tail > len - from || strcmp(all + len - tail, end)))  // the turn's end, perhaps behind that of content
        end += strcspn(end + 1, "<[\n") + 1, tail = strlen(end);
    len -= tail;
    char *text = strndup(all + from, len - from);
    free(all);
    free(one);
    free(ask);
    return text;
}

static void test_styles(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat *c = open_style(rows[i].name);
        char *text = answer_style_text(chat_answer_style(c, true));
        if (strcmp(text, rows[i].style))
            fail_msg("%s is\n%s\nnot\n%s", rows[i].name, text, rows[i].style);
        free(text);
        chat_close(c);
    }
}

// Whether the answer to a prompt begins inside the reasoning is seen in the prompt, whatever the switch that made it so.
static void test_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kwargs;
        bool opens;
    } prompts[] = {
        {"late_system_refused", "{}", false}, {"late_system_refused", "{\"enable_thinking\": true}", true},
        {"thinking_multistep", "{}", false}, {"thinking_multistep", "{\"enable_thinking\": false}", false},
        {"fullwidth_namespace", "{}", true}, {"fullwidth_thinking_switch", "{}", false},
        {"fullwidth_thinking_switch", "{\"thinking\": true}", true}, {"invoke_xml", "{}", true},
        {"braces_channel_thought", "{}", false}, {"braces_channel_thought", "{\"enable_thinking\": true}", false},
        {"arg_key_value", "{\"enable_thinking\": false}", false}, {"bracket_call_args", "{}", false},
        {"generation_blocks", "{\"enable_thinking\": false}", false}, {"chatml", "{}", false},
    };
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        struct chat *c = open_style(prompts[i].name);
        const struct answer_style *s = chat_answer_style(c, false);
        char user[80];  // a user's own marks open nothing
        snprintf(user, sizeof user, "q %s", s->mark[MARK_THINK]);
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", user), *kwargs = json_loads(prompts[i].kwargs, 0, NULL);
        struct prompt p = {.messages = messages, .kwargs = kwargs, .add_generation_prompt = true};
        struct rendered r = {0};
        err e = {0};
        if (chat_render(c, &p, "<s>", "</s>", 1700000000, &r, &e))
            fail_msg("%s", e.text);
        if (answer_opens(s, r.text, r.len) != prompts[i].opens)
            fail_msg("%s %s: %s", prompts[i].name, prompts[i].kwargs, r.text);
        rendered_done(&r);
        json_decref(messages);
        json_decref(kwargs);
        chat_close(c);
    }
}

// ---- reading back

struct got {
    char reasoning[4096], content[4096], names[2][64], arguments[2][4096];
    int ended;
};

static void add(char *text, size_t max, const struct answer_part *p)
{
    size_t n = strlen(text);
    assert_true(n + p->len < max);
    memcpy(text + n, p->text, p->len);
    text[n + p->len] = 0;
}

static void on_part(void *ud, const struct answer_part *p)
{
    struct got *g = ud;
    if (p->channel == CHANNEL_REASONING)
        add(g->reasoning, sizeof g->reasoning, p);
    else if (p->channel == CHANNEL_CONTENT)
        add(g->content, sizeof g->content, p);
    else {
        assert_in_range(p->call, 0, 1);
        add(g->arguments[p->call], sizeof g->arguments[0], p);
        if (p->name)
            snprintf(g->names[p->call], sizeof g->names[0], "%s", p->name);
        g->ended += p->call_ends;
    }
}

static void read_back(const struct answer_style *s, json_t *tools, const char *text, int round, struct got *g)
{
    struct answer_ask ask = {.tools = tools};
    struct answer *a = answer_new(s, &ask);
    size_t len = strlen(text);
    memset(g, 0, sizeof *g);
    for (size_t at = 0, n; at < len; at += n) {
        n = round == 0 ? len : round == 1 ? 1 : 1 + rng_u64(7, (uint64_t)round, at) % 12;
        n = n < len - at ? n : len - at;
        answer_feed(a, text + at, n, false, on_part, g);
    }
    answer_finish(a, on_part, g);
    answer_free(a);
}

static void same(const char *what, const char *name, const char *text, const char *got, const char *want)
{
    if (strcmp(got, want))
        fail_msg("%s: %s of\n%s\nis\n%s\nnot\n%s", name, what, text, got, want);
}

static void check_turn(const struct chat *c, const char *name, const char *reasoning, const char *content, json_t *calls,
                       json_t *tools, int shows)
{
    char *text = written(c, turn(reasoning, content, calls), tools);
    struct got g;
    bool says = shows & (calls ? C : S);
    for (int round = 0; round < 20; round++) {
        read_back(chat_answer_style(c, true), tools, text, round, &g);
        same("reasoning", name, text, g.reasoning, reasoning && shows & (calls ? R | R_T : R) ? reasoning : "");
        same("content", name, text, g.content, says ? content : "");
        assert_int_equal(g.ended, json_array_size(calls));
        json_t *one;
        size_t i;
        json_array_foreach(calls, i, one) {
            json_t *f = json_object_get(one, "function"), *args = json_loads(g.arguments[i], 0, NULL);
            same("name", name, text, g.names[i], json_string_value(json_object_get(f, "name")));
            if (!args || !json_equal(args, json_object_get(f, "arguments")))
                fail_msg("%s: arguments of\n%s\nare\n%s", name, text, g.arguments[i]);
            json_decref(args);
        }
    }
    free(text);
}

static void test_round_trip(void **state)
{
    (void)state;
    json_t *tools = json_loads(tools_text, 0, NULL), *calls = json_loads(calls_text, 0, NULL);
    json_t *first = json_pack("[O]", json_array_get(calls, 0)), *second = json_pack("[O]", json_array_get(calls, 1));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat *c = open_style(rows[i].name);
        int shows = rows[i].shows;
        const char *reasoning = shows & (R | R_T) ? REASONING : NULL, *beside = shows & C ? CONTENT : "";
        if (shows & S) {
            check_turn(c, rows[i].name, NULL, CONTENT, NULL, tools, shows);
            check_turn(c, rows[i].name, reasoning, CONTENT, NULL, tools, shows);
        }
        if (shows & T) {
            check_turn(c, rows[i].name, NULL, beside, first, tools, shows);
            check_turn(c, rows[i].name, reasoning, "", second, tools, shows);
            check_turn(c, rows[i].name, reasoning, beside, shows & ALONE ? first : calls, tools, shows);
        }
        chat_close(c);
    }
    json_decref(first);
    json_decref(second);
    json_decref(tools);
    json_decref(calls);
}

// ---- the form of an answer

enum { FITS = 1, BEGINS = 2 };  // a whole answer, or the beginning of one

// What an answer of this text is under the structure asked for. A style that has none of it: *ret_none.
static int fit(const struct answer_style *s, const struct answer_ask *ask, const char *text, bool *ret_none, size_t *ret_read)
{
    char *tag = NULL;
    err e = {0};
    struct nodes g;
    uint32_t root;
    if (answer_structure(s, ask, &tag, &e))
        fail_msg("%s: %s", e.param, e.text);
    *ret_none = !tag;
    if (!tag)
        return FITS | BEGINS;
    nodes_init(&g, NODES_JSON_DEPTH);
    if (structure_compile(tag, strlen(tag), &g, &root, &e) || nodes_finish(&g, root, &e))
        fail_msg("%s: %s\n%s", e.param, e.text, tag);
    struct machine *m = machine_new(&g);
    for (*ret_read = 0; text[*ret_read] && machine_text(m, text + *ret_read, 1); ++*ret_read)
        ;
    int result = text[*ret_read] ? 0 : BEGINS;
    result |= result && machine_ends(m) ? FITS : 0;
    machine_free(m);
    nodes_done(&g);
    free(tag);
    return result;
}

static void expect(const char *name, const struct answer_style *s, const struct answer_ask *ask, const char *text, int want)
{
    bool none;
    size_t read = 0;
    int got = fit(s, ask, text, &none, &read);
    if (got != want && !none)
        fail_msg("%s%s: an answer is %d, not %d: up to '%s' of\n%s", name, ask->rules ? ", required" : "", got, want, text + read, text);
}

// What a template writes of a turn fits the form the turn is asked to have.
static void test_structures(void **state)
{
    (void)state;
    json_t *tools = json_loads(tools_text, 0, NULL), *calls = json_loads(calls_text, 0, NULL);
    json_t *first = json_pack("[O]", json_array_get(calls, 0));
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}";
    static const struct grammar_request form = {.kind = GRAMMAR_JSON_SCHEMA, .text = schema, .len = sizeof schema - 1, .field = "response_format"};
    static const struct tool_rules required = {.choice = TOOLS_REQUIRED}, single = {.choice = TOOLS_REQUIRED, .single = true};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat *c = open_style(rows[i].name);
        const struct answer_style *s = chat_answer_style(c, true);
        int shows = rows[i].shows;
        bool bare = s->bare, one = shows & ALONE;
        struct answer_ask free_ask = {.tools = tools}, must = {.tools = tools, .rules = &required},
                          once = {.tools = tools, .rules = &single}, formed = {.tools = tools, .content = &form},
                          plain = {.content = &form};
        char *said = written(c, turn(NULL, CONTENT, NULL), tools);
        expect(rows[i].name, s, &free_ask, said, FITS | BEGINS);
        expect(rows[i].name, s, &must, CONTENT, 0);
        expect(rows[i].name, s, &formed, CONTENT, 0);
        expect(rows[i].name, s, &formed, "{\"a\": 1}", FITS | BEGINS);
        expect(rows[i].name, s, &plain, "{\"a\": 1}", FITS | BEGINS);
        expect(rows[i].name, s, &plain, "{\"a\": \"", 0);
        free(said);
        if (shows & T && !(shows & REPR)) {
            char *two = written(c, turn(NULL, "", one ? first : calls), tools), *lone = written(c, turn(NULL, "", first), tools);
            char *beside = shows & C ? written(c, turn(shows & (R | R_T) ? REASONING : NULL, CONTENT, calls), tools) : strdup(two);
            expect(rows[i].name, s, &free_ask, two, FITS | BEGINS);
            expect(rows[i].name, s, &free_ask, beside, FITS | BEGINS);
            // An empty block of reasoning, or white space, in front is the template's habit and no part of the form.
            size_t n;
            const char *core = answer_mark_core(s->mark[*s->mark[MARK_SECTION] ? MARK_SECTION : MARK_CALL], &n);
            char key[128];
            snprintf(key, sizeof key, "%.*s", (int)n, core);
            const char *at = strstr(two, key), *alone = strstr(lone, key);
            assert_non_null(at);
            expect(rows[i].name, s, &must, at, FITS | BEGINS);
            expect(rows[i].name, s, &formed, at, FITS | BEGINS);
            expect(rows[i].name, s, &once, alone, FITS | BEGINS);
            if (!one && !bare)
                expect(rows[i].name, s, &once, at, 0);
            free(two);
            free(lone);
            free(beside);
        }
        chat_close(c);
    }
    json_decref(first);
    json_decref(tools);
    json_decref(calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_styles),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_structures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
