// format.h - JSON Schema's formats as automata over characters.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/chardfa.h"

enum format_use {
    FORMAT_ENFORCED,
    FORMAT_REFUSED,     // JSON Schema defines it, and it is not built
    FORMAT_ANNOTATION,  // JSON Schema does not define it: it says nothing
};
enum format_use format_find(const char *name);
// Of an enforced one. Patterns are ours and compile.
MUST_CHECK err_code format_compile(const char *name, struct chardfa_budget *b, struct chardfa **ret_dfa, err *e);
