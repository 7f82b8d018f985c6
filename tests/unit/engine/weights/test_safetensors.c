// test_safetensors.c - safetensors files, good and hostile, and pickles under any name. Every file stands in memory of
// exactly its size, so that a sanitizer sees a read past its end.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "engine/weights/jsonfile.h"
#include "tests/helpers/weights_files.h"

enum { MAX = 64 << 20 };

static err_code try_bytes(const void *data, size_t n, err *e)
{
    return weights_files_try("model.safetensors", data, n, e);
}

// A file of this header and n bytes 0, 1, 2 ...
static void file_of(struct buf *b, const char *header, size_t n)
{
    uint64_t len = strlen(header);
    buf_add(b, &len, 8);
    buf_add_str(b, header);
    for (size_t i = 0; i < n; i++)
        buf_add_char(b, (char)i);
}

static void expect(const struct buf *b, err_code code, const char *part)
{
    err e = {0};
    err_code rc = try_bytes(b->data, b->len, &e);
    if (rc != code || !strstr(e.text, part) || (rc && !strstr(e.text, "model.safetensors")))
        fail_msg("got %s: '%s'; expected %s with '%s'", err_name(rc), e.text, err_name(code), part);
}

static void expect_file(const char *header, size_t n, err_code code, const char *part)
{
    struct buf b;
    buf_init(&b, MAX);
    file_of(&b, header, n);
    expect(&b, code, part);
    buf_done(&b);
}

// Tensors of every kind of dtype, out of order, with metadata and the padding that writers add.
static const char *const sample = "{\"__metadata__\":{\"format\":\"pt\"},"
                                  "\"b.f16\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[16,28]},"
                                  "\"a.f32\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                                  "\"c.bf16\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[28,30]},"
                                  "\"ids\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[30,46]},"
                                  "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[46,46]},"
                                  "\"four\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[46,48]}}      ";

static void test_sample(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    file_of(&b, sample, 48);
    struct weights *w;
    err e = {0};
    if (weights_open_memory("model.safetensors", b.data, b.len, &w, &e))
        fail_msg("%s", e.text);
    assert_int_equal(weights_container(w), WEIGHTS_HF);
    assert_string_equal(weights_arch(w), "");
    assert_int_equal(weights_count(w), 4);
    assert_int_equal(weights_bytes(w), 16 + 12 + 2);
    assert_string_equal(weights_at(w, 0)->name, "a.f32");
    const struct tensor *t = weights_find(w, "b.f16");
    assert_int_equal(t->type, QUANT_F16);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(*(const uint8_t *)t->data, 16);
    assert_int_equal(weights_find(w, "c.bf16")->ndim, 0);
    assert_int_equal(weights_find(w, "none")->bytes, 0);
    assert_null(weights_find(w, "ids"));
    assert_int_equal(weights_need(w, "ids", &t, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "model.safetensors: tensor 'ids' is stored as I64, which is not supported");
    assert_int_equal(weights_find_raw(w, "four")->bytes, 2);
    weights_close(w);
    buf_done(&b);
}

static void test_cut_everywhere(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    file_of(&b, sample, 48);
    weights_files_cut("model.safetensors", &b);
    buf_done(&b);
}

static void test_flips(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    file_of(&b, sample, 48);
    weights_files_turn_bits("model.safetensors", &b);
    static const char alphabet[] = "0123456789[]{},:\"-\\. \xFF";
    uint64_t seed = 5;
    char *copy = malloc(b.len);
    for (int k = 0; k < 5000; k++) {
        memcpy(copy, b.data, b.len);
        for (int j = 0; j < 3; j++) {
            seed = rng_mix(seed + 1);
            copy[seed % b.len] = alphabet[(seed >> 40) % (sizeof alphabet - 1)];
        }
        (void)try_bytes(copy, b.len, NULL);
    }
    free(copy);
    buf_done(&b);
}

// LOAD-08
static void test_header_length(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 4, 100000001, 1ull << 63};
    for (int i = 0; i < 4; i++) {
        struct buf b;
        buf_init(&b, MAX);
        buf_add(&b, &lengths[i], 8);
        buf_add_str(&b, "{}");
        expect(&b, ERR_CORRUPT, "at most 100000000 are allowed");
        buf_done(&b);
    }
    struct buf b;
    buf_init(&b, MAX);
    buf_add(&b, &(uint64_t){100000000}, 8);
    buf_add_str(&b, "{}");
    expect(&b, ERR_CORRUPT, "the header ends at byte 100000008, the file has 10");
    buf_done(&b);
    expect_file("{}", 0, ERR_OK, "");
    expect_file("", 0, ERR_CORRUPT, "not valid JSON");
    expect_file("[]", 0, ERR_CORRUPT, "expected an object");
    expect_file("{}x", 0, ERR_CORRUPT, "not valid JSON");
}

#define T(dtype, shape, offsets) "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_sizes(void **state)
{
    (void)state;
    // LOAD-08: shape and range must agree
    expect_file(T("F32", "[1000,1000]", "[0,16]"), 16, ERR_CORRUPT,
                "tensor 'x' has 16 bytes, but F32 of shape [1000, 1000] needs 4000000");
    expect_file(T("F32", "[1]", "[0,16]"), 16, ERR_CORRUPT, "needs 4");
    expect_file(T("F32", "[4]", "[0,17]"), 16, ERR_CORRUPT, "tensor 'x' ends at data byte 17, the file has 16");
    // LOAD-02 for this container
    expect_file(T("F32", "[4294967296,4294967296]", "[0,0]"), 0, ERR_CORRUPT, "product passes 2^63");
    expect_file(T("F32", "[4611686018427387904]", "[0,0]"), 0, ERR_CORRUPT, "needs more than");
    expect_file(T("F32", "[0,9223372036854775807,4]", "[0,0]"), 0, ERR_CORRUPT, "product passes 2^63");
    expect_file(T("F32", "[9223372036854775808]", "[0,0]"), 0, ERR_CORRUPT, "not valid JSON");
    expect_file(T("F32", "[-4]", "[0,16]"), 16, ERR_CORRUPT, "wrong 'shape'");
    expect_file(T("F32", "[4.0]", "[0,16]"), 16, ERR_CORRUPT, "wrong 'shape'");
    expect_file(T("F32", "4", "[0,16]"), 16, ERR_CORRUPT, "wrong 'shape'");
    expect_file(T("F32", "[1,1,1,1,1,1,1,1,4]", "[0,16]"), 16, ERR_UNSUPPORTED, "9 dimensions, at most 8");
    expect_file(T("F4", "[3]", "[0,1]"), 1, ERR_CORRUPT, "tensor 'x' has 1 bytes");
    // LOAD-09: offsets are checked whatever the dtype
    expect_file(T("F99", "[4]", "[9223372036854775808,5]"), 16, ERR_CORRUPT, "not valid JSON");
    expect_file(T("F99", "[4]", "[9223372036854775807,5]"), 16, ERR_CORRUPT, "wrong 'data_offsets'");
    expect_file(T("F99", "[4]", "[0,16]"), 16, ERR_UNSUPPORTED, "tensor 'x' has the unknown dtype 'F99'");
    expect_file(T("I64", "[4]", "[0,16]"), 16, ERR_CORRUPT, "needs 32");
    expect_file(T("F\\n\\u00e9", "[4]", "[0,16]"), 16, ERR_UNSUPPORTED, "dtype 'F?\xC3\xA9'");
    expect_file(T("F32", "[4]", "[16,0]"), 16, ERR_CORRUPT, "wrong 'data_offsets'");
    expect_file(T("F32", "[4]", "[0,16,16]"), 16, ERR_CORRUPT, "wrong 'data_offsets'");
    expect_file(T("F32", "[4]", "[0.0,16]"), 16, ERR_CORRUPT, "wrong 'data_offsets'");
    expect_file(T("F32", "[4]", "{}"), 16, ERR_CORRUPT, "wrong 'data_offsets'");
    expect_file("{\"x\":{}}", 0, ERR_CORRUPT, "tensor 'x'");
    expect_file("{\"x\":5}", 0, ERR_CORRUPT, "tensor 'x'");
    expect_file("{\"x\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, ERR_CORRUPT, "wrong 'dtype'");
    expect_file("{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, ERR_CORRUPT,
                "name of tensor 0");
    expect_file("{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, ERR_CORRUPT,
                "name of tensor 0");
}

// LOAD-10
static void test_layout(void **state)
{
    (void)state;
    static const char *const first = "\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}";
    char text[512];
    snprintf(text, sizeof text, "{%s,%s}", first, first);
    expect_file(text, 8, ERR_CORRUPT, "duplicate");
    snprintf(text, sizeof text, "{%s,\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}", first);
    expect_file(text, 12, ERR_CORRUPT, "tensors 'a' and 'b' share bytes 4 to 8");
    snprintf(text, sizeof text, "{%s,\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", first);
    expect_file(text, 8, ERR_CORRUPT, "share bytes 0 to 8");
    snprintf(text, sizeof text, "{%s,\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[9,17]}}", first);
    expect_file(text, 17, ERR_CORRUPT, "tensor 'b' begins at data byte 9, expected 8");
    snprintf(text, sizeof text, "{%s}", first);
    expect_file(text, 8, ERR_OK, "");
    expect_file(text, 9, ERR_CORRUPT, "the tensors end at data byte 8, the file has 9");
    snprintf(text, sizeof text, "{%s,\"__metadata__\":{\"n\":1}}", first);
    expect_file(text, 8, ERR_CORRUPT, "__metadata__");
    snprintf(text, sizeof text, "{%s,\"__metadata__\":\"no\"}", first);
    expect_file(text, 8, ERR_CORRUPT, "__metadata__");
    snprintf(text, sizeof text, "{%s}        ", first); // padding of the header
    expect_file(text, 8, ERR_OK, "");
    snprintf(text, sizeof text, "{\"x\xC3\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}");
    expect_file(text, 8, ERR_CORRUPT, "not valid JSON");
}

// Headers that are small as text but would be large or deep as a tree.
static void test_bounds(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    buf_add_str(&b, "{\"x\":");
    for (int i = 0; i < 1000; i++)
        buf_add_char(&b, '[');
    expect_file(b.data, 0, ERR_TOO_LARGE, "more than 64 levels");
    buf_clear(&b);
    buf_add_str(&b, "{\"x\":[");
    for (int i = 0; i < JSONFILE_VALUES; i++)
        buf_add_str(&b, "0,");
    buf_add_str(&b, "0]}");
    expect_file(b.data, 0, ERR_TOO_LARGE, "at most 8388608");
    buf_done(&b);
    // Brackets and commas inside texts do not count.
    expect_file(
        "{\"__metadata__\":{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\"}}", 0,
        ERR_OK, "");
}

// A header of 0x280, 0x380, 0x480, 0x580 bytes begins as a pickle does.
static void test_header_that_looks_like_a_pickle(void **state)
{
    (void)state;
    for (int high = 2; high <= 5; high++) {
        size_t header = (size_t)high << 8 | 0x80;
        char file[8 + 0x580];
        memset(file, ' ', sizeof file);
        memcpy(file, (char[]){(char)0x80, (char)high, 0, 0, 0, 0, 0, 0, '{', '}'}, 10);
        err e = {0};
        if (weights_files_try("model.safetensors", file, 8 + header, &e))
            fail_msg("%s", e.text);
    }
}

static void test_pickles(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } files[] = {{"PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0", 16},
                 {"\x80\2\x8A\nl\xFC\x9C\x46\xF9 j\xA8P\x19.", 15},
                 {"\x80\4\x95\x20\0\0\0\0\0\0\0}", 12}};
    static const char *const names[] = {"model.safetensors", "pytorch_model.bin", "model.gguf"};
    for (size_t i = 0; i < 9; i++) {
        err e = {0};
        assert_int_equal(weights_files_try(names[i % 3], files[i / 3].bytes, files[i / 3].n, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.text, "pickle formats are not supported"));
        assert_non_null(strstr(e.text, names[i % 3]));
    }
    err e = {0};
    assert_int_equal(weights_files_try("README.md", "# Hello", 7, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "README.md: neither GGUF nor safetensors by its first bytes or its name (7 bytes)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),        cmocka_unit_test(test_cut_everywhere), cmocka_unit_test(test_flips),
        cmocka_unit_test(test_header_length), cmocka_unit_test(test_sizes),          cmocka_unit_test(test_layout),
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_pickles),
        cmocka_unit_test(test_header_that_looks_like_a_pickle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
