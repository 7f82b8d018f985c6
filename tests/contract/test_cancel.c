// Cancel everywhere, through the engine's door: whatever a task is doing (waiting for a thread that prepares it, being
// prepared, queued, prefilling, decoding, in a work's step, in a round of one), a cancel, a passed deadline and the
// engine's end give its slot and its pages back within a step, and end it once. The table of it is printed. And ten
// thousand random cancels leave nothing.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
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
#include "tests/helpers/fake_tokenizer.h"
#include "tests/helpers/machine.h"

enum { CONTEXT = 512, LONG_TEXT = 24 << 20, PAGE_BYTES = 2 * 2 * 2 * 64 * 8, ROUNDS = 5, PREPARERS = 2 };
static const double step_s = 0.02;  // of the fake model, while its delay is on

static double slow(void)
{
    return getenv("SANITIZER") ? 20 : 1;
}

static struct engine *open_engine(struct model **ret_model, int threads, int pages, int running)
{
    struct engine_config c = {.threads = threads, .prefill_chunk = 8, .kv_bytes = (size_t)pages * PAGE_BYTES,
                              .max_running = running, .max_waiting = 60, .isa = "scalar"};
    struct model *m = *ret_model = fake_model(CONTEXT);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "m", m);
}

static void assert_nothing_left(struct engine *en, int slots)
{
    struct engine_stats st;
    assert_true(engine_check(en, true));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.kv_pages_cached, 0);
    assert_int_equal(st.running, 0);
    assert_int_equal(st.waiting, 0);
    assert_int_equal(st.free_slots, slots);
    assert_int_equal(fake_works_alive(), 0);
}

static void submit(struct client *c, struct engine *en, struct task *t)
{
    t->model = "m";
    client_must_submit(c, en, t);
}

// ---- the tasks; each stays in one state for long

static const char *long_text(void)
{
    static char *text;
    if (!text) {
        text = malloc(LONG_TEXT);
        for (int i = 0; i < LONG_TEXT; i++)
            text[i] = i % 6 == 5 ? ' ' : (char)('a' + (i * 7 + i / 6) % 26);
    }
    return text;
}

static struct task *to_tokenize(void)
{
    struct task *t = task_new(TASK_TOKENIZE);
    t->tokenize.prompt.text = long_text();
    t->tokenize.prompt.text_len = LONG_TEXT;
    return t;
}

static struct task *to_generate(int nprompt, int max_tokens)
{
    int32_t ids[CONTEXT];
    for (int i = 0; i < nprompt; i++)
        ids[i] = i % FAKE_VOCAB;
    struct task *t = client_task("m", ids, nprompt);
    t->generate.max_tokens = max_tokens;
    t->generate.ignore_eos = true;
    return t;
}

static struct task *to_embed(void)
{
    struct task *t = task_new(TASK_EMBED);
    struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
    *in = (struct embed_input){.text = long_text(), .len = LONG_TEXT};
    t->embed.inputs = in;
    t->embed.ninputs = 1;
    return t;
}

static struct task *to_speak(void)
{
    struct task *t = task_new(TASK_SPEAK);
    char *text = arena_alloc(&t->arena, 4000);
    for (int i = 0; i < 3999; i++)
        text[i] = i % 2 ? ' ' : 'a';
    t->speak.text = text;
    t->speak.len = 3999;
    return t;
}

// ---- the states

enum state { IN_LINE, PREPARING, QUEUED, PREFILL, DECODE, WORK, ROUND, STATES };
static const char *const state_names[] = {"in line", "preparing", "queued", "prefilling", "decoding", "work step", "round"};
enum way { CANCEL, DEADLINE, CLOSE, WAYS };
static const char *const way_names[] = {"cancel", "deadline", "shutdown"};

struct scene {
    struct engine *en;
    struct model *model;
    struct client others[PREPARERS];
    int nothers;
    struct client c;
};

static void wait_running(const struct scene *s, int n)
{
    struct engine_stats st;
    for (int i = 0; i < 20000; i++) {
        engine_stats(s->en, &st);
        if (st.running >= n || atomic_load(&s->c.done))  // on a busy machine a deadline may have passed
            return;
        usleep(500);
    }
    fail_msg("%d tasks are running, expected %d", st.running, n);
}

static void add_other(struct scene *s, struct task *t)
{
    submit(&s->others[s->nothers++], s->en, t);
}

static struct task *task_of(enum state state)
{
    return state == IN_LINE || state == QUEUED || state == DECODE ? to_generate(1, 500)
         : state == PREPARING ? to_tokenize() : state == PREFILL ? to_generate(500, 5) : state == WORK ? to_embed() : to_speak();
}

// Brings a task into the state; returns its deadline, so far ahead; 0: none.
static int64_t set(struct scene *s, enum state state, double deadline_s)
{
    s->en = open_engine(&s->model, 1, 40, state == QUEUED ? 1 : 4);
    fake_model_set_delay(s->model, (int64_t)(step_s * 1e9) / (state == PREFILL || state == ROUND ? 8 : 1));
    if (state == QUEUED)
        add_other(s, to_generate(1, 500));
    if (state == QUEUED)
        wait_running(s, 1);
    for (int i = 0; i < PREPARERS && state == IN_LINE; i++)
        add_other(s, to_tokenize());
    struct task *t = task_of(state);
    int64_t deadline_ns = deadline_s > 0 ? clock_ns() + (int64_t)(deadline_s * 1e9) : 0;
    t->deadline_ns = deadline_ns;
    s->c.counter = &engine_metrics(s->en, "m")->steps;
    submit(&s->c, s->en, t);
    if (state >= PREFILL)
        wait_running(s, 1);
    else
        usleep(3000);
    return deadline_ns;
}

static bool any_over(const struct scene *s)
{
    bool over = atomic_load(&s->c.done);
    for (int i = 0; i < s->nothers; i++)
        over |= atomic_load(&s->others[i].done);
    return over;
}

// Nobody else was hurt: they run until they are cancelled here, or were done by themselves. Returns how many were cancelled.
static int end_others(struct scene *s)
{
    int cancelled = 0;
    for (int i = 0; i < s->nothers; i++) {
        bool over = atomic_load(&s->others[i].done);
        engine_cancel(s->en, s->others[i].ticket);
        client_wait(&s->others[i]);
        err_code code = s->others[i].error.code;
        assert_int_equal(s->others[i].ends, 1);
        assert_true(code == ERR_OK || (code == ERR_CANCELLED && !over));
        cancelled += code == ERR_CANCELLED;
        client_done(&s->others[i]);
    }
    return cancelled;
}

struct cell {
    double took_s[ROUNDS], waited_s[ROUNDS];  // waited: what the machine kept our threads from running meanwhile
    uint64_t most_steps;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void leave_scene(struct scene *s)
{
    for (int i = 0; i < s->nothers; i++)
        engine_cancel(s->en, s->others[i].ticket);
    engine_close(s->en);
    for (int i = 0; i < s->nothers; i++)
        client_done(&s->others[i]);
    client_done(&s->c);
}

// False: something was over before it could leave, on a machine that is busy with other things.
static bool leave(enum state state, enum way way, int round, struct cell *cell)
{
    static const err_code codes[] = {ERR_CANCELLED, ERR_TIMEOUT, ERR_DRAINING};
    struct scene s = {0};
    int64_t deadline_ns = set(&s, state, way == DEADLINE ? (slow() > 1 ? 0.2 : 0.1) : 0);
    double waited_s = machine_waited_s();
    if (way != DEADLINE && any_over(&s)) {
        leave_scene(&s);
        return false;
    }
    while (way == DEADLINE && clock_ns() < deadline_ns)
        usleep(500);
    int64_t start = way == DEADLINE ? deadline_ns : clock_ns();
    if (way == CANCEL)
        engine_cancel(s.en, s.c.ticket);
    uint64_t steps = atomic_load(s.c.counter);
    if (way == CLOSE)
        engine_close(s.en);
    client_wait(&s.c);
    cell->took_s[round] = (double)(clock_ns() - start) * 1e-9;
    cell->waited_s[round] = way == CLOSE ? 0 : machine_waited_s() - waited_s;  // its threads have ended
    assert_int_equal(s.c.ends, 1);
    assert_int_equal(s.c.error.code, codes[way]);
    assert_false(s.c.wrong);
    uint64_t more = s.c.counted > steps ? s.c.counted - steps : 0;
    cell->most_steps = more > cell->most_steps ? more : cell->most_steps;
    if (way == CLOSE) {
        for (int i = 0; i < s.nothers; i++) {
            assert_int_equal(s.others[i].error.code, ERR_DRAINING);
            client_done(&s.others[i]);
        }
    } else {
        assert_true(engine_check(s.en, false));
        end_others(&s);
        assert_nothing_left(s.en, 60 + (state == QUEUED ? 1 : 4));
        engine_close(s.en);
    }
    client_done(&s.c);
    return true;
}

static void print_cell(const struct cell *c)
{
    double took_s[ROUNDS];
    memcpy(took_s, c->took_s, sizeof took_s);
    qsort(took_s, ROUNDS, sizeof *took_s, by_size);
    printf(" %8.1f %8.1f / %-2llu", took_s[ROUNDS / 2] * 1e3, took_s[ROUNDS - 1] * 1e3, (unsigned long long)c->most_steps);
}

// Seen: 0.1 to 96 ms, where a step has 20 ms, and no step or one. A shutdown also waits for the threads, and what the machine
// kept them waiting is not known when they have ended.
static void check_cell(const struct cell *c, enum state state, enum way way)
{
    double most_s = way == CLOSE ? 3 : 0.15 + step_s;
    for (int i = 0; i < ROUNDS; i++)
        assert_true(c->took_s[i] - c->waited_s[i] < most_s * slow());
    // The step that ran when it was cancelled; a work's steps are of microseconds.
    assert_true(state == WORK || way == CLOSE || c->most_steps <= 1);
}

static void test_table(void **unused)
{
    (void)unused;
    printf("%-11s %22s %22s %22s   (ms until slot and pages were free: middle, most / most steps)\n", "", way_names[0], way_names[1],
           way_names[2]);
    for (int state = 0; state < STATES; state++) {
        struct cell cells[WAYS] = {0};
        for (int way = 0; way < WAYS; way++)
            for (int i = 0, tries = 0; i < ROUNDS; tries++) {
                assert_true(tries < 4 * ROUNDS);
                i += leave((enum state)state, (enum way)way, i, &cells[way]);
            }
        printf("%-11s", state_names[state]);
        for (int way = 0; way < WAYS; way++)
            print_cell(&cells[way]);
        printf("\n");
        fflush(stdout);
        for (int way = 0; way < WAYS; way++)
            check_cell(&cells[way], (enum state)state, (enum way)way);
    }
}

static int count(const struct hist *h)
{
    uint64_t n = 0;
    for (int i = 0; i <= HIST_BUCKETS; i++)
        n += atomic_load(&h->counts[i]);
    return (int)n;
}

// A model's own numbers know of every cancel, wherever it found the task.
static void test_counted(void **unused)
{
    (void)unused;
    for (int state = 0; state < STATES; state++) {
        struct scene s = {0};
        set(&s, (enum state)state, 0);
        engine_cancel(s.en, s.c.ticket);
        client_wait(&s.c);
        int cancelled = s.c.error.code == ERR_CANCELLED;  // a busy machine may be too late
        struct engine_stats st;
        engine_stats(s.en, &st);
        assert_int_equal(st.cancelled, cancelled);
        cancelled += end_others(&s);
        const struct metrics *m = engine_metrics(s.en, "m");
        assert_int_equal(count(&m->cancel_to_free_s), cancelled);
        client_done(&s.c);
        engine_close(s.en);
    }
}

// ---- random cancels

static struct task *random_task(uint64_t r)
{
    static const char *const texts[] = {"a", "abc abc the cab", "b c a. 123, the end", "zzzz"};
    const char *text = texts[(r >> 8) % 4];
    struct task *t;
    switch (r % 8) {
    case 0:
        t = task_new(TASK_EMBED);
        struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
        *in = (struct embed_input){.text = text, .len = strlen(text)};
        t->embed.inputs = in;
        t->embed.ninputs = 1;
        return t;
    case 1:
        t = task_new(TASK_SPEAK);
        t->speak.text = text;
        t->speak.len = strlen(text);
        return t;
    case 2:
        t = task_new(TASK_TOKENIZE);
        t->tokenize.prompt.text = long_text();
        t->tokenize.prompt.text_len = (r >> 16) % 4096;
        return t;
    default:
        t = to_generate(1 + (int)((r >> 16) % 150), (int)((r >> 32) % 12) + ((r >> 40) % 16 ? 0 : 200));
        t->generate.n = (r >> 48) % 5 ? 1 : 3;
        t->generate.logprobs = (r >> 52) % 4 ? -1 : 2;
        if ((r >> 56) % 16 == 0)
            t->deadline_ns = clock_ns() + (int64_t)((r >> 20) % 3) * 500000;
        return t;
    }
}

static void finish_client(struct client *c, uint64_t *outcomes)
{
    client_wait(c);
    assert_int_equal(c->ends, 1);
    assert_false(c->wrong);
    err_code code = c->error.code;
    if (code && code != ERR_CANCELLED && code != ERR_TIMEOUT)
        fail_msg("%s", c->error.text);
    outcomes[code]++;
    client_done(c);
}

static void test_random_cancels(void **unused)
{
    (void)unused;
    enum { ALIVE = 32 };
    const int tasks = getenv("SANITIZER") ? 2000 : 20000;
    struct model *m;
    struct engine *en = open_engine(&m, 2, 24, 8);
    struct client c[ALIVE] = {0};
    struct ticket stale = {0};
    uint64_t outcomes[ERR_INTERNAL + 1] = {0};
    for (int i = 0; i < tasks; i++) {
        uint64_t r = rng_u64(6, (uint64_t)i, 0), how = rng_u64(6, (uint64_t)i, 1);
        struct client *mine = &c[i % ALIVE];
        if (i >= ALIVE) {
            stale = mine->ticket;
            engine_cancel(en, mine->ticket);
            finish_client(mine, outcomes);
        }
        if (how % 3 == 0) {
            mine->cancel_on = en;
            mine->cancel_at = (int)((how >> 8) % 12);
        }
        submit(mine, en, random_task(r));
        if (how % 3 == 1)
            engine_cancel(en, mine->ticket);
        engine_cancel(en, c[(how >> 16) % ALIVE].ticket);  // maybe done, maybe never begun
        engine_cancel(en, stale);
        if ((how >> 24) % 512 == 0)
            assert_true(engine_check(en, (how >> 40) % 2));
    }
    for (int i = 0; i < ALIVE; i++)
        finish_client(&c[i], outcomes);
    assert_nothing_left(en, 68);
    printf("%d tasks: %llu cancelled, %llu late, %llu done\n", tasks, (unsigned long long)outcomes[ERR_CANCELLED],
           (unsigned long long)outcomes[ERR_TIMEOUT], (unsigned long long)outcomes[ERR_OK]);
    assert_true(outcomes[ERR_CANCELLED] >= (uint64_t)tasks / 2);
    assert_true(outcomes[ERR_OK] > 0);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_counted), cmocka_unit_test(test_random_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
