// rope.h - rotary position embedding: which angles a position turns by.
//
//     rope_open(&r, loader, weights, head_dim, context, &e);         // reads the model's own keys
//     rope_row(&r, pos, cos, sin);                            // rotary/2 values each
//     ops->rope(q, cos, sin, r.rotary, r.pairs);
//
// inv_freq[i] = theta^(-2i/rotary), changed by the scaling the model was trained with:
//   linear    / factor
//   dynamic   beyond the trained length theta grows with the length (NTK). A row at position p uses length p + 1, so
//             that its own prefix alone determines its result; equal to a reference fed one token at a time
//   yarn      blend of plain and / factor by wavelength, cos and sin scaled (Peng et al. 2023, arXiv 2309.00071)
//   llama3    low frequencies / factor, with a smooth border
// GGUF files carry llama3 as divisors in the tensor rope_freqs.weight. Angles are f32(pos) * f32(inv_freq), as in
// transformers. Immutable after open.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/blocks/linear.h"
#include "engine/weights/weights.h"
#include "kernels/cpu.h"

enum { ROPE_MAX = 1024 };  // most elements of a head that turn

struct rope {
    int rotary;             // elements of a head that turn, from the first
    enum rope_pairs pairs;
    float scale;            // cos and sin are multiplied by it
    float inv_freq[ROPE_MAX / 2];
    bool dynamic;
    double theta, factor;   // dynamic
    int trained;            // dynamic: positions before scaling sets in
    int context;            // positions the scaling was made for; at least the context given to rope_open
};

// rotary: elements that turn; context: max_position_embeddings. pairs is left to the family. Errors: ERR_UNSUPPORTED
// (a type of scaling by name), ERR_CORRUPT (a value out of range).
MUST_CHECK err_code rope_open(struct rope *r, struct loader *ld, const struct weights *w, int rotary, int context,
                              err *e);

void rope_row(const struct rope *r, int pos, float *cos, float *sin);
