// quant_check against what comes out: blocks of random bytes, and every place of a block overwritten with a NaN or an
// infinity, must be refused exactly when the numbers of the block are not all finite.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/quant.h"

enum { BLOCK_MAX = 256, BYTES_MAX = 1024 };

static bool all_finite(const struct quant *q, const uint8_t *block)
{
    float v[BLOCK_MAX];
    q->dequantize(block, v, (size_t)q->block);
    for (int i = 0; i < q->block; i++) {
        if (!isfinite(v[i]))
            return false;
    }
    return true;
}

// Two formats call a byte NaN that their decoders, as ggml's, read as a number.
static bool nan_by_name(enum quant_type type, const uint8_t *block)
{
    if (type == QUANT_MXFP4)
        return block[0] == 0xFF;
    for (int i = 0; i < 4 && type == QUANT_NVFP4; i++) {
        if ((block[i] & 0x7F) == 0x7F)
            return true;
    }
    return false;
}

static void check(enum quant_type type, const uint8_t *block)
{
    const struct quant *q = quant_get(type);
    struct quant_flaw flaw = {99, NULL, NULL};
    bool named = type == QUANT_MXFP4 || type == QUANT_NVFP4;
    bool good = named ? !nan_by_name(type, block) : all_finite(q, block);
    bool found = quant_check(type, block, (size_t)q->block, &flaw);
    if (found != good)
        fail_msg("%s: a block of %s numbers is called %s", q->name, good ? "finite" : "infinite", found ? "finite" : "bad");
    if (!found)
        assert_true(flaw.at == 0 && flaw.what && flaw.value);
}

static void test_every_place(void **state)
{
    (void)state;
    static const uint16_t values[] = {0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF, 0x7BFF, 0xFBFF, 0x7F80, 0x7F7F, 0x00FF};
    for (int type = 0; type < QUANT_COUNT; type++) {
        const struct quant *q = quant_get((enum quant_type)type);
        assert_true(q->block <= BLOCK_MAX && q->block_bytes <= BYTES_MAX);
        for (int at = 0; at + 1 < q->block_bytes; at++) {
            for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
                uint8_t block[BYTES_MAX] = {0};
                memcpy(block + at, &values[i], 2);
                check((enum quant_type)type, block);
            }
        }
    }
}

static void test_random(void **state)
{
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        for (int i = 0; i < 2000; i++) {
            uint8_t block[BYTES_MAX];
            for (int k = 0; k < quant_get((enum quant_type)type)->block_bytes; k++)
                block[k] = (uint8_t)rng_u64((uint64_t)type, (uint64_t)i, (uint64_t)k);
            check((enum quant_type)type, block);
        }
    }
}

// The first of many blocks is told, and what it is.
static void test_where(void **state)
{
    (void)state;
    struct quant_flaw flaw;
    float f[1000] = {0};
    f[700] = -INFINITY;
    f[800] = NAN;
    assert_false(quant_check(QUANT_F32, f, 1000, &flaw));
    assert_int_equal(flaw.at, 700);
    assert_string_equal(flaw.what, "number");
    assert_string_equal(flaw.value, "-Inf");
    assert_true(quant_check(QUANT_F32, f, 700, &flaw));
    assert_true(quant_check(QUANT_F32, f, 0, &flaw));
    uint8_t k[5 * 144] = {0};
    k[2 * 144 + 3] = 0x7E;  // the minimum of the third
    k[4 * 144 + 1] = 0x7C;
    assert_false(quant_check(QUANT_Q4_K, k, 5 * 256, &flaw));
    assert_int_equal(flaw.at, 512);
    assert_string_equal(flaw.what, "scale");
    assert_string_equal(flaw.value, "NaN");
    k[1 * 144 + 1] = 0xFC;
    assert_false(quant_check(QUANT_Q4_K, k, 5 * 256, &flaw));
    assert_int_equal(flaw.at, 256);
    assert_string_equal(flaw.value, "-Inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place), cmocka_unit_test(test_random), cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
