// avx2_dot.h - exact integer sums of a 32-block with AVX2, for up to three tokens.
//
// The building brick is VPMADDUBSW: unsigned codes times signed activations, summed in pairs to int16. The pairs must not
// saturate (2 * code * 127 <= 32767); sums of them are added in int16 and may wrap, as long as the final value, corrected
// for the code's zero point, fits. Integer sums are exact, so this order of work is free; the float chain is not.
#pragma once

#if defined(__AVX2__)

#include "kernels/cpu/x86_few.h"

// Products a lane may sum in int16: 16 (8 VPMADDUBSW) or 8. The codes as they are fit, or less `center`.
INLINE int center_of(enum mat_form f)
{
    if (is_signed(f))
        return 0;
    int products = is_scaled16(f) || is_split(f) ? 8 : 16, top = most(f);
    if (top * 127 * products <= 32767)
        return 0;
    return (top + 1) / 2;
}

INLINE bool sums16(enum mat_form f)  // all 32 k in one int16 sum
{
    int top = center_of(f) ? center_of(f) : most(f);
    return !is_scaled16(f) && !is_split(f) && top * 127 * 16 <= 32767;
}

INLINE __m256i times16(__m256i v, int factor)  // a constant factor
{
    if ((factor & (factor - 1)) == 0)
        return _mm256_slli_epi16(v, __builtin_ctz((unsigned)factor));
    return _mm256_mullo_epi16(v, _mm256_set1_epi16((short)factor));
}

// What an int16 sum over half h (2: all) is too large by.
INLINE __m256i center_sum(enum mat_form f, const struct entry *x, int h)
{
    __m256i sum = h == 2 ? _mm256_add_epi16(broadcast4(x->pairs), broadcast4(x->pairs + 1)) : broadcast4(x->pairs + h);
    return times16(sum, center_of(f));
}

// The int32 sum of 32 products of centered codes to that of values.
INLINE __m256i from_center(enum mat_form f, __m256i isum, const struct entry *x)
{
    int left = mat_traits[f].zero - center_of(f);
    return left ? _mm256_sub_epi32(isum, _mm256_set1_epi32(left * x->sum)) : isum;
}

// |w| is at most 128 as an unsigned byte; the sign goes to the activation, which is never -128.
INLINE __m256i product_signed(__m256i w, const int8_t *q)
{
    return madd_ones(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(broadcast4(q), w)));
}

INLINE __m256i dot4_signed(const __m256i *w, const int8_t *q)
{
    __m256i a = _mm256_add_epi32(product_signed(w[0], q), product_signed(w[1], q + 4));
    return _mm256_add_epi32(a, _mm256_add_epi32(product_signed(w[2], q + 8), product_signed(w[3], q + 12)));
}

INLINE __m256i dot4(const __m256i *w, const int8_t *q)  // int16, 16 products a lane
{
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], broadcast4(q)), _mm256_maddubs_epi16(w[1], broadcast4(q + 4)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], broadcast4(q + 8)),
                                 _mm256_maddubs_epi16(w[3], broadcast4(q + 12)));
    return _mm256_add_epi16(a, b);
}

static inline __attribute__((always_inline)) __m256i dot(enum mat_form f, const __m256i w[8], const struct scales *s,
                                                         const struct entry *x, __m256i *ret_second)
{
    if (is_signed(f)) {
        __m256i a = dot4_signed(w, x->q), b = dot4_signed(w + 4, x->q + 16);
        if (is_scaled16(f)) {
            a = _mm256_mullo_epi32(a, lanes_i32(s->s[0]));
            b = _mm256_mullo_epi32(b, lanes_i32(s->s[1]));
        }
        return from_center(f, _mm256_add_epi32(a, b), x);  // scaled forms that are signed have no zero
    }
    __m256i a = dot4(w, x->q), b = dot4(w + 4, x->q + 16);
    if (sums16(f)) {
        a = _mm256_add_epi16(a, b);
        if (center_of(f))
            a = _mm256_sub_epi16(a, center_sum(f, x, 2));
        return from_center(f, madd_ones(a), x);
    }
    if (is_scaled16(f) || is_split(f)) {
        // The zero point belongs to the scaled sums: the codes are small enough to take it off in int16.
        if (mat_traits[f].zero) {
            a = _mm256_sub_epi16(a, times16(broadcast4(x->pairs), mat_traits[f].zero));
            b = _mm256_sub_epi16(b, times16(broadcast4(x->pairs + 1), mat_traits[f].zero));
        }
    } else {
        a = _mm256_sub_epi16(a, center_sum(f, x, 0));
        b = _mm256_sub_epi16(b, center_sum(f, x, 1));
    }
    a = is_scaled16(f) ? _mm256_madd_epi16(a, s->s[0]) : madd_ones(a);
    b = is_scaled16(f) ? _mm256_madd_epi16(b, s->s[1]) : madd_ones(b);
    *ret_second = b;
    if (is_split(f))
        return a;
    return is_scaled16(f) ? _mm256_add_epi32(a, b) : from_center(f, _mm256_add_epi32(a, b), x);
}

#endif
