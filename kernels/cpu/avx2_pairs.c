// avx2_pairs.c - bf16 weights by bf16 activations with AVX2: two FMAs a pair of k, the odd one first (kernels/mat.h). A lane is
// a row. Any lane, no state.
#include <string.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/x86.h"

struct pairs {
    float *acc;
    int ldacc;
    const uint8_t *w;
    size_t step;  // bytes between pairs
    const uint16_t *x;
    int ldx, n;   // n: pairs
};

INLINE __m256 even(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

INLINE __m256 odd(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}

INLINE __m256i both(const uint16_t *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

// nv vectors of 8 rows x nt tokens.
INLINE void tile(int nv, int nt, const struct pairs *p)
{
    __m256 s[4][4];
    for (int j = 0; j < nt; j++)
        for (int v = 0; v < nv; v++)
            s[j][v] = _mm256_loadu_ps(p->acc + j * p->ldacc + 8 * v);
    const uint8_t *w = p->w;
    for (size_t i = 0; i < (size_t)p->n; i++, w += p->step) {
        __m256i x[4];
        for (int j = 0; j < nt; j++)
            x[j] = both(p->x + (size_t)j * (size_t)p->ldx + 2 * i);
        for (int v = 0; v < nv; v++) {
            __m256i r = load(w + 32 * v);
            for (int j = 0; j < nt; j++)
                s[j][v] = _mm256_fmadd_ps(odd(r), odd(x[j]), s[j][v]);
            for (int j = 0; j < nt; j++)
                s[j][v] = _mm256_fmadd_ps(even(r), even(x[j]), s[j][v]);
        }
    }
    for (int j = 0; j < nt; j++)
        for (int v = 0; v < nv; v++)
            _mm256_storeu_ps(p->acc + j * p->ldacc + 8 * v, s[j][v]);
}

INLINE void tokens(int nv, int nt, const struct pairs *p)
{
    switch (nt) {
    case 1:
        tile(nv, 1, p);
        break;
    case 2:
        tile(nv, 2, p);
        break;
    case 3:
        tile(nv, 3, p);
        break;
    case 4:
        tile(nv, 4, p);
        break;
    }
}

// One token takes all 32 rows, so that the weights are one stream; more take 16 rows x 4 tokens.
void avx2_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs)
{
    struct pairs p = {acc, ldacc, w, (size_t)width * 4, x, ldx, n_pairs};
    if (n == 1 && ng == 4) {
        tile(4, 1, &p);
        return;
    }
    for (int g = 0; g < ng; g += 2) {
        p.w = (const uint8_t *)w + 32 * (size_t)g;
        for (int t = 0, part; t < n; t += part) {
            part = n - t < 4 ? n - t : 4;
            p.acc = acc + t * ldacc + 8 * g;
            p.x = x + (size_t)t * (size_t)ldx;
            if (ng - g > 1)
                tokens(2, part, &p);
            else
                tokens(1, part, &p);
        }
    }
}

void avx2_pairs_to_bf16(const float *x, int n, uint16_t *dst)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff), infinite = _mm256_set1_epi32(0x7f800000);
    const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1), quiet = _mm256_set1_epi32(0x40);
    const __m256i least = _mm256_set1_epi32(((127 - 56) << 7) - 1), sign = _mm256_set1_epi32(0x7fff);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_castps_si256(_mm256_loadu_ps(x + i)), high = _mm256_srli_epi32(u, 16);
        __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, size), infinite);
        __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), _mm256_and_si256(high, one)), 16);
        r = _mm256_blendv_epi8(r, _mm256_or_si256(high, quiet), nan);
        r = _mm256_and_si256(r, _mm256_cmpgt_epi32(_mm256_and_si256(r, sign), least));
        r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
        _mm_storeu_si128((__m128i *)(dst + i), _mm256_castsi256_si128(r));
    }
    ref_mat_ops.to_bf16(x + i, n - i, dst + i);
}
