// Snake and depthwise convolution: every instruction set against the scalar definition, bit for bit, with odd widths, strides and
// numbers of rows; and the definition against double arithmetic.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/cpu.h"
#include "kernels/cpu/wave.h"

enum { ROWS = 60, WIDTH = 70 };

static uint64_t drawn;

static float draw(float span)
{
    return span * (float)(2 * rng_unit(11, drawn++, 0) - 1);
}

static void fill(float *x, int n, float span)
{
    for (int i = 0; i < n; i++)
        x[i] = draw(span);
}

static void check(const struct cpu_ops *o, int rows, int n, int dilation)
{
    static float x[(ROWS + 54) * WIDTH], w[WAVE_TAPS * WIDTH], a[WIDTH], b[WIDTH], y[2][ROWS * WIDTH];
    fill(x, (ROWS + 54) * WIDTH, 9);
    fill(w, WAVE_TAPS * WIDTH, 1);
    fill(a, WIDTH, 5);
    fill(b, WIDTH, 2);
    x[3] = NAN;
    x[WIDTH] = INFINITY;
    x[2 * WIDTH] = 1e30f;
    memset(y, 0, sizeof y);
    wave_snake(y[0], WIDTH, x, WIDTH, a, b, rows, n);
    o->snake(y[1], WIDTH, x, WIDTH, a, b, rows, n);
    for (int i = 0; i < ROWS * WIDTH; i++)
        if (memcmp(&y[0][i], &y[1][i], 4) && !(isnan(y[0][i]) && isnan(y[1][i])))
            fail_msg("snake on %s: %d rows of %d: element %d is %.9g, scalar %.9g", o->isa, rows, n, i, (double)y[1][i],
                     (double)y[0][i]);
    x[3] = x[WIDTH] = x[2 * WIDTH] = 1;
    wave_depthwise(y[0], WIDTH, x, WIDTH, w, WIDTH, b, dilation, rows, n);
    o->depthwise(y[1], WIDTH, x, WIDTH, w, WIDTH, b, dilation, rows, n);
    if (memcmp(y[0], y[1], sizeof y[0]))
        fail_msg("depthwise on %s: %d rows of %d, dilation %d", o->isa, rows, n, dilation);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const int widths[] = {1, 7, 8, 9, 16, 23, 36, 64, 70}, rows[] = {0, 1, 3, 4, 5, 17, 60};
    const struct cpu_ops *o;
    err e = {0};
    for (int i = 0; cpu_isa(i); i++) {
        if (cpu_select(cpu_isa(i), &o, &e))
            continue;
        for (size_t k = 0; k < 9; k++)
            for (size_t r = 0; r < 7; r++)
                check(o, rows[r], widths[k], (int[]){1, 3, 9}[(k + r) % 3]);
    }
}

// Largest error over |alpha x| <= 40 relative to 1 + |y|. Allowed 3e-7, observed 1.5e-7.
static void test_snake_is_right(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        float alpha = 0.05f + (float)rng_unit(1, (uint64_t)i, 0) * 5, x = draw(8), inv = 1 / alpha, y;
        wave_snake(&y, 1, &x, 1, &alpha, &inv, 1, 1);
        double s = sin((double)alpha * (double)x), want = (double)x + (double)inv * s * s;
        double u = fabs((double)alpha * (double)x) * 6e-8 * (double)inv;  // alpha x itself is rounded
        worst = fmax(worst, (fabs((double)y - want) - u) / (1 + fabs(want) + (double)inv));
    }
    print_message("snake: largest error %.1e\n", worst);
    assert_true(worst <= 3e-7);
}

static void test_depthwise_is_right(void **state)
{
    (void)state;
    float x[19 * 3], w[21], b[3] = {1, 2, 3}, y[3];
    fill(x, 57, 3);
    fill(w, 21, 3);
    wave_depthwise(y, 3, x, 3, w, 3, b, 3, 1, 3);
    for (int c = 0; c < 3; c++) {
        double want = b[c];
        for (int k = 0; k < WAVE_TAPS; k++)
            want += (double)w[k * 3 + c] * (double)x[k * 9 + c];
        assert_true(fabs(want - (double)y[c]) < 2e-5);  // observed below 4e-6
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_snake_is_right),
        cmocka_unit_test(test_depthwise_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
