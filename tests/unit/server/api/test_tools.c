// The tools of a request: what the template and the engine get, what is refused and where, and how calls are worded back.
#include "server/api/fields.h"
#include "server/api/tools.h"
#include "tests/unit/server/api/drive.h"

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
#define F(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define SHOWN(name) \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"type\":\"object\",\"properties\":{}," \
    "\"additionalProperties\":false}}}"
#define AB "\"tools\":[" F("a") "," F("b") "]"

static const struct generate *asked(const char *fields)
{
    char json[2000];
    snprintf(json, sizeof json, "{%s," HI "}", fields);
    post(api_chat_create, json);
    if (!fake.ntasks)
        fail_msg("refused: %s", json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")));
    return &fake.tasks[0]->generate;
}

static void drop(void)
{
    end_badly(0, ERR_CANCELLED, "");
    done();
}

static void shows(const char *fields, const char *want)
{
    const struct generate *g = asked(fields);
    same_json(g->prompt.tools, want);
    drop();
}

static void refuses(const char *fields, const char *param, const char *code)
{
    char json[2000];
    snprintf(json, sizeof json, "{%s," HI "}", fields);
    refused(api_chat_create, json, 400, param, code);
}

// What a template sees is what the request says; nulls are absence, and a list of properties is always there (TOOL-11).
static void test_shown(void **state)
{
    (void)state;
    shows("\"tools\":[" F("a") "]", "[" SHOWN("a") "]");
    shows("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"d\",\"strict\":true,\"x\":1,\"parameters\":"
          "{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\"}},\"$schema\":\"s\"}}}]",
          "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
          "\"properties\":{\"q\":{\"type\":\"string\"}},\"$schema\":\"s\"},\"strict\":true}}]");
    shows("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":null,\"strict\":null,\"parameters\":null}}]",
          "[" SHOWN("a") "]");
    for (int i = 0; i < 2; i++)
        shows(i ? "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{}}}]"
                : "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\"}}}]",
              "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]");
    shows("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"anyOf\":[{}]}}}]",
          "[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"anyOf\":[{}]}}}]");
}

static void test_custom(void **state)
{
    (void)state;
#define INPUT(schema, more) \
    "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":" schema \
    "},\"required\":[\"input\"],\"additionalProperties\":false}" more "}}]"
#define CUSTOM(rest) "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"c\"" rest "}}]"
    shows(CUSTOM(""), INPUT("{\"type\":\"string\"}", ""));
    shows(CUSTOM(",\"format\":{\"type\":\"text\"}"), INPUT("{\"type\":\"string\"}", ""));
    shows(CUSTOM(",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"a|b\"}}"),
          INPUT("{\"type\":\"string\",\"pattern\":\"^(?:a|b)$\"}", ",\"strict\":true"));
    refuses(CUSTOM(",\"format\":{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"lark\",\"definition\":\"start: A\"}}"),
            "tools[0].custom.format", "unsupported_value");
    refuses(CUSTOM(",\"format\":5"), "tools[0].custom.format", "invalid_type");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *param, *code;
    } cases[] = {
        {"\"tools\":{}", "tools", "invalid_type"},
        {"\"tools\":[1]", "tools[0]", "invalid_type"},
        {"\"tools\":[{}]", "tools[0].type", "missing_required_parameter"},
        {"\"tools\":[{\"type\":5}]", "tools[0].type", "invalid_type"},
        {"\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type", "unsupported_value"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools[0].function", "missing_required_parameter"},
        {"\"tools\":[{\"type\":\"function\",\"name\":\"a\"}]", "tools[0].function", "missing_required_parameter"},
        {"\"tools\":[{\"type\":\"function\",\"function\":[]}]", "tools[0].function", "invalid_type"},
        {"\"tools\":[{\"type\":\"custom\",\"custom\":{}}]", "tools[0].custom.name", "missing_required_parameter"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name", "missing_required_parameter"},
        {"\"tools\":[" F("") "]", "tools[0].function.name", "invalid_value"},
        {"\"tools\":[" F("a b") "]", "tools[0].function.name", "invalid_value"},
        {"\"tools\":[" F("\\u00e9") "]", "tools[0].function.name", "invalid_value"},
        {"\"tools\":[" F("a\\u0000") "]", "tools[0].function.name", "invalid_value"},
        {"\"tools\":[" F("123456789012345678901234567890123456789012345678901234567890abcde") "]", "tools[0].function.name",
         "invalid_value"},
        {"\"tools\":[" F("a") ",{\"type\":\"custom\",\"custom\":{\"name\":\"a\"}}]", "tools[1].custom.name", "invalid_value"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":5}}]", "tools[0].function.description",
         "invalid_type"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":\"yes\"}}]", "tools[0].function.strict",
         "invalid_type"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}]", "tools[0].function.parameters",
         "invalid_type"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{\"type\":\"string\"}}}]",
         "tools[0].function.parameters", "invalid_function_parameters"},
        {"\"tool_choice\":\"none\",\"tools\":[{\"type\":\"function\"}]", "tools[0].function", "missing_required_parameter"},
        {"\"tool_choice\":\"required\"", "tool_choice", "invalid_value"},
        {"\"tool_choice\":\"required\",\"tools\":[]", "tool_choice", "invalid_value"},
        {"\"tool_choice\":" F("a"), "tool_choice", "invalid_value"},
        {"\"tool_choice\":\"some\"," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":5," AB, "tool_choice", "invalid_type"},
        {"\"tool_choice\":{}," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":" F("c") "," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"a\"}}," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":{\"type\":\"mcp\",\"server_label\":\"a\"}," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":{\"type\":\"allowed_tools\"}," AB, "tool_choice", "invalid_value"},
        {"\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[" F("c") "]}}," AB, "tool_choice",
         "invalid_value"},
        {"\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"none\",\"tools\":[" F("a") "]}}," AB, "tool_choice",
         "invalid_value"},
        {"\"parallel_tool_calls\":1," AB, "parallel_tool_calls", "invalid_type"},
        {"\"functions\":[{}]", "functions[0].name", "missing_required_parameter"},
        {"\"functions\":[{\"name\":\"a\",\"parameters\":5}]", "functions[0].parameters", "invalid_type"},
        {"\"functions\":[{\"name\":\"a\"}]," AB, "functions", "invalid_value"},
        {"\"functions\":[{\"name\":\"a\"}],\"function_call\":{\"name\":\"b\"}", "function_call", "invalid_value"},
        {"\"functions\":[{\"name\":\"a\"}],\"function_call\":\"required\"", "function_call", "invalid_value"},
        {"\"function_call\":{\"name\":\"b\"}", "function_call", "invalid_value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(cases[i].fields, cases[i].param, cases[i].code);
}

static void rules(const char *fields, enum tool_choice choice, const char *names, bool single)
{
    char got[100] = "";
    const struct generate *g = asked(fields);
    assert_non_null(g->prompt.tools);
    assert_int_equal(g->tools.choice, choice);
    for (size_t i = 0; i < g->tools.nnames; i++)
        strcat(strcat(got, g->tools.names[i]), " ");
    assert_string_equal(got, names);
    assert_int_equal(g->tools.single, single);
    assert_true(g->split);
    drop();
}

static void test_choice(void **state)
{
    (void)state;
    rules(AB, TOOLS_AUTO, "", false);
    rules("\"tool_choice\":\"auto\",\"parallel_tool_calls\":false," AB, TOOLS_AUTO, "", true);
    rules("\"tool_choice\":\"required\"," AB, TOOLS_REQUIRED, "", false);
    rules("\"tool_choice\":" F("b") "," AB, TOOLS_REQUIRED, "b ", true);
    rules("\"tool_choice\":{\"type\":\"function\",\"name\":\"b\"}," AB, TOOLS_REQUIRED, "b ", true);
    rules("\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":[" F("b") "," F("a") "]}}," AB,
          TOOLS_REQUIRED, "b a ", false);
    rules("\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"name\":\"a\"}]}," AB,
          TOOLS_AUTO, "a ", false);
    rules("\"functions\":[{\"name\":\"a\"},{\"name\":\"b\"}],\"function_call\":{\"name\":\"b\"}", TOOLS_REQUIRED, "b ", true);
    rules("\"functions\":[{\"name\":\"a\"}],\"function_call\":\"auto\"", TOOLS_AUTO, "", true);
    // TOOL-05
    static const char *const none[] = {"\"tool_choice\":\"none\"," AB, "\"functions\":[{\"name\":\"a\"}],\"function_call\":\"none\"",
                                       "\"tools\":[],\"tool_choice\":\"auto\"", "\"functions\":[],\"function_call\":\"auto\""};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(asked(none[i])->prompt.tools);
        drop();
    }
}

static void test_several_names_live_with_the_task(void **state)
{
    (void)state;
    const struct generate *g = asked("\"tool_choice\":" F("b") "," AB);
    assert_true(g->tools.names[0] != json_string_value(json_object_get(json_object_get(json_array_get(g->prompt.tools, 1),
                                                                                      "function"), "name")));
    assert_false(g->prompt.tools == json_object_get(fake.r->json, "tools"));
    drop();
}

// The flat nesting of responses, which takes the other one, too.
static void test_flat(void **state)
{
    (void)state;
    struct request *r = new_request();
    struct fields f;
    struct api_tools t;
    r->json = json_loads("{\"tools\":[{\"type\":\"function\",\"name\":\"a\",\"strict\":false,\"parameters\":null}," F("b")
                         ",{\"type\":\"custom\",\"name\":\"c\",\"format\":{\"type\":\"grammar\",\"syntax\":\"regex\",\"definition\":\"x\"}}],"
                         "\"tool_choice\":{\"type\":\"custom\",\"name\":\"c\"}}", 0, NULL);
    api_fields_init(&f, r);
    api_tools_read(&f, &r->arena, TOOLS_FLAT, &t);
    assert_false(f.failed);
    assert_int_equal(t.n, 3);
    assert_string_equal(t.rules.names[0], "c");
    assert_true(api_tools_custom(&t, "c"));
    assert_false(api_tools_custom(&t, "a"));
    assert_false(api_tools_custom(&t, "zzz"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(json_array_get(t.list, 1), "function"), "name")), "b");
    err e = {0};
    err_set_param(&e, ERR_INVALID, "tools[0].function.parameters", "the keyword 'not'");
    assert_string_equal(api_tools_word(&t, &e), "invalid_function_parameters");
    assert_string_equal(e.param, "tools[0].parameters");
    assert_string_equal(e.text, "Invalid schema for function 'a': the keyword 'not'");
    err_set_param(&e, ERR_INVALID, "tools[2].function.parameters", "no pattern");
    api_tools_word(&t, &e);
    assert_string_equal(e.param, "tools[2].format");
    arena_done(&r->arena);
    json_decref(r->json);
    free(r);
}

// What the engine finds in a schema has the request's own name for it.
static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *from, *param, *code;
    } cases[] = {
        {AB, "tools[1].function.parameters", "tools[1].function.parameters", "invalid_function_parameters"},
        {CUSTOM(""), "tools[0].function.parameters", "tools[0].custom.format", "invalid_value"},
        {"\"functions\":[{\"name\":\"a\"}]", "tools[0].function.parameters", "functions[0].parameters", "invalid_function_parameters"},
        {"\"functions\":[{\"name\":\"a\"}]", "tools", "functions", "invalid value"},
        {"\"functions\":[{\"name\":\"a\"}]", "tool_choice", "function_call", "invalid value"},
        {AB, "messages[0]", "messages[0]", "invalid value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        asked(cases[i].fields);
        struct event ev = {0};
        err_set_param(&ev.error, ERR_INVALID, cases[i].from, "it is wrong");
        end_task(0, ev);
        const json_t *e = json_object_get(fake.body, "error");
        assert_int_equal(fake.status, 400);
        assert_string_equal(json_string_value(json_object_get(e, "param")), cases[i].param);
        assert_string_equal(json_string_value(json_object_get(e, "code")), cases[i].code);
        done();
    }
}

static void test_input(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"{\"input\":\"a\\n\\u00e9\"}", "a\n\xC3\xA9"}, {"{\"input\": \"\"}", ""},
                                           {"{\"other\":1}", "{\"other\":1}"}, {"{bad", "{bad"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        buf_init(&b, 100);
        api_tools_input(cases[i][0], strlen(cases[i][0]), &b);
        assert_string_equal(b.data ? b.data : "", cases[i][1]);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_shown, set_up),   cmocka_unit_test_setup(test_custom, set_up),
        cmocka_unit_test_setup(test_refused, set_up), cmocka_unit_test_setup(test_choice, set_up),
        cmocka_unit_test_setup(test_several_names_live_with_the_task, set_up),
        cmocka_unit_test_setup(test_flat, set_up),    cmocka_unit_test_setup(test_words, set_up),
        cmocka_unit_test_setup(test_input, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
