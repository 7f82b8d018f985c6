// x86_tail.h - the last vector of a row whose length is no multiple of 8: missing elements are read as 0, and not stored.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>

static inline __m256i tail_mask(int left)  // the first `left` of 8 lanes
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline __m256 load_tail(const float *x, int left)
{
    return left >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, tail_mask(left));
}

static inline void store_tail(float *y, int left, __m256 v)
{
    if (left >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, tail_mask(left), v);
}

#endif
