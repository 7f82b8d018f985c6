// KV memory seen from the scheduler, step by step and without its thread: random operations on a model whose tokens depend on
// every row of its pages against plain recomputation, with the accounts checked after each; preemption at each token;
// followers; who is isolated from whom.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/family/family.h"
#include "engine/metrics.h"
#include "engine/sched/admit.h"
#include "engine/sched/commit.h"
#include "engine/sched/plan.h"
#include "engine/sched/served.h"
#include "kernels/team.h"
#include "tests/helpers/client.h"
#include "tests/helpers/fake_model.h"

enum { PAGE_BYTES = 2 * 2 * 2 * 64 * 8, CONTEXT = 4096, MAX_CHOICES = 3 };

// ---- a scheduler that does one step when it is told to

struct rig {
    struct sched_core core;
    struct model *model;
    struct fake_kind kind;
    struct metrics metrics;
    struct served *m;
    int prefilled;  // rows of prompts, of all steps
};

static void open_rig(struct rig *r, struct fake_kind kind, int pages, int running, int chunk)
{
    *r = (struct rig){.core.config = {.threads = 1, .max_running = running, .prefill_chunk = chunk}, .core.now_ns = clock_ns,
                       .kind = kind};
    err e = {0};
    r->core.slots = slot_open(&(struct slot_limits){.max_waiting = 64, .max_running = running});
    assert_int_equal(team_open(1, false, &r->core.team, &e), ERR_OK);
    r->model = fake_model_new(CONTEXT, kind);
    metrics_init(&r->metrics);
    // A recurrent model keeps some of it for checkpoints.
    size_t bytes = (size_t)pages * PAGE_BYTES;
    if (served_open(&r->core, r->model, &r->metrics, kind.recurrent ? bytes / 85 * 100 + 100 : bytes, &r->m, &e))
        fail_msg("%s", e.text);
    assert_int_equal(served_pages(r->m), pages);
    r->m->cost.widest = 1e6;  // chunks as they are configured
}

static void settle(struct rig *r)
{
    for (int i = r->m->nrunning - 1; i >= 0; i--) {
        struct session *s = r->m->running[i];
        err e = {0};
        if (s->failure.code)
            fail_msg("%s", s->failure.text);
        if (session_over(s))
            served_end_running(r->m, s, NULL);
        else if (session_must_end(s, INT64_MIN, &e))
            served_end_running(r->m, s, &e);
    }
}

static void forward(struct lane *lane, void *arg)
{
    const struct served *m = arg;
    m->model->family->gen->forward(m->model, &m->batch.b, lane);
}

static void assert_sound(const struct rig *r)
{
    assert_true(prefix_check(r->m->prefix));
}

// False: there was nothing to do.
static bool step(struct rig *r)
{
    admit_sweep(r->m, 0);
    admit_waiting(r->m);
    assert_sound(r);
    if (r->m->nrunning == 0) {
        assert_int_equal(r->m->nwaiting, 0);
        return false;
    }
    plan_step(r->m, &(struct plan_room){.extras = true, .room_s = 1e9, .batch_room_s = 1e9});
    assert_true(r->m->nitems > 0);
    r->prefilled += r->m->prefill_rows;
    team_run(r->core.team, forward, r->m);
    commit_step(r->m);
    assert_sound(r);
    settle(r);
    assert_sound(r);
    return true;
}

static void prefill_all(struct rig *r)
{
    do
        step(r);
    while (r->m->running[r->m->nrunning - 1]->state != SESSION_DECODE);
}

static void run_all(struct rig *r)
{
    while (step(r))
        ;
}

static void close_rig(struct rig *r)
{
    run_all(r);
    assert_int_equal(prefix_unclaimed(r->m->prefix), served_pages(r->m));
    prefix_flush(r->m->prefix);
    assert_int_equal(kv_pool_free_pages(r->m->pool), served_pages(r->m));
    assert_sound(r);
    served_close(r->m);
    model_close(r->model);
    team_close(r->core.team);
    slot_close(r->core.slots);
}

// ---- a request

struct job {
    int32_t *prompt, *ids[MAX_CHOICES];
    int nprompt, n, max_out, nids[MAX_CHOICES], ends, cached;
    bool cancelled, started;
    err_code code;
    struct sampling sampling;
    struct session *session;  // until it ended
};

static void on_event(struct task *t, const struct event *ev)
{
    struct job *j = t->ud;
    if (ev->kind == EVENT_START) {
        assert_false(j->started);
        j->started = true;
        j->cached = ev->usage.cached_tokens;
    }
    for (size_t i = 0; i < ev->ntokens; i++)
        j->ids[ev->choice][j->nids[ev->choice]++] = ev->tokens[i].token.id;
    if (ev->kind != EVENT_END)
        return;
    assert_true(!j->started || ev->usage.cached_tokens == j->cached);
    j->ends++;
    j->code = ev->error.code;
    j->session = NULL;
}

// Takes over prompt.
static void submit(struct rig *r, struct job *j, int32_t *prompt, int nprompt, int n, int max_out, const char *salt)
{
    *j = (struct job){.prompt = prompt, .nprompt = nprompt, .n = n, .max_out = max_out, .sampling = j->sampling};
    if (j->sampling.top_p == 0)
        j->sampling = (struct sampling){.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1.1f, .presence_penalty = 0.1f,
                                        .seed = 4};
    for (int i = 0; i < n; i++)
        j->ids[i] = mem_new((size_t)(max_out + 1) * sizeof **j->ids);
    struct task *t = client_task("fake", prompt, nprompt);
    t->on_event = on_event;
    t->ud = j;
    t->generate.sampling = j->sampling;
    t->generate.n = n;
    t->generate.max_tokens = max_out;
    t->generate.logprobs = 0;
    t->cache_salt = salt;
    struct ticket ticket;
    err e = {0};
    assert_int_equal(slot_take(r->core.slots, &(struct slot_load){.n = n}, &ticket, &e), ERR_OK);
    struct session *s = j->session = session_new(t, ticket, r->core.slots);
    served_attach(r->m, s);
    int32_t *copy = mem_new((size_t)nprompt * sizeof *copy);
    memcpy(copy, prompt, (size_t)nprompt * sizeof *copy);
    session_set_prompt(s, copy, nprompt, max_out, NULL);
    session_set_state(s, SESSION_QUEUED);
    admit_arrive(r->m, s);
}

static void check(const struct rig *r, struct job *j)
{
    assert_int_equal(j->ends, 1);
    assert_int_equal(j->code, j->cancelled ? ERR_CANCELLED : ERR_OK);
    assert_true(j->cached < j->nprompt);
    int32_t *want = mem_new((size_t)(j->max_out + 1) * sizeof *want);
    for (int i = 0; i < j->n; i++) {
        fake_answer_of(r->kind, j->prompt, j->nprompt, &j->sampling, i, j->max_out, want);
        assert_true(j->cancelled ? j->nids[i] <= j->max_out : j->nids[i] == j->max_out);
        assert_memory_equal(j->ids[i], want, (size_t)j->nids[i] * sizeof *want);
        free(j->ids[i]);
    }
    free(want);
    free(j->prompt);
    j->prompt = NULL;
}

static int32_t *make_prompt(int n, int stem, int stem_len, uint64_t seed)
{
    int32_t *ids = mem_new((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(i < stem_len ? (uint64_t)stem : seed, (uint64_t)i, 1) % FAKE_VOCAB);
    return ids;
}

// Runs one request alone; returns its cached tokens.
static int run_one(struct rig *r, int32_t *prompt, int n, int max_out, const char *salt)
{
    struct job j = {0};
    submit(r, &j, prompt, n, 1, max_out, salt);
    run_all(r);
    check(r, &j);
    return j.cached;
}

// ---- random operations

static struct session *any_running(const struct rig *r, uint64_t x)
{
    return r->m->nrunning > 1 ? r->m->running[1 + x % (uint64_t)(r->m->nrunning - 1)] : NULL;
}

static void submit_any(struct rig *r, struct job *j, uint64_t x)
{
    static const char *const salts[] = {NULL, "a", "b"};
    int n = x % 8 == 0 ? 3 : x % 8 == 1 ? 2 : 1, nprompt = 1 + (int)((x >> 8) % (n > 1 ? 130 : 400));
    int max_out = 1 + (int)((x >> 20) % (x % 5 ? 20 : 200)), stem = (int)((x >> 32) % 3);
    j->sampling = (struct sampling){.temperature = x >> 40 & 1 ? 0 : 0.8f, .top_p = 0.9f, .top_k = 20,
                                    .repetition_penalty = x >> 41 & 1 ? 1 : 1.2f, .seed = x};
    submit(r, j, make_prompt(nprompt, stem, (int)((x >> 44) % 400), x), nprompt, n, max_out, salts[(x >> 54) % 3]);
    j->session->task->class = x >> 57 & 1 ? CLASS_BATCH : CLASS_NORMAL;
}

static uint64_t recomputed;

static void random_run(struct fake_kind kind, int pages, int chunk, uint64_t seed)
{
    enum { JOBS = 8, OPS = 1500 };
    struct rig r;
    struct job jobs[JOBS] = {0};
    open_rig(&r, kind, pages, 8, chunk);
    for (uint64_t op = 0; op < OPS; op++) {
        uint64_t x = rng_u64(seed, op, 0);
        struct job *j = &jobs[x % JOBS];
        struct session *s = any_running(&r, x >> 32);
        if (j->ends)
            check(&r, j);
        if (j->ends || !j->prompt) {
            submit_any(&r, j, rng_u64(seed, op, 1));
        } else if ((x >> 8) % 16 == 0) {
            j->cancelled = true;
            slot_cancel(r.core.slots, j->session->ticket);
        } else if ((x >> 8) % 16 == 1 && s) {
            admit_preempt(r.m, s);
            assert_sound(&r);
        } else {
            step(&r);
        }
    }
    run_all(&r);
    for (int i = 0; i < JOBS; i++)
        if (jobs[i].prompt)
            check(&r, &jobs[i]);
    // The run must have met what it is for.
    const struct metrics *c = &r.metrics;
    assert_true(c->cached_tokens > 300 && c->cached_tokens < c->prompt_tokens && c->preemptions > 20 && c->cow_copies > 20);
    assert_true(c->evictions > 20);
    recomputed += c->recomputed_tokens;
    close_rig(&r);
}

static void test_random_operations(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{0, false, 0}, {0, true, 0}, {64, false, 0}, {100, false, 0}, {65, true, 0}};
    static const int chunks[] = {512, 7, 64};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int i = 0; i < 3; i++)
            random_run(kinds[k], 24 - 4 * (i == 2), chunks[i], 10 * k + (uint64_t)i);
    assert_true(recomputed > 100);
}

// ---- preemption

// Preempted after every step in turn, once and twice: the same tokens, the same cached tokens.
static void test_preempted_at_each_token(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{0, false, 0}, {0, true, 0}, {70, false, 0}};
    for (size_t k = 0; k < 3; k++)
        for (int at = 1; at < 40; at++) {
            struct rig r;
            struct job a = {0}, b = {0};
            open_rig(&r, kinds[k], 40, 8, 50);
            submit(&r, &a, make_prompt(150, 1, 150, 0), 150, 1, 30, NULL);
            submit(&r, &b, make_prompt(170, 1, 140, 2), 170, 2, 30, NULL);
            for (int i = 0; i < at && step(&r); i++)
                ;
            for (int times = 0; times <= at % 2; times++) {
                for (int i = r.m->nrunning - 1; i >= 0; i--)
                    admit_preempt(r.m, r.m->running[i]);
                if (at % 3 == 0)
                    prefix_flush(r.m->prefix);  // nothing of theirs is left
                step(&r);
            }
            run_all(&r);
            check(&r, &a);
            check(&r, &b);
            assert_int_equal(a.cached, 0);
            assert_int_equal(atomic_load(&r.metrics.prompt_tokens), 320);
            assert_int_equal(atomic_load(&r.metrics.cached_tokens), a.cached + b.cached);
            close_rig(&r);
        }
}

// A short squeeze costs the tail at most: what was computed is found again.
static void test_preemption_is_cheap(void **state)
{
    (void)state;
    struct rig r;
    struct job a = {0};
    open_rig(&r, (struct fake_kind){0}, 40, 8, 512);
    submit(&r, &a, make_prompt(150, 1, 150, 0), 150, 1, 60, NULL);
    for (int i = 0; i < 30; i++)
        step(&r);
    int before = r.prefilled;
    admit_preempt(r.m, r.m->running[0]);
    run_all(&r);
    check(&r, &a);
    assert_true(r.prefilled - before <= 1);
    assert_int_equal(atomic_load(&r.metrics.recomputed_tokens), 0);
    close_rig(&r);
}

static void test_who_is_preempted(void **state)
{
    (void)state;
    struct rig r;
    struct job j[4] = {0};
    open_rig(&r, (struct fake_kind){0}, 60, 8, 512);
    static const int lens[] = {10, 300, 100, 200};
    for (int i = 0; i < 4; i++)
        submit(&r, &j[i], make_prompt(lens[i], i, lens[i], 0), lens[i], 1, 40, NULL);
    prefill_all(&r);
    struct session **s = r.m->running;
    assert_int_equal(r.m->nrunning, 4);
    assert_ptr_equal(admit_victim(r.m), s[2]);  // the least work, but for the oldest
    s[2]->preempted = 2;
    assert_ptr_equal(admit_victim(r.m), s[3]);
    s[1]->task->class = CLASS_BATCH;
    assert_ptr_equal(admit_victim(r.m), s[1]);
    s[1]->task->class = CLASS_NORMAL;
    s[1]->held_ns = 1;
    assert_ptr_equal(admit_victim(r.m), s[1]);
    s[1]->held_ns = 0;
    s[1]->task->class = CLASS_BATCH;
    s[0]->task->class = CLASS_BATCH;
    assert_ptr_equal(admit_victim(r.m), s[1]);
    s[1]->preempted = s[3]->preempted = 2;
    assert_ptr_equal(admit_victim(r.m), s[1]);  // all were: as if none had been
    run_all(&r);
    for (int i = 0; i < 4; i++)
        check(&r, &j[i]);
    close_rig(&r);
}

// ---- the cache across requests

// Of a conversation of 2,000 tokens the second turn computes what is new and the token before it.
static void test_second_turn(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{0, false, 0}, {0, true, 0}, {512, false, 0}, {512, true, 0}};
    for (size_t k = 0; k < 4; k++) {
        struct rig r;
        struct job first = {0};
        open_rig(&r, kinds[k], 200, 8, 512);
        int32_t *turn = make_prompt(2100, 1, 2100, 0);
        submit(&r, &first, make_prompt(2000, 1, 2000, 0), 2000, 1, 60, NULL);
        run_all(&r);
        memcpy(turn + 2000, first.ids[0], 60 * sizeof *turn);
        check(&r, &first);
        r.prefilled = 0;
        assert_int_equal(run_one(&r, turn, 2100, 5, NULL), 2059);
        assert_int_equal(r.prefilled, 41);
        // Edited in the last message: at most a page and what is new; with a state, from the last border of the prompt before.
        int32_t *edited = make_prompt(2010, 1, 1990, 7);
        r.prefilled = 0;
        run_one(&r, edited, 2010, 5, NULL);
        assert_true(r.prefilled <= 20 + KV_PAGE_TOKENS);
        close_rig(&r);
    }
}

// A beginning that requests with a state have in common is found by the third: the second left a checkpoint where it went
// its own way.
static void test_common_beginning_with_a_state(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, (struct fake_kind){.recurrent = true}, 100, 8, 512);
    assert_int_equal(run_one(&r, make_prompt(700, 1, 500, 1), 700, 5, NULL), 0);
    assert_int_equal(run_one(&r, make_prompt(700, 1, 500, 2), 700, 5, NULL), 0);
    assert_int_equal(run_one(&r, make_prompt(700, 1, 500, 3), 700, 5, NULL), 448);
    assert_int_equal(run_one(&r, make_prompt(700, 1, 500, 3), 700, 5, NULL), 640);
    close_rig(&r);
}

// A cancelled request leaves what it computed; so it is with one that is sent again.
static void test_cancelled_work_is_kept(void **state)
{
    (void)state;
    struct rig r;
    struct job a = {0};
    open_rig(&r, (struct fake_kind){0}, 40, 8, 100);
    submit(&r, &a, make_prompt(500, 1, 500, 0), 500, 1, 5, NULL);
    for (int i = 0; i < 3; i++)
        step(&r);
    int computed = r.prefilled;
    assert_in_range(computed, 100, 400);
    a.cancelled = true;
    slot_cancel(r.core.slots, a.session->ticket);
    run_all(&r);
    check(&r, &a);
    assert_int_equal(run_one(&r, make_prompt(500, 1, 500, 0), 500, 5, NULL), computed);
    close_rig(&r);
}

static void test_salts(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{0, false, 0}, {0, true, 0}, {100, false, 0}};
    static const char *const salts[] = {NULL, "a", "b"};
    for (size_t k = 0; k < 3; k++) {
        struct rig r;
        open_rig(&r, kinds[k], 100, 8, 512);
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < 3; i++) {
                int cached = run_one(&r, make_prompt(200, 1, 200, 0), 200, 5, salts[i]);
                assert_int_equal(cached, round == 0 ? 0 : k == 1 ? 192 : 199);
            }
        close_rig(&r);
    }
}

// Who fills the cache flushes his own pages: another's stay as long as they are not more than his share.
static void test_share_of_the_cache(void **state)
{
    (void)state;
    struct rig r;
    open_rig(&r, (struct fake_kind){0}, 40, 8, 512);
    run_one(&r, make_prompt(500, 1, 500, 0), 500, 5, "a");
    for (int i = 0; i < 20; i++)
        run_one(&r, make_prompt(500, 10 + i, 500, 0), 500, 5, "b");
    assert_int_equal(run_one(&r, make_prompt(500, 1, 500, 0), 500, 5, "a"), 499);
    // Alone it may have everything: the last four of its own are there.
    assert_int_equal(run_one(&r, make_prompt(500, 29, 500, 0), 500, 5, "b"), 499);
    assert_int_equal(run_one(&r, make_prompt(500, 27, 500, 0), 500, 5, "b"), 499);
    assert_int_equal(run_one(&r, make_prompt(500, 10, 500, 0), 500, 5, "b"), 0);
    // Of more than a share the rest goes.
    for (int i = 0; i < 8; i++)
        run_one(&r, make_prompt(300, 40 + i, 300, 0), 300, 5, "a");
    for (int i = 0; i < 20; i++)
        run_one(&r, make_prompt(500, 60 + i, 500, 0), 500, 5, "b");
    assert_int_equal(run_one(&r, make_prompt(300, 47, 300, 0), 300, 5, "a"), 299);
    assert_int_equal(run_one(&r, make_prompt(500, 1, 500, 0), 500, 5, "a"), 0);
    close_rig(&r);
}

// Salts of his own choice give nobody a larger share.
static void test_share_with_many_salts(void **state)
{
    (void)state;
    struct rig r;
    struct job j = {0};
    open_rig(&r, (struct fake_kind){0}, 40, 8, 512);
    for (int i = 0; i < 20; i++) {
        char salt[8] = {'b', (char)('a' + i)};
        submit(&r, &j, make_prompt(300, i, 300, 0), 300, 1, 5, i ? salt : "a");
        j.session->task->account = i ? "second" : "first";
        run_all(&r);
        check(&r, &j);
        j = (struct job){0};
    }
    assert_int_equal(run_one(&r, make_prompt(300, 0, 300, 0), 300, 5, "a"), 299);
    close_rig(&r);
}

// ---- the same beginning at the same time

static void test_followers(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{0, false, 0}, {0, true, 0}, {130, false, 0}};
    for (size_t k = 0; k < 3; k++)
        for (int how = 0; how < 3; how++) {  // 1: the leader is cancelled; 2: it is preempted
            enum { N = 6, STEM = 2100 };
            struct rig r;
            struct job j[N] = {0};
            open_rig(&r, kinds[k], 300, 8, 100);
            for (int i = 0; i < N; i++)
                submit(&r, &j[i], make_prompt(STEM + 20, 1, STEM, (uint64_t)i), STEM + 20, 1, 3, NULL);
            for (int i = 0; i < 5; i++)
                step(&r);
            assert_false(j[1].started);
            if (how == 1) {
                j[0].cancelled = true;
                slot_cancel(r.core.slots, j[0].session->ticket);
            } else if (how == 2) {
                admit_preempt(r.m, r.m->running[0]);
            }
            run_all(&r);
            for (int i = 0; i < N; i++)
                check(&r, &j[i]);
            // The stem once; then each its own tokens and what the page or checkpoint border leaves.
            int once = STEM + 20, rest = k == 1 ? STEM - 2048 + 20 : STEM % KV_PAGE_TOKENS + 20;
            // What a leader computed since its last checkpoint is lost with it.
            assert_true(r.prefilled <= once + N * rest + (how > 0 && k == 1 ? 500 : 0));
            close_rig(&r);
        }
}

// Other salts never wait for each other, which would tell that someone has the same prompt.
static void test_no_following_across_salts(void **state)
{
    (void)state;
    struct rig r;
    struct job j[2] = {0};
    open_rig(&r, (struct fake_kind){0}, 100, 8, 400);
    submit(&r, &j[0], make_prompt(300, 1, 300, 0), 300, 1, 3, "a");
    submit(&r, &j[1], make_prompt(300, 1, 300, 0), 300, 1, 3, "b");
    while (!j[0].started || !j[1].started) {
        assert_true(!j[0].started || j[0].nids[0] == 0);
        step(&r);
    }
    run_all(&r);
    for (int i = 0; i < 2; i++)
        check(&r, &j[i]);
    assert_int_equal(r.prefilled, 600);
    close_rig(&r);
}

// ---- n

static void test_choices_share_the_prompt(void **state)
{
    (void)state;
    struct rig r;
    struct job j = {0}, k = {0};
    open_rig(&r, (struct fake_kind){0}, 8, 8, 512);
    submit(&r, &j, make_prompt(200, 1, 200, 0), 200, 3, 50, NULL);
    prefill_all(&r);
    assert_int_equal(r.m->nrunning, 1);
    assert_int_equal(atomic_load(&r.metrics.cow_copies), 2);
    assert_int_equal(kv_pool_free_pages(r.m->pool), 8 - 3 - 3);
    submit(&r, &k, make_prompt(100, 2, 100, 0), 100, 3, 5, NULL);  // 2 + 1 + 1 pages; one of them would not do
    step(&r);
    assert_int_equal(r.m->nrunning, 1);
    run_all(&r);
    check(&r, &j);
    check(&r, &k);
    assert_int_equal(atomic_load(&r.metrics.preemptions), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_preempted_at_each_token),
        cmocka_unit_test(test_preemption_is_cheap),
        cmocka_unit_test(test_who_is_preempted),
        cmocka_unit_test(test_second_turn),
        cmocka_unit_test(test_common_beginning_with_a_state),
        cmocka_unit_test(test_cancelled_work_is_kept),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_share_of_the_cache),
        cmocka_unit_test(test_share_with_many_salts),
        cmocka_unit_test(test_followers),
        cmocka_unit_test(test_no_following_across_salts),
        cmocka_unit_test(test_choices_share_the_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
