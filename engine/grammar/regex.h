// regex.h - a pattern (ECMA-262 with the u flag, and what Rust and Python write alike) as an automaton over characters.
//
// Groups of every kind but look-around, lazy and greedy repetition, classes, escapes, \p{..} of general categories, ^ and
// $ anywhere, a leading (?i) or (?s). What no automaton can do or that is not built (back-references, look-around, \b,
// flags inside) is ERR_UNSUPPORTED; a faulty pattern is ERR_INVALID; too large a one ERR_TOO_LARGE.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/chardfa.h"

// search: it may match anywhere in the text (JSON Schema); else it must match all of it.
MUST_CHECK err_code regex_compile(const char *pattern, size_t len, bool search, struct chardfa_budget *b,
                                  struct chardfa **ret_dfa, err *e);
