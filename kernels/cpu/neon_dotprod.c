// neon_dotprod.c - integer block matrices with NEON's SDOT (ARMv8.2), and the table of machines that have it. Any lane.
#include "kernels/cpu/neon_dotprod.h"

INLINE void block(enum mat_form f, int n, const struct codes *c, const struct scales *s, const struct acts *a,
                  const int32_t *pairs, size_t at, float *acc)
{
    each_token(f, 0, n, c, s, a, pairs, at, acc);
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
            s[j] = vdotq_laneq_s32(s[j], w, x, 1);
            __asm__ volatile("" : "+w"(s[j]));
        }
    }
    return (double)rounds * 16 * 32;
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

const struct cpu_ops neon_dotprod_ops = {.isa = "dotprod", .mat = &mat_ops, NEON_FLOAT_OPS};
