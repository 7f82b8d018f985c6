// avx512_tile.h - integer block matrices with AVX-512 VNNI. Included by the files that compile it for some forms. Any
// lane; scratch is on the stack.
//
// VPDPBUSD sums four products of unsigned codes and signed activations into int32 without saturating, so a code may use
// all 8 bits. Very few tokens take 8 rows in 256-bit registers, one stream of weights; more take 16 rows, whose codes of a
// block fill 8 registers (avx512_codes.h), up to 8 of them with their sums in registers.
#pragma once

#if defined(__AVX512VNNI__)

#include "kernels/cpu/avx512_codes.h"
#include "kernels/cpu/x86_few.h"

// A half's sum times its scale. A sum that fits int16 is multiplied as a pair with 0: half the work of VPMULLD.
INLINE __m256i scaled(enum mat_form f, __m256i sum, __m256i scale)
{
    int top = most(f) - mat_traits[f].zero > mat_traits[f].zero ? most(f) - mat_traits[f].zero : mat_traits[f].zero;
    if (is_signed(f) || top * 127 * 16 > 32767)
        return _mm256_mullo_epi32(sum, scale);
    if (mat_traits[f].scales != MAT_SCALES_U4_16)  // no sign in the upper half
        scale = _mm256_and_si256(scale, _mm256_set1_epi32(0xffff));
    return _mm256_madd_epi16(sum, scale);
}

static inline __attribute__((always_inline)) __m256i dot(enum mat_form f, const __m256i w[8], const struct scales *s,
                                                         const struct entry *x, __m256i *ret_second)
{
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i flip = _mm256_set1_epi8(-128);
    bool halves = is_scaled16(f) || is_split(f);
    if (halves && offset_of(f)) {
        const int zero = -offset_of(f);
        sum[0] = _mm256_madd_epi16(_mm256_set1_epi32(zero & 0xffff), broadcast4(x->pairs));
        sum[1] = _mm256_madd_epi16(_mm256_set1_epi32(zero * 65536), broadcast4(x->pairs));
    } else if (offset_of(f)) {
        sum[0] = _mm256_set1_epi32(-offset_of(f) * x->sum);
    }
    for (int j = 0; j < 8; j++) {
        __m256i u = is_signed(f) ? _mm256_xor_si256(w[j], flip) : w[j];
        sum[j / 4] = _mm256_dpbusd_epi32(sum[j / 4], u, broadcast4(x->q + 4 * j));
    }
    for (int h = 0; h < 2 && is_scaled16(f); h++)
        sum[h] = scaled(f, sum[h], s->s[h]);
    *ret_second = sum[1];
    return is_split(f) ? sum[0] : _mm256_add_epi32(sum[0], sum[1]);
}

// ---- 16 rows

INLINE void sums_of_halves(enum mat_form f, const struct block16 *b, const struct acts *a, size_t at, __m512i sum[2])
{
    const __m512i *w = b->w;
    const int8_t *q = a->q + 32 * at;
    if (is_flipped(f)) {
        const uint8_t *u = (const uint8_t *)a->wide + 32 * at;
        sum[0] = b->start[0];
        sum[1] = b->start[1];
        for (int j = 0; j < 4; j++) {
            sum[0] = _mm512_dpbusd_epi32(sum[0], broadcast16(u + 4 * j), w[j]);
            sum[1] = _mm512_dpbusd_epi32(sum[1], broadcast16(u + 16 + 4 * j), w[4 + j]);
        }
        return;
    }
    sum[0] = sum[1] = _mm512_setzero_si512();
    if (offset_of(f))
        sum[0] = _mm512_sub_epi32(sum[0], times32(broadcast16(a->sums + at), offset_of(f)));
    for (int j = 0; j < 4; j++) {
        sum[0] = _mm512_dpbusd_epi32(sum[0], w[j], broadcast16(q + 4 * j));
        sum[1] = _mm512_dpbusd_epi32(sum[1], w[4 + j], broadcast16(q + 16 + 4 * j));
    }
}

// The step of the chain of 16 rows. Sums of scaled halves stay below 2^24, so their products are exact in f32 too.
INLINE __m512 advance16(enum mat_form f, __m512 acc, const struct block16 *b, const struct acts *a, const int32_t *pairs,
                        size_t at)
{
    __m512i sum[2];
    __m512 dx = _mm512_set1_ps(a->d[at]), isum;
    sums_of_halves(f, b, a, at, sum);
    if (is_split(f)) {
        acc = _mm512_fmadd_ps(_mm512_mul_ps(dx, _mm512_cvtepi32_ps(sum[0])), b->half[0], acc);
        return _mm512_fmadd_ps(_mm512_mul_ps(dx, _mm512_cvtepi32_ps(sum[1])), b->half[1], acc);
    }
    if (has_halves(f))
        isum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[0]), b->s[0], _mm512_mul_ps(_mm512_cvtepi32_ps(sum[1]), b->s[1]));
    else
        isum = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[0], sum[1]));
    if (is_negative(f))
        return _mm512_fnmadd_ps(_mm512_mul_ps(dx, isum), b->d, acc);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(dx, isum), b->d, acc);
    if (has_add(f))
        return _mm512_fmadd_ps(b->m, _mm512_set1_ps(a->sx[at]), acc);
    if (has_min16(f)) {
        __m512i min = _mm512_madd_epi16(b->min, broadcast16(pairs + 2 * at));
        return _mm512_fnmadd_ps(b->m, _mm512_mul_ps(dx, _mm512_cvtepi32_ps(min)), acc);
    }
    return has_min(f) ? _mm512_fnmadd_ps(b->m, _mm512_set1_ps(a->sx[at]), acc) : acc;
}

// Groups g and g + 1 for one token tile; when g + 1 is not this lane's the second result is not stored. few: a constant
// number of tokens whose sums stay in registers, or 0.
INLINE void pair_of_groups(enum mat_form f, int few, const struct mat *m, const struct acts *a, float *y, int ldy, int g,
                           int g1, int at_tile, enum mat_write write)
{
    _Alignas(64) float acc[ACT_TILE * 16];
    const int size = block_of(f, m), head = head_of(f, m), n = few ? few : acts_tile(a, at_tile), records = m->cols / size;
    const bool alone = g + 1 == g1;
    const int32_t *pairs = acts_pairs(a);
    const __m512i table = load_table16(f, m);
    size_t bytes = (size_t)records * (size_t)record_of(f, m), at = acts_base(a, at_tile);
    const uint8_t *record[2] = {m->data + (size_t)g * bytes, m->data + (size_t)(alone ? g : g + 1) * bytes};
    const uint8_t *next = record[0] + (g + 2 < g1 ? 2 * bytes : 0);
    __m512 sum[FEW_TOKENS];
    for (int k = 0; k < few; k++)
        sum[k] = _mm512_setzero_ps();
    __m512 zero = _mm512_setzero_ps();
    __asm__("" : "+v"(zero));  // a call of memset would cost more than these stores
    for (int k = 0; k < n && !few; k++)
        _mm512_store_ps(acc + 16 * k, zero);
    for (int i = 0; i < records; i++) {
        struct scales numbers[2] = {load_numbers(f, m, record[0]), load_numbers(f, m, record[1])};
        for (int b = 0; b < size / 32; b++, at += (size_t)n) {
            struct block16 block;
            next = fetch_next(next, 2 * record_of(f, m) / (size / 32));
            load_block16(f, table, numbers, record, head, b, &block);
            UNROLL for (int k = 0; k < few; k++)
                sum[k] = advance16(f, sum[k], &block, a, pairs, at + (size_t)k);
            for (int k = 0; k < n && !few; k++) {
                float *to = acc + 16 * k;
                _mm512_store_ps(to, advance16(f, _mm512_load_ps(to), &block, a, pairs, at + (size_t)k));
            }
        }
        record[0] += record_of(f, m);
        record[1] += record_of(f, m);
    }
    for (int k = 0; k < few; k++)
        _mm512_store_ps(acc + 16 * k, sum[k]);
    y += (size_t)at_tile * ACT_TILE * (size_t)ldy + 8 * g;
    for (int k = 0; k < n; k++, y += ldy) {
        put8(y, _mm256_load_ps(acc + 16 * k), m->rows - 8 * g, write);
        if (!alone)
            put8(y + 8, _mm256_load_ps(acc + 16 * k + 8), m->rows - 8 * g - 8, write);
    }
}

// Tokens up to which 8 rows at a time are as fast: one stream of weights, and memory is the limit.
INLINE int narrow(enum mat_form f)
{
    return mat_traits[f].plane == MAT_PLANE_BYTES ? 4 : 2;
}

INLINE void multiply(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                     enum mat_write write)
{
    switch (a->n) {
#define FEW(n)                                                                                                         \
    case n:                                                                                                            \
        if (n <= narrow(f)) {                                                                                          \
            few_tokens(f, n, m, a, y, ldy, g0, g1, write);                                                             \
        } else {                                                                                                       \
            for (int g = g0; g < g1; g += 2)                                                                           \
                pair_of_groups(f, n, m, a, y, ldy, g, g1, 0, write);                                                   \
        }                                                                                                              \
        break;
        FEW(1) FEW(2) FEW(3) FEW(4) FEW(5) FEW(6) FEW(7) FEW(8)
#undef FEW
    default:
        for (int tile = 0; tile * ACT_TILE < a->n; tile++) {
            for (int g = g0; g < g1; g += 2)
                pair_of_groups(f, 0, m, a, y, ldy, g, g1, tile, write);
        }
    }
}

#define KERNELS(F)                                                                                                     \
    void avx512_mat_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                  \
                        enum mat_write write)                                                                          \
    {                                                                                                                  \
        multiply(MAT_FORM_##F, m, a, y, ldy, g0, g1, write);                                                           \
    }

#endif
