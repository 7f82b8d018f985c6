// The team: every lane runs, barriers separate phases, nothing is lost over many short runs and long pauses.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <time.h>

#include "kernels/team.h"

enum { LANES = 8, PHASES = 50 };

struct job {
    int cells[LANES];
    int bad[LANES];
    int runs[LANES];
};

// Each phase every lane writes its cell, passes the barrier, checks all cells, passes again.
static void phases(struct lane *lane, void *arg)
{
    struct job *j = arg;
    for (int p = 1; p <= PHASES; p++) {
        j->cells[lane->id] = p;
        lane_barrier(lane);
        for (int i = 0; i < lane->count; i++)
            j->bad[lane->id] += j->cells[i] != p;
        lane_barrier(lane);
    }
    j->runs[lane->id]++;
}

static void tick(struct lane *lane, void *arg)
{
    ((struct job *)arg)->runs[lane->id]++;
}

static struct team *open_team(int threads, bool pin)
{
    struct team *t = NULL;
    err e = {0};
    if (team_open(threads, pin, &t, &e))
        fail_msg("%s", e.text);
    return t;
}

static void test_phases(void **state)
{
    (void)state;
    for (int n = 1; n <= LANES; n++) {
        struct team *t = open_team(n, false);
        struct job j = {0};
        assert_int_equal(team_size(t), n);
        for (int run = 0; run < 5; run++)
            team_run(t, phases, &j);
        for (int i = 0; i < n; i++) {
            assert_int_equal(j.runs[i], 5);
            assert_int_equal(j.bad[i], 0);
        }
        team_close(t);
    }
}

// Runs that end at once, and pauses long enough for every worker to be asleep in the kernel.
static void test_short_runs_and_parking(void **state)
{
    (void)state;
    struct team *t = open_team(3, false);
    struct job j = {0};
    for (int run = 0; run < 2000; run++)
        team_run(t, tick, &j);
    for (int run = 0; run < 10; run++) {
        nanosleep(&(struct timespec){.tv_nsec = 15000000}, NULL);
        team_run(t, phases, &j);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(j.runs[i], 2010);
        assert_int_equal(j.bad[i], 0);
    }
    team_close(t);
}

static void test_pinned_default(void **state)
{
    (void)state;
    struct team *t = open_team(0, true);
    struct job j = {0};
    assert_true(team_size(t) >= 1);
    if (team_size(t) <= LANES) {
        team_run(t, phases, &j);
        for (int i = 0; i < team_size(t); i++)
            assert_int_equal(j.bad[i], 0);
    }
    team_close(t);
}

static void test_too_many(void **state)
{
    (void)state;
    struct team *t = NULL;
    err e = {0};
    assert_int_equal(team_open(-1, true, &t, &e), ERR_INVALID);
    assert_int_equal(team_open(100000, true, &t, &e), ERR_INVALID);
    assert_string_equal(e.param, "threads");
    assert_null(t);
    team_close(NULL);
}

static void test_split(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) {
        for (int count = 1; count < 9; count++) {
            int at = 0;
            for (int id = 0; id < count; id++) {
                int lo, hi;
                lane_split(&(struct lane){.id = id, .count = count}, n, 8, &lo, &hi);
                assert_int_equal(lo, at);
                assert_true(hi >= lo && (hi % 8 == 0 || hi == n));
                at = hi;
            }
            assert_int_equal(at, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases), cmocka_unit_test(test_short_runs_and_parking),
        cmocka_unit_test(test_pinned_default), cmocka_unit_test(test_too_many), cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
