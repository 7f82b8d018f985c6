// attn.h - how the attention of every instruction set uses its scratch memory.
#pragma once

#include "kernels/cpu.h"

enum {
    ATTN_STATES = 36,  // (row, head) pairs taken through the keys together, unless one row has more heads
    ATTN_MANY = 64,    // of one row with several KV heads
};

static inline int attn_pad(int head_dim)  // heads are padded to whole vectors
{
    return (head_dim + 15) & ~15;
}

static inline int attn_rows(int group)  // rows taken together
{
    return group < ATTN_STATES ? ATTN_STATES / group : 1;
}

struct attn_scratch {
    float *k;    // a piece of keys, [head_dim][KV_PIECE], or scales of q8 ones, [blocks][KV_PIECE]
    float *v;    // a piece of values, [KV_PIECE][pad], or scales of q8 ones, [KV_PIECE][blocks]
    float *q;    // queries times scale, [states][pad]
    float *acc;  // of the segment, [states][pad]
    float *p;    // scores, then weights, [states][KV_PIECE]
    float *max, *sum, *scale;  // [states]: of the segment; scale: what the accumulator is multiplied by
    float *all_max, *all_sum;  // [states]: of the segments before
};

struct attn_scratch attn_lay_out(float *scratch, int group, int head_dim);

static inline int attn_first_key(const struct attn_args *a, int pos)
{
    return a->window && pos - a->window + 1 > 0 ? pos - a->window + 1 : 0;
}

static inline const uint8_t *attn_page(const struct attn_args *a, int pos)
{
    return (const uint8_t *)a->pages[pos / a->page_tokens];
}

// The keys or values (off: k_off, v_off) of the piece at `piece`; kv.c has their layout.
static inline const uint8_t *attn_piece(const struct attn_args *a, size_t off, int piece)
{
    return attn_page(a, piece) + off + (size_t)(piece % a->page_tokens) * kv_row_bytes(a->kv, a->head_dim);
}

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

// Rows of a product and what they are multiplied by. Vector v of w's row k is at w + v/2 * pair + v%2 * 8 + k * step.
struct mha_product {
    const float *w;
    size_t pair, step;
    const float *x;      // [rows][k], ldx apart
    size_t ldx;
    int k;
    float *y;            // [rows][8 * vectors], ldy apart
    size_t ldy;
    const float *scale;  // of each row: y is continued after one multiplication; NULL: starts at +0
};

static inline int attn_mha_pad(int head_dim)
{
    return (head_dim + 15) & ~15;
}

struct mha_scratch attn_mha_lay_out(float *scratch, int rows, int head_dim);
