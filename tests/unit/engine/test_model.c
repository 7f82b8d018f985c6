// Opening models: what is refused, and that the text says what was found and what was expected.
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

#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/tools.h"

static const char *const shards[] = {
    "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors",
    "model-00004-of-00004.safetensors", "model.safetensors.index.json",
};
enum { SHARDS = sizeof shards / sizeof *shards };

struct folder {
    char path[64];
};

static void link_shards(const struct folder *f)
{
    char from[512], to[256], cwd[256];
    assert_non_null(getcwd(cwd, sizeof cwd));
    for (int i = 0; i < SHARDS; i++) {
        snprintf(from, sizeof from, "%s/tests/fixtures/models/llama-f32/%s", cwd, shards[i]);
        snprintf(to, sizeof to, "%s/%s", f->path, shards[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}

// The tiny Llama with one key of its config.json replaced (value: JSON text; NULL removes the key).
static struct folder changed(const char *key, const char *value)
{
    struct folder f = {"/tmp/oxinferd-test-XXXXXX"};
    char path[128];
    assert_non_null(mkdtemp(f.path));
    link_shards(&f);
    json_t *config = json_load_file("tests/fixtures/models/llama-f32/config.json", 0, NULL);
    assert_non_null(config);
    if (value)
        json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(config, key);
    snprintf(path, sizeof path, "%s/config.json", f.path);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    return f;
}

static void remove_folder(const struct folder *f)
{
    char path[256];
    for (int i = 0; i < SHARDS; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, shards[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/config.json", f->path);
    unlink(path);
    rmdir(f->path);
}

static err_code open_at(const char *path, int context, struct model **ret_model, err *e)
{
    const struct cpu_ops *ops;
    struct model_options o = {.math = MAT_INT8, .kv = KV_F16, .context = context, .load_threads = 2};
    assert_int_equal(cpu_select("auto", &ops, e), ERR_OK);
    return model_open(path, &o, ops, ret_model, e);
}

static void test_config_errors(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        err_code code;
        const char *text[3];
    } cases[] = {
        {"architectures", "[\"MambaForCausalLM\"]", ERR_UNSUPPORTED, {"MambaForCausalLM", "LlamaForCausalLM", "qwen3"}},
        {"hidden_size", "80", ERR_CORRUPT, {"model.layers.0.input_layernorm.weight", "[72]", "[80]"}},
        {"intermediate_size", "192", ERR_CORRUPT, {"mlp.gate_proj.weight", "[176, 72]", "[192, 72]"}},
        {"vocab_size", "510", ERR_CORRUPT, {"embed_tokens.weight", "[509, 72]", "[510, 72]"}},
        {"num_hidden_layers", "3", ERR_CORRUPT, {"model.layers.2.input_layernorm.weight", "missing", ""}},
        {"num_hidden_layers", NULL, ERR_CORRUPT, {"num_hidden_layers", "missing", ""}},
        {"num_hidden_layers", "\"two\"", ERR_CORRUPT, {"num_hidden_layers", "an integer", ""}},
        {"num_hidden_layers", "100000000", ERR_CORRUPT, {"num_hidden_layers", "1e+08", "4096"}},
        {"num_key_value_heads", "2", ERR_CORRUPT, {"9 attention heads", "2 KV heads", ""}},
        {"num_key_value_heads", "[3, 3]", ERR_UNSUPPORTED, {"num_key_value_heads", "list", ""}},
        {"head_dim", "15", ERR_UNSUPPORTED, {"15", "even", ""}},
        {"hidden_act", "\"gelu\"", ERR_UNSUPPORTED, {"hidden_act", "gelu", "silu"}},
        {"rope_parameters", "{\"rope_type\": \"longrope\", \"factor\": 2}", ERR_UNSUPPORTED, {"longrope", "yarn", ""}},
        {"rope_parameters", "{\"rope_type\": \"linear\"}", ERR_CORRUPT, {"linear", "factor", ""}},
        {"rope_parameters", "{\"rope_theta\": -5}", ERR_CORRUPT, {"rope_theta", "-5", ""}},
        {"quantization_config", "{\"quant_method\": \"gptq\"}", ERR_UNSUPPORTED, {"gptq", "", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder f = changed(cases[i].key, cases[i].value);
        struct model *m = NULL;
        err e = {0};
        if (open_at(f.path, 0, &m, &e) != cases[i].code)
            fail_msg("%s = %s: code %d, text '%s'", cases[i].key, cases[i].value, e.code, e.text);
        for (int k = 0; k < 3; k++) {
            if (!strstr(e.text, cases[i].text[k]))
                fail_msg("%s = %s: '%s' is not in '%s'", cases[i].key, cases[i].value, cases[i].text[k], e.text);
        }
        assert_null(m);
        remove_folder(&f);
    }
}

// What older files say about RoPE that is not scaled.
static void test_null_is_absent(void **state)
{
    (void)state;
    static const char *const keys[] = {"rope_scaling", "rope_parameters", "quantization_config", "sliding_window"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct folder f = changed(keys[i], "null");
        struct model *m = NULL;
        err e = {0};
        if (open_at(f.path, 0, &m, &e))
            fail_msg("%s = null: %s", keys[i], e.text);
        model_close(m);
        remove_folder(&f);
    }
}

static void test_context(void **state)
{
    (void)state;
    struct model *m = NULL;
    err e = {0};
    const char *path = "tests/fixtures/models/llama-f32";
    assert_int_equal(open_at(path, 0, &m, &e), ERR_OK);
    assert_int_equal(m->context, 1024);
    assert_string_equal(m->family->name, "llama");
    assert_null(m->tokenizer);
    assert_true(m->tokenizer_error.text[0] != 0);
    model_close(m);
    assert_int_equal(open_at(path, 100, &m, &e), ERR_OK);
    assert_int_equal(m->context, 100);
    model_close(m);
    m = NULL;
    assert_int_equal(open_at(path, 1025, &m, &e), ERR_INVALID);
    assert_null(m);
    assert_int_equal(open_at("tests/fixtures/models/none", 0, &m, &e), ERR_NOT_FOUND);
    model_close(NULL);
}

static char *output_of(err_code (*run)(FILE *, err *), err_code expected)
{
    char *text = NULL;
    size_t n;
    err e = {0};
    FILE *f = open_memstream(&text, &n);
    if (run(f, &e) != expected)
        fail_msg("code %d: %s", e.code, e.text);
    fclose(f);
    return text;
}

static err_code show(FILE *f, err *e)
{
    return tools_show(&(struct tools_model){.path = "tests/fixtures/models/gguf-llama-q8_0/model.gguf"}, f, e);
}

static err_code show_picture(FILE *f, err *e)
{
    return tools_show(&(struct tools_model){.path = "tests/fixtures/sd/tiny-sd1"}, f, e);
}

static err_code show_judge(FILE *f, err *e)
{
    return tools_show(&(struct tools_model){.path = "tests/fixtures/decide/judge"}, f, e);
}

static err_code bench(FILE *f, err *e)
{
    struct tools_bench b = {.prompt = 40, .generate = 3, .depth = 70, .parallel = 2, .reps = 2};
    return tools_bench(&(struct tools_model){.path = "tests/fixtures/models/gguf-llama-q8_0/model.gguf", .threads = 1},
                       &b, f, e);
}

static err_code bad_bench(FILE *f, err *e)
{
    struct tools_bench b = {.prompt = 40, .generate = 3, .parallel = 0};
    return tools_bench(&(struct tools_model){.path = "tests/fixtures/models/gguf-llama-q8_0/model.gguf", .threads = 1},
                       &b, f, e);
}

static err_code logits(FILE *f, err *e)
{
    int32_t ids[] = {1, 2, 3, 4, 5};
    return tools_logits(&(struct tools_model){.path = "tests/fixtures/models/llama-f32", .threads = 1}, ids, 5, true,
                        2, f, e);
}

static void test_commands(void **state)
{
    (void)state;
    char *text = output_of(show, ERR_OK);
    assert_non_null(strstr(text, "family       llama (llama), GGUF"));
    assert_non_null(strstr(text, "; 0 not used\n"));
    free(text);
    text = output_of(show_picture, ERR_OK);  // the encoder of its VAE: 76 tensors
    assert_non_null(strstr(text, "not used: encoder.conv_in.bias\n"));
    assert_non_null(strstr(text, "not used: 68 more\n"));
    free(text);
    text = output_of(show_judge, ERR_OK);
    assert_non_null(strstr(text, "adapter      50 tensors"));
    assert_null(strstr(text, "lora_A"));
    free(text);
    text = output_of(bench, ERR_OK);
    char *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = 0;
    static const char *const keys[] = {"tok_s", "limit"};
    for (int i = 0; i < 2; i++) {
        json_t *line = json_loads(i ? second : text, 0, NULL);
        assert_non_null(line);
        assert_string_equal(json_string_value(json_object_get(line, "test")), i ? "tg3" : "pp40");
        assert_int_equal(json_integer_value(json_object_get(line, "depth")), 70);
        assert_int_equal(json_integer_value(json_object_get(line, "parallel")), 2);
        for (int k = 0; k < 2; k++)
            assert_true(json_number_value(json_object_get(line, keys[k])) > 0);
        json_decref(line);
    }
    free(text);
    free(output_of(bad_bench, ERR_INVALID));
}

static void test_logits_command(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    err e = {0};
    assert_int_equal(logits(f, &e), ERR_OK);
    assert_int_equal(ftell(f), 5 * 509 * 4);
    fclose(f);
    int32_t bad[] = {1, 509};
    struct tools_model m = {.path = "tests/fixtures/models/llama-f32", .threads = 1};
    assert_int_equal(tools_logits(&m, bad, 2, false, 0, NULL, &e), ERR_INVALID);
    assert_int_equal(tools_logits(&m, bad, 0, false, 0, NULL, &e), ERR_INVALID);
    m.kv = "f8";
    assert_int_equal(tools_logits(&m, bad, 2, false, 0, NULL, &e), ERR_INVALID);
    assert_string_equal(e.param, "kv");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_errors),
        cmocka_unit_test(test_null_is_absent),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_logits_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
