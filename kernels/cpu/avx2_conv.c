// avx2_conv.c - convolution and group normalisation with AVX2: equal to ref_conv.c bit for bit. Any lane, no state.
//
// Products: 16 output channels x 6 pixels (or tiles) in 12 registers, lane = output channel, one FMA chain per output.
// Transforms and norms: lane = channel.
#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/conv_ops.h"
#include "kernels/cpu/x86_exp.h"

#define INLINE static inline __attribute__((always_inline))

#define WINO __m256
#define WINO_FUNC INLINE
#define w_set _mm256_set1_ps
#define w_add _mm256_add_ps
#define w_sub _mm256_sub_ps
#define w_mul _mm256_mul_ps
#define w_fma _mm256_fmadd_ps
#define w_fnma _mm256_fnmadd_ps
#include "kernels/cpu/winograd.h"

INLINE __m256 widen(enum quant_type t, const uint8_t *p)
{
    if (t == QUANT_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (t == QUANT_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE __m256i tail_mask(int left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Chains of n pixels (a constant) over k channels, from +0; added to acc, or stored.
INLINE void product(enum quant_type t, int n, bool store, float *acc, const uint8_t *w, const float *const *x, int k)
{
    const size_t half = t == QUANT_F32 ? 32 : 16;
    __m256 s[6][2];
    for (int j = 0; j < n; j++)
        s[j][0] = s[j][1] = _mm256_setzero_ps();
    for (int i = 0; i < k; i++, w += 2 * half) {
        __m256 w0 = widen(t, w), w1 = widen(t, w + half);
        for (int j = 0; j < n; j++) {
            __m256 b = _mm256_broadcast_ss(x[j] + i);
            s[j][0] = _mm256_fmadd_ps(w0, b, s[j][0]);
            s[j][1] = _mm256_fmadd_ps(w1, b, s[j][1]);
        }
    }
    for (int j = 0; j < n; j++, acc += CONV_WIDE) {
        _mm256_storeu_ps(acc, store ? s[j][0] : _mm256_add_ps(_mm256_loadu_ps(acc), s[j][0]));
        _mm256_storeu_ps(acc + 8, store ? s[j][1] : _mm256_add_ps(_mm256_loadu_ps(acc + 8), s[j][1]));
    }
}

static void input(float *v, size_t plane, const float *x, size_t row, int c)
{
    for (int i = 0; i < c; i += 8) {
        __m256 d[36];
        for (int j = 0; j < 6; j++) {
            for (int r = 0; r < 6; r++)
                d[6 * r + j] = _mm256_loadu_ps(x + (size_t)r * row + (size_t)j * (size_t)c + (size_t)i);
            wino_input(d + j, d + j, 6);
        }
        for (int r = 0; r < 6; r++) {
            wino_input(d + 6 * r, d + 6 * r, 1);
            for (int j = 0; j < 6; j++)
                _mm256_storeu_ps(v + (size_t)(6 * r + j) * plane + (size_t)i, d[6 * r + j]);
        }
    }
}

INLINE void weights_of(enum quant_type t, float *u, size_t plane, const uint8_t *w, int c)
{
    const size_t size = t == QUANT_F32 ? 4 : 2, tap = (size_t)c * CONV_WIDE * size;
    for (int i = 0; i < c * CONV_WIDE; i += 8) {
        __m256 g[9], m[18], r[6];
        for (int j = 0; j < 9; j++)
            g[j] = widen(t, w + (size_t)j * tap + (size_t)i * size);
        for (int j = 0; j < 3; j++)
            wino_weights(m + j, 3, g + j, 3);
        for (int j = 0; j < 6; j++) {
            wino_weights(r, 1, m + 3 * j, 1);
            for (int p = 0; p < 6; p++)
                _mm256_storeu_ps(u + (size_t)(6 * j + p) * plane + (size_t)i, r[p]);
        }
    }
}

#include "kernels/cpu/conv_walk.h"

// 8 channels of a tile.
INLINE void output_half(const struct conv_place *to, const float *m, size_t plane, int half)
{
    __m256 t[24];
    for (int j = 0; j < 6; j++) {
        __m256 d[6];
        for (int p = 0; p < 6; p++)
            d[p] = _mm256_loadu_ps(m + (size_t)(6 * p + j) * plane + 8 * half);
        wino_output(t + j, 6, d, 1);
    }
    const __m256 bias = _mm256_loadu_ps(to->bias + 8 * half);
    const __m256i mask = tail_mask(to->channels - 8 * half);
    for (int i = 0; i < to->rows; i++) {
        __m256 r[4];
        size_t at = (size_t)i * to->row + 8 * (size_t)half;
        wino_output(r, 1, t + 6 * i, 1);
        for (int j = 0; j < to->cols; j++, at += (size_t)to->ld) {
            __m256 y = _mm256_add_ps(r[j], bias);
            if (to->add)
                y = _mm256_add_ps(_mm256_maskload_ps(to->add + at, mask), y);
            if (to->channels == CONV_WIDE)
                _mm256_storeu_ps(to->y + at, y);
            else
                _mm256_maskstore_ps(to->y + at, mask, y);
        }
    }
}

static void output(const struct conv_place *to, const float *m, size_t plane)
{
    output_half(to, m, plane, 0);
    if (to->channels > 8)
        output_half(to, m, plane, 1);
}

// nv vectors of channels (a constant); mask is of the last.
INLINE void moments_of(int nv, const float *x, int n, int c, __m256i mask, float *sum, float *square)
{
    __m256 s[8], mean[8], q[8];
    for (int v = 0; v < nv; v++)
        s[v] = q[v] = _mm256_setzero_ps();
    for (int i = 0; i < n; i++)
        for (int v = 0; v < nv; v++) {
            const float *at = x + (size_t)i * (size_t)c + 8 * v;
            s[v] = _mm256_add_ps(s[v], v == nv - 1 ? _mm256_maskload_ps(at, mask) : _mm256_loadu_ps(at));
        }
    for (int v = 0; v < nv; v++)
        mean[v] = _mm256_div_ps(s[v], _mm256_set1_ps((float)n));
    for (int i = 0; i < n; i++)
        for (int v = 0; v < nv; v++) {
            const float *at = x + (size_t)i * (size_t)c + 8 * v;
            __m256 d = _mm256_sub_ps(v == nv - 1 ? _mm256_maskload_ps(at, mask) : _mm256_loadu_ps(at), mean[v]);
            q[v] = _mm256_fmadd_ps(d, d, q[v]);
        }
    for (int v = 0; v < nv; v++) {
        __m256i m = v == nv - 1 ? mask : _mm256_set1_epi32(-1);
        _mm256_maskstore_ps(sum + 8 * v, m, s[v]);
        _mm256_maskstore_ps(square + 8 * v, m, q[v]);
    }
}

static void moments(const float *x, int n, int c, float *sum, float *square)
{
    int at = 0;
    for (; c - at >= 32; at += 32)
        moments_of(4, x + at, n, c, _mm256_set1_epi32(-1), sum + at, square + at);
    for (; at < c; at += 8)
        moments_of(1, x + at, n, c, tail_mask(c - at), sum + at, square + at);
}

INLINE __m256 activate(__m256 v, bool silu)
{
    if (!silu)
        return v;
    __m256 e = exp8(_mm256_xor_ps(v, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(v, _mm256_add_ps(_mm256_set1_ps(1), e));
}

INLINE void affine_of(float *y, const float *x, const float *scale, const float *shift, int n, int c, bool silu)
{
    for (int i = 0; i < n; i++, x += c, y += c) {
        int j = 0;
        for (; j + 8 <= c; j += 8) {
            __m256 v = _mm256_fmadd_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(scale + j), _mm256_loadu_ps(shift + j));
            _mm256_storeu_ps(y + j, activate(v, silu));
        }
        if (j < c) {
            __m256i mask = tail_mask(c - j);
            __m256 v = _mm256_fmadd_ps(_mm256_maskload_ps(x + j, mask), _mm256_maskload_ps(scale + j, mask),
                                       _mm256_maskload_ps(shift + j, mask));
            _mm256_maskstore_ps(y + j, mask, activate(v, silu));
        }
    }
}

static void affine(float *y, const float *x, const float *scale, const float *shift, int n, int c, bool silu)
{
    if (silu)
        affine_of(y, x, scale, shift, n, c, true);
    else
        affine_of(y, x, scale, shift, n, c, false);
}

const struct conv_ops avx2_conv_ops = {taps, input, weights, points, output, moments, affine};
