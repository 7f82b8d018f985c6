// snac.h - the decoder of SNAC (Siuzdak, Grötschla, Lanzendörfer 2024): codes of a speech model to samples. No family of
// its own: a part of a speech model, which owns the weights.
//
//     struct snac *s;
//     snac_open(weights, ops, packed, &s, &e);
//     struct snac_stream st = {.snac = s, .state = memory of snac_state_floats(s)};
//     snac_start(&st);                                            // one thread
//     int n = snac_samples(&st, rows, last);                      // what the step will give; out needs that many
//     ... every lane: snac_step(&st, lane, codes, rows, last, scratch, out);
//
//   codes -> codebooks, summed -> conv7 -> 1x1 -> [ snake -> conv up x s -> + noise (W x) ;
//            x += 1x1 (snake (conv7 dilated (snake x))) for dilation 1, 3, 9 ] a rate -> snake -> conv7 -> tanh
//
// A latent row is one step of the finest codebook (hop samples); level l has one code for strides[l] of them, and a frame
// is strides[0] rows. Streaming is exact: every convolution keeps the rows it will see again, sound is given out as soon
// as all it depends on is known, and any cutting of the rows into steps gives the bits of the whole clip. The sound of
// all rows is rows * hop samples; it comes about 4757 samples late (at 24 kHz) until the last step flushes it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct packed;
struct weights;

enum { SNAC_LEVELS = 8, SNAC_BLOCKS = 8, SNAC_STEP_ROWS = 12 };  // most levels, rates, latent rows of a step

struct snac;

struct snac_shape {
    int sample_rate, hop, frame_rows;
    int levels, codebook_size, strides[SNAC_LEVELS];
    int blocks, rates[SNAC_BLOCKS];  // a noise layer a block, at the block's output rate
    bool noise;
    size_t bytes;  // of the packed weights
};

// Reads config.json and the tensors of the decoder and the codebooks; weight norm is folded. Errors: ERR_CORRUPT
// (missing or misshapen), ERR_UNSUPPORTED (attention: attn_window_size), ERR_MEMORY.
// The tensors it takes are noted in packed.
MUST_CHECK err_code snac_open(const struct weights *w, const struct cpu_ops *ops, struct packed *packed,
                              struct snac **ret_snac, err *e);
void snac_close(struct snac *s);
const struct snac_shape *snac_shape(const struct snac *s);

// The noise the decoder adds: none; given, one number for each row of each block's output from row 0; or N(0, 1) as a
// function of (seed, block, absolute row), where `first` latent rows came before this stream.
enum snac_noise { SNAC_NOISE_OFF, SNAC_NOISE_DRAWN, SNAC_NOISE_GIVEN };

struct snac_stream {
    const struct snac *snac;
    float *state;  // snac_state_floats()
    enum snac_noise noise;
    uint64_t seed, first;
    const float *given[SNAC_BLOCKS];
    int fed;       // latent rows so far
};

size_t snac_state_floats(const struct snac *s);
size_t snac_scratch_bytes(const struct snac *s);  // of a step, shared by the lanes
void snac_start(struct snac_stream *st);
int snac_samples(const struct snac_stream *st, int rows, bool last);
// Decodes latent rows fed .. fed + rows (0 with `last` only flushes; at most SNAC_STEP_ROWS). codes[l][i] is level l's i-th
// code since the stream began, 0 .. codebook_size - 1. Ends with a barrier, after which fed has grown.
void snac_step(struct snac_stream *st, struct lane *lane, const int32_t *const *codes, int rows, bool last,
               void *scratch, float *out);

// Number of the i-th sample of N(0, 1) noise: a function, for checks.
float snac_draw(uint64_t seed, int block, uint64_t row);
