// linear.h - the one way to multiply by a weight: any storage format, optional bias, optional LoRA pair.
//
//     struct linear q;                                              // zeroed
//     linear_open(&q, loader, "blk.0.attn_q.weight", "blk.0.attn_q.bias", rows, cols, &e);
//     ...
//     struct linear *qkv[] = {&l->q, &l->k, &l->v};  float *out[] = {...};
//     linear_input(lane, ops, &acts, x, ldx, rows);                 // all lanes; ends with a barrier
//     linear_apply(lane, ops, qkv, out, ld, 3, &acts, MAT_STORE);   // this lane's rows of all three; no barrier
//
// Families never see quantisation, nor adapters: a loader that has one gives every linear its pair, which is added when
// acts.adapter says so. The order of additions is (MAT_ADD: y +) W x, then the bias, then B (s (A x)), each of the two
// products a chain of its own; without the switch the bits are those of a model without adapter. Every lane computes A x
// for itself, so the pair costs no barrier.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/blocks/loader.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct linear {
    struct mat w;           // [out, in]
    const float *bias;      // [out] f32, NULL: none
    int in, out;
    const struct lora_pair *pair;  // NULL: none
};

// The tensor must be [out, in]; otherwise ERR_CORRUPT naming tensor, found and expected shape. name_weight and
// name_bias are full tensor names; name_bias may be NULL, and a tensor that is not in the file is taken as no bias.
MUST_CHECK err_code linear_open(struct linear *l, struct loader *ld, const char *name_weight, const char *name_bias,
                                int out, int in, err *e);
// Gives it the pair of a module of another name than its tensor's (a head that is the embedding), where there is one.
MUST_CHECK err_code linear_adapt(struct linear *l, struct loader *ld, const char *module, const char *name_weight,
                                 err *e);
// Row r of w as floats, with adapter that of w + s B A: logit = row . x for who needs a few rows only.
void linear_row(const struct linear *l, int r, bool adapter, float *dst);
// Makes rows of x ready to be multiplied: split over lanes, ends with a barrier. *a is the lane's own struct; all
// lanes' structs describe the same memory (acts_init with the same arguments).
void linear_input(struct lane *lane, const struct cpu_ops *ops, struct acts *a, const float *x, int ldx, int rows);

// y[i] = l[i]->w x + bias (+ pair) for this lane's share of the output rows of each; every l has the same input. No barrier.
void linear_apply(struct lane *lane, const struct cpu_ops *ops, const struct linear *const *l, float *const *y,
                  const int *ldy, int count, const struct acts *a, enum mat_write write);
// The same for those row groups of one linear whose bits are set (bit g of word g / 64, none past the last), shared out among
// the lanes alike; the other rows of y are left as they are. With a low-rank pair A x is computed for each run of groups.
void linear_apply_some(struct lane *lane, const struct cpu_ops *ops, const struct linear *l, float *y, int ldy,
                       const struct acts *a, const uint64_t *groups);
// The same for row groups [g0, g1) of one linear: for callers that split the work themselves.
void linear_groups(const struct cpu_ops *ops, const struct linear *l, float *y, int ldy, const struct acts *a, int g0,
                   int g1, enum mat_write write);
