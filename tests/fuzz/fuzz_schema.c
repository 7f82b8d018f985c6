// The first byte says which kind of grammar the others are. It is refused, or random answers are written with it: the mask
// is never empty before the end, what it allows can be taken, and finished JSON parses without a name twice.
#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"

enum { TOKENS = 150, TEXTS = 256 + 15 };

static const char *token(const void *ud, int32_t id, size_t *ret_len)
{
    static char bytes[256];
    static const char *const longer[] = {"\",\"", "\":", "{\"", "\"}", "true", "null", "a\",\"b", "}}", "],", "\xC3\xA9", " \"", "e\"",
                                         "\xFF<t>", "\xFF</t>", "\xFF<|\"|>"};
    static_assert(sizeof longer / sizeof *longer == TEXTS - 256, "as many as ids");
    (void)ud;
    if (id >= 256) {
        *ret_len = strlen(longer[id - 256]);
        return longer[id - 256];
    }
    bytes[id] = (char)id;
    *ret_len = id != TOKEN_TRIE_MARK;
    return &bytes[id];
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static int32_t choose(const uint64_t *mask, uint32_t n, uint64_t r)
{
    for (const char *p = "\"}],:"; *p && r & 1; p++)
        if (token_trie_get(mask, *p))
            return *p;
    uint32_t k = (uint32_t)((r >> 8) % n);
    for (int32_t id = 0;; id++)
        if (token_trie_get(mask, id) && k-- == 0)
            return id;
}

static void write_one(struct grammar *g, bool json, uint64_t seed)
{
    struct grammar_state *s = grammar_begin(g);
    struct buf text;
    buf_init(&text, 1 << 20);
    bool done = false;
    for (uint64_t i = 0; i < TOKENS && !done; i++) {
        uint32_t n;
        size_t len;
        const uint64_t *mask = grammar_mask(s, &n);
        if (grammar_broken(s))
            break;
        must(n > 0 || grammar_ends(s));
        done = n == 0 || (grammar_ends(s) && rng_u64(seed, i, 1) % 2);
        if (done)
            break;
        int32_t id = choose(mask, n, rng_u64(seed, i, 0));
        const char *p = token(NULL, id, &len);
        buf_add(&text, p, len);
        must(grammar_take(s, id) || grammar_broken(s));
    }
    if (done && json) {
        json_t *v = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        must(v != NULL);
        json_decref(v);
    }
    grammar_free(s);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct token_trie *trie;
    static const enum grammar_kind kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE, GRAMMAR_GBNF, GRAMMAR_STRUCTURE};  // @ A B C D
    if (!trie)
        trie = token_trie_new(token, NULL, TEXTS);
    if (size == 0)
        return 0;
    struct grammar_request r = {.kind = kinds[(data[0] & 7) % 5], .text = (const char *)data + 1, .len = size - 1};
    struct grammar *g;
    err e = {0};
    if (grammar_compile(&r, trie, &g, &e)) {
        must(e.text[0] != 0);
        return 0;
    }
    for (uint64_t k = 0; k < 3; k++)
        write_one(g, r.kind == GRAMMAR_JSON_SCHEMA, k);
    grammar_drop(g);
    return 0;
}
