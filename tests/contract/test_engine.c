// The exactness rule through the engine's door, on the tiny committed models: 20 prompts one after the other give the same
// tokens and the same log-probabilities, bit for bit, as amid 8 others, at 1 and 2 threads, with any prefill chunk, and
// with the prefix cache cold and warm; and a cancel at any moment leaves nothing behind.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/models.h"
#include "tests/helpers/prompts.h"

enum { PROMPTS = 20, OTHERS = 8, OUT = 16 };

struct setup {
    const char *model, *activations;
    int threads, chunk;
    size_t kv_bytes;
    int cached;  // tokens the second round finds at least
};

static struct engine *open_engine(const struct setup *s)
{
    struct engine_config c = {.threads = s->threads, .prefill_chunk = s->chunk,
                              .kv_bytes = s->kv_bytes ? s->kv_bytes : 64 << 20, .max_running = 12, .max_waiting = 64};
    struct model_config m = {.name = "m", .path = models_path(s->model), .activations = s->activations};
    return engines_open(&c, &m);
}

static void run_amid_others(struct engine *en, struct prompts *p)
{
    struct client others[OTHERS] = {0}, c[PROMPTS] = {0};
    for (int i = 0; i < OTHERS; i++)
        prompts_submit(p, &others[i], en, 100 + i, NULL);
    for (int i = 0; i < PROMPTS; i++)
        prompts_submit(p, &c[i], en, i, i % 3 ? NULL : "crowd");
    for (int i = 0; i < PROMPTS; i++)
        prompts_collect(p, &c[i], i);
    for (int i = 0; i < OTHERS; i++)
        prompts_collect(p, &others[i], -1);
}

static void same(const struct setup *s, const char *how, const struct prompts *want, const struct prompts *got)
{
    char text[200];
    snprintf(text, sizeof text, "%s, %s, %d threads, chunk %d, %s", s->model, s->activations, s->threads, s->chunk, how);
    prompts_same(text, want, got);
}

static void assert_all_free(struct engine *en)
{
    struct engine_stats st;
    assert_true(engine_check(en, true));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.kv_pages_cached, 0);
    assert_int_equal(st.running + st.waiting, 0);
}

// first has no ids yet: this is the first run, whose answers become it.
static void check(struct setup s, struct prompts *first)
{
    struct prompts got;
    struct engine *en = open_engine(&s);
    prompts_init(&got, en, PROMPTS, OUT);
    prompts_alone(&got, en, NULL);
    if (!first->ids) {
        *first = got;
        prompts_init(&got, en, PROMPTS, OUT);
    } else {
        same(&s, "alone, cold cache", first, &got);
    }
    int cached = prompts_alone(&got, en, NULL);
    assert_true(cached >= s.cached);
    same(&s, "alone, warm cache", first, &got);
    run_amid_others(en, &got);
    same(&s, "amid others, warm cache", first, &got);
    assert_all_free(en);
    run_amid_others(en, &got);
    same(&s, "amid others, cold cache", first, &got);
    assert_all_free(en);
    prompts_done(&got);
    engine_close(en);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const struct { const char *name, *activations; int cached, small; } models[] = {
        {"llama-f32", "f32", 2000, 500}, {"qwen3-f16", "int8", 2000, 500}, {"gguf-llama-q4_k", "int8", 2000, 500},
        {"qwen35-f32", "int8", 384, 0}, {"mistral-bf16", "f32", 2000, 500},  // page borders; a window of 20 tokens
        {"mistral-bf16", "bf16", 2000, 500}};
    static const int chunks[] = {1, 7, 64, 512};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct prompts first = {0};
        for (int threads = 1; threads <= 2; threads++)
            for (int c = 0; c < 4; c++)
                // Every chunk and team size, not every pair, for the others; two pairs of the slowest and under a sanitizer.
                if (m > 2 || getenv("SANITIZER") ? c == threads : m == 0 || c % 2 == threads % 2)
                    check((struct setup){models[m].name, models[m].activations, threads, chunks[c], 0, models[m].cached}, &first);
        // So little memory that most wait for pages.
        check((struct setup){models[m].name, models[m].activations, 2, 0, 300000, models[m].small}, &first);
        prompts_done(&first);
    }
}

// Greedy tokens of the reference (tests/reference/make_models.py), through the whole engine.
static void test_reference_tokens(void **state)
{
    (void)state;
    struct setup s = {"llama-f32", "f32", 2, 0, 0, 0};
    struct engine *en = open_engine(&s);
    struct models_expected x;
    models_load(s.model, &x);
    for (int i = 0; i < x.ncases; i++) {
        struct client c = {0};
        struct task *t = client_task("m", x.cases[i].ids, x.cases[i].nids);
        t->generate.max_tokens = MODELS_GREEDY;
        t->generate.sampling.temperature = 0;
        t->generate.logprobs = 0;
        t->generate.ignore_eos = true;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.nids[0], MODELS_GREEDY);
        assert_memory_equal(c.ids[0], x.cases[i].greedy, sizeof x.cases[i].greedy);
        client_done(&c);
    }
    models_free(&x);
    engine_close(en);
}

// Choice i is a function of (seed, i): the same every time, and choice 0 the same as without the others.
static void check_choices(struct setup s)
{
    struct engine *en = open_engine(&s);
    struct prompts p;
    int32_t ids[PROMPTS_LONGEST], first[4][OUT];
    prompts_init(&p, en, 0, OUT);
    int n = prompts_make(ids, 5, p.vocab);
    for (int round = 0; round < 3; round++) {
        struct client c = {0};
        struct task *t = client_task("m", ids, n);
        t->generate.n = round == 2 ? 1 : 4;
        t->generate.max_tokens = OUT;
        t->generate.ignore_eos = true;
        t->generate.logprobs = 0;
        t->generate.sampling.seed = 9;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        for (int k = 0; k < (round == 2 ? 1 : 4); k++) {
            assert_int_equal(c.nids[k], OUT);
            if (round == 0)
                memcpy(first[k], c.ids[k], sizeof first[k]);
            assert_memory_equal(first[k], c.ids[k], sizeof first[k]);
        }
        assert_int_equal(c.usage.prompt_tokens, n);
        client_done(&c);
    }
    assert_true(memcmp(first[0], first[1], sizeof first[0]) != 0);
    assert_all_free(en);
    prompts_done(&p);
    engine_close(en);
}

static void test_choices(void **state)
{
    (void)state;
    check_choices((struct setup){"qwen3-f16", "int8", 2, 7, 0, 0});
    check_choices((struct setup){"qwen35-f32", "int8", 2, 7, 0, 0});
}

static void test_cancel_at_every_step(void **state)
{
    (void)state;
    struct setup s = {"gguf-llama-q4_k", "int8", 2, 7, 0, 0};
    struct engine *en = open_engine(&s);
    struct prompts p;
    prompts_init(&p, en, 0, OUT);
    for (int at = 0; at < OUT + 4; at++) {
        struct client other = {0}, c = {.cancel_on = en, .cancel_at = at};
        prompts_submit(&p, &other, en, 3, NULL);
        prompts_submit(&p, &c, en, 4, NULL);
        client_wait(&c);
        client_wait(&other);
        assert_int_equal(c.ends, 1);
        assert_int_equal(other.error.code, ERR_OK);
        client_done(&c);
        client_done(&other);
        assert_all_free(en);
    }
    prompts_done(&p);
    engine_close(en);
}

static void test_missing_model(void **state)
{
    (void)state;
    struct engine_config c = {.threads = 1, .kv_bytes = 1 << 20};
    struct model_config m = {.name = "m", .path = "tests/fixtures/models/none"};
    struct engine *en;
    err e = {0};
    assert_int_equal(engine_open(&c, &en, &e), ERR_OK);
    assert_int_equal(engine_add_model(en, &m, &e), ERR_OK);
    assert_int_equal(engine_wait_model(en, "m", &e), ERR_NOT_FOUND);
    assert_int_equal(engine_add_model(en, &m, &e), ERR_INVALID);  // the name is taken
    struct task *t = client_task("m", (int32_t[]){1}, 1);
    struct ticket ticket;
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.text, "could not be loaded"));
    assert_null(strstr(e.text, m.path));  // clients do not learn where files lie
    task_free(t);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_tokens),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_cancel_at_every_step),
        cmocka_unit_test(test_missing_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
