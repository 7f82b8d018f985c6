// Schemas: what is written parses, has no name twice and satisfies the schema (told by schema_check, which the walk does not
// use; tests/api/test_structured has a second validator); what is not enforced is refused by its keyword; tables of texts
// that are and are not allowed; schemas that mean the same have the same masks.
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
#include "base/cancel.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/jsontext.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/token_trie.h"

enum { SAMPLES = 20, MOST = 3000, VOCAB = 276 };

static struct token_trie *trie;
static json_t *fixture;

static const char *token(const void *ud, int32_t id, size_t *ret_len)
{
    static char bytes[256];
    static const char *const longer[] = {"\",\"", "\":", "\": \"", "{\"", "\"}", "true", "null", "[{\"", "ab", "  ", "\n ", "12",
                                         "0.", "\xC3\xA9", "\xC3", "e\"", "a\",\"b", "}}", "],", ", \""};
    (void)ud;
    if (id >= 256) {
        *ret_len = strlen(longer[id - 256]);
        return longer[id - 256];
    }
    bytes[id] = (char)id;
    *ret_len = 1;
    return &bytes[id];
}

static int open_fixture(void **state)
{
    (void)state;
    trie = token_trie_new(token, NULL, VOCAB);
    fixture = json_load_file("tests/fixtures/grammar/schemas.json", 0, NULL);
    return !fixture;
}

static int close_fixture(void **state)
{
    (void)state;
    token_trie_free(trie);
    json_decref(fixture);
    return 0;
}

static err_code compile(const char *schema, size_t len, struct grammar **ret, err *e)
{
    struct grammar_request r = {.kind = GRAMMAR_JSON_SCHEMA, .text = schema, .len = len, .field = "response_format"};
    return grammar_compile(&r, trie, ret, e);
}

static struct grammar *must_compile(const json_t *schema)
{
    struct buf b;
    struct grammar *g;
    err e = {0};
    buf_init(&b, SIZE_MAX);
    jsontext_value(schema, &b);
    if (compile(b.data, b.len, &g, &e))
        fail_msg("%s: %s", b.data, e.text);
    buf_done(&b);
    return g;
}

// A token of those allowed; with `close`, one that brings the end nearer if it can.
static int32_t choose(const uint64_t *mask, uint32_t n, uint64_t r, bool close)
{
    for (const char *p = "\"}],:0tnf"; close && *p; p++)
        if (token_trie_get(mask, *p) && rng_mix(r + (uint64_t)*p) % 100 < 60)
            return *p;
    uint32_t k = (uint32_t)(r % n);
    for (int32_t id = 0;; id++)
        if (token_trie_get(mask, id) && k-- == 0)
            return id;
}

// A random answer; false: it was not finished in time.
static bool sample(struct grammar *g, uint64_t seed, struct buf *text)
{
    struct grammar_state *s = grammar_begin(g);
    bool done = false;
    for (uint64_t i = 0; i < MOST && !done; i++) {
        uint32_t n;
        const uint64_t *mask = grammar_mask(s, &n);
        uint64_t r = rng_u64(seed, i, 0);
        assert_false(grammar_broken(s));
        assert_true(n > 0 || grammar_ends(s));
        done = grammar_ends(s) && (n == 0 || seed % 3 == 0 || (r >> 50) % 8 == 0);
        if (done)
            break;
        int32_t id = choose(mask, n, r, seed % 3 == 0 || i > MOST / 2);
        size_t len;
        const char *p = token(NULL, id, &len);
        buf_add(text, p, len);
        assert_true(grammar_take(s, id));
    }
    grammar_free(s);
    return done;
}

// Whether a grammar of this one value, beside the schema, can write anything: schema_check decides over the values of enum.
static bool satisfies(const json_t *schema, const json_t *value)
{
    json_t *both = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    struct buf b;
    struct grammar *g = NULL;
    err e = {0};
    if (json_object_get(both, "const") || json_object_get(both, "enum"))
        json_object_set_new(both, "allOf", json_pack("[{s:O}]", "const", value));
    else
        json_object_set(both, "const", (json_t *)value);
    buf_init(&b, SIZE_MAX);
    jsontext_value(both, &b);
    // Values nested deeper than schema_check looks say nothing.
    bool ok = compile(b.data, b.len, &g, &e) == ERR_OK || strstr(e.text, "too long to compile");
    if (!ok)
        print_message("%s: %s\n", b.data, e.text);
    grammar_drop(g);
    buf_done(&b);
    json_decref(both);
    return ok;
}

static bool hides_siblings(const json_t *schema)
{
    return json_object_get(schema, "$schema") && json_object_get(schema, "$ref");
}

static void test_samples(void **state)
{
    (void)state;
    const char *kind;
    json_t *list, *schema;
    size_t i, finished = 0, schemas = 0;
    json_object_foreach(json_object_get(fixture, "kinds"), kind, list) {
        json_array_foreach(list, i, schema) {
            struct grammar *g = must_compile(schema);
            schemas++;
            for (uint64_t k = 0; k < SAMPLES; k++) {
                struct buf text;
                json_error_t je;
                buf_init(&text, SIZE_MAX);
                if (sample(g, 1000 * i + k, &text)) {
                    json_t *v = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &je);
                    if (!v)
                        fail_msg("%s %zu: %s: %s", kind, i, je.text, text.data);
                    if (k < 4 && !hides_siblings(schema) && !satisfies(schema, v))
                        fail_msg("%s %zu: %s", kind, i, text.data);
                    json_decref(v);
                    finished++;
                }
                buf_done(&text);
            }
            grammar_drop(g);
        }
    }
    assert_true(schemas >= 150 && json_object_size(json_object_get(fixture, "kinds")) == 15);
    assert_true(finished >= schemas * SAMPLES * 9 / 10);  // seen: all
}

static void test_refused(void **state)
{
    (void)state;
    json_t *list = json_object_get(fixture, "refused"), *pair;
    size_t i;
    json_array_foreach(list, i, pair) {
        const char *keyword = json_string_value(json_array_get(pair, 0));
        struct buf b;
        struct grammar *g;
        err e = {0};
        char quoted[80];
        buf_init(&b, SIZE_MAX);
        jsontext_value(json_array_get(pair, 1), &b);
        double start = clock_s();
        if (compile(b.data, b.len, &g, &e) != ERR_INVALID)
            fail_msg("not refused: %s", b.data);
        assert_true(clock_s() - start < 60);  // bounded; seen: 0.1 s
        snprintf(quoted, sizeof quoted, "'%s'", keyword);
        if (*keyword && !strstr(e.text, quoted))
            fail_msg("%s does not name %s", e.text, quoted);
        assert_string_equal(e.param, "response_format");
        buf_done(&b);
    }
}

static const struct {
    const char *schema, *text;
    bool allowed;
} texts[] = {
    // Issues of other servers.
    {"{\"type\":\"object\",\"required\":[\"a\"]}", "{}", false},
    {"{\"type\":\"object\",\"required\":[\"a\"]}", "{\"a\":1}", true},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"abc\"", true},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"ac\"", false},
    {"{\"type\":\"array\",\"maxItems\":0}", "[]", true},
    {"{\"type\":\"array\",\"maxItems\":0}", "[1]", false},
    {"{\"minimum\":5}", "\"text\"", true},
    {"{\"minimum\":5}", "4", false},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}}}", "3", true},
    {"{\"type\":\"integer\",\"minimum\":2}", "1", false},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.00", false},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0}", "0.10", true},
    {"{\"type\":\"string\",\"maxLength\":1}", "\"\xF0\x9F\x98\x80\"", true},
    {"{\"type\":\"string\",\"maxLength\":1}", "\"\\n\"", true},
    {"{\"type\":\"string\",\"maxLength\":1}", "\"ab\"", false},
    {"{\"type\":\"string\"}", "\"a\tb\"", false},
    {"{\"type\":\"string\"}", "\"\\ud800\"", false},
    {"{\"type\":\"string\"}", "\"\xED\xA0\x80\"", false},
    {"{\"type\":\"string\"}", "\"\xC0\x80\"", false},
    {"{\"type\":\"object\",\"additionalProperties\":true}", "{\"a\xED\xA0\x80\":1}", false},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1,\"a\":2}", false},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"a\":1,\"ab\":2,\"\":3}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":true}", "{\"\\u0061\":1}", false},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"maxLength\":1}", "\"ab\"", false},
    {"{\"$defs\":{\"s\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/s\",\"maxLength\":1}", "\"ab\"", false},
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}}}",
     "{\"a\":1,\"c\":2}", true},
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}}}",
     "{\"a\":1,\"b\":2}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]},\"b\":{\"enum\":[2]}}}", "{\"b\":2}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]},\"b\":{\"enum\":[2]}}}", "{\"a\":1,}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]}}}", "{\n  \"a\": 1\n}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]}}}", "{\n\n\"a\":1}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]}}}", " {\"a\":1}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]}}}", "{\"a\":1} ", false},
    {"{\"const\":{\"a\":[1,\"x\"]}}", "{\"a\":[1,\"x\"]}", true},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-30\"", false},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"", true},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2023-02-29\"", false},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "[1]", true},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "[1,1]", false},
    {"{\"type\":\"integer\"}", "-0", false},
    {"{\"type\":\"number\"}", "1.5e-3", true},
    {"{\"type\":\"number\"}", "01", false},
};

static bool allows(struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_begin(g);
    bool ok = true;
    for (; *text && ok; text++)
        ok = grammar_take(s, (unsigned char)*text);
    ok = ok && grammar_ends(s);
    grammar_free(s);
    return ok;
}

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct grammar *g;
        err e = {0};
        if (compile(texts[i].schema, strlen(texts[i].schema), &g, &e))
            fail_msg("%s: %s", texts[i].schema, e.text);
        if (allows(g, texts[i].text) != texts[i].allowed)
            fail_msg("%s: %s", texts[i].schema, texts[i].text);
        grammar_drop(g);
    }
}

// Walks two grammars side by side: the same masks all along.
static void same_masks(struct grammar *a, struct grammar *b, uint64_t seed)
{
    struct grammar_state *x = grammar_begin(a), *y = grammar_begin(b);
    for (uint64_t i = 0; i < 60; i++) {
        uint32_t nx, ny;
        uint64_t mask[VOCAB / 64 + 1];
        memcpy(mask, grammar_mask(x, &nx), trie->words * sizeof *mask);
        assert_memory_equal(mask, grammar_mask(y, &ny), trie->words * sizeof *mask);
        assert_int_equal(nx, ny);
        assert_int_equal(grammar_ends(x), grammar_ends(y));
        if (nx == 0)
            break;
        int32_t id = choose(mask, nx, rng_u64(seed, i, 5), i % 2);
        assert_true(grammar_take(x, id) && grammar_take(y, id));
    }
    grammar_free(x);
    grammar_free(y);
}

static bool refers(const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    bool found = strstr(text, "$") != NULL;  // pointers would lead elsewhere
    free(text);
    return found;
}

static void test_equal_schemas(void **state)
{
    (void)state;
    const char *kind;
    json_t *list, *schema;
    size_t i;
    json_object_foreach(json_object_get(fixture, "kinds"), kind, list) {
        json_array_foreach(list, i, schema) {
            if (refers(schema))
                continue;
            json_t *forms[] = {json_pack("{s:[O]}", "allOf", schema), json_pack("{s:[O,b]}", "allOf", schema, 1),
                               json_pack("{s:{s:O},s:s,s:s}", "$defs", "x", schema, "$ref", "#/$defs/x", "title", "t")};
            struct grammar *g = must_compile(schema);
            for (size_t k = 0; k < 3; k++) {
                struct grammar *other = must_compile(forms[k]);
                same_masks(g, other, 10 * i + k);
                grammar_drop(other);
                json_decref(forms[k]);
            }
            grammar_drop(g);
        }
    }
}

// ---- what compiling may cost

static err_code add_schema(struct nodes *g, const char *text, err *e)
{
    json_t *schema = json_loads(text, 0, NULL);
    uint32_t root;
    assert_non_null(schema);
    err_code code = schema_compile(schema, g, &root, e);
    json_decref(schema);
    return code;
}

// {"enum": [0.5, 1.5 ...]}: its values are not compared with each other.
static void test_long_enums(void **state)
{
    (void)state;
    struct buf b;
    struct nodes g;
    err e = {0};
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, "{\"enum\":[");
    for (int i = 0; i < 5000; i++)
        buf_printf(&b, "%s%d.5", i ? "," : "", i);
    buf_add_str(&b, "]}");
    nodes_init(&g, NODES_JSON_DEPTH);
    assert_int_equal(add_schema(&g, b.data, &e), ERR_OK);
    assert_true(NODES_WORK - g.work < 1000000);  // seen: 0
    nodes_done(&g);
    buf_done(&b);
}

#define STATES_4096 "{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){11}$\"}"

// What many schemas of one grammar cost is one sum.
static void test_costs_add_up(void **state)
{
    (void)state;
    struct nodes g;
    err e = {0};
    int n = 0;
    nodes_init(&g, NODES_JSON_DEPTH);
    g.work /= 4;
    while (n < 1000 && !add_schema(&g, STATES_4096, &e))
        n++;
    assert_in_range(n, 2, 50);  // seen: 8
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    nodes_done(&g);
}

static bool gone(const struct cancel *c)
{
    (void)c;
    return true;
}

static void test_nobody_waits(void **state)
{
    (void)state;
    struct nodes g;
    struct cancel c = {gone};
    err e = {0};
    nodes_init(&g, NODES_JSON_DEPTH);
    const struct cancel *before = cancel_watch(&c);
    assert_int_not_equal(add_schema(&g, STATES_4096, &e), ERR_OK);
    cancel_watch(before);
    assert_int_equal(add_schema(&g, STATES_4096, &e), ERR_OK);
    nodes_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_equal_schemas),
        cmocka_unit_test(test_long_enums),
        cmocka_unit_test(test_costs_add_up),
        cmocka_unit_test(test_nobody_waits),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
