// wave.c - the scalar definitions of wave.h. Any lane, no state.
#include "kernels/cpu/wave.h"

#include <math.h>
#include <stddef.h>

static float snake(float x, float alpha, float inv)
{
    float u = alpha * x, n = rintf(u * 0.318309886f);
    float r = fmaf(n, -WAVE_PI_LOW, fmaf(n, -WAVE_PI_HIGH, u)), z = r * r;
    float p = fmaf(WAVE_SIN4, z, WAVE_SIN3);
    p = fmaf(p, z, WAVE_SIN2);
    p = fmaf(p, z, WAVE_SIN1);
    p = fmaf(p, z, WAVE_SIN0);
    float s = fmaf(p * z, r, r);
    return fmaf(inv, s * s, x);
}

void wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n)
{
    for (int t = 0; t < rows; t++, y += ldy, x += ldx) {
        for (int c = 0; c < n; c++)
            y[c] = snake(x[c], alpha[c], inv[c]);
    }
}

void wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                    int rows, int n)
{
    const ptrdiff_t step = (ptrdiff_t)dilation * ldx;
    for (int t = 0; t < rows; t++, y += ldy, x += ldx) {
        for (int c = 0; c < n; c++) {
            float acc = b[c];
            for (int k = 0; k < WAVE_TAPS; k++)
                acc = fmaf(w[k * ldw + c], x[k * step + c], acc);
            y[c] = acc;
        }
    }
}
