// mat_ops.h - the matrix slots of an instruction set, and the packed layouts they read.
//
// Integer blocks ("R8"). Eight rows are interleaved: a 32-byte vector holds 4 consecutive k of each of 8 rows, one
// 32-bit lane a row, so no sum crosses lanes. A group of 8 rows is cols/block records of mat_record_bytes():
//
//   type    k    record
//   Q4_0    32   8 f16 d; 4 vectors, low nibbles k = 4j.., high nibbles k = 16 + 4j.. (j = 0..3)
//   IQ4_NL  32   the same; a nibble is an index into the table of 16 values
//   Q4_1    32   8 f16 d; 8 f16 m; 4 vectors as Q4_0
//   Q5_0    32   8 f16 d; 4 vectors as Q4_0; 1 vector of high bits: bit j of byte i of row r is that of k = 4j + i
//   Q5_1    32   8 f16 d; 8 f16 m; 4 + 1 vectors as Q5_0
//   Q8_0    32   8 f16 d; 8 vectors
//   Q4_K    256  8 f16 d; 8 f16 dmin; u8 scale[8 blocks][8 rows]; u8 min[8][8]; 8 x 4 vectors as Q4_0
//   Q5_K    256  as Q4_K with 8 x (4 + 1) vectors as Q5_0
//   IQ4_XS  256  8 f16 d; i8 scale[8][8]; 8 x 4 vectors as IQ4_NL
//   Q6_K    256  8 f16 d; i8 scale[16][8]; 8 x (4 vectors of low nibbles as Q4_0, 2 vectors of high bits: bits 2f..2f+1
//                of a byte of vector h belong to k = 4(4h + f) + i)
//   Q3_K    256  8 f16 d; i8 scale[16][8]; 8 x (2 vectors of low bits as Q6_K's high ones, 1 vector of high bits as Q5_0)
//   Q2_K    256  8 f16 d; 8 f16 dmin; u8 scale | min << 4 [16][8]; 8 x 2 vectors of two bits
//
// Floats. 32 rows are interleaved, [32-row block][k][32]; the last block is as narrow as its groups: 8, 16 or 24.
#pragma once

#include <stdint.h>

#include "kernels/mat.h"

enum { MAT_BLOCK = 32, MAT_WIDE = 32, ACT_TILE = 64 };

// One row's 32 integers of a packed record: value k is (d * s[k/16]) * v[k] - min * m[k/16].
struct mat_codes {
    int v[MAT_BLOCK];
    int s[2], m[2];
    float d, min;
    bool has_min;
};

struct mat_ops {
    // One token's blocks to int8: block b's entries lie b * stride further (q: b * stride * 32, pairs: 2 * b * stride).
    // amax is the largest |x|, d = amax/127, q = rint(x * (127/amax)). A block whose amax is below 1e-30 is zero; a NaN
    // or an infinity makes d NaN or infinite and q at least -127: the row's results are NaN or infinite, no more.
    // sx = d * (float)sum. pairs: for each 16, int16 sums of k mod 4 < 2 (low half) and the rest (high half).
    void (*quantize)(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                     int32_t *pairs);
    // q to int16 for a step of more than 3 tokens, k = 0 2 1 3 of every four; the same strides. NULL: not used.
    void (*widen)(const int8_t *q, int nblocks, int stride, int16_t *wide);
    // Continues the chains of 8*ng rows and n tokens over k elements: acc[t][row] += w[k][row] * x[t][k]. The rows of
    // one k lie side by side, `width` elements between k; w is f32, f16 or bf16.
    void (*chain_f32)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    void (*chain_f16)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    void (*chain_bf16)(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
    // Row groups g0..g1 times all tokens. NULL: ref's is taken.
    void (*int8[QUANT_COUNT])(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                              enum mat_write write);
    // A packed record's weights as numbers: dst[k * MAT_WIDE + row]. NULL: ref's is taken.
    void (*panel[QUANT_COUNT])(const uint8_t *record, float *dst);
    // Ceilings for cpu_measure: `rounds` repetitions of the densest arithmetic on registers, returning the number of
    // operations (a multiplication and an addition are two); and a sum over a 64-byte aligned buffer.
    double (*peak_fma)(long rounds);
    double (*peak_int8)(long rounds);
    uint64_t (*peak_read)(const uint8_t *p, size_t bytes);
};

// ---- packed integer blocks (mat_pack.c)
bool mat_pack_has(enum quant_type type);
int mat_pack_block(enum quant_type type);   // k per record
int mat_pack_bytes(enum quant_type type);   // bytes per record (8 rows)
// Row r (0..7) of the b-th 32-block of a record.
void mat_pack_codes(enum quant_type type, const uint8_t *record, int b, int r, struct mat_codes *ret_codes);

extern const int8_t mat_pack_iq4_values[16];

// ---- packed activations: tiles of ACT_TILE tokens, each [block][token][32]
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

static inline const int32_t *acts_pairs(const struct acts *a)  // two for each entry
{
    return a->sums + (size_t)a->max * (size_t)(a->cols / MAT_BLOCK);
}
