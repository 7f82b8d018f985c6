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
    rejects("[{\"role\":\"function\",\"content\":\"a\"}]", "messages[0].name", "missing_required_parameter");
    rejects("[{\"role\":\"assistant\",\"content\":\"a\",\"audio\":{\"id\":\"x\"}}]", "messages[0].audio", "unsupported_value");
}

// TPL-04, TPL-07: arguments become objects where they are, and stay strings where they are not.
static void test_tools(void **state)
{
    (void)state;
    becomes("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":"
            "{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":\\\"<\\u00e9\\\"}\"}},"
            "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{oops\"}},"
            "{\"function\":{\"name\":\"h\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]",
            "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"b\":1,\"a\":\"<\xC3\xA9\"}},\"id\":\"c1\"},{\"type\":\"function\",\"function\":{\"name\":\"g\","
            "\"arguments\":\"{oops\"},\"id\":\"c2\"},{\"type\":\"function\",\"function\":{\"name\":\"h\",\"arguments\":{}}}]},"
            "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c1\"}]");
    becomes("[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}},"
            "{\"role\":\"function\",\"name\":\"f\",\"content\":\"r\"}]",
            "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"r\",\"name\":\"f\"}]");
#define CALL(c) "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":" c "}]"
    rejects(CALL("{}"), "messages[0].tool_calls", "invalid_type");
    rejects(CALL("[1]"), "messages[0].tool_calls[0]", "invalid_type");
    rejects(CALL("[{\"type\":\"custom\"}]"), "messages[0].tool_calls[0].type", "unsupported_value");
    rejects(CALL("[{\"id\":5}]"), "messages[0].tool_calls[0].id", "invalid_type");
    rejects(CALL("[{\"id\":\"a\"}]"), "messages[0].tool_calls[0].function", "missing_required_parameter");
    rejects(CALL("[{\"function\":{}}]"), "messages[0].tool_calls[0].function.name", "missing_required_parameter");
    rejects(CALL("[{\"function\":{\"name\":\"f\",\"arguments\":5}}]"), "messages[0].tool_calls[0].function.arguments",
            "invalid_type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_content, set_up),
        cmocka_unit_test_setup(test_roles, set_up),
        cmocka_unit_test_setup(test_tools, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
