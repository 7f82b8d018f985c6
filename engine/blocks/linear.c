// linear.c - multiplies by weights. linear_open runs while a model is loaded, the rest on lanes.
#include "engine/blocks/linear.h"

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
    return ERR_OK;
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

void linear_groups(const struct cpu_ops *ops, const struct linear *l, float *y, int ldy, const struct acts *a, int g0,
                   int g1, enum mat_write write)
{
    if (g0 >= g1)
        return;
    mat_mul(ops, &l->w, a, y, ldy, g0, g1, write);
    if (!l->bias)
        return;
    int r0 = g0 * MAT_GROUP, r1 = g1 * MAT_GROUP < l->out ? g1 * MAT_GROUP : l->out;
    for (int t = 0; t < a->n; t++)
        ops->add(y + (size_t)t * (size_t)ldy + r0, l->bias + r0, r1 - r0);
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
