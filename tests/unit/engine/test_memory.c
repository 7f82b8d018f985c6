// The budget: what it is when nobody sets it, the sums of its accounts, and many threads that take and give.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "engine/memory.h"
#include "kernels/host.h"

static void test_budget(void **state)
{
    (void)state;
    const size_t mb = (size_t)1 << 20;
    assert_int_equal(memory_budget_of(0), 0);
    assert_int_equal(memory_budget_of(320 * mb), 0);  // nothing beside the reserves
    assert_int_equal(memory_budget_of(1024 * mb), 704 * mb);
    assert_int_equal(memory_budget_of(100000 * mb), 94936 * mb);  // 5 % is more than 256 MB
    assert_int_equal(memory_budget(123), 123);
    assert_int_equal(memory_budget(0), memory_budget_of(host_memory()));
    assert_true(memory_budget(0) < host_ram());
    assert_int_equal(memory_share(90), host_memory() / 100 * 90);
}

static void test_accounts(void **state)
{
    (void)state;
    struct memory m;
    err e = {0};
    memory_init(&m, 100);
    assert_true(memory_take(&m, MEMORY_WEIGHTS, 60));
    assert_true(memory_take(&m, MEMORY_KV, 30));
    assert_false(memory_take(&m, MEMORY_KV, 11));
    assert_false(memory_take(&m, MEMORY_WORKS, SIZE_MAX));  // the sum must not wrap
    assert_int_equal(memory_charge(&m, MEMORY_STEP, 11, "steps of 'm'", &e), ERR_MEMORY);
    assert_string_equal(e.param, "memory");
    assert_non_null(strstr(e.text, "steps of 'm': 11 bytes are needed, 10 bytes of 100 bytes are left; the setting 'memory'"));
    assert_int_equal(memory_charge(&m, MEMORY_STEP, 10, "steps", &e), ERR_OK);
    assert_int_equal(memory_left(&m), 0);
    memory_give(&m, MEMORY_WEIGHTS, 60);
    assert_int_equal(memory_left(&m), 60);
    assert_int_equal(memory_used(&m, MEMORY_WEIGHTS), 0);
    assert_int_equal(memory_used(&m, MEMORY_KV), 30);
    assert_int_equal(memory_total(&m), 100);
    memory_done(&m);
}

enum { THREADS = 4, ROUNDS = 2000 };

static void *take_and_give(void *arg)
{
    struct memory *m = arg;
    for (int i = 0; i < ROUNDS; i++)
        if (memory_take(m, MEMORY_WORKS, 30))
            memory_give(m, MEMORY_WORKS, 30);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct memory m;
    pthread_t t[THREADS];
    memory_init(&m, 100);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, take_and_give, &m);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(memory_left(&m), 100);
    memory_done(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
