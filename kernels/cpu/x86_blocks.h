// x86_blocks.h - reading packed integer blocks (mat_ops.h) with AVX2, and the kernel for a few tokens. Included by the
// files of one instruction set each, which first define
//
//     static __m256i dot(enum quant_type type, const __m256i w[8], const struct scales *s, const struct entry *x);
//
// the exact integer sum of one 32-block for 8 rows. `type` is a constant in every call, so each switch is decided when
// the file is compiled.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/mat_ops.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

struct scales {
    __m256 d, m;      // of the 32-block; m as subtracted, or as added for Q4_1 and Q5_1
    __m256i s[2];     // of its halves, int16, twice in each lane
    __m256i min[2];   // Q2_K: minimums of the halves likewise
};

// One token's activations of one block.
struct entry {
    const int8_t *q;
    const int32_t *pairs;
    float d, sx;
    int32_t sum;
};

INLINE bool halved(enum quant_type t)  // scales belong to 16 elements
{
    return t == QUANT_Q6_K || t == QUANT_Q3_K || t == QUANT_Q2_K;
}

INLINE bool has_min(enum quant_type t)  // one minimum for the 32
{
    return t == QUANT_Q4_1 || t == QUANT_Q5_1 || t == QUANT_Q4_K || t == QUANT_Q5_K;
}

INLINE bool is_signed(enum quant_type t)  // codes are int8 over the whole range
{
    return t == QUANT_Q8_0 || t == QUANT_IQ4_NL || t == QUANT_IQ4_XS;
}

INLINE bool five_bits(enum quant_type t)
{
    return t == QUANT_Q5_0 || t == QUANT_Q5_1 || t == QUANT_Q5_K;
}

INLINE int zero_point(enum quant_type t)
{
    return t == QUANT_Q4_0 ? 8 : t == QUANT_Q5_0 ? 16 : t == QUANT_Q6_K ? 32 : t == QUANT_Q3_K ? 4 : 0;
}

INLINE int block_of(enum quant_type t)
{
    return halved(t) || t == QUANT_Q4_K || t == QUANT_Q5_K || t == QUANT_IQ4_XS ? 256 : 32;
}

INLINE int head_of(enum quant_type t)  // bytes before the bit planes
{
    switch (t) {
    case QUANT_Q4_1:
    case QUANT_Q5_1:
        return 32;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
    case QUANT_Q2_K:
        return 160;
    case QUANT_Q3_K:
    case QUANT_Q6_K:
        return 144;
    case QUANT_IQ4_XS:
        return 80;
    default:
        return 16;
    }
}

INLINE int step_of(enum quant_type t)  // bytes of bit planes per 32-block
{
    return five_bits(t) ? 160 : t == QUANT_Q8_0 ? 256 : t == QUANT_Q6_K ? 192 : t == QUANT_Q3_K ? 96
         : t == QUANT_Q2_K ? 64 : 128;
}

INLINE int record_of(enum quant_type t)
{
    return head_of(t) + block_of(t) / 32 * step_of(t);
}

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256 load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 u8_to_f32(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256 i8_to_f32(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE __m256i twice_i16(__m128i bytes)  // 8 int8 -> int16, each twice
{
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
}

// Scales of the b-th 32-block of a record whose f16 numbers are d and m.
INLINE struct scales load_scales(enum quant_type t, const uint8_t *record, int b, __m256 d, __m256 m)
{
    struct scales s = {.d = d, .m = m};
    if (t == QUANT_Q4_K || t == QUANT_Q5_K) {
        s.d = _mm256_mul_ps(d, u8_to_f32(record + 32 + 8 * b));
        s.m = _mm256_mul_ps(m, u8_to_f32(record + 96 + 8 * b));
    } else if (t == QUANT_IQ4_XS) {
        s.d = _mm256_mul_ps(d, i8_to_f32(record + 16 + 8 * b));
    } else if (halved(t)) {
        for (int h = 0; h < 2; h++) {
            const uint8_t *at = record + (t == QUANT_Q2_K ? 32 : 16) + 16 * b + 8 * h;
            __m128i v = _mm_loadl_epi64((const __m128i *)at);
            if (t == QUANT_Q2_K) {
                s.min[h] = twice_i16(_mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15)));
                v = _mm_and_si128(v, _mm_set1_epi8(15));
            }
            s.s[h] = twice_i16(v);
        }
    }
    return s;
}

INLINE void nibbles(const uint8_t *p, __m256i w[8])
{
    const __m256i low = _mm256_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m256i v = load(p + 32 * j);
        w[j] = _mm256_and_si256(v, low);
        w[4 + j] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
}

// Two-bit fields of vector v (k-groups 4h..4h+3) moved to bit `to` of their bytes, for f = 0..3.
INLINE __m256i two_bits(__m256i v, int f, int to)
{
    int shift = 2 * f - to;
    v = shift > 0 ? _mm256_srli_epi16(v, shift) : _mm256_slli_epi16(v, -shift);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(3 << to)));
}

INLINE __m256i one_bit(__m256i v, int j, int to)
{
    int shift = j - to;
    v = shift > 0 ? _mm256_srli_epi16(v, shift) : _mm256_slli_epi16(v, -shift);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(1 << to)));
}

// The codes of a 32-block: w[j] holds k = 4j..4j+3 of 8 rows; unsigned, or int8 for the signed types.
INLINE void load_codes(enum quant_type t, const uint8_t *p, __m256i w[8])
{
    if (t == QUANT_Q8_0) {
        for (int j = 0; j < 8; j++)
            w[j] = load(p + 32 * j);
        return;
    }
    if (t == QUANT_Q2_K || t == QUANT_Q3_K) {
        for (int j = 0; j < 8; j++)
            w[j] = two_bits(load(p + 32 * (j / 4)), j % 4, 0);
        __m256i high = t == QUANT_Q3_K ? load(p + 64) : _mm256_setzero_si256();
        for (int j = 0; j < 8 && t == QUANT_Q3_K; j++)
            w[j] = _mm256_or_si256(w[j], one_bit(high, j, 2));
        return;
    }
    nibbles(p, w);
    if (five_bits(t)) {
        __m256i high = load(p + 128);
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_or_si256(w[j], one_bit(high, j, 4));
    } else if (t == QUANT_Q6_K) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_or_si256(w[j], two_bits(load(p + 128 + 32 * (j / 4)), j % 4, 4));
    } else if (is_signed(t)) {
        __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)mat_pack_iq4_values));
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_shuffle_epi8(table, w[j]);
    }
}

INLINE struct entry entry_at(const struct acts *a, const int32_t *pairs, size_t at)
{
    return (struct entry){a->q + 32 * at, pairs + 2 * at, a->d[at], a->sx[at], a->sums[at]};
}

// The step of the chain of 8 rows for one token.
INLINE __m256 advance(enum quant_type t, __m256 acc, __m256i isum, const struct scales *s, const struct entry *x)
{
    __m256 dx = _mm256_set1_ps(x->d);
    acc = _mm256_fmadd_ps(_mm256_mul_ps(dx, _mm256_cvtepi32_ps(isum)), s->d, acc);
    if (t == QUANT_Q4_1 || t == QUANT_Q5_1)
        acc = _mm256_fmadd_ps(s->m, _mm256_set1_ps(x->sx), acc);
    else if (has_min(t))
        acc = _mm256_fnmadd_ps(s->m, _mm256_set1_ps(x->sx), acc);
    if (t == QUANT_Q2_K) {
        __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(s->min[0], broadcast4(x->pairs)),
                                       _mm256_madd_epi16(s->min[1], broadcast4(x->pairs + 1)));
        acc = _mm256_fnmadd_ps(s->m, _mm256_mul_ps(dx, _mm256_cvtepi32_ps(sum)), acc);
    }
    return acc;
}

// How far ahead of a block's planes memory is asked for: memory's latency is the work of several blocks of few tokens,
// or of one block of many.
INLINE int fetch_ahead(enum quant_type t, int n)
{
    int block = step_of(t) + head_of(t) * 32 / block_of(t);
    return n >= 32 ? block + head_of(t) : block * (64 / n + 1);
}

// Writes 8 results, `left` of which exist.
INLINE void put8(float *y, __m256 v, int left, enum mat_write write)
{
    if (left >= 8) {
        _mm256_storeu_ps(y, write == MAT_ADD ? _mm256_add_ps(_mm256_loadu_ps(y), v) : v);
        return;
    }
    float r[8];
    _mm256_storeu_ps(r, v);
    for (int i = 0; i < left; i++)
        y[i] = write == MAT_ADD ? y[i] + r[i] : r[i];
}

static inline __m256i dot(enum quant_type type, const __m256i w[8], const struct scales *s, const struct entry *x);

enum { FEW_TOKENS = 8 };

// A few tokens (a constant n): a block's codes and the n sums stay in registers, the weights are one stream.
INLINE void few_tokens(enum quant_type t, int n, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                       int g1, enum mat_write write)
{
    int records = m->cols / block_of(t);
    const int32_t *pairs = acts_pairs(a);
    const uint8_t *record = m->data + (size_t)g0 * (size_t)records * (size_t)record_of(t);
    for (int g = g0; g < g1; g++) {
        __m256 acc[FEW_TOKENS];
        size_t at = 0;
        UNROLL for (int k = 0; k < n; k++)
            acc[k] = _mm256_setzero_ps();
        for (int i = 0; i < records; i++, record += record_of(t)) {
            __m256 d = load_f16(record), min = has_min(t) || t == QUANT_Q2_K ? load_f16(record + 16) : d;
            for (int b = 0; b < block_of(t) / 32; b++, at += (size_t)n) {
                struct scales s = load_scales(t, record, b, d, min);
                __m256i w[8];
                load_codes(t, record + head_of(t) + b * step_of(t), w);
                UNROLL for (int k = 0; k < n; k++) {
                    struct entry x = entry_at(a, pairs, at + (size_t)k);
                    acc[k] = advance(t, acc[k], dot(t, w, &s, &x), &s, &x);
                }
            }
        }
        UNROLL for (int k = 0; k < n; k++)
            put8(y + (size_t)k * (size_t)ldy + 8 * g, acc[k], m->rows - 8 * g, write);
    }
}

#endif
