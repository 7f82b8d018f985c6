// Bundles that do not fit: each is a good one with one thing changed, and the model must not open. The text names the file,
// what was found and what was expected.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/decide/bundle.h"
#include "engine/model.h"
#include "kernels/cpu.h"

#define FOLDER "tests/fixtures/decide/"

static const struct {
    const char *file, *path, *value;  // JSON; NULL: the key is removed
    err_code code;
    const char *text;
} cases[] = {
    {"judge_config.json", "hidden_size", "64", ERR_CORRUPT, "hidden_size is 64, expected 40"},
    {"judge_config.json", "softcap", "30.0", ERR_UNSUPPORTED, "softcap"},
    {"judge_config.json", "readout", "{\"prefix_token\": \"<bos>\"}", ERR_UNSUPPORTED, "a token before the prompt"},
    {"judge_config.json", "slots", NULL, ERR_CORRUPT, "'slots.ranges' is not there"},
    {"judge_config.json", "slots.template_version", "\"bare-v2\"", ERR_UNSUPPORTED, "'bare-v2', built is 'bare-v1'"},
    {"judge_config.json", "slots.ranges.choice", "[8, 23, 24]", ERR_CORRUPT, "range 'choice'"},
    {"judge_config.json", "slots.ranges.choice", "[8, 99]", ERR_CORRUPT, "range 'choice' is not two slots of 24"},
    {"judge_config.json", "slots.ranges.noul", "[0, 3]", ERR_CORRUPT, "'noul' has 3 slots, expected 2"},
    {"judge_config.json", "slots.ranges.score", "[2, 7]", ERR_CORRUPT, "'score' has 5 slots, expected 6"},
    {"judge_config.json", "slots.ranges.noul", "[2, 4]", ERR_CORRUPT, "slot 2 is '0', expected 'false'"},
    {"judge_config.json", "verbalizer_ids", "[1, 2]", ERR_CORRUPT, "24 verbalizers and 2 verbalizer_ids"},
    {"judge_config.json", "verbalizer_ids.0", "3", ERR_CORRUPT, "verbalizer 'false' has token 3, expected"},
    {"judge_config.json", "verbalizer_ids.9", "100000", ERR_CORRUPT, "token 100000 is outside the vocabulary of"},
    {"judge_config.json", "slots.verbalizers.8", "\"AC\"", ERR_CORRUPT, "'AC' is more than one token"},
    {"judge_config.json", "adapter_subfolder", "\"../judge/adapter\"", ERR_CORRUPT, "is not a folder beside it"},
    {"judge_config.json", "adapter_subfolder", "\"elsewhere\"", ERR_CORRUPT, "expected the adapter"},
    {"calibration.json", "per_kind.score", "0", ERR_CORRUPT, "temperature of 'score' is not a positive number"},
    {"calibration.json", "per_kind.noul", "\"1\"", ERR_CORRUPT, "temperature of 'noul'"},
};

static char folder[] = "/tmp/oxinferd-bundle-XXXXXX";

static void link_file(const char *name)
{
    char from[1200], to[600], cwd[512];
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(from, sizeof from, "%s/" FOLDER "judge/%s", cwd, name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    assert_int_equal(symlink(from, to), 0);
}

static void unlink_file(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

// Sets or removes what a path of keys and numbers leads to.
static void change(json_t *j, const char *path, const char *value)
{
    char key[64];
    size_t n = strcspn(path, ".");
    snprintf(key, sizeof key, "%.*s", (int)n, path);
    json_error_t why;
    if (path[n])
        change(json_object_get(j, key), path + n + 1, value);
    else if (!value)
        assert_int_equal(json_object_del(j, key), 0);
    else if (json_is_array(j))
        assert_int_equal(json_array_set_new(j, (size_t)atoi(key), json_loads(value, JSON_DECODE_ANY, &why)), 0);
    else
        assert_int_equal(json_object_set_new(j, key, json_loads(value, JSON_DECODE_ANY, &why)), 0);
}

static void write_changed(const char *file, const char *path, const char *value)
{
    char name[600];
    json_error_t why;
    snprintf(name, sizeof name, FOLDER "judge/%s", file);
    json_t *j = json_load_file(name, 0, &why);
    assert_non_null(j);
    change(j, path, value);
    unlink_file(file);
    snprintf(name, sizeof name, "%s/%s", folder, file);
    assert_int_equal(json_dump_file(j, name, 0), 0);
    json_decref(j);
}

static err_code open_with(const char *path, const char *decision, err *e)
{
    const struct cpu_ops *ops;
    struct model *m;
    struct model_options o = {.math = MAT_F32, .kv = KV_F32, .load_threads = 1, .decision = decision};
    if (cpu_select(NULL, &ops, e))
        return e->code;
    err_code code = model_open(path, &o, ops, &m, e);
    if (!code)
        model_close(m);
    return code;
}

static void must_fail(const char *path, const char *decision, err_code code, const char *text)
{
    err e = {0};
    assert_int_equal(open_with(path, decision, &e), code);
    if (!strstr(e.text, text))
        fail_msg("'%s' does not say '%s'", e.text, text);
}

static const char *const files[] = {"model.safetensors", "config.json",   "tokenizer.json", "tokenizer_config.json",
                                    "judge_config.json", "head.safetensors", "calibration.json", "adapter"};
enum { FILES = sizeof files / sizeof *files };

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < FILES; i++)
        link_file(files[i]);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++)
        unlink_file(files[i]);
    return rmdir(folder);
}

static void test_changed(void **state)
{
    (void)state;
    err e = {0};
    if (open_with(folder, NULL, &e))
        fail_msg("the unchanged bundle: %s", e.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_changed(cases[i].file, cases[i].path, cases[i].value);
        must_fail(folder, NULL, cases[i].code, cases[i].text);
        unlink_file(cases[i].file);
        link_file(cases[i].file);
    }
}

static void test_missing_files(void **state)
{
    (void)state;
    unlink_file("head.safetensors");
    must_fail(folder, NULL, ERR_CORRUPT, "there is no head.safetensors beside it");
    link_file("head.safetensors");
    unlink_file("adapter");
    must_fail(folder, NULL, ERR_CORRUPT, "expected the adapter");
    link_file("adapter");
    unlink_file("calibration.json");  // without, all temperatures are 1
    struct bundle b;
    err e = {0};
    if (bundle_find(folder, &b, &e))
        fail_msg("%s", e.text);
    for (int k = 0; k < BARE_KINDS; k++)
        assert_true(b.temperature[k] == 1);
    bundle_done(&b);
    link_file("calibration.json");
}

static void test_damaged_head(void **state)
{
    (void)state;
    char path[600];
    unlink_file("head.safetensors");
    snprintf(path, sizeof path, "%s/head.safetensors", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite("\x08\0\0\0\0\0\0\0{}      ", 16, 1, f), 1);  // a safetensors file without tensors
    fclose(f);
    must_fail(folder, NULL, ERR_CORRUPT, "proj.weight");
    unlink_file("head.safetensors");
    link_file("head.safetensors");
}

// Bundles beside a base they were not made for.
static void test_wrong_base(void **state)
{
    (void)state;
    must_fail(FOLDER "merged", FOLDER "lm", ERR_CORRUPT, "expected [5, 80]");
    must_fail(FOLDER "judge", FOLDER "plain", ERR_CORRUPT, "layers");
    must_fail("tests/fixtures/models/qwen3-f16", FOLDER "plain", ERR_CORRUPT, "expected");
    must_fail(FOLDER "merged", "tests/fixtures", ERR_INVALID, "expected \"labels\" or the folder of a decision bundle");
    must_fail(FOLDER "merged", "labelz", ERR_INVALID, "decision is 'labelz'");
    must_fail("tests/fixtures/models/llama-f32", "labels", ERR_CORRUPT, "decisions need a tokenizer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_changed), cmocka_unit_test(test_missing_files),
                                       cmocka_unit_test(test_damaged_head), cmocka_unit_test(test_wrong_base)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
