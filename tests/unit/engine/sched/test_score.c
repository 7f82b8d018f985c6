// Answers found by the probability of whole texts, through the engine: the sums are those of the model's own log-softmax, whatever
// the order of the texts, the batch, the cache, few pages and few sequences; and nothing stays behind when one is cancelled.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/sched/score.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/fake_tokenizer.h"
#include "tests/unit/engine/tokenizer/fixture.h"

enum { CONTEXT = 512, PAGE_BYTES = 2 * 2 * 2 * 64 * 8, MOST = 40, LONG = 300 };
static const double near = 2e-5;  // observed: at most 1e-6

struct texts {
    int n;
    char text[MOST][LONG + 1];
};

static struct engine *open_kind(struct fake_kind kind, int threads, int chunk, int pages, int running)
{
    struct engine_config c = {.threads = threads, .prefill_chunk = chunk, .kv_bytes = (size_t)pages * PAGE_BYTES,
                              .max_running = running, .max_waiting = 60, .isa = "scalar"};
    struct model *m = fake_model_new(CONTEXT, kind);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "fake", m);
}

static struct engine *open_engine(int threads, int chunk, int pages, int running)
{
    return open_kind((struct fake_kind){0}, threads, chunk, pages, running);
}

static void make_prompt(int32_t *ids, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(seed, (uint64_t)i, 1) % FAKE_EOS);
}

// The texts in another order, as the request has them.
static char *json_of(const struct texts *t, const int *order, struct arena *a)
{
    char *out = arena_alloc(a, (size_t)t->n * (LONG + 4) + 3), *p = out;
    *p++ = '[';
    for (int i = 0; i < t->n; i++)
        p += sprintf(p, "%s\"%s\"", i ? "," : "", t->text[order ? order[i] : i]);
    strcpy(p, "]");
    return out;
}

static struct task *task_of(const int32_t *ids, int n, const struct texts *t, const int *order)
{
    struct task *k = client_task("fake", ids, n);
    struct generate *g = &k->generate;
    char *json = json_of(t, order, &k->arena);
    g->sampling.temperature = 0;
    g->sampling.seed = 1;
    g->max_tokens = 400;
    g->grammar = (struct grammar_request){GRAMMAR_CHOICE, json, strlen(json), "guided_choice", NULL};
    g->choosing = CHOOSE_SCORED;
    return k;
}

static void run(struct engine *en, struct task *t, struct client *c)
{
    client_must_submit(c, en, t);
    client_wait(c);
    assert_false(c->wrong);
}

static const char *text_of(const struct client *c, int i)
{
    return c->text[i].data ? c->text[i].data : "";
}

static void assert_all_free(struct engine *en)
{
    struct engine_stats st;
    assert_true(engine_check(en, true));
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.running, 0);
    assert_int_equal(st.waiting, 0);
}

// ---- the same, computed by other means

static bool ends(const struct texts *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->n; k++)
            if (i != k && !strncmp(t->text[i], t->text[k], strlen(t->text[i])))
                return true;
    return false;
}

static int encode(const char *text, int32_t *ids)
{
    static struct tokenizer *t;
    struct ids got = {0};
    struct text_span span = {text, strlen(text), false};
    err e;
    if (!t)
        t = fake_tokenizer();
    assert_int_equal(tokenizer_encode(t, &span, 1, false, &got, &e), ERR_OK);
    int n = (int)got.len;
    memcpy(ids, got.data ? got.data : ids, (size_t)n * sizeof *ids);
    free(got.data);
    return n;
}

static double logprob(const int32_t *ids, int n, int32_t id)
{
    float x[FAKE_VOCAB];
    double sum = 0;
    fake_logits(ids, n, x);
    for (int i = 0; i < FAKE_VOCAB; i++)
        sum += exp((double)x[i]);
    return (double)x[id] - log(sum);
}

static double sum_of(const int32_t *prompt, int nprompt, const char *text, bool with_end)
{
    int32_t ids[CONTEXT + LONG];
    memcpy(ids, prompt, (size_t)nprompt * sizeof *ids);
    int n = nprompt + encode(text, ids + nprompt);
    double sum = with_end ? logprob(ids, n, FAKE_EOS) : 0;
    for (int i = nprompt; i < n; i++)
        sum += logprob(ids, i, ids[i]);
    return sum;
}

static void expect(const int32_t *prompt, int nprompt, const struct texts *t, double *sums, double *p)
{
    double total = 0;
    for (int i = 0; i < t->n; i++) {
        sums[i] = sum_of(prompt, nprompt, t->text[i], ends(t));
        total += exp(sums[i]);
    }
    for (int i = 0; i < t->n; i++)
        p[i] = exp(sums[i]) / total;
}

static int likeliest(const struct texts *t, const double *sums)
{
    int best = 0;
    for (int i = 1; i < t->n; i++)
        best = sums[i] > sums[best] ? i : best;
    return best;
}

// ---- sets of texts

static struct texts set_of(int which)
{
    static const char *const sets[][12] = {
        {"low", "medium", "high"}, {"one only"}, {"ab", "abc", "abcabc", "b", "a"}, {"", "a", "aa"},
        {"the cab 1", "the cab 2", "the cab 3", "the abc", "the", "bc"}, {"\xC3\xA9\xE2\x82\xAC", "\xC3\xA9", "\xC3\xA9t\xC3\xA9"}, {""},
        {"x", "y", "z", "E", "ab", "A", "B", "C", "0", "1", "2", "3"}};
    struct texts t = {0};
    if (which < 8) {
        for (; t.n < 12 && sets[which][t.n]; t.n++)
            strcpy(t.text[t.n], sets[which][t.n]);
        return t;
    }
    // Many, of up to 40 letters, that begin alike in several places; a few are long.
    for (t.n = 0; t.n < 30; t.n++) {
        int len = t.n % 10 == 7 ? 150 : 5 + t.n, at = 0;
        for (; at < len; at++)
            t.text[t.n][at] = "abcxyz012"[rng_u64((uint64_t)which, (uint64_t)(at < 3 ? 0 : at < len / 2 ? t.n % 4 : t.n), (uint64_t)at) % 9];
        sprintf(t.text[t.n] + at, "%d", 100 + t.n);
    }
    return t;
}
enum { SETS = 10 };

static void shuffle(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(rng_u64(seed, (uint64_t)i, 2) % (uint64_t)(i + 1)), x = order[i];
        order[i] = order[k];
        order[k] = x;
    }
}

// ---- tests

static void check_exact(struct engine *en, int nprompt, int which, double *worst)
{
    int32_t prompt[CONTEXT];
    double sums[MOST], p[MOST], first[MOST], total = 0;
    struct texts t = set_of(which);
    make_prompt(prompt, nprompt, (uint64_t)which);
    expect(prompt, nprompt, &t, sums, p);
    for (int turn = 0; turn < 3; turn++) {
        struct client c = {0};
        int order[MOST];
        shuffle(order, t.n, (uint64_t)turn);
        run(en, task_of(prompt, nprompt, &t, turn ? order : NULL), &c);
        if (c.error.code)
            fail_msg("set %d, prompt %d: %s", which, nprompt, c.error.text);
        assert_int_equal(c.nscores, t.n);
        for (int i = 0; i < t.n; i++) {
            int k = turn ? order[i] : i;
            double off = fabs(c.scores[i].logprob - sums[k]);
            *worst = off > *worst ? off : *worst;
            if (off > near || fabs(c.scores[i].probability - p[k]) > near)
                fail_msg("set %d, prompt %d, '%s': %.9g, expected %.9g", which, nprompt, t.text[k], c.scores[i].logprob, sums[k]);
            if (turn == 0)
                first[k] = c.scores[i].logprob, total += c.scores[i].probability;
            assert_true(first[k] == c.scores[i].logprob);
        }
        assert_true(fabs(total - 1) < 1e-12);
        assert_string_equal(text_of(&c, 0), t.text[likeliest(&t, sums)]);
        assert_int_equal(c.finish[0], FINISH_STOP);
        client_done(&c);
    }
}

static void test_exact_in_any_order(void **state)
{
    (void)state;
    static const int prompts[] = {1, 64, 130};
    static const struct { int threads, chunk, pages, running; } as[] = {{1, 5, 12, 2}, {2, 64, 200, 4}, {2, 0, 200, 12}};
    double worst = 0;
    for (size_t k = 0; k < sizeof as / sizeof *as; k++) {
        struct engine *en = open_engine(as[k].threads, as[k].chunk, as[k].pages, as[k].running);
        for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
            for (int which = 0; which < SETS; which++)
                check_exact(en, prompts[i], which, &worst);
        assert_all_free(en);
        engine_close(en);
    }
    print_message("largest difference %.2g\n", worst);
}

// Beginnings are computed once: rows beyond the prompt are those of the tree.
static void test_shared_rows(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, 0, 200, 12);
    int32_t prompt[20], ids[LONG];
    struct texts t = {.n = 20};
    make_prompt(prompt, 20, 3);
    for (int i = 0; i < t.n; i++)
        sprintf(t.text[i], "%.*s%c", 120, "xyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyzxyz",
                'A' + i % 3), sprintf(t.text[i] + 121, "%d", i);
    assert_true(encode(t.text[0], ids) > 120);
    struct client c = {0};
    struct engine_stats before, after;
    engine_stats(en, &before);
    run(en, task_of(prompt, 20, &t, NULL), &c);
    assert_int_equal(c.error.code, ERR_OK);
    engine_check(en, false);
    engine_stats(en, &after);
    // 120 positions at 17 a step, then few: one text after another would take more than 20 times 120 / 17.
    assert_true(after.steps - before.steps < 24);
    client_done(&c);
    engine_close(en);
}

// Greedy by tokens takes the text with the likeliest first token.
static void test_not_token_by_token(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, 0, 200, 12);
    struct texts t = set_of(0);
    int differ = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        int32_t prompt[30];
        double sums[MOST], p[MOST];
        struct client a = {0}, b = {0}, d = {0};
        make_prompt(prompt, 30, seed);
        expect(prompt, 30, &t, sums, p);
        struct task *by_token = task_of(prompt, 30, &t, NULL), *likely = task_of(prompt, 30, &t, NULL);
        by_token->generate.choosing = CHOOSE_BY_TOKEN;
        likely->generate.choosing = CHOOSE_LIKELIEST;
        run(en, by_token, &a);
        run(en, likely, &b);
        run(en, task_of(prompt, 30, &t, NULL), &d);
        assert_string_equal(text_of(&b, 0), t.text[likeliest(&t, sums)]);
        assert_string_equal(text_of(&b, 0), text_of(&d, 0));
        assert_int_equal(b.nscores, 0);
        differ += strcmp(text_of(&a, 0), text_of(&b, 0)) != 0;
        client_done(&a);
        client_done(&b);
        client_done(&d);
    }
    assert_true(differ > 2);
    engine_close(en);
}

struct scored {
    struct client client;
    int which;
    bool cancelled;
};

static void submit(struct engine *en, struct scored *j, int i)
{
    int32_t prompt[CONTEXT];
    j->which = i % SETS;
    make_prompt(prompt, 40 + i % 5 * 30, (uint64_t)(i / 2));
    struct texts t = set_of(j->which);
    struct task *k = task_of(prompt, 40 + i % 5 * 30, &t, NULL);
    k->generate.sampling.temperature = i % 3 ? 1 : 0;
    k->generate.n = 1 + i % 2;
    k->generate.logprobs = i % 4 - 1;
    client_must_submit(&j->client, en, k);
}

static void compare(struct scored *j, const struct scored *want)
{
    client_wait(&j->client);
    assert_false(j->client.wrong);
    assert_int_equal(j->client.ends, 1);
    if (j->cancelled && j->client.error.code == ERR_CANCELLED)
        return;
    if (j->client.error.code)
        fail_msg("%s", j->client.error.text);
    assert_int_equal(j->client.nscores, want->client.nscores);
    assert_memory_equal(j->client.scores, want->client.scores, (size_t)want->client.nscores * sizeof *want->client.scores);
    for (int k = 0; k < CLIENT_MAX_CHOICES; k++) {
        assert_string_equal(text_of(&j->client, k), text_of(&want->client, k));
        assert_int_equal(j->client.nids[k], want->client.nids[k]);
        if (want->client.nids[k])
            assert_memory_equal(j->client.logprobs[k], want->client.logprobs[k], (size_t)want->client.nids[k] * sizeof(float));
    }
}

// Other sequences that outgrow what they were promised take the pages away; some are cancelled.
static void test_same_in_a_crowd(void **state)
{
    (void)state;
    enum { JOBS = 16, FREE = 4, ROUNDS = 3 };
    static const struct fake_kind kinds[] = {{0}, {.window = 100}, {.recurrent = true}};
    uint64_t preempted = 0;
    for (size_t kind = 0; kind < 3; kind++) {
        struct scored *alone = mem_new(JOBS * sizeof *alone), *all = mem_new(JOBS * sizeof *all);
        struct engine *en = open_kind(kinds[kind], 1, 0, 300, 12);
        for (int i = 0; i < JOBS; i++) {
            submit(en, &alone[i], i);
            compare(&alone[i], &alone[i]);
        }
        engine_close(en);
        for (int round = 0; round < ROUNDS; round++) {
            struct client *others = mem_new(FREE * sizeof *others);
            en = open_kind(kinds[kind], 1 + round % 2, round < 2 ? 7 : 0, round < ROUNDS - 1 ? 14 + 2 * round : 300, 12);
            for (int i = 0; i < JOBS; i++) {
                err e = {0};
                memset(&all[i], 0, sizeof all[i]);
                if (i % 4 == 0) {
                    int32_t prompt[20];
                    make_prompt(prompt, 20, 1000 + (uint64_t)i);
                    struct task *k = client_task("fake", prompt, 20);
                    k->generate.max_tokens = 400;
                    k->generate.ignore_eos = true;
                    assert_true(client_submit(&others[i / 4], en, k, &e));
                }
                all[i].cancelled = (i + round) % 5 == 0;
                submit(en, &all[i], i);
                if (all[i].cancelled && i % 2)
                    engine_cancel(en, all[i].client.ticket);
                else if (all[i].cancelled && i > 3)
                    engine_cancel(en, all[i - 3].client.ticket), all[i - 3].cancelled = true;
            }
            for (int i = 0; i < JOBS; i++)
                compare(&all[i], &alone[i]);
            for (int i = 0; i < JOBS; i++)
                client_done(&all[i].client);
            for (int i = 0; i < FREE; i++) {
                client_wait(&others[i]);
                client_done(&others[i]);
            }
            assert_all_free(en);
            struct engine_stats st;
            engine_stats(en, &st);
            preempted += st.preempted;
            engine_close(en);
            free(others);
        }
        for (int i = 0; i < JOBS; i++)
            client_done(&alone[i].client);
        free(alone);
        free(all);
    }
    assert_true(preempted > 10);
}

// The sums of a model with a window or a state are those of the tokens as a prompt.
static void test_kinds(void **state)
{
    (void)state;
    static const struct fake_kind kinds[] = {{.window = 70}, {.recurrent = true}};
    for (size_t kind = 0; kind < 2; kind++) {
        struct engine *en = open_kind(kinds[kind], 1, 0, 100, 8);
        int32_t ids[CONTEXT];
        struct texts t = set_of(8);
        struct client c = {0};
        make_prompt(ids, 130, 5);
        run(en, task_of(ids, 130, &t, NULL), &c);
        assert_int_equal(c.error.code, ERR_OK);
        for (int i = 0; i < t.n; i++) {
            struct client p = {0};
            int n = 130 + encode(t.text[i], ids + 130);
            struct task *k = client_task("fake", ids, n);
            double sum = 0;
            k->generate.max_tokens = 1;
            k->generate.prompt_logprobs = 0;
            run(en, k, &p);
            for (int at = 130; at < n; at++)
                sum += (double)p.prompt[at].logprob;
            assert_true(fabs(sum - c.scores[i].logprob) < 1e-4);  // floats added up: observed 1.1e-5
            client_done(&p);
        }
        client_done(&c);
        engine_close(en);
    }
}

static void test_drawn(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, 0, 200, 12);
    struct texts t = set_of(4);
    int32_t prompt[30];
    make_prompt(prompt, 30, 11);
    double sums[MOST], p[MOST], hot[MOST], total = 0;
    int seen[MOST] = {0}, n = 0;
    expect(prompt, 30, &t, sums, p);
    for (int i = 0; i < t.n; i++)
        total += hot[i] = pow(p[i], 1 / 2.0);
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct client c = {0};
        int order[MOST];
        struct task *k;
        shuffle(order, t.n, seed);
        k = task_of(prompt, 30, &t, order);
        k->generate.sampling.temperature = 2;
        k->generate.sampling.seed = seed;
        k->generate.n = 8;
        run(en, k, &c);
        for (int i = 0; i < 8; i++)
            for (int x = 0; x < t.n; x++)
                if (!strcmp(text_of(&c, i), t.text[x]))
                    seen[x]++, n++;
        client_done(&c);
    }
    assert_int_equal(n, 480);
    for (int i = 0; i < t.n; i++) {
        double want = 480 * hot[i] / total;
        assert_true(fabs(seen[i] - want) < 4 * sqrt(want + 1));
    }
    engine_close(en);
}

static void test_what_is_said(void **state)
{
    (void)state;
    static const char *const stop[] = {"ing"};
    struct engine *en = open_engine(1, 0, 200, 12);
    struct texts one = {1, {"a thing 123"}};
    int32_t prompt[30], ids[LONG];
    make_prompt(prompt, 30, 2);
    int n = encode(one.text[0], ids);
    for (int what = 0; what < 3; what++) {
        struct client c = {0};
        struct task *k = task_of(prompt, 30, &one, NULL);
        k->generate.logprobs = 2;
        if (what == 1)
            k->generate.max_tokens = 3;
        if (what == 2) {
            k->generate.stop = stop;
            k->generate.nstop = 1;
        }
        run(en, k, &c);
        assert_int_equal(c.error.code, ERR_OK);
        double sum = 0;
        for (int i = 0; i < c.nids[0]; i++) {
            assert_int_equal(c.ids[0][i], ids[i]);
            sum += (double)c.logprobs[0][i];
        }
        if (what == 0) {
            assert_string_equal(text_of(&c, 0), "a thing 123");
            assert_int_equal(c.nids[0], n);
            assert_int_equal(c.usage.completion_tokens, n);
            assert_true(fabs(sum - c.scores[0].logprob) < 1e-5 && c.scores[0].probability == 1);
        } else if (what == 1) {
            assert_int_equal(c.finish[0], FINISH_LENGTH);
            assert_int_equal(c.usage.completion_tokens, 3);
            assert_true(!strncmp(text_of(&c, 0), "a thing 123", c.text[0].len) && c.text[0].len < 8);
        } else {
            assert_string_equal(text_of(&c, 0), "a th");
            assert_int_equal(c.finish[0], FINISH_STOP);
        }
        client_done(&c);
    }
    engine_close(en);
}

// What another text goes on from is whole by an end token, which counts where there is room for it; that one is whole without.
static void test_the_end_counts(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, 0, 200, 12);
    static const struct texts all[] = {{2, {"a thing", "a thing 123"}}, {2, {"a", "ab"}}, {2, {"see the", "see the d"}}};
    int32_t prompt[30], ids[LONG];
    int seen[2] = {0};
    for (int i = 0; i < 90; i++) {
        const struct texts *two = &all[i % 3];
        int n[2] = {encode(two->text[0], ids), encode(two->text[1], ids)}, limit = i % 2 ? 400 : n[0];
        struct client c = {0};
        make_prompt(prompt, 30, (uint64_t)i);
        struct task *k = task_of(prompt, 30, two, NULL);
        k->generate.max_tokens = limit;
        run(en, k, &c);
        bool longer = c.scores[1].logprob > c.scores[0].logprob, cut = n[longer] > limit;
        int want = n[longer] + !longer;
        assert_true(cut || !strcmp(text_of(&c, 0), two->text[longer]));
        assert_int_equal(c.finish[0], cut ? FINISH_LENGTH : FINISH_STOP);
        assert_int_equal(c.usage.completion_tokens, want < limit ? want : limit);
        seen[longer]++;
        client_done(&c);
    }
    assert_true(seen[0] > 3 && seen[1] > 3);
    engine_close(en);
}

static void refused(struct engine *en, struct task *k, const char *param, const char *says)
{
    struct client c = {0};
    err e = {0};
    if (client_submit(&c, en, k, &e)) {
        client_wait(&c);
        e = c.error;
    }
    assert_true(e.code == ERR_INVALID || e.code == ERR_CONTEXT);
    assert_string_equal(e.param, param);
    if (!strstr(e.text, says))
        fail_msg("%s", e.text);
    client_done(&c);
}

static struct task *many(int n, int len)
{
    int32_t prompt[] = {1, 2, 3};
    struct texts t = set_of(0);
    struct task *k = task_of(prompt, 3, &t, NULL);
    char *json = arena_alloc(&k->arena, (size_t)n * (size_t)(len + 16)), *p = json;
    for (int i = 0; i < n; i++)
        p += sprintf(p, "%s\"%d%0*d\"", i ? "," : "[", i, len, 7);
    strcpy(p, "]");
    k->generate.grammar.text = json;
    k->generate.grammar.len = strlen(json);
    return k;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct logit_bias bias[] = {{2, 3}};
    struct engine *en = open_engine(1, 0, 60, 12);
    int32_t prompt[500];
    struct texts t = set_of(0), twice = {3, {"a", "b", "a"}}, none = {0}, strange = {2, {"a", "#"}};
    make_prompt(prompt, 500, 1);
    refused(en, task_of(prompt, 9, &twice, NULL), "guided_choice", "'a' is among the choices twice");
    refused(en, task_of(prompt, 9, &none, NULL), "guided_choice", "0 choices");
    refused(en, many(1025, 1), "guided_choice", "1025 choices");
    refused(en, many(200, 90), "guided_choice", "more than 16384 tokens");
    t.n = 4;
    memset(t.text[3], 'x', 20);
    refused(en, task_of(prompt, 500, &t, NULL), "prompt", "519");
    for (int what = 0; what < 6; what++) {
        static const char *const fields[] = {"presence_penalty", "repetition_penalty", "logit_bias", "min_tokens", "ignore_eos", "top_p"};
        for (int insist = 0; insist < 2; insist++) {
            struct task *k = task_of(prompt, 9, &t, NULL);
            struct generate *g = &k->generate;
            g->choosing = insist ? CHOOSE_SCORED : CHOOSE_LIKELIEST;
            g->sampling.presence_penalty = what == 0;
            g->sampling.repetition_penalty = what == 1 ? 2 : 1;
            g->sampling.bias = bias;
            g->sampling.nbias = what == 2;
            g->min_tokens = what == 3;
            g->ignore_eos = what == 4;
            g->sampling.temperature = what == 5;
            g->sampling.top_p = what == 5 ? 0.5f : 1;
            if (insist) {
                refused(en, k, fields[what], "cannot be combined");
                continue;
            }
            struct client c = {0};
            run(en, k, &c);
            assert_int_equal(c.error.code, ERR_OK);
            client_done(&c);
        }
    }
    struct client c = {0};
    err e = {0};
    assert_true(client_submit(&c, en, task_of(prompt, 9, &strange, NULL), &e));  // no token of this vocabulary has it
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_UNSUPPORTED);
    client_done(&c);
    assert_all_free(en);
    engine_close(en);
}

// Whatever a tokenizer puts in front of a text, the tokens spell what was given; and all texts are in the tree.
static void test_tokens(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gpt2", "llama3", "qwen2", "smollm", "o200k", "deepseek3", "spm_legacy", "spm_first", "metaspace", "gemma"};
    static const char list[] = "[\"low\",\" low\",\"lower\",\"caf\u00e9\",\"\u767a\u9801 x\",\"\\n- x\",\"<|im_end|></s>\",\"two words\",\"\"]";
    int n = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *t = fixture_tokenizer(kinds[k]);
        struct grammar_request r = {GRAMMAR_CHOICE, list, sizeof list - 1, "guided_choice", NULL};
        struct score *sc = NULL;
        err e = {0};
        if (score_new(t, &r, tokenizer_size(t), &sc, &e)) {
            print_message("%s: %s\n", kinds[k], e.text);
            assert_int_equal(e.code, ERR_UNSUPPORTED);
            tokenizer_close(t);
            continue;
        }
        n++;
        for (int i = 0; i < sc->ntexts; i++) {
            const struct score_text *x = &sc->texts[i];
            char got[100] = "";
            for (int at = 0; at < x->n; at++) {
                size_t len;
                const char *p = tokenizer_piece(t, x->ids[at], &len);
                strncat(got, p, len);
                assert_false(tokenizer_is_control(t, x->ids[at]));
                assert_in_range(score_token(sc, i, at), 0, sc->ntokens - 1);
            }
            assert_string_equal(got, x->text);
            assert_int_equal(sc->runs[x->run].text, i);
            assert_int_equal(sc->runs[x->run].from + sc->runs[x->run].n, x->n);
        }
        assert_true(sc->ends && sc->nstops > 0);
        score_free(sc);
        tokenizer_close(t);
    }
    print_message("%d tokenizers\n", n);
    assert_true(n >= 8);
}

// A position whose logits are not numbers ends it, and nothing else.
static void test_not_numbers(void **state)
{
    (void)state;
    struct engine_config cfg = {.threads = 1, .kv_bytes = 100 * PAGE_BYTES, .max_running = 8, .max_waiting = 8, .isa = "scalar"};
    struct model *m = fake_model(CONTEXT);
    m->tokenizer = fake_tokenizer();
    fake_model_set_nan(m, 31);
    struct engine *en = engines_open_with(&cfg, "fake", m);
    int32_t prompt[30];
    struct texts t = set_of(0);
    struct client c = {0};
    make_prompt(prompt, 30, 1);
    run(en, task_of(prompt, 30, &t, NULL), &c);
    assert_int_equal(c.error.code, ERR_INTERNAL);
    client_done(&c);
    fake_model_set_nan(m, -1);
    memset(&c, 0, sizeof c);
    run(en, task_of(prompt, 30, &t, NULL), &c);
    assert_int_equal(c.error.code, ERR_OK);
    client_done(&c);
    assert_all_free(en);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_in_any_order), cmocka_unit_test(test_shared_rows), cmocka_unit_test(test_not_token_by_token),
        cmocka_unit_test(test_same_in_a_crowd),    cmocka_unit_test(test_kinds),       cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_what_is_said),      cmocka_unit_test(test_the_end_counts),       cmocka_unit_test(test_refused),     cmocka_unit_test(test_not_numbers),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
