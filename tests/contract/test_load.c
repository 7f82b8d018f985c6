// The exactness rule under load, through the engine's door: 64 prompts get the same tokens and log-probabilities, bit for
// bit, alone with memory for all as amid random arrivals, callers that leave at random moments, prefix hits, evictions and
// preemptions, with a pool for a few of them. Which of these happened is counted, so that the test cannot pass without them;
// the first third of a wave begins together, so that they do on any machine.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <time.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/gate.h"
#include "tests/helpers/models.h"
#include "tests/helpers/prompts.h"

enum { PROMPTS = 64, LEAVERS = 32, OUT = 24, LONG = 420, WAVES = 2 };

struct setup {
    const char *model, *activations, *kv;
    size_t kv_bytes;   // of the pool under load
    int threads;       // under load
    bool cache;        // prefixes of this model are kept
};

static struct engine *open_engine(const struct setup *s, size_t kv_bytes, int threads)
{
    struct engine_config c = {.threads = threads, .kv_bytes = kv_bytes, .max_running = 12, .max_waiting = 128};
    struct model_config m = {.name = "m", .path = models_path(s->model), .activations = s->activations, .kv = s->kv};
    return engines_open(&c, &m);
}

// Arrivals in bunches and with pauses, in a random order of the prompts; between them callers that leave.
static void run_wave(struct engine *en, struct prompts *p, uint64_t wave)
{
    struct client stay[PROMPTS] = {0}, go[LEAVERS] = {0};
    int order[PROMPTS];
    for (int i = 0; i < PROMPTS; i++)
        order[i] = i;
    for (int i = PROMPTS - 1, j; i > 0; i--) {
        j = (int)(rng_u64(wave, 1, (uint64_t)i) % (uint64_t)(i + 1));
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    struct gate g;
    gate_close(&g, en, "m");
    for (int k = 0; k < PROMPTS; k++) {
        int i = order[k];
        if (k == PROMPTS / 3) {
            gate_prepared(en, "m");
            gate_open(&g);
        }
        prompts_submit(p, &stay[i], en, i, i % 5 ? NULL : "other");
        if (k % 2 == 0) {
            struct client *c = &go[k / 2];
            c->cancel_on = en;
            c->cancel_at = (int)(rng_u64(wave, 2, (uint64_t)k) % (OUT + 2));
            prompts_submit(p, c, en, 1000 + k, NULL);
        }
        if (rng_u64(wave, 3, (uint64_t)k) % 3 == 0)
            nanosleep(&(struct timespec){0, (long)(rng_u64(wave, 4, (uint64_t)k) % 3000000)}, NULL);
    }
    for (int i = 0; i < PROMPTS; i++)
        prompts_collect(p, &stay[i], i);
    for (int i = 0; i < LEAVERS; i++) {
        client_wait(&go[i]);
        assert_int_equal(go[i].ends, 1);
        assert_false(go[i].wrong);
        assert_true(go[i].error.code == ERR_OK || go[i].error.code == ERR_CANCELLED);
        client_done(&go[i]);
    }
}

static void assert_all_free(struct engine *en)
{
    struct engine_stats st;
    assert_true(engine_check(en, true));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used + st.kv_pages_cached, 0);
    assert_int_equal(st.running + st.waiting, 0);
}

static uint64_t preempted;  // of all runs

static void check(const struct setup *s)
{
    struct prompts alone, got;
    struct engine_stats st;
    char how[100];
    struct engine *en = open_engine(s, 64 << 20, 1);
    prompts_init_uneven(&alone, en, PROMPTS, OUT, LONG);
    prompts_init_uneven(&got, en, PROMPTS, OUT, LONG);
    prompts_alone(&alone, en, NULL);
    engine_close(en);

    en = open_engine(s, s->kv_bytes, s->threads);
    for (uint64_t wave = 0; wave < WAVES; wave++) {
        run_wave(en, &got, wave);
        snprintf(how, sizeof how, "%s, KV %s, wave %d", s->model, s->kv, (int)wave);
        prompts_same(how, &alone, &got);
    }
    engine_stats(en, &st);
    const struct metrics *m = engine_metrics(en, "m");
    printf("%s, KV %s, %zu pages: %d prompts, cancelled %d, preempted %d, tokens from the cache %d, evicted pages %d\n", s->model,
           s->kv, st.kv_pages, WAVES * PROMPTS, (int)st.cancelled, (int)st.preempted, (int)st.cached_tokens, (int)m->evictions);
    assert_true(st.cancelled > 0);
    assert_true(!s->cache || (st.cached_tokens > 0 && m->evictions > 0));
    preempted += st.preempted;
    assert_all_free(en);
    engine_close(en);
    prompts_done(&alone);
    prompts_done(&got);
}

static void test_dense(void **state)
{
    (void)state;
    check(&(struct setup){"llama-f32", "f32", "f32", 1000000, 2, true});
}

static void test_quantised(void **state)
{
    (void)state;
    check(&(struct setup){"gguf-llama-q4_k", "int8", "f16", 700000, 1, true});
    check(&(struct setup){"qwen3-f16", "int8", "q8", 400000, 1, true});
}

static void test_with_state(void **state)
{
    (void)state;
    check(&(struct setup){"qwen35-f32", "int8", "f16", 200000, 1, false});
    check(&(struct setup){"qwen35-f32", "int8", "f16", 2000000, 1, true});  // with memory for checkpoints
    assert_true(preempted > 0);  // seen: 11
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_with_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
