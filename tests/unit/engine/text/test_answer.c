// Answers told apart into reasoning, content and calls, whatever pieces they come in.
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
#include "engine/text/answer_int.h"
#include "engine/text/chat.h"
#include "tests/helpers/answers.h"

static struct answer_style *hermes(void)
{
    struct answer_style *s = answer_style_new();
    answer_style_generic(s);
    answer_style_set(s, MARK_THINK, "<think>\n", 8);
    answer_style_set(s, MARK_THINK_END, "\n</think>\n\n", 11);
    return s;
}

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"        \
    "\"day\":{\"type\":\"integer\"},\"ok\":{\"type\":\"boolean\"},\"name\":{\"type\":\"string\"},"                    \
    "\"list\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"

struct row {
    const char *in, *want;
};

static void check(struct answer_style *s, const struct row *rows, size_t n, bool thinking)
{
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < n; i++)
        answers_check(s, tools, thinking, rows[i].in, rows[i].want);
    json_decref(tools);
    answer_style_free(s);
}

static void test_objects(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"Hello\n", "Hello\n"},
        {"<think>\nhm\n</think>\n\nHello", "{R:hm}Hello"},
        {"\n<think>hm</think>Hello <b>", "{R:hm}Hello <b>"},
        {"<think>\nno end", "{R:no end}"},
        {"<think>\n\n</think>\n\nHello", "Hello"},
        {"see <think>x</think>", "see <think>x</think>"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"day\": 3}}\n</tool_call>", "{f:{\"day\": 3}}"},
        {"I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\":  { \"a\" : [1,\"}</tool_call>\\\"\"] }  }\n</tool_call>\n<tool_call>"
         "\n{\"name\": \"g\", \"arguments\": {}}</tool_call>\n",
         "I look.{f:{ \"a\" : [1,\"}</tool_call>\\\"\"] }}{g:{}}"},
        {"<tool_call>{\"name\": \"g\"}</tool_call> and more", "{g:{}}and more"},
        {"<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"unknown\", \"id\": 5}</tool_call>", "{unknown:{\"x\": 1}}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"day\\\":1}\"}</tool_call>", "{f:{\"day\":1}}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "{f:{}}"},
        {"a <tool_call>no json</tool_call> b", "a<tool_call>no json</tool_call> b"},
        {"<tool_call>{\"name\": \"f\", \"x\" <tool_call>{\"name\": \"g\"}</tool_call>",
         "<tool_call>{\"name\": \"f\", \"x\" {g:{}}"},
        {"<tool_call>{\"x\": {\"name\": \"f\"}}", "<tool_call>{\"x\": {\"name\": \"f\"}}"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"b",
         "{f:{\"a\": 1}}{g:{\"b...}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_", "{f:{\"a\": 1}}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ty\"}}</tool_call>", "{f:{\"a\": \"x\\ty\"}}"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {bad} }</tool_call>x", "{f:{bad} }}x"},
        {"<tool_cal", "<tool_cal"},
        {"x <tool_callx> y < z", "x <tool_callx> y < z"},
    };
    check(hermes(), rows, sizeof rows / sizeof *rows, false);
}

static void count_content(void *ud, const struct answer_part *p)
{
    *(size_t *)ud += p->channel == CHANNEL_CONTENT ? p->len : 0;
}

// What a call was to become when the token limit came: content where it may be, nothing where only calls may.
static void test_cut_markup(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>\n{\"na";
    struct answer_style *s = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    struct tool_rules rules = {.choice = TOOLS_REQUIRED};
    for (size_t n = 1; n < sizeof text; n++)
        for (int required = 0; required < 2; required++) {
            struct answer_ask ask = {.tools = tools, .rules = required ? &rules : NULL};
            struct answer *a = answer_new(s, &ask);
            size_t said = 0;
            answer_feed(a, text, n, false, count_content, &said);
            answer_finish(a, count_content, &said);
            assert_int_equal(said, required ? 0 : n);
            answer_free(a);
        }
    json_decref(tools);
    answer_style_free(s);
}

static void test_inside_reasoning(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"hm\n</think>\n\nHello", "{R:hm}Hello"},
        {"<think>\nhm</think>Hello", "{R:hm}Hello"},
        {"a < b </thin </think>c", "{R:a < b </thin}c"},
        {"never\nending ", "{R:never\nending }"},
        {"</think>\n\n<tool_call>{\"name\": \"g\"}</tool_call>", "{g:{}}"},
    };
    check(hermes(), rows, sizeof rows / sizeof *rows, true);
}

// The style of a template.
static void check_template(const char *name, const struct row *rows, size_t n)
{
    char path[256], *source;
    size_t len;
    err e = {0};
    struct chat *c = NULL;
    snprintf(path, sizeof path, "tests/fixtures/templates/chat/%s.jinja", name);
    if (file_read(path, 1 << 20, &source, &len, &e) || chat_open_source(source, len, NULL, 0, &c, &e))
        fail_msg("%s (run from the repository root)", e.text);
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < n; i++)
        answers_check(chat_answer_style(c, true), tools, false, rows[i].in, rows[i].want);
    json_decref(tools);
    free(source);
    chat_close(c);
}
#define CHECK_TEMPLATE(name, rows) check_template(name, rows, sizeof rows / sizeof *rows)

// TOOL-10, and what else goes wrong between tags
static void test_tags(void **state)
{
    (void)state;
#define CALL(x) "<tool_call>\n<function=f>\n" x "</function>\n</tool_call>"
#define P(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"
    static const struct row rows[] = {
        {CALL(P("day", "3") P("ok", "true") P("name", "007")), "{f:{\"day\": 3, \"ok\": true, \"name\": \"007\"}}"},
        {CALL(P("day", "2027-03-09")), "{f:{\"day\": \"2027-03-09\"}}"},
        {CALL(P("ok", "True") P("list", "[1, \"</p\"]") P("o", "{broken")),
         "{f:{\"ok\": true, \"list\": [1, \"</p\"], \"o\": \"{broken\"}}"},
        {CALL(P("name", "\n a\n\n\"b\" </parameter x> \\ \n")), "{f:{\"name\": \"\\n a\\n\\n\\\"b\\\" </parameter x> \\\\ \\n\"}}"},
        {"<tool_call><function=f><parameter=name>x</parameter></function></tool_call>", "{f:{\"name\": \"x\"}}"},
        {CALL(P("what", "no schema")), "{f:{\"what\": \"no schema\"}}"},
        {CALL(P("what", "[1,2]")), "{f:{\"what\": [1,2]}}"},
        {CALL(""), "{f:{}}"},
        {"<tool_call>\n<function=strange>\n</function>\n</tool_call>", "{strange:{}}"},
        {"I call.\n\n" CALL("") "\n" CALL(P("day", "1")) "\n", "I call.{f:{}}{f:{\"day\": 1}}"},
        {"<tool_call>\n<function=f>\nblah", "<tool_call>\n<function=f>\nblah"},
        {"<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"},
        {"<tool_call>\n<function=f>\n" P("name", "x") "stray</function>", "{f:{\"name\": \"x\"}}stray</function>"},
        {"<tool_call>\n<function=f>\n<parameter=name>\nhalf a val", "{f:{\"name\": \"half a val...}"},
        {"<tool_call>\n<function=f>\n<parameter=day>\n12", "{f:{\"day\": ...}"},
        {"<tool_call>\n<function=f>\n" P("name", "x") "</function>\n</tool", "{f:{\"name\": \"x\"}}"},
    };
    CHECK_TEMPLATE("late_system_refused", rows);
    static const struct row pairs[] = {
        {"<tool_call>f\n<arg_key>day</arg_key>\n<arg_value>3</arg_value>\n<arg_key>name</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
         "{f:{\"day\": 3, \"name\": \"3\"}}"},
        {"<tool_call>f<arg_key>day</arg_key><arg_value>x</arg_value></tool_call>", "{f:{\"day\": \"x\"}}"},
        {"<think></think>\nHi", "Hi"},
    };
    CHECK_TEMPLATE("arg_key_value", pairs);
}

static void test_bare(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"name\": \"f\", \"parameters\": {\"day\": 1}}", "{f:{\"day\": 1}}"},
        {"\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}\n", "{f:{}}"},
        {"<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": \"}\"}}", "{f:{\"a\": \"}\"}}"},
        {"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", "{f:{}}{g:{}}"},
        {"{\"name\": \"f\", \"parameters\": {}}\nThat is it.", "{f:{}}That is it."},
        {"{\"name\": \"unknown\", \"parameters\": {}}", "{\"name\": \"unknown\", \"parameters\": {}}"},
        {"{\"answer\": 42}", "{\"answer\": 42}"},
        {"{\"parameters\": {\"x\": 1}, \"name\": \"g\"}", "{g:{\"x\": 1}}"},
        {"{\"parameters\": {\"x\": 1}, \"nam", "{\"parameters\": {\"x\": 1}, \"nam"},
        {"See {\"name\": \"f\", \"parameters\": {}}", "See {\"name\": \"f\", \"parameters\": {}}"},
        {"<|python_tag|>import os", "<|python_tag|>import os"},
        {"{", "{"},
    };
    CHECK_TEMPLATE("headers_lead_ipython", rows);
    static const struct row python[] = {
        {"[f(day=1, name=\"x\"), g()]", "{f:{\"day\": 1, \"name\": \"x\"}}{g:{}}"},
        {" [ f( list = [1, 'a, b)', {'k': (1, None)}], ok=True ) ]",
         "{f:{\"list\": [1, \"a, b)\", {\"k\": [1, null]}], \"ok\": true}}"},
        {"[f(name='it\\'s \\n \\x41\\u00e9 \\q')]", "{f:{\"name\": \"it's \\n \\u0041\\u00e9 \\\\q\"}}"},
        {"[f(day=foo)]", "{f:{\"day\": \"foo\"}}"},
        {"[unknown(day=1)]", "[unknown(day=1)]"},
        {"[1, 2, 3]", "[1, 2, 3]"},
        {"[f(1)]", "[f(1)]"},
        {"[f(day=1", "{f:{\"day\": ...}"},
        {"Use [f(day=1)]", "Use [f(day=1)]"},
        {"[f(day=1)] done", "{f:{\"day\": 1}}done"},
    };
    CHECK_TEMPLATE("headers_python_list", python);
}

static void test_braces(void **state)
{
    (void)state;
#define CALL_F(x) "<start_function_call>call:f{" x "}<end_function_call>"
    static const struct row rows[] = {
        {CALL_F("name:<escape>a, \"b\" }<escape>,day:3,ok:false"), "{f:{\"name\": \"a, \\\"b\\\" }\", \"day\": 3, \"ok\": false}}"},
        {CALL_F("o:{k:<escape>x:y<escape>,l:[1,<escape>z<escape>]},list:[]"),
         "{f:{\"o\": {\"k\": \"x:y\", \"l\": [1, \"z\"]}, \"list\": []}}"},
        {CALL_F("") CALL_F("day:bare word"), "{f:{}}{f:{\"day\": \"bare word\"}}"},
        {"Now " CALL_F("o:{k:{}") "x", "Now{f:{\"o\": ...}"},
        {"<start_function_call>call:f{name:<escape>half", "{f:{\"name\": ...}"},
        {"<start_function_call>call", "<start_function_call>call"},
        {"<start_function_call>call:f(x)", "<start_function_call>call:f(x)"},
    };
    CHECK_TEMPLATE("braces_declarations", rows);
}

static void test_sections(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {\"a\": 1}}]",
         "{f:{}}{g:{\"a\": 1}}"},
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}", "{f:{}}"},
        {"[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing"},
        {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, oops", "{f:{}}, oops"},
        {"[TOOL_CALLS][]", "[TOOL_CALLS][]"},
    };
    CHECK_TEMPLATE("bracket_tools", rows);
    static const struct row args[] = {
        {"Hi[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS] {}", "Hi{f:{\"a\": 1}}{g:{}}"},
        {"[THINK]a b[/THINK]c", "{R:a b}c"},
        {"[TOOL_CALLS]f[ARGS]no", "[TOOL_CALLS]f[ARGS]no"},
        {"[TOOL_CALLS]f[ARGS]{\"a\": ", "{f:{\"a\": ...}"},
    };
    CHECK_TEMPLATE("bracket_call_args", args);
    static const struct row fullwidth[] = {
        {"<｜calls▁begin｜><｜call▁begin｜>f<｜sep｜>{\"a\": \"<｜call▁end｜>\"}<｜call▁end｜><｜call▁begin｜>g<｜sep｜>{}<｜call▁end｜><｜calls▁end｜>bye",
         "{f:{\"a\": \"<｜call▁end｜>\"}}{g:{}}bye"},
        {"x<｜call▁begin｜>f<｜sep｜>{}<｜call▁end｜>", "x{f:{}}"},
    };
    CHECK_TEMPLATE("fullwidth_thinking_switch", fullwidth);
    static const struct row named[] = {
        {"<|calls|><|call|>functions.f:0<|args|>{}<|call|>functions.g:11<|args|>{\"b\": []}<|/calls|>", "{f:{}}{g:{\"b\": []}}"},
    };
    CHECK_TEMPLATE("sections", named);
    static const struct row wrapped[] = {
        {"<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "{R:hm}Hi"},
        {"<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {}}\n]<|END_ACTION|>",
         "{R:hm}{f:{}}"},
    };
    CHECK_TEMPLATE("action_thinking_response", wrapped);
}

// Where a call's own mark is no tag it begins calls in their section only. An object whose key is the name.
static void test_name_as_key(void **state)
{
    (void)state;
    static const struct {
        enum answer_mark mark;
        const char *text;
    } marks[] = {{MARK_SECTION, "<tools>["}, {MARK_SECTION_END, "]</tools>"}, {MARK_CALL, "{\""}, {MARK_CALL_END, "}"},
                 {MARK_NAME_END, "\": "}, {MARK_SEPARATOR, ", "}};
    static const struct row rows[] = {
        {"{\"f\": {\"a\": 1}}", "{\"f\": {\"a\": 1}}"},
        {"<tools>[{\"f\": {\"a\": 1}}, {\"g\": {}}]</tools>", "{f:{\"a\": 1}}{g:{}}"},
    };
    struct answer_style *s = answer_style_new();
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        answer_style_set(s, marks[i].mark, marks[i].text, strlen(marks[i].text));
    s->form = FORM_NAMED;
    s->calls = true;
    check(s, rows, 2, false);
}

// NUL, broken UTF-8 and long white space are text like any other.
static void test_bytes(void **state)
{
    (void)state;
    struct answer_style *s = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    answers_check(s, tools, false, "a\xff\xc3<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xe2\x82\"}}",
                  "a\xff\xc3{f:{\"a\": \"\xe2\x82\"}}");
    answers_check(s, tools, false, "a                                        b", "a                                        b");
    static const char nul[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\0\"}}";
    answers_check_bytes(s, tools, false, nul, sizeof nul - 1, "{f:{\"a\": \"\\u0000\"}}");
    json_decref(tools);
    answer_style_free(s);
}

static void count_part(void *ud, const struct answer_part *p)
{
    *(size_t *)ud += p->len;
}

// Megabytes a byte at a time: whatever is held back, the work for each byte is bounded.
static void test_long(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"%s\"}}</tool_call>",
        "<tool_call>{\"arguments\": {\"a\": \"%s\"}, \"name\": \"f\"}</tool_call>",
        "<tool_call>{\"x\": \"%s\"}", "<tool_call>%s", "<think>%s</think>", "%s",
    };
    static const char *const fills[] = {"x", " ", "<", "<tool_call>", "\n</thin", "{\"", "\\\\"};
    json_t *tools = json_loads(TOOLS, 0, NULL);
    struct answer_style *s = hermes();
    for (size_t i = 0; i < 6 * 7; i++) {
        const char *shape = shapes[i / 7], *fill = fills[i % 7], *at = strstr(shape, "%s");
        struct answer_ask ask = {.tools = tools};
        struct answer *a = answer_new(s, &ask);
        size_t n = 0, total = 300000;
        answer_feed(a, shape, (size_t)(at - shape), false, count_part, &n);
        for (size_t k = 0; k < total; k++)
            answer_feed(a, fill + k % strlen(fill), 1, false, count_part, &n);
        answer_feed(a, at + 2, strlen(at + 2), false, count_part, &n);
        answer_finish(a, count_part, &n);
        if (n < total - 64 && (*fill != ' ' || strncmp(shape, "<think>", 7)))  // white space alone is no reasoning
            fail_msg("%s of %s: %zu of %zu bytes came out", shape, fill, n, total);
        answer_free(a);
    }
    json_decref(tools);
    answer_style_free(s);
}

// CHAT-15, and reasoning that a user's or a tool's text pretends to
static void test_opens(void **state)
{
    (void)state;
    struct answer_style *s = hermes();
    static const struct {
        const char *prompt;
        bool opens;
    } plain[] = {
        {"<|im_start|>assistant\n<think>\n", true},
        {"<|im_start|>assistant\n<think>\n\n</think>\n\n", false},
        {"<|im_start|>assistant\n", false},
        {"<|im_start|>user\n<think>\n<|im_end|>\n<|im_start|>assistant\n", false},
        {"", false},
    }, turns[] = {
        {"<|im_start|>assistant\n<think>\nso far", true},
        {"<|im_start|>assistant\n<think>\nso far</think>and", false},
        {"<|im_start|>assistant\nSee <think>\nso", false},
        {"<|im_start|>assistant\n<think>a</think>call<|im_end|>tool <think>", true},
        {"<|im_start|>assistant\n<think>a</think>call<|im_end|>tool <think> x", false},
        {"<|im_start|>user\n<|im_start|>assistant\n<think>\nx<|im_end|>\n<|im_start|>assistant\n", false},
    };
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(answer_opens(s, plain[i].prompt, strlen(plain[i].prompt)), plain[i].opens);
    answer_style_set(s, MARK_TURN, "<|im_start|>assistant\n", 22);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(answer_opens(s, plain[i].prompt, strlen(plain[i].prompt)), plain[i].opens);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        assert_int_equal(answer_opens(s, turns[i].prompt, strlen(turns[i].prompt)), turns[i].opens);
    assert_true(answer_thinks(s));
    assert_string_equal(answer_close(s), "\n</think>\n\n");
    assert_true(answer_is_marker(s, "<tool_call>", 11));
    assert_true(answer_is_marker(s, "</think>", 8));
    assert_false(answer_is_marker(s, "<|im_end|>", 10));
    assert_false(answer_is_marker(s, "\n", 1));
    assert_false(answer_is_marker(s, "", 0));
    answer_style_free(s);
}

// A control token is a marker wherever it stands.
static void test_marker_tokens(void **state)
{
    (void)state;
    struct answer_style *s = hermes();
    struct answer_ask ask = {0};
    struct answer *a = answer_new(s, &ask);
    size_t n = 0;
    answer_feed(a, "text ", 5, false, count_part, &n);
    answer_feed(a, "<think>", 7, true, count_part, &n);
    assert_true(answer_in_reasoning(a));
    answer_feed(a, "more", 4, false, count_part, &n);
    answer_feed(a, "</think>", 8, true, count_part, &n);
    assert_false(answer_in_reasoning(a));
    answer_finish(a, count_part, &n);
    assert_int_equal(n, 8);
    answer_free(a);
    answer_style_free(s);
}

// TOOL-04: a closing marker in three pieces, a second call, and text in front
static void test_pieces(void **state)
{
    (void)state;
    static const char *const pieces[] = {"On it.", "\n<tool", "_call>\n{\"name\": \"f\",", " \"arguments\": {}}\n</to", "ol_c",
                                         "all>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": \"b\"}}", "\n</tool_call>"};
    struct answer_style *s = hermes();
    json_t *tools = json_loads(TOOLS, 0, NULL);
    char *got = answers_pieces(s, tools, false, pieces, 7);
    assert_string_equal(got, "On it.{f:{}}{g:{\"a\": \"b\"}}");
    free(got);
    json_decref(tools);
    answer_style_free(s);
}

static void test_no_tools(void **state)
{
    (void)state;
    struct answer_style *s = hermes();
    answers_check(s, NULL, false, "<think>a</think><tool_call>{\"name\": \"f\"}</tool_call>",
                  "{R:a}<tool_call>{\"name\": \"f\"}</tool_call>");
    answer_style_free(s);
}

// A mark that another one begins with does not come first because the other's rest is not there yet.
static void test_marks_within_marks(void **state)
{
    (void)state;
    struct answer_style *s = hermes();
    answer_style_set(s, MARK_SAY_END, "<", 1);
    answers_check(s, NULL, false, "</think>b", "b");
    answers_check(s, NULL, false, "</thinkb", "/thinkb");
    answers_check(s, NULL, true, "a</think></think>b", "{R:a}b");
    answer_style_set(s, MARK_SAY_END, "", 0);
    answer_style_set(s, MARK_THINK, "</th", 4);
    answers_check(s, NULL, true, "</think>b", "b");
    answer_style_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects), cmocka_unit_test(test_cut_markup),
        cmocka_unit_test(test_inside_reasoning),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_no_tools),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_braces),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_name_as_key),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_opens),
        cmocka_unit_test(test_marks_within_marks),
        cmocka_unit_test(test_marker_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
