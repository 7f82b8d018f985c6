// avx512_quantize.c - activations to int8, eight tokens at a time: the largest numbers of eight blocks are found by one
// transposition, and what is kept of each token lies side by side. Equal to ref.c bit for bit; any lane, no state.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"

#if defined(__AVX512VNNI__)

enum { TOKENS = 8 };

INLINE __m512i larger_halves(__m512i a, __m512i b)  // 8 lanes of a's, then of b's
{
    return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
}

INLINE __m512i larger_quarters(__m512i a, __m512i b)  // both halves of a to 4 lanes each, then those of b
{
    return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// The largest lane of each of 8 vectors.
INLINE __m256i largest(const __m512i m[TOKENS])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i low = larger_quarters(larger_halves(m[0], m[1]), larger_halves(m[2], m[3]));
    __m512i high = larger_quarters(larger_halves(m[4], m[5]), larger_halves(m[6], m[7]));
    __m512i v = _mm512_max_epi32(_mm512_unpacklo_epi32(low, high), _mm512_unpackhi_epi32(low, high));
    v = _mm512_max_epi32(v, _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, v));
}

INLINE __m512i to_codes(__m512 v, __m512 inverse)
{
    return _mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(v, inverse), _mm512_set1_ps(-127)));
}

// The codes of two tokens, 32 bytes each.
INLINE __m512i bytes_of(__m512i a0, __m512i a1, __m512i b0, __m512i b1)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(a0, a1), _mm512_packs_epi32(b0, b1)));
}

// The int16 sums of each 16 codes, those of k mod 4 < 2 and the others, four times in their 128 bits.
INLINE __m512i sums_of(__m512i codes)
{
    __m512i p = _mm512_maddubs_epi16(_mm512_set1_epi8(1), codes);
    p = _mm512_add_epi16(p, _mm512_shuffle_epi32(p, (_MM_PERM_ENUM)0x4e));
    return _mm512_add_epi16(p, _mm512_shuffle_epi32(p, (_MM_PERM_ENUM)0xb1));
}

// One block of 8 tokens.
INLINE void quantize8(const struct acts *a, int32_t *pairs, const float *x, size_t ldx, size_t at)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), flip = _mm512_set1_epi8(-128);
    // Lane 4L + j of what the masks below put together is pair L % 2 of token 2j + L / 2.
    const __m512i by_token = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512 v[TOKENS][2];
    __m512i m[TOKENS], all = _mm512_setzero_si512();
    float inverses[TOKENS];
    UNROLL for (int t = 0; t < TOKENS; t++) {
        v[t][0] = _mm512_loadu_ps(x + (size_t)t * ldx);
        v[t][1] = _mm512_loadu_ps(x + (size_t)t * ldx + 16);
        m[t] = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[t][0]), magnitude),
                                _mm512_and_si512(_mm512_castps_si512(v[t][1]), magnitude));
    }
    __m256 top = _mm256_castsi256_ps(largest(m)), most = _mm256_set1_ps(127);
    __mmask8 some = _mm256_cmp_ps_mask(top, _mm256_set1_ps(1e-30f), _CMP_NLT_UQ);
    __m256 d = _mm256_maskz_div_ps(some, top, most);
    _mm256_storeu_ps(inverses, _mm256_maskz_div_ps(some, most, top));
    UNROLL for (int t = 0; t < TOKENS; t += 2) {
        __m512 i0 = _mm512_set1_ps(inverses[t]), i1 = _mm512_set1_ps(inverses[t + 1]);
        __m512i q = bytes_of(to_codes(v[t][0], i0), to_codes(v[t][1], i0), to_codes(v[t + 1][0], i1), to_codes(v[t + 1][1], i1));
        _mm512_storeu_si512(a->q + 32 * (at + (size_t)t), q);
        _mm512_storeu_si512((uint8_t *)a->wide + 32 * (at + (size_t)t), _mm512_xor_si512(q, flip));
        all = _mm512_mask_mov_epi32(all, (__mmask16)(0x1111 << t / 2), sums_of(q));
    }
    all = _mm512_madd_epi16(_mm512_permutexvar_epi32(by_token, all), _mm512_set1_epi16(1));
    // Both pairs are the sums of the halves (mat_ops.h), the second in the upper 16 bits.
    _mm512_storeu_si512(pairs + 2 * at, _mm512_mask_mov_epi16(_mm512_shuffle_epi32(all, (_MM_PERM_ENUM)0xa0), 0xaaaaaaaa,
                        _mm512_slli_epi32(_mm512_shuffle_epi32(all, (_MM_PERM_ENUM)0xf5), 16)));
    all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, (_MM_PERM_ENUM)0xb1));
    __m256i sums = _mm512_castsi512_si256(_mm512_permutexvar_epi32(even, all));
    _mm256_storeu_si256((__m256i *)(a->sums + at), sums);
    _mm256_storeu_ps(a->d + at, d);
    _mm256_storeu_ps(a->sx + at, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sums)));
}

void avx512_quantize_rows(const struct acts *a, const float *x, int ldx, int n, int nblocks, int stride, size_t at)
{
    int32_t *pairs = a->sums + (size_t)a->max * (size_t)(a->cols / MAT_BLOCK);
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK, at += (size_t)stride) {
        for (int t = 0; t < n; t += TOKENS)
            quantize8(a, pairs, x + (size_t)t * (size_t)ldx, (size_t)ldx, at + (size_t)t);
    }
}

#endif
