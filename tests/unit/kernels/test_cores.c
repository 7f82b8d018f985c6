// Which cores take part, from made-up losses and a made-up clock.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cores.h"

enum { MS = 1000 * 1000 };

static int64_t now;

// Runs of 5 ms for so long; core i loses share[i] percent of each.
static void run_for(struct cores *c, int ms, const int *share)
{
    int64_t lost[CORES_MAX];
    for (int at = 0; at < ms; at += 5) {
        now += 5 * MS;
        for (int i = 0; i < c->count; i++)
            lost[i] = (int64_t)5 * MS * share[i] / 100;
        cores_ran(c, now, 5 * MS, lost);
    }
}

static int active(const struct cores *c)
{
    int list[CORES_MAX];
    return cores_active(c, list);
}

static void test_quiet(void **state)
{
    (void)state;
    struct cores c;
    cores_init(&c, 4);
    run_for(&c, 10000, (int[]){0, 3, 9, 0});
    assert_int_equal(active(&c), 4);
}

static void test_goes_out_and_comes_back(void **state)
{
    (void)state;
    struct cores c;
    int list[CORES_MAX];
    cores_init(&c, 2);
    run_for(&c, 15, (int[]){0, 90});
    assert_int_equal(active(&c), 2);  // one window is not over
    run_for(&c, 5, (int[]){0, 90});
    assert_int_equal(cores_active(&c, list), 1);
    assert_int_equal(list[0], 0);
    assert_false(cores_wants_probe(&c, 0, now + 10000 * (int64_t)MS));
    assert_false(cores_wants_probe(&c, 1, now + CORES_PAUSE_NS - 1));
    now += CORES_PAUSE_NS;
    assert_true(cores_wants_probe(&c, 1, now));
    assert_false(cores_wants_probe(&c, 1, now));  // one at a time
    cores_probed(&c, 1, now, false);
    assert_int_equal(active(&c), 1);
    assert_false(cores_wants_probe(&c, 1, now));
    now += CORES_PAUSE_NS;
    assert_true(cores_wants_probe(&c, 1, now));
    cores_probed(&c, 1, now, true);
    assert_int_equal(active(&c), 2);
    run_for(&c, 2000, (int[]){0, 0});
    assert_int_equal(active(&c), 2);
}

// The first core can be the busy one.
static void test_first_core(void **state)
{
    (void)state;
    struct cores c;
    int list[CORES_MAX];
    cores_init(&c, 3);
    run_for(&c, 40, (int[]){80, 1, 2});
    assert_int_equal(cores_active(&c, list), 2);
    assert_int_equal(list[0], 1);
    assert_int_equal(list[1], 2);
}

// A quota or a hypervisor stops all of them alike: no core of the team is better than another.
static void test_common_loss(void **state)
{
    (void)state;
    struct cores c;
    cores_init(&c, 9);
    run_for(&c, 1000, (int[]){30, 31, 29, 30, 32, 30, 28, 30, 31});
    assert_int_equal(active(&c), 9);
}

static void test_one_always_stays(void **state)
{
    (void)state;
    struct cores c;
    cores_init(&c, 4);
    run_for(&c, 5000, (int[]){99, 98, 99, 20});
    assert_int_equal(active(&c), 1);
    assert_false(c.core[3].out);
    run_for(&c, 5000, (int[]){0, 0, 0, 99});
    assert_int_equal(active(&c), 1);
}

// Half a core is worth less than waiting for it when two run, a tenth less when eight run; what is worth it stays.
static void test_limits(void **state)
{
    (void)state;
    static const struct { int count, share; bool stays; } cases[] = {
        {2, 35, true}, {2, 45, false}, {4, 15, true}, {4, 25, false}, {8, 8, true}, {8, 15, false}, {200, 8, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cores c;
        int share[CORES_MAX] = {0};
        share[1] = cases[i].share;
        cores_init(&c, cases[i].count);
        run_for(&c, 200, share);
        assert_int_equal(c.core[1].out, !cases[i].stays);
    }
}

// A neighbour that hides from probes is probed less and less often, but at least every CORES_LONGEST_NS; one that was
// gone for a while counts as new.
static void test_flapping(void **state)
{
    (void)state;
    struct cores c;
    int64_t before = 0;
    cores_init(&c, 2);
    for (int i = 0; i < 6; i++) {
        run_for(&c, 20, (int[]){0, 90});
        assert_true(c.core[1].out);
        assert_true(c.core[1].pause_ns >= before && c.core[1].pause_ns <= CORES_LONGEST_NS);
        before = c.core[1].pause_ns;
        now += before;
        assert_true(cores_wants_probe(&c, 1, now));
        cores_probed(&c, 1, now, true);
    }
    assert_int_equal(before, CORES_LONGEST_NS);
    now += CORES_STAY_NS;
    run_for(&c, 20, (int[]){0, 90});
    assert_int_equal(c.core[1].pause_ns, CORES_PAUSE_NS);
}

// Whatever is lost, found and probed, in any order: at least one core takes part, and the count is right.
static void test_random(void **state)
{
    (void)state;
    struct cores c;
    unsigned seed = 7;
    cores_init(&c, 5);
    for (int step = 0; step < 200000; step++) {
        int64_t lost[5], wall = (rand_r(&seed) % 30 + 1) * MS;
        for (int i = 0; i < 5; i++)
            lost[i] = rand_r(&seed) % 3 ? 0 : wall * (rand_r(&seed) % 120 - 10) / 100;
        now += wall;
        cores_ran(&c, now, wall, lost);
        int k = rand_r(&seed) % 5, out = 0;
        if (cores_wants_probe(&c, k, now) || rand_r(&seed) % 50 == 0)
            cores_probed(&c, k, now, rand_r(&seed) % 2);
        for (int i = 0; i < 5; i++)
            out += c.core[i].out;
        assert_int_equal(out, c.left_out);
        assert_int_equal(active(&c), 5 - out);
        assert_true(out < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet), cmocka_unit_test(test_goes_out_and_comes_back), cmocka_unit_test(test_first_core),
        cmocka_unit_test(test_common_loss), cmocka_unit_test(test_one_always_stays), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_flapping), cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
