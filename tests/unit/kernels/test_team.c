// The team: every lane runs, barriers separate phases, nothing is lost over many short runs and long pauses; cores sit
// out and come back, by force and beside a busy process, and results stay.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/cores.h"
#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/lane.h"
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

// ---- lanes that come and go

enum { ROWS = 256, COLS = 256, TOKENS = 3 };

struct product {
    const struct cpu_ops *ops;
    struct mat m;
    struct acts a;
    float x[TOKENS * COLS], y[TOKENS * ROWS], expected[TOKENS * ROWS];
    _Alignas(64) uint8_t packed[ROWS * COLS * 4], scratch[1 << 16];
    int lanes;      // of the last run
    int repeats;    // multiplications a run makes, with a barrier after each
    bool seen[LANES + 1];
};

static void multiply(struct lane *lane, void *arg)
{
    struct product *p = arg;
    for (int i = 0; i < p->repeats; i++) {
        int lo, hi;
        lane_split(lane, TOKENS, 1, &lo, &hi);
        acts_set(p->ops, &p->a, p->x, COLS, lo, hi);
        lane_barrier(lane);
        lane_split(lane, mat_groups(&p->m), 1, &lo, &hi);
        mat_mul(p->ops, &p->m, &p->a, p->y, ROWS, lo, hi, MAT_STORE);
        lane_barrier(lane);
    }
    if (lane->id == 0)
        p->lanes = lane->count;
}

static struct product *new_product(void)
{
    err e = {0};
    struct product *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    uint16_t *weights = malloc(ROWS * COLS / 32 * 34);
    uint32_t random = 1;
    assert_non_null(p);
    assert_non_null(weights);
    memset(p, 0, sizeof *p);
    uint8_t *w = (uint8_t *)weights;
    for (int i = 0; i < ROWS * COLS / 32 * 34; i++)
        w[i] = i % 34 == 1 ? 0x2c : (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
    for (int i = 0; i < TOKENS * COLS; i++)
        p->x[i] = (float)(int32_t)(random = random * 1664525 + 1013904223) * 1e-9f;
    assert_int_equal(cpu_select("auto", &p->ops, &e), ERR_OK);
    assert_int_equal(mat_plan(&p->m, QUANT_Q8_0, ROWS, COLS, MAT_INT8, &e), ERR_OK);
    assert_true(p->m.bytes <= sizeof p->packed && acts_bytes(TOKENS, COLS, MAT_INT8) <= sizeof p->scratch);
    mat_pack(&p->m, p->packed, weights, 0, mat_groups(&p->m));
    p->m.data = p->packed;
    acts_init(&p->a, p->scratch, TOKENS, COLS, MAT_INT8);
    p->a.n = TOKENS;
    free(weights);
    acts_set(p->ops, &p->a, p->x, COLS, 0, TOKENS);
    mat_mul(p->ops, &p->m, &p->a, p->expected, ROWS, 0, mat_groups(&p->m), MAT_STORE);
    p->repeats = 1;
    return p;
}

static void check_product(struct team *t, struct product *p)
{
    memset(p->y, 0xff, sizeof p->y);
    team_run(t, multiply, p);
    assert_memory_equal(p->y, p->expected, sizeof p->y);
    assert_in_range(p->lanes, 1, LANES);
    p->seen[p->lanes] = true;
}

static struct team *open_pair(void)
{
    int cpus[2];
    if (host_cpus(cpus, 2) < 2) {
        print_message("[ SKIPPED ] a pinned team of two: the process has one core\n");
        skip();
    }
    return open_team(2, true);
}

// Any core may be the one that sits out, the caller's own too, from one run to the next.
static void test_forced(void **state)
{
    (void)state;
    struct team *t = open_pair();
    struct product *p = new_product();
    struct cores *c = team_cores(t);
    for (int i = 0; i < 3000; i++) {
        int out = i % 7 % 3;  // none, the first, the second
        c->core[0].out = out == 1;
        c->core[1].out = out == 2;
        c->left_out = out > 0;
        c->core[0].probe_at = c->core[1].probe_at = INT64_MAX;
        check_product(t, p);
        assert_int_equal(p->lanes, out ? 1 : 2);
    }
    team_close(t);
    free(p);
}

// Cores that are probed all the time come back by themselves.
static void test_probes(void **state)
{
    (void)state;
    struct team *t = open_pair();
    struct product *p = new_product();
    struct cores *c = team_cores(t);
    for (int which = 0; which < 2; which++) {
        for (int tries = 0; tries < 3; tries++) {
            if (!c->left_out) {
                c->core[which].out = true;
                c->core[which].probe_at = 0;
                c->left_out = 1;
            }
            int64_t until = clock_ns() + 30 * 1000 * 1000;
            while (c->left_out && clock_ns() < until)
                check_product(t, p);
        }
    }
    team_close(t);  // perhaps in the middle of a probe
    free(p);
}

static pid_t busy_loop(int cpu)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (volatile long i = 0;; i++)
        ;
}

// A busy process on each core in turn. Which lanes run is the machine's affair and only printed; the results are not.
static void test_neighbour(void **state)
{
    (void)state;
    int cpus[2];
    struct team *t = open_pair();
    struct product *p = new_product();
    host_cpus(cpus, 2);
    p->repeats = 20;
    for (int k = 0; k < 2; k++) {
        pid_t pid = busy_loop(cpus[k]);
        for (int64_t until = clock_ns() + 250 * 1000 * 1000; clock_ns() < until;)
            check_product(t, p);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int64_t until = clock_ns() + 250 * 1000 * 1000; clock_ns() < until;)
            check_product(t, p);
    }
    print_message("runs of one lane: %s, of two: %s\n", p->seen[1] ? "yes" : "no", p->seen[2] ? "yes" : "no");
    team_close(t);
    free(p);
}

static void test_whole(void **state)
{
    (void)state;
    struct team *t = open_pair();
    struct product *p = new_product();
    team_keep_whole(t, true);
    pid_t pid = busy_loop(0);
    for (int i = 0; i < 20; i++) {
        check_product(t, p);
        assert_int_equal(p->lanes, 2);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    team_close(t);
    free(p);
}

static void read_nice(struct lane *lane, void *arg)
{
    ((int *)arg)[lane->id] = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

// A nice value that was asked for when the process was started stays; else workers take 10.
static void test_nice(void **state)
{
    (void)state;
    int found[2] = {0}, own = getpriority(PRIO_PROCESS, 0);
    struct team *t = open_team(2, false);
    team_run(t, read_nice, found);
    assert_int_equal(found[0], own);
    assert_int_equal(found[1], own ? own : 10);
    team_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases), cmocka_unit_test(test_short_runs_and_parking),
        cmocka_unit_test(test_pinned_default), cmocka_unit_test(test_too_many), cmocka_unit_test(test_split),
        cmocka_unit_test(test_forced),   cmocka_unit_test(test_probes),
        cmocka_unit_test(test_neighbour), cmocka_unit_test(test_whole), cmocka_unit_test(test_nice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
