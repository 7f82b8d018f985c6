// Who is next: lanes and accounts by themselves, and the whole scheduler on a clock of its own (tests/helpers/sim.h). The
// numbers are the same on every machine.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "engine/sched/admit.h"
#include "engine/sched/share.h"
#include "tests/helpers/sim.h"

// ---- by themselves

static const double weights[SHARE_LANES] = {8, 4, 4, 1};

// Of two lanes that want all the time neither gets more than its share by more than a step of each.
static void test_lanes_by_weight(void **state)
{
    (void)state;
    struct share s = {.nentries = 0};
    double got[SHARE_LANES] = {0}, most = 0.1;
    for (uint64_t i = 0; i < 20000; i++) {
        share_want(&s, 15);
        enum share_lane lane = share_next(&s, 15);
        double piece = 0.001 + (most - 0.001) * rng_unit(3, i, lane);
        share_charge_lane(&s, lane, piece);
        got[lane] += piece;
        for (int a = 0; a < SHARE_LANES; a++)
            for (int b = 0; b < SHARE_LANES; b++)
                assert_true(fabs(got[a] / weights[a] - got[b] / weights[b]) <= most * (1 / weights[a] + 1 / weights[b]));
    }
    double all = got[0] + got[1] + got[2] + got[3];
    assert_true(fabs(got[SHARE_BATCH] / all - 1.0 / 17) < 0.001);
}

// A lane gets no credit for a rest, and no debt.
static void test_lanes_return(void **state)
{
    (void)state;
    struct share s = {.nentries = 0};
    unsigned some = 1u << SHARE_SHORT | 1u << SHARE_MEDIA, all = some | 1u << SHARE_LONG;
    for (int i = 0; i < 100; i++) {
        share_want(&s, some);
        share_charge_lane(&s, share_next(&s, some), 1);
    }
    int turns = 0;
    for (int i = 0; i < 40; i++) {
        share_want(&s, all);
        enum share_lane lane = share_next(&s, all);
        turns += lane == SHARE_LONG;
        share_charge_lane(&s, lane, 1);
    }
    assert_in_range(turns, 9, 11);  // 4 of 16
}

static void test_accounts(void **state)
{
    (void)state;
    struct share s = {.nentries = 0};
    struct share_entry a = {0}, b = {0}, c = {0}, d = {0};
    share_enter(&s, &a, "a", 1, SHARE_SHORT, 0);
    share_enter(&s, &b, "b", 4, SHARE_SHORT, 0);
    share_charge(&a, 3);
    share_charge(&b, 4);
    struct share_rank ra = share_rank(&a, 0.1, 0), rb = share_rank(&b, 5, 0);
    assert_true(share_before(&rb, &ra));  // band 0 against 1, whatever is left to do
    // A new account begins level with the least of the active ones.
    share_enter(&s, &c, "c", 1, SHARE_SHORT, 0);
    struct share_rank rc = share_rank(&c, 6, 0);
    assert_true(share_before(&rb, &rc) && share_before(&rc, &ra));
    // One that left with a debt comes back with no more than 4 s of it.
    share_charge(&c, 1000);
    share_leave(&s, &c);
    share_enter(&s, &c, "c", 1, SHARE_SHORT, 0);
    rc = share_rank(&c, 0, 0);
    assert_true(rc.band >= 2 && rc.band < 3);
    share_leave(&s, &a);
    share_leave(&s, &b);
    share_leave(&s, &c);
    share_leave(&s, &c);  // of one that is not there: nothing
    assert_int_equal(s.naccounts, 0);  // nobody is there: all is forgotten
    share_enter(&s, &d, NULL, 1, SHARE_SHORT, 0);
    share_charge(&d, 3);
    rc = share_rank(&d, 0, 0);
    assert_true(rc.band < 2);
    share_leave(&s, &d);
    share_done(&s);
}

static void test_many_accounts(void **state)
{
    (void)state;
    struct share s = {.nentries = 0};
    struct share_entry one = {0};
    share_enter(&s, &one, "stays", 1, SHARE_SHORT, 0);
    for (int i = 0; i < 10000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        struct share_entry e = {0};
        share_enter(&s, &e, name, 1, SHARE_SHORT, 0);
        share_leave(&s, &e);
    }
    assert_true(s.naccounts <= 4096);
    share_leave(&s, &one);
    share_done(&s);
}

// A job of R seconds is overtaken only by what arrives within 10 R after it.
static void test_ageing(void **state)
{
    (void)state;
    struct share s = {.nentries = 0};
    struct share_entry big = {0}, small = {.number = 1};
    share_enter(&s, &big, NULL, 1, SHARE_SHORT, 0);
    for (double at = 0; at < 40; at += 0.5) {
        share_enter(&s, &small, NULL, 1, SHARE_SHORT, (int64_t)(at * 1e9));
        int64_t now = (int64_t)((at + 3) * 1e9);
        struct share_rank rb = share_rank(&big, 2.05, now), rs = share_rank(&small, 0.05, now);
        assert_int_equal(share_before(&rs, &rb), at < 20);
        share_leave(&s, &small);
    }
    share_leave(&s, &big);
}

// ---- the scheduler

// Of two threads: SmolLM2, Qwen3-0.6B.
static const struct fake_cost smol = {0.7e-3, 0.44e-3, 0.6e-3, 0.7e-6, 0.02}, qwen = {2e-3, 1.83e-3, 2e-3, 2e-6, 0.02};

struct gaps {
    double most;
    int n, over;  // jobs; with a gap over 100 ms
};

static struct gaps gaps_of(const struct sim_job *jobs, int n)
{
    struct gaps g = {0};
    for (int i = 0; i < n; i++) {
        g.most = jobs[i].gap_s > g.most ? jobs[i].gap_s : g.most;
        g.over += jobs[i].gap_s > 0.1;
    }
    return g;
}

static void eight_streams(struct sim_job *jobs, int max_out)
{
    for (int i = 0; i < 8; i++)
        jobs[i] = (struct sim_job){.nprompt = 40, .max_out = max_out};
}

// The prompt moves in every step, no stream waits longer than the target.
static void test_long_prompt_beside_streams(void **state)
{
    (void)state;
    const struct fake_cost *costs[] = {&smol, &qwen};
    static const double first_within[] = {15, 60};
    for (int i = 0; i < 2; i++) {
        struct sim s;
        sim_open(&s, &(struct sim_config){.models = 1, .pages = 400, .max_running = 16, .cost = {*costs[i]}});
        struct sim_job jobs[9] = {{0}};
        eight_streams(jobs, 700);
        jobs[8] = (struct sim_job){.at_s = 1, .nprompt = 4000, .max_out = 5};
        sim_run(&s, jobs, 9);
        struct gaps g = gaps_of(jobs, 8);
        print_message("longest gap %.1f ms, first token of the prompt after %.2f s\n", g.most * 1e3, jobs[8].first_s - 1);
        assert_true(g.most <= 0.1);
        assert_true(jobs[8].first_s - 1 < first_within[i]);
        assert_true(jobs[8].first_s < jobs[0].end_s);
        sim_close(&s);
    }
}

static void test_repeatable(void **state)
{
    (void)state;
    struct sim_job runs[2][30];
    for (int r = 0; r < 2; r++) {
        struct sim s;
        sim_open(&s, &(struct sim_config){.models = 1, .pages = 100, .max_running = 6, .cost = {qwen}});
        for (int i = 0; i < 30; i++)
            runs[r][i] = (struct sim_job){.at_s = 0.3 * i, .nprompt = 20 + 97 * i % 900, .max_out = 5 + i % 20,
                                          .class = i % 3, .account = i % 2 ? "a" : "b"};
        sim_run(&s, runs[r], 30);
        sim_close(&s);
    }
    for (int i = 0; i < 30; i++) {
        assert_true(fabs(runs[0][i].first_s - runs[1][i].first_s) < 1e-6);
        assert_true(fabs(runs[0][i].end_s - runs[1][i].end_s) < 1e-6);
    }
}

// One account sends forty prompts at once; another one's first prompt is not behind them.
static void test_flood_of_one_account(void **state)
{
    (void)state;
    enum { FLOOD = 40 };
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 1000, .max_running = 8, .cost = {qwen}});
    struct sim_job jobs[FLOOD + 2] = {{0}};
    for (int i = 0; i < FLOOD; i++)
        jobs[i] = (struct sim_job){.nprompt = 500, .max_out = 20, .account = "flood"};
    for (int i = 0; i < 2; i++)
        jobs[FLOOD + i] = (struct sim_job){.at_s = 8 + 10 * i, .nprompt = 100, .max_out = 20, .account = "other"};
    sim_run(&s, jobs, FLOOD + 2);
    for (int i = FLOOD; i < FLOOD + 2; i++) {
        print_message("first token after %.2f s; the flood takes %.1f s\n", jobs[i].first_s - jobs[i].at_s,
                      jobs[FLOOD - 1].end_s);
        assert_true(jobs[i].first_s - jobs[i].at_s < 3.5);  // a sequence has to end first
        assert_true(jobs[FLOOD - 1].end_s > 30);
    }
    sim_close(&s);
}

// Two accounts that both always have prompts waiting share by their weights.
static void test_accounts_by_weight(void **state)
{
    (void)state;
    enum { EACH = 60 };
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 2000, .max_running = 4, .cost = {qwen}});
    static struct sim_job jobs[2 * EACH];
    for (int i = 0; i < 2 * EACH; i++)
        jobs[i] = (struct sim_job){.nprompt = 300, .max_out = 4, .account = i % 2 ? "a" : "b", .weight = i % 2 ? 3 : 1};
    sim_run(&s, jobs, 2 * EACH);
    double half = 0;
    int heavy = 0, light = 0;
    for (int i = 0; i < 2 * EACH; i++)
        half = jobs[i].end_s > half ? jobs[i].end_s : half;
    for (int i = 0; i < 2 * EACH; i++) {
        heavy += i % 2 && jobs[i].end_s < half / 2;
        light += i % 2 == 0 && jobs[i].end_s < half / 2;
    }
    print_message("in half the time %d and %d\n", heavy, light);
    assert_true(heavy >= 2 * light && heavy <= 5 * light);
    sim_close(&s);
}

// A long prompt goes on although short ones never stop coming and would fill all the time there is.
static void test_long_is_not_starved(void **state)
{
    (void)state;
    enum { SHORTS = 400 };
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 2000, .max_running = 16, .cost = {qwen}});
    static struct sim_job jobs[SHORTS + 1];
    memset(jobs, 0, sizeof jobs);
    jobs[0] = (struct sim_job){.nprompt = 3000, .max_out = 3, .account = "long"};
    for (int i = 1; i <= SHORTS; i++)
        jobs[i] = (struct sim_job){.at_s = 0.25 * i, .nprompt = 150, .max_out = 2, .account = i % 2 ? "a" : "b"};
    sim_run(&s, jobs, SHORTS + 1);
    double alone = 3000 * (qwen.row_s + 1500 * qwen.key_s), worst = 0;
    for (int i = 1; i <= SHORTS; i++)
        worst = fmax(worst, jobs[i].first_s - jobs[i].at_s);
    print_message("long prompt alone %.1f s, here %.1f s; worst of the short ones %.1f s\n", alone, jobs[0].first_s, worst);
    assert_true(jobs[0].first_s < 3.5 * alone);  // a third of what there is for prompts, at least
    assert_true(jobs[0].first_s < 0.25 * SHORTS);
    sim_close(&s);
}

// Batch work gets on beside streams and prompts, and delays none of them beyond the target.
static void test_batch_fills_the_gaps(void **state)
{
    (void)state;
    enum { BATCH = 12, CHATS = 60 };
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 1000, .max_running = 12, .cost = {qwen}});
    static struct sim_job jobs[BATCH + CHATS];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < BATCH; i++)
        jobs[i] = (struct sim_job){.nprompt = 200, .max_out = 60, .class = CLASS_BATCH};
    for (int i = 0; i < CHATS; i++)
        jobs[BATCH + i] = (struct sim_job){.at_s = 1 + 0.9 * i, .nprompt = 120, .max_out = 30};
    sim_run(&s, jobs, BATCH + CHATS);
    struct gaps g = gaps_of(jobs + BATCH, CHATS);
    double worst = 0, last = 0, chats_end = jobs[BATCH + CHATS - 1].end_s;
    for (int i = 0; i < CHATS; i++)
        worst = fmax(worst, jobs[BATCH + i].first_s - jobs[BATCH + i].at_s);
    for (int i = 0; i < BATCH; i++)
        last = fmax(last, jobs[i].end_s);
    print_message("chats: first token within %.2f s, gap %.1f ms, end %.1f s; batch done at %.1f s\n", worst,
                  g.most * 1e3, chats_end, last);
    assert_true(worst < 1.5);
    assert_true(g.most <= 0.1);
    assert_true(last < 2 * chats_end);
    sim_close(&s);
}

// Interactive requests find a sequence although batch work has taken all of them.
static void test_batch_gives_way(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 60, .max_running = 4, .cost = {smol}});
    struct sim_job jobs[12] = {{0}};
    for (int i = 0; i < 8; i++)
        jobs[i] = (struct sim_job){.nprompt = 600, .max_out = 400, .class = CLASS_BATCH};
    for (int i = 8; i < 12; i++)
        jobs[i] = (struct sim_job){.at_s = 3 + 0.01 * i, .nprompt = 600, .max_out = 20};
    sim_run(&s, jobs, 12);
    for (int i = 8; i < 12; i++)
        assert_true(jobs[i].first_s - jobs[i].at_s < 4);
    assert_true(s.preempted > 0);
    assert_true(s.preempted < 20);  // and not in vain
    assert_true(jobs[11].end_s < jobs[7].end_s);
    sim_close(&s);
}

// One that needs much memory lets small ones pass for a while, then gets it.
static void test_memory_is_not_starved(void **state)
{
    (void)state;
    enum { SMALL = 300 };
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 40, .max_running = 16, .cost = {smol}});
    static struct sim_job jobs[SMALL + 3];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct sim_job){.nprompt = 500, .max_out = 100};
    jobs[3] = (struct sim_job){.at_s = 0.5, .nprompt = 2000, .max_out = 100};  // 33 of 40 pages
    for (int i = 4; i < SMALL + 3; i++)
        jobs[i] = (struct sim_job){.at_s = 0.6 + 0.1 * i, .nprompt = 200, .max_out = 60};
    sim_run(&s, jobs, SMALL + 3);
    double passed = 0;
    for (int i = 4; i < SMALL + 3; i++)
        passed += jobs[i].begun_s < jobs[3].begun_s;
    print_message("the big one began after %.1f s, %.0f small ones before it\n", jobs[3].begun_s - 0.5, passed);
    assert_true(passed > 5);
    assert_true(jobs[3].begun_s - 0.5 < ADMIT_PATIENCE_S + 8);
    sim_close(&s);
}

// Steps of a work and streams: the gap holds both. A short work passes a long one.
static void test_works_beside_streams(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 400, .max_running = 16, .cost = {smol}});
    struct sim_job jobs[10] = {{0}};
    eight_streams(jobs, 400);
    jobs[8] = (struct sim_job){.at_s = 0.5, .embed = 400};  // 8 s of steps of 20 ms
    jobs[9] = (struct sim_job){.at_s = 3, .embed = 10};
    sim_run(&s, jobs, 10);
    struct gaps g = gaps_of(jobs, 8);
    print_message("gap %.1f ms, short work after %.2f s, long one %.2f s\n", g.most * 1e3, jobs[9].end_s - 3, jobs[8].end_s);
    assert_true(g.most <= 0.1);
    assert_true(jobs[9].end_s - 3 < 1);
    sim_close(&s);
}

// Two models take turns: a stream waits for both, and a prompt on one of them knows.
static void test_two_models(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 3, .pages = 400, .max_running = 16, .cost = {smol, qwen, smol}});
    struct sim_job jobs[10] = {{0}};
    eight_streams(jobs, 300);
    for (int i = 0; i < 8; i++)
        jobs[i].model = i % 2;
    jobs[8] = (struct sim_job){.at_s = 1, .nprompt = 2500, .max_out = 5, .model = 0};
    jobs[9] = (struct sim_job){.at_s = 1, .nprompt = 2500, .max_out = 5, .model = 2};  // has no streams
    sim_run(&s, jobs, 10);
    struct gaps g = gaps_of(jobs, 8);
    print_message("gap %.1f ms, prompts after %.2f and %.2f s\n", g.most * 1e3, jobs[8].first_s, jobs[9].first_s);
    assert_true(g.most <= 0.1);
    sim_close(&s);
}

static void test_deadlines(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 400, .max_running = 2, .cost = {qwen}});
    struct sim_job jobs[] = {
        {.nprompt = 300, .max_out = 600}, {.nprompt = 300, .max_out = 600},
        {.at_s = 2, .nprompt = 50, .max_out = 5, .begin_deadline_s = 1},   // both sequences are taken
        {.at_s = 2, .nprompt = 50, .max_out = 5, .begin_deadline_s = 60},
        {.at_s = 2, .nprompt = 4000, .max_out = 5, .deadline_s = 2},       // 8 s of work at least
        {.at_s = 2, .nprompt = 50, .max_out = 5, .deadline_s = 2},         // could be met, but is not
    };
    sim_run(&s, jobs, 6);
    assert_int_equal(jobs[2].error, ERR_LATE);
    assert_true(jobs[2].end_s >= 3 && jobs[2].end_s < 3.2 && jobs[2].begun_s < 0);
    assert_int_equal(jobs[3].error, ERR_OK);
    assert_int_equal(jobs[4].error, ERR_TIMEOUT);
    assert_true(jobs[4].end_s < 2.2);  // at once
    assert_int_equal(jobs[5].error, ERR_TIMEOUT);
    assert_true(jobs[5].end_s > 3.9 && jobs[5].end_s < 4.1);  // not before there was too little time left
    sim_close(&s);
}

// A stream whose reader is behind rests with its pages, and then says what it would have said (sim_run compares).
static void test_held(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 30, .max_running = 8, .cost = {smol}});
    struct sim_job jobs[] = {
        {.nprompt = 300, .max_out = 100, .hold_at = 10, .hold_s = 20},
        {.nprompt = 300, .max_out = 100},
        {.nprompt = 300, .max_out = 400, .hold_at = 50, .hold_s = 1000},
    };
    sim_run(&s, jobs, 3);
    assert_true(jobs[0].gap_s >= 20 && jobs[0].gap_s < 20.2);
    assert_true(jobs[1].gap_s < 0.1 && jobs[1].end_s < 5);
    assert_int_equal(jobs[2].error, ERR_TIMEOUT);
    assert_int_equal(jobs[2].tokens, 50);
    assert_true(jobs[2].end_s > ADMIT_HELD_MOST_S && jobs[2].end_s < ADMIT_HELD_MOST_S + 5);
    assert_int_equal(s.preempted, 0);  // nobody needed the memory
    sim_close(&s);
}

// When others wait for memory, one held for long gives its pages; it goes on all the same.
static void test_held_gives_memory(void **state)
{
    (void)state;
    struct sim s;
    sim_open(&s, &(struct sim_config){.models = 1, .pages = 30, .max_running = 8, .cost = {smol}});
    struct sim_job jobs[] = {
        {.nprompt = 1200, .max_out = 100, .hold_at = 10, .hold_s = 60},
        {.at_s = 1, .nprompt = 1000, .max_out = 50},
    };
    sim_run(&s, jobs, 2);
    assert_true(jobs[1].begun_s >= ADMIT_HELD_S && jobs[1].begun_s < ADMIT_HELD_S + 3);
    assert_int_equal(jobs[0].error, ERR_OK);
    assert_true(jobs[0].gap_s >= 60 && jobs[0].gap_s < 62);
    assert_int_equal(s.preempted, 1);
    sim_close(&s);
}

// Jobs of all kinds at random times: all end, all right, streams keep their pace.
static void test_random_load(void **state)
{
    (void)state;
    enum { JOBS = 150 };
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct sim s;
        sim_open(&s, &(struct sim_config){.models = 2, .pages = 120, .max_running = 10, .cost = {smol, qwen}});
        static struct sim_job jobs[JOBS];
        memset(jobs, 0, sizeof jobs);
        double at = 0;
        for (int i = 0; i < JOBS; i++) {
            uint64_t r = rng_u64(seed, (uint64_t)i, 0);
            at += 0.4 * rng_unit(seed, (uint64_t)i, 1);
            jobs[i] = (struct sim_job){.at_s = at, .model = r % 3 == 0, .nprompt = 1 + (int)((r >> 8) % 300),
                                       .max_out = 1 + (int)((r >> 20) % 60), .class = (enum task_class)((r >> 30) % 3),
                                       .account = (const char *[]){"a", "b", NULL, "c"}[(r >> 34) % 4],
                                       .stem = (int)((r >> 40) % 3)};
            if ((r >> 44) % 8 == 0)
                jobs[i].nprompt += 1500;
            if ((r >> 48) % 8 == 0)
                jobs[i].embed = 1 + (int)((r >> 52) % 40);
            if ((r >> 58) % 8 == 0)
                jobs[i] = (struct sim_job){.at_s = at, .nprompt = 100, .max_out = 40, .hold_at = 5, .hold_s = 2};
        }
        sim_run(&s, jobs, JOBS);
        double most = 0;
        for (int i = 0; i < JOBS; i++)
            if (jobs[i].class != CLASS_BATCH && !jobs[i].hold_at && !jobs[i].error)
                most = fmax(most, jobs[i].gap_s);
        print_message("gap %.1f ms, %llu preempted\n", most * 1e3, (unsigned long long)s.preempted);
        assert_true(most <= 0.15);
        sim_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes_by_weight),
        cmocka_unit_test(test_lanes_return),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_many_accounts),
        cmocka_unit_test(test_ageing),
        cmocka_unit_test(test_long_prompt_beside_streams),
        cmocka_unit_test(test_repeatable),
        cmocka_unit_test(test_flood_of_one_account),
        cmocka_unit_test(test_accounts_by_weight),
        cmocka_unit_test(test_long_is_not_starved),
        cmocka_unit_test(test_batch_fills_the_gaps),
        cmocka_unit_test(test_batch_gives_way),
        cmocka_unit_test(test_memory_is_not_starved),
        cmocka_unit_test(test_works_beside_streams),
        cmocka_unit_test(test_two_models),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_held_gives_memory),
        cmocka_unit_test(test_random_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
