// snac_int.h - what snac_open.c makes and snac.c runs.
#pragma once

#include "base/arena.h"
#include "engine/audio/snac.h"
#include "engine/blocks/linear.h"
#include "kernels/cpu/wave.h"

enum { SNAC_UNITS = 3 };

struct snac_snake {
    const float *alpha, *inv;  // [channels]; inv = 1 / (alpha + 1e-9)
};

// Seven taps over `in` channels: depthwise weights [7][in], or a matrix a tap.
struct snac_conv7 {
    bool depthwise;
    int dilation;
    const float *w, *bias;
    struct linear tap[WAVE_TAPS];  // dense; the bias is the last one's
};

struct snac_unit {
    struct snac_snake before, after;
    struct snac_conv7 conv;
    struct linear mix;  // 1x1
    size_t ext, raw;    // state: rows after the first snake [6 dilation][channels], raw rows [3 dilation][channels]
};

struct snac_block {
    int in, out, rate, pad;  // channels; pad = ceil(rate / 2) first rows are dropped
    struct snac_snake snake;
    struct linear up;        // [rate * out, 2 * in]: a pair of rows to rate rows
    struct linear noise;
    struct snac_unit units[SNAC_UNITS];
    size_t row;              // state: the last row [in]
};

struct snac_level {
    const float *codebook;   // [codebook_size][codebook_dim]
    struct linear project;   // [latent, codebook_dim]
};

struct snac {
    struct snac_shape shape;
    const struct cpu_ops *ops;
    int latent, width, codebook_dim;  // channels: of the codes, of the first block, of a codebook row
    bool depthwise;
    struct snac_level levels[SNAC_LEVELS];
    struct snac_conv7 conv_in;        // latent; dense: to width at once
    struct linear mix_in;             // depthwise: latent to width
    struct snac_block blocks[SNAC_BLOCKS];
    struct snac_snake snake_out;
    struct linear conv_out;           // [1, 7 * channels], over seven rows at once
    size_t ext_in, ext_out;           // state: [6][latent], [6][channels]
    size_t state_floats;
    struct arena memory;              // vectors
    struct {
        void *p;
        size_t bytes;
    } *pages;                         // packed matrices
    int npages, pages_cap;
};
