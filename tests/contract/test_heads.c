// Answers of real kernels, in every family that generates text, are the same whether all logits are computed or only those
// that are read: held to a schema and free, alone and together, with runs and drafts, on one lane and two.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "tests/helpers/byte_tokenizer.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/models.h"

enum { TASKS = 6, TOKENS = 60, FREE_TOKENS = 6 };

// Bytes that no token has cannot come: the first 320 of 509 tokens have texts.
static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"alpha-long-name\",\"alpha-longer-name\",\"thing\"]},\"n\":{\"type\":"
    "\"integer\",\"minimum\":0,\"maximum\":9999},\"ok\":{\"type\":\"boolean\"},\"city\":{\"type\":\"string\",\"maxLength\":5}},"
    "\"required\":[\"kind\",\"n\",\"ok\",\"city\"],\"additionalProperties\":false}";

static struct engine *open_engine(const char *name, int threads)
{
    struct engine_config c = {.threads = threads, .kv_bytes = 16 << 20, .max_running = 2 * TASKS, .max_waiting = 40};
    struct model_options o = {.math = MAT_INT8, .kv = KV_F16, .load_threads = 1};
    struct model *m = NULL;
    const struct cpu_ops *ops;
    err e = {0};
    if (cpu_select("auto", &ops, &e) || model_open(models_path(name), &o, ops, &m, &e))
        fail_msg("%s", e.text);
    m->tokenizer = m->tokenizer ? m->tokenizer : byte_tokenizer();
    return engines_open_with(&c, "m", m);
}

// The last one is free and ends before the others; the one before has two choices.
static struct task *task_of(int i, bool all_logits)
{
    int32_t prompt[12];
    for (int k = 0; k < 12; k++)
        prompt[k] = (k * 37 + i * 11) % 256;
    struct task *t = client_task("m", prompt, 12);
    struct generate *g = &t->generate;
    g->max_tokens = i < TASKS - 1 ? TOKENS : FREE_TOKENS;
    g->one_by_one = all_logits;
    g->sampling.temperature = i == 0 ? 0 : 1.5f;
    g->sampling.seed = (uint64_t)i;
    g->sampling.repetition_penalty = i == 1 ? 1.3f : 1;
    g->sampling.min_p = i == 2 ? 0.05f : 0;
    g->ignore_eos = true;
    g->n = i == TASKS - 2 ? 2 : 1;
    if (i < TASKS - 1)
        g->grammar = (struct grammar_request){GRAMMAR_JSON_SCHEMA, schema, strlen(schema), "response_format", NULL};
    return t;
}

static void collect(struct client *c, struct buf *ret_text)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
    for (int k = 0; k < 2; k++)
        buf_add(ret_text, c->text[k].data, c->text[k].len);
    client_done(c);
}

// Returns how many logits were not computed.
static uint64_t run(const char *name, int threads, bool all_logits, bool together, struct buf *ret_texts)
{
    struct engine *en = open_engine(name, threads);
    struct client all[TASKS];
    memset(all, 0, sizeof all);
    for (int i = 0; i < TASKS; i++) {
        client_must_submit(&all[i], en, task_of(i, all_logits));
        if (!together)
            collect(&all[i], &ret_texts[i]);
    }
    for (int i = 0; i < TASKS && together; i++)
        collect(&all[i], &ret_texts[i]);
    uint64_t spared = atomic_load(&engine_metrics(en, "m")->spared_logits);
    engine_close(en);
    return spared;
}

static void test_same(void **state)
{
    static const char *const models[] = {
        "gguf-llama-q4_k", "mistral-bf16", "gguf-qwen2-q4_0", "qwen3-f16", "gguf-qwen35-q8_0", "qwen2moe-f32",
        "gguf-qwen3moe-q4_0",
    };
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct buf want[TASKS], got[TASKS];
        for (int i = 0; i < TASKS; i++)
            buf_init(&want[i], SIZE_MAX);
        assert_int_equal(run(models[m], 1, true, false, want), 0);
        assert_true(want[0].len > 20 && !strncmp(want[0].data, "{", 1));
        for (int way = 0; way < 3; way++) {
            for (int i = 0; i < TASKS; i++)
                buf_init(&got[i], SIZE_MAX);
            assert_true(run(models[m], 1 + (way > 0), false, way != 1, got) > 0);
            for (int i = 0; i < TASKS; i++) {
                if (got[i].len != want[i].len || memcmp(got[i].data, want[i].data, want[i].len) != 0)
                    fail_msg("%s, way %d, task %d: %.*s, expected %.*s", models[m], way, i, (int)got[i].len, got[i].data,
                             (int)want[i].len, want[i].data);
                buf_done(&got[i]);
            }
        }
        for (int i = 0; i < TASKS; i++)
            buf_done(&want[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
