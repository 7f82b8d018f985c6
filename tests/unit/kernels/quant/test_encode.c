// Floats to blocks: the error against what rounding allows, what is exact, and what is refused.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/quant.h"
#include "kernels/quant/encode.h"

enum { N = 32 * 512 };

static float x[N], y[N], z[N];
static uint8_t blocks[N / 32 * 34], again[N / 32 * 34];

static void draw(void)
{
    for (int i = 0; i < N; i++)
        x[i] = (float)(rng_unit(5, (uint64_t)i, 0) + rng_unit(5, (uint64_t)i, 1) + rng_unit(5, (uint64_t)i, 2) - 1.5) *
               ldexpf(1, i / 32 % 12 - 4);
}

// In units of the numbers' rms, a block at a time: the mean.
static double error_of(const float *a, const float *b)
{
    double sum = 0;
    for (int k = 0; k < N; k += 32) {
        double off = 0, all = 0;
        for (int i = k; i < k + 32; i++) {
            off += pow((double)a[i] - (double)b[i], 2);
            all += pow((double)a[i], 2);
        }
        sum += sqrt(off / all) / (N / 32);
    }
    return sum;
}

static void test_error(void **state)
{
    (void)state;
    draw();
    assert_true(quant_encode_q8_0(x, blocks, N));
    quant_get(QUANT_Q8_0)->dequantize(blocks, y, N);
    assert_true(error_of(x, y) < 0.006);  // observed 0.0050
    assert_true(quant_encode_q4_1(x, blocks, N));
    quant_get(QUANT_Q4_1)->dequantize(blocks, y, N);
    double fitted = error_of(x, y);
    assert_true(fitted < 0.072);  // observed 0.0644
    // The usual choice, min and (max - min) / 15, is worse.
    for (int k = 0; k < N; k += 32) {
        float low = x[k], high = x[k];
        for (int i = k; i < k + 32; i++) {
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        for (int i = k; i < k + 32; i++)
            z[i] = low + (high - low) / 15 * rintf((x[i] - low) / ((high - low) / 15));
    }
    assert_true(fitted < 0.93 * error_of(x, z));  // observed 0.89
}

// Numbers that are a block's already come out the same.
static void test_exact(void **state)
{
    (void)state;
    draw();
    assert_true(quant_encode_q8_0(x, blocks, N));
    quant_get(QUANT_Q8_0)->dequantize(blocks, y, N);
    assert_true(quant_encode_q8_0(y, again, N));
    quant_get(QUANT_Q8_0)->dequantize(again, z, N);
    assert_memory_equal(y, z, sizeof y);
    assert_true(quant_encode_q4_1(x, blocks, N));
    quant_get(QUANT_Q4_1)->dequantize(blocks, y, N);
    assert_true(quant_encode_q4_1(y, again, N));
    quant_get(QUANT_Q4_1)->dequantize(again, z, N);
    assert_true(error_of(y, z) < 1e-3);  // observed 0: a block whose ends are not used may have another step
    memset(x, 0, 32 * sizeof *x);
    for (int i = 32; i < 64; i++)
        x[i] = -2.5f;
    assert_true(quant_encode_q4_1(x, blocks, 64) && quant_encode_q8_0(x, again, 64));
    quant_get(QUANT_Q4_1)->dequantize(blocks, y, 64);
    assert_memory_equal(x, y, 64 * sizeof *x);
    quant_get(QUANT_Q8_0)->dequantize(again, z, 64);
    for (int i = 0; i < 64; i++)
        assert_true(fabs((double)z[i] - (double)x[i]) < 1e-3);
}

static void test_refuses(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, -1e7f};
    for (int i = 0; i < 5; i++) {
        draw();
        x[17] = bad[i];
        assert_true(i == 4 || !quant_encode_q8_0(x, blocks, 64));
        assert_false(quant_encode_q4_1(x, blocks, 64));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_error), cmocka_unit_test(test_exact), cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
