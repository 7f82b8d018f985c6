// token_trie.c - building the trees. On a prep thread, once for a model.
#include "engine/grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
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

unsigned token_trie_kind(uint8_t byte)
{
    static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    if (byte >= 'a' && byte <= 'z')
        return BYTES_LOWER;
    if (byte >= 'A' && byte <= 'Z')
        return BYTES_UPPER;
    if (byte >= '0' && byte <= '9')
        return BYTES_DIGIT;
    switch (byte) {
    case ' ': return BYTES_SPACE;
    case '\n': return BYTES_LINE;
    case '\t': return BYTES_TAB;
    case '\r': return BYTES_RETURN;
    case 0x7F: return BYTES_DELETE;
    case TOKEN_TRIE_MARK: return BYTES_MARK;
    default: break;
    }
    if (byte < 0x20 || byte >= 0x80)
        return byte < 0x20 ? BYTES_CONTROL : BYTES_LONG;
    return BYTES_PUNCTUATION + (unsigned)(strchr(punctuation, byte) - punctuation);
}

// kinds[i]: of the bytes from i on. False: not whole characters, and marks between them.
static bool find_kinds(const struct entry *x, uint64_t *kinds)
{
    const char *s = x->text;
    bool whole = true;
    uint32_t cp;
    memset(kinds, 0, (x->len + 1) * sizeof *kinds);
    for (size_t i = 0, k; i < x->len && whole; i += k) {
        k = (uint8_t)s[i] == TOKEN_TRIE_MARK ? 1 : (size_t)utf8_decode(s + i, x->len - i, &cp);
        kinds[i] = TOKEN_TRIE_KIND(token_trie_kind((uint8_t)s[i]));
        for (size_t j = 1; j < k; j++)
            kinds[i + j] = TOKEN_TRIE_KIND(BYTES_BROKEN);
        whole = k > 0;
    }
    for (size_t i = x->len, inside; i-- > 0;) {
        inside = kinds[i] & TOKEN_TRIE_KIND(BYTES_BROKEN);
        kinds[i] |= inside ? kinds[i + 1] : kinds[i + 1] & ~TOKEN_TRIE_KIND(BYTES_BROKEN);
        if (!whole)
            kinds[i] |= TOKEN_TRIE_KIND(BYTES_BROKEN);
    }
    return whole;
}

// From sorted entries.
static void build(struct token_tree *tree, const struct entry *list, uint32_t n, uint32_t longest)
{
    uint32_t *path = mem_new(((size_t)longest + 1) * sizeof *path), depth = 0;
    uint64_t *kinds = mem_new(((size_t)longest + 2) * sizeof *kinds);
    size_t count = count_nodes(list, n);
    tree->nodes = mem_new((count + 1) * sizeof *tree->nodes);
    tree->below = mem_new((count + 1) * sizeof *tree->below);
    tree->list = mem_new(((size_t)n + 1) * sizeof *tree->list);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i > 0 && shared < list[i].len && shared < list[i - 1].len &&
               list[i].text[shared] == list[i - 1].text[shared])
            shared++;
        for (; depth > shared; depth--)
            tree->nodes[path[depth - 1]].end = tree->n;
        for (; depth < list[i].len; depth++) {
            path[depth] = tree->n;
            tree->nodes[tree->n++] = (struct token_node){.first = i, .depth = (uint16_t)(depth + 1),
                                                         .byte = (uint8_t)list[i].text[depth]};
        }
        find_kinds(&list[i], kinds);
        for (uint32_t k = 0; k < depth; k++) {
            struct token_node *node = &tree->nodes[path[k]];
            uint32_t reach = depth - k - 1 < UINT8_MAX ? depth - k - 1 : UINT8_MAX;
            node->reach = reach > node->reach ? (uint8_t)reach : node->reach;
            tree->below[path[k]] |= kinds[k + 1];
        }
        tree->list[i] = list[i].id;
    }
    for (; depth > 0; depth--)
        tree->nodes[path[depth - 1]].end = tree->n;
    tree->nodes[tree->n].first = n;
    free(path);
    free(kinds);
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
    t->starts = mem_new((v + 2) * sizeof *t->starts);
    t->plain = mem_new((t->words + 1) * sizeof *t->plain);
    t->whole = mem_new((t->words + 1) * sizeof *t->whole);
    for (int k = 0; k <= TOKEN_TRIE_LENGTHS; k++) {
        t->shorter[k] = mem_new((t->words + 1) * sizeof *t->plain);
        t->alnum[k] = mem_new((t->words + 1) * sizeof *t->plain);
    }
    t->longer = mem_new((v + 1) * sizeof *t->longer);
    struct entry *list = mem_new((v + 1) * sizeof *list);
    uint32_t n = collect(t, bytes, ud, list), nrest = 0, characters;
    qsort(list, n, sizeof *list, by_bytes);
    build(&t->all, list, n, t->longest);
    uint64_t *kinds = mem_new(((size_t)t->longest + 2) * sizeof *kinds);
    for (uint32_t i = 0; i < n; i++) {
        if (find_kinds(&list[i], kinds))
            token_trie_set(t->whole, list[i].id);
        for (uint32_t k = list[i].len; k <= TOKEN_TRIE_LENGTHS && !(kinds[0] & ~TOKEN_TRIE_ALNUM); k++)
            token_trie_set(t->alnum[k], list[i].id);
        if (is_plain(list[i].text, list[i].len, &characters))
            add_plain(t, list[i].id, characters);
        else
            list[nrest++] = list[i];
    }
    qsort(t->longer, t->nlonger, sizeof *t->longer, by_characters);
    build(&t->rest, list, nrest, t->longest);
    free(kinds);
    free(list);
    return t;
}

// How a tokenizer's tokens are spelt: marked ones with the mark in front of their own text.
struct spelling {
    const struct tokenizer *t;
    struct buf text;
};

static bool is_stop(const struct tokenizer *t, int32_t id)
{
    size_t n;
    const int32_t *stops = tokenizer_stops(t, &n);
    for (size_t i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    return false;
}

static const char *spell(const void *ud, int32_t id, size_t *ret_len)
{
    struct spelling *s = (struct spelling *)ud;
    *ret_len = 0;
    if (id >= tokenizer_size(s->t))
        return "";
    size_t len;
    if (!tokenizer_is_control(s->t, id) && !tokenizer_is_added(s->t, id)) {
        const char *piece = tokenizer_piece(s->t, id, &len);
        if (!memchr(piece, TOKEN_TRIE_MARK, len))  // else it is in no text, and the mark is not its to write
            *ret_len = len;
        return piece;
    }
    const char *text = tokenizer_token(s->t, id, &len);
    if (len == 0 || is_stop(s->t, id))
        return "";
    buf_clear(&s->text);
    buf_add_char(&s->text, (char)TOKEN_TRIE_MARK);
    buf_add(&s->text, text, len);
    *ret_len = s->text.len;
    return s->text.data;
}

struct token_trie *token_trie_of(const struct tokenizer *t, int vocab)
{
    struct spelling s = {.t = t};
    buf_init(&s.text, SIZE_MAX);
    struct token_trie *trie = token_trie_new(spell, &s, vocab);
    buf_done(&s.text);
    return trie;
}

static void free_tree(struct token_tree *tree)
{
    free(tree->nodes);
    free(tree->below);
    free(tree->list);
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    free_tree(&t->all);
    free_tree(&t->rest);
    free(t->plain);
    free(t->whole);
    for (int k = 0; k <= TOKEN_TRIE_LENGTHS; k++) {
        free(t->shorter[k]);
        free(t->alnum[k]);
    }
    free(t->longer);
    free(t->bytes);
    free(t->starts);
    free(t);
}
