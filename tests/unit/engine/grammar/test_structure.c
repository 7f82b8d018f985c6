// Structural tags: which texts they accept, written in single bytes and with marked tokens; where an answer may end; what is
// refused, and how the error is told.
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
#include "base/mem.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/structure.h"
#include "engine/grammar/token_trie.h"
#include "engine/text/answer_int.h"

// All bytes, and the tokens that a vocabulary marks. In a text of a test '^' stands for the mark.
static const char *const marked[] = {"\xFF<tool_call>", "\xFF</tool_call>", "\xFF</think>", "\xFF<|\"|>", "\xFF<|im_start|>"};
enum { NMARKED = sizeof marked / sizeof *marked, VOCAB = 256 + NMARKED };

static const char *token(const void *ud, int32_t id, size_t *ret_len)
{
    static char bytes[256];
    (void)ud;
    if (id < 256) {
        bytes[id] = (char)id;
        *ret_len = id != TOKEN_TRIE_MARK;
        return &bytes[id];
    }
    *ret_len = strlen(marked[id - 256]);
    return marked[id - 256];
}

static struct grammar *compile(const char *text)
{
    static struct token_trie *trie;
    struct grammar_request r = {.kind = GRAMMAR_STRUCTURE, .text = text, .len = strlen(text), .field = "response_format"};
    struct grammar *g = NULL;
    err e = {0};
    if (!trie)
        trie = token_trie_new(token, NULL, VOCAB);
    if (grammar_compile(&r, trie, &g, &e))
        fail_msg("%s: %s", text, e.text);
    return g;
}

static bool take(struct grammar_state *s, const char **p)
{
    if (**p != '^')
        return grammar_take(s, (unsigned char)*(*p)++);
    for (int i = 0; i < NMARKED; i++) {
        size_t n = strlen(marked[i]) - 1;
        if (strncmp(*p + 1, marked[i] + 1, n))
            continue;
        *p += n + 1;
        return grammar_take(s, 256 + i);
    }
    fail_msg("no marked token at %s", *p);
    return false;
}

// 'x': not allowed somewhere; '.': allowed, and not at its end; 'e': it may end there; 'E': it must.
static char verdict(struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_begin(g);
    bool ok = true;
    for (const char *p = text; *p && ok;)
        ok = take(s, &p);
    char c = !ok ? 'x' : !grammar_ends(s) ? '.' : grammar_goes_on(s) ? 'e' : 'E';
    grammar_free(s);
    return c;
}

struct sample {
    char verdict;
    const char *text;
};

static void check(const char *structure, const struct sample *list, size_t n)
{
    struct grammar *g = compile(structure);
    for (size_t i = 0; i < n; i++)
        if (verdict(g, list[i].text) != list[i].verdict)
            fail_msg("%s\n%s: %c, expected %c", structure, list[i].text, verdict(g, list[i].text), list[i].verdict);
    grammar_drop(g);
}
#define CHECK(structure, ...)                                                                   \
    do {                                                                                        \
        static const struct sample samples[] = {__VA_ARGS__};                                   \
        check("{\"type\":\"structural_tag\",\"format\":" structure "}", samples, sizeof samples / sizeof *samples); \
    } while (0)

#define INTEGER "{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\",\"maximum\":99,\"minimum\":0}}"
#define TEXT(t) "{\"type\":\"const_string\",\"value\":\"" t "\"}"
#define TAG(begin, content, end) "{\"type\":\"tag\",\"begin\":\"" begin "\",\"content\":" content ",\"end\":\"" end "\"}"

static void test_given_texts(void **state)
{
    (void)state;
    CHECK(TEXT("\\n</think>\\n\\n"), {'.', ""}, {'.', "\n</think>\n"}, {'E', "\n</think>\n\n"}, {'E', "\n^</think>\n\n"},
          {'x', "^</think>\n\n"}, {'x', "\n^</tool_call>"}, {'x', "\n\n"});
    CHECK("{\"type\":\"sequence\",\"elements\":[" TEXT("a") "," INTEGER "," TEXT("b") "]}", {'.', "a"}, {'.', "a1"}, {'E', "a12b"},
          {'E', "a1b"}, {'x', "a01"}, {'x', "ab"}, {'x', "a1bb"});
    CHECK("{\"type\":\"or\",\"elements\":[" TEXT("ab") "," TEXT("abc") "]}", {'e', "ab"}, {'E', "abc"}, {'x', "b"});
    CHECK(TEXT(""), {'E', ""}, {'x', "a"});
}

static void test_free_text(void **state)
{
    (void)state;
    CHECK("{\"type\":\"any_text\"}", {'e', ""}, {'e', "anything {\n"}, {'e', "^<tool_call>x^</think>"}, {'.', "\xC3"},
          {'e', "\xC3\xA9\xF0\x9F\x98\x80"}, {'x', "\xC3x"}, {'x', "\xC0\x80"}, {'x', "\xA9"}, {'x', "\xED\xA0\x80"});
    CHECK("{\"type\":\"any_text\",\"excludes\":[\"<tool_call>\",\"ab\"]}", {'e', "a"}, {'x', "ab"}, {'e', "aa"}, {'x', "aaab"},
          {'e', "<tool_call"}, {'x', "<tool_call>"}, {'x', "^<tool_call>"}, {'e', "^<|im_start|>"});
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"}," TEXT("</think>") "," INTEGER "]}", {'.', ""},
          {'.', "hm <<</thin <"}, {'.', "x</think>"}, {'e', "x</think>1"}, {'E', "x</think>12"}, {'x', "x</think></think>"},
          {'e', "x^</think>1"}, {'e', "<</think>7"}, {'e', "^<tool_call></think>7"}, {'x', "x</think>x"});
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"},{\"type\":\"or\",\"elements\":[" TEXT("ab") "," TEXT("abc")
          "," TEXT("d") "]}," TEXT("!") "]}", {'E', "xab!"}, {'E', "xabc!"}, {'E', "d!"}, {'x', "d?"}, {'.', "a"}, {'.', "ad"});
    // A text that begins like itself: the first place where it can be read.
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"}," TEXT("aab") "," TEXT("!") "]}", {'E', "aaab!"},
          {'x', "aaab?"}, {'E', "abaab!"});
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"}," TEXT("\xC3\xA9") "]}", {'E', "x\xC3\xA9"},
          {'.', "\xC3\xA8\xC3"}, {'E', "\xC3\xA8\xC3\xA9"}, {'.', "\xE3\x83\xA9"});
}

static void test_triggered_tags(void **state)
{
    (void)state;
#define TWO "\"triggers\":[\"<f\"],\"tags\":[" TAG("<f=a>", INTEGER, "</f>") "," TAG("<f=bc>", TEXT("x"), "</f>") "]"
    CHECK("{\"type\":\"triggered_tags\"," TWO "}", {'e', ""}, {'e', "hello <"}, {'.', "hello <f"}, {'x', "<f>"}, {'.', "<f=a>1"},
          {'e', "<f=a>12</f>"}, {'e', "a<f=a>12</f>b<f=bc>x</f>c"}, {'x', "<f=bc>1"}, {'x', "<f=a></f>"});
    CHECK("{\"type\":\"triggered_tags\",\"at_least_one\":true," TWO "}", {'.', ""}, {'.', "hm"}, {'e', "hm<f=a>1</f>"},
          {'e', "<f=a>1</f>x"}, {'e', "<f=a>1</f><f=a>2</f>"});
    CHECK("{\"type\":\"triggered_tags\",\"at_least_one\":true,\"stop_after_first\":true," TWO "}", {'.', "x"}, {'E', "<f=a>1</f>"});
    CHECK("{\"type\":\"triggered_tags\",\"stop_after_first\":true," TWO "}", {'e', "x"}, {'E', "<f=a>1</f>"});
    CHECK("{\"type\":\"triggered_tags\",\"excludes\":[\"!\"]," TWO "}", {'x', "a!"}, {'e', "a"});
    CHECK("{\"type\":\"tag\",\"begin\":\"(\",\"content\":{\"type\":\"triggered_tags\",\"at_least_one\":true," TWO "},\"end\":\")\"}",
          {'x', "x"}, {'.', "("}, {'x', "()"}, {'E', "(a<f=a>1</f>b)"}, {'x', "(a<f=a>1</f>b)c"});
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"}," TEXT("</think>")
          ",{\"type\":\"triggered_tags\",\"triggers\":[\"<tool_call>\"],\"tags\":[" TAG("<tool_call>\\n", INTEGER, "\\n</tool_call>")
          "]}]}", {'.', "<tool_call>"}, {'e', "x</think>"}, {'e', "^</think>y ^<tool_call>\n1\n^</tool_call>"},
          {'x', "^</think>^<tool_call>1"}, {'e', "</think><tool_call>\n12\n</tool_call>^<tool_call>\n3\n^</tool_call>\n"});
    // One trigger is the beginning of another.
    CHECK("{\"type\":\"triggered_tags\",\"triggers\":[\"<f\",\"<fg\"],\"tags\":[" TAG("<f>", TEXT("x"), "") "," TAG("<fg>", TEXT("y"), "")
          "]}", {'e', "<f>x"}, {'e', "<fg>y"}, {'x', "<fg>x"}, {'e', "<f>x<fg>y."});
}

static void test_other_forms(void **state)
{
    (void)state;
    CHECK("{\"type\":\"tags_with_separator\",\"separator\":\", \",\"tags\":[" TAG("f(", INTEGER, ")") "]}", {'e', ""}, {'e', "f(1)"},
          {'.', "f(1), "}, {'e', "f(1), f(2)"}, {'x', "f(1)f"}, {'x', "x"});
    CHECK("{\"type\":\"tag\",\"begin\":\"[\",\"end\":[\"]\",\";\"],\"content\":{\"type\":\"tags_with_separator\",\"separator\":\"\","
          "\"at_least_one\":true,\"tags\":[" TAG("f(", INTEGER, ")") "," TAG("g", TEXT("!"), "") "]}}", {'.', "["}, {'x', "[]"},
          {'E', "[f(1)]"}, {'E', "[g!g!f(2);"}, {'x', "[g!g]"});
    CHECK("{\"type\":\"tags_with_separator\",\"separator\":\",\",\"at_least_one\":true,\"stop_after_first\":true,\"tags\":["
          TAG("f(", INTEGER, ")") "]}", {'.', ""}, {'E', "f(1)"});
    CHECK("{\"type\":\"sequence\",\"elements\":[{\"type\":\"optional\",\"content\":" TAG("<t>", "{\"type\":\"any_text\"}", "</t>")
          "},{\"type\":\"star\",\"content\":" TEXT("ab") "},{\"type\":\"plus\",\"content\":{\"type\":\"regex\",\"pattern\":\"c+d?\"}}]}",
          {'.', ""}, {'e', "<t>x</t>c"}, {'e', "ababccdc"}, {'x', "ad"}, {'x', "abd"});
    CHECK("{\"type\":\"tag\",\"begin\":\"<\",\"end\":\">\",\"content\":{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"a\\\" root | \\\"b\\\"\"}}",
          {'E', "<aab>"}, {'x', "<>"});
}

// The same members in each style. SCHEMA: a text, a number, and more that may be left out.
#define STYLE(style, schema) "{\"type\":\"json_schema\",\"style\":\"" style "\",\"json_schema\":" schema "}"
#define ARGUMENTS                                                                                                       \
    "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\",\"maximum\":9,\"minimum\":0}," \
    "\"o\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"enum\":[\"x\",true,null]},\"maxItems\":2}," \
    "\"b\":{\"type\":\"string\",\"maxLength\":3}}},\"e\":{\"anyOf\":[{\"enum\":[\"p\",\"q\"]},{\"type\":\"null\"}]}},\"required\":[\"n\"]}"

static void test_xml_parameters(void **state)
{
    (void)state;
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
    CHECK(TAG("<f>\\n", STYLE("xml_parameter", ARGUMENTS), "</f>"), {'E', "<f>\n" P("n", "7") "</f>"}, {'x', "<f>\n</f>"},
          {'E', "<f>\n" P("s", "a\"\n</param {<") P("n", "7") "</f>"}, {'E', "<f>\n" P("s", "") P("n", "0") "</f>"},
          {'x', "<f>\n" P("n", "7") P("s", "x")}, {'x', "<f>\n" P("n", "10")}, {'x', "<f>\n<parameter=s>\nx^</tool_call>"},
          {'E', "<f>\n" P("n", "7") P("o", "{\"a\":[true,\"x\"],\"b\":\"abc\"}") "</f>"}, {'E', "<f>\n" P("n", "7") P("e", "p") "</f>"},
          {'E', "<f>\n" P("n", "7") P("e", "null") "</f>"}, {'x', "<f>\n" P("n", "7") P("e", "r")});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":4},\"z\":"
                                 "{\"type\":[\"string\",\"null\"]},\"m\":{\"type\":[\"string\",\"integer\"]}}}"), {'e', ""},
          {'x', P("s", "a")}, {'e', P("s", "ab")}, {'x', P("s", "abcde")}, {'x', P("s", "a\n</parameter>\n")}, {'e', P("z", "null")},
          {'E', P("z", "nul") P("m", "\"x\"")}, {'x', P("m", "x")}, {'E', P("m", "12")});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\"}"), {'e', ""}, {'e', P("any", "[1]") P("x", "\"y\"")}, {'x', P("any", "y")});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\",\"properties\":{}}"), {'E', ""});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":{\"type\":\"string\"}}"),
          {'e', P("a", "1") P("b", "x") P("c", "y")}, {'x', P("a", "x")}, {'e', P("ab", "x")});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\",\"required\":[\"s\"],\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":5000}}}"),
          {'.', ""}, {'E', P("s", "abc")}, {'x', P("s", "ab")}, {'E', P("s", "\n</")}, {'E', P("s", "\xC3\xA9xx")}, {'x', P("s", "\xC3\xA9x")});
    CHECK(STYLE("xml_parameter", "{\"type\":\"object\",\"required\":[\"s\"],\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":5,\"maxLength\":5}}}"),
          {'E', P("s", "abcde")}, {'E', P("s", "abcd\n")}, {'E', P("s", "abc\n<")}, {'x', P("s", "abc\n</")}, {'x', "<parameter=s>\nabcdef"},
          {'x', "<parameter=s>\nabc\n</"}, {'x', "<parameter=s>\nabcde\xC3"}, {'.', "<parameter=s>\nabcde\n"}, {'x', "<parameter=s>\nabcde\n\n"});
#undef P
}

static void test_other_styles(void **state)
{
    (void)state;
#define P(name, value) "<arg_key>" name "</arg_key>\n<arg_value>" value "</arg_value>\n"
    CHECK(STYLE("arg_key", ARGUMENTS), {'e', P("n", "7")}, {'e', P("s", "a < b\n") P("n", "7")}, {'E', P("n", "1") P("e", "q")});
#undef P
    CHECK(STYLE("gemma", ARGUMENTS), {'E', "{n:7}"}, {'x', "{}"}, {'E', "{s:<|\"|>it's {1}<|\"|>,n:7}"}, {'E', "{s:^<|\"|>x^<|\"|>,n:7}"},
          {'E', "{n:1,o:{a:[<|\"|>x<|\"|>,true],b:<|\"|>ab<|\"|>},e:null}"}, {'E', "{n:1,o:{},e:<|\"|>p<|\"|>}"}, {'x', "{n:1,s"},
          {'x', "{n:1,o:{a:[true,null,true"}, {'x', "{n:1,o:{b:<|\"|>abcd"}, {'x', "{s:<|\"|>^<tool_call>"}, {'E', "{n:1,o:{a:[]}}"});
    CHECK("{\"type\":\"json_schema\",\"style\":\"gemma\",\"quote\":\"<escape>\",\"json_schema\":" ARGUMENTS "}",
          {'E', "{s:<escape>x<escape>,n:7}"}, {'x', "{s:<|"});
    CHECK(STYLE("gemma", "{\"type\":\"object\",\"properties\":{\"t\":{\"$ref\":\"#\"},\"m\":{\"type\":\"object\",\"additionalProperties\":"
                         "{\"type\":\"integer\"}}}}"), {'E', "{}"}, {'E', "{t:{t:{},m:{a:1,b:2}}}"}, {'x', "{m:{a:t"});
    CHECK(STYLE("python", ARGUMENTS), {'e', "n=7"}, {'x', "s=\"a\\n\"n"}, {'e', "s=\"a\\n\", n=7"}, {'x', "s='"},
          {'e', "n=7, o={\"a\": [True, None], \"b\": \"\"}"}, {'x', "n=7, o={\"a\": [t"},
          {'E', "n=1, e=None"}, {'E', "n=1, e=\"q\""});
    CHECK(STYLE("python", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"minItems\":1,\"prefixItems\":[{\"type\":\"boolean\"},"
                          "{\"const\":1}],\"items\":{\"type\":\"null\"},\"maxItems\":4}}}"), {'E', "a=[True]"}, {'E', "a=[False, 1]"},
          {'x', "a=[]"}, {'E', "a=[True, 1, None, None]"}, {'x', "a=[True, 1, None, None,"}, {'x', "a=[True, None"});
}

static void test_forms(void **state)
{
    (void)state;
    json_t *schema = json_loads("{\"$defs\":{\"t\":{\"enum\":[\"a\"]}},\"properties\":{\"s\":{\"type\":\"string\",\"format\":\"date\"},\"n\":{\"type\":"
                                "[\"string\",\"null\"]},\"r\":{\"$ref\":\"#/$defs/t\"},\"a\":{\"allOf\":[{\"type\":\"string\"},{\"maxLength\":3}]},"
                                "\"i\":{\"type\":[\"string\",\"integer\"]},\"u\":{},\"bad\":{\"$ref\":\"#/x\"}}}", 0, NULL);
    assert_int_equal(schema_form_of(schema, "s"), SCHEMA_FORM_TEXT);
    assert_int_equal(schema_form_of(schema, "n"), SCHEMA_FORM_TEXT_OR_NULL);
    assert_int_equal(schema_form_of(schema, "r"), SCHEMA_FORM_TEXT);
    assert_int_equal(schema_form_of(schema, "a"), SCHEMA_FORM_TEXT);
    assert_int_equal(schema_form_of(schema, "i"), SCHEMA_FORM_JSON);
    assert_int_equal(schema_form_of(schema, "u"), SCHEMA_FORM_JSON);
    assert_int_equal(schema_form_of(schema, "bad"), SCHEMA_FORM_JSON);
    assert_int_equal(schema_form_of(schema, "none"), SCHEMA_FORM_JSON);
    json_decref(schema);
}

// Who reads a call takes for text what the grammar writes as text.
static void test_forms_are_read_alike(void **state)
{
    (void)state;
    json_t *schema = json_loads(
        "{\"$defs\":{\"t\":{\"enum\":[\"a\"]},\"a/b\":{\"const\":\"7\"},\"n\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}},"
        "\"properties\":{\"s\":{\"type\":\"string\"},\"e\":{\"type\":[\"string\",\"integer\"],\"enum\":[\"7\",\"b\"]},"
        "\"c\":{\"type\":[\"string\",\"null\"],\"const\":\"null\"},\"r\":{\"$ref\":\"#/$defs/t\"},\"p\":{\"$ref\":\"#/$defs/a~1b\"},"
        "\"i\":{\"$ref\":\"#/$defs/n/anyOf/0\"},\"j\":{\"$ref\":\"#/$defs/n/anyOf/1\"},\"n\":{\"$ref\":\"#/$defs/n\"},"
        "\"a\":{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":\"string\"}]},\"b\":{\"allOf\":[{\"type\":[\"string\",\"integer\"]}]},"
        "\"o\":{\"type\":[\"string\",\"object\"],\"anyOf\":[{\"maxLength\":2},{\"type\":\"string\"}]},\"u\":{}}}", 0, NULL);
    const char *name;
    json_t *member;
    int texts = 0;
    assert_non_null(schema);
    json_object_foreach(json_object_get(schema, "properties"), name, member) {
        bool text = schema_form_of(schema, name) == SCHEMA_FORM_TEXT;
        texts += text;
        if (answer_value_text_only(member, schema) != text)
            fail_msg("%s: the grammar writes %s", name, text ? "text" : "JSON");
    }
    assert_int_equal(texts, 7);  // s e c r p i a
    json_decref(schema);
}

// References that lead to themselves, ten ways each.
static void test_forms_of_loops(void **state)
{
    (void)state;
    json_t *loop = json_loads("{\"anyOf\":[{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},"
                              "{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"},{\"$ref\":\"#/x\"}]}", 0, NULL);
    json_t *root = json_pack("{s:O}", "x", loop);
    assert_false(answer_value_text_only(loop, root));  // without a bound: 10^8 schemas
    json_decref(root);
    json_decref(loop);
}

static void test_long_sequences_fit(void **state)
{
    (void)state;
    char *text = mem_new(40000), *p = text + sprintf(text, "{\"format\":{\"type\":\"sequence\",\"elements\":[");
    for (int i = 0; i < 600; i++)
        p += sprintf(p, "%s" TEXT("%c"), i ? "," : "", 'a' + i % 26);
    strcpy(p, "]}}");
    struct grammar *g = compile(text);
    struct grammar_state *s = grammar_begin(g);
    for (int i = 0; i < 600; i++)
        assert_true(grammar_take(s, 'a' + i % 26));
    assert_true(grammar_ends(s));
    grammar_free(s);
    grammar_drop(g);
    free(text);
}

static void refused(const char *format, const char *param, const char *what)
{
    char text[1000];
    struct grammar *g = NULL;
    err e = {0};
    snprintf(text, sizeof text, "{\"type\":\"structural_tag\",\"format\":%s}", format);
    struct grammar_request r = {.kind = GRAMMAR_STRUCTURE, .text = text, .len = strlen(text), .field = "response_format"};
    struct token_trie *t = token_trie_new(token, NULL, VOCAB);
    assert_int_equal(grammar_compile(&r, t, &g, &e), ERR_INVALID);
    if (strcmp(e.param, param) || !strstr(e.text, what))
        fail_msg("%s: %s: %s", format, e.param, e.text);
    token_trie_free(t);
}

static void test_refused(void **state)
{
    (void)state;
    refused("{\"type\":\"const_string\"}", "response_format", "Invalid structural tag in 'response_format': 'value'");
    refused("{\"type\":\"nothing\"}", "response_format", "'nothing'");
    refused("[]", "response_format", "'type'");
    refused("null", "response_format", "'type'");
    refused("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"}," INTEGER "]}", "response_format", "followed by a text");
    refused("{\"type\":\"star\",\"content\":{\"type\":\"regex\",\"pattern\":\"a*\"}}", "response_format", "empty");
    refused("{\"type\":\"triggered_tags\",\"triggers\":[\"x\"],\"tags\":[" TAG("<f>", INTEGER, "") "]}", "response_format", "trigger");
    refused("{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\",\"excludes\":[\"b\"]}," TEXT("abc") "]}", "response_format",
            "cannot end");
    refused("{\"type\":\"tag\",\"begin\":\"<f>\",\"end\":\"\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"array\","
            "\"contains\":{}},\"field\":\"tools[1].function.parameters\",\"name\":\"f\"}}", "tools[1].function.parameters",
            "Invalid schema for function 'f': In context=(), 'contains' is not supported.");
    refused("{\"type\":\"regex\",\"pattern\":\"(\",\"field\":\"guided_regex\"}", "guided_regex",
            "Invalid regular expression in 'guided_regex': ");
    refused("{\"type\":\"json_schema\",\"json_schema\":{\"if\":1,\"then\":1},\"field\":\"response_format\",\"name\":\"n\"}", "response_format",
            "Invalid schema for response_format 'n': ");
    refused(STYLE("loud", "{}"), "response_format", "'loud'");
    refused(STYLE("xml_parameter", "{\"type\":\"array\"}"), "response_format", "'type'");
    refused(STYLE("gemma", "{\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}"), "response_format", "'uniqueItems'");
    refused(STYLE("python", "{\"properties\":{\"a\":{}},\"minProperties\":1}"), "response_format", "'minProperties'");
    refused(STYLE("python", "{\"properties\":{\"a b\":{}}}"), "response_format", "'a b'");
}

// So many that a stack for each would be too many.
static void test_many_choices(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"optional\",\"content\":"
                    "{\"type\":\"tag\",\"begin\":\"(\",\"content\":{\"type\":\"any_text\"},\"end\":\")\"}},"
                    "{\"type\":\"choice\",\"values\":[\"\"");
    for (int i = 0; i < 5000; i++)
        buf_printf(&b, ",\"val%04d\"", i);
    buf_add_str(&b, "]}]}}");
    struct grammar *g = compile(b.data);
    assert_int_equal(verdict(g, "val4999"), 'E');
    assert_int_equal(verdict(g, "(x)val0000"), 'E');
    assert_int_equal(verdict(g, "(x)"), 'e');
    assert_int_equal(verdict(g, "(x)val00"), '.');
    assert_int_equal(verdict(g, "val5000"), 'x');
    grammar_drop(g);
    buf_done(&b);
}

// Too many ways from the very beginning: nothing is allowed, and it says why.
static void test_too_many_ways(void **state)
{
    (void)state;
    struct buf b;
    uint32_t n = 1;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "{\"type\":\"structural_tag\",\"format\":{\"type\":\"or\",\"elements\":[");
    for (int i = 0; i < 4000; i++)
        buf_printf(&b, "%s{\"type\":\"const_string\",\"value\":\"val%d\"}", i ? "," : "", i);
    buf_add_str(&b, "]}}");
    struct grammar *g = compile(b.data);
    struct grammar_state *s = grammar_begin(g);
    assert_true(grammar_broken(s));
    uint64_t *mask = grammar_mask(s, &n);
    assert_int_equal(n, 0);
    for (int id = 0; id < VOCAB; id++)
        assert_false(mask[id / 64] >> id % 64 & 1);
    assert_false(grammar_take(s, 'v') || grammar_ends(s));
    grammar_free(s);
    grammar_drop(g);
    buf_done(&b);
}

// A mask that would take seconds is given up, and the answer with it: other answers wait meanwhile.
static void test_costly_mask(void **state)
{
    (void)state;
    struct nodes g;
    struct buf b;
    uint32_t root, n, most = 0;
    bool uncertain;
    err e = {0};
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "{\"format\":{\"type\":\"or\",\"elements\":[");
    for (int i = 0; i < 400; i++)
        buf_printf(&b, "%s{\"type\":\"regex\",\"pattern\":\"x+%d\"}", i ? "," : "", i);
    buf_add_str(&b, "]}}");
    nodes_init(&g, NODES_RULE_DEPTH);
    if (structure_compile(b.data, b.len, &g, &root, &e) || nodes_finish(&g, root, &e))
        fail_msg("%s", e.text);
    struct machine *m = machine_new(&g);
    machine_threads(m, &n);
    assert_int_equal(n, 400);
    machine_try(m);
    for (; !machine_broken(m) && most < 20000; most++) {
        n = machine_step(m, 0, 400, 'x', &uncertain);
        assert_true(n == 400 || machine_broken(m));
        machine_drop(m, 400);
    }
    assert_in_range(most, 1000, 10000);  // seen: 3077
    machine_tried(m);
    machine_free(m);
    nodes_done(&g);
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_texts),
        cmocka_unit_test(test_free_text),
        cmocka_unit_test(test_triggered_tags),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_xml_parameters),
        cmocka_unit_test(test_other_styles),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_forms_are_read_alike),
        cmocka_unit_test(test_forms_of_loops),
        cmocka_unit_test(test_long_sequences_fit),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_choices),
        cmocka_unit_test(test_too_many_ways),
        cmocka_unit_test(test_costly_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
