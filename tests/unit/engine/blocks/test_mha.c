// Attention of plain rows: the same bits on any number of lanes and for any company in the batch, and close to softmax
// attention in f64.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/blocks/mha.h"

enum { HEADS = 3, DIM = 20, WIDTH = HEADS * DIM, LD = 3 * WIDTH, ITEMS = 5 };

// Texts of a ragged batch in fused rows of q, k and v; the last one is cross-attention of a single row.
static const int lengths[ITEMS] = {1, 230, 17, 64, 150};
static float *rows, *out;
static int first[ITEMS];

struct run {
    struct mha a;
    struct mha_item items[ITEMS];
    int n;
};

static int setup(void **state)
{
    (void)state;
    int total = 0;
    for (int i = 0; i < ITEMS; i++) {
        first[i] = total;
        total += lengths[i];
    }
    rows = malloc((size_t)(total * LD) * 4);
    out = malloc((size_t)(total * WIDTH) * 4);
    for (int i = 0; i < total * LD; i++)
        rows[i] = (float)(2 * rng_unit(3, (uint64_t)i, 0) - 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(rows);
    free(out);
    return 0;
}

static struct mha_item item(int i)
{
    float *at = rows + (size_t)first[i] * LD;
    return (struct mha_item){.q = at, .k = at + WIDTH, .v = at + 2 * WIDTH, .out = out + (size_t)first[i] * WIDTH,
                             .rows = i == ITEMS - 1 ? 1 : lengths[i], .keys = lengths[i]};
}

static void on_lane(struct lane *lane, void *arg)
{
    struct run *r = arg;
    mha_run(lane, &r->a, r->items, r->n);
}

static void run(const char *isa, int threads, const int *which, int n, bool causal)
{
    struct run r = {.a = {.heads = HEADS, .head_dim = DIM, .ldq = LD, .ldk = LD, .ldv = LD, .ldo = WIDTH,
                          .scale = 1 / sqrtf(DIM), .causal = causal}, .n = n};
    struct team *team;
    err e;
    assert_int_equal(cpu_select(isa, &r.a.ops, &e), ERR_OK);
    if (team_open(threads, false, &team, &e)) {
        print_message("%d lanes are not here: %s\n", threads, e.text);
        return;
    }
    r.a.scratch = malloc(mha_scratch_floats(230, DIM, threads) * 4);
    for (int i = 0; i < n; i++)
        r.items[i] = item(which[i]);
    team_run(team, on_lane, &r);
    team_close(team);
    free(r.a.scratch);
}

static void check_close(bool causal)
{
    for (int i = 0; i < ITEMS; i++) {
        struct mha_item it = item(i);
        for (int r = 0; r < it.rows; r += 3) {
            for (int h = 0; h < HEADS; h++) {
                double sum = 0, acc[DIM] = {0};
                for (int j = 0; j < (causal ? r + 1 : it.keys); j++) {
                    double s = 0;
                    for (int d = 0; d < DIM; d++)
                        s += (double)it.q[r * LD + h * DIM + d] * (double)it.k[j * LD + h * DIM + d];
                    double p = exp(s / sqrt(DIM));
                    sum += p;
                    for (int d = 0; d < DIM; d++)
                        acc[d] += p * (double)it.v[j * LD + h * DIM + d];
                }
                for (int d = 0; d < DIM; d++)
                    assert_true(fabs((double)it.out[r * WIDTH + h * DIM + d] - acc[d] / sum) < 1e-6);  // observed 1e-7
            }
        }
    }
}

static void check(bool causal)
{
    static const int all[ITEMS] = {0, 1, 2, 3, 4};
    size_t total = (size_t)(first[ITEMS - 1] + 1) * WIDTH;
    float *want = malloc(total * 4);
    run("scalar", 1, all, ITEMS, causal);
    check_close(causal);
    memcpy(want, out, total * 4);
    for (int threads = 1; threads <= 2; threads++) {
        memset(out, 0xff, total * 4);
        run("auto", threads, all, ITEMS, causal);
        if (threads == 1 || out[0] == out[0])
            assert_memory_equal(out, want, total * 4);
        memset(out, 0xff, total * 4);
        for (int i = 0; i < ITEMS; i++)
            run("auto", 1, &all[i], 1, causal);
        assert_memory_equal(out, want, total * 4);
    }
    free(want);
}

static void test_full(void **state)
{
    (void)state;
    check(false);
}

static void test_causal(void **state)
{
    (void)state;
    check(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full), cmocka_unit_test(test_causal)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
