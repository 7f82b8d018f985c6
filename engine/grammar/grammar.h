// grammar.h - answers that are what was asked for: a grammar, compiled once, and where each answer stands in it.
//
//     prep thread        grammar_cache_get(cache, &request, &g, &e)      compiled, or found; a reference
//     scheduler thread   s = grammar_begin(g)                            one for each choice; grammar_fork copies
//                        grammar_mask(s, &n) -> pick a token -> grammar_take(s, id)
//                        grammar_ends(s), !grammar_goes_on(s)            may end here; has to
//
// A compiled grammar is immutable and shared; only its cache of masks changes (under a lock), which never changes a mask.
// A cache belongs to one tokenizer. It keeps the latest grammars by their text.
//
// Every token the mask allows leaves a text from which the grammar's end can be reached. What may end an answer is for the
// caller: end-of-turn tokens are in no mask.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"

struct tokenizer;
struct token_trie;
struct grammar;
struct grammar_state;
struct grammar_cache;

// vocab: how many logits the model has. Cheap: the tokenizer is looked at when the first grammar is compiled. It must
// outlive the cache, and the cache its grammars.
struct grammar_cache *grammar_cache_open(const struct tokenizer *t, int vocab);
void grammar_cache_close(struct grammar_cache *c);
// Compiles at most one grammar at a time for each caller. Errors name the request's field. ERR_INVALID: faulty or without
// any answer; ERR_UNSUPPORTED: something in it is not enforced.
MUST_CHECK err_code grammar_cache_get(struct grammar_cache *c, const struct grammar_request *r,
                                      struct grammar **ret_grammar, err *e);
// Without a cache.
MUST_CHECK err_code grammar_compile(const struct grammar_request *r, const struct token_trie *trie,
                                    struct grammar **ret_grammar, err *e);
void grammar_drop(struct grammar *g);  // gives the reference back

struct grammar_state *grammar_begin(struct grammar *g);  // takes a reference of its own
struct grammar_state *grammar_fork(const struct grammar_state *s);
void grammar_free(struct grammar_state *s);

// The tokens that may come next, as bits of an array of (vocab + 63) / 64 words; *ret_n: how many. Made of the state alone, at
// the first call for it: until a token is taken others give the same array, with what the caller changed in it.
uint64_t *grammar_mask(struct grammar_state *s, uint32_t *ret_n);
bool grammar_take(struct grammar_state *s, int32_t id);  // false: not allowed, nothing changed
bool grammar_ends(const struct grammar_state *s);
bool grammar_goes_on(const struct grammar_state *s);
// Why nothing is allowed although it goes on: the grammar is too ambiguous for the memory it may have.
bool grammar_broken(const struct grammar_state *s);
