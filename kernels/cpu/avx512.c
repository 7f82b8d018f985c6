// avx512.c - the table of AVX-512 VNNI machines: the matrices are avx512_forms_*.c's, everything else is AVX2's, which
// these machines run as fast.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"
#include "kernels/cpu/x86_forms.h"

// As kernels/cpu/mat_ops.h says, but that the first pair is the sums of the halves: what VPMADDWD takes with an int16 pair.
static void quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums, int32_t *pairs)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512 low = _mm512_set1_ps(-127);
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK) {
        __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
        __m512i top = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                                       _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
        __m256i m = _mm256_max_epi32(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
        m = _mm256_max_epi32(m, _mm256_permute2x128_si256(m, m, 1));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0x4e));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0xb1));
        float amax = _mm256_cvtss_f32(_mm256_castsi256_ps(m));
        bool tiny = amax < 1e-30f;
        __m512 inverse = _mm512_set1_ps(tiny ? 0 : 127 / amax);
        __m128i half[2];
        for (int h = 0; h < 2; h++)
            half[h] = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(v[h], inverse), low)));
        __m256i bytes = _mm256_set_m128i(half[1], half[0]);
        __m256i sum = madd_ones(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
        sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
        int s0 = _mm_cvtsi128_si32(_mm256_castsi256_si128(sum)), s1 = _mm_cvtsi128_si32(_mm256_extracti128_si256(sum, 1));
        size_t at = (size_t)b * (size_t)stride;
        _mm256_storeu_si256((__m256i *)(q + at * MAT_BLOCK), bytes);
        sums[at] = s0 + s1;
        pairs[2 * at] = pairs[2 * at + 1] = (int32_t)(((uint32_t)s0 & 0xffff) | (uint32_t)s1 << 16);
        d[at] = tiny ? 0 : amax / 127;
        sx[at] = d[at] * (float)sums[at];
    }
}

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
    .quantize = quantize,
    .widen = widen,
    .wide_bytes = 32,
    .quantize_rows = avx512_quantize_rows,
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
