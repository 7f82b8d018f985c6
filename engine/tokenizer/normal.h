// normal.h - normalisers: what happens to text before it is cut into words.
//
//     NFC NFD NFKC NFKD Lowercase Strip Prepend Replace Sequence BertNormalizer StripAccents
//                                                                     tokenizer.json's "normalizer"
//
// Immutable after open. A kind that is not in the list is ERR_UNSUPPORTED and named.
#pragma once

#include "base/err.h"
#include "engine/tokenizer/text.h"

struct json_t;
struct tokenizer_normal;
struct tokenizer_regex_match;

// json NULL or null: no normaliser, *ret_normal is NULL (which run and close accept).
MUST_CHECK err_code tokenizer_normal_open(const struct json_t *json, struct tokenizer_normal **ret_normal, err *e);
// SentencePiece's: spaces become U+2581, with one in front of the text when prefix is set.
MUST_CHECK err_code tokenizer_normal_spaces(bool prefix, struct tokenizer_normal **ret_normal, err *e);
MUST_CHECK err_code tokenizer_normal_nfc(struct tokenizer_normal **ret_normal, err *e);
void tokenizer_normal_close(struct tokenizer_normal *n);

// Rewrites *text in place; scratch is a second text of the caller's that is reused.
MUST_CHECK err_code tokenizer_normal_run(const struct tokenizer_normal *n, struct tokenizer_text *text,
                                         struct tokenizer_text *scratch, struct tokenizer_regex_match *m, err *e);
