// whisper_tokens.h - what Whisper's special tokens are called and where they lie in one model's vocabulary.
//
// Everything is looked up by spelling, so any vocabulary that has the tokens in the usual order works, also a tiny one.
// The timestamps follow <|notimestamps|>; a tokenizer.json may list them or not.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/audio/languages.h"

struct model;
struct tokenizer;

struct whisper_tokens {
    int32_t eot, sot, no_timestamps;
    int32_t first_time;  // <|0.00|>; then one token for every 20 ms
    int times;           // how many of them the model has
    int32_t translate, transcribe, start_of_lm, start_of_prev, no_speech;  // TOKEN_NONE when there is none
    int32_t languages[LANGUAGES];                                          // likewise; by number of languages.h
    bool multilingual;
};

// Errors: the tokenizer's own, ERR_UNSUPPORTED when it is not Whisper's.
MUST_CHECK err_code whisper_tokens_find(const struct model *m, struct whisper_tokens *ret_tokens, err *e);

// The number of a language in languages.h; -1 when the model does not have it.
int whisper_tokens_language(const struct whisper_tokens *t, const char *code);

// Tokens that are never sampled: a byte for each id of the vocabulary. From generation_config.json where it has the
// lists, else computed as the reference does (symbols that note what is no speech).
enum { SUPPRESS_ALWAYS = 1, SUPPRESS_FIRST = 2 };  // everywhere; as the first token of a window
MUST_CHECK err_code whisper_tokens_suppress(const struct model *m, const struct whisper_tokens *t, uint8_t *marks,
                                            err *e);
