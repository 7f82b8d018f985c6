// Masks are what stepping says, token by token and state by state: over small random vocabularies with pieces of
// characters, duplicates, invalid bytes and tokens that run across many parts of a document, and marked ones;
// fresh and remembered.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/token_mask.h"

enum { MAX_TOKENS = 300, MAX_LEN = 12, STATES = 50 };

struct vocabulary {
    int n;
    size_t len[MAX_TOKENS];
    char text[MAX_TOKENS][MAX_LEN];
};

static const char *token(const void *ud, int32_t id, size_t *ret_len)
{
    const struct vocabulary *v = ud;
    *ret_len = v->len[id];
    return v->text[id];
}

static const struct {
    enum grammar_kind kind;
    const char *text;
} grammars[] = {
    {GRAMMAR_JSON_OBJECT, ""},
    {GRAMMAR_JSON_SCHEMA, "true"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":40}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":\"boolean\"},"
                          "\"b\":{\"enum\":[\"x\",\"xy\",1]}},\"required\":[\"ab\"]}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
                          "\"boolean\"},\"minProperties\":2,\"maxProperties\":5}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^[ab]{1,2}$\":{\"type\":\"integer\"}},"
                          "\"additionalProperties\":false,\"minProperties\":3}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"ab\",\"b\",\"c\"]},\"uniqueItems\":true,\"minItems\":2}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"uniqueItems\":true}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1,\"maxItems\":3,\"prefixItems\":[{\"type\":"
                          "[\"number\",\"null\"]}]}"},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"type\":"
                          "\"object\",\"properties\":{\"a\":{\"const\":12},\"b\":true},\"required\":[\"a\"]},{\"type\":\"number\"}]}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(a|\xC3\xA9|\\\\n|\\\")*b?$\",\"maxLength\":12}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"items\":{\"enum\":[1,12]},\"prefixItems\":[{\"type\":\"null\"}],\"minItems\":16,\"maxItems\":21}"},
    {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"json_schema\",\"style\":\"gemma\",\"quote\":\"[{}\",\"json_schema\":{\"properties\":{\"a\":{\"type\":"
                        "\"string\",\"minLength\":4,\"maxLength\":17}},\"required\":[\"a\"]}}}"},
    {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"json_schema\",\"style\":\"gemma\",\"quote\":\"],\",\"json_schema\":{\"properties\":{\"a\":{\"type\":"
                        "\"string\",\"minLength\":5,\"maxLength\":5},\"b\":{\"type\":\"string\",\"minLength\":20}},\"required\":[\"b\"]}}}"},
    {GRAMMAR_GBNF, "root ::= (\"a\" | \"b\"){15,27} [0-9]{14,18}"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":120}"},
    {GRAMMAR_REGEX, "(ab|a|b\xC3\xA9)*[0-9]{2,3}|null|.*\"x"},
    {GRAMMAR_CHOICE, "[\"a\",\"ab\",\"abc\",\"b\\n\",\"\xC3\xA9\"]"},
    {GRAMMAR_GBNF, "root ::= list | word\nlist ::= \"[\" (root (\",\" root){0,3})? \"]\"\nword ::= [a-z\xC3\xA9]+ | \"\\\"\" [^\"]* \"\\\"\""},
    {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"sequence\",\"elements\":[{\"type\":\"any_text\"},{\"type\":\"const_string\",\"value\":"
                        "\"[\\\"a\\\"\"},{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"object\"}}]}}"},
    {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"{\\\"a\",\"[n\"],\"excludes\":[\"12\",\"Ã©\"],\"tags\":["
                        "{\"begin\":\"{\\\"a\\\":\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":[\"integer\",\"array\"]}},\"end\":"
                        "\"}\"},{\"begin\":\"[null\",\"content\":{\"type\":\"any_text\"},\"end\":[\"]\",\"}\"]}]}}"},
    {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"triggered_tags\",\"at_least_one\":true,\"triggers\":[\"a\"],\"tags\":[{\"begin\":\"aa\",\"content\":"
                        "{\"type\":\"regex\",\"pattern\":\"[a-z]+\"},\"end\":\"bb\"}]}}"},
    {GRAMMAR_GBNF, "root ::= (\"a\" | \"b\"* | \"\")* x?\nx ::= \"(\" x \")\" | \"12\""},
};
enum { NGRAMMARS = sizeof grammars / sizeof *grammars };

static const char pool[] = "{\"a\": 1, \"ab\":true,\"b\": \"xy\"}\n  [null,12.5e1,[\"a\",\"b\"],{}],\\n\\u001f\"\xC3\xA9\xF0\x9F\x98\x80(()),aabb12\"x";

static void make_vocabulary(struct vocabulary *v, uint64_t seed)
{
    v->n = 0;
    for (int c = 0; c < 128; c++) {  // every byte of ASCII, so that there is always a way on
        v->len[v->n] = 1;
        v->text[v->n++][0] = (char)c;
    }
    for (int c = 0x80; c < 0xC0; c++) {
        v->len[v->n] = 1;
        v->text[v->n++][0] = (char)c;
    }
    while (v->n < MAX_TOKENS - 60) {
        uint64_t r = rng_u64(seed, (uint64_t)v->n, 1);
        size_t from = r % (sizeof pool - 1), len = 1 + (r >> 20) % MAX_LEN;
        len = len < sizeof pool - 1 - from ? len : sizeof pool - 1 - from;
        v->len[v->n] = len;
        memcpy(v->text[v->n++], pool + from, len);
    }
    while (v->n < MAX_TOKENS - 20) {  // marked
        uint64_t r = rng_u64(seed, (uint64_t)v->n, 4);
        size_t from = r % (sizeof pool - 10), len = 1 + (r >> 20) % 8;
        v->len[v->n] = len + 1;
        v->text[v->n][0] = (char)TOKEN_TRIE_MARK;
        memcpy(v->text[v->n++] + 1, pool + from, len);
    }
    while (v->n < MAX_TOKENS) {  // any bytes; none; duplicates
        uint64_t r = rng_u64(seed, (uint64_t)v->n, 2);
        int n = v->n++;
        v->len[n] = r % 4;
        for (size_t i = 0; i < v->len[n]; i++)
            v->text[n][i] = (char)(r >> (8 + 8 * i));
        if (n % 4 == 0) {
            v->len[n] = v->len[n - 100];
            memcpy(v->text[n], v->text[n - 100], MAX_LEN);
        }
    }
}

static void check_state(struct grammar_state *s, const struct vocabulary *v)
{
    uint32_t n, count = 0;
    uint64_t mask[MAX_TOKENS / 64 + 1];
    memcpy(mask, grammar_mask(s, &n), (size_t)(MAX_TOKENS + 63) / 64 * 8);
    for (int id = 0; id < v->n; id++) {
        struct grammar_state *copy = grammar_fork(s);
        bool allowed = grammar_take(copy, id);
        grammar_free(copy);
        if (allowed != token_trie_get(mask, id))
            fail_msg("token %d '%.*s': stepping says %d", id, (int)v->len[id], v->text[id], allowed);
        count += allowed;
    }
    assert_int_equal(count, n);
    assert_true(n > 0 || grammar_ends(s));  // never a dead end
    assert_int_equal(n > 0, grammar_goes_on(s));
    // Remembered now: the same.
    uint64_t again[MAX_TOKENS / 64 + 1];
    memcpy(again, grammar_mask(s, &n), (size_t)(MAX_TOKENS + 63) / 64 * 8);
    assert_memory_equal(mask, again, (size_t)(MAX_TOKENS + 63) / 64 * 8);
}

static int32_t choose(const uint64_t *mask, uint32_t n, uint64_t r)
{
    uint32_t k = (uint32_t)(r % n);
    for (int32_t id = 0;; id++)
        if (token_trie_get(mask, id) && k-- == 0)
            return id;
}

static void walk(struct grammar *g, const struct vocabulary *v, uint64_t seed)
{
    struct grammar_state *s = grammar_begin(g);
    for (uint64_t i = 0; i < STATES; i++) {
        check_state(s, v);
        uint32_t n;
        const uint64_t *mask = grammar_mask(s, &n);
        if (n == 0)
            break;
        uint64_t r = rng_u64(seed, i, 3);
        int32_t id = choose(mask, n, r);
        // Structure would be rare among so many letters.
        for (const char *p = "\"}],:{["; *p && r >> 40 & 1; p++)
            if (token_trie_get(mask, *p) && r >> 41 & 1)
                id = *p;
        assert_true(grammar_take(s, id));
    }
    grammar_free(s);
}

static void test_masks_are_steps(void **state)
{
    (void)state;
    struct vocabulary *v = mem_new(sizeof *v);
    for (uint64_t k = 0; k < 2; k++) {
        make_vocabulary(v, k);
        struct token_trie *t = token_trie_new(token, v, v->n);
        for (int i = 0; i < NGRAMMARS; i++) {
            struct grammar_request r = {.kind = grammars[i].kind, .text = grammars[i].text, .len = strlen(grammars[i].text)};
            struct grammar *g;
            err e = {0};
            if (grammar_compile(&r, t, &g, &e))
                fail_msg("%s: %s", grammars[i].text, e.text);
            for (uint64_t w = 0; w < 3; w++)  // later walks meet masks that other states left
                walk(g, v, 100 * k + w);
            grammar_drop(g);
        }
        token_trie_free(t);
    }
    free(v);
}

// Many words, so that whole subtrees of the vocabulary are taken or left at once; in automata that count, that repeat, that
// leave things out.
enum { WORDS = 3000, WORD_LEN = 20, WORD_STATES = 8 };

struct words {
    size_t len[WORDS];
    char text[WORDS][WORD_LEN];
};

static const char *word(const void *ud, int32_t id, size_t *ret_len)
{
    const struct words *v = ud;
    *ret_len = v->len[id];
    return v->text[id];
}

static struct words *make_words(void)
{
    static const char letters[] = "aaaeeeiosntrAEST019", others[] = "\"-_.@: ,}\n<>{[]\\\t=";
    static const char *const more[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xC3", "\x82", "\xE2\x82"};
    struct words *v = mem_new(sizeof *v);
    for (int i = 0; i < WORDS; i++) {
        uint64_t r = rng_u64(7, (uint64_t)i, 0), kind = r % 16;
        if (i < 127) {
            v->text[i][v->len[i]++] = (char)(i + 1);
            continue;
        }
        if (i % 50 == 0) {
            v->len[i] = 1 + (size_t)i / 50 % 14;
            memset(v->text[i], '-', v->len[i]);
            continue;
        }
        if (kind == 0)
            v->text[i][v->len[i]++] = (char)TOKEN_TRIE_MARK;
        for (uint64_t k = 0, n = 1 + (r >> 8) % 15; k < n && v->len[i] < WORD_LEN - 5; k++) {
            uint64_t x = rng_u64(7, (uint64_t)i, k + 1);
            if (x % 12 == 0 && kind < 8)
                v->text[i][v->len[i]++] = others[(x >> 8) % (sizeof others - 1)];
            else if (x % 29 == 0 && kind < 8)
                v->len[i] += strlen(strcpy(v->text[i] + v->len[i], more[(x >> 8) % 6]));
            else
                v->text[i][v->len[i]++] = letters[(x >> 8) % (k < 3 ? 6 : sizeof letters - 1)];
        }
    }
    return v;
}

static void check_words(struct grammar_state *s, const struct words *v)
{
    uint32_t n, count = 0;
    uint64_t mask[WORDS / 64 + 1];
    memcpy(mask, grammar_mask(s, &n), (size_t)(WORDS + 63) / 64 * 8);
    for (int id = 0; id < WORDS; id++) {
        struct grammar_state *copy = grammar_fork(s);
        bool allowed = grammar_take(copy, id);
        grammar_free(copy);
        if (allowed != token_trie_get(mask, id))
            fail_msg("token %d '%.*s': stepping says %d", id, (int)v->len[id], v->text[id], allowed);
        count += allowed;
    }
    assert_int_equal(count, n);
}

static void test_many_words(void **state)
{
    (void)state;
    static const struct {
        enum grammar_kind kind;
        const char *text, *begin;
    } list[] = {
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$\"}", "\"a"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-zA-Z0-9]{2,9}(-[A-Z]+)?$\"}", "\"a"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,4}[A-Z0-9]{1,9}$\"}", "\""},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"email\"}", "\"ae@"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"hostname\",\"maxLength\":17}", "\"e"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^a]*(aa[^a]*)*$\"}", "\"e"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"aa\":true,\"eas\":true},\"additionalProperties\":{\"type\":\"integer\"}}",
         "{\""},
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"}},\"additionalProperties\":false}", "{\""},
        {GRAMMAR_REGEX, "[a-zA-Z0-9 ]+", "a"},
        {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<a\",\"\xC3\xA9\"],\"excludes\":[\"ees\"],\"tags\":[{\"begin\":\"<a\","
                            "\"content\":{\"type\":\"any_text\"},\"end\":\">\"},{\"begin\":\"\xC3\xA9\",\"content\":{\"type\":\"json_schema\","
                            "\"style\":\"gemma\",\"quote\":\"--\",\"json_schema\":{\"properties\":{\"a\":{\"type\":\"string\"}}}},\"end\":\"\"}]}}", ""},
        {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"json_schema\",\"style\":\"gemma\",\"quote\":\"--s\",\"json_schema\":{\"properties\":{\"s\":{\"type\":"
                            "\"string\",\"minLength\":3,\"maxLength\":15}},\"required\":[\"s\"]}}}", "{s:--soaeaei"},
        {GRAMMAR_STRUCTURE, "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<a\"],\"tags\":[{\"begin\":\"<a\",\"content\":"
                            "{\"type\":\"any_text\"},\"end\":\">\"}]}}", "<"},
    };
    struct words *v = make_words();
    struct token_trie *t = token_trie_new(word, v, WORDS);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct grammar_request r = {.kind = list[i].kind, .text = list[i].text, .len = strlen(list[i].text)};
        struct grammar *g;
        err e = {0};
        if (grammar_compile(&r, t, &g, &e))
            fail_msg("%s: %s", list[i].text, e.text);
        struct grammar_state *s = grammar_begin(g);
        for (const char *p = list[i].begin; *p; p++)
            assert_true(grammar_take(s, *p - 1));
        for (uint64_t k = 0; k < WORD_STATES; k++) {
            uint32_t n;
            check_words(s, v);
            const uint64_t *mask = grammar_mask(s, &n);
            if (n == 0)
                break;
            assert_true(grammar_take(s, choose(mask, n, rng_u64(i, k, 9))));
        }
        grammar_free(s);
        grammar_drop(g);
    }
    token_trie_free(t);
    free(v);
}

// SO-12: what may come many times costs the same at its first item and at its two hundredth: the masks are the remembered ones.
static void test_many_items(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"minItems\":20,\"maxItems\":2000}", item[] = "1.5,";
    json_t *json = json_loads(schema, 0, NULL);
    struct words *v = make_words();
    struct token_trie *t = token_trie_new(word, v, WORDS);
    struct nodes g;
    uint32_t root, threads, first = 0;
    uint64_t mask[WORDS / 64 + 1];
    bool made;
    nodes_init(&g, NODES_JSON_DEPTH);
    assert_int_equal(schema_compile(json, &g, &root, NULL), ERR_OK);
    assert_int_equal(nodes_finish(&g, root, NULL), ERR_OK);
    struct token_masks *c = token_mask_open(&g, t);
    struct machine *m = machine_new(&g);
    assert_true(machine_text(m, "[", 1));
    for (int i = 0; i < 200; i++)
        for (const char *p = item; *p; p++) {
            assert_true(machine_text(m, p, 1));
            token_mask_fill(c, m, mask, &made);
            machine_threads(m, &threads);
            first = i == 0 && threads > first ? threads : first;
            if (i > 21)  // the least is reached
                assert_false(made);
            assert_true(threads <= first + 1);
        }
    machine_free(m);
    token_mask_close(c);
    nodes_done(&g);
    token_trie_free(t);
    json_decref(json);
    free(v);
}

// A choice taken from bytes alone ends in the same state as from longer tokens, and a copy goes its own way.
static void test_cutting_does_not_matter(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":{\"b\":[1,2,{\"c\":\"\xC3\xA9x\"}],\"d\":null},\"e\":-1.5}";
    struct vocabulary *v = mem_new(sizeof *v);
    for (int c = 0; c < 256; c++) {
        v->len[v->n] = 1;
        v->text[v->n++][0] = (char)c;
    }
    for (size_t i = 0; i + 3 < sizeof text - 1 && v->n < MAX_TOKENS; i += 4) {
        v->len[v->n] = 4;
        memcpy(v->text[v->n++], text + i, 4);
    }
    struct token_trie *t = token_trie_new(token, v, v->n);
    struct grammar_request r = {.kind = GRAMMAR_JSON_OBJECT, .text = ""};
    struct grammar *g;
    err e;
    assert_int_equal(grammar_compile(&r, t, &g, &e), ERR_OK);
    struct grammar_state *a = grammar_begin(g), *b = grammar_begin(g), *c = NULL;
    for (size_t i = 0; i + 3 < sizeof text - 1; i += 4) {
        uint32_t na, nb;
        uint64_t ma[MAX_TOKENS / 64 + 1];
        assert_true(grammar_take(a, 256 + (int32_t)(i / 4)));
        for (size_t k = 0; k < 4; k++)
            assert_true(grammar_take(b, (unsigned char)text[i + k]));
        memcpy(ma, grammar_mask(a, &na), t->words * 8);
        assert_memory_equal(ma, grammar_mask(b, &nb), t->words * 8);
        assert_int_equal(na, nb);
        if (!c)
            c = grammar_fork(a);
    }
    assert_true(grammar_take(c, ':'));  // it is still where it was taken
    grammar_free(a);
    grammar_free(b);
    grammar_free(c);
    grammar_drop(g);
    token_trie_free(t);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_are_steps),
        cmocka_unit_test(test_many_words),
        cmocka_unit_test(test_many_items),
        cmocka_unit_test(test_cutting_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
