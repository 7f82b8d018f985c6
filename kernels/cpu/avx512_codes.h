// avx512_codes.h - 16 rows' codes and scales of one 32-block, made ready for many tokens.
//
// A code may use all 8 bits of VPDPBUSD's unsigned operand: int8 codes become code + 128, and 128 * (sum of the activations)
// is taken off again. Where the halves of a block have scales, taking an offset off costs as much as two more products:
// there ("flipped") the codes are signed and the activations unsigned, q + 128 (struct acts, wide), and the sums start at
// -128 * (sum of the codes). Where code * scale fits 8 bits ("folded") the scales are multiplied into the codes here, once
// for all tokens, and a block has one sum: Q2_K's 3 * 15, and Q3_K's -4 .. 3 times -32 .. 31, which is -124 .. 128 and
// therefore kept with the other sign.
#pragma once

#if defined(__AVX512VNNI__)

#include "kernels/cpu/avx512_words.h"

// What is subtracted from an unsigned code.
INLINE int offset_of(enum mat_form f)
{
    return mat_traits[f].zero + (is_signed(f) ? 128 : 0);
}

INLINE bool is_negative(enum mat_form f)  // folded to -code * scale
{
    return mat_traits[f].scales == MAT_SCALES_I8_16 && mat_traits[f].plane == MAT_PLANE_3BIT && !mat_traits[f].lookup;
}

INLINE bool is_folded(enum mat_form f)
{
    return (mat_traits[f].scales == MAT_SCALES_U4_16 && mat_traits[f].plane == MAT_PLANE_2BIT) || is_negative(f);
}

INLINE bool is_flipped(enum mat_form f)  // signed codes, unsigned activations
{
    return (is_scaled16(f) || is_split(f)) && offset_of(f);
}

INLINE bool has_halves(enum mat_form f)  // two sums
{
    return (is_scaled16(f) || is_split(f)) && !is_folded(f);
}

struct block16 {
    __m512i w[8];      // k = 4j .. 4j+3 of each row; unsigned, or signed where flipped
    __m512 d, m;
    __m512 half[2];    // split forms: the d of each half
    __m512 s[2];       // of the halves
    __m512i min;       // minimums of the halves, an int16 pair
    __m512i start[2];  // flipped: what the sums start at
};

// A table for each row of a half: byte l of its lane is what the code l becomes. Of negative forms (4 - l) * scale; scales
// are made positive so that no product borrows from the next byte.
INLINE __m512i fold_table(enum mat_form f, __m512i scale)
{
    if (!is_negative(f))
        return _mm512_mullo_epi32(scale, _mm512_set1_epi32(0x03020100));
    scale = _mm512_mullo_epi32(_mm512_add_epi32(scale, _mm512_set1_epi32(32)), _mm512_set1_epi32(0x01020304));
    return _mm512_sub_epi8(scale, _mm512_set1_epi32(0x20406080));
}

// Codes of two low bits and perhaps a high one, times their scales.
INLINE void load_folded16(enum mat_form f, const __m512i scale[2], const uint8_t *p0, const uint8_t *p1, __m512i w[8])
{
    const __m512i rows = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    __m512i high = is_negative(f) ? load_both(p0 + 64, p1 + 64) : rows;
    for (int h = 0; h < 2; h++) {
        __m512i v = load_both(p0 + 32 * h, p1 + 32 * h), t = fold_table(f, scale[h]), four = _mm512_shuffle_epi8(t, rows);
        for (int j = 0; j < 4; j++) {
            __m512i u = _mm512_shuffle_epi8(t, _mm512_or_si512(two_bits16(v, j, 0), rows));
            if (is_negative(f)) {
                __mmask64 k = _mm512_test_epi8_mask(high, _mm512_set1_epi8((char)(1 << (4 * h + j))));
                u = _mm512_mask_sub_epi8(u, k, u, four);
            }
            w[4 * h + j] = u;
        }
    }
}

// As load_codes for the planes p0 and p1 of two groups, as unsigned codes, or signed ones where flipped; the table likewise.
INLINE void load_codes16(enum mat_form f, __m512i table, const uint8_t *p0, const uint8_t *p1, __m512i w[8])
{
    enum mat_plane plane = mat_traits[f].plane;
    if (plane == MAT_PLANE_BYTES) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_xor_si512(load_both(p0 + 32 * j, p1 + 32 * j), _mm512_set1_epi8(-128));
        return;
    }
    if (plane == MAT_PLANE_2BIT || plane == MAT_PLANE_3BIT) {
        __m512i v[2] = {load_both(p0, p1), load_both(p0 + 32, p1 + 32)};
        for (int j = 0; j < 8; j++)
            w[j] = two_bits16(v[j / 4], j % 4, 0);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        for (int j = 0; j < 4; j++) {
            __m512i v = load_both(p0 + 32 * j, p1 + 32 * j);
            w[j] = _mm512_and_si512(v, low);
            w[4 + j] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        }
    }
    if (plane == MAT_PLANE_5BIT || plane == MAT_PLANE_3BIT) {
        int at = plane == MAT_PLANE_5BIT ? 128 : 64;
        __m512i high = load_both(p0 + at, p1 + at);
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], one_bit16(high, j, plane == MAT_PLANE_5BIT ? 4 : 2));
    } else if (plane == MAT_PLANE_6BIT) {
        __m512i v[2] = {load_both(p0 + 128, p1 + 128), load_both(p0 + 160, p1 + 160)};
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], two_bits16(v[j / 4], j % 4, 4));
    }
    for (int j = 0; j < 8; j++) {
        if (mat_traits[f].lookup)
            w[j] = _mm512_shuffle_epi8(table, w[j]);
        else if (is_flipped(f))
            w[j] = _mm512_sub_epi8(w[j], _mm512_set1_epi8((char)mat_traits[f].zero));
    }
}

INLINE __m512i load_table16(enum mat_form f, const struct mat *m)
{
    __m256i t = load_table(f, m);
    if (is_flipped(f))
        t = _mm256_sub_epi8(t, _mm256_set1_epi8((char)mat_traits[f].zero));
    else if (is_signed(f))
        t = _mm256_xor_si256(t, _mm256_set1_epi8(-128));
    return join(t, t);
}

// -128 times the sums of the codes.
INLINE void start_sums(enum mat_form f, struct block16 *x)
{
    const __m512i all = _mm512_set1_epi8(-128);  // 128 as an unsigned byte
    __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int j = 0; j < 8; j++)
        sum[j / 4] = _mm512_dpbusd_epi32(sum[j / 4], all, x->w[j]);
    if (is_folded(f)) {
        sum[0] = _mm512_add_epi32(sum[0], sum[1]);
        sum[1] = _mm512_setzero_si512();
    }
    for (int h = 0; h < 2; h++)
        x->start[h] = _mm512_sub_epi32(_mm512_setzero_si512(), sum[h]);
}

// The b-th 32-block of two records with their numbers.
INLINE void load_block16(enum mat_form f, __m512i table, const struct scales numbers[2], const uint8_t *const record[2],
                         int head, int b, struct block16 *x)
{
    const uint8_t *p0 = record[0] + head + b * mat_pack_plane(f), *p1 = record[1] + head + b * mat_pack_plane(f);
    struct scales s0 = load_scales(f, &numbers[0], record[0] + mat_pack_numbers(f), b);
    struct scales s1 = load_scales(f, &numbers[1], record[1] + mat_pack_numbers(f), b);
    __m512i s[2];
    x->d = join_f(s0.d, s1.d);
    x->m = join_f(s0.m, s1.m);
    for (int h = 0; h < 2; h++) {
        if (is_split(f))
            x->half[h] = join_f(s0.half[h], s1.half[h]);
        if (is_scaled16(f))
            s[h] = join(s0.s[h], s1.s[h]);
        if (is_scaled16(f) && !is_folded(f))
            x->s[h] = _mm512_cvtepi32_ps(s[h]);
    }
    if (has_min16(f))
        x->min = join(s0.min[0], s1.min[0]);
    if (is_folded(f))
        load_folded16(f, s, p0, p1, x->w);
    else
        load_codes16(f, table, p0, p1, x->w);
    if (is_flipped(f))
        start_sums(f, x);
}

#endif
