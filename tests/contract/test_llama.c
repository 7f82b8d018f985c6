// The exactness rule on the decoder families: the same bits for any chunking, number of lanes and company in the batch,
// with every kind of activations and KV cache; and errors of damaged or unknown models.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/runner.h"
#include "tests/helpers/models.h"

enum { TOKENS = 150, MAX_ROWS = 512, SEQS = 4 };

struct setting {
    const char *model, *activations, *kv;
    int threads;
};

static struct runner *open_runner(const struct setting *s)
{
    struct tools_model t = {.path = models_path(s->model), .activations = s->activations, .kv = s->kv,
                            .threads = s->threads};
    struct runner *r;
    err e = {0};
    if (runner_open(&t, MAX_ROWS, SEQS, MAX_ROWS, 2048, false, &r, &e))
        fail_msg("%s: %s", s->model, e.text);
    return r;
}

static void draw(int32_t *ids, int n, int vocab, int salt)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(3, (uint64_t)i, (uint64_t)salt) % (uint64_t)vocab);
}

static void run(struct runner *r, const struct piece *p, int n)
{
    err e = {0};
    if (runner_step(r, p, n, &e))
        fail_msg("%s", e.text);
}

// All logits of a prompt fed `chunk` tokens at a time.
static float *logits_of(struct runner *r, const int32_t *ids, int chunk)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc(TOKENS * vocab, sizeof *out);
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    for (int at = 0, n; at < TOKENS; at += n) {
        n = TOKENS - at < chunk ? TOKENS - at : chunk;
        run(r, &(struct piece){&s, ids + at, n, PIECE_ALL}, 1);
        memcpy(out + (size_t)at * vocab, r->logits, (size_t)n * vocab * sizeof *out);
    }
    kv_seq_done(&s);
    return out;
}

// The same prompt while three others are prefilled and decoded beside it, in uneven pieces.
static float *logits_in_company(struct runner *r, const int32_t *ids)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc(TOKENS * vocab, sizeof *out);
    struct kv_seq s[SEQS];
    int32_t other[SEQS][MAX_ROWS];
    for (int i = 0; i < SEQS; i++) {
        kv_seq_init(&s[i], r->pool);
        draw(other[i], MAX_ROWS, r->model->vocab, 10 + i);
    }
    for (int at = 0, n, round = 0; at < TOKENS; at += n, round++) {
        n = 1 + round * 7 % 23;
        n = n < TOKENS - at ? n : TOKENS - at;
        struct piece p[SEQS] = {
            {&s[1], other[1] + s[1].len, 1 + round % 2 * 6, PIECE_LAST},
            {&s[2], other[2] + s[2].len, 1, PIECE_NONE},
            {&s[0], ids + at, n, PIECE_ALL},
            {&s[3], other[3] + s[3].len, 9, PIECE_NONE},
        };
        run(r, p, SEQS);
        memcpy(out + (size_t)at * vocab, r->logits + vocab, (size_t)n * vocab * sizeof *out);
    }
    for (int i = 0; i < SEQS; i++)
        kv_seq_done(&s[i]);
    return out;
}

static void same(const char *what, const struct setting *s, const float *a, const float *b, int vocab)
{
    size_t n = (size_t)TOKENS * (size_t)vocab;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s, %s activations, %s KV, %d threads, %s: row %zu column %zu is %.9g, expected %.9g", s->model,
                     s->activations, s->kv, s->threads, what, i / (size_t)vocab, i % (size_t)vocab, (double)b[i],
                     (double)a[i]);
    }
}

static void check_setting(struct setting s)
{
    static const int chunks[] = {1, 7, 64, 512};
    int32_t ids[TOKENS];
    float *first = NULL;
    for (s.threads = 1; s.threads <= 2; s.threads++) {
        struct runner *r = open_runner(&s);
        draw(ids, TOKENS, r->model->vocab, 0);
        for (int c = 0; c < 4; c++) {
            char what[32];
            snprintf(what, sizeof what, "chunks of %d", chunks[c]);
            float *got = logits_of(r, ids, chunks[c]);
            if (first)
                same(what, &s, first, got, r->model->vocab);
            else
                first = got;
            if (got != first)
                free(got);
        }
        float *got = logits_in_company(r, ids);
        same("in company", &s, first, got, r->model->vocab);
        free(got);
        assert_int_equal(kv_pool_free_pages(r->pool), kv_pool_pages(r->pool));
        runner_close(r);
    }
    free(first);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-f32", "mistral-bf16", "qwen3-f16", "gguf-llama-q4_k",
                                         "gguf-llama-q8_0", "qwen35-f32", "gguf-qwen35-q8_0"};
    static const char *const kvs[] = {"f16", "f32", "q8"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (int kv = 0; kv < 3; kv++) {
            check_setting((struct setting){models[m], "int8", kvs[kv], 0});
            if (kv == 0)
                check_setting((struct setting){models[m], "f32", kvs[kv], 0});
        }
    }
}

// Activations and KV change the numbers a little: were they ignored, nothing else here would notice.
static void test_settings_matter(void **state)
{
    (void)state;
    static const struct setting all[] = {{"gguf-llama-q8_0", "f32", "f32", 1}, {"gguf-llama-q8_0", "int8", "f32", 1},
                                         {"gguf-llama-q8_0", "f32", "f16", 1}, {"gguf-llama-q8_0", "f32", "q8", 1}};
    float *got[4];
    int32_t ids[TOKENS];
    size_t n = 0;
    for (int i = 0; i < 4; i++) {
        struct runner *r = open_runner(&all[i]);
        draw(ids, TOKENS, r->model->vocab, 0);
        got[i] = logits_of(r, ids, 64);
        n = (size_t)TOKENS * (size_t)r->model->vocab;
        runner_close(r);
    }
    for (int i = 1; i < 4; i++)
        assert_memory_not_equal(got[0], got[i], n * sizeof(float));
    for (int i = 0; i < 4; i++)
        free(got[i]);
}

static void test_steps_are_checked(void **state)
{
    (void)state;
    struct runner *r = open_runner(&(struct setting){"llama-rope-dynamic", "f32", "f32", 1});
    struct kv_seq s;
    err e = {0};
    int32_t ids[MAX_ROWS] = {0};
    kv_seq_init(&s, r->pool);
    assert_int_equal(r->model->context, 256);  // 64 trained positions, factor 4
    ids[3] = r->model->vocab;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 4, PIECE_LAST}, 1, &e), ERR_INVALID);
    ids[3] = -1;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 4, PIECE_LAST}, 1, &e), ERR_INVALID);
    ids[3] = 0;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 257, PIECE_LAST}, 1, &e), ERR_CONTEXT);
    run(r, &(struct piece){&s, ids, 256, PIECE_LAST}, 1);
    assert_int_equal(s.len, 256);
    kv_seq_done(&s);
    runner_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_settings_matter),
        cmocka_unit_test(test_steps_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
