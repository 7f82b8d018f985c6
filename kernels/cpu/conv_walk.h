// conv_walk.h - what of convolution touches no vectors: which pixels or tiles are taken together, and the type of weights that
// a product is made for. A file for one instruction set includes it behind INLINE and what it calls:
//
//     product(type, n, store, acc, w, x, k)    n pixels; type and n are constants
//     weights_of(type, u, plane, w, c)         the weights of Winograd's points
#pragma once

#include "kernels/cpu/conv_ops.h"

#if defined(__AVX2__) || defined(__aarch64__)  // nothing where the file is not compiled for vectors

INLINE void some(enum quant_type t, int n, bool store, float *acc, const uint8_t *w, const float *const *x, int k)
{
    switch (n) {
    case 6:
        product(t, 6, store, acc, w, x, k);
        break;
    case 5:
        product(t, 5, store, acc, w, x, k);
        break;
    case 4:
        product(t, 4, store, acc, w, x, k);
        break;
    case 3:
        product(t, 3, store, acc, w, x, k);
        break;
    case 2:
        product(t, 2, store, acc, w, x, k);
        break;
    case 1:
        product(t, 1, store, acc, w, x, k);
        break;
    }
}

// How many of the n left to take together: 7 to 11 in two even parts, so that no few are left over.
INLINE int share(int n)
{
    return n >= 12 || n == 6 ? 6 : n > 6 ? (n + 1) / 2 : n;
}

INLINE void taps_of(enum quant_type t, float *acc, const uint8_t *w, const float *const *x, size_t offset, int n, int k)
{
    const float *p[6];
    for (int take; n > 0; n -= take, x += take, acc += take * CONV_WIDE) {
        take = share(n);
        for (int j = 0; j < take; j++)
            p[j] = x[j] + offset;
        some(t, take, false, acc, w, p, k);
    }
}

static void taps(enum quant_type type, float *acc, const void *w, const float *const *x, size_t offset, int n, int k)
{
    if (type == QUANT_F32)
        taps_of(QUANT_F32, acc, w, x, offset, n, k);
    else if (type == QUANT_F16)
        taps_of(QUANT_F16, acc, w, x, offset, n, k);
    else
        taps_of(QUANT_BF16, acc, w, x, offset, n, k);
}

static void weights(enum quant_type type, float *u, size_t plane, const void *w, int c)
{
    if (type == QUANT_F32)
        weights_of(QUANT_F32, u, plane, w, c);
    else if (type == QUANT_F16)
        weights_of(QUANT_F16, u, plane, w, c);
    else
        weights_of(QUANT_BF16, u, plane, w, c);
}

static void points(float *m, const float *v, const float *u, int tiles, int c)
{
    for (int c0 = 0; c0 < c; c0 += CONV_POINT) {
        int k = c - c0 < CONV_POINT ? c - c0 : CONV_POINT;
        const uint8_t *w = (const uint8_t *)(u + (size_t)c0 * CONV_WIDE);
        for (int t = 0, take; t < tiles; t += take) {
            const float *p[6];
            take = share(tiles - t);
            for (int j = 0; j < take; j++)
                p[j] = v + (size_t)(t + j) * (size_t)c + (size_t)c0;
            if (c0 == 0)
                some(QUANT_F32, take, true, m + t * CONV_WIDE, w, p, k);
            else
                some(QUANT_F32, take, false, m + t * CONV_WIDE, w, p, k);
        }
    }
}

#endif
