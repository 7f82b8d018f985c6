// test_quants.c - every storage type against blocks and values made by gguf-py (tests/reference/make_quants.py), the
// registry, sizes, half precision over its whole range, and the tests' own blocks.

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "kernels/quant.h"
#include "tests/helpers/blocks.h"

static uint64_t fnv(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

static void fixture_path(const char *name, char *ret_path, size_t room)
{
    char low[16] = "";
    for (size_t i = 0; name[i] && i < sizeof low - 1; i++)
        low[i] = (char)tolower((unsigned char)name[i]);
    snprintf(ret_path, room, "tests/fixtures/quants/%s.bin", low);
}

// Dequantises at an odd address, all blocks in one call, and compares bits.
static void check_type(const struct quant *q)
{
    char path[96], *text;
    size_t len;
    err e = {0};
    fixture_path(q->name, path, sizeof path);
    if (file_read(path, 1 << 20, &text, &len, &e))
        fail_msg("%s", e.text);
    uint32_t head[3];
    memcpy(head, text, sizeof head);
    size_t n = head[0], bytes = n * head[1], floats = n * head[2];
    assert_int_equal(head[1], q->block_bytes);
    assert_int_equal(head[2], q->block);
    assert_int_equal(len, sizeof head + bytes + n * 8 + head[2] * 4);

    uint8_t *src = malloc(bytes + 1);
    float *dst = malloc(floats * sizeof *dst);
    memcpy(src + 1, text + sizeof head, bytes);
    q->dequantize(src + 1, dst, floats);
    const char *hashes = text + sizeof head + bytes, *first = hashes + n * 8;
    for (uint32_t i = 0; i < head[2]; i++) {
        float want;
        memcpy(&want, first + 4 * i, 4);
        if (memcmp(&want, dst + i, 4) != 0)
            fail_msg("%s: number %u of the first block is %a, expected %a", q->name, i, (double)dst[i], (double)want);
    }
    for (size_t b = 0; b < n; b++) {
        uint64_t want;
        memcpy(&want, hashes + 8 * b, 8);
        if (fnv(dst + b * head[2], head[2] * 4) != want)
            fail_msg("%s: block %zu differs", q->name, b);
    }
    free(src);
    free(dst);
    free(text);
}

static void test_dequantize(void **state)
{
    (void)state;
    for (int t = 0; t < QUANT_COUNT; t++) {
        int bits;  // MLX's types are no blocks in files: tests/unit/kernels/test_mlx_parity.c
        bool ours = quant_get((enum quant_type)t)->ggml_id < 0 && quant_has_parts((enum quant_type)t, &bits);
        if (!ours)
            check_type(quant_get((enum quant_type)t));
    }
}

// What tests/helpers/blocks.def says of each type, which the tests of kernels and of whole models rest on: random blocks are
// finite and of the size asked for, and those at the ends of the range give the largest numbers of all.
static void test_blocks(void **state)
{
    (void)state;
    enum { N = 64, MOST = 256 };
    static uint8_t bytes[N * 512];
    static float v[N * MOST];
    for (int t = 0; t < QUANT_COUNT; t++) {
        const struct quant *q = quant_get((enum quant_type)t);
        if (!blocks_known((enum quant_type)t))
            continue;
        assert_true(q->block <= MOST && q->block_bytes <= 512);
        int n = N * q->block;
        for (int exponent = -4; exponent <= 0; exponent += 4) {
            double sum = 0;
            blocks_random((enum quant_type)t, bytes, N, 3, exponent);
            q->dequantize(bytes, v, (size_t)n);
            for (int i = 0; i < n; i++)
                sum += (double)v[i] * (double)v[i];
            double rms = sqrt(sum / n) * exp2(-exponent);
            if (!(rms > 0.7 && rms < 3.2))  // observed 0.77 to 2.1: Q6_K, whose scales stop at the smallest normal f16
                fail_msg("%s: random blocks have an rms of %g x 2^%d", q->name, rms, exponent);
        }
        for (int p = 0; p < BLOCKS_PATTERNS; p++) {
            blocks_extreme((enum quant_type)t, bytes, N, (enum blocks_pattern)p);
            q->dequantize(bytes, v, (size_t)n);
            for (int i = 0; i < n; i++)
                if (!(fabs((double)v[i]) <= 128 * 128))
                    fail_msg("%s, pattern %d: number %d is %g", q->name, p, i, (double)v[i]);
        }
    }
}

static void test_lookup(void **state)
{
    (void)state;
    enum quant_type t;
    for (int i = 0; i < QUANT_COUNT; i++) {
        const struct quant *q = quant_get((enum quant_type)i);
        assert_true(quant_from_name(q->name, &t) && t == (enum quant_type)i);
        assert_true(q->ggml_id < 0 || (quant_from_ggml((uint32_t)q->ggml_id, &t) && t == (enum quant_type)i));
    }
    assert_true(quant_from_name("q4_k", &t) && t == QUANT_Q4_K);
    assert_false(quant_from_name("Q4", &t));
    assert_false(quant_from_name("", &t));
    assert_false(quant_from_ggml(4, &t));  // a type ggml removed
    assert_false(quant_from_ggml(UINT32_MAX, &t));
}

static void test_bytes(void **state)
{
    (void)state;
    size_t n = 7;
    assert_true(quant_bytes(QUANT_Q4_K, 3, 512, &n));
    assert_int_equal(n, 3 * 2 * 144);
    assert_true(quant_bytes(QUANT_F32, 0, 5, &n));
    assert_int_equal(n, 0);
    n = 7;
    assert_false(quant_bytes(QUANT_Q4_0, 1, 33, &n));
    assert_false(quant_bytes(QUANT_F32, SIZE_MAX / 2, 4, &n));
    assert_false(quant_bytes(QUANT_F32, 1, SIZE_MAX / 2, &n));
    assert_false(quant_bytes(QUANT_F16, SIZE_MAX / 4, 4, &n));
    assert_int_equal(n, 7);
}

// The value of finite half h by the definition of the format.
static double half_value(uint16_t h)
{
    int exp = h >> 10 & 31, man = h & 0x3FF;
    double v = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
    return h & 0x8000 ? -v : v;
}

static void test_half_to_float(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_f16_to_f32((uint16_t)h);
        bool special = (h & 0x7C00) == 0x7C00, nan = special && (h & 0x3FF);
        assert_true(isnan(f) == nan);
        assert_true(!signbit(f) == !(h & 0x8000));
        if (special && !nan)
            assert_true(isinf(f));
        if (!special)
            assert_true((double)f == half_value((uint16_t)h));
        // Back again; a signalling NaN comes back quiet.
        assert_int_equal(quant_f32_to_f16(f), nan ? h | 0x200 : h);
    }
}

// Every pair of neighbouring halves: the middle goes to the even one, a bit off the middle to the nearer one.
static void test_float_to_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double next = h == 0x7BFF ? 65536 : half_value((uint16_t)(h + 1));
        float mid = (float)((half_value((uint16_t)h) + next) / 2);
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(quant_f32_to_f16(mid), even);
        assert_int_equal(quant_f32_to_f16(-mid), even | 0x8000);
        assert_int_equal(quant_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(quant_f32_to_f16(nextafterf(mid, 1e9f)), h + 1);
    }
    assert_int_equal(quant_f32_to_f16(1e30f), 0x7C00);
    assert_int_equal(quant_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(quant_f32_to_f16(1e-40f), 0);
    assert_int_equal(quant_f32_to_f16(-0.0f), 0x8000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantize),    cmocka_unit_test(test_blocks),        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_half_to_float), cmocka_unit_test(test_float_to_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
