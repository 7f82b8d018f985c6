// The form an answer is asked to have: what is held to it, what is left free, and what is refused by name.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar/machine.h"
#include "engine/grammar/structure.h"
#include "engine/text/answer_int.h"

#define FUNCTION(name, rest) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"" rest "}}"
#define NUMBER ",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"
#define ODD ",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{\"type\":\"integer\"}}}}"
#define EMPTY ",\"parameters\":{\"type\":\"object\",\"properties\":{}}"
#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static struct answer_style *style(bool thinks)
{
    struct answer_style *s = answer_style_new();
    answer_style_generic(s);
    answer_style_set(s, MARK_THINK, "<think>\n", thinks ? 8 : 0);
    answer_style_set(s, MARK_THINK_END, "\n</think>\n\n", thinks ? 11 : 0);
    return s;
}

// A compiled structure; NULL: anything goes.
struct form {
    struct nodes g;
    bool any;
};

static void open_form(struct form *f, bool thinks, const struct answer_ask *ask)
{
    struct answer_style *s = style(thinks);
    char *tag = NULL;
    uint32_t root;
    err e = {0};
    if (answer_structure(s, ask, &tag, &e))
        fail_msg("%s: %s", e.param, e.text);
    f->any = !tag;
    nodes_init(&f->g, NODES_JSON_DEPTH);
    if (tag && (structure_compile(tag, strlen(tag), &f->g, &root, &e) || nodes_finish(&f->g, root, &e)))
        fail_msg("%s: %s\n%s", e.param, e.text, tag);
    free(tag);
    answer_style_free(s);
}

static void takes(const struct form *f, const char *text, bool whole)
{
    struct machine *m = machine_new(&f->g);
    bool got = machine_text(m, text, strlen(text)) && machine_ends(m);
    machine_free(m);
    if (got != whole)
        fail_msg("%s: %s", got ? "taken" : "not taken", text);
}

static void check(const struct answer_ask *ask, bool thinks, const char *const *good, const char *const *bad)
{
    struct form f;
    open_form(&f, thinks, ask);
    assert_false(f.any);
    for (; *good; good++)
        takes(&f, *good, true);
    for (; *bad; bad++)
        takes(&f, *bad, false);
    nodes_done(&f.g);
}

static json_t *list(const char *text)
{
    json_error_t je;
    json_t *v = json_loads(text, 0, &je);
    if (!v)
        fail_msg("%s: %s", je.text, text);
    return v;
}

static void test_nothing_asked(void **state)
{
    (void)state;
    struct form f;
    struct answer_ask ask = {.thinking = true};
    open_form(&f, true, &ask);
    assert_true(f.any);
    nodes_done(&f.g);
}

static void test_auto(void **state)
{
    (void)state;
    json_t *tools = list("[" FUNCTION("n", NUMBER) "," FUNCTION("odd", ODD) "," FUNCTION("none", "") "]");
    struct answer_ask ask = {.tools = tools};
    static const char *const good[] = {
        "", "Just text, {\"a\": <tool_cal", CALL("n", "{\"a\": 1}"), "First\n" CALL("n", "{\"a\": 1}") "\n" CALL("none", "{}"),
        CALL("odd", "{\"whatever\": [1]}"), "<think>\nwhere <tool_call> begins\n</think>\n\nHello", NULL};
    static const char *const bad[] = {
        CALL("n", "{\"a\": \"x\"}"), CALL("n", "{}"), CALL("other", "{}"), CALL("none", "{\"a\": 1}"), "x <tool_call>y",
        CALL("odd", "[1]"), NULL};
    check(&ask, true, good, bad);
    static const struct tool_rules rules = {.single = true};
    ask.rules = &rules;
    static const char *const one[] = {"text " CALL("none", "{}"), NULL};
    static const char *const two[] = {CALL("none", "{}") "\n" CALL("none", "{}"), CALL("none", "{}") " and text", NULL};
    check(&ask, false, one, two);
    json_decref(tools);
}

static void test_required(void **state)
{
    (void)state;
    json_t *tools = list("[" FUNCTION("n", NUMBER) "," FUNCTION("m", NUMBER) "]");
    struct tool_rules rules = {.choice = TOOLS_REQUIRED};
    struct answer_ask ask = {.tools = tools, .rules = &rules};
    static const char *const good[] = {CALL("n", "{\"a\": 1}"), CALL("n", "{\"a\":1}") "\n" CALL("m", "{\"a\": -2}"),
                                       "<think>\nhm\n</think>\n\n" CALL("m", "{\"a\": 0}"), NULL};
    static const char *const bad[] = {"", "text", "text " CALL("n", "{\"a\": 1}"), CALL("n", "{\"a\": 1}") " text", NULL};
    check(&ask, true, good, bad);
    static const char *const inside[] = {"hm\n</think>\n\n" CALL("m", "{\"a\": 0}"), "</think>\n\n" CALL("m", "{\"a\": 0}"), NULL};
    static const char *const outside[] = {CALL("m", "{\"a\": 0}"), "hm", "hm</think>text",
                                          "hm</think>\n{}</think>\n\n" CALL("m", "{\"a\": 0}"),  // thoughts end once
                                          NULL};
    ask.thinking = true;
    check(&ask, true, inside, outside);
    static const char *const names[] = {"m"};
    rules.names = names;
    rules.nnames = 1;
    ask.thinking = false;
    static const char *const named[] = {CALL("m", "{\"a\": 1}"), NULL};
    static const char *const others[] = {CALL("n", "{\"a\": 1}"), NULL};
    check(&ask, false, named, others);
    rules.choice = TOOLS_AUTO;
    static const char *const allowed[] = {CALL("m", "{\"a\": 1}"), "text", NULL};
    check(&ask, false, allowed, others);
    json_decref(tools);
}

// TOOL-11: tools without parameters stand beside others
static void test_no_parameters(void **state)
{
    (void)state;
    json_t *tools = list("[" FUNCTION("n", NUMBER) "," FUNCTION("e", EMPTY) "," FUNCTION("none", "") "," FUNCTION("z", ",\"parameters\":{}") "]");
    static const struct tool_rules rules = {.choice = TOOLS_REQUIRED};
    struct answer_ask ask = {.tools = tools, .rules = &rules};
    static const char *const good[] = {CALL("e", "{}"), CALL("none", "{}"), CALL("z", "{}"), CALL("n", "{\"a\": 1}"), NULL};
    static const char *const bad[] = {CALL("e", "{\"a\": 1}"), CALL("none", "{\"a\": 1}"), CALL("z", "{\"a\": 1}"), CALL("e", ""), NULL};
    check(&ask, false, good, bad);
    json_decref(tools);
}

static void refuse(const char *tools_text, const struct tool_rules *rules, const char *param, const char *text)
{
    struct answer_style *s = style(false);
    json_t *tools = list(tools_text);
    struct answer_ask ask = {.tools = tools, .rules = rules};
    char *tag = NULL;
    err e = {0};
    assert_int_not_equal(answer_structure(s, &ask, &tag, &e), ERR_OK);
    assert_null(tag);
    assert_string_equal(e.param, param);
    if (!strstr(e.text, text))
        fail_msg("'%s' does not say '%s'", e.text, text);
    json_decref(tools);
    answer_style_free(s);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct tool_rules required = {.choice = TOOLS_REQUIRED};
    refuse("[" FUNCTION("n", NUMBER) "," FUNCTION("odd", ",\"strict\":true" ODD) "]", NULL, "tools[1].function.parameters", "not");
    refuse("[" FUNCTION("odd", ODD) "]", &required, "tools[0].function.parameters", "not");
    static const char *const names[] = {"gone"};
    const struct tool_rules gone = {.choice = TOOLS_REQUIRED, .names = names, .nnames = 1};
    refuse("[" FUNCTION("n", NUMBER) "]", &gone, "tool_choice", "may be called");
}

static void test_content(void **state)
{
    (void)state;
    json_t *tools = list("[" FUNCTION("n", NUMBER) "]");
    static const struct {
        struct grammar_request form;
        const char *good, *bad;
    } forms[] = {
        {{.kind = GRAMMAR_JSON_SCHEMA, .text = "{\"type\":\"integer\"}"}, "42", "\"x\""},
        {{.kind = GRAMMAR_JSON_OBJECT}, "{\"b\": []}", "[]"},
        {{.kind = GRAMMAR_REGEX, .text = "a+b"}, "aab", "b"},
        {{.kind = GRAMMAR_CHOICE, .text = "[\"yes\",\"no\"]"}, "no", "maybe"},
        {{.kind = GRAMMAR_GBNF, .text = "root ::= \"x\" [0-9]"}, "x7", "y"},
        {{.kind = GRAMMAR_STRUCTURE, .text = "{\"type\":\"structural_tag\",\"format\":{\"type\":\"const_string\",\"value\":\"k\"}}"}, "k", "l"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct grammar_request form = forms[i].form;
        form.len = form.text ? strlen(form.text) : 0;
        form.field = "response_format";
        struct answer_ask ask = {.content = &form};
        const char *good[] = {forms[i].good, NULL, NULL}, *bad[] = {forms[i].bad, CALL("n", "{\"a\": 1}"), NULL};
        check(&ask, false, good, bad);
        ask.tools = tools;
        good[1] = CALL("n", "{\"a\": 1}");
        bad[1] = NULL;
        check(&ask, false, good, bad);
        char thought[200];
        snprintf(thought, sizeof thought, "hm\n</think>\n\n%s", forms[i].good);
        good[0] = thought;
        good[1] = NULL;
        bad[1] = forms[i].good;
        ask.thinking = true;
        check(&ask, true, good, bad);
    }
    json_decref(tools);
}

// What all the functions' schemas cost is bounded: those that nobody insists on are left free then.
static void test_costly_functions(void **state)
{
    (void)state;
    json_t *tools = json_array();
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        json_array_append_new(tools, json_pack("{s:s, s:{s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}", "type", "function", "function",
                                               "name", name, "parameters", "type", "object", "properties", "a", "type", "string",
                                               "pattern", "^(a|b)*a(a|b){11}$", "required", "a"));
    }
    struct tool_rules required = {.choice = TOOLS_REQUIRED};
    struct answer_ask ask = {.tools = tools};
    static const char *const good[] = {CALL("f0", "{\"a\":\"aaaaaaaaaaaa\"}"), CALL("f39", "{\"b\":1}"), NULL};
    static const char *const bad[] = {CALL("f0", "{\"b\":1}"), NULL};
    check(&ask, false, good, bad);
    struct answer_style *s = style(false);
    char *tag = NULL;
    err e = {0};
    ask.rules = &required;
    assert_int_equal(answer_structure(s, &ask, &tag, &e), ERR_UNSUPPORTED);
    assert_string_equal(strchr(e.param, ']'), "].function.parameters");
    answer_style_free(s);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_asked), cmocka_unit_test(test_auto),    cmocka_unit_test(test_required),
        cmocka_unit_test(test_costly_functions), cmocka_unit_test(test_no_parameters), cmocka_unit_test(test_refused), cmocka_unit_test(test_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
