// avx2_wave.c - wave.h with AVX2: a lane is a channel, weights stay in registers while time runs. Any lane, no state.
#include <immintrin.h>
#include <stddef.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/wave.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 snake8(__m256 x, __m256 alpha, __m256 inv)
{
    __m256 u = _mm256_mul_ps(alpha, x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(u, _mm256_set1_ps(0.318309886f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-WAVE_PI_HIGH), u);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-WAVE_PI_LOW), r);
    __m256 z = _mm256_mul_ps(r, r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(WAVE_SIN4), z, _mm256_set1_ps(WAVE_SIN3));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(WAVE_SIN2));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(WAVE_SIN1));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(WAVE_SIN0));
    __m256 s = _mm256_fmadd_ps(_mm256_mul_ps(p, z), r, r);
    return _mm256_fmadd_ps(inv, _mm256_mul_ps(s, s), x);
}

void avx2_wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n)
{
    int c = 0;
    for (; c + 16 <= n; c += 16) {
        __m256 a0 = _mm256_loadu_ps(alpha + c), a1 = _mm256_loadu_ps(alpha + c + 8);
        __m256 i0 = _mm256_loadu_ps(inv + c), i1 = _mm256_loadu_ps(inv + c + 8);
        const float *from = x + c;
        float *to = y + c;
        for (int t = 0; t < rows; t++, from += ldx, to += ldy) {
            _mm256_storeu_ps(to, snake8(_mm256_loadu_ps(from), a0, i0));
            _mm256_storeu_ps(to + 8, snake8(_mm256_loadu_ps(from + 8), a1, i1));
        }
    }
    for (; c + 8 <= n; c += 8) {
        __m256 a = _mm256_loadu_ps(alpha + c), i = _mm256_loadu_ps(inv + c);
        for (ptrdiff_t t = 0; t < rows; t++)
            _mm256_storeu_ps(y + t * ldy + c, snake8(_mm256_loadu_ps(x + t * ldx + c), a, i));
    }
    if (c < n)
        wave_snake(y + c, ldy, x + c, ldx, alpha + c, inv + c, rows, n - c);
}

// 8 channels; four rows at a time, so that the chains hide each other's latency.
INLINE void depthwise8(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                       int rows)
{
    const ptrdiff_t step = (ptrdiff_t)dilation * ldx;
    __m256 bias = _mm256_loadu_ps(b), v[WAVE_TAPS];
    for (int k = 0; k < WAVE_TAPS; k++)
        v[k] = _mm256_loadu_ps(w + k * ldw);
    int t = 0;
    for (; t + 4 <= rows; t += 4, x += 4 * (ptrdiff_t)ldx, y += 4 * (ptrdiff_t)ldy) {
        __m256 s[4] = {bias, bias, bias, bias};
        for (int k = 0; k < WAVE_TAPS; k++)
            for (int j = 0; j < 4; j++)
                s[j] = _mm256_fmadd_ps(v[k], _mm256_loadu_ps(x + k * step + j * (ptrdiff_t)ldx), s[j]);
        for (int j = 0; j < 4; j++)
            _mm256_storeu_ps(y + j * (ptrdiff_t)ldy, s[j]);
    }
    for (; t < rows; t++, x += ldx, y += ldy) {
        __m256 s = bias;
        for (int k = 0; k < WAVE_TAPS; k++)
            s = _mm256_fmadd_ps(v[k], _mm256_loadu_ps(x + k * step), s);
        _mm256_storeu_ps(y, s);
    }
}

void avx2_wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                         int rows, int n)
{
    int c = 0;
    for (; c + 8 <= n; c += 8)
        depthwise8(y + c, ldy, x + c, ldx, w + c, ldw, b + c, dilation, rows);
    if (c < n)
        wave_depthwise(y + c, ldy, x + c, ldx, w + c, ldw, b + c, dilation, rows, n - c);
}
