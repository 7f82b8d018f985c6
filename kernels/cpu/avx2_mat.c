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

enum { TOKENS = 8 };  // taken together: one transposition finds the largest numbers of their blocks

INLINE __m256i larger_halves(__m256i a, __m256i b)  // 4 lanes of a's, then of b's
{
    return _mm256_max_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE __m256i larger_pairs(__m256i a, __m256i b)
{
    return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

// The largest magnitude of each token's block.
INLINE __m256 largest(const float *x, size_t ldx)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i m[TOKENS];
    UNROLL for (int t = 0; t < TOKENS; t++) {
        m[t] = _mm256_and_si256(load(x + (size_t)t * ldx), magnitude);
        for (int i = 8; i < 32; i += 8)
            m[t] = _mm256_max_epi32(m[t], _mm256_and_si256(load(x + (size_t)t * ldx + i), magnitude));
    }
    __m256i low = larger_pairs(larger_halves(m[0], m[1]), larger_halves(m[2], m[3]));
    __m256i high = larger_pairs(larger_halves(m[4], m[5]), larger_halves(m[6], m[7]));
    __m256i v = _mm256_max_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
    return _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(v, order));  // of 0 2 4 6, 1 3 5 7
}

INLINE __m256i codes_of(const float *x, __m256 inverse)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 low = _mm256_set1_ps(-127);
    __m256i r[4];
    UNROLL for (int i = 0; i < 4; i++)
        r[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse), low));
    __m256i a = _mm256_packs_epi32(r[0], r[1]), c = _mm256_packs_epi32(r[2], r[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, c), order);
}

INLINE __m256i pairs_of(__m256i codes)  // each in all lanes of its 16 codes
{
    __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
    return _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
}

// One block of four tokens; leaves their sums in ret_sums.
INLINE void quantize4(const struct acts *a, int32_t *pairs, const float *x, size_t ldx, size_t at, const float *inverse,
                      int32_t *ret_sums)
{
    const __m256i by_token = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i p[4];
    UNROLL for (int t = 0; t < 4; t++) {
        __m256i q = codes_of(x + (size_t)t * ldx, _mm256_set1_ps(inverse[t]));
        _mm256_storeu_si256((__m256i *)(a->q + 32 * (at + (size_t)t)), q);
        p[t] = pairs_of(q);
    }
    p[0] = _mm256_blend_epi32(p[0], p[1], 0x22);
    p[2] = _mm256_blend_epi32(p[2], p[3], 0x88);
    p[0] = _mm256_permutevar8x32_epi32(_mm256_blend_epi32(p[0], p[2], 0xcc), by_token);
    _mm256_storeu_si256((__m256i *)(pairs + 2 * at), p[0]);
    __m256i sums = madd_ones(p[0]);
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    sums = _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128((__m128i *)ret_sums, _mm256_castsi256_si128(sums));
}

INLINE void quantize8(const struct acts *a, int32_t *pairs, const float *x, size_t ldx, size_t at)
{
    __m256 top = largest(x, ldx), most = _mm256_set1_ps(127);
    __m256 tiny = _mm256_cmp_ps(top, _mm256_set1_ps(1e-30f), _CMP_LT_OQ);
    __m256 d = _mm256_andnot_ps(tiny, _mm256_div_ps(top, most));
    float inverse[TOKENS];
    int32_t sums[TOKENS];
    _mm256_storeu_ps(inverse, _mm256_andnot_ps(tiny, _mm256_div_ps(most, top)));
    for (int t = 0; t < TOKENS; t += 4)
        quantize4(a, pairs, x + (size_t)t * ldx, ldx, at + (size_t)t, inverse + t, sums + t);
    _mm256_storeu_si256((__m256i *)(a->sums + at), load(sums));
    _mm256_storeu_ps(a->d + at, d);
    _mm256_storeu_ps(a->sx + at, _mm256_mul_ps(d, _mm256_cvtepi32_ps(load(sums))));
}

static void quantize_rows(const struct acts *a, const float *x, int ldx, int n, int nblocks, int stride, size_t at)
{
    int32_t *pairs = a->sums + (size_t)a->max * (size_t)(a->cols / MAT_BLOCK);
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK, at += (size_t)stride) {
        for (int t = 0; t < n; t += TOKENS)
            quantize8(a, pairs, x + (size_t)t * (size_t)ldx, (size_t)ldx, at + (size_t)t);
        widen(a->q, at, n, 1, a->wide);
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
    .quantize_rows = quantize_rows,
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
