// conv.h - 3x3 convolutions over pixels that lie channels last (NHWC), and what stands between them.
//
//     conv_plan(&c, type, cout, cin, &e);                    // c.bytes is what the packed weights need
//     conv_pack(&c, dst, src, g0, g1);                       // groups of 16 output channels from [cout][cin][3][3]
//
//     struct conv_job j = {.w = &c, .x = frame, ...};        // one layer over a stripe of output rows of n images
//     direct:     conv_direct(ops, &j, block, g0, g1);       // any (block of 96 pixels, group) in any order
//     winograd:   conv_input(ops, &j, first, t0, t1, v, plane);      // tiles t0..t1 of a run of tiles, into shared v
//                 barrier
//                 conv_group(ops, &j, first, n, g, t0, t1, v, plane, scratch);   // any groups, any of the run's tiles
//
// A frame is the input with a border of zeros, so that no product asks where it is: [n][rows][width][cin], whose row 0
// is input row y0 * stride - 1 and whose column 0 is input column -1. conv_frame_rows and conv_frame_width say how large.
//
// Exactness. An output is bias + sum, a sum one fixed chain of operations on its own window: the same for any stripe, block,
// run of tiles or split over lanes, and on every instruction set. Direct: for each tap in row-major order and each
// piece of 320 channels a fused chain from +0, added in that order. Winograd F(4,3): kernels/cpu/winograd.h, tiles
// anchored at pixel (0, 0), pieces of 128 channels. The two are different functions: conv_winograd chooses by the
// layer's shape alone.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cpu/conv_ops.h"
#include "kernels/quant.h"

struct cpu_ops;

enum { CONV_BLOCK = 96, CONV_TILE = 4 };

struct conv {
    enum quant_type type;  // F32, F16 or BF16
    int cout, cin;
    size_t bytes;          // of the packed form
    const uint8_t *data;   // set by the owner
};

// Errors: ERR_UNSUPPORTED for other types, ERR_TOO_LARGE.
MUST_CHECK err_code conv_plan(struct conv *c, enum quant_type type, int cout, int cin, err *e);
void conv_pack(const struct conv *c, uint8_t *dst, const void *src, int g0, int g1);
static inline int conv_groups(const struct conv *c) { return (c->cout + CONV_WIDE - 1) / CONV_WIDE; }
// Whether a layer with h x w outputs is computed by Winograd's method.
bool conv_winograd(const struct conv *c, int stride, int h, int w);

struct conv_job {
    const struct conv *w;
    const float *x;      // the frame
    int rows, width;     // of the frame
    int n, stride;
    int y0, y1;          // output rows; y0 a multiple of 4
    int h, wd;           // of the whole output
    float *y;            // [n][h][wd][ldy], pixel (0, 0) of image 0
    const float *add;    // the same shape, may be y: the result is added to it. NULL: none
    int ldy;
    const float *bias;   // [groups * 16]
};

static inline int conv_tiles(const struct conv_job *j)
{
    return j->n * ((j->y1 - j->y0 + 3) / CONV_TILE) * ((j->wd + 3) / CONV_TILE);
}
static inline int conv_blocks(const struct conv_job *j)
{
    return (j->n * (j->y1 - j->y0) * j->wd + CONV_BLOCK - 1) / CONV_BLOCK;
}
// Of a frame for `rows` output rows (`w` output columns); whole tiles with stride 1.
static inline int conv_frame_rows(int stride, int rows)
{
    return stride == 1 ? (rows + 3) / CONV_TILE * CONV_TILE + 2 : 2 * rows + 1;
}
static inline int conv_frame_width(int stride, int w)
{
    return conv_frame_rows(stride, w);
}

void conv_direct(const struct cpu_ops *ops, const struct conv_job *j, int block, int g0, int g1);

// Winograd. v holds CONV_PLANES planes of `plane` floats: conv_plane(run, cin); tile `first` of the job is tile 0 of v.
size_t conv_plane(int tiles, int cin);
void conv_input(const struct cpu_ops *ops, const struct conv_job *j, int first, int t0, int t1, float *v, size_t plane);
// Tiles t0..t1 of the run for output channel group g. scratch: conv_group_floats(t1 - t0, cin), the lane's own.
size_t conv_group_floats(int tiles, int cin);
void conv_group(const struct cpu_ops *ops, const struct conv_job *j, int first, int t0, int t1, int g, const float *v,
                size_t plane, float *scratch);
