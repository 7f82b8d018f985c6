// ref_conv.c - convolution and group normalisation in plain scalar C: the definition. Any lane; no state.
#include <math.h>
#include <string.h>

#include "kernels/cpu/conv_ops.h"
#include "kernels/cpu/ref.h"

#define WINO float
#define WINO_FUNC static inline
#define w_set(f) (f)
#define w_add(a, b) ((a) + (b))
#define w_sub(a, b) ((a) - (b))
#define w_mul(a, b) ((a) * (b))
#define w_fma(a, b, c) fmaf(a, b, c)
#define w_fnma(a, b, c) fmaf(-(a), b, c)
#include "kernels/cpu/winograd.h"

static float weight(enum quant_type type, const void *w, size_t i)
{
    const struct quant *q = quant_get(type);
    float f;
    q->dequantize((const uint8_t *)w + i * (size_t)q->block_bytes, &f, 1);
    return f;
}

static void taps(enum quant_type type, float *acc, const void *w, const float *const *x, size_t offset, int n, int k)
{
    float chain[CONV_WIDE];
    for (int i = 0; i < n; i++) {
        memset(chain, 0, sizeof chain);
        for (int c = 0; c < k; c++)
            for (int o = 0; o < CONV_WIDE; o++)
                chain[o] = fmaf(weight(type, w, (size_t)c * CONV_WIDE + (size_t)o), x[i][offset + (size_t)c], chain[o]);
        for (int o = 0; o < CONV_WIDE; o++)
            acc[i * CONV_WIDE + o] += chain[o];
    }
}

static void input(float *v, size_t plane, const float *x, size_t row, int c)
{
    for (int i = 0; i < c; i++) {
        float d[36];
        for (int p = 0; p < 36; p++)
            d[p] = x[(size_t)(p / 6) * row + (size_t)(p % 6) * (size_t)c + (size_t)i];
        for (int j = 0; j < 6; j++)
            wino_input(d + j, d + j, 6);
        for (int j = 0; j < 6; j++)
            wino_input(d + 6 * j, d + 6 * j, 1);
        for (int p = 0; p < 36; p++)
            v[(size_t)p * plane + (size_t)i] = d[p];
    }
}

static void weights(enum quant_type type, float *u, size_t plane, const void *w, int c)
{
    for (int i = 0; i < c * CONV_WIDE; i++) {
        float g[9], t[18], r[36];
        for (int tap = 0; tap < 9; tap++)
            g[tap] = weight(type, w, (size_t)tap * (size_t)c * CONV_WIDE + (size_t)i);
        for (int j = 0; j < 3; j++)
            wino_weights(t + j, 3, g + j, 3);
        for (int j = 0; j < 6; j++)
            wino_weights(r + 6 * j, 1, t + 3 * j, 1);
        for (int p = 0; p < 36; p++)
            u[(size_t)p * plane + (size_t)i] = r[p];
    }
}

static void points(float *m, const float *v, const float *u, int tiles, int c)
{
    for (int t = 0; t < tiles; t++) {
        for (int o = 0; o < CONV_WIDE; o++) {
            float sum = 0;
            for (int c0 = 0; c0 < c; c0 += CONV_POINT) {
                float chain = 0;
                for (int i = c0; i < c && i < c0 + CONV_POINT; i++)
                    chain = fmaf(u[(size_t)i * CONV_WIDE + (size_t)o], v[(size_t)t * (size_t)c + (size_t)i], chain);
                sum = c0 ? sum + chain : chain;
            }
            m[t * CONV_WIDE + o] = sum;
        }
    }
}

static void output(const struct conv_place *to, const float *m, size_t plane)
{
    for (int o = 0; o < to->channels; o++) {
        float d[36], t[24], r[16];
        for (int p = 0; p < 36; p++)
            d[p] = m[(size_t)p * plane + (size_t)o];
        for (int j = 0; j < 6; j++)
            wino_output(t + j, 6, d + j, 6);
        for (int j = 0; j < 4; j++)
            wino_output(r + 4 * j, 1, t + 6 * j, 1);
        for (int i = 0; i < to->rows; i++) {
            for (int j = 0; j < to->cols; j++) {
                size_t at = (size_t)i * to->row + (size_t)j * (size_t)to->ld + (size_t)o;
                float y = r[4 * i + j] + to->bias[o];
                to->y[at] = to->add ? to->add[at] + y : y;
            }
        }
    }
}

static void moments(const float *x, int n, int c, float *sum, float *square)
{
    for (int j = 0; j < c; j++) {
        float s = 0, q = 0;
        for (int i = 0; i < n; i++)
            s += x[(size_t)i * (size_t)c + (size_t)j];
        float mean = s / (float)n;
        for (int i = 0; i < n; i++) {
            float d = x[(size_t)i * (size_t)c + (size_t)j] - mean;
            q = fmaf(d, d, q);
        }
        sum[j] = s;
        square[j] = q;
    }
}

static void affine(float *y, const float *x, const float *scale, const float *shift, int n, int c, bool silu)
{
    for (int i = 0; i < n; i++, x += c, y += c) {
        for (int j = 0; j < c; j++) {
            float v = fmaf(x[j], scale[j], shift[j]);
            y[j] = silu ? v / (1 + ref_exp(-v)) : v;
        }
    }
}

const struct conv_ops ref_conv_ops = {taps, input, weights, points, output, moments, affine};
