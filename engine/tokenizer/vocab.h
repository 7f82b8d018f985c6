// vocab.h - the tokens of a tokenizer: spelling, bytes in running text, flags; ids by spelling.
//
// Built once at open by tokenizer_vocab_set in any order of ids, then sealed; read-only after that.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    TOKEN_CONTROL = 1,  // special: not part of visible text
    TOKEN_BYTE = 2,     // <0xHH>: one byte of a character that has no token
    TOKEN_ADDED = 4,    // matched in the text before the model sees it
    TOKEN_GUARDED = 8,  // an added token that only trusted text may spell
    TOKEN_USED = 16,    // not a hole
};

enum { VOCAB_MAX = 1 << 22 };

struct vocab_token {
    const char *text;
    const char *piece;  // until detok_build: what it is made from when that is not the spelling, else NULL
    uint32_t len, piece_len;
    uint32_t flags;
};

struct vocab {
    struct vocab_token *tokens;
    int size, cap;
    struct map *ids;
    char *chunk;  // spellings: chunk[0..8) links to the previous chunk
    size_t used, room;
};

// Copies the spelling. An id outside 0..VOCAB_MAX-1, or two spellings for one id, is ERR_CORRUPT.
MUST_CHECK err_code tokenizer_vocab_set(struct vocab *v, int64_t id, const char *text, size_t len, uint32_t flags,
                                        err *e);
// "vocab" of a tokenizer.json's model: {"spelling": id, ...}.
struct json_t;
MUST_CHECK err_code tokenizer_vocab_read(struct vocab *v, const struct json_t *vocab, err *e);
bool tokenizer_vocab_find(const struct vocab *v, const char *text, size_t len, int32_t *ret_id);
// A copy of some bytes that lives as long as the vocabulary.
const char *tokenizer_vocab_keep(struct vocab *v, const char *p, size_t n);
void tokenizer_vocab_done(struct vocab *v);

// "<0x0A>" and its like: the byte, else -1.
int tokenizer_vocab_byte(const char *text, size_t len);

// The byte alphabet of byte-level BPE: 256 printable characters for 256 bytes.
int tokenizer_vocab_letter(uint8_t byte, char *out);             // UTF-8 to out[2]; returns its length
bool tokenizer_vocab_unletter(uint32_t cp, uint8_t *ret_byte);
