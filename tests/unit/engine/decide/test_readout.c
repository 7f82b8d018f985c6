// The maths of reading an answer: bias before temperature, ties, numbers that are none, and the share of the vocabulary.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>

#include "engine/decide/readout.h"

static void test_bias_before_temperature(void **state)
{
    (void)state;
    const double l[] = {0, 2};
    const float bias[] = {0.2f, -0.2f};
    double p[2];
    int best;
    assert_true(readout_softmax(l, bias, 2, 2, p, &best));
    assert_true(fabs(p[1] - 1 / (1 + exp(-0.8))) < 1e-8);  // the bias is a float
    assert_int_equal(best, 1);
    assert_true(fabs(p[0] + p[1] - 1) < 1e-15);
}

static void test_first_largest(void **state)
{
    (void)state;
    const double l[] = {1, 3, 3, 2};
    double p[4];
    int best;
    assert_true(readout_softmax(l, NULL, 4, 1, p, &best));
    assert_int_equal(best, 1);
    assert_true(p[1] == p[2] && p[0] < p[3]);
}

static void test_far_apart(void **state)
{
    (void)state;
    const double l[] = {-1e30, 1e4, 0};
    double p[3];
    int best;
    assert_true(readout_softmax(l, NULL, 3, 1, p, &best));
    assert_true(p[1] == 1 && p[0] == 0 && p[2] == 0);
}

static void test_not_numbers(void **state)
{
    (void)state;
    double p[2];
    int best = 7;
    const double bad[][2] = {{NAN, 0}, {0, INFINITY}, {0, -INFINITY}};
    for (int i = 0; i < 3; i++)
        assert_false(readout_softmax(bad[i], NULL, 2, 1, p, &best));
    assert_int_equal(best, 7);
}

static void test_mass(void **state)
{
    (void)state;
    const float logits[] = {1, 2, 3, 90};
    const int32_t two[] = {0, 1}, all[] = {3, 2, 1, 0};
    double want = (exp(1) + exp(2)) / (exp(1) + exp(2) + exp(3));
    assert_true(fabs(readout_mass(logits, 3, two, 2) - want) < 1e-15);
    assert_true(fabs(readout_mass(logits, 4, all, 4) - 1) < 1e-15);
    assert_true(readout_mass(logits, 4, two, 2) < 1e-35);
}

static void test_together(void **state)
{
    (void)state;
    const float logits[] = {1, 90, 90, -5};
    const int32_t one[] = {3}, two[] = {1, 2}, three[] = {0, 1, 2};
    assert_true(readout_together(logits, one, 1) == -5);
    assert_true(fabs(readout_together(logits, two, 2) - 90 - log(2)) < 1e-12);
    assert_true(fabs(readout_together(logits, three, 3) - 90 - log(2)) < 1e-12);
}

static void test_dot(void **state)
{
    (void)state;
    const float a[] = {1e8f, 1, -1e8f}, b[] = {1, 1, 1};
    assert_true(readout_dot(a, b, 3) == 1);  // in doubles
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias_before_temperature), cmocka_unit_test(test_first_largest), cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_not_numbers), cmocka_unit_test(test_mass), cmocka_unit_test(test_together),
        cmocka_unit_test(test_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
