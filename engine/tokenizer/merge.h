// merge.h - the merge loop that byte-level BPE and SentencePiece BPE share: always join the neighbouring pair of lowest
// rank, the leftmost of equals, until no pair has a rank.
//
//     struct merge_word w = {0};                       // reused from word to word, owned by one encode call
//     tokenizer_merge_add(&w, id, len) ...             // the symbols the word starts from
//     if (tokenizer_merge_run(&w, pair, model, e)) ...
//     for (int i = 0; i >= 0 && w.n; i = w.syms[i].next) ... w.syms[i].id
//
// Time is O(n log n) in the length of the word.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct merge_sym {
    int32_t id;            // -1: no token of its own
    int32_t prev, next;    // -1: none
    uint32_t start, len;   // bytes of the word; len 0: joined into its left neighbour
};

struct merge_cand {
    uint32_t rank, at, len;
    int32_t id;
};

struct merge_word {
    const char *text;
    struct merge_sym *syms;
    size_t n, cap;
    uint32_t bytes;
    struct merge_cand *heap;
    size_t heap_n, heap_cap;
    bool failed;
};

// Whether the neighbours l and r join: their rank (lower first) and the token they become.
typedef bool merge_pair_fn(const void *model, const struct merge_word *w, const struct merge_sym *l,
                           const struct merge_sym *r, uint32_t *ret_rank, int32_t *ret_id);

void tokenizer_merge_start(struct merge_word *w, const char *text);
void tokenizer_merge_add(struct merge_word *w, int32_t id, uint32_t len);
MUST_CHECK err_code tokenizer_merge_run(struct merge_word *w, merge_pair_fn *pair, const void *model, err *e);
void tokenizer_merge_done(struct merge_word *w);

// Where no token's spelling crosses from a word into the U+2581 of the next, the words of a long text merge one by one,
// with the same result. The end of the first word: before a U+2581 that follows something else.
size_t tokenizer_merge_word_end(const char *text, size_t len);
bool tokenizer_merge_crosses(const char *spelling, size_t len);
