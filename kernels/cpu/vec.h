// vec.h - one vector of floats, whatever a file is compiled for: 8 with AVX2 and NEON, 16 with AVX-512.
#pragma once

#if defined(__AVX2__)

#include "kernels/cpu/x86_vec.h"

#elif defined(__aarch64__)

#include "kernels/cpu/neon_vec.h"

#define VEC_INLINE INLINE

enum { VEC = 8, VEC_16 = 2 };
typedef f8 vec;

INLINE vec vec_zero(void) { return f8_set(0); }
INLINE vec vec_all(float x) { return f8_set(x); }
INLINE vec vec_load(const float *p) { return f8_load(p); }
INLINE void vec_store(float *p, vec v) { f8_store(p, v); }
INLINE vec vec_f16(const uint8_t *p) { return f8_from_f16(p); }
INLINE vec vec_i8(const uint8_t *p) { return f8_from_i8(p); }
INLINE vec vec_add(vec a, vec b) { return f8_add(a, b); }
INLINE vec vec_sub(vec a, vec b) { return f8_sub(a, b); }
INLINE vec vec_mul(vec a, vec b) { return f8_mul(a, b); }
INLINE vec vec_div(vec a, vec b) { return f8_div(a, b); }
INLINE vec vec_fma(vec a, vec b, vec c) { return f8_fma(a, b, c); }
INLINE vec vec_max(vec a, vec b) { return f8_max(a, b); }
INLINE vec vec_exp(vec x) { return exp8(x); }
INLINE vec vec_exp_below(vec x) { return exp8_below(x); }
INLINE void vec_exp_below4(vec x[4])
{
    for (int j = 0; j < 4; j++)
        x[j] = exp8_below(x[j]);
}
INLINE float vec_tree16(const vec *v) { return f8_tree(f8_add(v[0], v[1])); }
INLINE float vec_top(vec v) { return f8_top(v); }
INLINE float vec_of_f16(uint16_t h) { return of_f16(h); }

// Lanes whose number plus `at` lies outside first..last become `other`.
INLINE vec vec_inside(vec v, int at, int first, int last, vec other)
{
    v = f8_if(f8_first(first - at), other, v);
    return f8_if(f8_first(last - at), v, other);
}

#endif
