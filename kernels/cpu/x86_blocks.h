// x86_blocks.h - reading packed integer blocks (kernels/mat_pack.h) with AVX2. The form is a constant in every call, so
// each branch is decided when a kernel is compiled.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/form.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/cpu/x86.h"
#include "kernels/cpu/x86_numbers.h"

struct scales {
    __m256 d, m;      // of the 32-block; m as subtracted, or as added
    __m256 half[2];   // split forms: the d of each half
    __m256i s[2];     // of its halves (scale16)
    __m256i min[2];   // minimums of the halves, int16, twice in each lane; VNNI: min[0] has both, a pair in each lane
};

// One token's activations of one block.
struct entry {
    const int8_t *q;
    const int32_t *pairs;
    float d, sx;
    int32_t sum;
};

INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256i twice_i16(__m128i bytes)  // 8 int8 -> int16, each twice
{
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
}

// 8 integer scales of halves: what multiplies an int16 pair (AVX2) or an int32 lane (VNNI).
INLINE __m256i scale16(__m128i bytes)
{
#if defined(__AVX512VNNI__)
    return _mm256_cvtepi8_epi32(bytes);
#else
    return twice_i16(bytes);
#endif
}

INLINE __m256i lanes_i32(__m256i scale)  // as int32
{
#if defined(__AVX512VNNI__)
    return scale;
#else
    return _mm256_srai_epi32(scale, 16);
#endif
}

// The record's numbers, before sub-scales.
INLINE struct scales load_numbers(enum mat_form f, const struct mat *m, const uint8_t *record)
{
    struct scales s;
    if (is_open(f)) {
        s.d = load_number(m->number, record);
        s.m = load_number(m->number, record + m->head / 2);
        return s;
    }
    if (mat_traits[f].numbers == MAT_NUMBERS_E8M0)
        s.d = e8m0_half8(record);
    else if (mat_traits[f].numbers != MAT_NUMBERS_NONE)
        s.d = load_f16(record);
    else
        s.d = _mm256_setzero_ps();
    if (mat_traits[f].lookup && mat_traits[f].scales != MAT_SCALES_NONE && !is_split(f))
        s.d = _mm256_mul_ps(s.d, _mm256_set1_ps(m->unit));
    s.m = has_min(f) ? load_f16(record + 16) : s.d;
    return s;
}

// Scales of the b-th 32-block of a record with the numbers n; `at` is where its sub-scales begin.
INLINE struct scales load_scales(enum mat_form f, const struct scales *n, const uint8_t *at, int b)
{
    struct scales s = *n;
    switch (mat_traits[f].scales) {
    case MAT_SCALES_NONE:
        break;
    case MAT_SCALES_U8_32:
        s.d = _mm256_mul_ps(n->d, _mm256_cvtepi32_ps(load_u8(at + 8 * b)));
        s.m = _mm256_mul_ps(n->m, _mm256_cvtepi32_ps(load_u8(at + 64 + 8 * b)));
        break;
    case MAT_SCALES_I8_32:
        s.d = _mm256_mul_ps(n->d, i8_to_f32(at + 8 * b));
        break;
    case MAT_SCALES_I8_16:
        for (int h = 0; h < 2; h++)
            s.s[h] = scale16(_mm_loadl_epi64((const __m128i *)(at + 16 * b + 8 * h)));
        break;
    case MAT_SCALES_U4_16:
        for (int h = 0; h < 2; h++) {
            __m128i v = _mm_loadl_epi64((const __m128i *)(at + 16 * b + 8 * h));
            s.min[h] = twice_i16(_mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15)));
            s.s[h] = scale16(_mm_and_si128(v, _mm_set1_epi8(15)));
        }
#if defined(__AVX512VNNI__)
        s.min[0] = _mm256_or_si256(_mm256_srli_epi32(s.min[0], 16), _mm256_slli_epi32(s.min[1], 16));
#endif
        break;
    case MAT_SCALES_E4M3_16:
        for (int h = 0; h < 2; h++)
            s.half[h] = e4m3_half8(at + 16 * b + 8 * h);
        break;
    }
    return s;
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

// The look-up's values; unsigned where the form has a zero.
INLINE __m256i load_table(enum mat_form f, const struct mat *m)
{
    if (!mat_traits[f].lookup)
        return _mm256_setzero_si256();
    __m128i t = _mm_loadu_si128((const __m128i *)m->table);
    return _mm256_broadcastsi128_si256(_mm_add_epi8(t, _mm_set1_epi8((char)mat_traits[f].zero)));
}

// The codes of a 32-block: w[j] holds k = 4j..4j+3 of 8 rows; unsigned, or int8 for the signed forms.
INLINE void load_codes(enum mat_form f, __m256i table, const uint8_t *p, __m256i w[8])
{
    enum mat_plane plane = mat_traits[f].plane;
    if (plane == MAT_PLANE_BYTES) {
        for (int j = 0; j < 8; j++)
            w[j] = load(p + 32 * j);
        return;
    }
    if (plane == MAT_PLANE_2BIT || plane == MAT_PLANE_3BIT) {
        for (int j = 0; j < 8; j++)
            w[j] = two_bits(load(p + 32 * (j / 4)), j % 4, 0);
    } else {
        const __m256i low = _mm256_set1_epi8(15);
        for (int j = 0; j < 4; j++) {
            __m256i v = load(p + 32 * j);
            w[j] = _mm256_and_si256(v, low);
            w[4 + j] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        }
    }
    if (plane == MAT_PLANE_5BIT || plane == MAT_PLANE_3BIT) {
        __m256i high = load(p + (plane == MAT_PLANE_5BIT ? 128 : 64));
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_or_si256(w[j], one_bit(high, j, plane == MAT_PLANE_5BIT ? 4 : 2));
    } else if (plane == MAT_PLANE_6BIT) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_or_si256(w[j], two_bits(load(p + 128 + 32 * (j / 4)), j % 4, 4));
    }
    if (mat_traits[f].lookup) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm256_shuffle_epi8(table, w[j]);
    }
}

INLINE struct entry entry_at(const struct acts *a, const int32_t *pairs, size_t at)
{
    return (struct entry){a->q + 32 * at, pairs + 2 * at, a->d[at], a->sx[at], a->sums[at]};
}

// The step of the chain of 8 rows for one token; of split forms isum is the first half's, and `second` the other's.
INLINE __m256 advance(enum mat_form f, __m256 acc, __m256i isum, __m256i second, const struct scales *s,
                      const struct entry *x)
{
    __m256 dx = _mm256_set1_ps(x->d), v = _mm256_mul_ps(dx, _mm256_cvtepi32_ps(isum));
    if (is_split(f)) {
        acc = _mm256_fmadd_ps(v, s->half[0], acc);
        return _mm256_fmadd_ps(_mm256_mul_ps(dx, _mm256_cvtepi32_ps(second)), s->half[1], acc);
    }
    acc = _mm256_fmadd_ps(v, s->d, acc);
    if (has_add(f))
        return _mm256_fmadd_ps(s->m, _mm256_set1_ps(x->sx), acc);
    if (has_min16(f)) {
        __m256i sum = _mm256_madd_epi16(s->min[0], broadcast4(x->pairs));
#if !defined(__AVX512VNNI__)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->min[1], broadcast4(x->pairs + 1)));
#endif
        return _mm256_fnmadd_ps(s->m, _mm256_mul_ps(dx, _mm256_cvtepi32_ps(sum)), acc);
    }
    return has_min(f) ? _mm256_fnmadd_ps(s->m, _mm256_set1_ps(x->sx), acc) : acc;
}

// Asks L2 for `bytes` from `next` on, and returns their end. A tile reads two groups of rows side by side, too slowly for the
// hardware to fetch ahead; the next two groups lie behind them as one range, and there is all the time for it.
INLINE const uint8_t *fetch_next(const uint8_t *next, int bytes)
{
    for (int k = 0; k < bytes; k += 64)
        _mm_prefetch((const char *)next + k, _MM_HINT_T1);
    return next + bytes;
}

#endif
