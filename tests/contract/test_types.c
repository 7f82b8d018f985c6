// Whole models of every storage type, and files that mix types: logits and greedy tokens against transformers on the
// dequantised weights; what the default arithmetic costs; the same bits on every instruction set, for any chunks, lanes.
//
// f32 activations and KV: 1e-4 of the spread of the logits (largest minus smallest) is allowed; observed 2.4e-6.
// The default arithmetic: a mean KL of 2e-3 nats and 2e-2 at most are allowed; observed 1.1e-3 and 6.1e-3, see
// kernels/README.md.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/tools/runner.h"
#include "tests/helpers/models.h"
#include "tests/helpers/types.h"

struct setting {
    const char *activations, *kv, *isa;  // NULL: the default
    int threads, tokens, first, chunk;   // of the prompt: so many, `first` together, then `chunk` a step
};

static const struct setting exact = {"f32", "f32", NULL, 1, TYPES_TOKENS, TYPES_TOKENS, TYPES_TOKENS};

static struct runner *open_runner(const char *path, const struct setting *s, const char *name)
{
    struct tools_model t = {
        .path = path, .activations = s->activations, .kv = s->kv, .isa = s->isa, .threads = s->threads};
    struct runner *r;
    err e = {0};
    if (runner_open(&t, TYPES_TOKENS, 1, TYPES_TOKENS, 128, false, &r, &e))
        fail_msg("%s: %s", name, e.text);
    return r;
}

static void step(struct runner *r, struct kv_seq *s, const int32_t *ids, int n)
{
    err e = {0};
    if (runner_step(r, &(struct piece){s, ids, n, PIECE_ALL}, 1, &e))
        fail_msg("%s", e.text);
}

// Logits of all rows of the prompt.
static float *prompt(struct runner *r, struct kv_seq *s, const struct types_model *m, const struct setting *how)
{
    size_t vocab = (size_t)m->vocab;
    float *out = malloc((size_t)how->tokens * vocab * sizeof *out);
    for (int at = 0, n; at < how->tokens; at += n) {
        int most = at ? how->chunk : how->first;
        n = how->tokens - at < most ? how->tokens - at : most;
        step(r, s, m->ids + at, n);
        memcpy(out + (size_t)at * vocab, r->logits, (size_t)n * vocab * sizeof *out);
    }
    return out;
}

static float *logits_of(const char *path, const struct types_model *m, const struct setting *s)
{
    struct runner *r = open_runner(path, s, m->name);
    struct kv_seq seq;
    assert_int_equal(r->model->vocab, m->vocab);
    kv_seq_init(&seq, r->pool);
    float *out = prompt(r, &seq, m, s);
    kv_seq_done(&seq);
    runner_close(r);
    return out;
}

// ---- the reference

// The reference's rows and greedy tokens; returns all rows of the prompt, and the largest difference in *ret_worst.
static float *check_reference(const char *path, const struct types_model *m, double *ret_worst)
{
    struct runner *r = open_runner(path, &exact, m->name);
    struct kv_seq s;
    size_t vocab = (size_t)m->vocab;
    kv_seq_init(&s, r->pool);
    float *all = prompt(r, &s, m, &exact);
    *ret_worst = 0;
    for (int i = 0; i < TYPES_ROWS; i++) {
        double d = models_difference(all + (size_t)m->rows[i] * vocab, m->logits + (size_t)i * vocab, m->vocab) / m->spread;
        *ret_worst = d > *ret_worst || isnan(d) ? d : *ret_worst;
    }
    const float *last = all + (TYPES_TOKENS - 1) * vocab;
    for (int i = 0; i < TYPES_GREEDY; i++) {
        int32_t id = r->ops->argmax(last, m->vocab);
        if (id != m->greedy[i])
            fail_msg("%s: greedy token %d is %d, expected %d", m->name, i, id, m->greedy[i]);
        step(r, &s, &id, 1);
        last = r->logits;
    }
    kv_seq_done(&s);
    runner_close(r);
    return all;
}

// KL(p || q) of the softmaxes of two rows, in nats.
static double divergence(const float *p, const float *q, int n)
{
    double top_p = -INFINITY, top_q = -INFINITY, sum_p = 0, sum_q = 0, kl = 0;
    for (int i = 0; i < n; i++) {
        top_p = fmax(top_p, (double)p[i]);
        top_q = fmax(top_q, (double)q[i]);
    }
    for (int i = 0; i < n; i++) {
        sum_p += exp((double)p[i] - top_p);
        sum_q += exp((double)q[i] - top_q);
    }
    for (int i = 0; i < n; i++) {
        double log_p = (double)p[i] - top_p - log(sum_p), log_q = (double)q[i] - top_q - log(sum_q);
        kl += exp(log_p) * (log_p - log_q);
    }
    return kl;
}

struct loss {
    double mean, most, worst;  // KL over the prompt's rows; largest difference of a logit, of the spread
};

// Of the default arithmetic: int8 activations and f16 KV.
static struct loss loss_of(const char *path, const struct types_model *m, const float *want)
{
    struct loss l = {0};
    float *got = logits_of(path, m, &(struct setting){NULL, NULL, NULL, 1, TYPES_TOKENS, TYPES_TOKENS, 0});
    for (int i = 0; i < TYPES_TOKENS; i++) {
        const float *a = want + (size_t)i * (size_t)m->vocab, *b = got + (size_t)i * (size_t)m->vocab;
        double kl = divergence(a, b, m->vocab);
        l.mean += kl / TYPES_TOKENS;
        l.most = kl > l.most || isnan(kl) ? kl : l.most;
    }
    l.worst = models_difference(want, got, TYPES_TOKENS * m->vocab) / m->spread;
    free(got);
    return l;
}

static void check_model(const struct types_set *set, int i)
{
    struct types_model m;
    types_get(set, i, &m);
    char *path = types_write(set, i);
    double worst;
    float *all = check_reference(path, &m, &worst);
    struct loss l = loss_of(path, &m, all);
    printf("%-16s %8.1e   %8.1e  %8.1e  %8.1e\n", m.name, worst, l.mean, l.most, l.worst);
    unlink(path);
    if (!(worst <= 1e-4))
        fail_msg("%s: logits differ by %.2e of their spread", m.name, worst);
    if (!(l.mean <= 2e-3) || !(l.most <= 2e-2))
        fail_msg("%s: the default arithmetic has KL %.2e, at most %.2e", m.name, l.mean, l.most);
    free(all);
    free(path);
}

static void test_agrees_with_transformers(void **state)
{
    (void)state;
    int n;
    struct types_set *set = types_load(&n);
    printf("|d|: largest difference of a logit, of their spread\nmodel            f32 |d|    default: KL, its max, |d|\n");
    for (int i = 0; i < n; i++)
        check_model(set, i);
    types_free(set);
}

// ---- the exactness rule

static void check_bits(const char *path, const struct types_model *m, const struct setting *s, const float *want)
{
    float *got = logits_of(path, m, s);
    for (int i = 0; i < s->tokens * m->vocab; i++) {
        if (memcmp(&want[i], &got[i], sizeof *got) != 0)
            fail_msg("%s, %s activations, %s, %d threads, chunks of %d, %d: row %d column %d is %.9g, expected %.9g",
                     m->name, s->activations, s->isa, s->threads, s->first, s->chunk, i / m->vocab, i % m->vocab, (double)got[i],
                     (double)want[i]);
    }
    free(got);
}

// Scalar is slow and takes the head of the prompt; for the second shape of a type the others stand for it.
static void check_cuts(const char *path, const struct types_model *m, const char *activations, const float *want)
{
    static const char *const isas[] = {"avx2", "avx512", "neon"};
    static const int cuts[][3] = {{2, 30, 3}, {1, 33, 1}, {2, 1, 18}};  // threads, first, chunk
    for (int i = 0; i < 3; i++) {
        const struct cpu_ops *ops;
        err e = {0};
        for (int j = 0; j < 3 && !cpu_select(isas[i], &ops, &e); j++) {
            const int *c = cuts[j];
            check_bits(path, m, &(struct setting){activations, "f16", isas[i], c[0], TYPES_TOKENS, c[1], c[2]}, want);
        }
    }
    if (strncmp(m->name, "qwen3-", 6))
        check_bits(path, m, &(struct setting){activations, "f16", "scalar", 2, 9, 8, 1}, want);
}

// Both kinds of activations, unless they are one for this model's types.
static void check_same_bits(const char *path, const struct types_model *m)
{
    struct setting s = {"f32", "f16", NULL, 1, TYPES_TOKENS, TYPES_TOKENS, 0};
    float *want[2] = {logits_of(path, m, &s)};
    s.activations = "int8";
    want[1] = logits_of(path, m, &s);
    check_cuts(path, m, "int8", want[1]);
    if (memcmp(want[0], want[1], sizeof *want[0] * TYPES_TOKENS * (size_t)m->vocab) != 0)
        check_cuts(path, m, "f32", want[0]);
    free(want[0]);
    free(want[1]);
}

static void test_same_bits(void **state)
{
    (void)state;
    int n;
    struct types_set *set = types_load(&n);
    for (int i = 0; i < n; i++) {
        struct types_model m;
        types_get(set, i, &m);
        char *path = types_write(set, i);
        check_same_bits(path, &m);
        unlink(path);
        free(path);
    }
    types_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_transformers),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
