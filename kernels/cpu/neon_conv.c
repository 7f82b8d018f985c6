// neon_conv.c - convolution and group normalisation with NEON: equal to ref_conv.c bit for bit. Any lane, no state.
//
// Products: 16 output channels x 6 pixels (or tiles) in 24 registers, lane = output channel, one FMA chain per output.
// Transforms and norms: lane = channel.
#include <stdint.h>

#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"
#include "kernels/cpu/conv_ops.h"

#define WINO f8
#define WINO_FUNC INLINE
#define w_set f8_set
#define w_add f8_add
#define w_sub f8_sub
#define w_mul f8_mul
#define w_fma f8_fma
#define w_fnma f8_fnma
#include "kernels/cpu/winograd.h"

// Chains of n pixels (a constant) over k channels, from +0; added to acc, or stored.
INLINE void product(enum quant_type t, int n, bool store, float *acc, const uint8_t *w, const float *const *x, int k)
{
    const size_t half = t == QUANT_F32 ? 32 : 16;
    f8 s[6][2];
    for (int j = 0; j < n; j++)
        s[j][0] = s[j][1] = f8_set(0);
    for (int i = 0; i < k; i++, w += 2 * half) {
        f8 w0 = f8_widen(t, w), w1 = f8_widen(t, w + half);
        for (int j = 0; j < n; j++) {
            s[j][0] = f8_fma1(w0, x[j][i], s[j][0]);
            s[j][1] = f8_fma1(w1, x[j][i], s[j][1]);
        }
    }
    for (int j = 0; j < n; j++, acc += CONV_WIDE) {
        f8_store(acc, store ? s[j][0] : f8_add(f8_load(acc), s[j][0]));
        f8_store(acc + 8, store ? s[j][1] : f8_add(f8_load(acc + 8), s[j][1]));
    }
}

static void input(float *v, size_t plane, const float *x, size_t row, int c)
{
    for (int i = 0; i < c; i += 8) {
        f8 d[36];
        for (int j = 0; j < 6; j++) {
            for (int r = 0; r < 6; r++)
                d[6 * r + j] = f8_load(x + (size_t)r * row + (size_t)j * (size_t)c + (size_t)i);
            wino_input(d + j, d + j, 6);
        }
        for (int r = 0; r < 6; r++) {
            wino_input(d + 6 * r, d + 6 * r, 1);
            for (int j = 0; j < 6; j++)
                f8_store(v + (size_t)(6 * r + j) * plane + (size_t)i, d[6 * r + j]);
        }
    }
}

INLINE void weights_of(enum quant_type t, float *u, size_t plane, const uint8_t *w, int c)
{
    const size_t size = t == QUANT_F32 ? 4 : 2, tap = (size_t)c * CONV_WIDE * size;
    for (int i = 0; i < c * CONV_WIDE; i += 8) {
        f8 g[9], m[18], r[6];
        for (int j = 0; j < 9; j++)
            g[j] = f8_widen(t, w + (size_t)j * tap + (size_t)i * size);
        for (int j = 0; j < 3; j++)
            wino_weights(m + j, 3, g + j, 3);
        for (int j = 0; j < 6; j++) {
            wino_weights(r, 1, m + 3 * j, 1);
            for (int p = 0; p < 6; p++)
                f8_store(u + (size_t)(6 * j + p) * plane + (size_t)i, r[p]);
        }
    }
}

#include "kernels/cpu/conv_walk.h"

// 8 channels of a tile.
INLINE void output_half(const struct conv_place *to, const float *m, size_t plane, int half)
{
    f8 t[24];
    for (int j = 0; j < 6; j++) {
        f8 d[6];
        for (int p = 0; p < 6; p++)
            d[p] = f8_load(m + (size_t)(6 * p + j) * plane + 8 * half);
        wino_output(t + j, 6, d, 1);
    }
    const f8 bias = f8_load(to->bias + 8 * half);
    const int left = to->channels - 8 * half;
    for (int i = 0; i < to->rows; i++) {
        f8 r[4];
        size_t at = (size_t)i * to->row + 8 * (size_t)half;
        wino_output(r, 1, t + 6 * i, 1);
        for (int j = 0; j < to->cols; j++, at += (size_t)to->ld) {
            f8 y = f8_add(r[j], bias);
            if (to->add)
                y = f8_add(f8_load_tail(to->add + at, left), y);
            f8_store_tail(to->y + at, left, y);
        }
    }
}

static void output(const struct conv_place *to, const float *m, size_t plane)
{
    output_half(to, m, plane, 0);
    if (to->channels > 8)
        output_half(to, m, plane, 1);
}

// nv vectors of channels (a constant), `left` channels in the last.
INLINE void moments_of(int nv, const float *x, int n, int c, int left, float *sum, float *square)
{
    f8 s[8], mean[8], q[8];
    for (int v = 0; v < nv; v++)
        s[v] = q[v] = f8_set(0);
    for (int i = 0; i < n; i++)
        for (int v = 0; v < nv; v++) {
            const float *at = x + (size_t)i * (size_t)c + 8 * v;
            s[v] = f8_add(s[v], v == nv - 1 ? f8_load_tail(at, left) : f8_load(at));
        }
    for (int v = 0; v < nv; v++)
        mean[v] = f8_div(s[v], f8_set((float)n));
    for (int i = 0; i < n; i++)
        for (int v = 0; v < nv; v++) {
            const float *at = x + (size_t)i * (size_t)c + 8 * v;
            f8 d = f8_sub(v == nv - 1 ? f8_load_tail(at, left) : f8_load(at), mean[v]);
            q[v] = f8_fma(d, d, q[v]);
        }
    for (int v = 0; v < nv; v++) {
        f8_store_tail(sum + 8 * v, v == nv - 1 ? left : 8, s[v]);
        f8_store_tail(square + 8 * v, v == nv - 1 ? left : 8, q[v]);
    }
}

static void moments(const float *x, int n, int c, float *sum, float *square)
{
    int at = 0;
    for (; c - at >= 32; at += 32)
        moments_of(4, x + at, n, c, 8, sum + at, square + at);
    for (; at < c; at += 8)
        moments_of(1, x + at, n, c, c - at, sum + at, square + at);
}

INLINE f8 activate(f8 v, bool silu)
{
    return silu ? over_exp(v, f8_neg(v)) : v;
}

INLINE void affine_of(float *y, const float *x, const float *scale, const float *shift, int n, int c, bool silu)
{
    for (int i = 0; i < n; i++, x += c, y += c) {
        for (int j = 0; j < c; j += 8) {
            f8 v = f8_fma(f8_load_tail(x + j, c - j), f8_load_tail(scale + j, c - j), f8_load_tail(shift + j, c - j));
            f8_store_tail(y + j, c - j, activate(v, silu));
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

const struct conv_ops neon_conv_ops = {taps, input, weights, points, output, moments, affine};
