// test_gguf.c - GGUF files, good and hostile. Every file stands in memory of exactly its size, so that a sanitizer sees
// a read past its end.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "tests/helpers/gguf.h"
#include "tests/helpers/weights_files.h"

enum { MAX = 1 << 20 };

static err_code open_bytes(const void *data, size_t n, struct weights **ret, err *e)
{
    return weights_open_memory("model.gguf", data, n, ret, e);
}

static err_code try_bytes(const void *data, size_t n, err *e)
{
    return weights_files_try("model.gguf", data, n, e);
}

// Expects the file in b to be refused with this code and a text that holds `part`; empties b.
static void refuse(struct buf *b, err_code code, const char *part)
{
    err e = {0};
    clock_t t0 = clock();  // of the processor: the machine may do other things
    err_code rc = try_bytes(b->data, b->len, &e);
    if (rc != code || !strstr(e.text, part) || !strstr(e.text, "model.gguf"))
        fail_msg("got %s: '%s'; expected %s with '%s'", err_name(rc), e.text, err_name(code), part);
    assert_true(clock() - t0 < CLOCKS_PER_SEC / 10);
    buf_done(b);
    buf_init(b, MAX);
}

static void test_sample(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_sample(&b);
    struct weights *w;
    err e = {0};
    if (open_bytes(b.data, b.len, &w, &e))
        fail_msg("%s", e.text);
    assert_int_equal(weights_container(w), WEIGHTS_GGUF);
    assert_string_equal(weights_arch(w), "llama");
    assert_null(weights_config(w));
    assert_int_equal(weights_count(w), 2);
    assert_int_equal(weights_bytes(w), 16 + 3 * 34);
    assert_string_equal(weights_at(w, 0)->name, "norm.weight");
    assert_string_equal(weights_at(w, 1)->name, "out.weight");
    assert_null(weights_at(w, 2));

    const struct tensor *t = weights_find(w, "out.weight");
    assert_non_null(t);
    assert_int_equal(t->type, QUANT_Q8_0);
    assert_string_equal(t->dtype, "Q8_0");
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->shape[1], 32);
    float row[32];
    quant_get(t->type)->dequantize((const uint8_t *)t->data + 34, row, 32);
    assert_true(row[31] == 21);
    assert_memory_equal(weights_find(w, "norm.weight")->data, ((float[]){1, 2, 3, 4}), 16);

    // An integer tensor is there, but not as weights.
    assert_null(weights_find(w, "ids"));
    assert_int_equal(weights_find_raw(w, "ids")->type, QUANT_COUNT);
    assert_int_equal(weights_find_raw(w, "ids")->bytes, 16);
    assert_int_equal(weights_need(w, "ids", &t, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "model.gguf: tensor 'ids' is stored as I64, which is not supported");
    assert_int_equal(weights_need(w, "none", &t, &e), ERR_NOT_FOUND);
    assert_string_equal(e.param, "none");
    assert_int_equal(weights_need(w, "norm.weight", &t, &e), ERR_OK);
    weights_release(w, t); // borrowed memory stays as it is
    assert_memory_equal(t->data, ((float[]){1, 2, 3, 4}), 16);
    weights_close(w);
    buf_done(&b);
}

static void test_keys(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_sample(&b);
    struct weights *w;
    err e = {0};
    if (open_bytes(b.data, b.len, &w, &e))
        fail_msg("%s", e.text);
    static const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"k.u8", 254}, {"k.i8", -2},  {"k.u16", 65534},   {"k.i16", -2},
                {"k.i32", -2}, {"k.i64", -2}, {"k.f64", 1000000}, {"k.u32", 0xFFFFFFFE}};
    int64_t i = 77;
    double d = 77;
    bool yes = false;
    const char *s;
    size_t n;
    for (size_t k = 0; k < sizeof ints / sizeof *ints; k++) {
        assert_true(meta_int(w, ints[k].key, &i) && i == ints[k].value);
        assert_true(meta_float(w, ints[k].key, &d) && d == (double)ints[k].value);
        assert_false(meta_bool(w, ints[k].key, &yes));
        assert_false(meta_string(w, ints[k].key, &s, &n));
        assert_int_equal(meta_array_length(w, ints[k].key), -1);
    }
    assert_false(meta_int(w, "k.u64", &i)); // past int64
    assert_true(meta_float(w, "k.u64", &d) && d == 0x1p64);
    assert_false(meta_int(w, "k.f32", &i)); // not whole
    assert_true(meta_float(w, "k.f32", &d) && d == -2.5);
    assert_true(meta_bool(w, "k.bool", &yes) && yes);
    assert_false(meta_int(w, "k.bool", &i));
    assert_true(meta_string(w, "general.architecture", &s, &n) && n == 5 && memcmp(s, "llama", 5) == 0);
    assert_false(meta_int(w, "k", &i));
    assert_false(meta_int(w, "", &i));

    assert_int_equal(meta_array_length(w, "k.texts"), 3);
    assert_true(meta_array_string(w, "k.texts", 0, &s, &n) && n == 1 && *s == 'a');
    assert_true(meta_array_string(w, "k.texts", 1, &s, &n) && n == 0);
    assert_true(meta_array_string(w, "k.texts", 2, &s, &n) && n == 3 && memcmp(s, "\xFF\xC3\xA9", 3) == 0);
    assert_false(meta_array_string(w, "k.texts", 3, &s, &n));
    assert_false(meta_array_string(w, "k.texts", -1, &s, &n));
    assert_false(meta_array_int(w, "k.texts", 0, &i));
    assert_true(meta_array_int(w, "k.ints", 1, &i) && i == -1);
    assert_false(meta_array_int(w, "k.ints", 2, &i));
    assert_true(meta_array_float(w, "k.floats", 0, &d) && d == 0.5);
    assert_true(meta_array_int(w, "k.floats", 1, &i) && i == 4);
    assert_int_equal(meta_array_length(w, "k.none"), 0);
    weights_close(w);
    buf_done(&b);
}

// LOAD-06: a file cut anywhere is refused at once, never read past its end.
static void test_cut_everywhere(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_sample(&b);
    weights_files_cut("model.gguf", &b);
    buf_done(&b);
}

// LOAD-05: damaged files are refused or read, without a crash.
static void test_flips(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_sample(&b);
    weights_files_turn_bits("model.gguf", &b);
    uint64_t seed = 5;
    char *copy = malloc(b.len);
    for (int k = 0; k < 20000; k++) {
        memcpy(copy, b.data, b.len);
        for (int j = 0; j < 4; j++) {
            seed = rng_mix(seed + 1);
            copy[seed % b.len] = (char)(seed >> 40 & 1 ? 0xFF : seed >> 32);
        }
        (void)try_bytes(copy, b.len, NULL);
    }
    free(copy);
    buf_done(&b);
}

static void test_versions(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_header(&b, 2, 0, 0);
    assert_int_equal(try_bytes(b.data, b.len, NULL), ERR_OK);
    buf_clear(&b);
    // LOAD-05
    static const uint32_t bad[] = {0, 1, 4, 1000};
    for (int i = 0; i < 4; i++) {
        gguf_header(&b, bad[i], 0, 0);
        refuse(&b, ERR_UNSUPPORTED, "version");
    }
    gguf_header(&b, 1u << 24, 0, 0);
    refuse(&b, ERR_UNSUPPORTED, "big-endian");
    gguf_header(&b, 3u << 24, 0, 0);
    refuse(&b, ERR_UNSUPPORTED, "big-endian");
    buf_add(&b, "GGML\3\0\0\0", 8);
    refuse(&b, ERR_CORRUPT, "expected \"GGUF\"");
    buf_done(&b);
}

// One tensor after an empty list of keys.
static void one_tensor(struct buf *b, uint32_t ndim, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_header(b, 3, 1, 0);
    gguf_info(b, "weight.x", ndim, dims, type, offset);
    gguf_pad(b, 32);
    for (int i = 0; i < 64; i++)
        buf_add_char(b, 1);
}

static void test_shapes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    static const uint64_t shapes[][2] = {
        {1, 0}, // LOAD-01
        {0, 1},
        {UINT64_MAX, 1},
        {1ull << 63, 1}, // LOAD-01, negative
        {1ull << 24, (1ull << 40) + 1},
        {1ull << 32, 1ull << 32}, // LOAD-02
        {INT64_MAX, 2},
        {1ull << 63, 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        one_tensor(&b, 2, shapes[i], 0, 0);
        refuse(&b, ERR_CORRUPT, "tensor 'weight.x' has the shape");
    }
    one_tensor(&b, 2, (uint64_t[]){2, (1ull << 61) - 1}, 0, 0); // LOAD-03: 2^64-8 bytes
    refuse(&b, ERR_CORRUPT, "weight.x");
    one_tensor(&b, 1, (uint64_t[]){1ull << 62}, 0, 0);
    refuse(&b, ERR_CORRUPT, "weight.x");
    one_tensor(&b, 1, (uint64_t[]){33}, 2, 0);
    refuse(&b, ERR_CORRUPT, "rows of 33 numbers, Q4_0 needs a multiple of 32");
    one_tensor(&b, 1, (uint64_t[]){17}, 0, 0);
    refuse(&b, ERR_CORRUPT, "tensor 'weight.x' ends at byte 132, the file has 128");
    one_tensor(&b, 0, NULL, 0, 0); // a single number
    assert_int_equal(try_bytes(b.data, b.len, NULL), ERR_OK);
    buf_done(&b);
}

static void test_tensors(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    static const uint64_t four[5] = {4, 1, 1, 1, 1};
    // LOAD-05
    one_tensor(&b, 5, four, 0, 0);
    refuse(&b, ERR_CORRUPT, "5 dimensions");
    gguf_header(&b, 3, 1, 0);
    gguf_text(&b, "x");
    gguf_u32(&b, 1u << 31);
    for (int i = 0; i < 64; i++)
        buf_add_char(&b, 1);
    refuse(&b, ERR_CORRUPT, "2147483648 dimensions");
    one_tensor(&b, 1, four, 0, 8);
    refuse(&b, ERR_CORRUPT, "multiple of 32");
    one_tensor(&b, 1, four, 0, 1ull << 40);
    refuse(&b, ERR_CORRUPT, "the file has");
    one_tensor(&b, 1, four, 0, UINT64_MAX - 31);
    refuse(&b, ERR_CORRUPT, "weight.x");
    // LOAD-05, LOAD-11: types that are not read are named as such
    one_tensor(&b, 1, four, 255, 0);
    refuse(&b, ERR_UNSUPPORTED, "tensor 'weight.x' is stored in GGUF type 255, which is not supported");
    one_tensor(&b, 1, four, 4, 0);
    refuse(&b, ERR_UNSUPPORTED, "GGUF type 4");

    gguf_header(&b, 3, 2, 0);
    gguf_info(&b, "a", 1, four, 0, 0);
    gguf_info(&b, "a", 1, four, 0, 32);
    gguf_pad(&b, 32);
    for (int i = 0; i < 64; i++)
        buf_add_char(&b, 1);
    refuse(&b, ERR_CORRUPT, "tensor 'a' appears twice");
    gguf_header(&b, 3, 2, 0);
    gguf_info(&b, "a", 1, (uint64_t[]){9}, 0, 0);
    gguf_info(&b, "b", 1, four, 0, 32);
    gguf_pad(&b, 32);
    for (int i = 0; i < 64; i++)
        buf_add_char(&b, 1);
    refuse(&b, ERR_CORRUPT, "tensors 'a' and 'b' share bytes 32 to 36");
    // Bytes that belong to no tensor: the shape of the one before is not the one its bytes were written for.
    gguf_header(&b, 3, 2, 0);
    gguf_info(&b, "a", 2, (uint64_t[]){4, 6}, 0, 0);
    gguf_info(&b, "b", 1, four, 0, 128);
    gguf_pad(&b, 32);
    for (int i = 0; i < 160; i++)
        buf_add_char(&b, 1);
    refuse(&b, ERR_CORRUPT, "tensor 'a' has 96 bytes by its type and shape, and 128 up to 'b'");
    one_tensor(&b, 1, four, 0, 32);
    refuse(&b, ERR_CORRUPT, "the first tensor, 'weight.x', lies at offset 32, expected 0");
    static const char *const names[] = {"", "\xC3", "a\nb"};
    for (int i = 0; i < 3; i++) {
        gguf_header(&b, 3, 1, 0);
        gguf_info(&b, names[i], 1, four, 0, 0);
        gguf_pad(&b, 32);
        for (int k = 0; k < 32; k++)
            buf_add_char(&b, 1);
        refuse(&b, ERR_CORRUPT, "the name of tensor 0");
    }
    buf_done(&b);
}

// A file of one key whose value the caller writes, long enough for any small count.
static void one_key(struct buf *b, const char *name, uint32_t type, const void *value, size_t n)
{
    gguf_header(b, 3, 0, 1);
    gguf_key(b, name, type);
    buf_add(b, value, n);
    for (int i = 0; i < 64; i++)
        buf_add_char(b, 0);
}

static void array_head(struct buf *b, uint32_t item, uint64_t count)
{
    uint8_t head[12];
    memcpy(head, &item, 4);
    memcpy(head + 4, &count, 8);
    one_key(b, "list", 9, head, sizeof head);
}

static void test_hostile_keys(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    // LOAD-05
    gguf_header(&b, 3, 0, 1ull << 60);
    refuse(&b, ERR_CORRUPT, "1152921504606846976 keys");
    gguf_header(&b, 3, 1ull << 60, 0);
    refuse(&b, ERR_CORRUPT, "1152921504606846976 tensors");
    gguf_header(&b, 3, UINT64_MAX, UINT64_MAX);
    refuse(&b, ERR_CORRUPT, "do not fit");
    one_key(&b, "text", 8, &(uint64_t){1ull << 63}, 8);
    refuse(&b, ERR_CORRUPT, "key 'text' has a string of 9223372036854775808 bytes, 64 are left");
    array_head(&b, 9, 1);
    refuse(&b, ERR_UNSUPPORTED, "array of arrays");
    array_head(&b, 0, 1ull << 40);
    refuse(&b, ERR_CORRUPT, "1099511627776 items");
    array_head(&b, 8, 1ull << 61); // times 8 wraps
    refuse(&b, ERR_CORRUPT, "key 'list' is an array of");
    array_head(&b, 12, UINT64_MAX);
    refuse(&b, ERR_CORRUPT, "key 'list' is an array of");
    array_head(&b, 13, 1);
    refuse(&b, ERR_CORRUPT, "array of unknown type 13");
    one_key(&b, "odd", 13, "", 0);
    refuse(&b, ERR_CORRUPT, "key 'odd' has the unknown type 13");
    one_key(&b, "flag", 7, "\2", 1);
    refuse(&b, ERR_CORRUPT, "bool of value 2");
    one_key(&b, "", 7, "\1", 1); // LOAD-01: an empty name
    refuse(&b, ERR_CORRUPT, "the name of key 0 has 0 bytes");
    one_key(&b, "\xFF", 7, "\1", 1);
    refuse(&b, ERR_CORRUPT, "the name of key 0");
    gguf_header(&b, 3, 0, 2);
    gguf_key_u32(&b, "same", 1);
    gguf_key_u32(&b, "same", 1);
    refuse(&b, ERR_CORRUPT, "key 'same' appears twice");
    for (uint32_t i = 0, bad[] = {0, 24, 1u << 21}; i < 3; i++) {
        one_key(&b, "general.alignment", 4, &bad[i], 4);
        refuse(&b, ERR_CORRUPT, "expected a power of two");
    }
    one_key(&b, "general.alignment", 8, &(uint64_t){0}, 8);
    refuse(&b, ERR_CORRUPT, "general.alignment");
    gguf_header(&b, 3, 0, 1);
    gguf_key_text(&b, "general.architecture", "two words");
    refuse(&b, ERR_CORRUPT, "general.architecture");
    gguf_header(&b, 3, 0, 1);
    gguf_key_u32(&b, "split.count", 3);
    refuse(&b, ERR_INVALID, "part 1 of 3 of a split GGUF");
    buf_done(&b);
}

static void test_alignment(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_header(&b, 3, 2, 1);
    gguf_key_u32(&b, "general.alignment", 128);
    gguf_info(&b, "w", 1, (uint64_t[]){1}, 0, 0);
    gguf_info(&b, "x", 1, (uint64_t[]){2}, 0, 128);
    gguf_pad(&b, 128);
    for (int i = 0; i < 128; i++)
        buf_add_char(&b, 9);
    buf_add(&b, (float[]){8, 9}, 8);
    struct weights *w;
    err e = {0};
    if (open_bytes(b.data, b.len, &w, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(weights_find(w, "x")->data, ((float[]){8, 9}), 8);
    weights_close(w);
    buf_done(&b);
}

// LOAD-11: an architecture nobody knows is not damage; who picks the family says so.
static void test_other_architecture(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, MAX);
    gguf_header(&b, 3, 0, 1);
    gguf_key_text(&b, "general.architecture", "notyet");
    struct weights *w;
    err e = {0};
    if (open_bytes(b.data, b.len, &w, &e))
        fail_msg("%s", e.text);
    assert_string_equal(weights_arch(w), "notyet");
    weights_close(w);
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),         cmocka_unit_test(test_keys),
        cmocka_unit_test(test_cut_everywhere), cmocka_unit_test(test_flips),
        cmocka_unit_test(test_versions),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_tensors),        cmocka_unit_test(test_hostile_keys),
        cmocka_unit_test(test_alignment),      cmocka_unit_test(test_other_architecture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
