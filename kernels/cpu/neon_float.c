// neon_float.c - float weights with NEON: a lane is a row, one FMA chain per output, k ascending. Any lane, no state.
//
// Four activations of a token are loaded at once and multiply by lane. Up to three tokens take all 32 rows, so that the
// weights are one stream; more take 8 rows x 8 tokens, whose 16 chains hide the FMA's latency.
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"
#include "kernels/cpu/ref.h"
#include "kernels/quant/bits.h"

enum { TOKENS = 8 };

INLINE f8 fma_lane(f8 w, float32x4_t x, int lane, f8 acc)  // lane is a constant
{
    switch (lane) {
    case 0:
        return (f8){vfmaq_laneq_f32(acc.l, w.l, x, 0), vfmaq_laneq_f32(acc.h, w.h, x, 0)};
    case 1:
        return (f8){vfmaq_laneq_f32(acc.l, w.l, x, 1), vfmaq_laneq_f32(acc.h, w.h, x, 1)};
    case 2:
        return (f8){vfmaq_laneq_f32(acc.l, w.l, x, 2), vfmaq_laneq_f32(acc.h, w.h, x, 2)};
    default:
        return (f8){vfmaq_laneq_f32(acc.l, w.l, x, 3), vfmaq_laneq_f32(acc.h, w.h, x, 3)};
    }
}

// ng groups of 8 rows x nt tokens, both constants.
INLINE void chains(enum quant_type t, int ng, int nt, float *acc, int ldacc, const uint8_t *w, size_t step, const float *x,
                   int ldx, int k)
{
    const size_t group = t == QUANT_F32 ? 32 : 16;
    f8 s[TOKENS][4];
    int i = 0;
    UNROLL for (int j = 0; j < nt; j++) {
        UNROLL for (int g = 0; g < ng; g++)
            s[j][g] = f8_load(acc + j * ldacc + 8 * g);
    }
    for (; i + 4 <= k; i += 4) {
        float32x4_t v[TOKENS];
        UNROLL for (int j = 0; j < nt; j++)
            v[j] = vld1q_f32(x + (size_t)j * (size_t)ldx + (size_t)i);
        UNROLL for (int lane = 0; lane < 4; lane++, w += step) {
            UNROLL for (int g = 0; g < ng; g++) {
                f8 row = f8_widen(t, w + (size_t)g * group);
                UNROLL for (int j = 0; j < nt; j++)
                    s[j][g] = fma_lane(row, v[j], lane, s[j][g]);
            }
        }
    }
    for (; i < k; i++, w += step) {
        UNROLL for (int g = 0; g < ng; g++) {
            f8 row = f8_widen(t, w + (size_t)g * group);
            UNROLL for (int j = 0; j < nt; j++)
                s[j][g] = f8_fma1(row, x[(size_t)j * (size_t)ldx + (size_t)i], s[j][g]);
        }
    }
    UNROLL for (int j = 0; j < nt; j++) {
        UNROLL for (int g = 0; g < ng; g++)
            f8_store(acc + j * ldacc + 8 * g, s[j][g]);
    }
}

INLINE void few(enum quant_type t, int nt, float *acc, int ldacc, const uint8_t *w, size_t step, int ng, const float *x,
                int ldx, int k)
{
    switch (ng) {
    case 4:
        chains(t, 4, nt, acc, ldacc, w, step, x, ldx, k);
        break;
    case 3:
        chains(t, 3, nt, acc, ldacc, w, step, x, ldx, k);
        break;
    case 2:
        chains(t, 2, nt, acc, ldacc, w, step, x, ldx, k);
        break;
    case 1:
        chains(t, 1, nt, acc, ldacc, w, step, x, ldx, k);
        break;
    }
}

// How many of the n left to take together: 9 to 15 in two even parts, so that no few are left over.
INLINE int share(int n)
{
    return n >= 2 * TOKENS || n == TOKENS ? TOKENS : n > TOKENS ? (n + 1) / 2 : n;
}

INLINE void many(enum quant_type t, float *acc, int ldacc, const uint8_t *w, size_t step, const float *x, int ldx, int n,
                 int k)
{
    for (int take; n > 0; n -= take, acc += take * ldacc, x += (size_t)take * (size_t)ldx) {
        take = share(n);
        switch (take) {
        case 8:
            chains(t, 1, 8, acc, ldacc, w, step, x, ldx, k);
            break;
        case 7:
            chains(t, 1, 7, acc, ldacc, w, step, x, ldx, k);
            break;
        case 6:
            chains(t, 1, 6, acc, ldacc, w, step, x, ldx, k);
            break;
        case 5:
            chains(t, 1, 5, acc, ldacc, w, step, x, ldx, k);
            break;
        case 4:
            chains(t, 1, 4, acc, ldacc, w, step, x, ldx, k);
            break;
        }
    }
}

INLINE void product(enum quant_type t, float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx,
                    int n, int k)
{
    const size_t size = t == QUANT_F32 ? 4 : 2, step = (size_t)width * size;
    const uint8_t *p = w;
    if (n == 1) {
        few(t, 1, acc, ldacc, p, step, ng, x, ldx, k);
    } else if (n == 2) {
        few(t, 2, acc, ldacc, p, step, ng, x, ldx, k);
    } else if (n == 3) {
        few(t, 3, acc, ldacc, p, step, ng, x, ldx, k);
    } else {
        for (; ng > 0; ng--, acc += 8, p += 8 * size)
            many(t, acc, ldacc, p, step, x, ldx, n, k);
    }
}

void neon_float_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_F32, acc, ldacc, w, width, ng, x, ldx, n, k);
}

void neon_float_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_F16, acc, ldacc, w, width, ng, x, ldx, n, k);
}

void neon_float_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_BF16, acc, ldacc, w, width, ng, x, ldx, n, k);
}

// ---- bf16 by bf16: two FMAs a pair of k, the odd one first (BFDOT and BFMMLA round otherwise)

INLINE f8 of_bf16(uint16x8_t v)
{
    return (f8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(v), 16))};
}

INLINE float number16(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

// 8 rows x nt tokens.
INLINE void pairs(int nt, float *acc, int ldacc, const uint16_t *w, size_t step, const uint16_t *x, int ldx, int n_pairs)
{
    f8 s[TOKENS];
    UNROLL for (int j = 0; j < nt; j++)
        s[j] = f8_load(acc + j * ldacc);
    for (int i = 0; i < n_pairs; i++, w += step) {
        uint16x8x2_t v = vld2q_u16(w);
        f8 even = of_bf16(v.val[0]), odd = of_bf16(v.val[1]);
        UNROLL for (int j = 0; j < nt; j++) {
            const uint16_t *b = x + (size_t)j * (size_t)ldx + 2 * (size_t)i;
            s[j] = f8_fma1(even, number16(b[0]), f8_fma1(odd, number16(b[1]), s[j]));
        }
    }
    UNROLL for (int j = 0; j < nt; j++)
        f8_store(acc + j * ldacc, s[j]);
}

void neon_float_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs)
{
    for (int g = 0; g < ng; g++, acc += 8) {
        const uint16_t *p = (const uint16_t *)w + 16 * (size_t)g;
        int t = 0;
        for (; t + 4 <= n; t += 4)
            pairs(4, acc + t * ldacc, ldacc, p, 2 * (size_t)width, x + (size_t)t * (size_t)ldx, ldx, n_pairs);
        for (; t < n; t++)
            pairs(1, acc + t * ldacc, ldacc, p, 2 * (size_t)width, x + (size_t)t * (size_t)ldx, ldx, n_pairs);
    }
}

void neon_float_to_bf16(const float *x, int n, uint16_t *dst)
{
    const uint32x4_t size = vdupq_n_u32(0x7fffffff), half = vdupq_n_u32(0x7fff), least = vdupq_n_u32((127 - 56) << 7);
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32x4_t u = vreinterpretq_u32_f32(vld1q_f32(x + i)), high = vshrq_n_u32(u, 16);
        uint32x4_t nan = vcgtq_u32(vandq_u32(u, size), vdupq_n_u32(0x7f800000));
        uint32x4_t r = vshrq_n_u32(vaddq_u32(vaddq_u32(u, half), vandq_u32(high, vdupq_n_u32(1))), 16);
        r = vbslq_u32(nan, vorrq_u32(high, vdupq_n_u32(0x40)), r);
        r = vandq_u32(r, vcgeq_u32(vandq_u32(r, half), least));
        vst1_u16(dst + i, vmovn_u32(r));
    }
    ref_mat_ops.to_bf16(x + i, n - i, dst + i);
}
