// neon_mat.c - integer block matrices with NEON: quantising activations, the ceilings, records as numbers, and the
// kernels of plain ARMv8-A. Any lane; scratch is on the stack.
//
// The building brick is SMLAL: int8 by int8, summed in int16 as long as the sums fit, then in pairs to int32.
#include "kernels/cpu/neon_forms.h"

// Sum of 16, and the two of k mod 4 < 2 and of the rest side by side in one word.
INLINE int32_t sum_of(int8x16_t q, int32_t *ret_pairs)
{
    int16x8_t two = vpaddlq_s8(q);
    int16x4_t four = vadd_s16(vget_low_s16(two), vget_high_s16(two));  // of k mod 8 = 0, 1; 2, 3; 4, 5; 6, 7
    int16x4_t sums = vadd_s16(four, vext_s16(four, four, 2));
    *ret_pairs = vget_lane_s32(vreinterpret_s32_s16(sums), 0);
    return vget_lane_s16(sums, 0) + vget_lane_s16(sums, 1);
}

void neon_mat_quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                       int32_t *pairs)
{
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK) {
        uint32x4_t m = vdupq_n_u32(0);
        f8 v[4];
        UNROLL for (int i = 0; i < 4; i++) {
            v[i] = f8_load(x + 8 * i);
            f8 a = f8_abs(v[i]);
            m = vmaxq_u32(m, vmaxq_u32(vreinterpretq_u32_f32(a.l), vreinterpretq_u32_f32(a.h)));
        }
        float amax = vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(vmaxvq_u32(m))), 0);
        bool tiny = amax < 1e-30f;
        float inverse = tiny ? 0 : 127 / amax;
        int8x8_t r[4];
        UNROLL for (int i = 0; i < 4; i++) {
            f8 s = f8_max(f8_mul1(v[i], inverse), f8_set(-127));  // also what a NaN becomes
            r[i] = vmovn_s16(vcombine_s16(vmovn_s32(vcvtnq_s32_f32(s.l)), vmovn_s32(vcvtnq_s32_f32(s.h))));
        }
        int8x16_t low = vcombine_s8(r[0], r[1]), high = vcombine_s8(r[2], r[3]);
        size_t at = (size_t)b * (size_t)stride;
        vst1q_s8(q + at * MAT_BLOCK, low);
        vst1q_s8(q + at * MAT_BLOCK + 16, high);
        sums[at] = sum_of(low, &pairs[2 * at]) + sum_of(high, &pairs[2 * at + 1]);
        d[at] = tiny ? 0 : amax / 127;
        sx[at] = d[at] * (float)sums[at];
    }
}

// ---- ceilings

double neon_mat_peak_fma(long rounds)
{
    float32x4_t a[16], half = vdupq_n_f32(0.5f), one = vdupq_n_f32(1);
    UNROLL for (int j = 0; j < 16; j++)
        a[j] = vdupq_n_f32(0);
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 16; j++) {
            a[j] = vfmaq_f32(a[j], half, one);
            __asm__ volatile("" : "+w"(a[j]));
        }
    }
    return (double)rounds * 16 * 4 * 2;
}

// Eight products summed in int16, then widened once: the densest pattern a 4-bit type may use.
static double peak_int8(long rounds)
{
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(5);
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int g = 0; g < 2; g++) {
            int16x8_t s[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};
            UNROLL for (int j = 0; j < 8; j++) {
                __asm__ volatile("" : "+w"(w));
                s[0] = vmlal_s8(s[0], vget_low_s8(w), vget_low_s8(x));
                s[1] = vmlal_high_s8(s[1], w, x);
            }
            sum[g] = vpadalq_s16(vpadalq_s16(sum[g], s[0]), s[1]);
        }
    }
    __asm__ volatile("" : : "w"(sum[0]), "w"(sum[1]));
    return (double)rounds * 2 * 8 * 32;
}

uint64_t neon_mat_peak_read(const uint8_t *p, size_t bytes)
{
    uint8x16_t s[8];
    UNROLL for (int j = 0; j < 8; j++)
        s[j] = vdupq_n_u8(0);
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        UNROLL for (int j = 0; j < 8; j++)
            s[j] = veorq_u8(s[j], vld1q_u8(p + i + 16 * (size_t)j));
    }
    UNROLL for (int j = 1; j < 8; j++)
        s[0] = veorq_u8(s[0], s[j]);
    return vgetq_lane_u64(vreinterpretq_u64_u8(s[0]), 0);
}

// ---- kernels

// Products an int16 may sum without passing 32767: a code is at most 128 in size, an activation 127.
INLINE int products16(enum mat_form f)
{
    static const uint8_t most_of_plane[] = {128, 15, 31, 63, 7, 3};
    int zero = mat_traits[f].zero, most = most_of_plane[mat_traits[f].plane] - zero;
    if (mat_traits[f].lookup || mat_traits[f].plane == MAT_PLANE_BYTES)
        return 2;
    return (most > zero ? most : zero) <= 32 ? 8 : 2;
}

INLINE sums8 sums(enum mat_form f, const struct codes *c, int j0, int j1, const int8_t *q)
{
    const int run = products16(f) < j1 - j0 ? products16(f) : j1 - j0;
    int32x4_t p[4];  // two sums of each of two rows
    UNROLL for (int r = 0; r < 4; r++)
        p[r] = vdupq_n_s32(0);
    UNROLL for (int j = j0; j < j1; j += run) {
        int16x8_t s[4];
        UNROLL for (int r = 0; r < 4; r++)
            s[r] = vdupq_n_s16(0);
        UNROLL for (int i = 0; i < run; i++) {
            int32_t four;
            memcpy(&four, q + 4 * (j + i), 4);
            int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
            UNROLL for (int h = 0; h < 2; h++) {
                s[2 * h] = vmlal_s8(s[2 * h], vget_low_s8(c->w[j + i][h]), vget_low_s8(x));
                s[2 * h + 1] = vmlal_high_s8(s[2 * h + 1], c->w[j + i][h], x);
            }
        }
        UNROLL for (int r = 0; r < 4; r++)
            p[r] = vpadalq_s16(p[r], s[r]);
    }
    return (sums8){vpaddq_s32(p[0], p[1]), vpaddq_s32(p[2], p[3])};
}

INLINE void block(enum mat_form f, int n, const struct codes *c, const struct scales *s, const struct acts *a,
                  const int32_t *pairs, size_t at, float *acc)
{
    each_token(f, 0, n, c, s, a, pairs, at, acc);
}

#define FORM(F, numbers, scales, plane, zero, lookup)                                     \
    KERNEL(F)                                                                             \
    void neon_mat_panel_##F(const struct mat *m, const uint8_t *record, float *dst)       \
    {                                                                                     \
        numbers_of(MAT_FORM_##F, m, record, dst);                                         \
    }
#include "kernels/forms.def"
#undef FORM

const struct mat_ops neon_mat_ops = {
    NEON_MAT_OPS,
    .peak_int8 = peak_int8,
    .panel =
        {
#define FORM(F, numbers, scales, plane, zero, lookup) [MAT_FORM_##F] = neon_mat_panel_##F,
#include "kernels/forms.def"
#undef FORM
        },
    .int8 =
        {
#define FORM(F, numbers, scales, plane, zero, lookup) [MAT_FORM_##F] = multiply_##F,
#include "kernels/forms.def"
#undef FORM
        },
};
