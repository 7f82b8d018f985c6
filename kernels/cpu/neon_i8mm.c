// neon_i8mm.c - integer block matrices with NEON's SMMLA (ARMv8.6), and the table of machines that have it. Any lane.
//
// SMMLA multiplies 2 rows x 8 k by 2 tokens x 8 k. A block's codes are brought to pairs of rows once, and pairs of
// tokens pass over them; up to three tokens, and an odd last one, take SDOT.
#include "kernels/cpu/neon_dotprod.h"

struct row_pairs {
    int8x16_t w[4][4];  // k = 8i.. of rows 2r, 2r + 1
};

INLINE struct row_pairs pair_rows(const struct codes *c)
{
    struct row_pairs p;
    UNROLL for (int i = 0; i < 4; i++) {
        UNROLL for (int h = 0; h < 2; h++) {
            int32x4_t a = vreinterpretq_s32_s8(c->w[2 * i][h]), b = vreinterpretq_s32_s8(c->w[2 * i + 1][h]);
            p.w[i][2 * h] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
            p.w[i][2 * h + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
        }
    }
    return p;
}

// Half i (16 k) of two tokens added to s: two rows x two tokens each.
INLINE void add_half(const struct row_pairs *p, int i, const int8_t *q0, const int8_t *q1, int32x4_t s[4])
{
    int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(q0 + 16 * i)), b = vreinterpretq_s64_s8(vld1q_s8(q1 + 16 * i));
    int8x16_t x[2] = {vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))};
    UNROLL for (int k = 0; k < 2; k++) {
        UNROLL for (int r = 0; r < 4; r++)
            s[r] = vmmlaq_s32(s[r], p->w[2 * i + k][r], x[k]);
    }
}

INLINE void clear(int32x4_t s[4])
{
    UNROLL for (int r = 0; r < 4; r++)
        s[r] = vdupq_n_s32(0);
}

INLINE sums8 of_token(const int32x4_t s[4], int token)
{
    if (token == 0)
        return (sums8){vuzp1q_s32(s[0], s[1]), vuzp1q_s32(s[2], s[3])};
    return (sums8){vuzp2q_s32(s[0], s[1]), vuzp2q_s32(s[2], s[3])};
}

INLINE void two_tokens(enum mat_form f, const struct row_pairs *p, const struct scales *s, const struct acts *a,
                       const int32_t *pairs, size_t at, float *acc)
{
    struct entry x[2] = {entry_at(a, pairs, at), entry_at(a, pairs, at + 1)};
    int32x4_t half[2][4];
    bool whole = !is_split(f) && !is_scaled16(f);
    clear(half[0]);
    clear(half[1]);
    add_half(p, 0, x[0].q, x[1].q, half[0]);
    add_half(p, 1, x[0].q, x[1].q, half[whole ? 0 : 1]);
    UNROLL for (int k = 0; k < 2; k++)
        f8_store(acc + 8 * k, advance(f, f8_load(acc + 8 * k), of_token(half[0], k), of_token(half[1], k), s, &x[k]));
}

INLINE void block(enum mat_form f, int n, const struct codes *c, const struct scales *s, const struct acts *a,
                  const int32_t *pairs, size_t at, float *acc)
{
    struct row_pairs p = pair_rows(c);
    int k = 0;
    for (; k + 2 <= n; k += 2)
        two_tokens(f, &p, s, a, pairs, at + (size_t)k, acc + 8 * k);
    each_token(f, k, n, c, s, a, pairs, at, acc);
}

#define FORM(F, numbers, scales, plane, zero, lookup) KERNEL(F)
#include "kernels/forms.def"
#undef FORM

static double peak_int8(long rounds)
{
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(5);
    int32x4_t s[16];
    UNROLL for (int j = 0; j < 16; j++)
        s[j] = vdupq_n_s32(0);
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 16; j++) {
            s[j] = vmmlaq_s32(s[j], w, x);
            __asm__ volatile("" : "+w"(s[j]));
        }
    }
    return (double)rounds * 16 * 64;
}

static const struct mat_ops mat_ops = {
    NEON_MAT_OPS,
    .peak_int8 = peak_int8,
    .int8 =
        {
#define FORM(F, numbers, scales, plane, zero, lookup) [MAT_FORM_##F] = multiply_##F,
#include "kernels/forms.def"
#undef FORM
        },
    .panel =
        {
#define FORM(F, numbers, scales, plane, zero, lookup) [MAT_FORM_##F] = neon_mat_panel_##F,
#include "kernels/forms.def"
#undef FORM
        },
};

const struct cpu_ops neon_i8mm_ops = {.isa = "i8mm", .mat = &mat_ops, NEON_FLOAT_OPS};
