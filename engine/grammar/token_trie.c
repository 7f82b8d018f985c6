// token_trie.c - building the trees. On a prep thread, once for a model.
#include "engine/grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/tokenizer/tokenizer.h"

struct entry {
    const char *text;
    uint32_t len;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (!c)
        c = (x->len > y->len) - (x->len < y->len);
    return c ? c : (x->id > y->id) - (x->id < y->id);
}

static bool is_plain(const char *s, size_t len, uint32_t *ret_characters)
{
    uint32_t cp, n = 0;
    for (size_t i = 0, k; i < len; i += k, n++) {
        k = (size_t)utf8_decode(s + i, len - i, &cp);
        if (k == 0 || cp < 0x20 || cp == '"' || cp == '\\')
            return false;
    }
    *ret_characters = n;
    return true;
}

static size_t count_nodes(const struct entry *list, uint32_t n)
{
    size_t count = 0, shared;
    for (uint32_t i = 0; i < n; i++) {
        shared = 0;
        if (i > 0)
            while (shared < list[i].len && shared < list[i - 1].len && list[i].text[shared] == list[i - 1].text[shared])
                shared++;
        count += list[i].len - shared;
    }
    return count;
}

// From sorted entries. same: filled when not NULL.
static void build(struct token_tree *tree, const struct entry *list, uint32_t n, uint32_t longest, int32_t *same)
{
    uint32_t *path = mem_new(((size_t)longest + 1) * sizeof *path), depth = 0;
    tree->nodes = mem_new((count_nodes(list, n) + 1) * sizeof *tree->nodes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i > 0 && shared < list[i].len && shared < list[i - 1].len &&
               list[i].text[shared] == list[i - 1].text[shared])
            shared++;
        for (; depth > shared; depth--)
            tree->nodes[path[depth - 1]].end = tree->n;
        for (; depth < list[i].len; depth++) {
            path[depth] = tree->n;
            tree->nodes[tree->n++] = (struct token_node){.token = TOKEN_TRIE_NONE, .depth = (uint16_t)(depth + 1),
                                                         .byte = (uint8_t)list[i].text[depth]};
        }
        struct token_node *node = &tree->nodes[path[list[i].len - 1]];
        if (same)
            same[list[i].id] = node->token;
        node->token = list[i].id;
    }
    for (; depth > 0; depth--)
        tree->nodes[path[depth - 1]].end = tree->n;
    free(path);
    for (uint32_t b = 0, at = 0; b <= 256; b++) {
        tree->roots[b] = at;
        if (at < tree->n && tree->nodes[at].byte == b)
            at = tree->nodes[at].end;
    }
}

static int by_characters(const void *a, const void *b)
{
    const struct token_length *x = a, *y = b;
    if (x->characters != y->characters)
        return x->characters < y->characters ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void add_plain(struct token_trie *t, int32_t id, uint32_t characters)
{
    token_trie_set(t->plain, id);
    t->nplain++;
    for (uint32_t k = characters; k <= TOKEN_TRIE_LENGTHS; k++) {
        token_trie_set(t->shorter[k], id);
        t->nshorter[k]++;
    }
    if (characters > TOKEN_TRIE_LENGTHS)
        t->longer[t->nlonger++] = (struct token_length){id, characters};
}

// Copies the tokens' bytes; returns how many have some.
static uint32_t collect(struct token_trie *t, token_trie_bytes *bytes, const void *ud, struct entry *list)
{
    uint32_t n = 0;
    size_t total = 0, len;
    for (int32_t id = 0; id < t->vocab; id++) {
        bytes(ud, id, &len);
        total += len <= UINT16_MAX ? len : 0;
    }
    t->bytes = mem_new(total + 1);
    for (int32_t id = 0; id < t->vocab; id++) {
        const char *p = bytes(ud, id, &len);
        size_t at = t->starts[id];
        t->starts[id + 1] = at;
        if (len == 0 || len > UINT16_MAX)
            continue;
        memcpy(t->bytes + at, p, len);
        t->starts[id + 1] = at + len;
        list[n++] = (struct entry){t->bytes + at, (uint32_t)len, id};
        t->longest = len > t->longest ? (uint32_t)len : t->longest;
    }
    return n;
}

struct token_trie *token_trie_new(token_trie_bytes *bytes, const void *ud, int vocab)
{
    struct token_trie *t = mem_new(sizeof *t);
    size_t v = (size_t)vocab;
    t->vocab = vocab;
    t->words = (v + 63) / 64;
    t->same = mem_new((v + 1) * sizeof *t->same);
    t->starts = mem_new((v + 2) * sizeof *t->starts);
    t->plain = mem_new((t->words + 1) * sizeof *t->plain);
    for (int k = 0; k <= TOKEN_TRIE_LENGTHS; k++)
        t->shorter[k] = mem_new((t->words + 1) * sizeof *t->plain);
    t->longer = mem_new((v + 1) * sizeof *t->longer);
    struct entry *list = mem_new((v + 1) * sizeof *list);
    uint32_t n = collect(t, bytes, ud, list), nrest = 0, characters;
    qsort(list, n, sizeof *list, by_bytes);
    build(&t->all, list, n, t->longest, t->same);
    for (uint32_t i = 0; i < n; i++) {
        if (is_plain(list[i].text, list[i].len, &characters))
            add_plain(t, list[i].id, characters);
        else
            list[nrest++] = list[i];
    }
    qsort(t->longer, t->nlonger, sizeof *t->longer, by_characters);
    build(&t->rest, list, nrest, t->longest, NULL);
    free(list);
    return t;
}

static const char *ordinary(const void *ud, int32_t id, size_t *ret_len)
{
    const struct tokenizer *t = ud;
    *ret_len = 0;
    if (id >= tokenizer_size(t) || tokenizer_is_control(t, id) || tokenizer_is_added(t, id))
        return "";
    return tokenizer_piece(t, id, ret_len);
}

struct token_trie *token_trie_of(const struct tokenizer *t, int vocab)
{
    return token_trie_new(ordinary, t, vocab);
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    free(t->all.nodes);
    free(t->rest.nodes);
    free(t->same);
    free(t->plain);
    for (int k = 0; k <= TOKEN_TRIE_LENGTHS; k++)
        free(t->shorter[k]);
    free(t->longer);
    free(t->bytes);
    free(t->starts);
    free(t);
}
