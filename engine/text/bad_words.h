// bad_words.h - words an answer may not have, as vLLM understands them: each is cut into tokens by itself and after a space, and
// the token that would complete such a run is not taken. The same text cut in another way is not seen.
//
//     bad_words_new(tokenizer, words, n, &b, &e)      prep thread; immutable
//     n = bad_words_banned(b, output, noutput, ids)   ids [bad_words_most(b)]: what may not come next
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bad_words;
struct tokenizer;

// *ret_words: NULL when there is none.
MUST_CHECK err_code bad_words_new(const struct tokenizer *t, const char *const *words, size_t n, struct bad_words **ret_words,
                                  err *e);
void bad_words_free(struct bad_words *b);
size_t bad_words_most(const struct bad_words *b);
size_t bad_words_banned(const struct bad_words *b, const int32_t *output, size_t noutput, int32_t *ret_ids);
