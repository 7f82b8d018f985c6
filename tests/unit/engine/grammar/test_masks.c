// Masks are what stepping says, token by token and state by state: over small random vocabularies with pieces of
// characters, duplicates, invalid bytes and tokens that run across many parts of a document; fresh and remembered.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"

enum { MAX_TOKENS = 300, MAX_LEN = 12, STATES = 40 };

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
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":120}"},
    {GRAMMAR_REGEX, "(ab|a|b\xC3\xA9)*[0-9]{2,3}|null|.*\"x"},
    {GRAMMAR_CHOICE, "[\"a\",\"ab\",\"abc\",\"b\\n\",\"\xC3\xA9\"]"},
    {GRAMMAR_GBNF, "root ::= list | word\nlist ::= \"[\" (root (\",\" root){0,3})? \"]\"\nword ::= [a-z\xC3\xA9]+ | \"\\\"\" [^\"]* \"\\\"\""},
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
    while (v->n < MAX_TOKENS - 20) {
        uint64_t r = rng_u64(seed, (uint64_t)v->n, 1);
        size_t from = r % (sizeof pool - 1), len = 1 + (r >> 20) % MAX_LEN;
        len = len < sizeof pool - 1 - from ? len : sizeof pool - 1 - from;
        v->len[v->n] = len;
        memcpy(v->text[v->n++], pool + from, len);
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
        cmocka_unit_test(test_cutting_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
