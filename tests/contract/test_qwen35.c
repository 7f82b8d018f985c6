// State and adapters under the exactness rule: every instruction set, forks in the middle, a sequence begun again, steps
// with and without the adapter in any order; and what is wrong with an adapter is said by name.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/family/family.h"
#include "engine/tools/runner.h"
#include "kernels/team.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/models.h"

enum { TOKENS = 70, STEP = 32 };

struct setting {
    const char *model, *lora, *activations, *isa;
    int threads;
};

static struct runner *try_open(const struct setting *s, const char *lora, err *e)
{
    struct runner *r = NULL;
    struct tools_model t = {.path = models_path(s->model), .activations = s->activations, .kv = "f16", .isa = s->isa,
                            .threads = s->threads, .lora = lora};
    return runner_open(&t, STEP, 2, STEP, 1024, false, &r, e) ? NULL : r;
}

static struct runner *open_runner(const struct setting *s)
{
    err e = {0};
    char lora[256];
    if (s->lora)
        snprintf(lora, sizeof lora, "%s", models_path(s->lora));
    struct runner *r = try_open(s, s->lora ? lora : NULL, &e);
    if (!r && e.code != ERR_UNSUPPORTED)
        fail_msg("%s: %s", s->model, e.text);
    return r;
}

static void draw(int32_t *ids, int vocab, int salt)
{
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(rng_u64(9, (uint64_t)i, (uint64_t)salt) % (uint64_t)vocab);
}

static void feed(struct runner *r, struct kv_seq *s, const int32_t *ids, int n, float *out)
{
    err e = {0};
    if (runner_step(r, &(struct piece){s, ids, n, PIECE_ALL}, 1, &e))
        fail_msg("%s", e.text);
    memcpy(out, r->logits, (size_t)n * (size_t)r->model->vocab * sizeof *out);
}

static float *logits_of(struct runner *r, const int32_t *ids, int from, int chunk, struct kv_seq *s)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc(TOKENS * vocab, sizeof *out);
    for (int at = from, n; at < TOKENS; at += n) {
        n = TOKENS - at < chunk ? TOKENS - at : chunk;
        feed(r, s, ids + at, n, out + (size_t)at * vocab);
    }
    return out;
}

static float *alone(struct runner *r, const int32_t *ids, int chunk)
{
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    float *out = logits_of(r, ids, 0, chunk, &s);
    kv_seq_done(&s);
    return out;
}

static size_t bytes_of(const struct runner *r, int rows)
{
    return (size_t)rows * (size_t)r->model->vocab * sizeof(float);
}

static void test_instruction_sets(void **state)
{
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    static const struct { const char *model, *lora, *activations; } all[] = {
        {"qwen35-f32", NULL, "f32"}, {"qwen35-vl-bf16", "lora-qwen35-vl", "f32"}, {"gguf-qwen35-q8_0", NULL, "int8"}};
    int32_t ids[TOKENS];
    for (size_t m = 0; m < sizeof all / sizeof *all; m++) {
        float *first = NULL;
        for (int i = 0; i < 3; i++) {
            struct runner *r = open_runner(&(struct setting){all[m].model, all[m].lora, all[m].activations, isas[i], 2});
            if (!r)
                continue;
            draw(ids, r->model->vocab, 1);
            float *got = alone(r, ids, i ? 29 : 31);
            if (!first)
                first = got;
            else if (memcmp(first, got, bytes_of(r, TOKENS)) != 0)
                fail_msg("%s on %s differs from scalar", all[m].model, isas[i]);
            if (got != first)
                free(got);
            runner_close(r);
        }
        free(first);
    }
}

// A fork goes on as if it had been alone; so does the one it was made from, and a sequence in whose memory another was.
static void test_fork_and_again(void **state)
{
    (void)state;
    struct runner *r = open_runner(&(struct setting){"qwen35-f32", NULL, "int8", NULL, 2});
    int32_t a[TOKENS], b[TOKENS];
    draw(a, r->model->vocab, 1);
    draw(b, r->model->vocab, 2);
    int at = 37;
    memcpy(b, a, (size_t)at * sizeof *a);
    float *want_a = alone(r, a, 16), *want_b = alone(r, b, 5);
    size_t begin = (size_t)at * (size_t)r->model->vocab;
    struct kv_seq s, f;
    kv_seq_init(&s, r->pool);
    float *scrap = calloc(TOKENS, bytes_of(r, 1));
    feed(r, &s, a, 20, scrap);
    feed(r, &s, a + 20, at - 20, scrap);
    assert_true(kv_seq_fork(&s, &f));
    float *got_b = logits_of(r, b, at, 7, &f), *got_a = logits_of(r, a, at, 3, &s);
    assert_memory_equal(want_a + begin, got_a + begin, bytes_of(r, TOKENS - at));
    assert_memory_equal(want_b + begin, got_b + begin, bytes_of(r, TOKENS - at));
    kv_seq_done(&f);
    kv_seq_done(&s);
    float *again = logits_of(r, a, 0, 32, &s);  // the same struct, as after a preemption
    assert_memory_equal(want_a, again, bytes_of(r, TOKENS));
    kv_seq_done(&s);
    assert_int_equal(kv_pool_free_pages(r->pool), kv_pool_pages(r->pool));
    free(want_a);
    free(want_b);
    free(got_a);
    free(got_b);
    free(again);
    free(scrap);
    runner_close(r);
}

// One sequence with the adapter and one without, in steps that take turns, against a model that never had one and against
// one whose adapter is always on.
static void check_switch(const char *model, const char *lora, const char *activations)
{
    int32_t ids[TOKENS];
    struct runner *plain = open_runner(&(struct setting){model, NULL, activations, NULL, 1});
    draw(ids, plain->model->vocab, 1);
    float *want_off = alone(plain, ids, 32), *want_on = NULL;
    for (int threads = 1; threads <= 2; threads++) {
        struct runner *r = open_runner(&(struct setting){model, lora, activations, NULL, threads});
        size_t vocab = (size_t)r->model->vocab;
        if (!want_on)
            want_on = alone(r, ids, 32);
        assert_true(memcmp(want_on, want_off, bytes_of(r, TOKENS)) != 0);
        struct kv_seq on, off;
        kv_seq_init(&on, r->pool);
        kv_seq_init(&off, r->pool);
        float *out = calloc(1, bytes_of(r, STEP));
        for (int a = 0, b = 0, round = 1; a < TOKENS || b < TOKENS; round++) {
            int n = 1 + round * 5 % 13, k = n < TOKENS - a ? n : TOKENS - a;
            r->adapter = true;
            if (k)
                feed(r, &on, ids + a, k, out);
            assert_memory_equal(out, want_on + (size_t)a * vocab, bytes_of(r, k));
            a += k;
            k = 3 < TOKENS - b ? 3 : TOKENS - b;
            r->adapter = false;
            if (k)
                feed(r, &off, ids + b, k, out);
            assert_memory_equal(out, want_off + (size_t)b * vocab, bytes_of(r, k));
            b += k;
        }
        kv_seq_done(&on);
        kv_seq_done(&off);
        free(out);
        runner_close(r);
    }
    free(want_on);
    free(want_off);
    runner_close(plain);
}

static void test_switch(void **state)
{
    (void)state;
    check_switch("qwen35-f32", "lora-qwen35", "f32");
    check_switch("qwen35-vl-bf16", "lora-qwen35-vl", "int8");
    check_switch("llama-f32", "lora-llama", "int8");
    check_switch("gguf-qwen35-q8_0", "lora-gguf-qwen35", "int8");
}

struct step_run {
    const struct model *m;
    const struct batch *b;
};

static void forward(struct lane *lane, void *arg)
{
    const struct step_run *w = arg;
    w->m->family->gen->forward(w->m, w->b, lane);
}

// Hidden states instead of logits: a row of the head times the state is the logit, with the head's own pair too.
static void test_head_rows(void **state)
{
    (void)state;
    struct runner *r = open_runner(&(struct setting){"qwen35-vl-bf16", "lora-qwen35-vl", "f32", NULL, 2});
    const struct model *m = r->model;
    int32_t ids[TOKENS], pos[3] = {0, 1, 2}, rows[] = {0, 2};
    draw(ids, m->vocab, 1);
    float *want = alone(r, ids, 3), hidden[2 * 64], row[64];
    assert_in_range(m->hidden, 1, 64);
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    assert_true(kv_seq_reserve(&s, 3));
    struct batch_seq bs = {0, 3, 0, &s};
    struct batch b = {.rows = 3, .nseqs = 1, .nout = 2, .ids = ids, .pos = pos, .seqs = &bs, .out_rows = rows,
                      .hidden = hidden, .adapter = true, .scratch = r->scratch};
    team_run(r->team, forward, &(struct step_run){m, &b});
    double worst = 0;
    for (int id = 0; id < m->vocab; id += 7) {
        m->family->gen->head_row(m, id, true, row);
        for (int i = 0; i < 2; i++) {
            double dot = 0;
            for (int k = 0; k < m->hidden; k++)
                dot += (double)row[k] * (double)hidden[i * m->hidden + k];
            worst = fmax(worst, fabs(dot - (double)want[(size_t)rows[i] * (size_t)m->vocab + (size_t)id]));
        }
    }
    assert_true(worst < 1e-5);  // logits to 40; observed 1.8e-6
    kv_seq_done(&s);
    free(want);
    runner_close(r);
}

// ---- chats

static struct task *chat_task(enum task_kind kind, const char *kwargs)
{
    struct task *t = task_new(kind);
    t->model = "m";
    struct prompt *p = kind == TASK_RENDER ? &t->tokenize.prompt : &t->generate.prompt;
    p->messages = json_loads("[{\"role\": \"user\", \"content\": \"hi\"}]", 0, NULL);
    arena_defer(&t->arena, (arena_release *)json_decref, p->messages);
    p->kwargs = kwargs ? json_loads(kwargs, 0, NULL) : NULL;
    arena_defer(&t->arena, (arena_release *)json_decref, p->kwargs);
    p->add_generation_prompt = true;
    return t;
}

static void run_task(struct engine *en, struct task *t, struct client *c)
{
    client_must_submit(c, en, t);
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
}

// config.json's end is <|endoftext|>, but a turn ends with <|im_end|>. The bias makes one of them certain.
static void check_end(struct engine *en, int32_t id, enum finish want, int tokens)
{
    struct client c = {0};
    struct task *t = chat_task(TASK_GENERATE, NULL);
    t->generate.sampling.temperature = 0;
    t->generate.sampling.bias = &(struct logit_bias){id, 100};
    t->generate.sampling.nbias = 1;
    t->generate.max_tokens = 5;
    run_task(en, t, &c);
    assert_int_equal(c.finish[0], want);
    assert_int_equal(c.usage.completion_tokens, tokens);
    client_done(&c);
}

static void test_chat(void **state)
{
    (void)state;
    struct engine_config c = {.threads = 1, .kv_bytes = 1 << 22};
    struct model_config m = {.name = "m", .path = "tests/fixtures/models/qwen35-chat"};
    struct engine *en = engines_open(&c, &m);
    static const char *const ends[][2] = {{NULL, "<think>\n"}, {"{\"enable_thinking\": true}", "<think>\n"},
                                          {"{\"enable_thinking\": false}", "<think>\n\n</think>\n\n"}};
    for (int i = 0; i < 3; i++) {
        struct client r = {0};
        char want[128];
        snprintf(want, sizeof want, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n%s", ends[i][1]);
        run_task(en, chat_task(TASK_RENDER, ends[i][0]), &r);
        assert_string_equal(r.text[0].data, want);
        client_done(&r);
    }
    check_end(en, 256, FINISH_STOP, 1);    // <|endoftext|>
    check_end(en, 258, FINISH_STOP, 1);    // <|im_end|>
    check_end(en, 257, FINISH_LENGTH, 5);  // <|im_start|>
    engine_close(en);
}

// ---- adapters that do not fit

static const struct models_files adapter_files = {"adapter_config.json", "adapter_model.safetensors"};

static void test_refusals(void **state)
{
    (void)state;
    static const struct { const char *model, *lora, *change; err_code code; const char *says; } all[] = {
        {"llama-f32", "lora-llama", "{}", ERR_OK, ""},
        {"llama-f32", "lora-llama", "{\"use_dora\": true}", ERR_UNSUPPORTED, "DoRA"},
        {"llama-f32", "lora-llama", "{\"bias\": \"all\"}", ERR_UNSUPPORTED, "bias 'all'"},
        {"llama-f32", "lora-llama", "{\"modules_to_save\": [\"lm_head\"]}", ERR_UNSUPPORTED, "modules_to_save"},
        {"llama-f32", "lora-llama", "{\"peft_type\": \"IA3\"}", ERR_UNSUPPORTED, "IA3"},
        {"llama-f32", "lora-llama", "{\"init_lora_weights\": \"pissa_niter_4\"}", ERR_UNSUPPORTED, "pissa_niter_4"},
        {"llama-f32", "lora-llama", "{\"rank_pattern\": {\"up_proj|q_proj\": 9}}", ERR_UNSUPPORTED, "up_proj|q_proj"},
        {"llama-f32", "lora-llama", "{\"rank_pattern\": {\"up_proj\": 400}}", ERR_CORRUPT, "400"},
        {"llama-f32", "lora-llama", "{\"r\": 0}", ERR_CORRUPT, "rank 'r' is 0"},
        {"llama-f32", "lora-llama", "{\"lora_alpha\": null}", ERR_CORRUPT, "lora_alpha"},
        {"llama-f32", "lora-llama", "{\"r\": 6}", ERR_CORRUPT, "has shape [5, 72], expected [6, 72]"},
        {"llama-f32", "lora-llama", "{\"rank_pattern\": {}}", ERR_CORRUPT, "layers.1.mlp.up_proj.lora_A.weight' has shape [9, 72]"},
        {"llama-f32", "lora-qwen35", "{}", ERR_CORRUPT, "expected ["},
        {"qwen35-vl-bf16", "lora-qwen35", "{}", ERR_CORRUPT, "has shape"},
        {"qwen3-f16", "lora-llama", "{}", ERR_CORRUPT, "has shape"},
        {"keys-bare", "lora-llama", "{}", ERR_CORRUPT, "has shape"},
        {"gguf-qwen35-q8_0", "lora-qwen35", "{}", ERR_CORRUPT, "has shape"},
        {"gguf-llama-f16", "lora-llama", "{}", ERR_CORRUPT, "has shape"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char folder[64];
        err e = {0};
        models_change(folder, all[i].lora, adapter_files, all[i].change);
        struct runner *r = try_open(&(struct setting){all[i].model, NULL, "f32", NULL, 1}, folder, &e);
        if (e.code != all[i].code || (e.code && !strstr(e.text, all[i].says)))
            fail_msg("%s with %s and %s: '%s', expected '%s'", all[i].model, all[i].lora, all[i].change, e.text, all[i].says);
        runner_close(r);
        models_change_done(folder, adapter_files);
    }
}

// An adapter of layers the model does not have: found only when all linears have taken theirs. The model is llama-f32 with
// its first layer alone.
static void test_unused_tensor(void **state)
{
    (void)state;
    char model[64] = "/tmp/oxinferd-model-XXXXXX", path[512], from[512], cwd[256];
    static const char *const files[] = {"model.safetensors.index.json", "model-00001-of-00004.safetensors",
                                        "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors",
                                        "model-00004-of-00004.safetensors"};
    assert_non_null(mkdtemp(model));
    assert_non_null(getcwd(cwd, sizeof cwd));
    for (int i = 0; i < 5; i++) {
        snprintf(from, sizeof from, "%s/%s/%s", cwd, models_path("llama-f32"), files[i]);
        snprintf(path, sizeof path, "%s/%s", model, files[i]);
        assert_int_equal(symlink(from, path), 0);
    }
    snprintf(from, sizeof from, "%s/config.json", models_path("llama-f32"));
    snprintf(path, sizeof path, "%s/config.json", model);
    json_t *config = json_load_file(from, 0, NULL);
    json_object_set_new(config, "num_hidden_layers", json_integer(1));
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    char lora[256];
    snprintf(lora, sizeof lora, "%s", models_path("lora-llama"));
    struct tools_model t = {.path = model, .threads = 1, .lora = lora};
    struct runner *r = NULL;
    err e = {0};
    assert_int_equal(runner_open(&t, 1, 1, 1, 64, false, &r, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "base_model.model.model.layers.1."));
    assert_non_null(strstr(e.text, "belongs to no weight"));
    unlink(path);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", model, files[i]);
        unlink(path);
    }
    rmdir(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instruction_sets), cmocka_unit_test(test_fork_and_again), cmocka_unit_test(test_switch),
        cmocka_unit_test(test_head_rows),        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_unused_tensor),
        cmocka_unit_test(test_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
