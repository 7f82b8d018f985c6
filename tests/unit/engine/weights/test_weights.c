// test_weights.c - which files a path means, models as transformers and gguf-py write them, config.json getters.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/helpers/gguf.h"
#include "tests/helpers/weights_walk.h"

// ---- a folder of a test

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/ox-weights-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static void empty_dir(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *it; d && (it = readdir(d));) {
        char file[400];
        snprintf(file, sizeof file, "%s/%s", path, it->d_name);
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
            continue;
        if (file_is_dir(file))
            empty_dir(file);
        else
            unlink(file);
    }
    closedir(d);
    rmdir(path);
}

static int drop_dir(void **state)
{
    (void)state;
    empty_dir(dir);
    return 0;
}

static const char *in_dir(const char *file)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return path;
}

static void put(const char *file, const void *data, size_t n)
{
    FILE *f = fopen(in_dir(file), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void put_text(const char *file, const char *text)
{
    put(file, text, strlen(text));
}

static void take_away(const char *file)
{
    assert_int_equal(unlink(in_dir(file)), 0);
}

// A safetensors file with one U8 tensor of 4 bytes.
static void put_safetensors(const char *file, const char *tensor)
{
    char text[256], bytes[300];
    snprintf(text, sizeof text, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    uint64_t n = strlen(text);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, text, n);
    memcpy(bytes + 8 + n, "abcd", 4);
    put(file, bytes, 12 + n);
}

static void put_gguf(const char *file, const char *tensor, uint32_t no, uint32_t count, uint32_t total)
{
    struct buf b;
    buf_init(&b, 4096);
    gguf_header(&b, 3, 1, 4);
    gguf_key_text(&b, "general.architecture", "llama");
    gguf_key_u32(&b, "split.no", no);
    gguf_key_u32(&b, "split.count", count);
    gguf_key_u32(&b, "split.tensors.count", total);
    gguf_info(&b, tensor, 1, (uint64_t[]){1}, 0, 0);
    gguf_pad(&b, 32);
    buf_add(&b, "abcd", 4);
    put(file, b.data, b.len);
    buf_done(&b);
}

static void good(const char *path)
{
    struct weights *w;
    err e = {0};
    if (weights_open(path, &w, &e))
        fail_msg("%s", e.text);
    weights_walk(w);
    assert_string_equal(weights_path(w), path);
    weights_close(w);
}

static void bad(const char *path, err_code code, const char *part)
{
    struct weights *w = NULL;
    err e = {0};
    err_code rc = weights_open(path, &w, &e);
    assert_null(w);
    if (rc != code || !strstr(e.text, part))
        fail_msg("got %s: '%s'; expected %s with '%s'", err_name(rc), e.text, err_name(code), part);
}

// ---- models of other programs

static uint64_t fnv(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

static void check_tensor(const struct weights *w, const char *name, json_t *want)
{
    const struct tensor *t;
    err e = {0};
    if (weights_need(w, name, &t, &e))
        fail_msg("%s", e.text);
    json_t *shape = json_array_get(want, 0);
    assert_int_equal(t->ndim, json_array_size(shape));
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        assert_int_equal(t->shape[i], json_integer_value(json_array_get(shape, (size_t)i)));
        n *= (size_t)t->shape[i];
    }
    float *x = malloc(n * sizeof *x);
    char hash[20];
    quant_get(t->type)->dequantize(t->data, x, n);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv(x, n * sizeof *x));
    assert_string_equal(hash, json_string_value(json_array_get(want, 1)));
    free(x);
}

static struct weights *open_fixture(const char *path, const char *expected)
{
    struct weights *w;
    err e = {0};
    if (weights_open(path, &w, &e))
        fail_msg("%s", e.text);
    json_t *want = json_load_file(expected, 0, NULL), *value;
    const char *name;
    assert_non_null(want);
    assert_int_equal(weights_count(w), json_object_size(want));
    json_object_foreach(want, name, value) check_tensor(w, name, value);
    weights_walk(w);
    json_decref(want);
    return w;
}

static void test_sharded(void **state)
{
    (void)state;
    struct weights *w = open_fixture("tests/fixtures/weights/sharded", "tests/fixtures/weights/sharded.json");
    assert_int_equal(weights_container(w), WEIGHTS_HF);
    assert_string_equal(weights_arch(w), "LlamaForCausalLM");
    assert_string_equal(weights_folder(w), "tests/fixtures/weights/sharded");
    assert_string_equal(json_string_value(json_object_get(weights_config(w), "model_type")), "llama");
    assert_non_null(weights_json(w, "generation_config.json"));
    assert_null(weights_json(w, "tokenizer.json"));
    weights_drop_json(w, "generation_config.json");
    assert_null(weights_json(w, "generation_config.json"));
    // A tensor over several pages would lose the inner ones, and read the same again.
    const struct tensor *t = weights_find(w, "model.embed_tokens.weight");
    uint64_t before = fnv(t->data, t->bytes);
    weights_release(w, t);
    assert_true(fnv(t->data, t->bytes) == before);
    weights_close(w);
    good("tests/fixtures/weights/sharded/model.safetensors.index.json");
    good("tests/fixtures/weights/sharded/model-00002-of-00003.safetensors");
    good("tests/fixtures/weights/sharded/");
    bad("tests/fixtures/weights/sharded/model-00001-of-00009.safetensors", ERR_NOT_FOUND, "there is no file");
}

static void test_split(void **state)
{
    (void)state;
    struct weights *w = open_fixture("tests/fixtures/weights/split", "tests/fixtures/weights/split.json");
    assert_int_equal(weights_container(w), WEIGHTS_GGUF);
    assert_string_equal(weights_arch(w), "llama");
    int64_t blocks;
    assert_true(meta_int(w, "llama.block_count", &blocks) && blocks == 1); // stands in the first part only
    assert_int_equal(meta_array_length(w, "tokenizer.ggml.tokens"), 3);
    weights_close(w);
    w = open_fixture("tests/fixtures/weights/split/tiny-00002-of-00002.gguf", "tests/fixtures/weights/split.json");
    assert_true(meta_int(w, "llama.block_count", &blocks));
    assert_string_equal(weights_folder(w), "tests/fixtures/weights/split");
    weights_close(w);
}

// ---- folders

static void test_folder_gguf(void **state)
{
    (void)state;
    bad(in_dir("none"), ERR_NOT_FOUND, "none");
    bad(dir, ERR_NOT_FOUND, "holds no weights: expected model.safetensors");
    bad(dir, ERR_NOT_FOUND, "found nothing");
    put_text("notes.txt", "x");
    put_text("config.json", "{}");
    bad(dir, ERR_NOT_FOUND, "found config.json, notes.txt");
    put_gguf("a.gguf", "x", 0, 1, 1);
    good(dir);
    good(in_dir("a.gguf"));
    put_gguf("b.gguf", "x", 0, 1, 1);
    bad(dir, ERR_INVALID, "holds 2 GGUF models, name one of them: a.gguf, b.gguf");
    good(in_dir("b.gguf"));
    take_away("b.gguf");
    put_gguf("b-00001-of-00002.gguf", "x", 0, 2, 2);
    put_gguf("b-00002-of-00002.gguf", "y", 1, 2, 2);
    bad(dir, ERR_INVALID, "holds 2 GGUF models");
    good(in_dir("b-00002-of-00002.gguf"));
    take_away("a.gguf");
    good(dir);
}

static void test_split_damage(void **state)
{
    (void)state;
    put_gguf("b-00001-of-00002.gguf", "x", 0, 2, 2);
    bad(dir, ERR_NOT_FOUND, "b-00002-of-00002.gguf' is missing");
    put_gguf("b-00002-of-00002.gguf", "y", 0, 2, 2);
    bad(dir, ERR_CORRUPT, "b-00002-of-00002.gguf: says it is part 1 of 2, expected part 2 of 2");
    put_gguf("b-00002-of-00002.gguf", "y", 1, 3, 2);
    bad(dir, ERR_CORRUPT, "part 2 of 3");
    put_gguf("b-00002-of-00002.gguf", "x", 1, 2, 2);
    bad(dir, ERR_CORRUPT, "tensor 'x' is in b-00001-of-00002.gguf and in b-00002-of-00002.gguf");
    put_gguf("b-00002-of-00002.gguf", "y", 1, 2, 2);
    good(dir);
    put_gguf("b-00001-of-00002.gguf", "x", 0, 2, 3);
    bad(dir, ERR_CORRUPT, "hold 2 tensors, key 'split.tensors.count' says 3");
    put_gguf("b-00001-of-00002.gguf", "x", 0, 2, 2);
    put_safetensors("b-00002-of-00002.gguf", "y");
    bad(dir, ERR_CORRUPT, "b-00002-of-00002.gguf is safetensors, unlike b-00001-of-00002.gguf");
    take_away("b-00001-of-00002.gguf");
    bad(dir, ERR_NOT_FOUND, "b-00001-of-00002.gguf' is missing");
}

static void test_folder_safetensors(void **state)
{
    (void)state;
    put_safetensors("model.safetensors", "x");
    bad(dir, ERR_NOT_FOUND, "config.json' is missing: model.safetensors is read together with it");
    put_text("config.json", "{");
    bad(dir, ERR_CORRUPT, "config.json: not valid JSON");
    put_text("config.json", "[]");
    bad(dir, ERR_CORRUPT, "expected an object");
    put_text("config.json", "{}");
    good(dir);
    good(in_dir("model.safetensors"));
    put_text("tokenizer.json", "{\"a\":");
    bad(dir, ERR_CORRUPT, "tokenizer.json: not valid JSON");
    take_away("tokenizer.json");
    put_text("vocab.json", "not read");
    good(dir);
    put("model.safetensors", "PK\3\4\0\0\10\10\0\0", 10);
    bad(dir, ERR_UNSUPPORTED, "model.safetensors: pickle formats are not supported");
    put("model.safetensors", "", 0);
    bad(dir, ERR_CORRUPT, "model.safetensors: the file has 0 bytes");
    take_away("model.safetensors");
    put("pytorch_model.bin", "PK\3\4", 4);
    bad(dir, ERR_UNSUPPORTED, "holds 'pytorch_model.bin': pickle formats are not supported");
    put("model.bin", "\6\0\0\0", 4);
    take_away("pytorch_model.bin");
    bad(dir, ERR_UNSUPPORTED, "holds 'model.bin', as CTranslate2 (faster-whisper) writes it");
    take_away("model.bin");
    put("pytorch_model.bin", "PK\3\4", 4);
    bad(in_dir("pytorch_model.bin"), ERR_UNSUPPORTED, "pickle formats are not supported");
    put_safetensors("diffusion_pytorch_model.safetensors", "x");
    good(dir);
    take_away("config.json");
    take_away("diffusion_pytorch_model.safetensors");
    put_safetensors("adapter_model.safetensors", "x");
    bad(dir, ERR_NOT_FOUND, "adapter_config.json' is missing");
    put_text("adapter_config.json", "{\"r\":8}");
    good(dir);
    put_safetensors("pytorch_lora_weights.safetensors", "x");
    good(in_dir("pytorch_lora_weights.safetensors"));
}

// Half precision files count where the plain ones are absent.
static void test_variants(void **state)
{
    (void)state;
    put_text("config.json", "{}");
    put_safetensors("model.fp16.safetensors", "half");
    struct weights *w;
    err e = {0};
    assert_int_equal(weights_open(dir, &w, &e), ERR_OK);
    assert_non_null(weights_find_raw(w, "half"));
    weights_close(w);
    put_safetensors("diffusion_pytorch_model.safetensors", "plain");
    assert_int_equal(weights_open(dir, &w, &e), ERR_OK);
    assert_non_null(weights_find_raw(w, "plain"));
    weights_close(w);
    take_away("diffusion_pytorch_model.safetensors");
    take_away("model.fp16.safetensors");
    put_safetensors("diffusion_pytorch_model-00001-of-00001.fp16.safetensors", "half");
    put_text("diffusion_pytorch_model.safetensors.index.fp16.json",
             "{\"weight_map\": {\"half\": \"diffusion_pytorch_model-00001-of-00001.fp16.safetensors\"}}");
    good(dir);
}

static void test_pipeline(void **state)
{
    (void)state;
    put_text("model_index.json", "{");
    bad(dir, ERR_CORRUPT, "model_index.json: not valid JSON");
    put_text("model_index.json", "{\"_class_name\": \"StableDiffusionPipeline\", \"unet\": [\"diffusers\", \"X\"]}");
    struct weights *w;
    err e = {0};
    assert_int_equal(weights_open(dir, &w, &e), ERR_OK);
    assert_string_equal(weights_arch(w), "StableDiffusionPipeline");
    assert_int_equal(weights_container(w), WEIGHTS_HF);
    assert_int_equal(weights_count(w), 0);
    assert_int_equal(weights_bytes(w), 0);
    assert_null(weights_at(w, 0));
    assert_true(meta_has(w, "unet"));
    weights_close(w);
    put_text("config.json", "{\"model_type\": \"plain\"}");
    put_safetensors("model.safetensors", "x");  // with weights it is a model like any other
    assert_int_equal(weights_open(dir, &w, &e), ERR_OK);
    assert_string_equal(weights_arch(w), "plain");
    weights_close(w);
}

static void put_index(const char *map)
{
    char text[512];
    snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", map);
    put_text("model.safetensors.index.json", text);
}

static void test_index(void **state)
{
    (void)state;
    put_text("config.json", "{}");
    put_safetensors("a.safetensors", "x");
    put_safetensors("b.safetensors", "y");
    put_index("{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    good(dir);
    put_index("{\"x\":\"a.safetensors\",\"z\":\"b.safetensors\"}");
    bad(dir, ERR_CORRUPT, "tensor 'z' is not in b.safetensors");
    put_index("{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}");
    bad(dir, ERR_CORRUPT, "tensor 'x' is said to be in b.safetensors, found in a.safetensors");
    put_index("{\"x\":\"c.safetensors\"}");
    bad(dir, ERR_NOT_FOUND, "c.safetensors");
    put_index("{\"x\":\"a.safetensors\",\"x\":\"a.safetensors\"}");
    bad(dir, ERR_CORRUPT, "duplicate");
    static const char *const names[] = {
        "../a.safetensors",    "/etc/a.safetensors", "s/a.safetensors", "a..safetensors",
        "s\\\\a.safetensors",  ".safetensors",       "a.bin",           "",
        "a\\u0001.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char map[128];
        snprintf(map, sizeof map, "{\"x\":\"%s\"}", names[i]);
        put_index(map);
        bad(dir, ERR_CORRUPT, "expected a plain file name");
    }
    put_index("{\"x\":5}");
    bad(dir, ERR_CORRUPT, "expected a plain file name");
    put_index("{}");
    bad(dir, ERR_CORRUPT, "'weight_map' is empty");
    put_index("[]");
    bad(dir, ERR_CORRUPT, "no object 'weight_map'");
    put_safetensors("b.safetensors", "x");
    put_index("{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}");
    bad(dir, ERR_CORRUPT, "tensor 'x' is in a.safetensors and in b.safetensors");
    put_safetensors("m-00001-of-00002.safetensors", "x");
    bad(in_dir("m-00001-of-00002.safetensors"), ERR_NOT_FOUND, "m.safetensors.index.json' is missing");
}

static void test_modules(void **state)
{
    (void)state;
    put_safetensors("model.safetensors", "x");
    put_text("config.json", "{}");
    put_text("modules.json",
             "[{\"idx\":0,\"path\":\"\"},{\"idx\":1,\"path\":\"1_Pooling\"},{\"path\":\"2_Normalize\"}]");
    assert_int_equal(mkdir(in_dir("1_Pooling"), 0700), 0);
    put_text("1_Pooling/config.json", "{\"pooling_mode_cls_token\":true}");
    struct weights *w;
    err e = {0};
    if (weights_open(dir, &w, &e))
        fail_msg("%s", e.text);
    assert_true(json_is_array(weights_json(w, "modules.json")));
    assert_true(json_is_true(json_object_get(weights_json(w, "1_Pooling/config.json"), "pooling_mode_cls_token")));
    assert_null(weights_json(w, "2_Normalize/config.json"));
    weights_close(w);
    put_text("modules.json", "[{\"path\":\"../x\"}]");
    bad(dir, ERR_CORRUPT, "a module's path is '../x'");
}

static void test_config_getters(void **state)
{
    (void)state;
    put_safetensors("model.safetensors", "x");
    put_text("config.json",
             "{\"model_type\":\"tiny\",\"layers\":4,\"whole\":5.0,\"eps\":1e-5,\"big\":1e300,\"no\":null,"
             "\"tie\":false,\"rope\":{\"factor\":8,\"deep\":{\"a.b\":1}},\"a.b\":{\"c\":3},"
             "\"eos\":[1,2.0,3.5],\"names\":[\"x\",7]}");
    struct weights *w;
    err e = {0};
    if (weights_open(dir, &w, &e))
        fail_msg("%s", e.text);
    assert_string_equal(weights_arch(w), "tiny");
    int64_t i = 77;
    double d;
    bool yes = true;
    const char *s;
    size_t n;
    assert_true(meta_int(w, "layers", &i) && i == 4);
    assert_true(meta_int(w, "whole", &i) && i == 5);
    assert_true(meta_float(w, "layers", &d) && d == 4);
    assert_true(meta_float(w, "eps", &d) && d == 1e-5);
    assert_false(meta_int(w, "eps", &i));
    assert_false(meta_int(w, "big", &i));
    assert_false(meta_int(w, "no", &i));
    assert_false(meta_string(w, "no", &s, &n));
    assert_false(meta_int(w, "tie", &i));
    assert_true(meta_bool(w, "tie", &yes) && !yes);
    assert_true(meta_int(w, "rope.factor", &i) && i == 8);
    assert_true(meta_int(w, "rope.deep.a.b", &i) && i == 1); // names may hold dots
    assert_true(meta_int(w, "a.b.c", &i) && i == 3);
    assert_false(meta_int(w, "rope.none", &i));
    assert_false(meta_int(w, "layers.x", &i));
    assert_false(meta_int(w, ".", &i));
    assert_true(meta_string(w, "model_type", &s, &n) && n == 4);
    assert_int_equal(meta_array_length(w, "eos"), 3);
    assert_int_equal(meta_array_length(w, "layers"), -1);
    assert_true(meta_array_int(w, "eos", 1, &i) && i == 2);
    assert_false(meta_array_int(w, "eos", 2, &i));
    assert_true(meta_array_float(w, "eos", 2, &d) && d == 3.5);
    assert_false(meta_array_int(w, "eos", 3, &i));
    assert_false(meta_array_int(w, "eos", -1, &i));
    assert_true(meta_array_string(w, "names", 0, &s, &n) && n == 1 && *s == 'x');
    assert_false(meta_array_string(w, "names", 1, &s, &n));
    weights_close(w);
}

// Dropping the pages of a tensor leaves it and its neighbours readable.
static void test_release(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct buf b;
    buf_init(&b, 1 << 20);
    gguf_header(&b, 3, 3, 0);
    for (uint64_t i = 0; i < 3; i++)
        gguf_info(&b, (const char *[]){"a", "b", "c"}[i], 1, (uint64_t[]){N}, 0, i * 20000);
    gguf_pad(&b, 32);
    for (int i = 0; i < 3 * N; i++)
        buf_add(&b, &(float){(float)i}, 4);
    put("a.gguf", b.data, b.len);
    struct weights *w;
    err e = {0};
    if (weights_open(dir, &w, &e))
        fail_msg("%s", e.text);
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < 3; i++)
            assert_memory_equal(weights_at(w, i)->data, b.data + b.len - 4 * N * (3 - i), 4 * N);
        weights_release(w, weights_at(w, 1));
    }
    weights_close(w);
    buf_done(&b);
}

// LOAD-06 on real files: cut to 10, 50 and 99 percent and by one byte.
static void test_cut_files(void **state)
{
    (void)state;
    char *text;
    size_t len;
    err e = {0};
    assert_int_equal(file_read("tests/fixtures/weights/split/tiny-00001-of-00002.gguf", 1 << 20, &text, &len, &e), 0);
    const size_t cuts[] = {len / 10, len / 2, len * 99 / 100, len - 1};
    for (int i = 0; i < 4; i++) {
        put("a.gguf", text, cuts[i]);
        bad(in_dir("a.gguf"), ERR_CORRUPT, "a.gguf");
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_split),
        cmocka_unit_test_setup_teardown(test_folder_gguf, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_split_damage, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_folder_safetensors, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_variants, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_pipeline, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_index, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_modules, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_config_getters, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_release, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(test_cut_files, make_dir, drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
