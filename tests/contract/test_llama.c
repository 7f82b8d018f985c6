// The exactness rule on the decoder families: the same bits for any chunking, number of lanes and company in the batch,
// with every kind of activations and KV cache; and errors of damaged or unknown models.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/helpers/samebits.h"

enum { TOKENS = 150 };

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-f32", "mistral-bf16", "qwen3-f16", "gguf-llama-q4_k",
                                         "gguf-llama-q8_0", "qwen35-f32", "gguf-qwen35-q8_0", "mlx-llama-mixed-bf16",
                                         "mlx-qwen3-4bit"};
    static const char *const kvs[] = {"f16", "f32", "q8"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (int kv = 0; kv < 3; kv++) {
            samebits_check((struct samebits){models[m], "int8", kvs[kv], .tokens = TOKENS});
            if (kv == 0)
                samebits_check((struct samebits){models[m], "f32", kvs[kv], .tokens = TOKENS});
            if (kv == 0 && strstr(models[m], "bf16"))
                samebits_check((struct samebits){models[m], "bf16", kvs[kv], .tokens = TOKENS});
        }
    }
}

// Deep in a prompt lanes share the keys of one head (engine/blocks/attn.h), and a window has long left its start.
static void test_same_bits_deep(void **state)
{
    (void)state;
    static const struct samebits all[] = {{"llama-f32", "f32", "f32", .tokens = 700},
                                          {"qwen3-f16", "int8", "f16", .tokens = 700},
                                          {"mistral-bf16", "int8", "q8", .tokens = 650},
                                          {"gguf-llama-q4_k", "int8", "f16", .tokens = 650}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        samebits_check(all[i]);
}

// Activations and KV change the numbers a little: were they ignored, nothing else here would notice.
static void test_settings_matter(void **state)
{
    (void)state;
    static const struct samebits all[] = {{"gguf-llama-q8_0", "f32", "f32", .threads = 1},
                                          {"gguf-llama-q8_0", "int8", "f32", .threads = 1},
                                          {"gguf-llama-q8_0", "f32", "f16", .threads = 1},
                                          {"gguf-llama-q8_0", "f32", "q8", .threads = 1},
                                          {"mistral-bf16", "int8", "f32", .threads = 1},
                                          {"mistral-bf16", "bf16", "f32", .threads = 1}};
    float *got[6];
    int32_t ids[TOKENS];
    size_t n = 0;
    for (int i = 0; i < 6; i++) {
        struct runner *r = samebits_open(&all[i]);
        samebits_draw(ids, TOKENS, r->model->vocab, 0);
        got[i] = samebits_logits(r, ids, TOKENS, 64);
        n = (size_t)TOKENS * (size_t)r->model->vocab;
        runner_close(r);
    }
    for (int i = 1; i < 4; i++)
        assert_memory_not_equal(got[0], got[i], n * sizeof(float));
    assert_memory_not_equal(got[4], got[5], n * sizeof(float));  // n is theirs
    for (int i = 0; i < 6; i++)
        free(got[i]);
}

static void test_steps_are_checked(void **state)
{
    (void)state;
    struct runner *r = samebits_open(&(struct samebits){"llama-rope-dynamic", "f32", "f32", .threads = 1});
    struct kv_seq s;
    err e = {0};
    int32_t ids[SAMEBITS_ROWS] = {0};
    kv_seq_init(&s, r->pool);
    assert_int_equal(r->model->context, 256);  // 64 trained positions, factor 4
    ids[3] = r->model->vocab;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 4, PIECE_LAST}, 1, &e), ERR_INVALID);
    ids[3] = -1;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 4, PIECE_LAST}, 1, &e), ERR_INVALID);
    ids[3] = 0;
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 257, PIECE_LAST}, 1, &e), ERR_CONTEXT);
    assert_int_equal(runner_step(r, &(struct piece){&s, ids, 256, PIECE_LAST}, 1, &e), ERR_OK);
    assert_int_equal(s.len, 256);
    kv_seq_done(&s);
    runner_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_deep),
        cmocka_unit_test(test_settings_matter),
        cmocka_unit_test(test_steps_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
