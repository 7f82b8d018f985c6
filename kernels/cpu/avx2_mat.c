// avx2_mat.c - integer block matrices with AVX2: quantising activations, the ceilings, and the table of kernels, which
// avx2_forms_*.c have. Any lane; scratch is on the stack.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"
#include "kernels/cpu/x86_forms.h"

// ---- activations

static inline void sums_of(__m256i q, int32_t *sum, int32_t *pairs)
{
    __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
    pairs[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(p));
    pairs[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(p, 1));
    __m256i s = madd_ones(p);
    *sum = _mm_cvtsi128_si32(_mm256_castsi256_si128(s)) + _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}

void avx2_mat_quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                   int32_t *pairs)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 low = _mm256_set1_ps(-127);
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK) {
        __m256 v[4];
        __m256i m = _mm256_setzero_si256(), r[4];
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
        }
        m = _mm256_max_epi32(m, _mm256_permute2x128_si256(m, m, 1));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0x4e));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0xb1));
        float amax = _mm256_cvtss_f32(_mm256_castsi256_ps(m));
        bool tiny = amax < 1e-30f;
        __m256 inverse = _mm256_set1_ps(tiny ? 0 : 127 / amax);
        for (int i = 0; i < 4; i++)
            r[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_mul_ps(v[i], inverse), low));
        __m256i a = _mm256_packs_epi32(r[0], r[1]), c = _mm256_packs_epi32(r[2], r[3]);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, c), order);
        size_t at = (size_t)b * (size_t)stride;
        _mm256_storeu_si256((__m256i *)(q + at * MAT_BLOCK), bytes);
        sums_of(bytes, &sums[at], &pairs[2 * at]);
        d[at] = tiny ? 0 : amax / 127;
        sx[at] = d[at] * (float)sums[at];
    }
}

// To int16, k = 0 2 1 3 of every four: where int8 weights leave no room for sums in int16.
static void widen(const int8_t *q, size_t at, int nblocks, int stride, void *wide)
{
    int16_t *to = (int16_t *)wide + 32 * at;
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8,
                                           9, 12, 13, 10, 11, 14, 15);
    q += 32 * at;
    for (int b = 0; b < nblocks; b++, q += 32 * stride, to += 32 * stride) {
        for (int i = 0; i < 32; i += 16) {
            __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(q + i)));
            _mm256_storeu_si256((__m256i *)(to + i), _mm256_shuffle_epi8(v, order));
        }
    }
}

// ---- ceilings

double avx2_mat_peak_fma(long rounds)
{
    __m256 a[12], half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
    UNROLL for (int j = 0; j < 12; j++)
        a[j] = _mm256_setzero_ps();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 12; j++) {
            a[j] = _mm256_fmadd_ps(a[j], half, one);
            __asm__ volatile("" : "+x"(a[j]));
        }
    }
    return (double)rounds * 12 * 8 * 2;
}

// Eight products summed in int16, then widened once: the densest pattern a 4-bit type may use.
static double peak_int8(long rounds)
{
    __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5), sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int g = 0; g < 2; g++) {
            __m256i s = _mm256_setzero_si256();
            UNROLL for (int j = 0; j < 8; j++) {
                __asm__ volatile("" : "+x"(w));
                s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w, x));
            }
            sum[g] = _mm256_add_epi32(sum[g], madd_ones(s));
        }
    }
    __asm__ volatile("" : : "x"(sum[0]), "x"(sum[1]));
    return (double)rounds * 2 * 8 * 64;
}

uint64_t avx2_mat_peak_read(const uint8_t *p, size_t bytes)
{
    __m256i s[4];
    for (int j = 0; j < 4; j++)
        s[j] = _mm256_setzero_si256();
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        UNROLL for (int j = 0; j < 4; j++)
            s[j] = _mm256_xor_si256(s[j], load(p + i + 32 * (size_t)j));
    }
    __m256i v = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    return (uint64_t)_mm256_extract_epi64(v, 0);
}

const struct mat_ops avx2_mat_ops = {
    .quantize = avx2_mat_quantize,
    .widen = widen,
    .wide_bytes = 64,
    .chain_f32 = avx2_float_f32,
    .chain_f16 = avx2_float_f16,
    .chain_bf16 = avx2_float_bf16,
    .pairs = avx2_pairs,
    .to_bf16 = avx2_pairs_to_bf16,
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
#define FORM(F) [MAT_FORM_##F] = avx2_mat_##F,
            X86_FORMS(FORM)
#undef FORM
        },
};
