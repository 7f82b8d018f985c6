// avx2_float.c - float weights with AVX2: a lane is a row, one FMA chain per output, k ascending. Any lane, no state.
//
// Up to three tokens take all 32 rows at once, so that 4 to 12 independent chains hide the FMA's latency and the weights
// are one stream. More tokens take 16 rows x 6 tokens; weights are converted in registers at every k.
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx2.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 widen(enum quant_type t, const uint8_t *p)
{
    if (t == QUANT_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    __m128i h = _mm_loadu_si128((const __m128i *)p);
    if (t == QUANT_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

// ng groups of 8 rows x nt tokens.
INLINE void chains(enum quant_type t, int ng, int nt, float *acc, int ldacc, const uint8_t *w, size_t step, const float *x,
                   int ldx, int k)
{
    const size_t group = t == QUANT_F32 ? 32 : 16;
    __m256 s[6][4];
    for (int j = 0; j < nt; j++) {
        for (int g = 0; g < ng; g++)
            s[j][g] = _mm256_loadu_ps(acc + j * ldacc + 8 * g);
    }
    for (int i = 0; i < k; i++, w += step) {
        __m256 v[4];
        for (int g = 0; g < ng; g++)
            v[g] = widen(t, w + (size_t)g * group);
        for (int j = 0; j < nt; j++) {
            __m256 b = _mm256_set1_ps(x[(size_t)j * (size_t)ldx + (size_t)i]);
            for (int g = 0; g < ng; g++)
                s[j][g] = _mm256_fmadd_ps(v[g], b, s[j][g]);
        }
    }
    for (int j = 0; j < nt; j++) {
        for (int g = 0; g < ng; g++)
            _mm256_storeu_ps(acc + j * ldacc + 8 * g, s[j][g]);
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

INLINE void many(enum quant_type t, int ng, float *acc, int ldacc, const uint8_t *w, size_t step, const float *x, int ldx,
                 int n, int k)
{
    for (int j = 0, next; j < n; j = next) {
        int left = n - j;
        next = left >= 12 ? j + 6 : left > 6 ? j + (left + 1) / 2 : n;  // 7 to 11 in two even parts
        float *at = acc + j * ldacc;
        const float *xj = x + (size_t)j * (size_t)ldx;
        switch (next - j) {
        case 6:
            chains(t, ng, 6, at, ldacc, w, step, xj, ldx, k);
            break;
        case 5:
            chains(t, ng, 5, at, ldacc, w, step, xj, ldx, k);
            break;
        case 4:
            chains(t, ng, 4, at, ldacc, w, step, xj, ldx, k);
            break;
        case 3:
            chains(t, ng, 3, at, ldacc, w, step, xj, ldx, k);
            break;
        case 2:
            chains(t, ng, 2, at, ldacc, w, step, xj, ldx, k);
            break;
        case 1:
            chains(t, ng, 1, at, ldacc, w, step, xj, ldx, k);
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
        for (; ng >= 2; ng -= 2, acc += 16, p += 16 * size)
            many(t, 2, acc, ldacc, p, step, x, ldx, n, k);
        if (ng == 1)
            many(t, 1, acc, ldacc, p, step, x, ldx, n, k);
    }
}

void avx2_float_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_F32, acc, ldacc, w, width, ng, x, ldx, n, k);
}

void avx2_float_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_F16, acc, ldacc, w, width, ng, x, ldx, n, k);
}

void avx2_float_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    product(QUANT_BF16, acc, ldacc, w, width, ng, x, ldx, n, k);
}
