// Chat messages: what reaches the template, and the path an error names.
#include "tests/unit/server/api/drive.h"

// Posts messages and compares what the task's prompt holds.
static void becomes(const char *messages, const char *want)
{
    char json[1000];
    snprintf(json, sizeof json, "{\"messages\":%s}", messages);
    post(api_chat_create, json);
    if (!fake.ntasks)
        fail_msg("refused: %s", json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")));
    same_json(fake.tasks[0]->generate.prompt.messages, want);
    end_badly(0, ERR_CANCELLED, "");
    done();
}

static void rejects(const char *messages, const char *param, const char *code)
{
    char json[1000];
    snprintf(json, sizeof json, "{\"messages\":%s}", messages);
    refused(api_chat_create, json, 400, param, code);
}

// CHAT-08: parts are the same text as a string.
static void test_content(void **state)
{
    (void)state;
    becomes("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\",\"x\":1}]},"
            "{\"role\":\"user\",\"content\":\"\"},{\"role\":\"developer\",\"content\":\"d\",\"name\":\"n\"}]",
            "[{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"user\",\"content\":\"\"},"
            "{\"role\":\"developer\",\"content\":\"d\",\"name\":\"n\"}]");
    becomes("[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}],\"reasoning_content\":\"r\"},"
            "{\"role\":\"assistant\",\"content\":null,\"refusal\":\"never\"}]",
            "[{\"role\":\"assistant\",\"content\":\"no\",\"reasoning_content\":\"r\"},"
            "{\"role\":\"assistant\",\"content\":\"never\"}]");
    rejects("[{\"role\":\"user\"}]", "messages[0].content", "missing_required_parameter");
    rejects("[{\"role\":\"user\",\"content\":null}]", "messages[0].content", "invalid_type");
    rejects("[{\"role\":\"user\",\"content\":5}]", "messages[0].content", "invalid_type");
    rejects("[{\"role\":\"user\",\"content\":[]}]", "messages[0].content", "empty_array");
    rejects("[{\"role\":\"user\",\"content\":[\"a\"]}]", "messages[0].content[0]", "invalid_type");
    rejects("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0].text",
            "missing_required_parameter");
    rejects("[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]", "messages[0].content[0].type",
            "missing_required_parameter");
    rejects("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}]",
            "messages[0].content[1].type", "unsupported_value");
    rejects("[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"a\"}]}]", "messages[0].content[0].type",
            "invalid_value");
}

static void test_roles(void **state)
{
    (void)state;
    rejects("[]", "messages", "empty_array");
    rejects("{}", "messages", "invalid_type");
    rejects("[1]", "messages[0]", "invalid_type");
    rejects("[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"a\"}]", "messages[1].role", "missing_required_parameter");
    rejects("[{\"role\":\"banana\",\"content\":\"a\"}]", "messages[0].role", "invalid_value");  // TPL-05
    rejects("[{\"role\":5,\"content\":\"a\"}]", "messages[0].role", "invalid_type");
    rejects("[{\"role\":\"user\",\"content\":\"a\",\"name\":5}]", "messages[0].name", "invalid_type");
    rejects("[{\"role\":\"tool\",\"content\":\"a\"}]", "messages[0].tool_call_id", "missing_required_parameter");
    rejects("[{\"role\":\"tool\",\"tool_call_id\":5,\"content\":\"a\"}]", "messages[0].tool_call_id", "invalid_type");
    rejects("[{\"role\":\"function\",\"content\":\"a\"}]", "messages[0].name", "missing_required_parameter");
    rejects("[{\"role\":\"assistant\",\"content\":\"a\",\"audio\":{\"id\":\"x\"}}]", "messages[0].audio", "unsupported_value");
}

#define CALLED(id) "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"" id "\",\"function\":{\"name\":\"f\"}}]}"
#define RESULT(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"r\"}"

// TPL-04, TPL-07, TOOL-08: arguments become objects, custom input an argument.
static void test_tools(void **state)
{
    (void)state;
    becomes("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":"
            "{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":\\\"<\\u00e9\\\"}\"}},"
            "{\"id\":\"c2\",\"type\":\"custom\",\"custom\":{\"name\":\"g\",\"input\":\"x \\\"y\\\"\"}},"
            "{\"function\":{\"name\":\"h\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]",
            "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"b\":1,\"a\":\"<\xC3\xA9\"}},\"id\":\"c1\"},{\"type\":\"function\",\"function\":{\"name\":\"g\","
            "\"arguments\":{\"input\":\"x \\\"y\\\"\"}},\"id\":\"c2\"},{\"type\":\"function\",\"function\":{\"name\":\"h\","
            "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c1\"}]");
    becomes("[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\" \"}},"
            "{\"role\":\"function\",\"name\":\"f\",\"content\":\"r\"}]",
            "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"r\",\"name\":\"f\"}]");
#define CALL(c) "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":" c "}]"
    rejects(CALL("{}"), "messages[0].tool_calls", "invalid_type");
    rejects(CALL("[1]"), "messages[0].tool_calls[0]", "invalid_type");
    rejects(CALL("[{\"type\":\"mcp\"}]"), "messages[0].tool_calls[0].type", "unsupported_value");
    rejects(CALL("[{\"type\":\"custom\"}]"), "messages[0].tool_calls[0].custom", "missing_required_parameter");
    rejects(CALL("[{\"type\":\"custom\",\"custom\":{\"name\":\"g\",\"input\":{}}}]"), "messages[0].tool_calls[0].custom.input",
            "invalid_type");
    rejects(CALL("[{\"id\":5}]"), "messages[0].tool_calls[0].id", "invalid_type");
    rejects(CALL("[{\"id\":\"a\"}]"), "messages[0].tool_calls[0].function", "missing_required_parameter");
    rejects(CALL("[{\"function\":{}}]"), "messages[0].tool_calls[0].function.name", "missing_required_parameter");
    rejects(CALL("[{\"function\":{\"name\":\"f\",\"arguments\":5}}]"), "messages[0].tool_calls[0].function.arguments",
            "invalid_type");
}

// TOOL-09: arguments that are no object are refused by their place; none at all is an empty object.
static void test_arguments(void **state)
{
    (void)state;
    static const char *const bad[] = {"\\\"kitchen\\\"", "[1]", "{bad", "7", "null", "{}{}", "{\\\"a\\\":1} x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char json[300];
        snprintf(json, sizeof json, CALL("[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
                                         "{\"function\":{\"name\":\"f\",\"arguments\":\"%s\"}}]"), bad[i]);
        rejects(json, "messages[0].tool_calls[1].function.arguments", "invalid_value");
    }
    rejects("[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\"[]\"}}]",
            "messages[0].function_call.arguments", "invalid_value");
    becomes(CALL("[{\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]"),
            "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{}}}]}]");
}

// TOOL-07: a result belongs to a call of the message before it.
static void test_results(void **state)
{
    (void)state;
    rejects("[" RESULT("c1") "]", "messages", "");
    rejects("[{\"role\":\"user\",\"content\":\"a\"}," RESULT("c1") "]", "messages", "");
    rejects("[" CALLED("c1") "," RESULT("c1") "," RESULT("c2") "]", "messages", "");
    rejects("[" CALLED("c1") "," RESULT("c1") "," CALLED("c2") "," RESULT("c1") "]", "messages", "");
    post(api_chat_create, "{\"messages\":[" CALLED("c1") "," RESULT("c2") "]}");
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")), "tool_calls"));
    done();
    static const char *const good[] = {
        CALLED("c1") "," RESULT("c1") "," CALLED("c2") "," RESULT("c2"),
        CALLED("c1") ",{\"role\":\"user\",\"content\":\"a\"}," RESULT("c1"),
        "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}," RESULT("whatever")};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char json[1000];
        snprintf(json, sizeof json, "{\"messages\":[%s]}", good[i]);
        post(api_chat_create, json);
        assert_int_equal(fake.ntasks, 1);
        end_badly(0, ERR_CANCELLED, "");
        done();
    }
}

static void test_thoughts(void **state)
{
    (void)state;
    becomes("[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\",\"reasoning\":\"u\"},"
            "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"u\"},"
            "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":null,\"reasoning\":{\"x\":1}},"
            "{\"role\":\"user\",\"content\":\"a\"}]",
            "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\",\"reasoning\":\"u\"},"
            "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"u\",\"reasoning\":\"u\"},"
            "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":{\"x\":1}},{\"role\":\"user\",\"content\":\"a\"}]");
    rejects("[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":[]}]", "messages[0].reasoning_content", "invalid_type");
}

// An assistant's text at the end is continued unless the request says how the prompt ends.
static void test_beginning(void **state)
{
    (void)state;
#define LAST(m) "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," m "]}"
#define SAID "{\"role\":\"assistant\",\"content\":\"b\"}"
    static const struct {
        const char *json;
        bool continued, opened;
    } cases[] = {
        {"{" LAST(SAID), true, false},
        {"{\"continue_final_message\":true," LAST(SAID), true, false},
        {"{\"continue_final_message\":false," LAST(SAID), false, true},
        {"{\"add_generation_prompt\":true," LAST(SAID), false, true},
        {"{\"add_generation_prompt\":false," LAST(SAID), false, false},
        {"{" LAST(CALLED("c")), false, true},
        {"{" LAST("{\"role\":\"assistant\",\"content\":\"\"}"), false, true},
        {"{" LAST("{\"role\":\"user\",\"content\":\"b\"}"), false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        post(api_chat_create, cases[i].json);
        assert_int_equal(fake.ntasks, 1);
        const struct prompt *p = &fake.tasks[0]->generate.prompt;
        if (p->continue_final_message != cases[i].continued || p->add_generation_prompt != cases[i].opened)
            fail_msg("%s: %d %d", cases[i].json, p->continue_final_message, p->add_generation_prompt);
        end_badly(0, ERR_CANCELLED, "");
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_content, set_up),
        cmocka_unit_test_setup(test_roles, set_up),
        cmocka_unit_test_setup(test_tools, set_up),
        cmocka_unit_test_setup(test_arguments, set_up),
        cmocka_unit_test_setup(test_results, set_up),
        cmocka_unit_test_setup(test_thoughts, set_up),
        cmocka_unit_test_setup(test_beginning, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
