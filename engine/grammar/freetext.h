// freetext.h - automata over bytes for text that nothing is said about but where it ends, and for given texts, both with
// the marks of tokens (token_trie.h).
//
//     struct freetext_spec s = {.ends = ends, .nends = 1};     "</think>"
//     if (freetext_make(&s, &dfa, &which, e)) ...              any text, then that
//
// Free text is whole UTF-8 in which no end and nothing excluded occurs, then an end: the first place where one can be read
// (of those that end there the longest). One state, and the same, wherever none of them has begun.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/grammar/bytedfa.h"

enum { FREETEXT_MAX_BYTES = 8192, FREETEXT_INSIDE = UINT16_MAX };

struct freetext_text {
    const char *text;
    size_t len;
};

struct freetext_spec {
    const struct freetext_text *ends, *excludes;  // not empty, valid UTF-8; no end is the beginning of another
    size_t nends, nexcludes;
    bool strict;  // marked tokens only as a part of an end; else anywhere
};

// ret_ends: 1 + the end that is read in a state; 0: none. An end that cannot be reached is in no state. ret_begun (may be
// NULL): how many bytes of a text have begun in a state; FREETEXT_INSIDE: it is inside a character. BYTEDFA_ACCEPT is set
// where a character is complete and any may follow. ERR_INVALID when there are ends and none can be reached.
MUST_CHECK err_code freetext_make(const struct freetext_spec *s, struct bytedfa **ret_dfa, uint16_t **ret_ends,
                                  uint16_t **ret_begun, err *e);

// Just this text, marks allowed before each of its bytes; not empty.
struct bytedfa *freetext_given(const char *text, size_t len);
