// token_trie.h - a vocabulary as the masks look at it: a prefix tree over the bytes of its ordinary tokens. Made once for a
// tokenizer, immutable, shared.
//
// Nodes lie in depth-first order; a node knows where its subtree ends, so skipping one is a jump, and which kinds of bytes
// lie below it, so that a state that takes all of these takes the subtree whole. Tokens with the same bytes share a node.
// Tokens are listed in the nodes' order. "Plain" tokens are whole UTF-8 characters that stand for themselves in a JSON string: 96 to 99 % of
// a vocabulary. Inside a string all of them are allowed, and only the rest, a small tree of its own, needs walking.
//
// Control tokens and added ones are spelt as TOKEN_TRIE_MARK, a byte that is in no UTF-8, and their text: only a structure
// (structure.h) allows the mark. Those that end a turn and ids without text are in no tree.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum { TOKEN_TRIE_LENGTHS = 16, TOKEN_TRIE_NONE = -1, TOKEN_TRIE_MARK = 0xFF };

struct token_node {
    uint32_t end;    // index behind its subtree
    uint32_t first;  // in the list: its own tokens, then those below
    uint16_t depth;  // bytes; 1 for those of one byte
    uint8_t byte;
    uint8_t reach;   // bytes below it at most; 255: or more
};

// Kinds of bytes, as bits of a set.
enum {
    BYTES_LOWER, BYTES_UPPER, BYTES_DIGIT, BYTES_SPACE, BYTES_LINE, BYTES_TAB, BYTES_RETURN, BYTES_CONTROL, BYTES_DELETE,
    BYTES_LONG,       // of characters of several bytes, whole ones
    BYTES_BROKEN,     // of parts of characters; also where the node stands inside one
    BYTES_MARK,
    BYTES_PUNCTUATION,  // 32 of them
    BYTES_KINDS = BYTES_PUNCTUATION + 32
};
unsigned token_trie_kind(uint8_t byte);  // of a byte of its own
#define TOKEN_TRIE_KIND(kind) (1ull << (kind))
#define TOKEN_TRIE_ALNUM (TOKEN_TRIE_KIND(BYTES_LOWER) | TOKEN_TRIE_KIND(BYTES_UPPER) | TOKEN_TRIE_KIND(BYTES_DIGIT))

struct token_tree {
    struct token_node *nodes;  // [n + 1]: the last one ends the list
    uint64_t *below;           // [n] kinds of bytes behind each node, in all its tokens
    int32_t *list;             // tokens by node
    uint32_t n;
    uint32_t roots[257];  // where the tokens that begin with a byte begin; those with the next byte follow
};

struct token_trie {
    int vocab;           // ids of a mask: the model's logits
    size_t words;        // 64-bit words of a mask
    struct token_tree all, rest;  // rest: those that are not plain
    uint64_t *plain, *whole;      // masks; whole: of whole characters, marked ones too
    uint64_t *alnum[TOKEN_TRIE_LENGTHS + 1];  // of letters and digits of ASCII, at most so many
    uint64_t *shorter[TOKEN_TRIE_LENGTHS + 1];  // of plain tokens with at most so many characters
    uint32_t nplain, nshorter[TOKEN_TRIE_LENGTHS + 1];  // bits of these
    struct token_length {
        int32_t id;
        uint32_t characters;
    } *longer;           // plain tokens with more, shortest first
    uint32_t nlonger;
    uint32_t longest;    // bytes
    char *bytes;         // of all tokens
    size_t *starts;      // [vocab + 1]; empty when it is in no tree
};

// A token's bytes by index: how a vocabulary is read. Length 0: it has none, or must never be allowed.
typedef const char *token_trie_bytes(const void *ud, int32_t id, size_t *ret_len);

struct token_trie *token_trie_new(token_trie_bytes *bytes, const void *ud, int vocab);
struct token_trie *token_trie_of(const struct tokenizer *t, int vocab);
void token_trie_free(struct token_trie *t);

static inline const char *token_trie_text(const struct token_trie *t, int32_t id, size_t *ret_len)
{
    *ret_len = t->starts[id + 1] - t->starts[id];
    return t->bytes + t->starts[id];
}
static inline void token_trie_set(uint64_t *mask, int32_t id)
{
    mask[id / 64] |= 1ull << id % 64;
}
static inline bool token_trie_get(const uint64_t *mask, int32_t id)
{
    return mask[id / 64] >> id % 64 & 1;
}
