// mha.h - attention over keys and values that lie in plain rows: encoders, cross-attention, denoisers.
//
//     struct mha a = {.ops = ops, .heads = h, .head_dim = d, .scale = 1 / sqrtf(d), .scratch = shared};
//     struct mha_item items[] = {{q, k, v, out, rows, keys}, ...};     // one a text of a ragged batch, or just one
//     mha_run(lane, &a, items, n);                                     // no barrier at the end
//
// Row i of q, [heads, head_dim] wide with stride ldq, attends to all keys of its item, or with causal to keys
// 0 .. pos0 + i. Work is split over items, heads and blocks of query rows. Keys are walked in fixed pieces from key 0
// with online softmax (kernels/cpu.h), so a row's bits depend on its own query and keys alone. Called by every lane; q,
// k and v must be complete (a barrier before), out is complete after the next barrier. out may be neither of the three.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu.h"
#include "kernels/team.h"

struct mha_item {
    const float *q, *k, *v;  // rows of heads * head_dim floats
    float *out;
    int rows, keys;
    int pos0;                // causal: position of row 0
};

struct mha {
    const struct cpu_ops *ops;
    int heads, head_dim;
    int ldq, ldk, ldv, ldo;  // floats between rows
    float scale;
    bool causal;
    float *scratch;          // mha_scratch_floats(), shared by the lanes
};

// max_keys: of the longest item (it does not matter at present: keys are taken a piece at a time).
size_t mha_scratch_floats(int max_keys, int head_dim, int lanes);
void mha_run(struct lane *lane, const struct mha *a, const struct mha_item *items, int n);
