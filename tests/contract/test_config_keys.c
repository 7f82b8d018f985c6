// What a config.json must say: a fixture's weights under a config.json with one key changed, which no model may open.
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

#include "engine/model.h"
#include "tests/helpers/models.h"

static const struct {
    const char *base, *key, *value;  // value: JSON
    err_code code;
    const char *text;                // in the message
} cases[] = {
    {"llama-bias-f16", "num_key_value_heads", "\"3\"", ERR_CORRUPT, "'num_key_value_heads' is of another type"},
    {"llama-bias-f16", "num_attention_heads", "null", ERR_CORRUPT, "'num_attention_heads' is null"},
    {"llama-bias-f16", "num_key_value_heads", "4", ERR_CORRUPT, "6 attention heads and 4 KV heads"},
    {"llama-bias-f16", "hidden_act", "\"gelu\"", ERR_UNSUPPORTED, "hidden_act 'gelu'"},
    {"qwen3-f16", "attention_bias", "true", ERR_CORRUPT, "'model.layers.0.self_attn.q_proj.bias' is missing"},
    {"qwen3-f16", "tie_word_embeddings", "false", ERR_CORRUPT, "'lm_head.weight' is missing"},
    {"mistral-bf16", "layer_types", "[\"full_attention\"]", ERR_CORRUPT, "'layer_types' has 1 items, expected 2"},
    {"mistral-bf16", "layer_types", "[\"full_attention\", \"chunked\"]", ERR_UNSUPPORTED, "layer type 'chunked'"},
    {"mistral-bf16", "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}", ERR_UNSUPPORTED,
     "for each type of layer"},
    {"mistral-bf16", "rope_parameters",
     "{\"rope_type\": \"linear\", \"factor\": 2, \"partial_rotary_factor\": 0.5}", ERR_UNSUPPORTED,
     "a part of each head"},
    {"mistral-bf16", "rope_parameters", "{\"rope_type\": \"linear\"}", ERR_CORRUPT, "factor 0"},
};

static void write_config(const char *folder, const char *base, const char *key, const char *value)
{
    char path[256];
    json_error_t why;
    snprintf(path, sizeof path, "%s/config.json", models_path(base));
    json_t *config = json_load_file(path, 0, &why);
    assert_non_null(config);
    assert_int_equal(json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, &why)), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
}

static void check(const char *folder, size_t i)
{
    char here[256], there[1200], cwd[768];
    struct model *m = NULL;
    const struct cpu_ops *ops;
    err e = {0};
    write_config(folder, cases[i].base, cases[i].key, cases[i].value);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(there, sizeof there, "%s/%s/model.safetensors", cwd, models_path(cases[i].base));
    snprintf(here, sizeof here, "%s/model.safetensors", folder);
    assert_int_equal(symlink(there, here), 0);
    assert_int_equal(cpu_select("auto", &ops, &e), ERR_OK);
    err_code code = model_open(folder, &(struct model_options){.load_threads = 1}, ops, &m, &e);
    unlink(here);
    if (code != cases[i].code || !strstr(e.text, cases[i].text) || !strstr(e.text, folder))
        fail_msg("%s, %s = %s: code %d, '%s'", cases[i].base, cases[i].key, cases[i].value, code, e.text);
}

static void test_wrong_keys_are_named(void **state)
{
    (void)state;
    char folder[] = "/tmp/oxinferd-keys-XXXXXX", config[64];
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(folder, i);
    snprintf(config, sizeof config, "%s/config.json", folder);
    unlink(config);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_keys_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
