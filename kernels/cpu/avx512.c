// avx512.c - the table of AVX-512 VNNI machines: the matrices are avx512_forms_*.c's, everything else is AVX2's, which
// these machines run as fast.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"
#include "kernels/cpu/x86_forms.h"

static double peak_int8(long rounds)
{
    __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5), sum[8];
    UNROLL for (int j = 0; j < 8; j++)
        sum[j] = _mm512_setzero_si512();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 8; j++) {
            sum[j] = _mm512_dpbusd_epi32(sum[j], w, x);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    }
    return (double)rounds * 8 * 128;
}

static const struct mat_ops mat_ops = {
    .quantize = avx2_mat_quantize,
    .chain_f32 = avx2_float_f32,
    .chain_f16 = avx2_float_f16,
    .chain_bf16 = avx2_float_bf16,
    .panel =
        {
#define FORM(F) [MAT_FORM_##F] = avx2_mat_panel_##F,
            X86_FORMS(FORM)
#undef FORM
        },
    .peak_fma = avx2_mat_peak_fma,
    .peak_int8 = peak_int8,
    .peak_read = avx2_mat_peak_read,
    .int8 =
        {
#define FORM(F) [MAT_FORM_##F] = avx512_mat_##F,
            X86_FORMS(FORM)
#undef FORM
        },
};

const struct cpu_ops avx512_ops = {.isa = "avx512", .mat = &mat_ops, AVX2_FLOAT_OPS};
