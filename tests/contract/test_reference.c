// Every text family against transformers: logits, and 32 greedy tokens, with f32 activations and an f32 KV cache.
//
// Allowed: 1e-5 of the spread of the logits (largest minus smallest). Observed: 2.3e-07 to 7.0e-07; Qwen3.5, whose reference takes
// the delta rule in chunks of 64, up to 2.0e-06.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "engine/tools/runner.h"
#include "tests/helpers/models.h"

enum { STEP = 64 };

static const char *const models[] = {
    "llama-f32", "llama-bias-f16", "llama-rope-linear", "llama-rope-dynamic", "llama-rope-yarn",
    "llama-rope-yarn-mscale", "llama-rope-llama3", "mistral-bf16", "qwen2-bf16", "qwen2-window", "qwen3-f16", "gguf-llama-f16", "gguf-llama-q8_0",
    "gguf-qwen2-q4_0", "gguf-qwen3-f32", "gguf-llama-q4_k",
    "keys-llama", "keys-mistral", "keys-qwen2", "keys-rope", "keys-bare",
    "qwen35-f32", "qwen35-vl-bf16", "gguf-qwen35-q8_0",
    "mlx-llama-mixed-f16", "mlx-llama-mixed-bf16", "mlx-llama-mixed-f32", "mlx-qwen3-4bit", "mlx-qwen3-mxfp4", "mlx-qwen3-nvfp4",
    "qwen3moe-f32", "qwen3moe-dense-bf16", "qwen3moe-stack-f16", "qwen2moe-f32", "qwen2moe-stack-bf16",
    "gguf-qwen3moe-f32", "gguf-qwen3moe-q4_0", "gguf-qwen3moe-q4_k", "gguf-qwen2moe-q8_0",
};

// Folders of adapters that also have what their base gives with them (tests/reference/make_qwen35.py).
static const struct { const char *base, *adapter; } adapters[] = {
    {"qwen35-f32", "lora-qwen35"}, {"qwen35-vl-bf16", "lora-qwen35-vl"}, {"llama-f32", "lora-llama"},
    {"gguf-qwen35-q8_0", "lora-gguf-qwen35"}, {"gguf-llama-f16", "lora-gguf-llama"},
};

static void step(struct runner *r, struct kv_seq *s, const int32_t *ids, int n, enum piece_out out)
{
    err e = {0};
    if (runner_step(r, &(struct piece){s, ids, n, out}, 1, &e))
        fail_msg("%s", e.text);
}

static double check_prompt(struct runner *r, struct kv_seq *s, const struct models_case *c)
{
    double worst = 0;
    for (int at = 0, n, next = 0; at < c->nids; at += n) {
        n = c->nids - at < STEP ? c->nids - at : STEP;
        step(r, s, c->ids + at, n, PIECE_ALL);
        for (; next < c->nrows && c->rows[next] < at + n; next++) {
            const float *got = r->logits + (size_t)(c->rows[next] - at) * (size_t)r->model->vocab;
            double d = models_difference(got, c->logits + (size_t)next * (size_t)r->model->vocab, r->model->vocab);
            worst = d > worst || isnan(d) ? d : worst;
        }
    }
    return worst;
}

static double check_case(struct runner *r, const struct models_case *c)
{
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    double worst = check_prompt(r, &s, c);
    const float *last = r->logits + (size_t)(r->nout - 1) * (size_t)r->model->vocab;
    for (int i = 0; i < MODELS_GREEDY; i++) {
        int32_t id = r->ops->argmax(last, r->model->vocab);
        if (id != c->greedy[i])
            fail_msg("prompt of %d: greedy token %d is %d, expected %d", c->nids, i, id, c->greedy[i]);
        step(r, &s, &id, 1, PIECE_LAST);
        last = r->logits;
    }
    kv_seq_done(&s);
    return worst;
}

static void check_model(const char *base, const char *name)
{
    struct models_expected x;
    char lora[256];
    models_load(name, &x);
    snprintf(lora, sizeof lora, "%s", models_path(name));
    struct tools_model t = {.path = models_path(base), .activations = "f32", .kv = "f32", .threads = 1,
                            .lora = base == name ? NULL : lora};
    struct runner *r;
    err e = {0};
    if (runner_open(&t, STEP, 1, STEP, 1024, false, &r, &e))
        fail_msg("%s: %s", name, e.text);
    assert_int_equal(r->model->vocab, x.vocab);
    double worst = 0;
    for (int i = 0; i < x.ncases; i++) {
        double d = check_case(r, &x.cases[i]) / x.spread;
        worst = d > worst || isnan(d) ? d : worst;
    }
    printf("%-24s largest difference %.1e of the spread\n", name, worst);
    if (!(worst <= 1e-5))
        fail_msg("%s: logits differ by %.2e of their spread", name, worst);
    runner_close(r);
    models_free(&x);
}

static void test_models_agree_with_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_model(models[i], models[i]);
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        check_model(adapters[i].base, adapters[i].adapter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models_agree_with_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
