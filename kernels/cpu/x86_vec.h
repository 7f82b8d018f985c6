// x86_vec.h - one vector of floats of the widest kind a file is compiled for: 8 with AVX2, 16 with AVX-512. Code written
// with it gives the same bits for both where a lane is one row, key or dimension and nothing is summed across lanes.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/x86_exp.h"

#define VEC_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

enum { VEC = 16 };
typedef __m512 vec;

VEC_INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
VEC_INLINE vec vec_all(float x) { return _mm512_set1_ps(x); }
VEC_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
VEC_INLINE vec vec_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
VEC_INLINE vec vec_bf16(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
VEC_INLINE vec vec_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
VEC_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }  // b when one is a NaN

VEC_INLINE vec vec_exp(vec x)
{
    const vec low = _mm512_set1_ps(-86.6f), high = _mm512_set1_ps(88.722839f);
    vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693145751953125f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-1.42860682e-6f), r);
    vec p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    __m512i bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(126)), 23);
    p = _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(bits)), _mm512_set1_ps(2));
    p = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, low, _CMP_LT_OQ), _mm512_setzero_ps());
    p = _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, high, _CMP_GT_OQ), _mm512_set1_ps(__builtin_inff()));
    return _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

// The same for numbers that are not above 0.
VEC_INLINE vec vec_exp_below(vec x)
{
    vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vec r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693145751953125f), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-1.42860682e-6f), r);
    vec p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    __m512i bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-86.6f), _CMP_NLT_UQ);
    return _mm512_maskz_mul_ps(keep, p, _mm512_castsi512_ps(bits));
}

VEC_INLINE void vec_exp_below4(vec x[4])  // 512 bits are two vectors already
{
    for (int j = 0; j < 4; j++)
        x[j] = vec_exp_below(x[j]);
}

// Lanes whose number plus `at` lies outside first..last become `other`.
VEC_INLINE vec vec_inside(vec v, int at, int first, int last, vec other)
{
    __m512i i = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(at));
    __mmask16 out = _mm512_cmplt_epi32_mask(i, _mm512_set1_epi32(first)) | _mm512_cmpge_epi32_mask(i, _mm512_set1_epi32(last));
    return _mm512_mask_mov_ps(v, out, other);
}

VEC_INLINE __m256 vec_low8(vec v) { return _mm512_castps512_ps256(v); }
VEC_INLINE __m256 vec_high8(vec v) { return _mm512_extractf32x8_ps(v, 1); }

VEC_INLINE float vec_tree16(const vec *v)  // of 16 numbers: tree8 of number i + number i+8
{
    return tree8(_mm256_add_ps(vec_low8(v[0]), vec_high8(v[0])));
}

VEC_INLINE __m256 vec_max8(vec v) { return _mm256_max_ps(vec_low8(v), vec_high8(v)); }

#else

enum { VEC = 8 };
typedef __m256 vec;

VEC_INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
VEC_INLINE vec vec_all(float x) { return _mm256_set1_ps(x); }
VEC_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
VEC_INLINE vec vec_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
VEC_INLINE vec vec_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
VEC_INLINE vec vec_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
VEC_INLINE vec vec_exp(vec x) { return exp8(x); }
VEC_INLINE vec vec_exp_below(vec x) { return exp8_below(x); }
VEC_INLINE void vec_exp_below4(vec x[4]) { exp8_below4(x); }

VEC_INLINE vec vec_inside(vec v, int at, int first, int last, vec other)
{
    __m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(at));
    __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), i),
                                  _mm256_cmpgt_epi32(i, _mm256_set1_epi32(last - 1)));
    return _mm256_blendv_ps(v, other, _mm256_castsi256_ps(out));
}

VEC_INLINE float vec_tree16(const vec *v) { return tree8(_mm256_add_ps(v[0], v[1])); }
VEC_INLINE __m256 vec_max8(vec v) { return v; }

#endif

VEC_INLINE float vec_of_f16(uint16_t h) { return _cvtsh_ss(h); }

enum { VEC_16 = 16 / VEC };  // vectors of 16 numbers

VEC_INLINE float vec_top(vec v)  // the largest lane
{
    __m256 w = vec_max8(v);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

#endif
