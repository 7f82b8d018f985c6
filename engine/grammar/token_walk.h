// token_walk.h - which tokens a machine allows: its threads stepped along the vocabulary's tree. Between machine_try and
// machine_tried.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

struct token_walk {
    const struct nodes *g;
    const struct token_trie *trie;
    struct machine *m;
    uint64_t *bits;  // [trie->words], filled
    uint32_t n;      // bits set
    int32_t *uncertain;  // tokens whose place depends on earlier texts; the caller frees it
    uint32_t nuncertain, cap;
};

// A free text where something may have begun: its mask is mostly that of its start, and made from it.
bool token_walk_is_near(const struct token_walk *w, uint32_t *ret_node);
// near: bits are those of its start.
void token_walk(struct token_walk *w, bool near);
void token_walk_note(struct token_walk *w, int32_t id);  // one more that is uncertain
