// avx512.c - the table of AVX-512 VNNI machines: the matrices are avx512_forms_*.c's, everything else is AVX2's, which
// these machines run as fast.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"
#include "kernels/cpu/x86_forms.h"

// To unsigned bytes q + 128, for the forms whose weights are the signed operand (avx512_tile.h).
static void widen(const int8_t *q, size_t at, int nblocks, int stride, void *wide)
{
    uint8_t *to = (uint8_t *)wide + 32 * at;
    q += 32 * at;
    for (int b = 0; b < nblocks; b++, q += 32 * stride, to += 32 * stride)
        _mm256_storeu_si256((__m256i *)to, _mm256_xor_si256(load(q), _mm256_set1_epi8(-128)));
}

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
    .widen = widen,
    .wide_bytes = 32,
    .chain_f32 = avx512_float_f32,
    .chain_f16 = avx512_float_f16,
    .chain_bf16 = avx512_float_bf16,
    .pairs = avx512_bf16_pairs,
    .to_bf16 = avx2_pairs_to_bf16,
    .peak_bf16 = avx512_bf16_peak,
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

const struct cpu_ops avx512_ops = {
    .isa = "avx512", .mat = &mat_ops, .attn = avx512_attn, .attn_join = avx512_attn_join, AVX2_FLOAT_OPS,
};
