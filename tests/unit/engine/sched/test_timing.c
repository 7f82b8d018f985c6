// What a task's times and its end add to the numbers of its model: by hand with a made clock, then through the engine.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/sched/timing.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"

enum { CONTEXT = 512, MS = 1000000 };

static uint64_t count(const struct hist *h)
{
    uint64_t n = 0;
    for (int i = 0; i <= h->bounds->n; i++)
        n += atomic_load(&h->counts[i]);
    return n;
}

static double sum(const struct hist *h)
{
    return (double)atomic_load(&h->sum_millionths) * 1e-6;
}

static void assert_hist(const struct hist *h, uint64_t n, double total)
{
    assert_int_equal(count(h), n);
    assert_true(sum(h) > total - 1e-6 && sum(h) < total + 1e-6);
}

// Arrives at 1000 ms, is prepared at 1010, begins at 1050, has its first tokens at 1100.
static void begin(struct session *s, struct task *t, struct metrics *m, struct choice *choices, int n)
{
    metrics_init(m);
    t->kind = TASK_GENERATE;
    t->arrived_ns = 1000 * (int64_t)MS;
    s->task = t;
    s->metrics = m;
    s->choices = choices;
    s->n = n;
    s->prompt_tokens = 7;
    s->max_out = 30;
    timing_queued(s, 1010 * (int64_t)MS);
    timing_begun(s, 1050 * (int64_t)MS);
    s->completion_tokens = n;
    timing_tokens(s, &choices[0], n, 1100 * (int64_t)MS);
}

static void test_gaps(void **state)
{
    (void)state;
    struct metrics m = {0};
    struct task t = {0};
    struct choice c[1] = {0};
    struct session s = {0};
    begin(&s, &t, &m, c, 1);
    assert_hist(&m.queue_s, 1, .04);
    assert_hist(&m.ttft_s, 1, .1);
    assert_hist(&m.prefill_s, 1, .05);
    assert_hist(&m.itl_s, 0, 0);
    timing_tokens(&s, &c[0], 1, 1130 * (int64_t)MS);
    timing_tokens(&s, &c[0], 3, 1180 * (int64_t)MS);  // one gap and two zeros
    timing_tokens(&s, &c[0], 0, 1190 * (int64_t)MS);  // a step without a token is none
    s.completion_tokens = 5;
    assert_hist(&m.itl_s, 4, .08);
    assert_int_equal(m.itl_s.counts[0], 2);
    timing_end(&s, NULL, 0, 1200 * (int64_t)MS);
    assert_hist(&m.decode_s, 1, .1);
    assert_hist(&m.tpot_s, 1, .025);
    assert_hist(&m.inference_s, 1, .15);
    assert_hist(&m.e2e_s, 1, .2);
    assert_hist(&m.task_s, 1, .2);
    assert_hist(&m.request_prompt_tokens, 1, 7);
    assert_hist(&m.request_generation_tokens, 1, 5);
    assert_hist(&m.request_max_tokens, 1, 30);
    assert_hist(&m.request_n, 1, 1);
    assert_int_equal(m.generation_tokens, 5);
    assert_int_equal(m.ended_stop, 1);
}

static void test_choices(void **state)
{
    (void)state;
    struct metrics m = {0};
    struct task t = {0};
    struct choice c[3] = {0};
    struct session s = {.cut = true};
    begin(&s, &t, &m, c, 3);
    assert_hist(&m.ttft_s, 1, .1);  // once, however many choices
    for (int i = 0; i < 3; i++)
        timing_tokens(&s, &c[i], 1, (1120 + 10 * i) * (int64_t)MS);
    assert_hist(&m.itl_s, 3, .09);
    s.completion_tokens = 6;
    timing_end(&s, NULL, 0, 1150 * (int64_t)MS);
    assert_hist(&m.tpot_s, 1, .05);  // two tokens each
    assert_hist(&m.request_n, 1, 3);
    assert_int_equal(m.ended_length, 1);
    assert_int_equal(m.ended_stop, 0);
}

static void test_ends(void **state)
{
    (void)state;
    static const struct { enum task_kind kind; err_code code; size_t counter; } cases[] = {
        {TASK_GENERATE, ERR_CANCELLED, offsetof(struct metrics, ended_cancelled)},
        {TASK_GENERATE, ERR_TIMEOUT, offsetof(struct metrics, ended_deadline)},
        {TASK_GENERATE, ERR_LATE, offsetof(struct metrics, ended_deadline)},
        {TASK_IMAGE, ERR_DRAINING, offsetof(struct metrics, ended_error)},
        {TASK_EMBED, ERR_OK, offsetof(struct metrics, ended_stop)},
        {TASK_TOKENIZE, ERR_OK, offsetof(struct metrics, ended_quick)},
        {TASK_RENDER, ERR_INVALID, offsetof(struct metrics, ended_error)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metrics m = {0};
        struct task t = {.kind = cases[i].kind};
        struct session s = {.task = &t, .metrics = &m};
        err e = {.code = cases[i].code};
        metrics_init(&m);
        timing_end(&s, cases[i].code ? &e : NULL, cases[i].code == ERR_CANCELLED ? 5 * MS : 0, 7 * MS);
        uint64_t all = m.ended_stop + m.ended_length + m.ended_quick + m.ended_cancelled + m.ended_deadline + m.ended_error;
        assert_int_equal(all, 1);
        assert_int_equal(*(_Atomic uint64_t *)((char *)&m + cases[i].counter), 1);
        assert_int_equal(count(&m.e2e_s), 0);  // it was never prepared
        assert_int_equal(count(&m.cancel_to_free_s), cases[i].code == ERR_CANCELLED);
        if (cases[i].code == ERR_CANCELLED)
            assert_hist(&m.cancel_to_free_s, 1, .002);
    }
}

// Every task once, with every number a client can work out from its answer.
static void test_engine(void **state)
{
    (void)state;
    struct engine_config ec = {.threads = 1, .kv_bytes = 1 << 20, .max_running = 8, .isa = "scalar"};
    struct engine *en = engines_open_with(&ec, "fake", fake_model(CONTEXT));
    err e = {0};
    const struct metrics *m = engine_metrics(en, "fake");
    static const int32_t prompt[] = {1, 2, 3, 4, 5};
    struct client c[12] = {0};
    uint64_t tokens = 0, gaps = 0, ended = 0;
    for (int i = 0; i < 12; i++) {
        struct task *t = client_task("fake", prompt, i == 11 ? 0 : 5);  // the last one has no prompt
        t->generate.max_tokens = i == 4 ? CONTEXT - 5 : 1 + i;
        t->generate.n = 1 + i % 3;
        if (i == 4) {
            t->generate.logprobs = 0;  // an event for each token
            c[i].cancel_on = en;
            c[i].cancel_at = 20;
        }
        assert_true(client_submit(&c[i], en, t, &e));
    }
    for (int i = 0; i < 12; i++) {
        client_wait(&c[i]);
        tokens += (uint64_t)c[i].usage.completion_tokens;
        ended += c[i].ends == 1;
        if (i < 11)
            gaps += (uint64_t)(c[i].usage.completion_tokens - (1 + i % 3));
        client_done(&c[i]);
    }
    assert_int_equal(ended, 12);
    assert_int_equal(m->ended_length, 10);
    assert_int_equal(m->ended_cancelled, 1);
    assert_int_equal(m->ended_error, 1);
    assert_int_equal(m->generation_tokens, tokens);
    assert_int_equal(count(&m->itl_s), gaps);
    assert_int_equal(count(&m->ttft_s), 11);
    assert_int_equal(count(&m->queue_s), 11);
    assert_int_equal(count(&m->e2e_s), 11);
    assert_int_equal(count(&m->cancel_to_free_s), 1);
    assert_int_equal((int64_t)sum(&m->request_prompt_tokens), 55);
    assert_int_equal(m->loaded, 1);
    assert_true(engine_check(en, true));
    assert_true(m->kv_pages > 0 && m->kv_bytes > 0);
    assert_int_equal(m->kv_pages_used, 0);
    assert_int_equal(m->kv_pages_cached, 0);
    assert_true(engine_heartbeat_ns(en) > 0 && engine_heartbeat_ns(en) <= clock_ns());
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
