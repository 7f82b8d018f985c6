// acts.c - activations of one step: memory layout, and quantising rows into it. Lanes fill different tokens.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/mat.h"

static size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static size_t entries(int max, int cols)
{
    return (size_t)max * (size_t)(cols / MAT_BLOCK);
}

// Six arrays: q (32 bytes an entry), wide (64), d, sx, sums, pairs (two numbers an entry).
static size_t int8_bytes(int max, int cols, enum mat_math math)
{
    size_t n = math & MAT_INT8 ? entries(max, cols) : 0;
    return align64(n * 32) + n * 64 + 2 * align64(n * 4) + align64(n * 12) + 64;
}

size_t acts_bytes(int max, int cols, enum mat_math math)
{
    size_t row16 = math & MAT_BF16 ? (size_t)acts_row16(cols) * sizeof(uint16_t) : 0;
    return int8_bytes(max, cols, math) + (size_t)max * row16;
}

void acts_init(struct acts *a, void *memory, int max, int cols, enum mat_math math)
{
    *a = (struct acts){.math = math, .max = max, .cols = cols};
    uint8_t *p = memory;
    if (math & MAT_BF16)
        a->b = (uint16_t *)(void *)(p + int8_bytes(max, cols, math));
    if (!(math & MAT_INT8))
        return;
    size_t n = entries(max, cols);
    a->q = (int8_t *)p;
    p += align64(n * 32);
    a->wide = p;
    p += n * 64;
    a->d = (float *)(void *)p;
    p += align64(n * 4);
    a->sx = (float *)(void *)p;
    p += align64(n * 4);
    a->sums = (int32_t *)(void *)p;
}

void acts_init_fine(struct acts *a, void *memory, int max, int cols, enum mat_math math)
{
    acts_init(a, memory, 2 * max, cols, math);
    a->fine = math & MAT_INT8;
}

// Row `row` of the packed rows.
static void set_row(const struct cpu_ops *ops, const struct acts *a, const float *x, int row)
{
    int32_t *pairs = a->sums + entries(a->max, a->cols);
    int tile = row / ACT_TILE, stride = acts_tile(a, tile), blocks = a->cols / MAT_BLOCK;
    size_t at = acts_base(a, tile) + (size_t)(row % ACT_TILE);
    ops->mat->quantize(x, blocks, stride, a->q + 32 * at, a->d + at, a->sx + at, a->sums + at, pairs + 2 * at);
    if (ops->mat->widen && a->n > 2)
        ops->mat->widen(a->q, at, blocks, stride, a->wide);
}

// Blocks b0..b1 of n packed rows from `row` on, all of one tile; x is block b0 of the first.
static void set_rows(const struct cpu_ops *ops, const struct acts *a, const float *x, int ldx, int row, int n, int b0, int b1)
{
    int32_t *pairs = a->sums + entries(a->max, a->cols);
    int tile = row / ACT_TILE, stride = acts_tile(a, tile), done = 0;
    size_t at = acts_base(a, tile) + (size_t)b0 * (size_t)stride + (size_t)(row % ACT_TILE);
    if (ops->mat->quantize_rows && n >= 8) {
        done = n & ~7;
        ops->mat->quantize_rows(a, x, ldx, done, b1 - b0, stride, at);
    }
    for (int t = done; t < n; t++) {
        size_t to = at + (size_t)t;
        ops->mat->quantize(x + (size_t)t * (size_t)ldx, b1 - b0, stride, a->q + 32 * to, a->d + to, a->sx + to, a->sums + to,
                           pairs + 2 * to);
        if (ops->mat->widen && a->n > 2)
            ops->mat->widen(a->q, to, b1 - b0, stride, a->wide);
    }
}

enum { FINE_BLOCKS = 16 };  // whose rests are on the stack

// Token t's second row: what the first leaves of x, a few blocks at a time.
static void set_rest(const struct cpu_ops *ops, const struct acts *a, const float *x, int row)
{
    int32_t *pairs = a->sums + entries(a->max, a->cols);
    int first = acts_tile(a, row / ACT_TILE), blocks = a->cols / MAT_BLOCK;
    size_t at = acts_base(a, row / ACT_TILE) + (size_t)(row % ACT_TILE), stride = (size_t)first;
    float rest[FINE_BLOCKS * MAT_BLOCK];
    for (int b = 0, n; b < blocks; b += n, at += (size_t)n * stride, x += n * MAT_BLOCK) {
        n = blocks - b < FINE_BLOCKS ? blocks - b : FINE_BLOCKS;
        for (int i = 0; i < n * MAT_BLOCK; i++) {
            size_t from = at - 1 + (size_t)(i / MAT_BLOCK) * stride;
            rest[i] = fmaf(-a->d[from], (float)a->q[32 * from + (size_t)(i % MAT_BLOCK)], x[i]);
        }
        ops->mat->quantize(rest, n, first, a->q + 32 * at, a->d + at, a->sx + at, a->sums + at, pairs + 2 * at);
        if (ops->mat->widen && a->n > 2)
            ops->mat->widen(a->q, at, n, first, a->wide);
    }
}

// Columns that are no whole number of blocks only meet float weights.
static bool has_blocks(const struct acts *a)
{
    return a->math & MAT_INT8 && a->cols % MAT_BLOCK == 0;
}

void acts_set_part(const struct cpu_ops *ops, const struct acts *a, const float *x, int ldx, int t0, int t1, int c0, int c1)
{
    assert(!a->fine && c0 % MAT_BLOCK == 0 && (c1 % MAT_BLOCK == 0 || c1 == a->cols));
    for (int t = t0; t < t1 && a->math & MAT_BF16; t++)
        ops->mat->to_bf16(x + (size_t)(t - t0) * (size_t)ldx, c1 - c0, a->b + (size_t)t * (size_t)acts_row16(a->cols) + c0);
    if (!has_blocks(a))
        return;
    for (int t = t0, n; t < t1; t += n, x += (size_t)n * (size_t)ldx) {
        n = ACT_TILE - t % ACT_TILE < t1 - t ? ACT_TILE - t % ACT_TILE : t1 - t;
        set_rows(ops, a, x, ldx, t, n, c0 / MAT_BLOCK, c1 / MAT_BLOCK);
    }
}

static void set_fine(const struct cpu_ops *ops, const struct acts *a, const float *x, int ldx, int t0, int t1)
{
    for (int t = t0; t < t1 && a->math & MAT_BF16; t++)
        ops->mat->to_bf16(x + (size_t)t * (size_t)ldx, a->cols, a->b + (size_t)t * (size_t)acts_row16(a->cols));
    if (!has_blocks(a))
        return;
    struct acts rows = acts_rows(a);
    for (int t = t0; t < t1; t++) {
        const float *from = x + (size_t)t * (size_t)ldx;
        set_row(ops, &rows, from, 2 * t);
        set_rest(ops, &rows, from, 2 * t + 1);
    }
}

void acts_set(const struct cpu_ops *ops, struct acts *a, const float *x, int ldx, int t0, int t1)
{
    if (t0 >= t1)
        return;
    if (t0 == 0) {
        // One lane has token 0; the others see these two after the barrier that precedes the multiplication.
        a->x = x;
        a->ldx = ldx;
    }
    if (a->fine)
        set_fine(ops, a, x, ldx, t0, t1);
    else
        acts_set_part(ops, a, x + (size_t)t0 * (size_t)ldx, ldx, t0, t1, 0, a->cols);
}

void acts_gather(const struct cpu_ops *ops, struct acts *a, const struct acts *from, const int32_t *tokens, int n)
{
    a->n = n;
    size_t ld = a->math & MAT_BF16 ? (size_t)acts_row16(a->cols) : 0;
    for (int t = 0; t < n && ld; t++)
        memcpy(a->b + (size_t)t * ld, from->b + (size_t)tokens[t] * ld, ld * sizeof *a->b);
    if (!(a->math & MAT_INT8) || a->cols % MAT_BLOCK)
        return;
    int32_t *pairs = a->sums + entries(a->max, a->cols);
    const int32_t *pairs_from = acts_pairs(from);
    for (int t = 0; t < n; t++) {
        int tile = t / ACT_TILE, tile_from = tokens[t] / ACT_TILE;
        size_t to = acts_base(a, tile) + (size_t)(t % ACT_TILE), step = (size_t)acts_tile(a, tile);
        size_t at = acts_base(from, tile_from) + (size_t)(tokens[t] % ACT_TILE);
        size_t step_from = (size_t)acts_tile(from, tile_from);
        size_t first = to;
        for (int b = 0; b < a->cols / MAT_BLOCK; b++, to += step, at += step_from) {
            memcpy(a->q + 32 * to, from->q + 32 * at, 32);
            a->d[to] = from->d[at];
            a->sx[to] = from->sx[at];
            a->sums[to] = from->sums[at];
            memcpy(pairs + 2 * to, pairs_from + 2 * at, 2 * sizeof *pairs);
        }
        if (ops->mat->widen && n > 2)
            ops->mat->widen(a->q, first, a->cols / MAT_BLOCK, (int)step, a->wide);
    }
}
