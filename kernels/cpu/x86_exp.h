// x86_exp.h - ref_exp for 8 numbers with AVX2 and FMA, the same bits.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>

static inline __attribute__((always_inline)) __m256 exp8(__m256 x)
{
    const __m256 low = _mm256_set1_ps(-86.6f), high = _mm256_set1_ps(88.722839f);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693145751953125f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-1.42860682e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    p = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(bits)), _mm256_set1_ps(2));
    p = _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), p);
    p = _mm256_blendv_ps(p, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x, high, _CMP_GT_OQ));
    return _mm256_blendv_ps(p, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

// The same for numbers that are not above 0: 2^n is applied at once, and no result is infinite.
static inline __attribute__((always_inline)) __m256 exp8_below(__m256 x)
{
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693145751953125f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-1.42860682e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-86.6f), _CMP_LT_OQ), _mm256_mul_ps(p, _mm256_castsi256_ps(bits)));
}

enum { EXP_TOGETHER = 4 };

// The polynomial of four vectors, step by step side by side: one after the other they wait for their own sums, and more
// of them than that does not fit what the CPU looks ahead.
static inline __attribute__((always_inline)) void exp8_parts(const __m256 x[EXP_TOGETHER], __m256 n[EXP_TOGETHER],
                                                             __m256 p[EXP_TOGETHER])
{
    static const float factors[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1};
    __m256 r[EXP_TOGETHER];
    for (int j = 0; j < EXP_TOGETHER; j++)
        n[j] = _mm256_mul_ps(x[j], _mm256_set1_ps(1.44269504f));
    for (int j = 0; j < EXP_TOGETHER; j++)
        n[j] = _mm256_round_ps(n[j], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    for (int j = 0; j < EXP_TOGETHER; j++)
        r[j] = _mm256_fmadd_ps(n[j], _mm256_set1_ps(-0.693145751953125f), x[j]);
    for (int j = 0; j < EXP_TOGETHER; j++)
        r[j] = _mm256_fmadd_ps(n[j], _mm256_set1_ps(-1.42860682e-6f), r[j]);
    for (int j = 0; j < EXP_TOGETHER; j++)
        p[j] = _mm256_set1_ps(1.0f / 5040);
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < EXP_TOGETHER; j++)
            p[j] = _mm256_fmadd_ps(p[j], r[j], _mm256_set1_ps(factors[i]));
    }
}

// exp8_below of four vectors.
static inline __attribute__((always_inline)) void exp8_below4(__m256 x[EXP_TOGETHER])
{
    __m256 n[EXP_TOGETHER], p[EXP_TOGETHER];
    exp8_parts(x, n, p);
    for (int j = 0; j < EXP_TOGETHER; j++) {
        __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n[j]), _mm256_set1_epi32(127)), 23);
        p[j] = _mm256_mul_ps(p[j], _mm256_castsi256_ps(bits));
        x[j] = _mm256_andnot_ps(_mm256_cmp_ps(x[j], _mm256_set1_ps(-86.6f), _CMP_LT_OQ), p[j]);
    }
}

// exp8 of four vectors.
static inline __attribute__((always_inline)) void exp8_4(__m256 x[EXP_TOGETHER])
{
    const __m256 low = _mm256_set1_ps(-86.6f), high = _mm256_set1_ps(88.722839f);
    __m256 n[EXP_TOGETHER], p[EXP_TOGETHER];
    exp8_parts(x, n, p);
    for (int j = 0; j < EXP_TOGETHER; j++) {
        __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n[j]), _mm256_set1_epi32(126)), 23);
        p[j] = _mm256_mul_ps(_mm256_mul_ps(p[j], _mm256_castsi256_ps(bits)), _mm256_set1_ps(2));
        p[j] = _mm256_andnot_ps(_mm256_cmp_ps(x[j], low, _CMP_LT_OQ), p[j]);
        p[j] = _mm256_blendv_ps(p[j], _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(x[j], high, _CMP_GT_OQ));
        x[j] = _mm256_blendv_ps(p[j], x[j], _mm256_cmp_ps(x[j], x[j], _CMP_UNORD_Q));
    }
}

// ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
static inline __attribute__((always_inline)) float tree8(__m256 v)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

#endif
