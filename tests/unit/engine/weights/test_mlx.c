// MLX folders: parts that belong together become one tensor; those that do not are refused, naming the tensor.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/weights/shard.h"
#include "engine/weights/weights.h"

enum { TENSORS = 4 };

static char folder[] = "/tmp/oxinferd-mlx-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static void file_in(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", folder, name);
}

static int teardown(void **state)
{
    (void)state;
    char path[128];
    file_in(path, sizeof path, "config.json");
    unlink(path);
    file_in(path, sizeof path, "model.safetensors");
    unlink(path);
    return rmdir(folder);
}

static const struct shard_tensor good[TENSORS] = {
    {"a.weight", "U32", {8, 16}, 2, 8 * 16 * 4},  // 128 columns of 4 bits
    {"a.scales", "F16", {8, 2}, 2, 32},
    {"a.biases", "F16", {8, 2}, 2, 32},
    {"b.weight", "F16", {4}, 1, 8},
};

static const char config[] = "{\"architectures\": [\"LlamaForCausalLM\"], \"quantization\": {\"group_size\": 64, \"bits\": 4}}";

static void write_model(const struct shard_tensor *tensors, size_t n, const char *text)
{
    static const uint8_t zeros[4096];
    char path[128];
    struct shard s;
    err e = {0};
    file_in(path, sizeof path, "model.safetensors");
    unlink(path);
    json_t *metadata = json_pack("{s:s}", "format", "mlx");
    assert_int_equal(shard_open(&s, path, metadata, tensors, n, &e), ERR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(shard_write(&s, zeros, tensors[i].bytes, &e), ERR_OK);
    assert_int_equal(shard_close(&s, &e), ERR_OK);
    json_decref(metadata);
    file_in(path, sizeof path, "config.json");
    unlink(path);
    assert_int_equal(shard_write_file(path, text, strlen(text), &e), ERR_OK);
}

static void test_joins(void **state)
{
    (void)state;
    struct weights *w;
    err e = {0};
    write_model(good, TENSORS, config);
    if (weights_open(folder, &w, &e))
        fail_msg("%s", e.text);
    assert_int_equal(weights_count(w), 2);
    const struct tensor *t = weights_find(w, "a.weight");
    assert_non_null(t);
    assert_int_equal(t->type, QUANT_MLX4);
    assert_int_equal(t->shape[0], 8);
    assert_int_equal(t->shape[1], 128);
    assert_int_equal(t->parts->group, 64);
    assert_int_equal(t->parts->number, QUANT_NUMBER_F16);
    assert_null(weights_find_raw(w, "a.scales"));
    assert_int_equal(weights_bytes(w), 512 + 32 + 32 + 8);
    // Who reads tensors itself does not get one whose rows are no blocks.
    assert_int_equal(weights_need(w, "a.weight", &t, &e), ERR_UNSUPPORTED);
    weights_close(w);
}

static void expect(const struct shard_tensor *tensors, size_t n, const char *text, err_code code, const char *says)
{
    struct weights *w = NULL;
    err e = {0};
    write_model(tensors, n, text);
    err_code got = weights_open(folder, &w, &e);
    weights_close(w);
    if (got != code || !strstr(e.text, says))
        fail_msg("code %d, expected %d: '%s', expected it to say '%s'", (int)got, (int)code, e.text, says);
}

static void change(int i, struct shard_tensor with, err_code code, const char *says)
{
    struct shard_tensor t[TENSORS];
    memcpy(t, good, sizeof t);
    t[i] = with;
    expect(t, TENSORS, config, code, says);
}

static void test_refuses(void **state)
{
    (void)state;
    change(1, (struct shard_tensor){"x.scales", "F16", {8, 2}, 2, 32}, ERR_CORRUPT, "'a.scales' is missing");
    change(2, (struct shard_tensor){"x.biases", "F16", {8, 2}, 2, 32}, ERR_CORRUPT, "'a.biases' is missing");
    change(1, (struct shard_tensor){"a.scales", "F16", {8, 4}, 2, 64}, ERR_CORRUPT, "'a.scales' has shape [8, 4], expected [8, 2]");
    change(2, (struct shard_tensor){"a.biases", "F16", {16}, 1, 32}, ERR_CORRUPT, "'a.biases' has shape [16], expected [8, 2]");
    change(2, (struct shard_tensor){"a.biases", "F32", {8, 2}, 2, 64}, ERR_CORRUPT, "expected F16 as the scales");
    change(1, (struct shard_tensor){"a.scales", "I16", {8, 2}, 2, 32}, ERR_CORRUPT, "stored as I16, expected F16, BF16 or F32");
    change(0, (struct shard_tensor){"a.weight", "U32", {8, 12}, 2, 8 * 12 * 4}, ERR_CORRUPT, "'a.weight' has shape [8, 12]");
    change(0, (struct shard_tensor){"a.weight", "U32", {128}, 1, 512}, ERR_CORRUPT, "'a.weight' has shape [128]");
    change(0, (struct shard_tensor){"a.weight", "U32", {8, 0}, 2, 0}, ERR_CORRUPT, "'a.weight' has shape [8, 0]");
    static const struct {
        const char *settings, *says;
        err_code code;
    } bad[] = {
        {"{\"group_size\": 64, \"bits\": 7}", "of 7 bits is not built", ERR_UNSUPPORTED},
        {"{\"group_size\": 64, \"bits\": 0}", "of 0 bits is not built", ERR_UNSUPPORTED},
        {"{\"group_size\": 48, \"bits\": 4}", "groups of 48", ERR_UNSUPPORTED},
        {"{\"group_size\": 0, \"bits\": 4}", "groups of 0", ERR_UNSUPPORTED},
        {"{\"group_size\": -64, \"bits\": 4}", "groups of -64", ERR_UNSUPPORTED},
        {"{\"group_size\": 64, \"bits\": 8}", "expected [8, 1]", ERR_CORRUPT},
        {"{\"group_size\": 64, \"bits\": 3}", "'a.weight' has shape [8, 16]", ERR_CORRUPT},
        {"{\"group_size\": 32, \"bits\": 8, \"mode\": \"mxfp8\"}", "MLX mode 'mxfp8' of 8 bits is not built", ERR_UNSUPPORTED},
        {"{\"group_size\": 64, \"bits\": 4, \"a\": {\"bits\": 2}}", "'a.scales' has shape [8, 2], expected [8, 4]", ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"architectures\": [\"LlamaForCausalLM\"], \"quantization\": %s}", bad[i].settings);
        expect(good, TENSORS, text, bad[i].code, bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_joins), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
