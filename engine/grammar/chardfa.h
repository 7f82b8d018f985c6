// chardfa.h - deterministic automata over characters (Unicode scalar values): what a string may be, before it is spelt in
// bytes. Patterns, formats, numbers, lengths and sets of names are all made into these, combined, and only then turned
// into bytes (bytedfa.h).
//
//     struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
//     if (regex_compile("^a+$", 4, true, &b, &a, e) || chardfa_length(a, 2, 5, &b, &both, e)) ...
//
// Every automaton is trimmed (from each state but a lone start one an end can be reached) and, unless it is large,
// minimal. Immutable once made. The budget bounds what a hostile pattern can cost; past it ERR_TOO_LARGE.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CHARDFA_STATES = 8192, CHARDFA_WORK = 4000000, CHARDFA_LAST = 0x10FFFF };
#define CHARDFA_NO_LIMIT UINT32_MAX

struct chardfa_edge {
    uint32_t lo, hi, to;
};
struct chardfa_state {
    uint32_t first, n;  // edges [first, first + n), ascending and disjoint
    bool accept;
};
struct chardfa {
    struct chardfa_state *states;  // state 0 is the start
    struct chardfa_edge *edges;
    uint32_t nstates, nedges;
};

struct chardfa_budget {
    size_t states;  // of one automaton
    size_t work;    // edges looked at, all together; counted down
};

// A lazily described automaton: states are byte strings (keys). edges calls chardfa_edge for disjoint, ascending ranges.
struct chardfa_explorer;
struct chardfa_source {
    void *ud;
    bool (*accepts)(void *ud, const void *key, size_t len);
    void (*edges)(void *ud, const void *key, size_t len, struct chardfa_explorer *x);
};
void chardfa_edge(struct chardfa_explorer *x, uint32_t lo, uint32_t hi, const void *key, size_t len);
MUST_CHECK err_code chardfa_explore(const struct chardfa_source *s, const void *start, size_t len,
                                    struct chardfa_budget *b, struct chardfa **ret_dfa, err *e);
void chardfa_free(struct chardfa *d);

struct chardfa *chardfa_any(void);  // every string
// Texts are valid UTF-8.
MUST_CHECK err_code chardfa_texts(const char *const *texts, const size_t *lens, size_t n, struct chardfa_budget *b,
                                  struct chardfa **ret_dfa, err *e);
MUST_CHECK err_code chardfa_intersect(const struct chardfa *x, const struct chardfa *y, struct chardfa_budget *b,
                                      struct chardfa **ret_dfa, err *e);
MUST_CHECK err_code chardfa_minus(const struct chardfa *x, const struct chardfa *y, struct chardfa_budget *b,
                                  struct chardfa **ret_dfa, err *e);
// Those of min to max characters; max CHARDFA_NO_LIMIT: any number.
MUST_CHECK err_code chardfa_length(const struct chardfa *x, uint32_t min, uint32_t max, struct chardfa_budget *b,
                                   struct chardfa **ret_dfa, err *e);
bool chardfa_is_empty(const struct chardfa *d);
bool chardfa_matches(const struct chardfa *d, const char *text, size_t len);  // false too for what is not UTF-8
