// gdn.h - Gated DeltaNet: a token mixer with a state of fixed size in place of keys and values (Yang et al. 2024,
// arXiv 2412.06464). Per head, with S [k_dim, v_dim] in f32:
//
//     x -> qkv, z, b, a;   q, k, v = silu(causal depthwise convolution of qkv, no bias)
//     q = q / |q| / sqrt(k_dim),  k = k / |k|,  beta = sigmoid(b),  decay = exp(-exp(A_log) softplus(a + dt_bias))
//     S *= decay;  S += k (beta (v - S^T k))^T;  o = S^T q
//     y = out(norm(o) * silu(z))            norm over each head, plain weight
//
//     gdn_open(&l, &dims, opening, &names, state_offset)          // while the model loads
//     gdn_run(step, &l, &dims, attn_norm)                         // every lane; adds to step->x, ends with a barrier
//
// Tokens go through one after the other, in a fixed order of sums, so that a chunk of n gives the bits of n chunks of one.
// Work is split over heads and sequences. The state of a sequence (kv_seq.state) has for every layer the last taps - 1
// inputs of the convolution [taps - 1, channels] and then S of each head in blocks of GDN_COLS columns
// [v_dim / GDN_COLS][k_dim, GDN_COLS]; zeros before the first token.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "engine/blocks/decoder.h"
#include "engine/blocks/linear.h"

enum { GDN_TAPS = 8 };  // most of a convolution

struct gdn_dims {
    int k_heads, v_heads, k_dim, v_dim, taps;
    bool tiled;             // v head j reads k head j mod k_heads; else j / (v_heads / k_heads)
    float eps;
    const float *q_unit, *k_unit;  // [k_dim] weights that make an RMS norm of a length; gdn_units
};

struct gdn {
    struct linear qkv, z, b, a, out;
    const float *taps[GDN_TAPS];  // [channels] each, the oldest input's first
    const float *rate;            // [v_heads] -exp(A_log)
    const float *dt_bias, *norm;  // [v_heads], [v_dim]
    size_t state;                 // bytes before it in a sequence's state
};

// Names after the layer's prefix; those of matrices and conv are without ".weight".
struct gdn_names {
    const char *qkv, *z, *b, *a, *out, *conv, *rate, *dt_bias, *norm;
    bool rate_is_log;       // the file has A_log; else -exp(A_log) itself
    bool conv_is_3d;        // [channels, 1, taps]; else [channels, taps]
};

// ERR_UNSUPPORTED or ERR_CORRUPT, naming the number that does not fit.
MUST_CHECK err_code gdn_check(const struct gdn_dims *d, const char *path, err *e);
size_t gdn_state_bytes(const struct gdn_dims *d);  // of one layer
int gdn_row_floats(const struct gdn_dims *d);      // of step.mixer a row
int gdn_channels(const struct gdn_dims *d);        // of the convolution
void gdn_units(struct gdn_dims *d, float *memory); // memory: 2 k_dim floats, which must live as long as d
MUST_CHECK err_code gdn_open(struct gdn *l, const struct gdn_dims *d, const struct decoder_opening *o,
                             const struct gdn_names *names, size_t state);
void gdn_run(struct step *s, const struct gdn *l, const struct gdn_dims *d, const float *attn_norm);
