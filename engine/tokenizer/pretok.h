// pretok.h - pre-tokenisers: cut normalised text into the pieces that the model works on one by one.
//
//     Split ByteLevel Digits Punctuation Whitespace WhitespaceSplit Metaspace BertPreTokenizer Sequence
//                                                                                         tokenizer.json's
// "pre_tokenizer"
//     by name (llama-bpe, qwen2, ...)                                                     GGUF's tokenizer.ggml.pre
//
// Immutable after open. Kinds and names that are not known are ERR_UNSUPPORTED and named.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/tokenizer/regex.h"

struct json_t;
struct tokenizer_pretok;

struct tokenizer_piece {
    const char *text;
    size_t len;
};

// The pieces of one fragment and the memory behind them; owned by one encode call, reused from fragment to fragment.
struct tokenizer_pieces {
    struct tokenizer_piece *v, *other;
    size_t n, cap, other_n, other_cap;
    char *blocks;  // rewritten text: a chain of blocks, freed at the next run
    bool failed;
    struct tokenizer_regex_match match;
};
void tokenizer_pretok_done(struct tokenizer_pieces *p);

// What GGUF's name for a pre-tokeniser stands for besides the patterns.
struct tokenizer_pretok_traits {
    bool ignore_merges;
    bool adds_bos;     // the default when tokenizer.ggml.add_bos_token is absent
    bool no_bos;       // the model has no BOS, whatever the file says
    bool nfc;          // its models' own tokenizers compose characters first, which GGUF does not record
    bool raw;          // merges work on UTF-8 with U+2581 for spaces, not on the byte alphabet
};

// json NULL or null: the whole text is one piece.
MUST_CHECK err_code tokenizer_pretok_open(const struct json_t *json, struct tokenizer_pretok **ret_pretok, err *e);
MUST_CHECK err_code tokenizer_pretok_named(const char *name, size_t len, struct tokenizer_pretok **ret_pretok,
                                           struct tokenizer_pretok_traits *ret_traits, err *e);
void tokenizer_pretok_close(struct tokenizer_pretok *p);
bool tokenizer_pretok_is_bytes(const struct tokenizer_pretok *p);  // the model sees the byte alphabet

// Fills out->v. first: the fragment begins at the very start of the input. Pieces are never empty and point into text
// or into out's own memory.
MUST_CHECK err_code tokenizer_pretok_run(const struct tokenizer_pretok *p, const char *text, size_t len, bool first,
                                         struct tokenizer_pieces *out, err *e);
