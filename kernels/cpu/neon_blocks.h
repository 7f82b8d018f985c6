// neon_blocks.h - reading packed integer blocks (kernels/mat_pack.h) with NEON. The form is a constant in every call,
// so each branch is decided when a kernel is compiled.
//
// A block's codes are int8 values, zero point taken off (but that of bytes), in 16 registers: 8 rows x 32 k. Tokens pass over them.
#pragma once

#if defined(__aarch64__)  // nothing where the file is not compiled for it

#include "kernels/cpu/form.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"

typedef struct {
    int32x4_t l, h;  // rows 0-3, 4-7
} sums8;

struct codes {
    int8x16_t w[8][2];  // k = 4j.. of rows 0-3 and of rows 4-7
};

struct scales {
    f8 d, m;       // of the 32-block; m as subtracted, or as added
    f8 half[2];    // split forms: the d of each half
    sums8 s[2];    // of its halves
    sums8 min[2];  // minimums of the halves
};

// One token's activations of one block.
struct entry {
    const int8_t *q;
    const int32_t *pairs;
    float d, sx;
};

// What is still to be taken off the codes: int8 bytes stay as they are.
INLINE int zero_of_bytes(enum mat_form f)
{
    return mat_traits[f].plane == MAT_PLANE_BYTES ? mat_traits[f].zero : 0;
}

// ---- numbers of a record

INLINE f8 f8_from_sums(sums8 s)
{
    return (f8){vcvtq_f32_s32(s.l), vcvtq_f32_s32(s.h)};
}

INLINE sums8 sums_add(sums8 a, sums8 b)
{
    return (sums8){vaddq_s32(a.l, b.l), vaddq_s32(a.h, b.h)};
}

INLINE sums8 sums_mul(sums8 a, sums8 b)
{
    return (sums8){vmulq_s32(a.l, b.l), vmulq_s32(a.h, b.h)};
}

INLINE sums8 sums_from_s8(int8x8_t v)
{
    int16x8_t w = vmovl_s8(v);
    return (sums8){vmovl_s16(vget_low_s16(w)), vmovl_s16(vget_high_s16(w))};
}

INLINE sums8 sums_from_u8(uint8x8_t v)
{
    uint16x8_t w = vmovl_u8(v);
    return (sums8){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(w))),
                   vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(w)))};
}

INLINE float32x4_t e8m0_half4(uint32x4_t e)  // 2^(e - 128); the two smallest are subnormal
{
    uint32x4_t bits = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, bits));
}

// Half of E4M3: the exponent is moved into place, and a multiplication brings bias and subnormal numbers right.
INLINE f8 e4m3_half8(const uint8_t *p)
{
    sums8 v = sums_from_u8(vld1_u8(p));
    f8 f = {vreinterpretq_f32_s32(vshlq_n_s32(v.l, 20)), vreinterpretq_f32_s32(vshlq_n_s32(v.h, 20))};
    return f8_mul1(f, 0x1p119f);
}

INLINE f8 load_number(enum quant_number number, const uint8_t *p)
{
    if (number == QUANT_NUMBER_F32)
        return f8_load((const float *)(const void *)p);
    return number == QUANT_NUMBER_F16 ? f8_from_f16(p) : f8_from_bf16(p);
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
    if (mat_traits[f].numbers == MAT_NUMBERS_E8M0) {
        sums8 e = sums_from_u8(vld1_u8(record));
        s.d = (f8){e8m0_half4(vreinterpretq_u32_s32(e.l)), e8m0_half4(vreinterpretq_u32_s32(e.h))};
    } else if (mat_traits[f].numbers != MAT_NUMBERS_NONE) {
        s.d = f8_from_f16(record);
    } else {
        s.d = f8_set(0);
    }
    if (mat_traits[f].lookup && mat_traits[f].scales != MAT_SCALES_NONE && !is_split(f))
        s.d = f8_mul1(s.d, m->unit);
    s.m = has_min(f) ? f8_from_f16(record + 16) : s.d;
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
        s.d = f8_mul(n->d, f8_from_sums(sums_from_u8(vld1_u8(at + 8 * b))));
        s.m = f8_mul(n->m, f8_from_sums(sums_from_u8(vld1_u8(at + 64 + 8 * b))));
        break;
    case MAT_SCALES_I8_32:
        s.d = f8_mul(n->d, f8_from_sums(sums_from_s8(vreinterpret_s8_u8(vld1_u8(at + 8 * b)))));
        break;
    case MAT_SCALES_I8_16:
        for (int h = 0; h < 2; h++)
            s.s[h] = sums_from_s8(vreinterpret_s8_u8(vld1_u8(at + 16 * b + 8 * h)));
        break;
    case MAT_SCALES_U4_16:
        for (int h = 0; h < 2; h++) {
            uint8x8_t v = vld1_u8(at + 16 * b + 8 * h);
            s.s[h] = sums_from_u8(vand_u8(v, vdup_n_u8(15)));
            s.min[h] = sums_from_u8(vshr_n_u8(v, 4));
        }
        break;
    case MAT_SCALES_E4M3_16:
        for (int h = 0; h < 2; h++)
            s.half[h] = e4m3_half8(at + 16 * b + 8 * h);
        break;
    }
    return s;
}

// ---- codes of a block

// `width` bits of each byte from bit `from` on, to bit `to`; all constants but the bytes.
INLINE uint8x16_t field(uint8x16_t v, int from, int to, int width)
{
    v = vshlq_u8(v, vdupq_n_s8((int8_t)(to - from)));
    return vandq_u8(v, vdupq_n_u8((uint8_t)(((1 << width) - 1) << to)));
}

// k-group j of half h's rows: the plane's bits put together, unsigned.
INLINE uint8x16_t bits_of(enum mat_plane plane, const uint8_t *p, int j, int h)
{
    uint8x16_t v;
    p += 16 * h;
    if (plane == MAT_PLANE_BYTES)
        return vld1q_u8(p + 32 * j);
    if (plane == MAT_PLANE_2BIT || plane == MAT_PLANE_3BIT)
        v = field(vld1q_u8(p + 32 * (j / 4)), 2 * (j % 4), 0, 2);
    else
        v = field(vld1q_u8(p + 32 * (j % 4)), j < 4 ? 0 : 4, 0, 4);
    if (plane == MAT_PLANE_5BIT)
        v = vorrq_u8(v, field(vld1q_u8(p + 128), j, 4, 1));
    else if (plane == MAT_PLANE_3BIT)
        v = vorrq_u8(v, field(vld1q_u8(p + 64), j, 2, 1));
    else if (plane == MAT_PLANE_6BIT)
        v = vorrq_u8(v, field(vld1q_u8(p + 128 + 32 * (j / 4)), 2 * (j % 4), 4, 2));
    return v;
}

INLINE int8x16_t load_table(enum mat_form f, const struct mat *m)
{
    return mat_traits[f].lookup ? vld1q_s8(m->table) : vdupq_n_s8(0);
}

INLINE struct codes load_codes(enum mat_form f, int8x16_t table, const uint8_t *p)
{
    struct codes c;
    UNROLL for (int j = 0; j < 8; j++) {
        UNROLL for (int h = 0; h < 2; h++) {
            uint8x16_t u = bits_of(mat_traits[f].plane, p, j, h);
            if (mat_traits[f].lookup)
                c.w[j][h] = vqtbl1q_s8(table, u);
            else if (mat_traits[f].zero && !zero_of_bytes(f))
                c.w[j][h] = vreinterpretq_s8_u8(vsubq_u8(u, vdupq_n_u8((uint8_t)mat_traits[f].zero)));
            else
                c.w[j][h] = vreinterpretq_s8_u8(u);
        }
    }
    return c;
}

#endif
