// x86_numbers.h - the scales of 8 rows as floats, whatever they are stored as.
#pragma once

#if defined(__AVX2__)

#include <immintrin.h>

#include "kernels/cpu/x86.h"
#include "kernels/quant.h"

INLINE __m256 load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE __m256 load_number(enum quant_number number, const uint8_t *p)
{
    if (number == QUANT_NUMBER_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    if (number == QUANT_NUMBER_F16)
        return load_f16(p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

INLINE __m256i load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

INLINE __m256 i8_to_f32(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

// 2^(e - 128); the two smallest are subnormal.
INLINE __m256 e8m0_half8(const uint8_t *p)
{
    __m256i e = load_u8(p), two = _mm256_set1_epi32(2);
    __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, small, _mm256_cmpgt_epi32(two, e)));
}

// Half of E4M3: the exponent is moved into place, and a multiplication brings bias and subnormal numbers right.
INLINE __m256 e4m3_half8(const uint8_t *p)
{
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(load_u8(p), 20)), _mm256_set1_ps(0x1p119f));
}

#endif
