// Several models in one memory budget, through the engine's door: loaded when asked for, evicted for one another, pinned, unloaded
// when told to or idle, failing; with tasks waiting for them, cancelled meanwhile, and running while they should go. No
// answer changes by any of it.
//
// A gate is a task whose first event holds the scheduler's thread, so that its model stays in use for as long as a test
// wants; loading and waiting go on beside it.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/models.h"

enum { MODELS = 3, OUT = 12, PROMPT = 40, KV = 1 << 20 };

static const char *const names[MODELS] = {"a", "b", "c"};
static const char *const files[MODELS] = {"llama-f32", "qwen3-f16", "gguf-llama-q8_0"};

struct answer {
    int32_t ids[OUT];
    float logprobs[OUT];
};
static struct answer alone[MODELS];
static size_t largest;  // that one of them takes, served

static struct engine_config settings(size_t memory)
{
    return (struct engine_config){.threads = 1, .memory = memory, .kv_bytes = KV, .max_running = 4, .max_waiting = 64};
}

static void add(struct engine *en, int i, bool lazy, bool pinned)
{
    struct model_config m = {.name = names[i], .path = models_path(files[i]), .lazy = lazy, .pinned = pinned};
    err e = {0};
    if (engine_add_model(en, &m, &e))
        fail_msg("%s", e.text);
}

static struct model_event events[16];
static struct model_info event_infos[16];
static char rooms[16][8];
static atomic_int nevents;

// Behind atomic_store: who has seen the count may read the event.
static void note(void *arg, const struct model_event *ev)
{
    assert_ptr_equal(arg, events);
    int n = atomic_load(&nevents);
    assert_true(n < 16);
    events[n] = *ev;
    event_infos[n] = *ev->model;
    snprintf(rooms[n], sizeof rooms[n], "%s", ev->room_for ? ev->room_for : "");
    atomic_store(&nevents, n + 1);
}

static struct engine *open_engine(const struct engine_config *c, bool lazy)
{
    struct engine *en;
    err e = {0};
    if (engine_open(c, &en, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < MODELS; i++)
        add(en, i, lazy, false);
    return en;
}

// Room for any one of the three, never for two.
static struct engine *open_small(int load_timeout_s, int idle_unload_s)
{
    struct engine_config c = settings(largest + largest / 4);
    c.load_timeout_s = load_timeout_s;
    c.idle_unload_s = idle_unload_s;
    return open_engine(&c, true);
}

static struct task *make_task(int i)
{
    int32_t ids[PROMPT];
    for (int k = 0; k < PROMPT; k++)
        ids[k] = (int32_t)(rng_u64(3, (uint64_t)i, (uint64_t)k) % 250);
    struct task *t = client_task(names[i], ids, PROMPT);
    t->generate.max_tokens = OUT;
    t->generate.ignore_eos = true;
    t->generate.logprobs = 0;
    t->generate.sampling.seed = 11;
    return t;
}

static void submit(struct client *c, struct engine *en, int i)
{
    err e = {0};
    if (!client_submit(c, en, make_task(i), &e))
        fail_msg("model %s: %s", names[i], e.text);
}

static void collect(struct client *c, struct answer *ret)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
    assert_int_equal(c->ends, 1);
    assert_int_equal(c->starts, 1);
    assert_false(c->wrong);
    assert_int_equal(c->nids[0], OUT);
    memcpy(ret->ids, c->ids[0], sizeof ret->ids);
    memcpy(ret->logprobs, c->logprobs[0], sizeof ret->logprobs);
    client_done(c);
}

static void same(struct client *c, int i)
{
    struct answer got;
    collect(c, &got);
    assert_memory_equal(&got, &alone[i], sizeof got);
}

static void answers(struct engine *en, int i)
{
    struct client c = {0};
    submit(&c, en, i);
    same(&c, i);
}

// Ends with this error, and nothing was sent before.
static void ends(struct client *c, err_code code)
{
    client_wait(c);
    assert_int_equal(c->error.code, code);
    assert_int_equal(c->starts, 0);
    assert_int_equal(c->ends, 1);
    client_done(c);
}

static struct model_info info_of(struct engine *en, const char *name)
{
    struct model_info m;
    assert_true(engine_find_model(en, name, &m));
    return m;
}

static bool is(struct engine *en, int i, enum model_state state)
{
    return info_of(en, names[i]).state == state;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void becomes(struct engine *en, int i, enum model_state state)
{
    for (int k = 0; k < 3000 && !is(en, i, state); k++)
        sleep_ms(10);
    assert_int_equal(info_of(en, names[i]).state, state);
}

static void parked(struct engine *en, int i, int n)
{
    for (int k = 0; k < 3000 && info_of(en, names[i]).parked != n; k++)
        sleep_ms(10);
    assert_int_equal(info_of(en, names[i]).parked, n);
}

// Everything that is charged belongs to models that are there.
static void accounts_add_up(struct engine *en)
{
    struct engine_stats st;
    struct model_info infos[ENGINE_MODELS_MAX];
    size_t sum = 0;
    engine_stats(en, &st);
    int n = engine_models(en, infos, ENGINE_MODELS_MAX);
    for (int i = 0; i < n; i++)
        sum += infos[i].parent[0] ? 0 : infos[i].memory_bytes;
    size_t used = st.memory.weights + st.memory.kv + st.memory.step + st.memory.works;
    assert_int_equal(used, sum);
    assert_true(used <= st.memory.total);
}

static void close_engine(struct engine *en)
{
    struct engine_stats st;
    for (int k = 0; k < 1000; k++) {  // the last event comes a little before the last count
        engine_stats(en, &st);
        if (st.waiting + st.running == 0)
            break;
        sleep_ms(5);
    }
    assert_int_equal(st.waiting + st.running, 0);
    assert_true(engine_check(en, true));
    accounts_add_up(en);
    engine_close(en);
}

// ---- the gate

struct gate {
    atomic_int reached, open, ended;
    err error;
};

static void gate_event(struct task *t, const struct event *ev)
{
    struct gate *g = t->ud;
    if (ev->kind == EVENT_END) {
        g->error = ev->error;
        atomic_store(&g->ended, 1);
        return;
    }
    atomic_store(&g->reached, 1);
    while (!atomic_load(&g->open))
        sleep_ms(1);
}

static void gate_close(struct gate *g, struct engine *en, int i)
{
    struct task *t = make_task(i);
    struct ticket ticket;
    err e = {0};
    memset(g, 0, sizeof *g);
    t->on_event = gate_event;
    t->ud = g;
    if (engine_submit(en, t, &ticket, &e))
        fail_msg("%s", e.text);
    while (!atomic_load(&g->reached))
        sleep_ms(1);
}

static void gate_open(struct gate *g)
{
    atomic_store(&g->open, 1);
    while (!atomic_load(&g->ended))
        sleep_ms(1);
    assert_int_equal(g->error.code, ERR_OK);
}

// ---- tests

static int set_up(void **state)
{
    (void)state;
    struct engine_config c = settings(0);
    struct engine *en = open_engine(&c, false);
    err e = {0};
    for (int i = 0; i < MODELS; i++) {
        assert_int_equal(engine_wait_model(en, names[i], &e), ERR_OK);
        struct client cl = {0};
        submit(&cl, en, i);
        collect(&cl, &alone[i]);
    }
    engine_close(en);
    c.kv_bytes = KV * MODELS;  // each gets as much as when it is alone
    en = open_engine(&c, false);
    for (int i = 0; i < MODELS; i++) {
        assert_int_equal(engine_wait_model(en, names[i], &e), ERR_OK);
        struct model_info m = info_of(en, names[i]);
        assert_true(m.memory_bytes > m.kv_bytes + m.resident_bytes && m.kv_bytes && m.resident_bytes);
        largest = m.memory_bytes > largest ? m.memory_bytes : largest;
    }
    close_engine(en);
    return 0;
}

static void test_take_turns(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct engine_stats st;
    for (int k = 0; k < 9; k++) {
        answers(en, k % MODELS);
        accounts_add_up(en);
    }
    engine_stats(en, &st);
    assert_int_equal(st.model_loads, 9);
    assert_int_equal(st.model_evictions, 8);
    assert_int_equal(st.models_ready, 1);
    answers(en, 2);  // it is there
    engine_stats(en, &st);
    assert_int_equal(st.model_loads, 9);
    close_engine(en);
}

static void test_all_at_once(void **state)
{
    (void)state;
    enum { N = 30 };
    struct engine *en = open_small(0, 0);
    struct client c[N] = {0};
    struct engine_stats st;
    for (int k = 0; k < N; k++)
        submit(&c[k], en, (k * 7) % MODELS);
    for (int k = 0; k < N; k++)
        same(&c[k], (k * 7) % MODELS);
    engine_stats(en, &st);
    assert_true(st.model_loads >= MODELS);
    close_engine(en);
}

static void test_pinned_stays(void **state)
{
    (void)state;
    struct engine_config c = settings(largest + largest / 4);
    struct engine *en;
    err e = {0};
    assert_int_equal(engine_open(&c, &en, &e), ERR_OK);
    add(en, 0, false, true);
    add(en, 1, true, false);
    assert_int_equal(engine_wait_model(en, "a", &e), ERR_OK);
    struct client cl = {0};
    submit(&cl, en, 1);
    client_wait(&cl);
    assert_int_equal(cl.error.code, ERR_INTERNAL);
    assert_non_null(strstr(cl.error.text, "model 'b' could not be loaded: it needs "));
    assert_non_null(strstr(cl.error.text, "the setting 'memory' says how much"));
    client_done(&cl);
    assert_true(is(en, 0, MODEL_READY) && is(en, 1, MODEL_FAILED));
    assert_int_equal(engine_unload_model(en, "a", &e), ERR_INVALID);
    answers(en, 0);
    close_engine(en);
}

// Models that are loaded at the start must fit together: none goes for another.
static void test_eager_must_fit(void **state)
{
    (void)state;
    struct engine_config c = settings(largest + largest / 4);
    struct engine *en = open_engine(&c, false);
    err e = {0};
    assert_int_equal(engine_wait_model(en, "a", &e), ERR_OK);
    assert_int_equal(engine_wait_model(en, "b", &e), ERR_MEMORY);
    assert_string_equal(e.param, "memory");
    assert_int_equal(engine_wait_model(en, "c", &e), ERR_MEMORY);
    assert_true(is(en, 0, MODEL_READY));
    close_engine(en);
    c = settings(200 << 10);  // and each alone
    en = open_engine(&c, true);
    struct client cl = {0};
    submit(&cl, en, 0);
    ends(&cl, ERR_INTERNAL);
    close_engine(en);
}

// Of three that wait for a model one is cancelled: the others are served.
static void test_cancel_while_loading(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct gate g;
    struct client c[3] = {0};
    gate_close(&g, en, 0);
    for (int k = 0; k < 3; k++)
        submit(&c[k], en, 1);
    parked(en, 1, 3);
    becomes(en, 0, MODEL_UNLOADING);
    assert_true(is(en, 1, MODEL_LOADING));
    engine_cancel(en, c[0].ticket);
    engine_cancel(en, c[0].ticket);
    ends(&c[0], ERR_CANCELLED);
    parked(en, 1, 2);
    gate_open(&g);
    same(&c[1], 1);
    same(&c[2], 1);
    close_engine(en);
}

// All of them leave: the model that was to make room stays, who waited for that one goes on, and nothing is stuck.
static void test_all_leave(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct gate g;
    struct client c[2] = {0}, d = {0};
    gate_close(&g, en, 0);
    for (int k = 0; k < 2; k++)
        submit(&c[k], en, 1);
    becomes(en, 0, MODEL_UNLOADING);
    submit(&d, en, 0);
    parked(en, 0, 1);
    for (int k = 0; k < 2; k++) {
        engine_cancel(en, c[k].ticket);
        ends(&c[k], ERR_CANCELLED);
    }
    becomes(en, 1, MODEL_UNLOADED);
    becomes(en, 0, MODEL_READY);
    gate_open(&g);
    same(&d, 0);
    answers(en, 1);
    close_engine(en);
}

// Told to unload while tasks run: they finish; who comes meanwhile waits and is served by the model loaded again.
static void test_unload_while_running(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct gate g;
    struct client c[3] = {0};
    struct engine_stats st;
    err e = {0};
    gate_close(&g, en, 0);
    assert_int_equal(engine_unload_model(en, "a", &e), ERR_OK);
    assert_int_equal(engine_unload_model(en, "a", &e), ERR_OK);
    submit(&c[0], en, 0);
    submit(&c[1], en, 2);
    submit(&c[2], en, 0);
    assert_true(is(en, 0, MODEL_UNLOADING));
    gate_open(&g);
    same(&c[0], 0);
    same(&c[1], 2);
    same(&c[2], 0);
    engine_stats(en, &st);
    assert_true(st.model_unloads >= 2);
    assert_int_equal(engine_unload_model(en, "b", &e), ERR_OK);  // nothing to do
    assert_int_equal(engine_load_model(en, "b", &e), ERR_OK);
    assert_int_equal(engine_wait_model(en, "b", &e), ERR_OK);
    assert_true(is(en, 1, MODEL_READY));
    assert_int_equal(engine_unload_model(en, "b", &e), ERR_OK);
    assert_int_equal(engine_wait_model(en, "b", &e), ERR_OK);
    assert_true(is(en, 1, MODEL_UNLOADED));
    assert_int_equal(info_of(en, "b").memory_bytes, 0);
    assert_true(engine_model_known(&(struct model_info){.can = info_of(en, "b").can}));
    close_engine(en);
}

static void test_waits_are_bounded(void **state)
{
    (void)state;
    struct engine *en = open_small(1, 0);
    struct gate g;
    struct client c[3] = {0};
    err e = {0};
    gate_close(&g, en, 0);
    submit(&c[0], en, 1);
    struct task *t = make_task(1);
    t->deadline_ns = clock_ns() + 50000000;
    assert_true(client_submit(&c[1], en, t, &e));
    t = make_task(2);
    t->begin_deadline_ns = clock_ns() + 50000000;
    assert_true(client_submit(&c[2], en, t, &e));
    ends(&c[1], ERR_TIMEOUT);
    ends(&c[2], ERR_LATE);
    client_wait(&c[0]);
    assert_int_equal(c[0].error.retry_ms, 5000);
    ends(&c[0], ERR_LOADING);
    gate_open(&g);
    assert_int_equal(engine_load_model(en, "b", &e), ERR_OK);  // which no task waits for
    assert_int_equal(engine_wait_model(en, "b", &e), ERR_OK);
    answers(en, 1);
    close_engine(en);
}

static void test_idle(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 1);
    struct gate g;
    gate_close(&g, en, 0);
    sleep_ms(1300);
    assert_true(is(en, 0, MODEL_READY));  // not idle: a task has it
    gate_open(&g);
    becomes(en, 0, MODEL_UNLOADED);
    answers(en, 0);
    close_engine(en);
}

static void copy_file(const char *from, const char *to, size_t most)
{
    char *text;
    size_t len;
    err e = {0};
    if (file_read(from, 64 << 20, &text, &len, &e))
        fail_msg("%s", e.text);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    len = len < most ? len : most;
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    free(text);
}

// It fails, says so to all that waited and without its path; is not tried again at once; and works once its file is right.
static void test_failure(void **state)
{
    (void)state;
    char path[] = "/tmp/catalogXXXXXX", file[64];
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/model.gguf", path);
    copy_file(models_path(files[2]), file, 5000);
    struct engine_config c = settings(0);
    struct engine *en;
    err e = {0};
    assert_int_equal(engine_open(&c, &en, &e), ERR_OK);
    struct model_config m = {.name = "c", .path = file, .lazy = true};
    assert_int_equal(engine_add_model(en, &m, &e), ERR_OK);
    struct client cl = {0};
    int64_t begun_ns = clock_ns();
    submit(&cl, en, 2);
    client_wait(&cl);
    assert_non_null(strstr(cl.error.text, "model 'c' could not be loaded: "));
    assert_null(strstr(cl.error.text, path));
    ends(&cl, ERR_INTERNAL);
    assert_true(is(en, 2, MODEL_FAILED));
    copy_file(models_path(files[2]), file, SIZE_MAX);
    if (client_submit(&cl, en, make_task(2), &e)) {  // only when all that took longer than the back-off
        assert_true(clock_ns() - begun_ns > 1000000000);
        same(&cl, 2);
    } else {
        assert_int_equal(e.code, ERR_INTERNAL);
        assert_in_range(e.retry_ms, 1, 1000);
    }
    sleep_ms(1100);
    answers(en, 2);
    close_engine(en);
    unlink(file);
    rmdir(path);
}

static struct engine *open_told(size_t memory, int idle_unload_s)
{
    struct engine_config c = settings(memory);
    c.idle_unload_s = idle_unload_s;
    c.on_model = note;
    c.on_model_arg = events;
    atomic_store(&nevents, 0);
    return open_engine(&c, true);
}

static void told(int n, enum model_change change, enum model_reason reason, int i, const char *room_for)
{
    for (int k = 0; k < 3000 && atomic_load(&nevents) <= n; k++)
        sleep_ms(10);
    assert_true(atomic_load(&nevents) > n);
    assert_int_equal(events[n].change, change);
    assert_int_equal(events[n].reason, reason);
    assert_string_equal(event_infos[n].name, names[i]);
    assert_string_equal(rooms[n], room_for);
    assert_true(events[n].took_s >= 0 && events[n].idle_s >= 0);
    assert_int_equal(event_infos[n].memory_bytes > 0, change == MODEL_CAME || change == MODEL_WENT);
}

// Each coming and going is told once, in order, with its reason; before the first answer, so nothing is missed.
static void test_told(void **state)
{
    (void)state;
    struct engine *en = open_told(largest + largest / 4, 0);
    err e = {0};
    answers(en, 0);
    answers(en, 0);
    told(0, MODEL_CAME, FOR_TASK, 0, "");
    assert_int_equal(event_infos[0].state, MODEL_READY);
    assert_int_equal(event_infos[0].memory_bytes, info_of(en, "a").memory_bytes);
    assert_int_equal(engine_load_model(en, "b", &e), ERR_OK);
    told(1, MODEL_WENT, FOR_ROOM, 0, "b");
    assert_int_equal(event_infos[1].state, MODEL_UNLOADED);
    assert_int_equal(event_infos[1].memory_bytes, event_infos[0].memory_bytes);
    told(2, MODEL_CAME, FOR_CALLER, 1, "");
    close_engine(en);
    assert_int_equal(atomic_load(&nevents), 3);

    en = open_told(largest, 1);
    assert_int_equal(engine_load_model(en, "b", &e), ERR_OK);
    told(1, MODEL_WENT, FOR_IDLENESS, 1, "");
    assert_true(events[1].idle_s >= 1);
    close_engine(en);
    assert_int_equal(atomic_load(&nevents), 2);

    en = open_told(largest + largest / 4, 0);
    struct gate g;
    struct client c = {0};
    gate_close(&g, en, 0);
    submit(&c, en, 1);
    becomes(en, 0, MODEL_UNLOADING);
    engine_cancel(en, c.ticket);
    ends(&c, ERR_CANCELLED);
    told(1, MODEL_DROPPED, FOR_TASK, 1, "");
    becomes(en, 0, MODEL_READY);
    assert_int_equal(engine_unload_model(en, "a", &e), ERR_OK);
    gate_open(&g);
    told(2, MODEL_WENT, FOR_CALLER, 0, "");
    close_engine(en);

    en = open_told(10000, 0);
    submit(&c, en, 0);
    client_wait(&c);
    told(0, MODEL_BROKE, FOR_TASK, 0, "");
    assert_int_equal(event_infos[0].error.code, ERR_MEMORY);
    assert_in_range(events[0].retry_ms, 1, 1000);
    ends(&c, ERR_INTERNAL);
    close_engine(en);
}

// What a task asks for is checked when the model is there.
static void test_check_after_loading(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct task *t = make_task(0);
    struct client c = {0};
    err e = {0};
    t->generate.n = 100;
    assert_true(client_submit(&c, en, t, &e));
    client_wait(&c);
    assert_string_equal(c.error.param, "n");
    ends(&c, ERR_INVALID);
    answers(en, 0);
    close_engine(en);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const strange[] = {"../../etc/hostname", "/etc/passwd", "a/../../b", "..%2f..%2fx", "", "a "};
    struct engine *en = open_small(0, 0);
    struct model_info infos[ENGINE_MODELS_MAX];
    err e = {0};
    assert_int_equal(engine_add_alias(en, "gpt-4o", "b", &e), ERR_OK);
    assert_int_equal(engine_add_alias(en, "gpt-4o", "a", &e), ERR_INVALID);
    assert_int_equal(engine_add_alias(en, "a", "b", &e), ERR_INVALID);
    assert_int_equal(engine_add_alias(en, "x", "none", &e), ERR_NOT_FOUND);
    struct task *t = make_task(1);
    struct client c = {0};
    t->model = "gpt-4o";
    assert_true(client_submit(&c, en, t, &e));
    same(&c, 1);
    assert_int_equal(engine_models(en, infos, ENGINE_MODELS_MAX), 4);
    assert_string_equal(infos[3].name, "gpt-4o");
    assert_string_equal(infos[3].parent, "b");
    assert_int_equal(infos[3].state, MODEL_READY);
    assert_string_equal(infos[1].parent, "");
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        t = make_task(0);
        t->model = strange[i];
        assert_false(client_submit(&c, en, t, &e));
        assert_int_equal(e.code, ERR_NOT_FOUND);
        assert_int_equal(engine_load_model(en, strange[i], &e), ERR_NOT_FOUND);
        assert_int_equal(engine_unload_model(en, strange[i], &e), ERR_NOT_FOUND);
        assert_false(engine_find_model(en, strange[i], &infos[0]));
    }
    close_engine(en);
}

static void test_close_ends_waiting(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    struct gate g;
    struct client c = {0};
    err e = {0};
    gate_close(&g, en, 0);
    submit(&c, en, 1);
    parked(en, 1, 1);
    engine_drain(en);
    struct task *t = make_task(0);
    struct client late = {0};
    assert_false(client_submit(&late, en, t, &e));
    assert_int_equal(e.code, ERR_DRAINING);
    assert_int_equal(engine_wait_model(en, "b", &e), ERR_DRAINING);
    atomic_store(&g.open, 1);
    engine_close(en);  // what it can still serve meanwhile it may
    client_wait(&c);
    assert_true(c.error.code == ERR_OK || c.error.code == ERR_DRAINING);
    assert_int_equal(c.ends, 1);
    client_done(&c);
}

// Recurrent states and works are charged when a task begins; without any memory to spare one runs at a time, in the
// model's reserve.
static const char *const spare_names[] = {"state", "work"};
static const char *const spare_files[] = {"tests/fixtures/models/gguf-qwen35-q8_0/model.gguf", "tests/fixtures/embed/tiny"};

static struct engine *open_spare(int i, size_t memory)
{
    struct engine_config c = settings(memory);
    struct model_config m = {.name = spare_names[i], .path = spare_files[i]};
    return engines_open(&c, &m);
}

static struct task *spare_task(int i)
{
    static const struct embed_input input = {.text = "one river and a stone", .len = 21};
    struct task *t = i ? task_new(TASK_EMBED) : make_task(0);
    t->model = spare_names[i];
    if (i) {
        t->embed.inputs = &input;
        t->embed.ninputs = 1;
    }
    return t;
}

static void test_no_memory_to_spare(void **state)
{
    (void)state;
    enum { N = 6 };
    for (int i = 0; i < 2; i++) {
        struct engine *en = open_spare(i, 0);
        struct client want = {0}, c[N] = {0};
        err e = {0};
        assert_true(client_submit(&want, en, spare_task(i), &e));
        client_wait(&want);
        assert_int_equal(want.error.code, ERR_OK);
        size_t memory = info_of(en, spare_names[i]).memory_bytes;
        engine_close(en);
        en = open_spare(i, memory + 12000);
        for (int k = 0; k < N; k++)
            assert_true(client_submit(&c[k], en, spare_task(i), &e));
        for (int k = 0; k < N; k++) {
            client_wait(&c[k]);
            assert_int_equal(c[k].error.code, ERR_OK);
            assert_int_equal(c[k].nids[0], want.nids[0]);
            assert_int_equal(c[k].blob.len, want.blob.len);
            if (i)
                assert_memory_equal(c[k].blob.data, want.blob.data, want.blob.len);
            else
                assert_memory_equal(c[k].ids[0], want.ids[0], OUT * sizeof(int32_t));
            client_done(&c[k]);
        }
        client_done(&want);
        if (i == 0) {  // more states than there is memory for: an answer, and not a wait for ever
            struct task *t = spare_task(0);
            t->generate.n = 4;
            assert_true(client_submit(&want, en, t, &e));
            client_wait(&want);
            assert_string_equal(want.error.param, "memory");
            ends(&want, ERR_MEMORY);
        }
        close_engine(en);
    }
}

// The engine's own model cannot be opened again: it stays, and its memory does not count.
static void test_given_model(void **state)
{
    (void)state;
    struct engine *en = open_small(0, 0);
    err e = {0};
    assert_int_equal(engine_add_open_model(en, "fake", fake_model(64), &e), ERR_OK);
    assert_int_equal(engine_wait_model(en, "fake", &e), ERR_OK);
    assert_int_equal(engine_unload_model(en, "fake", &e), ERR_INVALID);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_turns),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_pinned_stays),
        cmocka_unit_test(test_eager_must_fit),
        cmocka_unit_test(test_cancel_while_loading),
        cmocka_unit_test(test_all_leave),
        cmocka_unit_test(test_unload_while_running),
        cmocka_unit_test(test_waits_are_bounded),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_check_after_loading),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_close_ends_waiting),
        cmocka_unit_test(test_no_memory_to_spare),
        cmocka_unit_test(test_given_model),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
