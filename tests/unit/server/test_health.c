// When a server is ready, and when it is stuck.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "engine/engine.h"
#include "server/health.h"

static void test_readiness(void **state)
{
    (void)state;
    struct model_info m[2] = {{.name = "one", .state = MODEL_READY}, {.name = "two", .state = MODEL_READY}};
    err e = {0};
    assert_int_equal(health_readiness(false, m, 0, &e), ERR_OK);
    assert_int_equal(health_readiness(false, m, 2, &e), ERR_OK);
    assert_int_equal(health_readiness(true, m, 2, &e), ERR_DRAINING);
    m[1].state = MODEL_LOADING;
    assert_int_equal(health_readiness(false, m, 1, &e), ERR_OK);
    assert_int_equal(health_readiness(false, m, 2, &e), ERR_LOADING);
    assert_non_null(strstr(e.text, "'two'"));
    m[1].state = MODEL_FAILED;
    strcpy(m[1].error.text, "tensor missing");
    assert_int_equal(health_readiness(false, m, 2, &e), ERR_LOADING);
    assert_non_null(strstr(e.text, "tensor missing"));
}

static void test_stalled(void **state)
{
    (void)state;
    int64_t second = 1000000000, beat = 5000 * second;
    assert_false(health_stalled(beat, beat));
    assert_false(health_stalled(beat, beat + 120 * second));
    assert_true(health_stalled(beat, beat + 121 * second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readiness),
        cmocka_unit_test(test_stalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
