// moe.h - a mixture of experts: the part of a decoder layer where each token meets only a few of many gated MLPs.
//
//     p = softmax(router x);  K = the k largest of p, of equal ones those with the lower index
//     w_i = p_i, or p_i / sum over K of p_j when dims.normalise says so
//     y += sum over i in K, i ascending, of w_i expert_i(x);  expert(x) = down(act(gate x) * up x)
//     y += sigmoid(shared_switch x) shared(x)                       where there is an expert that every token meets
//
// (Shazeer et al. 2017, arXiv 1701.06538; the shared expert: Qwen2-MoE, arXiv 2407.10671.)
//
//     moe_open(&l, &dims, opening, &names);              // while a model loads
//     ...
//     moe_begin(&s, &l, ops, lane, a.math, rows, scratch);   // every lane: scratch of moe_scratch_bytes, shared by them
//     moe_route(&s, &a);                                 // which experts; `a` is what the router reads
//     moe_experts(&s, &a, y, ldy);                       // adds to y [rows, hidden]; `a` is what the experts read
//
// The tokens of a step are grouped by expert, and an expert that no token chose is not read. Gate and up are split over
// lanes as (expert, rows), weighted by tokens; down by columns of y, where a lane adds one expert after the other in the
// order of their index: no sum depends on the number of lanes or tokens. Rows are quantised once a step (by who
// makes `a`) and gathered for each expert. Barriers: after the router, after gate and up, at the end; and where rows are
// many, after the choice and after the products of gate and up are quantised.
//
// Every type of weight may be mixed with any other. Routed experts have no biases and no low-rank pairs; the router and
// the shared expert may have pairs. A family whose router reads something else, or computes its weights in another way, calls
// the two stages with different inputs, or fills ids and weights itself instead of moe_route.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/blocks/linear.h"

struct decoder_opening;

enum { MOE_EXPERTS = 4096 };  // most experts of a layer

enum moe_act { MOE_SILU, MOE_GELU_TANH };

struct moe_dims {
    int hidden, experts, top_k;
    int ffn;             // of a routed expert
    int shared_ffn;      // of the expert every token meets; 0: there is none
    bool shared_switch;  // whose output is multiplied by a sigmoid
    bool normalise;
    enum moe_act act;
};

// The experts lie side by side in three arrays, the shared one last.
struct moe {
    struct moe_dims dims;
    struct linear router;         // [experts, hidden]
    struct linear shared_switch;  // [1, hidden]
    struct linear *gate, *up, *down;
};

// Full names after the layer's prefix; NULL: this form or part is not known. "%d" is the expert's number. A stack is
// [experts, out, in]; in gate_up_stack the rows of gate are above those of up.
struct moe_names {
    const char *router;
    const char *gate, *up, *down;
    const char *gate_stack, *up_stack, *gate_up_stack, *down_stack;
    const char *shared_gate, *shared_up, *shared_down, *shared_switch;
};
extern const struct moe_names moe_names_hf, moe_names_gguf;

// dims that do not fit each other: ERR_CORRUPT.
MUST_CHECK err_code moe_check(const struct moe_dims *d, const char *path, err *e);
// Takes whichever form of experts the file has. A missing tensor, a wrong shape or an expert too many is ERR_CORRUPT naming
// the tensor.
MUST_CHECK err_code moe_open(struct moe *l, const struct moe_dims *d, const struct decoder_opening *o,
                             const struct moe_names *names);

size_t moe_macs(const struct moe_dims *d);         // multiplications of one token
size_t moe_idle_macs(const struct moe_dims *d);    // of the experts that one token does not meet
size_t moe_unread_bytes(const struct moe *l);      // of the packed experts, what one token does not read

size_t moe_scratch_bytes(const struct moe_dims *d, enum mat_math math, int rows, int lanes);

// One lane's view of a step.
struct moe_step {
    const struct moe *m;
    const struct cpu_ops *ops;
    struct lane *lane;
    enum mat_math math;
    int rows;
    bool few;             // what follows is the lane's own, computed by every lane for itself
    int32_t *ids;         // [rows, top_k] chosen experts
    float *weights;       // [rows, top_k], then [rows] of the shared expert
    uint8_t *products;    // act(gate x) * up x as activations
    // the lanes share these:
    float *logits;        // [rows, experts + 1]
    float *gate, *up;     // the rows of expert 0, then those of expert 1 ...
    // always the lane's own:
    int32_t *ends, *slots;  // expert e has the slots (token * top_k + n) at slots[ends[e-1]] .. slots[ends[e]-1]
    float *x;             // gathered rows
    uint8_t *gathered;    // gathered activations
    float *out;           // what an expert yields for its tokens
};

void moe_begin(struct moe_step *s, const struct moe *m, const struct cpu_ops *ops, struct lane *lane,
               enum mat_math math, int rows, void *scratch);
void moe_route(struct moe_step *s, const struct acts *a);
void moe_experts(struct moe_step *s, const struct acts *a, float *y, int ldy);
