// test_net.c - a net's memory plan never gives a place to two owners and takes back what was dropped; its operations run
// each unit once, in order, whatever the lanes and slices.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "engine/image/net.h"
#include "engine/sched/work.h"
#include "kernels/team.h"

static void test_places_do_not_overlap(void **state)
{
    (void)state;
    enum { LIVE = 40, ROUNDS = 3000 };
    struct {
        size_t at, size;
    } live[LIVE] = {{0, 0}};
    struct net *n = net_new(NULL, NULL, 1, 1);
    size_t most = 0, now = 0;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        size_t k = rng_u64(1, i, 0) % LIVE;
        if (live[k].size) {
            net_drop(n, live[k].at);
            now -= live[k].size;
            live[k].size = 0;
            continue;
        }
        live[k].size = 1 + rng_u64(1, i, 1) % 1000;
        live[k].at = net_take(n, live[k].size);
        now += live[k].size;
        most = now > most ? now : most;
        for (size_t j = 0; j < LIVE; j++)
            assert_true(j == k || !live[j].size || live[j].at >= live[k].at + live[k].size ||
                        live[k].at >= live[j].at + live[j].size);
    }
    assert_true(net_planned(n) < 2 * most * sizeof(float));
    for (size_t k = 0; k < LIVE; k++)
        if (live[k].size)
            net_drop(n, live[k].at);
    assert_int_equal(n->nplaces, 1);  // one free place again
    net_free(n);
}

// Operation k adds k to each number that the one before has finished with.
static void add_once(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    scratch[0] = (float)op->rows;
    float *x = n->memory + op->x + unit % 64;
    if (*x == (float)(op->rows - 1))
        *x = scratch[0];
}

static void sum_up(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    for (int i = 0; i < 64; i++)
        n->out[unit] += n->memory[op->x + (size_t)i];
}

struct run {
    struct net *net;
    struct work *work;
    bool done[8];
};

static void step(struct lane *lane, void *arg)
{
    struct run *r = arg;
    r->done[lane->id] = net_step(r->net, lane, r->work);
}

static void test_order(void **state)
{
    (void)state;
    enum { OPS = 30 };
    for (int lanes = 1; lanes <= 3; lanes++) {
        for (int cut = 0; cut < 2; cut++) {
            struct net *n = net_new(NULL, NULL, 1, lanes);
            struct team *team;
            err e = {0};
            float out[1] = {0};
            size_t x = net_take(n, 64);
            for (int k = 1; k <= OPS; k++) {
                struct net_op *op = net_add(n, add_once, 64, 1);
                op->x = x;
                op->rows = k;
            }
            net_add(n, sum_up, 1, 1)->x = x;
            net_want_scratch(n, 1);
            assert_int_equal(net_allocate(n, &e), ERR_OK);
            assert_int_equal(team_open(lanes, false, &team, &e), ERR_OK);
            n->out = out;
            n->part = cut ? 1 : n->part;
            net_restart(n);
            struct work work = {.slice_ns = 0};
            struct run r = {.net = n, .work = cut ? &work : NULL};
            int slices = 0;
            do
                team_run(team, step, &r), slices++;
            while (!r.done[0]);
            assert_int_equal(out[0], 64 * OPS);
            assert_true(cut ? slices > OPS : slices == 1);
            team_close(team);
            net_free(n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places_do_not_overlap), cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
