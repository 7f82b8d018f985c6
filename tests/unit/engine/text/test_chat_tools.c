// Tools in prompts of templates that show none, calls and results of earlier turns there, and ids that hold names.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "engine/text/chat.h"
#include "tests/helpers/answers.h"

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_stock\",\"description\":\"d\\u00e9\",\"parameters\":{\"type\":"   \
    "\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]"
#define CALLS                                                                                                          \
    "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"Let me see.\",\"tool_calls\":["           \
    "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"get_stock\",\"arguments\":\"{\\\"n\\\":1}\"}},"         \
    "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"get_rate\",\"arguments\":\"{}\"}}]},"                   \
    "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"RATE\"},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"STOCK\"}"

static struct chat *open_style(const char *name)
{
    char path[256], *source;
    size_t len;
    err e = {0};
    struct chat *c = NULL;
    snprintf(path, sizeof path, "tests/fixtures/templates/chat/%s.jinja", name);
    if (file_read(path, TEMPLATE_MAX_SOURCE, &source, &len, &e) || chat_open_source(source, len, NULL, 0, &c, &e))
        fail_msg("%s (run from the repository root)", e.text);
    free(source);
    return c;
}

static char *prompt_of(const struct chat *c, const char *messages, const char *tools)
{
    json_t *list = json_loads(messages, 0, NULL), *offered = tools ? json_loads(tools, 0, NULL) : NULL;
    struct prompt p = {.messages = list, .tools = offered, .add_generation_prompt = true};
    struct rendered r = {0};
    err e = {0};
    assert_non_null(list);
    if (chat_render(c, &p, "<s>", "</s>", 1700000000, &r, &e))
        fail_msg("%s: %s", messages, e.text);
    json_decref(list);
    json_decref(offered);
    free(r.spans);
    return r.text;
}

static void has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' has no '%s'", text, what);
}

static void test_listed(void **state)
{
    (void)state;
    static const char line[] = "{\"name\": \"get_stock\", \"description\": \"d\u00e9\", \"parameters\": ";
    struct chat *c = open_style("chatml");
    assert_false(chat_traits(c)->tools);
    char *text = prompt_of(c, "[{\"role\":\"system\",\"content\":\"Be good.\"},{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    has(text, "<|im_start|>system\nBe good.\n\n# Tools");
    has(text, line);
    has(text, "<tool_call>\n{\"name\": ");
    free(text);
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    assert_int_equal(strncmp(text, "<|im_start|>system\n# Tools", 26), 0);
    free(text);
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", NULL);  // TOOL-05: none offered, none shown
    assert_null(strstr(text, "tool"));
    free(text);
    chat_close(c);
    c = open_style("turns_system_merged");  // the system message goes on to where the template has it
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    has(text, line);
    free(text);
    chat_close(c);
    c = open_style("turns_no_system");
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    has(text, line);
    has(text, "<start_of_turn>user\n# Tools");
    free(text);
    chat_close(c);
    c = open_style("role_in_marker");  // it lists them beside a system message only
    assert_true(chat_traits(c)->tools_in_system);
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    assert_ptr_equal(strstr(text, "<|system|><|tool|>[{\"name\": \"get_stock\""), text);
    assert_null(strstr(text, "# Tools"));
    free(text);
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", NULL);
    assert_string_equal(text, "<|user|>q<|end|><|assistant|>");
    free(text);
    chat_close(c);
    c = open_style("parts_only");
    text = prompt_of(c, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}]", TOOLS);
    has(text, line);
    free(text);
    chat_close(c);
}

// Calls of earlier turns look as the model is told to write them, and are read so.
static void test_history(void **state)
{
    (void)state;
    static const char written[] = "Let me see.\n<tool_call>\n{\"name\": \"get_stock\", \"arguments\": {\"n\": 1}}\n</tool_call>\n"
                                  "<tool_call>\n{\"name\": \"get_rate\", \"arguments\": {}}\n</tool_call>";
    static const char *const names[] = {"chatml", "turns_system_merged", "turns_no_system", "inst_two"};
    json_t *tools = json_loads(TOOLS, 0, NULL);
    for (size_t i = 0; i < 4; i++) {
        struct chat *c = open_style(names[i]);
        char *text = prompt_of(c, "[" CALLS "]", TOOLS);
        has(text, written);
        assert_true(strstr(text, "STOCK") < strstr(text, "RATE"));  // TOOL-07
        assert_non_null(strstr(text, "STOCK"));
        answers_check(chat_answer_style(c, true), tools, false, written, "Let me see.{get_stock:{\"n\": 1}}{get_rate:{}}");
        free(text);
        chat_close(c);
    }
    json_decref(tools);
}

static void test_named_ids(void **state)
{
    (void)state;
    struct chat *c = open_style("sections");
    assert_true(chat_traits(c)->named_ids);
    char *text = prompt_of(c, "[" CALLS ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
                              "\"function\":{\"name\":\"get_rate\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"AGAIN\"}]", TOOLS);
    has(text, "<|call|>functions.get_stock:0<|args|>{\"n\":1}<|call|>functions.get_rate:1<|args|>{}");
    has(text, "## Result of functions.get_stock:0\nSTOCK");
    has(text, "## Result of functions.get_rate:1\nRATE");
    has(text, "<|call|>functions.get_rate:2<|args|>{}");
    has(text, "## Result of functions.get_rate:2\nAGAIN");
    free(text);
    chat_close(c);
    c = open_style("thinking_multistep");
    assert_false(chat_traits(c)->named_ids);
    chat_close(c);
}

// Thousands of calls, their results the other way round, and of parts: what grew with the square or the cube of them would not end.
static void test_many(void **state)
{
    (void)state;
    enum { CALLS_N = 4000, PARTS_N = 20000 };
    static const char *const names[] = {"chatml", "turns_system_merged", "inst_two"};
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < PARTS_N; i++)
        buf_printf(&b, "%s{\"type\":\"text\",\"text\":\"p%d.\"}", i ? "," : "", i);
    buf_add_str(&b, "]},{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i < CALLS_N; i++)
        buf_printf(&b, "%s{\"id\":\"c%d\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}", i ? "," : "", i);
    buf_add_str(&b, "]}");
    for (int i = CALLS_N - 1; i >= 0; i--)
        buf_printf(&b, ",{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"R%d.\"}", i, i);
    buf_add_str(&b, "]");
    for (size_t k = 0; k < 3; k++) {
        struct chat *c = open_style(names[k]);
        char *text = prompt_of(c, b.data, NULL), *at = strstr(text, "p19998.p19999.");
        assert_non_null(at);
        for (int i = 0; i < CALLS_N; i++) {
            char want[16];
            snprintf(want, sizeof want, "R%d.", i);
            at = strstr(at, want);
            if (!at)
                fail_msg("%s: %s is missing, or in another place", names[k], want);
        }
        free(text);
        chat_close(c);
    }
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_named_ids),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
