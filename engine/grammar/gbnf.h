// gbnf.h - llama.cpp's grammar notation (GBNF) as nodes.
//
//     root  ::= item ("," item){0,9}     # comment
//     item  ::= [a-z]+ | "\"" . "\""
//
// ERR_INVALID: a faulty grammar, one without `root`, or one that can write nothing; ERR_UNSUPPORTED: left recursion and
// token terminals.
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "engine/grammar/nodes.h"

// Fills g (nodes_init before) and returns the root in *ret_root.
MUST_CHECK err_code gbnf_compile(const char *text, size_t len, struct nodes *g, uint32_t *ret_root, err *e);
