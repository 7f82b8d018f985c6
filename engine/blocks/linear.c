// linear.c - multiplies by weights. linear_open runs while a model is loaded, the rest on lanes.
#include "engine/blocks/linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { PAIR_FLOATS = 8192 };  // A x of the tokens taken together; on the stack

err_code linear_adapt(struct linear *l, struct loader *ld, const char *module, const char *name_weight, err *e)
{
    return l->pair ? ERR_OK : loader_pair(ld, module, name_weight, l->out, l->in, &l->pair, e);
}

err_code linear_open(struct linear *l, struct loader *ld, const char *name_weight, const char *name_bias, int out,
                     int in, err *e)
{
    const float *bias = NULL;
    err_code code = ERR_OK;
    if (name_bias && loader_has(ld, name_bias))
        code = loader_vector(ld, name_bias, out, &bias, e);
    if (!code)
        code = loader_matrix(ld, name_weight, out, in, &l->w, e);
    if (code)
        return code;
    l->bias = bias;
    l->in = in;
    l->out = out;
    l->pair = NULL;
    char module[256];
    const char *end = strrchr(name_weight, '.');
    snprintf(module, sizeof module, "%.*s", (int)(end ? end - name_weight : 0), name_weight);
    return linear_adapt(l, ld, module, name_weight, e);
}

void linear_row(const struct linear *l, int r, bool adapter, float *dst)
{
    mat_row(&l->w, r, dst);
    if (!adapter || !l->pair)
        return;
    const struct lora_pair *p = l->pair;
    float b[LORA_MAX_RANK], *a = mem_new((size_t)l->in * sizeof *a);
    mat_row(&p->b, r, b);
    for (int i = 0; i < p->rank; i++) {
        mat_row(&p->a, i, a);
        for (int k = 0; k < l->in; k++)
            dst[k] = fmaf(p->scale * b[i], a[k], dst[k]);
    }
    free(a);
}

void linear_input(struct lane *lane, const struct cpu_ops *ops, struct acts *a, const float *x, int ldx, int rows)
{
    int lo, hi;
    lane_split(lane, rows, 1, &lo, &hi);
    a->n = rows;
    a->x = x;
    a->ldx = ldx;
    acts_set(ops, a, x, ldx, lo, hi);
    lane_barrier(lane);
}

static void add_pair(const struct cpu_ops *ops, const struct lora_pair *p, float *y, int ldy, const struct acts *a, int g0,
                     int g1)
{
    float low[PAIR_FLOATS];
    int most = PAIR_FLOATS / p->rank;
    for (int t = 0, n; t < a->n; t += n) {
        n = a->n - t < most ? a->n - t : most;
        struct acts x = {.n = n, .cols = p->a.cols, .x = a->x + (size_t)t * (size_t)a->ldx, .ldx = a->ldx};
        mat_mul(ops, &p->a, &x, low, p->rank, 0, mat_groups(&p->a), MAT_STORE);
        for (int i = 0; i < n * p->rank; i++)
            low[i] *= p->scale;
        x = (struct acts){.n = n, .cols = p->rank, .x = low, .ldx = p->rank};
        mat_mul(ops, &p->b, &x, y + (size_t)t * (size_t)ldy, ldy, g0, g1, MAT_ADD);
    }
}

void linear_groups(const struct cpu_ops *ops, const struct linear *l, float *y, int ldy, const struct acts *a, int g0,
                   int g1, enum mat_write write)
{
    if (g0 >= g1)
        return;
    mat_mul(ops, &l->w, a, y, ldy, g0, g1, write);
    int r0 = g0 * MAT_GROUP, r1 = g1 * MAT_GROUP < l->out ? g1 * MAT_GROUP : l->out;
    for (int t = 0; l->bias && t < a->n; t++)
        ops->add(y + (size_t)t * (size_t)ldy + r0, l->bias + r0, r1 - r0);
    if (a->adapter && l->pair)
        add_pair(ops, l->pair, y, ldy, a, g0, g1);
}

// The matrices are split as if they stood below each other, so that a lane reads one or two long ranges of memory.
void linear_apply(struct lane *lane, const struct cpu_ops *ops, const struct linear *const *l, float *const *y,
                  const int *ldy, int count, const struct acts *a, enum mat_write write)
{
    int total = 0, lo, hi;
    for (int i = 0; i < count; i++)
        total += mat_groups(&l[i]->w);
    lane_split(lane, total, 1, &lo, &hi);
    for (int i = 0, first = 0; i < count; i++) {
        int groups = mat_groups(&l[i]->w), g0 = lo - first, g1 = hi - first;
        linear_groups(ops, l[i], y[i], ldy[i], a, g0 > 0 ? g0 : 0, g1 < groups ? g1 : groups, write);
        first += groups;
    }
}

static int count_bits(const uint64_t *bits, int n)
{
    int count = 0;
    for (int i = 0; i < (n + 63) / 64; i++)
        count += __builtin_popcountll(bits[i]);
    return count;
}

// The first of the bits from i on that is `set`; n: there is none.
static int next_bit(const uint64_t *bits, int i, int n, bool set)
{
    while (i < n) {
        uint64_t word = (set ? bits[i / 64] : ~bits[i / 64]) >> i % 64;
        if (word)
            return i + __builtin_ctzll(word) < n ? i + __builtin_ctzll(word) : n;
        i += 64 - i % 64;
    }
    return n;
}

// at: how many of the groups lie before the run.
void linear_apply_some(struct lane *lane, const struct cpu_ops *ops, const struct linear *l, float *y, int ldy,
                       const struct acts *a, const uint64_t *groups)
{
    int n = mat_groups(&l->w), lo, hi, end, next;
    lane_split(lane, count_bits(groups, n), 1, &lo, &hi);
    for (int g = next_bit(groups, 0, n, true), at = 0; g < n && at < hi; g = next) {
        end = next_bit(groups, g, n, false);
        next = next_bit(groups, end, n, true);
        if (next < n && at >= lo)
            mat_fetch(&l->w, next);
        int first = lo > at ? lo - at : 0, last = hi - at < end - g ? hi - at : end - g;
        linear_groups(ops, l, y, ldy, a, g + first, g + last, MAT_STORE);
        at += end - g;
    }
}
