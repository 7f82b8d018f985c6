// x86.h - what the x86 kernels write often.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m256i madd_ones(__m256i s)  // pairs of int16 to int32
{
    return _mm256_madd_epi16(s, _mm256_set1_epi16(1));
}

#endif
