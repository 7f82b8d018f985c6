// What vLLM and llama-server take beside OpenAI's fields, through the engine: log-probabilities of the prompt, words and tokens
// that may not come or end an answer, what of the end is shown, samplers with a history under load.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/gate.h"
#include "tests/helpers/fake_tokenizer.h"

enum { CONTEXT = 1024, PAGE_BYTES = 2 * 2 * 2 * 64 * 8 };

static struct engine *open_engine(size_t kv_bytes)
{
    struct engine_config c = {.threads = 1, .kv_bytes = kv_bytes, .max_running = 8, .max_waiting = 40, .isa = "scalar"};
    struct model *m = fake_model(CONTEXT);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "fake", m);
}

static struct task *task_of(int salt, int nprompt, int max_tokens)
{
    int32_t prompt[200];
    for (int i = 0; i < nprompt; i++)
        prompt[i] = (i * 7 + salt * (i + 3)) % (FAKE_VOCAB - 1);
    struct task *t = client_task("fake", prompt, nprompt);
    t->generate.max_tokens = max_tokens;
    t->generate.sampling.seed = (uint64_t)salt;
    return t;
}

static void run(struct engine *en, struct task *t, struct client *c)
{
    client_must_submit(c, en, t);
    client_wait(c);
    assert_false(c->wrong);
}

static const char *text_of(const struct client *c)
{
    return c->text[0].data ? c->text[0].data : "";
}

// Every token but the first, by its rank, however much of the prompt is cached.
static void test_prompt_logprobs(void **state)
{
    (void)state;
    struct engine *en = open_engine(1 << 20);
    for (int round = 0; round < 3; round++) {
        struct client c = {0};
        struct task *t = task_of(5, 150, 3);
        int32_t ids[150];
        memcpy(ids, t->generate.prompt.ids, sizeof ids);
        t->generate.prompt_logprobs = round;
        t->generate.logprobs = round - 1;
        t->generate.echo = round == 1;
        t->generate.n = 1 + round;
        run(en, t, &c);
        assert_int_equal(c.nprompt, 150);
        assert_int_equal(c.prompt[0].rank, 0);
        for (int i = 1; i < 150; i++) {
            float x[FAKE_VOCAB];
            double sum = 0;
            int rank = 1, first = 0;
            fake_logits(ids, i, x);
            for (int k = 0; k < FAKE_VOCAB; k++) {
                sum += exp((double)x[k]);
                rank += x[k] > x[ids[i]];
                first = x[k] > x[first] ? k : first;
            }
            assert_int_equal(c.prompt[i].id, ids[i]);
            assert_int_equal(c.prompt[i].rank, rank);
            assert_int_equal(c.prompt[i].ntop, round);
            assert_int_equal(c.prompt[i].first, round ? first : -1);
            // Observed: at most 5e-7.
            assert_true(fabs((double)c.prompt[i].logprob - ((double)x[ids[i]] - log(sum))) < 2e-6);
        }
        assert_int_equal(c.nids[0], round == 0 ? 0 : round == 1 ? 153 : 3);  // the echo has them too
        client_done(&c);
    }
    engine_close(en);
}

static void test_bad_words(void **state)
{
    (void)state;
    static const char *const words[] = {"b", "the", "cab", " END"};
    static const struct logit_bias often[] = {{2, 3}, {30, 3}};  // "c", "ab": "cab" is these two
    struct engine *en = open_engine(1 << 20);
    int free_run = 0, pairs[2] = {0};
    for (int with = 0; with < 2; with++)
        for (int i = 0; i < 20; i++) {
            struct client c = {0};
            struct task *t = task_of(i, 10, 200);
            t->generate.logprobs = 0;
            t->generate.ignore_eos = true;
            t->generate.sampling.bias = often;
            t->generate.sampling.nbias = 2;
            t->generate.bad_words = with ? words : NULL;
            t->generate.nbad_words = with ? 4 : 0;
            run(en, t, &c);
            assert_int_equal(c.error.code, ERR_OK);
            for (int k = 0; k < c.nids[0]; k++) {
                assert_true(!with || c.ids[0][k] != 1);
                free_run += c.ids[0][k] == 1;
                pairs[with] += k > 0 && c.ids[0][k - 1] == 2 && c.ids[0][k] == 30;
            }
            client_done(&c);
        }
    assert_true(free_run > 10);
    assert_true(pairs[0] > 10 && pairs[1] == 0);
    engine_close(en);
}

// They end the answer, are not shown, and ignore_eos does not touch them.
static void test_stop_ids(void **state)
{
    (void)state;
    static const int32_t stops[] = {7, 9};
    struct engine *en = open_engine(1 << 20);
    int stopped = 0, late = 0;
    for (int i = 0; i < 40; i++) {
        struct sampling sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)i};
        int32_t want[60], prompt[10];
        struct client c = {0};
        struct task *t = task_of(i, 10, 60);
        memcpy(prompt, t->generate.prompt.ids, sizeof prompt);
        t->generate.sampling = sampling;
        t->generate.logprobs = 0;
        t->generate.ignore_eos = true;
        t->generate.stop_ids = stops;
        t->generate.nstop_ids = 2;
        t->generate.min_tokens = i % 2 ? 20 : 0;
        run(en, t, &c);
        fake_answer(prompt, 10, &sampling, 0, 60, want);
        int n = 0;
        while (n < 60 && want[n] != 7 && want[n] != 9)
            n++;
        if (i % 2 == 0) {
            assert_int_equal(c.nids[0], n);
            assert_memory_equal(c.ids[0] ? c.ids[0] : want, want, (size_t)n * sizeof *want);
            assert_int_equal(c.finish[0], n < 60 ? FINISH_STOP : FINISH_LENGTH);
            assert_int_equal(c.usage.completion_tokens, n + (n < 60));
            stopped += n < 60;
        } else {
            assert_true(c.nids[0] >= 20);
            late += n < 20;
        }
        client_done(&c);
    }
    assert_true(stopped > 5 && late > 5);
    engine_close(en);
}

static void test_shown(void **state)
{
    (void)state;
    static const char *const stop[] = {"a"};
    struct engine *en = open_engine(1 << 20);
    int ends = 0;
    for (int i = 0; i < 20; i++) {
        struct client a = {0}, b = {0}, d = {0};
        struct task *t = task_of(i, 10, 100), *u = task_of(i, 10, 100), *v = task_of(i, 10, 100);
        t->generate.ignore_eos = u->generate.ignore_eos = v->generate.ignore_eos = true;
        t->generate.show_control = true;
        u->generate.stop = v->generate.stop = stop;
        u->generate.nstop = v->generate.nstop = 1;
        u->generate.include_stop = true;
        run(en, t, &a);
        run(en, u, &b);
        run(en, v, &d);
        ends += strstr(text_of(&a), "<|im_end|>") != NULL;
        assert_null(strstr(text_of(&d), "<|im_end|>"));
        size_t n = d.text[0].len;
        assert_memory_equal(text_of(&b), text_of(&d), n);
        assert_true(b.finish[0] == FINISH_LENGTH || !strcmp(text_of(&b) + n, "a"));
        client_done(&a);
        client_done(&b);
        client_done(&d);
    }
    assert_true(ends > 5);
    engine_close(en);
}

// ---- SAMP-02, SAMP-03, SAMP-04, SAMP-06

static char *answer_of(struct engine *en, struct task *t)
{
    struct client c = {0};
    run(en, t, &c);
    assert_int_equal(c.error.code, ERR_OK);
    char *text = mem_strndup(text_of(&c), c.text[0].len);
    client_done(&c);
    return text;
}

static void same(char *want, char *got)
{
    assert_string_equal(got, want);
    free(got);
}

// SAMP-02: a temperature near 0 is greedy; what is biased away never comes. SAMP-03: top_k 0 is off.
static void test_edges(void **state)
{
    (void)state;
    static const struct logit_bias bias[] = {{3, -100}, {8, -100}, {40, -100}};
    struct engine *en = open_engine(1 << 20);
    char *greedy = NULL;
    for (int i = 0; i < 60; i++) {
        struct task *t = task_of(1, 20, 80);
        t->generate.sampling.seed = (uint64_t)i;
        t->generate.sampling.temperature = (float[]){0, 1e-6f, 1e-4f}[i % 3];
        t->generate.sampling.bias = bias;
        t->generate.sampling.nbias = 3;
        char *got = answer_of(en, t);
        assert_null(strpbrk(got, "di0"));
        if (greedy)
            same(greedy, got);
        else
            greedy = got;
    }
    free(greedy);
    struct task *off = task_of(2, 20, 80), *all = task_of(2, 20, 80);
    all->generate.sampling.top_k = FAKE_VOCAB;
    char *want = answer_of(en, off);
    same(want, answer_of(en, all));
    free(want);
    engine_close(en);
}

static struct task *wild(int i)
{
    struct task *t = task_of(i, 30 + i % 7 * 20, 400);
    struct sampling *s = &t->generate.sampling;
    t->generate.ignore_eos = true;
    s->temperature = 0.9f;
    s->mirostat = i % 3;
    s->dry_multiplier = i % 2 ? 0.8f : 0;
    s->dry_allowed_length = 1;
    s->xtc_probability = i % 4 == 0 ? 0.5f : 0;
    s->xtc_threshold = 0.02f;
    s->typical_p = i % 4 == 1 ? 0.8f : 0;
    s->dynatemp_range = i % 5 == 0 ? 0.4f : 0;
    s->penalty_last_n = i % 2 ? 40 : 0;
    s->repetition_penalty = 1.1f;
    t->generate.n = 1 + (i % 6 == 5);
    return t;
}

// SAMP-04 and SAMP-06: what a seed gives alone it gives beside others, in any order and with so few pages that sequences are
// computed again; samplers that remember included. Other seeds give others.
static void test_history_under_load(void **state)
{
    (void)state;
    enum { JOBS = 24 };
    struct engine *en = open_engine(1 << 20);
    char *want[JOBS];
    err e = {0};
    for (int i = 0; i < JOBS; i++)
        want[i] = answer_of(en, wild(i));
    for (int i = 1; i < JOBS; i++)
        assert_string_not_equal(want[i], want[i - 1]);
    engine_close(en);
    en = open_engine(24 * PAGE_BYTES);
    struct gate g;
    gate_close(&g, en, "fake");  // none is over before all have come
    struct client *all = mem_new(JOBS * sizeof *all);
    for (int i = 0; i < JOBS; i++)
        assert_true(client_submit(&all[i], en, wild(i), &e));
    gate_prepared(en, "fake");
    gate_open(&g);
    for (int i = 0; i < JOBS; i++) {
        client_wait(&all[i]);
        assert_int_equal(all[i].error.code, ERR_OK);
        assert_string_equal(text_of(&all[i]), want[i]);
        client_done(&all[i]);
        free(want[i]);
    }
    struct engine_stats st;
    engine_stats(en, &st);
    assert_true(st.preempted > 0);
    engine_close(en);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_logprobs),      cmocka_unit_test(test_bad_words), cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_shown),                cmocka_unit_test(test_edges),
        cmocka_unit_test(test_history_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
