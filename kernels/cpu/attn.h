// attn.h - how the attention of every instruction set uses its scratch memory.
#pragma once

#include "kernels/cpu.h"

enum { ATTN_STATES = 32 };  // (row, head) pairs taken through the keys together, unless one row has more heads

static inline int attn_pad(int head_dim)  // heads are padded with zeros to whole vectors
{
    return (head_dim + 7) & ~7;
}

static inline int attn_rows(int group)  // rows taken together
{
    return group < ATTN_STATES ? ATTN_STATES / group : 1;
}

struct attn_scratch {
    float *k, *v;    // one piece, [KV_PIECE][pad]
    float *q, *acc;  // [states][pad]
    float *p;        // scores, then weights, [states][KV_PIECE]
    float *max, *sum, *scale;  // [states]: running maximum, running sum, what the accumulator is multiplied by
};

struct attn_scratch attn_lay_out(float *scratch, int group, int head_dim);

// ---- mha
enum { MHA_BLOCK = 48 };  // query rows whose scores are held at a time

struct mha_scratch {
    float *k;    // one piece of keys, [MHA_PIECE / 16][head_dim][16]
    float *v;    // one piece of values, [pad / 16][MHA_PIECE][16]
    float *q;    // queries times scale, [rows][pad]
    float *acc;  // [rows][pad]
    float *p;    // scores, then weights, [MHA_BLOCK][MHA_PIECE]
    float *max, *sum;  // [rows]
};

static inline int attn_mha_pad(int head_dim)
{
    return (head_dim + 15) & ~15;
}

struct mha_scratch attn_mha_lay_out(float *scratch, int rows, int head_dim);
