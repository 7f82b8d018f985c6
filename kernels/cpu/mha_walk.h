// mha_walk.h - attention of plain rows but for what touches vectors: how products are cut into tiles, and the way through the
// keys. A file for one instruction set includes it behind INLINE and what it calls:
//
//     tile(nq, nv, p, v0, q0)      a product's rows from q0 on, and its vectors from v0 on; nq and nv are constants
//     load_queries, load_keys, load_values, weigh, finish
#pragma once

#include "kernels/cpu/attn.h"

#if defined(__AVX2__) || defined(__aarch64__)  // nothing where the file is not compiled for vectors

enum { DIRECT_ROWS = 6 };  // up to this many rows, values are read where they are

static void one_row(const struct mha_product *p, int vectors)
{
    int v = 0;
    for (; v + 8 <= vectors; v += 8)
        tile(1, 8, p, v, 0);
    for (; v + 4 <= vectors; v += 4)
        tile(1, 4, p, v, 0);
    for (; v + 2 <= vectors; v += 2)
        tile(1, 2, p, v, 0);
    for (; v < vectors; v++)
        tile(1, 1, p, v, 0);
}

INLINE void few_rows(int nq, const struct mha_product *p, int vectors)
{
    int v = 0;
    for (; v + 4 <= vectors; v += 4)
        tile(nq, 4, p, v, 0);
    for (; v + 2 <= vectors; v += 2)
        tile(nq, 2, p, v, 0);
    for (; v < vectors; v++)
        tile(nq, 1, p, v, 0);
}

// Two vectors of all rows; 7 to 11 rows in two even parts.
static void two_vectors(const struct mha_product *p, int v, int rows)
{
    for (int q = 0, next; q < rows; q = next) {
        int left = rows - q;
        next = left >= 12 ? q + 6 : left > 6 ? q + (left + 1) / 2 : rows;
        switch (next - q) {
        case 6:
            tile(6, 2, p, v, q);
            break;
        case 5:
            tile(5, 2, p, v, q);
            break;
        case 4:
            tile(4, 2, p, v, q);
            break;
        case 3:
            tile(3, 2, p, v, q);
            break;
        case 2:
            tile(2, 2, p, v, q);
            break;
        case 1:
            tile(1, 2, p, v, q);
            break;
        }
    }
}

static void last_vector(const struct mha_product *p, int v, int rows)
{
    int q = 0;
    for (; q + 12 <= rows; q += 12)
        tile(12, 1, p, v, q);
    for (; q + 4 <= rows; q += 4)
        tile(4, 1, p, v, q);
    for (; q < rows; q++)
        tile(1, 1, p, v, q);
}

static void multiply(const struct mha_product *p, int vectors, int rows)
{
    if (rows == 1) {
        one_row(p, vectors);
    } else if (rows == 2) {
        few_rows(2, p, vectors);
    } else if (rows == 3) {
        few_rows(3, p, vectors);
    } else {
        int v = 0;
        for (; v + 2 <= vectors; v += 2)
            two_vectors(p, v, rows);
        if (v < vectors)
            last_vector(p, v, rows);
    }
}

static int row_end(const struct mha_args *a, int row)
{
    return a->causal && a->pos0 + row + 1 < a->keys ? a->pos0 + row + 1 : a->keys;
}

// How many keys of a piece a row sees.
static int seen(const struct mha_args *a, int row, int piece)
{
    int n = row_end(a, row) - piece;
    return n < 0 ? 0 : n < MHA_PIECE ? n : MHA_PIECE;
}

// Weights times values for rows r .. r+n (weights from row r0 on). Rows that see more keys than the first one of their
// tile continue alone.
static void add_values(const struct mha_args *a, const struct mha_product *values, int piece, int r0, int r, int n)
{
    static const float one = 1;
    int common = seen(a, r, piece), vectors = (a->head_dim + 7) / 8;
    struct mha_product p = *values;
    p.x += (size_t)(r - r0) * MHA_PIECE;
    p.y += (size_t)(r - r0) * p.ldy;
    p.scale += r - r0;
    p.k = common;
    multiply(&p, vectors, n);
    p.scale = &one;
    p.w += (size_t)common * p.step;
    p.x += common;
    for (int i = 0; i < n; i++, p.x += MHA_PIECE, p.y += p.ldy) {
        p.k = seen(a, r + i, piece) - common;
        if (p.k > 0)
            multiply(&p, vectors, 1);
    }
}

// One piece of keys for rows r0 .. r1, at most MHA_BLOCK of them.
static void block(const struct mha_args *a, const struct mha_scratch *s, const float *w, size_t pair, size_t step,
                  int piece, int r0, int r1)
{
    size_t pad = (size_t)attn_mha_pad(a->head_dim);
    float scale[MHA_BLOCK];
    int most = seen(a, r1 - 1, piece), rows = r1 - r0;
    if (!most)
        return;
    struct mha_product scores = {.w = s->k, .pair = (size_t)a->head_dim * 16, .step = 16, .x = s->q + (size_t)r0 * pad,
                             .ldx = pad, .k = a->head_dim, .y = s->p, .ldy = MHA_PIECE};
    multiply(&scores, (most + 7) / 8, rows);
    for (int i = 0; i < rows; i++)
        scale[i] = weigh(s->p + i * MHA_PIECE, seen(a, r0 + i, piece), &s->max[r0 + i], &s->sum[r0 + i]);
    struct mha_product values = {.w = w, .pair = pair, .step = step, .x = s->p, .ldx = MHA_PIECE,
                             .y = s->acc + (size_t)r0 * pad, .ldy = pad, .scale = scale};
    int together = seen(a, r0, piece) == most ? rows : 6;
    for (int r = r0; r < r1; r += together)
        add_values(a, &values, piece, r0, r, r1 - r < together ? r1 - r : together);
}

INLINE void walk(const struct mha_args *a)
{
    size_t pad = (size_t)attn_mha_pad(a->head_dim);
    struct mha_scratch s = attn_mha_lay_out(a->scratch, a->rows, a->head_dim);
    bool direct = a->rows <= DIRECT_ROWS && a->head_dim % 8 == 0;
    int end = row_end(a, a->rows - 1);
    load_queries(a, &s, pad);
    for (int piece = 0; piece < end; piece += MHA_PIECE) {
        int n = end - piece < MHA_PIECE ? end - piece : MHA_PIECE;
        const float *v = a->v + (size_t)piece * (size_t)a->ldv;
        load_keys(a, a->k + (size_t)piece * (size_t)a->ldk, n, s.k);
        if (!direct)
            load_values(a, v, n, s.v);
        for (int r = 0; r < a->rows; r += MHA_BLOCK) {
            int last = a->rows - r < MHA_BLOCK ? a->rows : r + MHA_BLOCK;
            if (direct)
                block(a, &s, v, 16, (size_t)a->ldv, piece, r, last);
            else
                block(a, &s, s.v, MHA_PIECE * 16, 16, piece, r, last);
        }
    }
    finish(a, &s, pad);
}

#endif
