// neon_wave.c - wave.h with NEON: a lane is a channel, weights stay in registers while time runs. Any lane, no state.
#include <stddef.h>

#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"
#include "kernels/cpu/wave.h"

INLINE f8 snake8(f8 x, f8 alpha, f8 inv)
{
    f8 u = f8_mul(alpha, x);
    f8 n = f8_round(f8_mul1(u, 0.318309886f));
    f8 r = f8_fma1(n, -WAVE_PI_HIGH, u);
    r = f8_fma1(n, -WAVE_PI_LOW, r);
    f8 z = f8_mul(r, r);
    f8 p = f8_fma(f8_set(WAVE_SIN4), z, f8_set(WAVE_SIN3));
    p = f8_fma(p, z, f8_set(WAVE_SIN2));
    p = f8_fma(p, z, f8_set(WAVE_SIN1));
    p = f8_fma(p, z, f8_set(WAVE_SIN0));
    f8 s = f8_fma(f8_mul(p, z), r, r);
    return f8_fma(inv, f8_mul(s, s), x);
}

void neon_wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n)
{
    int c = 0;
    for (; c + 16 <= n; c += 16) {
        f8 a0 = f8_load(alpha + c), a1 = f8_load(alpha + c + 8);
        f8 i0 = f8_load(inv + c), i1 = f8_load(inv + c + 8);
        const float *from = x + c;
        float *to = y + c;
        for (int t = 0; t < rows; t++, from += ldx, to += ldy) {
            f8_store(to, snake8(f8_load(from), a0, i0));
            f8_store(to + 8, snake8(f8_load(from + 8), a1, i1));
        }
    }
    for (; c + 8 <= n; c += 8) {
        f8 a = f8_load(alpha + c), i = f8_load(inv + c);
        for (ptrdiff_t t = 0; t < rows; t++)
            f8_store(y + t * ldy + c, snake8(f8_load(x + t * ldx + c), a, i));
    }
    if (c < n)
        wave_snake(y + c, ldy, x + c, ldx, alpha + c, inv + c, rows, n - c);
}

// 8 channels; four rows at a time, so that the chains hide each other's latency.
INLINE void depthwise8(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                       int rows)
{
    const ptrdiff_t step = (ptrdiff_t)dilation * ldx;
    f8 bias = f8_load(b), v[WAVE_TAPS];
    for (int k = 0; k < WAVE_TAPS; k++)
        v[k] = f8_load(w + k * ldw);
    int t = 0;
    for (; t + 4 <= rows; t += 4, x += 4 * (ptrdiff_t)ldx, y += 4 * (ptrdiff_t)ldy) {
        f8 s[4] = {bias, bias, bias, bias};
        for (int k = 0; k < WAVE_TAPS; k++)
            for (int j = 0; j < 4; j++)
                s[j] = f8_fma(v[k], f8_load(x + k * step + j * (ptrdiff_t)ldx), s[j]);
        for (int j = 0; j < 4; j++)
            f8_store(y + j * (ptrdiff_t)ldy, s[j]);
    }
    for (; t < rows; t++, x += ldx, y += ldy) {
        f8 s = bias;
        for (int k = 0; k < WAVE_TAPS; k++)
            s = f8_fma(v[k], f8_load(x + k * step), s);
        f8_store(y, s);
    }
}

void neon_wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                         int rows, int n)
{
    int c = 0;
    for (; c + 8 <= n; c += 8)
        depthwise8(y + c, ldy, x + c, ldx, w + c, ldw, b + c, dilation, rows);
    if (c < n)
        wave_depthwise(y + c, ldy, x + c, ldx, w + c, ldw, b + c, dilation, rows, n - c);
}
