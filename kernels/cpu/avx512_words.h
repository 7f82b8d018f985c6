// avx512_words.h - two groups of 8 rows in one 512-bit register.
#pragma once

#if defined(__AVX512VNNI__)

#include "kernels/cpu/x86_blocks.h"

INLINE __m512i join(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

INLINE __m512 join_f(__m256 a, __m256 b)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
}

INLINE __m512i load_both(const uint8_t *p0, const uint8_t *p1)
{
    return join(load(p0), load(p1));
}

INLINE __m512i two_bits16(__m512i v, int f, int to)
{
    int shift = 2 * f - to;
    v = shift > 0 ? _mm512_srli_epi16(v, (unsigned)shift) : _mm512_slli_epi16(v, (unsigned)-shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)(3 << to)));
}

INLINE __m512i one_bit16(__m512i v, int j, int to)
{
    int shift = j - to;
    v = shift > 0 ? _mm512_srli_epi16(v, (unsigned)shift) : _mm512_slli_epi16(v, (unsigned)-shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)(1 << to)));
}

INLINE __m512i broadcast16(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

// factor * v for a constant factor.
INLINE __m512i times32(__m512i v, int factor)
{
    if ((factor & (factor - 1)) == 0)
        return _mm512_slli_epi32(v, (unsigned)__builtin_ctz((unsigned)factor));
    return _mm512_mullo_epi32(v, _mm512_set1_epi32(factor));
}

#endif
