// The scheduler with a model whose tokens depend on every KV row: whatever is computed must equal fake_answer.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/gate.h"

enum { PAGE_BYTES = 2 * 2 * 2 * 64 * 8, CONTEXT = 512 };

static struct engine *open_engine(struct model **ret_model, int threads, int chunk, int pages, int running, int waiting)
{
    struct engine_config c = {.threads = threads, .prefill_chunk = chunk, .kv_bytes = (size_t)pages * PAGE_BYTES,
                              .max_running = running, .max_waiting = waiting, .isa = "scalar"};
    struct model *m = fake_model(CONTEXT);
    if (ret_model)
        *ret_model = m;
    return engines_open_with(&c, "fake", m);
}

static void assert_all_free(struct engine *en)
{
    struct engine_stats st;
    assert_true(engine_check(en, false));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.running, 0);
    assert_int_equal(st.waiting, 0);
    assert_true(engine_check(en, true));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_cached, 0);
    assert_int_equal(st.kv_pages_used, 0);
}

static void make_prompt(int32_t *ids, int n, int stem, int stem_len, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(i < stem_len ? (uint64_t)stem : seed, (uint64_t)i, 1) % FAKE_VOCAB);
}

// ---- random operations

struct job {
    struct client client;
    int32_t prompt[CONTEXT];
    int nprompt, n, max_out;
    struct sampling sampling;
    bool accepted, may_end_early;
};

static void pick_job(struct job *j, uint64_t seed, int i)
{
    uint64_t r = rng_u64(seed, (uint64_t)i, 0);
    j->n = r % 8 == 0 ? 3 : r % 8 == 1 ? 2 : 1;
    j->nprompt = 1 + (int)((r >> 8) % (j->n > 1 ? 100 : 300));
    // Long answers outgrow what admission promised.
    j->max_out = (int)((r >> 32) % ((r >> 24) % 4 == 0 ? (j->n > 1 ? 390 : 210) : 20));
    make_prompt(j->prompt, j->nprompt, (int)((r >> 40) % 3), (int)((r >> 44) % 260), r);
    j->sampling = (struct sampling){.temperature = (r >> 52) % 2 ? 0 : 0.8f, .top_p = 0.9f, .top_k = 20,
                                    .repetition_penalty = (r >> 53) % 3 ? 1 : 1.2f, .presence_penalty = 0.1f,
                                    .seed = r};
}

static void submit_job(struct job *j, struct engine *en, uint64_t seed, int i)
{
    uint64_t r = rng_u64(seed, (uint64_t)i, 9);
    struct task *t = client_task("fake", j->prompt, j->nprompt);
    t->generate.sampling = j->sampling;
    t->generate.max_tokens = j->max_out;
    t->generate.n = j->n;
    t->generate.logprobs = (int)(r % 3);
    t->cache_salt = (r >> 4) % 5 == 0 ? "other" : NULL;
    if ((r >> 8) % 16 == 0) {
        t->deadline_ns = clock_ns() + (int64_t)((r >> 12) % 5) * 1000000;
        j->may_end_early = true;
    }
    if ((r >> 16) % 10 == 0) {  // however fast the others are
        j->client.cancel_on = en;
        j->client.cancel_at = (int)((r >> 20) % 4);
        j->may_end_early = true;
    }
    err e = {0};
    j->accepted = client_submit(&j->client, en, t, &e);
    if (!j->accepted)
        assert_int_equal(e.code, ERR_BUSY);
}

static void check_job(struct job *j)
{
    struct client *c = &j->client;
    if (!j->accepted)
        return;
    assert_int_equal(c->ends, 1);
    assert_false(c->wrong);
    bool whole = c->error.code == ERR_OK;
    assert_true(whole || (j->may_end_early && (c->error.code == ERR_CANCELLED || c->error.code == ERR_TIMEOUT)));
    int total = 0;
    for (int i = 0; i < j->n; i++) {
        int32_t want[CONTEXT];
        if (j->max_out > 0)
            fake_answer(j->prompt, j->nprompt, &j->sampling, i, j->max_out, want);
        assert_true(whole ? c->nids[i] == j->max_out : c->nids[i] <= j->max_out);
        assert_memory_equal(c->ids[i] ? c->ids[i] : want, want, (size_t)c->nids[i] * sizeof *want);
        assert_true(c->finishes[i] == 1 || (!whole && c->finishes[i] == 0));
        total += c->nids[i];
    }
    assert_int_equal(c->usage.completion_tokens, total);
    assert_true(c->usage.cached_tokens < j->nprompt);
}

static struct engine_stats random_run(int threads, int chunk, int pages, int running, int jobs, uint64_t seed)
{
    struct model *m;
    struct engine *en = open_engine(&m, threads, chunk, pages, running, 40);
    struct job *all = calloc((size_t)jobs, sizeof *all);
    for (int i = 0; i < jobs; i++) {
        uint64_t r = rng_u64(seed, (uint64_t)i, 3);
        pick_job(&all[i], seed, i);
        submit_job(&all[i], en, seed, i);
        int victim = (int)(r % (uint64_t)(i + 1));
        if ((r >> 32) % 6 == 0 && all[victim].accepted) {
            // Its outcome may have been decided before: both ends are right.
            all[victim].may_end_early = true;
            engine_cancel(en, all[victim].client.ticket);
        }
        if ((r >> 40) % 4 == 0)
            client_wait(&all[victim].client);
        if ((r >> 44) % 16 == 0)
            assert_true(engine_check(en, (r >> 50) % 2));
    }
    for (int i = 0; i < jobs; i++)
        client_wait(&all[i].client);
    for (int i = 0; i < jobs; i++) {
        check_job(&all[i]);
        client_done(&all[i].client);
    }
    assert_all_free(en);
    struct engine_stats st;
    engine_stats(en, &st);
    engine_close(en);
    free(all);
    return st;
}

static void test_random_operations(void **state)
{
    (void)state;
    const int chunks[] = {1, 7, 64, 512, 0};
    uint64_t cached = 0, cancelled = 0;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            struct engine_stats st = random_run(threads, chunks[i], i % 2 ? 24 : 200, i % 3 == 2 ? 4 : 12, 150,
                                                (uint64_t)threads * 100 + i);
            cached += st.cached_tokens;
            cancelled += st.cancelled;
        }
    // The run must have met what it is for.
    assert_true(cached > 1000);
    assert_true(cancelled > 10);
}

// Answers that outgrow what admission promised, more of them than the pool holds: some are preempted and computed again.
static void test_preemption(void **state)
{
    (void)state;
    enum { JOBS = 12 };
    struct engine *en = open_engine(NULL, 1, 0, 24, 12, 40);
    struct gate g;
    gate_close(&g, en, "fake");  // none is over before all have come
    struct job *all = calloc(JOBS, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < JOBS; i++) {
        struct job *j = &all[i];
        j->n = 1;
        j->nprompt = 40;
        j->max_out = 400;
        make_prompt(j->prompt, j->nprompt, i, 0, (uint64_t)i);
        j->sampling = (struct sampling){.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1.1f, .seed = (uint64_t)i};
        struct task *t = client_task("fake", j->prompt, j->nprompt);
        t->generate.sampling = j->sampling;
        t->generate.max_tokens = j->max_out;
        t->generate.logprobs = 0;  // events then carry the ids
        err e = {0};
        j->accepted = client_submit(&j->client, en, t, &e);
        assert_true(j->accepted);
    }
    gate_prepared(en, "fake");
    gate_open(&g);
    for (int i = 0; i < JOBS; i++) {
        client_wait(&all[i].client);
        check_job(&all[i]);
        client_done(&all[i].client);
    }
    assert_all_free(en);
    struct engine_stats st;
    engine_stats(en, &st);
    assert_true(st.preempted > 0);
    engine_close(en);
    free(all);
}

// ---- one thing at a time

static void run_one(struct engine *en, struct client *c, const int32_t *ids, int n, int max_out, const char *salt)
{
    struct task *t = client_task("fake", ids, n);
    t->generate.max_tokens = max_out;
    t->generate.sampling.temperature = 0;
    t->generate.logprobs = 0;
    t->cache_salt = salt;
    client_must_submit(c, en, t);
    client_wait(c);
}

static void assert_answer(struct client *c, const int32_t *ids, int n, int max_out)
{
    int32_t want[CONTEXT];
    struct sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    fake_answer(ids, n, &greedy, 0, max_out, want);
    assert_int_equal(c->error.code, ERR_OK);
    assert_int_equal(c->nids[0], max_out);
    assert_memory_equal(c->ids[0], want, (size_t)max_out * sizeof *want);
}

static void test_cached_tokens(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 100, 8, 8);
    int32_t ids[300];
    make_prompt(ids, 300, 1, 300, 0);
    static const struct { int n, cached; const char *salt; } cases[] = {
        {200, 0, NULL}, {200, 199, NULL}, {192, 191, NULL}, {193, 192, NULL}, {200, 0, "b"}, {200, 199, "b"},
        {64, 63, NULL}, {65, 64, NULL}, {300, 200, NULL}, {300, 299, NULL}, {300, 200, "b"}, {300, 299, "b"},
        {1, 0, "c"}, {2, 1, "c"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client c = {0};
        run_one(en, &c, ids, cases[i].n, 5, cases[i].salt);
        assert_answer(&c, ids, cases[i].n, 5);
        assert_int_equal(c.usage.cached_tokens, cases[i].cached);
        assert_int_equal(c.usage.prompt_tokens, cases[i].n);
        assert_int_equal(c.usage.completion_tokens, 5);
        client_done(&c);
    }
    assert_all_free(en);
    engine_close(en);
}

// The next turn computes one token: everything before was computed, the answer's last page included.
static void test_second_turn(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 100, 8, 8);
    int32_t ids[300];
    make_prompt(ids, 100, 1, 100, 0);
    struct client c = {0}, d = {0};
    run_one(en, &c, ids, 100, 100, NULL);
    memcpy(ids + 100, c.ids[0], 100 * sizeof *ids);
    run_one(en, &d, ids, 200, 10, NULL);
    assert_answer(&d, ids, 200, 10);
    assert_int_equal(d.usage.cached_tokens, 199);
    client_done(&c);
    client_done(&d);
    engine_close(en);
}

static void test_context_and_errors(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 100, 4, 8);
    int32_t ids[CONTEXT + 1] = {0};
    struct client c = {0};
    run_one(en, &c, ids, 512, 13, NULL);
    assert_int_equal(c.error.code, ERR_CONTEXT);
    assert_non_null(strstr(c.error.text, "maximum context length is 512 tokens"));
    assert_non_null(strstr(c.error.text, "525 tokens (512 in the prompt, 13 in the completion)"));
    assert_int_equal(c.starts, 0);
    client_done(&c);
    for (int limit = 12; limit < INT32_MAX / 2; limit += INT32_MAX / 3) {  // beyond the context: to its end
        run_one(en, &c, ids, 500, limit, NULL);
        assert_answer(&c, ids, 500, 12);
        assert_int_equal(c.finish[0], FINISH_LENGTH);
        client_done(&c);
    }
    run_one(en, &c, ids, 512, 0, NULL);
    assert_int_equal(c.error.code, ERR_OK);
    client_done(&c);
    run_one(en, &c, ids, 500, -1, NULL);  // to the end of the context
    assert_answer(&c, ids, 500, 12);
    client_done(&c);
    run_one(en, &c, ids, 512, -1, NULL);
    assert_int_equal(c.error.code, ERR_CONTEXT);
    client_done(&c);
    ids[3] = FAKE_VOCAB;
    run_one(en, &c, ids, 10, 1, NULL);
    assert_int_equal(c.error.code, ERR_INVALID);
    client_done(&c);
    err e = {0};
    struct ticket ticket;
    struct task *t = client_task("fake", ids, 3);
    t->generate.n = 5;
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_INVALID);
    t->generate.n = 1;
    t->model = "none";
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_NOT_FOUND);
    t->model = "fake";
    t->generate.prompt.ids = NULL;
    t->generate.prompt.text = "hello";
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_UNSUPPORTED);
    t->generate.prompt.text = NULL;
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_INVALID);
    engine_drain(en);
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_DRAINING);
    task_free(t);
    engine_close(en);
}

// A pool too small for the context lowers it.
static void test_small_pool(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 3, 4, 8);
    struct model_info info;
    assert_true(engine_find_model(en, "fake", &info));
    assert_int_equal(info.context, 192);
    int32_t ids[200] = {0};
    struct client c = {0};
    run_one(en, &c, ids, 150, 42, NULL);
    assert_answer(&c, ids, 150, 42);
    client_done(&c);
    run_one(en, &c, ids, 150, 43, NULL);
    assert_answer(&c, ids, 150, 42);
    assert_int_equal(c.finish[0], FINISH_LENGTH);
    client_done(&c);
    struct task *t = client_task("fake", ids, 100);  // two pages each, three in all
    t->generate.n = 2;
    t->generate.max_tokens = 10;
    err e = {0};
    assert_true(client_submit(&c, en, t, &e));
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_INVALID);
    assert_string_equal(c.error.param, "n");
    client_done(&c);
    assert_all_free(en);
    engine_close(en);
}

static void test_nan_logits(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m, 1, 0, 100, 4, 8);
    int32_t ids[10] = {1, 2, 3};
    fake_model_set_nan(m, 14);
    struct client c = {0};
    run_one(en, &c, ids, 10, 20, NULL);
    assert_int_equal(c.error.code, ERR_INTERNAL);
    assert_non_null(strstr(c.error.text, "position 14"));
    assert_int_equal(c.nids[0], 5);  // sampled from positions 9 to 13
    client_done(&c);
    assert_all_free(en);
    engine_close(en);
}

static void test_queue_bound(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 100, 1, 2);
    struct gate g;
    gate_close(&g, en, "fake");  // it runs, and for one more there is no room
    int32_t ids[10] = {1, 2, 3};
    struct client c[8] = {0};
    int refused = 0, ok = 0;
    for (int i = 0; i < 8; i++) {
        struct task *t = client_task("fake", ids, 10);
        t->generate.max_tokens = 20;
        err e = {0};
        if (client_submit(&c[i], en, t, &e)) {
            ok++;
        } else {
            refused++;
            assert_int_equal(e.code, ERR_BUSY);
        }
    }
    assert_int_equal(ok, 2);
    assert_int_equal(refused, 6);
    gate_open(&g);
    for (int i = 0; i < 8; i++) {
        client_wait(&c[i]);
        client_done(&c[i]);
    }
    assert_all_free(en);
    engine_close(en);
}

static void test_close_ends_all(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m, 2, 0, 100, 4, 20);
    fake_model_set_delay(m, 20000000);  // 500 tokens take ten seconds at least
    int32_t ids[10] = {1, 2, 3};
    struct client c[12] = {0};
    for (int i = 0; i < 12; i++) {
        struct task *t = client_task("fake", ids, 10);
        err e = {0};
        assert_true(client_submit(&c[i], en, t, &e));
    }
    usleep(30000);
    engine_close(en);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(c[i].ends, 1);
        assert_int_equal(c[i].error.code, ERR_DRAINING);
        client_done(&c[i]);
    }
}

// Cancelled at each of its events in turn: ends once, nothing stays, the next one is right.
static void test_cancel_at_every_event(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 2, 7, 30, 4, 8);
    int32_t ids[100];
    make_prompt(ids, 100, 4, 100, 0);
    for (int at = 0; at < 28; at++) {
        struct client c = {.cancel_on = en, .cancel_at = at};
        struct task *t = client_task("fake", ids, 100);
        t->generate.n = 2;
        t->generate.max_tokens = 10;
        t->generate.logprobs = 1;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.ends, 1);
        assert_false(c.wrong);
        // 1 start, 20 texts, 2 finishes. At the last text its choice ends in any case, and was the last one.
        assert_int_equal(c.error.code, at < 21 ? ERR_CANCELLED : ERR_OK);
        client_done(&c);
        if (at % 3 == 0)
            assert_all_free(en);
    }
    engine_close(en);
}

// A cancel is done with the step that runs, also while queued.
static void test_cancel_is_quick(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m, 1, 10, 100, 1, 8);
    const struct metrics *numbers = engine_metrics(en, "fake");
    fake_model_set_delay(m, 20000000);  // ten seconds in all
    int32_t ids[400] = {1};
    struct client c[2] = {0};
    for (int i = 0; i < 2; i++) {
        err e = {0};
        c[i].counter = &numbers->steps;
        assert_true(client_submit(&c[i], en, client_task("fake", ids, 400), &e));
    }
    while (atomic_load(&numbers->steps) == 0)
        usleep(1000);
    for (int i = 1; i >= 0; i--) {
        engine_cancel(en, c[i].ticket);
        uint64_t before = atomic_load(&numbers->steps);
        engine_cancel(en, c[i].ticket);
        client_wait(&c[i]);
        assert_true(c[i].counted <= before + 1);
        assert_int_equal(c[i].error.code, ERR_CANCELLED);
        engine_cancel(en, c[i].ticket);  // stale: no effect
        client_done(&c[i]);
    }
    struct engine_stats st;
    assert_all_free(en);
    engine_stats(en, &st);
    assert_int_equal(st.cancelled, 2);
    engine_close(en);
}

// Echo with log-probabilities computes every position, whatever the cache has.
static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, 0, 100, 4, 8);
    int32_t ids[150];
    make_prompt(ids, 150, 2, 150, 0);
    struct client c = {0}, d = {0};
    run_one(en, &c, ids, 150, 1, NULL);
    client_done(&c);
    struct task *t = client_task("fake", ids, 150);
    t->generate.echo = true;
    t->generate.logprobs = 2;
    t->generate.max_tokens = 3;
    t->generate.sampling.temperature = 0;
    t->generate.n = 2;
    err e = {0};
    assert_true(client_submit(&d, en, t, &e));
    client_wait(&d);
    assert_int_equal(d.usage.cached_tokens, 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(d.nids[k], 153);
        assert_memory_equal(d.ids[k], ids, sizeof ids);
        assert_true(isnan(d.logprobs[k][0]));
        for (int i = 1; i < 150; i++) {
            float logits[FAKE_VOCAB];
            double sum = 0;
            fake_logits(ids, i, logits);
            for (int v = 0; v < FAKE_VOCAB; v++)
                sum += exp((double)logits[v]);
            // Observed: at most 4e-7.
            assert_true(fabs((double)logits[ids[i]] - log(sum) - (double)d.logprobs[k][i]) < 2e-6);
        }
    }
    client_done(&d);
    assert_all_free(en);
    engine_close(en);
}

// On a machine so slow that a step of its rows takes longer than streams like, many choices begin all the same when nobody else
// has a stream.
static void test_slow_but_alone(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m, 1, 0, 100, 8, 8);
    int32_t ids[10];
    make_prompt(ids, 10, 2, 10, 0);
    fake_model_set_delay(m, 40000000);
    struct client c = {0}, d = {0};
    run_one(en, &c, ids, 1, 15, NULL);  // so that the time of a step is known
    client_done(&c);
    struct task *t = client_task("fake", ids, 10);
    t->generate.max_tokens = 2;
    t->generate.n = 6;
    err e = {0};
    assert_true(client_submit(&d, en, t, &e));
    client_wait(&d);
    assert_int_equal(d.error.code, ERR_OK);
    assert_int_equal(d.usage.completion_tokens, 12);
    client_done(&d);
    engine_close(en);
}

static void test_two_models(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m, 2, 0, 64, 4, 20);
    err e = {0};
    assert_int_equal(engine_add_open_model(en, "second", fake_model(128), &e), ERR_OK);
    // The first took all memory there was: the second can have none, and says so.
    assert_int_equal(engine_wait_model(en, "second", &e), ERR_MEMORY);
    struct model_info infos[4];
    assert_int_equal(engine_models(en, infos, 4), 2);
    assert_int_equal(infos[1].state, MODEL_FAILED);
    engine_close(en);
}

static void test_models_take_turns(void **state)
{
    (void)state;
    struct engine_config c = {.threads = 1, .kv_bytes = 200 * PAGE_BYTES, .max_running = 4, .isa = "scalar"};
    struct engine *en;
    err e = {0};
    assert_int_equal(engine_open(&c, &en, &e), ERR_OK);
    const char *names[] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(engine_add_open_model(en, names[i], fake_model(128), &e), ERR_OK);
    int32_t ids[50];
    make_prompt(ids, 50, 2, 50, 0);
    struct client cl[2] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_wait_model(en, names[i], &e), ERR_OK);
        struct task *t = client_task(names[i], ids, 50);
        t->generate.sampling.temperature = 0;
        t->generate.logprobs = 0;
        t->generate.max_tokens = 70;
        assert_true(client_submit(&cl[i], en, t, &e));
    }
    for (int i = 0; i < 2; i++) {
        client_wait(&cl[i]);
        assert_answer(&cl[i], ids, 50, 70);
        client_done(&cl[i]);
    }
    assert_all_free(en);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached_tokens),
        cmocka_unit_test(test_second_turn),
        cmocka_unit_test(test_context_and_errors),
        cmocka_unit_test(test_small_pool),
        cmocka_unit_test(test_nan_logits),
        cmocka_unit_test(test_queue_bound),
        cmocka_unit_test(test_close_ends_all),
        cmocka_unit_test(test_cancel_at_every_event),
        cmocka_unit_test(test_cancel_is_quick),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_slow_but_alone),
        cmocka_unit_test(test_two_models),
        cmocka_unit_test(test_models_take_turns),
        cmocka_unit_test(test_random_operations), cmocka_unit_test(test_preemption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
