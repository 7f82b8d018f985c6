// bytedfa.h - an automaton over characters, spelt in bytes: as plain UTF-8, or as a JSON string with its quotes.
//
// In a JSON string every character stands for itself but the quote, the backslash and control characters, which have one
// escape each (the short one, else \u00xx): one value has one spelling, so patterns, lengths and names hold for the value.
// Invalid UTF-8 and surrogates have no path. From every state an end can be reached. Immutable.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/grammar/chardfa.h"

enum { BYTEDFA_DEAD = 0, BYTEDFA_START = 1, BYTEDFA_STATES = 20000 };
#define BYTEDFA_ENDLESS UINT32_MAX

enum bytedfa_flag {
    BYTEDFA_ACCEPT = 1,
    BYTEDFA_MORE = 2,   // a byte can follow
    BYTEDFA_PLAIN = 4,  // every character that stands for itself in a JSON string leads back here
    BYTEDFA_LONG = 8,   // every character of several bytes does
};

struct bytedfa {
    uint32_t nstates, nclasses;
    uint8_t classes[256];
    uint32_t *next;  // [nstates, nclasses]
    uint8_t *flags;
    uint32_t *ends;  // with counts: how many strings lead from a state to an end; BYTEDFA_ENDLESS: too many
    uint64_t never[4];  // bits: bytes that lead nowhere from any state
    size_t bytes;    // of memory
};

static inline uint32_t bytedfa_next(const struct bytedfa *d, uint32_t state, uint8_t byte)
{
    return d->next[(size_t)state * d->nclasses + d->classes[byte]];
}

// counts: fill `ends`.
MUST_CHECK err_code bytedfa_make(const struct chardfa *c, bool json, bool counts, struct bytedfa **ret_dfa, err *e);
// From finished states: row 0 is dead, 1 the start. Adds BYTEDFA_MORE. Copies.
struct bytedfa_row {
    uint32_t next[256];
};
struct bytedfa *bytedfa_of_rows(const struct bytedfa_row *rows, const uint8_t *flags, uint32_t n);
void bytedfa_free(struct bytedfa *d);
