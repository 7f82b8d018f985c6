// number.h - JSON numbers within bounds as an automaton over characters.
//
// A value has one spelling but for trailing zeros: no exponent for integers and for anything with bounds, never -0, at most
// 18 digits in front (so that every reader holds it) and 17 behind unless a bound needs more.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/grammar/chardfa.h"
#include "engine/grammar/decimal.h"

enum { NUMBER_MAX_MULTIPLE = 1024 };

struct number_spec {
    bool integer;
    const struct decimal *min, *max;        // NULL: none
    bool exclusive_min, exclusive_max;
    uint32_t multiple;                      // 0: any; else 1 .. NUMBER_MAX_MULTIPLE, and no fraction
};

MUST_CHECK err_code number_compile(const struct number_spec *s, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e);
