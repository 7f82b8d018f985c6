// mha.c - see mha.h. A unit of work is one head of one item and a block of its query rows; units are dealt out as
// contiguous runs of about equal cost. A lane brings the keys of its units into the kernel's layout by itself, a piece at
// a time: lanes wait for nobody, and scratch memory does not grow with the number of keys.
#include "engine/blocks/mha.h"

enum {
    MOST_ROWS = 192,  // of a unit: bringing a piece of keys and values into place is a hundredth of the work then
    LEAST_ROWS = 24,
};

size_t mha_scratch_floats(int max_keys, int head_dim, int lanes)
{
    (void)max_keys;
    return (attn_mha_floats(MOST_ROWS, head_dim) + 15) / 16 * 16 * (size_t)lanes;
}

static int units_of(const struct mha_item *it, int rows)
{
    return (it->rows + rows - 1) / rows;
}

// Smaller units when there are few: every lane should get some.
static int unit_rows(const struct mha *a, const struct mha_item *items, int n, int lanes)
{
    int rows = MOST_ROWS;
    for (;;) {
        long units = 0;
        for (int i = 0; i < n; i++)
            units += (long)units_of(&items[i], rows) * a->heads;
        if (lanes == 1 || units >= 4L * lanes || rows / 2 < LEAST_ROWS)
            return rows;
        rows /= 2;
    }
}

static int keys_seen(const struct mha *a, const struct mha_item *it, int row)
{
    return a->causal && it->pos0 + row + 1 < it->keys ? it->pos0 + row + 1 : it->keys;
}

// Rows times keys of a block, and as much as 4 rows more for its share of the transposition.
static double unit_cost(const struct mha *a, const struct mha_item *it, int row, int rows)
{
    return (double)(rows + 4) * keys_seen(a, it, row + rows - 1);
}

static double item_cost(const struct mha *a, const struct mha_item *it, int rows)
{
    double cost = 0;
    for (int r = 0; r < it->rows; r += rows)
        cost += unit_cost(a, it, r, it->rows - r < rows ? it->rows - r : rows);
    return cost;
}

static void unit(const struct mha *a, const struct mha_item *it, int head, int row, int rows, float *scratch)
{
    size_t at = (size_t)head * (size_t)a->head_dim;
    struct mha_args m = {
        .q = it->q + (size_t)row * (size_t)a->ldq + at, .k = it->k + at, .v = it->v + at,
        .out = it->out + (size_t)row * (size_t)a->ldo + at,
        .ldq = a->ldq, .ldk = a->ldk, .ldv = a->ldv, .ldo = a->ldo,
        .rows = rows, .keys = it->keys, .head_dim = a->head_dim,
        .causal = a->causal, .pos0 = it->pos0 + row, .scale = a->scale, .scratch = scratch,
    };
    a->ops->mha(&m);
}

void mha_run(struct lane *lane, const struct mha *a, const struct mha_item *items, int n)
{
    int rows = unit_rows(a, items, n, lane->count);
    float *scratch = a->scratch + mha_scratch_floats(0, a->head_dim, 1) * (size_t)lane->id;
    double total = 0, done = 0;
    for (int i = 0; i < n; i++)
        total += item_cost(a, &items[i], rows) * a->heads;
    double lo = total * lane->id / lane->count, hi = total * (lane->id + 1) / lane->count;
    for (int i = 0; i < n; i++) {
        for (int h = 0; h < a->heads; h++) {
            for (int r = 0; r < items[i].rows; r += rows) {
                int count = items[i].rows - r < rows ? items[i].rows - r : rows;
                double cost = unit_cost(a, &items[i], r, count), middle = done + cost / 2;
                if (middle >= lo && middle < hi)
                    unit(a, &items[i], h, r, count, scratch);
                done += cost;
            }
        }
    }
}
