// blocks.h - blocks of any storage type that a file could hold: random ones, and ones at the ends of their range.
//
//     blocks_random(QUANT_Q4_K, rows, n, 7, -3);            // numbers with an rms near 2^-3; stream 7
//     blocks_extreme(QUANT_Q4_K, rows, n, BLOCKS_ONES);     // all codes and sub-scales the same bits, scales exactly 1
//
// A type without a line in blocks.def gets bytes whose second highest bit is clear: no f16 in them is infinite or NaN.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant.h"

// Every byte 0xff, 0, 0x80, 0x7f; bytes 0 and 0xff in turn; random.
enum blocks_pattern { BLOCKS_ONES, BLOCKS_ZEROS, BLOCKS_TOP, BLOCKS_REST, BLOCKS_MIXED, BLOCKS_CODES, BLOCKS_PATTERNS };

bool blocks_known(enum quant_type type);

// n blocks. The bytes are a function of the arguments, the same as in tests/reference/make_types.py.
void blocks_random(enum quant_type type, uint8_t *dst, size_t n, uint64_t stream, int exponent);
// Any bits at all, but no scale that is infinite or NaN: tiny, subnormal, zero and huge ones occur.
void blocks_any(enum quant_type type, uint8_t *dst, size_t n, uint64_t stream);
// All bytes after `pattern`, scales exactly 1.
void blocks_extreme(enum quant_type type, uint8_t *dst, size_t n, enum blocks_pattern pattern);
