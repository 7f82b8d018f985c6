// token_mask.h - which tokens a machine allows next, remembered for each of its states.
//
// A state is known by its threads' top frames and by as many of those below as any token could reach, so a mask serves
// wherever these are equal. Where a text must differ from earlier ones (undeclared names, unique items) the mask is made
// as if there were none, with a list of the tokens to look at again. A mask is a function of the state: neither what is
// remembered nor who asked before changes it.
//
// One cache for a compiled grammar, shared by all its sequences (a lock around the table; masks are made outside it).
// It is emptied when it is full.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

enum { TOKEN_MASK_CACHE_BYTES = 4 << 20 };

struct token_masks;

struct token_masks *token_mask_open(const struct nodes *g, const struct token_trie *t);
void token_mask_close(struct token_masks *c);

// Makes the masks of free texts: nearly all of the vocabulary, so not while others wait for a token. On a prep thread.
void token_mask_prepare(struct token_masks *c);
// Fills mask [t->words]; returns how many tokens are set. made: it was not remembered (may be NULL).
uint32_t token_mask_fill(struct token_masks *c, struct machine *m, uint64_t *mask, bool *made);
