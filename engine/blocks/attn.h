// attn.h - self-attention of one layer over the rows of a batch.
//
//     attn_store(lane, &a);       // k, and q of rows that are alone: optional norm, RoPE; k and v into the cache
//     lane_barrier(lane);
//     attn_run(lane, &a);         // the other rows' q; out [rows, heads * head_dim]; may hold a barrier of its own
//     lane_barrier(lane);
//
// qkv holds one row a token: q [heads, head_dim], k [kv_heads, head_dim], v [kv_heads, head_dim]; q and k are changed
// in place. Work is split over (sequence, head, piece of rows), weighed by the keys each has to see, so that lanes
// finish together whatever the mix of long prompts and single tokens. A single token's KV heads are taken page by page, as
// they lie in memory; one that several lanes share is split by segments of keys, whose sums are joined after a barrier
// (kernels/cpu.h: this changes no bit). Called by every lane.
#pragma once

#include "engine/blocks/rope.h"
#include "engine/sched/batch.h"
#include "engine/sched/kv.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct attn {
    const struct cpu_ops *ops;
    const struct batch *batch;
    const struct kv_layout *layout;
    int group, layer;            // of the layout
    int heads, kv_heads, head_dim, window;
    float scale, softcap;
    const float *q_norm, *k_norm;  // [head_dim], NULL: none
    float eps;
    const float *cos, *sin;      // [rows, rotary / 2]
    int rotary;                  // 0: positions are not encoded
    enum rope_pairs pairs;
    float *qkv;
    int ldqkv;
    const float *gated;          // [rows, heads, 2 head_dim]: each head's query, which goes into qkv, and a gate, by whose
    int ldgated;                 // sigmoid out is multiplied. NULL: q is in qkv, and nothing is gated
    float *out;
    int ldout;
    struct acts *into;           // where out is made ready to be multiplied (acts_set_part), by who computed it; needs heads of
                                 // whole blocks. NULL: it is not
    float *scratch;              // attn_scratch_floats(heads / kv_heads, head_dim) floats of this lane
    float *parts;                // attn_parts_floats() floats that all lanes share
};

size_t attn_parts_floats(int lanes, int group, int head_dim);

void attn_store(struct lane *lane, const struct attn *a);
void attn_run(struct lane *lane, const struct attn *a);
