// encode.h - floats to blocks: the two types that `oxinferd quantize` writes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// n floats (a multiple of 32) to blocks of Q8_0 or Q4_1. False, with dst undefined, when a number is not finite or a block's
// scale passes what f16 holds.
//
// Q8_0: d = amax / 127, rounded to f16; q = the nearest multiple of it.
// Q4_1: d and m minimise the squared error: for several steps around (max - min) / 15 the codes are rounded and d and m then
// solved for, and the best is taken with d and m as f16. After that no code can change to a better one.
bool quant_encode_q8_0(const float *src, uint8_t *dst, size_t n);
bool quant_encode_q4_1(const float *src, uint8_t *dst, size_t n);
