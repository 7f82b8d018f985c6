// neon_vec.h - eight floats as two NEON registers, with the operations the kernels need: lane by lane what ref.c does,
// so that NEON code has the shape of its 8 partial sums.
#pragma once

#if defined(__aarch64__)  // nothing where the file is not compiled for it

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/quant.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct {
    float32x4_t l, h;
} f8;

typedef struct {
    uint32x4_t l, h;
} mask8;

INLINE f8 f8_set(float v)
{
    return (f8){vdupq_n_f32(v), vdupq_n_f32(v)};
}

INLINE f8 f8_load(const float *p)
{
    return (f8){vld1q_f32(p), vld1q_f32(p + 4)};
}

INLINE void f8_store(float *p, f8 v)
{
    vst1q_f32(p, v.l);
    vst1q_f32(p + 4, v.h);
}

INLINE f8 f8_add(f8 a, f8 b)
{
    return (f8){vaddq_f32(a.l, b.l), vaddq_f32(a.h, b.h)};
}

INLINE f8 f8_sub(f8 a, f8 b)
{
    return (f8){vsubq_f32(a.l, b.l), vsubq_f32(a.h, b.h)};
}

INLINE f8 f8_mul(f8 a, f8 b)
{
    return (f8){vmulq_f32(a.l, b.l), vmulq_f32(a.h, b.h)};
}

INLINE f8 f8_mul1(f8 a, float b)
{
    return (f8){vmulq_n_f32(a.l, b), vmulq_n_f32(a.h, b)};
}

INLINE f8 f8_div(f8 a, f8 b)
{
    return (f8){vdivq_f32(a.l, b.l), vdivq_f32(a.h, b.h)};
}

INLINE f8 f8_neg(f8 a)
{
    return (f8){vnegq_f32(a.l), vnegq_f32(a.h)};
}

INLINE f8 f8_abs(f8 a)
{
    return (f8){vabsq_f32(a.l), vabsq_f32(a.h)};
}

INLINE f8 f8_fma(f8 a, f8 b, f8 c)  // a b + c
{
    return (f8){vfmaq_f32(c.l, a.l, b.l), vfmaq_f32(c.h, a.h, b.h)};
}

INLINE f8 f8_fma1(f8 a, float b, f8 c)
{
    return (f8){vfmaq_n_f32(c.l, a.l, b), vfmaq_n_f32(c.h, a.h, b)};
}

INLINE f8 f8_fnma(f8 a, f8 b, f8 c)  // c - a b
{
    return (f8){vfmsq_f32(c.l, a.l, b.l), vfmsq_f32(c.h, a.h, b.h)};
}

INLINE f8 f8_round(f8 a)  // to even
{
    return (f8){vrndnq_f32(a.l), vrndnq_f32(a.h)};
}

INLINE mask8 f8_above(f8 a, f8 b)
{
    return (mask8){vcgtq_f32(a.l, b.l), vcgtq_f32(a.h, b.h)};
}

INLINE f8 f8_if(mask8 m, f8 yes, f8 no)
{
    return (f8){vbslq_f32(m.l, yes.l, no.l), vbslq_f32(m.h, yes.h, no.h)};
}

INLINE f8 f8_only(mask8 m, f8 a)  // else +0
{
    return (f8){vreinterpretq_f32_u32(vandq_u32(m.l, vreinterpretq_u32_f32(a.l))),
                vreinterpretq_f32_u32(vandq_u32(m.h, vreinterpretq_u32_f32(a.h)))};
}

// a > b ? a : b; FMAX would hand a NaN on.
INLINE f8 f8_max(f8 a, f8 b)
{
    return f8_if(f8_above(a, b), a, b);
}

INLINE float f8_top(f8 v)  // the largest lane, of no NaN
{
    return vmaxvq_f32(vmaxq_f32(v.l, v.h));
}

// ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
INLINE float f8_tree(f8 v)
{
    float32x4_t a = vaddq_f32(v.l, v.h);
    return vpadds_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)));
}

INLINE f8 f8_from_f16(const void *p)
{
    uint16x8_t v = vld1q_u16(p);
    return (f8){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(v))),
                vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(v)))};
}

INLINE f8 f8_from_bf16(const void *p)
{
    uint16x8_t v = vld1q_u16(p);
    return (f8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)),
                vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16))};
}

INLINE f8 f8_from_i8(const void *p)
{
    int16x8_t v = vmovl_s8(vld1_s8(p));
    return (f8){vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(v)))};
}

INLINE f8 f8_widen(enum quant_type t, const uint8_t *p)  // t is a constant: f32, f16 or bf16
{
    if (t == QUANT_F32)
        return f8_load((const float *)(const void *)p);
    return t == QUANT_F16 ? f8_from_f16(p) : f8_from_bf16(p);
}

INLINE uint16_t f16_of(float f)
{
    return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(f))), 0);
}

INLINE float of_f16(uint16_t h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

// ---- the last vector of a row whose length is no multiple of 8: missing elements are read as 0, and not stored

INLINE mask8 f8_first(int left)  // the first `left` of 8 lanes
{
    static const int32_t lanes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    int32x4_t n = vdupq_n_s32(left);
    return (mask8){vcgtq_s32(n, vld1q_s32(lanes)), vcgtq_s32(n, vld1q_s32(lanes + 4))};
}

INLINE f8 f8_load_tail(const float *x, int left)
{
    if (left >= 8)
        return f8_load(x);
    float t[8] = {0};
    for (int i = 0; i < left; i++)
        t[i] = x[i];
    return f8_load(t);
}

INLINE void f8_store_tail(float *y, int left, f8 v)
{
    if (left >= 8) {
        f8_store(y, v);
        return;
    }
    float t[8];
    f8_store(t, v);
    for (int i = 0; i < left; i++)
        y[i] = t[i];
}

// ref_exp, the same bits.
INLINE float32x4_t exp4(float32x4_t x, bool below)  // below: no x is above 0, so 2^n is applied at once
{
    float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 1.44269504f));
    float32x4_t r = vfmaq_n_f32(x, n, -0.693145751953125f);
    r = vfmaq_n_f32(r, n, -1.42860682e-6f);
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1), p, r);
    p = vfmaq_f32(vdupq_n_f32(1), p, r);
    uint32x4_t bits = vaddq_u32(vreinterpretq_u32_s32(vcvtq_s32_f32(n)), vdupq_n_u32(below ? 127 : 126));
    p = vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(bits, 23)));
    uint32x4_t low = vcltq_f32(x, vdupq_n_f32(-86.6f));
    if (below)
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), low));
    p = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(vmulq_n_f32(p, 2)), low));
    p = vbslq_f32(vcgtq_f32(x, vdupq_n_f32(88.722839f)), vdupq_n_f32(__builtin_inff()), p);
    return vbslq_f32(vceqq_f32(x, x), p, x);
}

INLINE f8 exp8(f8 x)
{
    return (f8){exp4(x.l, false), exp4(x.h, false)};
}

INLINE f8 exp8_below(f8 x)
{
    return (f8){exp4(x.l, true), exp4(x.h, true)};
}

// x / (1 + exp(t))
INLINE f8 over_exp(f8 x, f8 t)
{
    return f8_div(x, f8_add(f8_set(1), exp8(t)));
}

#endif
