// Where a model's template comes from, what is learnt about it, and messages made ready for it.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/text/chat.h"
#include "engine/weights/weights.h"
#include "tests/helpers/gguf.h"

#define CHATS "tests/fixtures/templates/chat/"

static struct chat *open_text(const char *source)
{
    struct chat *c = NULL;
    err e = {0};
    if (chat_open_source(source, strlen(source), NULL, 0, &c, &e))
        fail_msg("%s", e.text);
    return c;
}

static struct chat *open_style(const char *name)
{
    char path[256], *source;
    size_t len;
    err e = {0};
    snprintf(path, sizeof path, CHATS "%s.jinja", name);
    if (file_read(path, TEMPLATE_MAX_SOURCE, &source, &len, &e))
        fail_msg("%s (run from the repository root)", e.text);
    struct chat *c = open_text(source);
    free(source);
    return c;
}

static json_t *parse(const char *text)
{
    json_error_t je;
    json_t *j = json_loads(text, JSON_DECODE_ANY, &je);
    if (!j)
        fail_msg("%s: %s", je.text, text);
    return j;
}

static err_code render(const struct chat *c, const char *messages, const char *tools, bool more, char **ret_text,
                       err *e)
{
    struct prompt p = {.messages = parse(messages),
                       .tools = tools ? parse(tools) : NULL,
                       .add_generation_prompt = !more,
                       .continue_final_message = more};
    struct rendered r = {0};
    err_code code = chat_render(c, &p, "<s>", "</s>", 1721997005, &r, e);
    if (!code) {
        *ret_text = r.text;
        r.text = NULL;
    }
    rendered_done(&r);
    json_decref(p.messages);
    json_decref(p.tools);
    return code;
}

// The prompt, freed by the caller.
static char *prompt_of(const struct chat *c, const char *messages, const char *tools)
{
    char *text = NULL;
    err e = {0};
    if (render(c, messages, tools, false, &text, &e))
        fail_msg("%s: %s", messages, e.text);
    return text;
}

static void assert_prompt(const struct chat *c, const char *messages, const char *want)
{
    char *text = prompt_of(c, messages, NULL);
    assert_string_equal(text, want);
    free(text);
}

static void assert_same(const struct chat *c, const char *a, const char *b)
{
    char *x = prompt_of(c, a, NULL), *y = prompt_of(c, b, NULL);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void assert_fails(const struct chat *c, const char *messages, const char *param, const char *text)
{
    char *out;
    err e = {0};
    assert_int_equal(render(c, messages, NULL, false, &out, &e), ERR_INVALID);
    assert_string_equal(e.param, param);
    if (!strstr(e.text, text))
        fail_msg("'%s' does not say '%s'", e.text, text);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

#define TOOL_TURN(arguments)                                                                                           \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\","  \
    "\"type\":\"function\","                                                                                           \
    "\"function\":{\"name\":\"turn_on\",\"arguments\":" arguments                                                      \
    "}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"RESULT\"}]"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"turn_on\",\"description\":\"d\",\"parameters\":{\"type\":"       \
    "\"object\",\"properties\":{}}}}]"

// ---- TPL

// TPL-02: a template that has no system role
static void test_no_system(void **state)
{
    (void)state;
    struct chat *c = open_style("turns_no_system");
    assert_false(chat_traits(c)->system);
    assert_prompt(c, "[{\"role\":\"system\",\"content\":\"Be good.\"},{\"role\":\"user\",\"content\":\"Hi\"}]",
                  "<s><start_of_turn>user\nBe good.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
    assert_fails(c, "[{\"role\":\"system\",\"content\":\"Be good.\"}]", "", "System");
    assert_fails(c, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]", "", "alternate");
    chat_close(c);
}

// TPL-04: roles must alternate, and there are calls and results
static void test_tool_turn_in_alternation(void **state)
{
    (void)state;
    struct chat *c = open_style("turns_system_merged");
    assert_false(chat_traits(c)->calls);
    assert_false(chat_traits(c)->results);
    char *text =
        prompt_of(c,
                  "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
                  "\"assistant\",\"content\":null,"
                  "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"turn_on\","
                  "\"arguments\":\"{\\\"n\\\":1}\"}},"
                  "{\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"other\",\"arguments\":\"{}\"}}]},"
                  "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"RESULT\"},{\"role\":\"tool\",\"tool_call_"
                  "id\":\"b\",\"content\":\"SECOND\"}]",
                  NULL);
    assert_int_equal(count(text, "RESULT"), 1);
    assert_non_null(
        strstr(text, "{\"name\": \"turn_on\", \"arguments\": {\"n\": 1}}\n{\"name\": \"other\", \"arguments\": {}}"));
    assert_non_null(strstr(text, "RESULT\n\nSECOND"));
    free(text);
    chat_close(c);
}

// TPL-05: developer is system where the template does not know it
static void test_developer(void **state)
{
    (void)state;
    static const char developer[] =
        "[{\"role\":\"developer\",\"content\":\"D\"},{\"role\":\"user\",\"content\":\"q\"}]";
    struct chat *c = open_style("chatml");
    assert_same(c, developer, "[{\"role\":\"system\",\"content\":\"D\"},{\"role\":\"user\",\"content\":\"q\"}]");
    chat_close(c);
    c = open_style("channels_typescript");
    assert_true(chat_traits(c)->developer);
    char *text = prompt_of(c, developer, NULL);
    assert_non_null(strstr(text, "<|start|>developer<|message|>"));
    free(text);
    chat_close(c);
    c = open_text("{% for m in messages %}[{{ m.role }}{{ '!' if m.role == 'developer' }}]{{ m.content }}{% endfor %}");
    assert_prompt(c, developer, "[developer!]D[user]q");
    chat_close(c);
}

// TPL-06: a system message in mid-conversation, and developer beside system
static void test_late_system(void **state)
{
    (void)state;
    struct chat *c = open_style("late_system_refused");
    assert_true(chat_traits(c)->system);
    assert_false(chat_traits(c)->late_system);
    char *text = prompt_of(c,
                           "[{\"role\":\"system\",\"content\":\"one\"},{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
                           "\"assistant\",\"content\":\"a\"},"
                           "{\"role\":\"system\",\"content\":\"two\"},{\"role\":\"user\",\"content\":\"r\"}]",
                           NULL);
    assert_ptr_equal(strstr(text, "<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user\nq"), text);
    free(text);
    text = prompt_of(c,
                     "[{\"role\":\"developer\",\"content\":\"D\"},{\"role\":\"system\",\"content\":\"S\"},{\"role\":"
                     "\"user\",\"content\":\"q\"}]",
                     NULL);
    assert_ptr_equal(strstr(text, "<|im_start|>system\nD\n\nS<|im_end|>\n"), text);
    free(text);
    chat_close(c);
    c = open_style("chatml");  // which takes them anywhere
    assert_true(chat_traits(c)->late_system);
    assert_prompt(c, "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"system\",\"content\":\"s\"}]",
                  "<|im_start|>user\nq<|im_end|>\n<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n");
    chat_close(c);
}

// ---- TOOL

// TOOL-05: tool_choice none gives no tools to the template
static void test_no_tools(void **state)
{
    (void)state;
    struct chat *c = open_style("xml_json_tools");
    assert_true(chat_traits(c)->tools);
    char *with = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS),
         *without = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", NULL);
    char *empty = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", "[]");
    assert_non_null(strstr(with, "turn_on"));
    assert_null(strstr(without, "tool"));
    assert_string_equal(empty, without);
    free(with);
    free(without);
    free(empty);
    chat_close(c);
}

// TOOL-07: results belong to calls by id, whatever order they come in
static void test_result_order(void **state)
{
    (void)state;
#define TWO_CALLS "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" \
    "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"get_stock\",\"arguments\":\"{}\"}}," \
    "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"get_rate\",\"arguments\":\"{}\"}}]},"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
    static const char *const styles[] = {"xml_json_tools", "action_results", "turns_system_merged",
                                         "headers_tools_date", "bracket_tools"};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        struct chat *c = open_style(styles[i]);
        assert_same(c, TWO_CALLS RESULT("c1", "stock") "," RESULT("c2", "rate") "]",
                    TWO_CALLS RESULT("c2", "rate") "," RESULT("c1", "stock") "]");
        assert_fails(c, TWO_CALLS RESULT("c1", "stock") "," RESULT("c9", "rate") "]", "messages[3].tool_call_id",
                     "no call");
        chat_close(c);
    }
}

// TOOL-08: arguments are a string in the API; templates want an object or text
static void test_arguments(void **state)
{
    (void)state;
    static const char head[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}:";
    static const char tail[] = "{% endfor %}{{ m.content }};{% endfor %}";
    char source[512];
    snprintf(source, sizeof source,
             "%s{%% for k, v in c.function.arguments.items() %%}{{ k }}={{ v }},{%% endfor %%}%s", head, tail);
    struct chat *mapping = open_text(source);
    snprintf(source, sizeof source, "%s{{ '<' + c.function.arguments + '>' }}%s", head, tail);
    struct chat *text = open_text(source);
    snprintf(source, sizeof source, "%s{{ c.function.arguments }}%s", head, tail);
    struct chat *printed = open_text(source);
    snprintf(source, sizeof source, "%s{{ c.function.arguments|tojson }}%s", head, tail);
    struct chat *json = open_text(source);
    static const char string[] = TOOL_TURN("\"{\\\"room\\\":\\\"kitchen\\\",\\\"n\\\":2}\""),
                      object[] = TOOL_TURN("{\"room\":\"kitchen\",\"n\":2}");
    assert_prompt(mapping, string, "q;turn_on:room=kitchen,n=2,;RESULT;");
    assert_prompt(mapping, object, "q;turn_on:room=kitchen,n=2,;RESULT;");
    assert_prompt(text, string, "q;turn_on:<{\"room\":\"kitchen\",\"n\":2}>;RESULT;");
    assert_prompt(text, object, "q;turn_on:<{\"room\": \"kitchen\", \"n\": 2}>;RESULT;");
    assert_prompt(printed, object, "q;turn_on:{\"room\": \"kitchen\", \"n\": 2};RESULT;");
    assert_prompt(json, string, "q;turn_on:{\"room\": \"kitchen\", \"n\": 2};RESULT;");
    assert_true(chat_traits(mapping)->object_arguments);
    assert_false(chat_traits(text)->object_arguments);
    assert_false(chat_traits(printed)->object_arguments);
    assert_true(chat_traits(json)->object_arguments);
    chat_close(mapping);
    chat_close(text);
    chat_close(printed);
    chat_close(json);
}

// TOOL-09: arguments that are JSON but no object, or no JSON
static void test_bad_arguments(void **state)
{
    (void)state;
    static const char *const bad[] = {TOOL_TURN("\"\\\"kitchen\\\"\""), TOOL_TURN("\"[1]\""), TOOL_TURN("\"{bad\""),
                                      TOOL_TURN("[1]"), TOOL_TURN("5")};
    static const char *const styles[] = {"xml_json_tools", "chatml", "fullwidth_namespace", "turns_system_merged"};
    for (size_t s = 0; s < sizeof styles / sizeof *styles; s++) {
        struct chat *c = open_style(styles[s]);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            assert_fails(c, bad[i], "messages[1].tool_calls[0].function.arguments", "object");
        assert_same(c, TOOL_TURN("\"\""), TOOL_TURN("{}"));
        assert_same(c, TOOL_TURN("null"), TOOL_TURN("{}"));
        chat_close(c);
    }
}

// Calls that show only when content is null; one call a message; ids of nine characters.
static void test_call_shapes(void **state)
{
    (void)state;
    struct chat *c = open_style("fullwidth_namespace");
    assert_true(chat_traits(c)->null_content);
    assert_false(chat_traits(c)->object_arguments);
    char *text = prompt_of(c, TOOL_TURN("\"{}\""), NULL);
    assert_int_equal(count(text, "turn_on"), 1);
    assert_int_equal(count(text, "RESULT"), 1);
    free(text);
    chat_close(c);
    c = open_style("headers_tools_date");
    assert_false(chat_traits(c)->many_calls);
    text = prompt_of(
        c, TWO_CALLS RESULT("c2", "rate") "," RESULT("c1", "stock") ",{\"role\":\"user\",\"content\":\"so?\"}]", NULL);
    char *stock = strstr(text, "get_stock"), *first = strstr(text, "stock<|eot_id|>"), *rate = strstr(text, "get_rate"),
         *second = strstr(text, "rate<|eot_id|>");
    assert_true(stock && first && rate && second);
    assert_true(stock < first && first < rate && rate < second && second < strstr(text, "so?"));
    free(text);
    chat_close(c);
    c = open_style("bracket_tools");
    assert_false(chat_traits(c)->any_call_id);
    text = prompt_of(c,
                     "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
                     "\"id\":\"call_0123456789\",\"type\":\"function\","
                     "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_"
                     "0123456789\",\"content\":\"R\"}]",
                     NULL);
    char *id = strstr(text, "\"id\": \"") + 7, *back = strstr(text, "\"call_id\": \"") + 12;
    assert_int_equal(strcspn(id, "\""), 9);
    assert_memory_equal(id, back, 10);
    free(text);
    chat_close(c);
}

// ---- CHAT-08: content as parts is the same text

static void test_parts(void **state)
{
    (void)state;
    static const char *const styles[] = {"chatml",     "xml_json_tools",     "turns_system_merged",
                                         "parts_only", "headers_tools_date", "late_system_refused"};
#define PARTS "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]"
#define ALL(content)                                                                                                   \
    "[{\"role\":\"system\",\"content\":" content "},{\"role\":\"user\",\"content\":" content                           \
    "},{\"role\":\"assistant\",\"content\":" content "},{\"role\":\"user\",\"content\":" content "}]"
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        struct chat *c = open_style(styles[i]);
        assert_same(c, ALL("\"ab\""), ALL(PARTS));
        char *a, *b;
        err e = {0};
        static const char last[] =
            "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"ab\"}]";
        static const char last_parts[] =
            "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":" PARTS "}]";
        assert_int_equal(render(c, last, NULL, true, &a, &e), ERR_OK);
        assert_int_equal(render(c, last_parts, NULL, true, &b, &e), ERR_OK);
        assert_string_equal(a, b);
        assert_string_equal(a + strlen(a) - 2, "ab");
        free(a);
        free(b);
        chat_close(c);
    }
    struct chat *c = open_style("parts_only");
    assert_false(chat_traits(c)->text_content);
    assert_prompt(c, "[{\"role\":\"user\",\"content\":\"q\"}]",
                  "<|sys|>You see images.</s>\n<|user|>q</s>\n<|assistant|>");
    chat_close(c);
}

static void assert_continues(const struct chat *c, const char *said, const char *want)
{
    char messages[256], *text;
    err e = {0};
    snprintf(messages, sizeof messages,
             "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"%s\"}]", said);
    if (render(c, messages, NULL, true, &text, &e))
        fail_msg("%s", e.text);
    assert_string_equal(text, want);
    free(text);
}

static void test_continue(void **state)
{
    (void)state;
    struct chat *c = open_style("chatml");
    assert_continues(c, "Once upon", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nOnce upon");
    assert_continues(c, "Once upon ", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nOnce upon ");
    assert_continues(c, "", "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
    chat_close(c);
    c = open_style("chatml_default_system");  // trims
    assert_continues(c, " Once upon  ",
                     "<|im_start|>system\nYou answer "
                     "briefly.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nOnce upon");
    chat_close(c);
    c = open_text("{% for m in messages %}{{ m.content|upper if m.role == 'assistant' else m.content }}{% endfor %}");
    char *text;
    err e = {0};
    assert_int_equal(render(c, "[{\"role\":\"assistant\",\"content\":\"a\"}]", NULL, true, &text, &e), ERR_INVALID);
    assert_string_equal(e.param, "continue_final_message");
    assert_int_equal(render(c, "[{\"role\":\"assistant\"}]", NULL, true, &text, &e), ERR_INVALID);
    assert_int_equal(render(c, "[]", NULL, true, &text, &e), ERR_INVALID);
    chat_close(c);
}

// Spans end where the text is cut.
static void test_continue_spans(void **state)
{
    (void)state;
    struct chat *c = open_style("chatml");
    struct prompt p = {.messages = parse("[{\"role\":\"assistant\",\"content\":\"ab\"}]"),
                       .continue_final_message = true};
    struct rendered r;
    err e = {0};
    assert_int_equal(chat_render(c, &p, NULL, NULL, 0, &r, &e), ERR_OK);
    assert_int_equal(r.nspans, 2);
    assert_true(r.spans[0].trusted && !r.spans[1].trusted);
    assert_int_equal(r.spans[1].len, 2);
    assert_int_equal(r.spans[0].len + 2, r.len);
    rendered_done(&r);
    json_decref(p.messages);
    chat_close(c);
}

static void test_reasoning(void **state)
{
    (void)state;
    struct chat *c =
        open_text("{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.content }};{% endfor %}");
    assert_prompt(c,
                  "[{\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"a\"},{\"role\":\"assistant\","
                  "\"thinking\":\"t\",\"reasoning_content\":null,\"content\":\"b\"},"
                  "{\"role\":\"assistant\",\"reasoning_content\":\"c\",\"content\":\"d\"}]",
                  "r|r|a;t|t|b;c|c|d;");
    chat_close(c);
}

static void test_bad_messages(void **state)
{
    (void)state;
    struct chat *c = open_style("chatml");
    assert_fails(c, "[5]", "messages[0]", "object");
    assert_fails(c, "[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"b\"}]", "messages[1]", "role");
    assert_fails(c, "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[5]}]", "messages[0].tool_calls[0]",
                 "function.name");
    assert_fails(c, "[{\"role\":\"user\"}]", "", "no attribute 'content'");
    chat_close(c);
}

// What a style's own template takes is passed as it came: the same prompt as without this layer.
static void test_untouched(void **state)
{
    (void)state;
    json_error_t je;
    json_t *f = json_load_file("tests/fixtures/templates/chats.json", 0, &je), *outputs, *chat;
    const char *name;
    size_t i;
    int same = 0;
    assert_non_null(f);
    json_object_foreach(json_object_get(f, "outputs"), name, outputs) {
        struct chat *c = open_style(name);
        json_array_foreach(json_object_get(f, "inputs"), i, chat) {
            const json_t *want = json_array_get(outputs, i);
            struct prompt p = {.messages = json_object_get(chat, "messages"),
                               .tools = json_object_get(chat, "tools"),
                               .documents = json_object_get(chat, "documents"),
                               .kwargs = json_object_get(chat, "kwargs"),
                               .add_generation_prompt = json_is_true(json_object_get(chat, "add_generation_prompt"))};
            struct rendered r = {0};
            err e = {0};
            if (i > 6 || !json_is_string(want))  // 0..6: no tools, no parts, no developer
                continue;
            const char *first = json_string_value(json_object_get(json_array_get(p.messages, 0), "role"));
            if (!chat_traits(c)->text_content || (first && !strcmp(first, "system") && !chat_traits(c)->system))
                continue;
            if (chat_render(c, &p, "<s>", "</s>", json_integer_value(json_object_get(f, "now")), &r, &e))
                fail_msg("%s, chat %zu: %s", name, i, e.text);
            assert_string_equal(r.text, json_string_value(want));
            same++;
            rendered_done(&r);
        }
        chat_close(c);
    }
    assert_true(same > 150);
    json_decref(f);
}

// ---- where templates come from

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_chat_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "w");
    uint64_t n = sizeof header - 1;
    fwrite(&n, 8, 1, f);
    fwrite(header, 1, n, f);
    fwrite("\0\0\0", 4, 1, f);
    fclose(f);
    put("config.json", "{\"model_type\":\"x\"}");
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors",
                                        "config.json",
                                        "tokenizer_config.json",
                                        "chat_template.json",
                                        "chat_template.jinja",
                                        "additional_chat_templates/tool_use.jinja",
                                        "own.jinja",
                                        "m.gguf"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    rmdir(path);
    rmdir(folder);
    return 0;
}

static void assert_opens(const char *path, const char *override, const char *want, const char *want_tools)
{
    struct weights *w = NULL;
    struct chat *c = NULL;
    err e = {0};
    size_t len;
    if (weights_open(path, &w, &e) || chat_open(w, override, &c, &e))
        fail_msg("%s", e.text);
    assert_string_equal(chat_source(c, false, &len), want);
    assert_int_equal(len, strlen(want));
    assert_string_equal(chat_source(c, true, &len), want_tools);
    chat_close(c);
    weights_close(w);
}

static void test_sources(void **state)
{
    (void)state;
    struct weights *w = NULL;
    struct chat *c = NULL;
    err e = {0};
    char path[160];
    assert_int_equal(weights_open(folder, &w, &e), ERR_OK);
    assert_int_equal(chat_open(w, NULL, &c, &e), ERR_NOT_FOUND);
    assert_string_equal(e.param, "chat_template");
    assert_non_null(strstr(e.text, "chatml"));
    assert_int_equal(chat_open(w, "chatml", &c, &e), ERR_OK);
    assert_prompt(c, "[{\"role\":\"user\",\"content\":\"q\"}]",
                  "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
    chat_close(c);
    assert_int_equal(chat_open(w, "/nowhere/x.jinja", &c, &e), ERR_NOT_FOUND);
    weights_close(w);
    put("tokenizer_config.json", "{\"chat_template\":\"T\"}");
    assert_opens(folder, NULL, "T", "T");
    put("tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"U\"},{\"name\":\"default\",\"template\":\"D\"}]}");
    assert_opens(folder, NULL, "D", "U");
    put("tokenizer_config.json", "{\"chat_template\":{\"default\":\"D\",\"tool_use\":\"U\"}}");
    assert_opens(folder, NULL, "D", "U");
    put("chat_template.json", "{\"chat_template\":\"J\"}");
    put("tokenizer_config.json", "{\"chat_template\":\"T\"}");
    assert_opens(folder, NULL, "J", "J");
    put("chat_template.jinja", "F");
    assert_opens(folder, NULL, "F", "F");
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    mkdir(path, 0700);
    put("additional_chat_templates/tool_use.jinja", "FU");
    assert_opens(folder, NULL, "F", "FU");
    put("own.jinja", "O");
    snprintf(path, sizeof path, "%s/own.jinja", folder);
    assert_opens(folder, path, "O", "O");
    put("own.jinja", "{{ broken");
    assert_int_equal(weights_open(folder, &w, &e), ERR_OK);
    assert_int_equal(chat_open(w, path, &c, &e), ERR_INVALID);
    weights_close(w);
}

static void test_gguf(void **state)
{
    (void)state;
    char path[160];
    struct buf b;
    buf_init(&b, 1 << 16);
    gguf_header(&b, 3, 1, 3);
    gguf_key_text(&b, "general.architecture", "x");
    gguf_key_text(&b, "tokenizer.chat_template", "G");
    gguf_key_text(&b, "tokenizer.chat_template.tool_use", "GU");
    gguf_info(&b, "x", 1, (uint64_t[]){4}, 0, 0);
    gguf_pad(&b, 32);
    buf_add(&b, "0123456789abcdef", 16);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    FILE *f = fopen(path, "w");
    fwrite(b.data, 1, b.len, f);
    fclose(f);
    buf_done(&b);
    assert_opens(path, NULL, "G", "GU");
}

// The template for tools serves requests with tools only.
static void test_tool_template(void **state)
{
    (void)state;
    struct chat *c = NULL;
    err e = {0};
    assert_int_equal(chat_open_source("plain", 5, "tools:{{ tools|length }}", 24, &c, &e), ERR_OK);
    char *a = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", NULL),
         *b = prompt_of(c, "[{\"role\":\"user\",\"content\":\"q\"}]", TOOLS);
    assert_string_equal(a, "plain");
    assert_string_equal(b, "tools:1");
    free(a);
    free(b);
    chat_close(c);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_system),
        cmocka_unit_test(test_tool_turn_in_alternation),
        cmocka_unit_test(test_developer),
        cmocka_unit_test(test_late_system),
        cmocka_unit_test(test_no_tools),
        cmocka_unit_test(test_result_order),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_call_shapes),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_continue_spans),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test_setup_teardown(test_sources, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_gguf, make_folder, drop_folder),
        cmocka_unit_test(test_tool_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
