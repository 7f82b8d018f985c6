// acts.c - activations of one step: memory layout, and quantising rows into it. Lanes fill different tokens.
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
size_t acts_bytes(int max, int cols, enum mat_math math)
{
    size_t n = math == MAT_INT8 ? entries(max, cols) : 0;
    return align64(n * 32) + n * 64 + 2 * align64(n * 4) + align64(n * 12) + 64;
}

void acts_init(struct acts *a, void *memory, int max, int cols, enum mat_math math)
{
    *a = (struct acts){.math = math, .max = max, .cols = cols};
    if (math != MAT_INT8)
        return;
    size_t n = entries(max, cols);
    uint8_t *p = memory;
    a->q = (int8_t *)p;
    p += align64(n * 32);
    a->wide = (int16_t *)(void *)p;
    p += n * 64;
    a->d = (float *)(void *)p;
    p += align64(n * 4);
    a->sx = (float *)(void *)p;
    p += align64(n * 4);
    a->sums = (int32_t *)(void *)p;
}

// Columns that are no whole number of blocks only meet float weights, which read x itself.
void acts_set(const struct cpu_ops *ops, struct acts *a, const float *x, int ldx, int t0, int t1)
{
    if (t0 >= t1)
        return;
    if (t0 == 0) {
        // One lane has token 0; the others see these two after the barrier that precedes the multiplication.
        a->x = x;
        a->ldx = ldx;
    }
    if (a->math != MAT_INT8 || a->cols % MAT_BLOCK)
        return;
    int32_t *pairs = a->sums + entries(a->max, a->cols);
    for (int t = t0; t < t1; t++) {
        int tile = t / ACT_TILE;
        size_t at = acts_base(a, tile) + (size_t)(t % ACT_TILE);
        ops->mat->quantize(x + (size_t)t * (size_t)ldx, a->cols / MAT_BLOCK, acts_tile(a, tile), a->q + 32 * at,
                           a->d + at, a->sx + at, a->sums + at, pairs + 2 * at);
        if (ops->mat->widen && a->n > 3)
            ops->mat->widen(a->q, at, a->cols / MAT_BLOCK, acts_tile(a, tile), a->wide);
    }
}
