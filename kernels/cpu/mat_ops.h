// mat_ops.h - the matrix slots of an instruction set. kernels/mat_pack.h has the packed layouts they read.
#pragma once

#include <stdint.h>

#include "kernels/mat.h"

enum { MAT_WIDE = 32, ACT_TILE = 64 };

struct mat_ops {
    // One token's blocks to int8: block b's entries lie b * stride further (q: b * stride * 32, pairs: 2 * b * stride).
    // amax is the largest |x|, d = amax/127, q = rint(x * (127/amax)). A block whose amax is below 1e-30 is zero; a NaN
    // or an infinity makes d NaN or infinite and q at least -127: the row's results are NaN or infinite, no more.
    // sx = d * (float)sum. pairs: for each 16, int16 sums of k mod 4 < 2 (low half) and the rest (high half);
    // AVX-512 has the sums of the two 16 there instead, as one pair.
    void (*quantize)(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                     int32_t *pairs);
    // The instruction set's own second form of q for a step of more than 2 tokens: entries `at`, at + stride ... of q to
    // those of wide, which has wide_bytes an entry. NULL: not used.
    void (*widen)(const int8_t *q, size_t at, int nblocks, int stride, void *wide);
    int wide_bytes;
    // Both for n tokens of one tile, a multiple of 8, of rows of ldx floats, whose entries begin at `at`. NULL: one by one.
    void (*quantize_rows)(const struct acts *a, const float *x, int ldx, int n, int nblocks, int stride, size_t at);
    // Continues the chains of 8*ng rows and n tokens over k elements: acc[t][row] += w[k][row] * x[t][k]. The rows of
    // one k lie side by side, `width` elements between k; w is f32, f16 or bf16.
    void (*chain_f32)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    void (*chain_f16)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    void (*chain_bf16)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    // The same of bf16 by bf16, k in pairs side by side (kernels/mat.h: bf16 path): acc[t][row] goes on over n_pairs pairs.
    // w's pairs of one k lie `width` pairs after those before, x has rows of ldx numbers.
    void (*pairs)(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs);
    // n floats to bf16 as that path takes them, with a 0 after an odd number. A NaN stays one.
    void (*to_bf16)(const float *x, int n, uint16_t *dst);
    // Row groups g0..g1 times all tokens. NULL: ref's is taken.
    void (*int8[MAT_FORM_COUNT])(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                              enum mat_write write);
    // A packed record's weights as numbers: dst[k * MAT_WIDE + row]. NULL: ref's is taken.
    void (*panel[MAT_FORM_COUNT])(const struct mat *m, const uint8_t *record, float *dst);
    // Ceilings for cpu_measure: `rounds` repetitions of the densest arithmetic on registers, returning the number of
    // operations (a multiplication and an addition are two); and a sum over a 64-byte aligned buffer.
    double (*peak_fma)(long rounds);
    double (*peak_int8)(long rounds);
    double (*peak_bf16)(long rounds);  // NULL, or 0: products of bf16 are FMAs
    uint64_t (*peak_read)(const uint8_t *p, size_t bytes);
};

// ---- packed activations
// The rows the integer kernels see: fine activations have two a token. Without x: lanes may share one struct, and the
// one that has token 0 writes that while others are here.
static inline struct acts acts_rows(const struct acts *a)
{
    return (struct acts){.math = a->math, .n = a->fine ? 2 * a->n : a->n, .max = a->max, .cols = a->cols, .q = a->q,
                         .wide = a->wide, .d = a->d, .sx = a->sx, .sums = a->sums};
}

// Tiles of ACT_TILE rows, each [block][token][32]
// Entry of token t, block b: tile base + b * tile width + t in the tile.
static inline int acts_tile(const struct acts *a, int tile)  // tokens in it
{
    int left = a->n - tile * ACT_TILE;
    return left < ACT_TILE ? left : ACT_TILE;
}

static inline size_t acts_base(const struct acts *a, int tile)
{
    return (size_t)tile * ACT_TILE * (size_t)(a->cols / MAT_BLOCK);
}

// Numbers of a row of bf16: an odd number of cache lines, so that rows do not all lie in one set of a cache.
static inline int acts_row16(int cols)
{
    return ((cols + 31) / 32 | 1) * 32;
}

static inline const int32_t *acts_pairs(const struct acts *a)  // two for each entry
{
    return a->sums + (size_t)a->max * (size_t)(a->cols / MAT_BLOCK);
}
