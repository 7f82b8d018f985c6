// conv_ops.h - the convolution slots of an instruction set. kernels/conv.c puts layers together from them.
//
// Weights of 16 output channels lie [tap][cin][16] in the file's number type. Winograd F(4,3) works on tiles of 4x4 outputs:
// 36 planes, one for each point of the 6x6 transformed tile, in row-major order. Its formulas are in winograd.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/quant.h"

enum {
    CONV_WIDE = 16,    // output channels together
    CONV_PIECE = 320,  // channels of one chain, direct
    CONV_POINT = 128,  // channels of one chain, Winograd
    CONV_PLANES = 36,
};

// Where the outputs of a tile or pixel go.
struct conv_place {
    float *y;           // channel 0 of the group at the first pixel
    const float *add;   // the same place of what is added, NULL: nothing
    size_t row;         // floats between image rows
    int ld;             // floats between pixels
    int rows, cols;     // of the tile that exist, 1 to 4
    int channels;       // of the group that exist, 1 to 16
    const float *bias;  // 16
};

struct conv_ops {
    // acc[i][16] += the fma chain, from +0, over k channels of w [k][16] and x[i][offset ...], for i < n.
    void (*taps)(enum quant_type type, float *acc, const void *w, const float *const *x, size_t offset, int n, int k);
    // v[p * plane + c] for the 36 points p of a tile whose 6x6 pixels start at x, `row` floats between rows, c of c % 8 == 0
    // channels between pixels.
    void (*input)(float *v, size_t plane, const float *x, size_t row, int c);
    // u[p * plane + c * 16 + o] from w [9][c][16].
    void (*weights)(enum quant_type type, float *u, size_t plane, const void *w, int c);
    // One plane: m[t][16] = sum over pieces of CONV_POINT channels, ascending, of the chain, from +0, of v[t][c] u[c][16].
    void (*points)(float *m, const float *v, const float *u, int tiles, int c);
    // m[p * plane ...][16] back to pixels: y = v + bias, or add + (v + bias).
    void (*output)(const struct conv_place *to, const float *m, size_t plane);
    // Each of c channels over n pixels, ascending: the sum, and the fma chain of squared differences from sum / n.
    void (*moments)(const float *x, int n, int c, float *sum, float *square);
    // y[i][c] = fma(x[i][c], scale[c], shift[c]), then x / (1 + exp(-x)) with silu, for n pixels.
    void (*affine)(float *y, const float *x, const float *scale, const float *shift, int n, int c, bool silu);
};
