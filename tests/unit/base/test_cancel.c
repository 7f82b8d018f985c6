// Asking whether to go on: how often, what happens after a yes, and that threads do not share it.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/cancel.h"
#include "tests/helpers/asker.h"

static void test_nobody_watches(void **state)
{
    (void)state;
    err e = {0};
    for (int i = 0; i < 10; i++)
        assert_false(cancel_due(SIZE_MAX));
    assert_int_equal(cancel_check(SIZE_MAX, &e), ERR_OK);
}

// All that was told since the watch was set, also within a question.
static void test_counts_work(void **state)
{
    (void)state;
    struct asker a = {{asker_ask}, 0, 1000};
    cancel_watch(&a.cancel);
    assert_int_equal(cancel_work(), 0);
    (void)cancel_due(5);
    (void)cancel_due(3 * CANCEL_EVERY);
    assert_int_equal(cancel_work(), 5 + 3 * CANCEL_EVERY);
    (void)cancel_due(SIZE_MAX);
    assert_int_equal(cancel_work(), SIZE_MAX);
    cancel_watch(&a.cancel);
    assert_int_equal(cancel_work(), 0);
    cancel_watch(NULL);
}

static void test_asks_now_and_then(void **state)
{
    (void)state;
    struct asker a = {{asker_ask}, 0, 3};
    err e = {0};
    assert_null(cancel_watch(&a.cancel));
    assert_false(cancel_due(0));  // the first look asks
    assert_int_equal(a.asked, 1);
    for (int i = 0; i < CANCEL_EVERY - 1; i++)
        assert_false(cancel_due(1));
    assert_int_equal(a.asked, 1);
    assert_false(cancel_due(1));
    assert_int_equal(a.asked, 2);
    assert_int_equal(cancel_check(SIZE_MAX, &e), ERR_CANCELLED);
    assert_int_equal(e.code, ERR_CANCELLED);
    for (int i = 0; i < 10; i++)
        assert_true(cancel_due(0));  // a yes stays
    assert_int_equal(a.asked, 3);
    assert_ptr_equal(cancel_watch(NULL), &a.cancel);
    assert_false(cancel_due(SIZE_MAX));
}

static void *look(void *arg)
{
    *(bool *)arg = cancel_due(SIZE_MAX);
    return NULL;
}

static void test_threads_apart(void **state)
{
    (void)state;
    struct asker a = {{asker_ask}, 0, 0};
    bool due = true;
    pthread_t t;
    cancel_watch(&a.cancel);
    assert_true(cancel_due(0));
    assert_int_equal(pthread_create(&t, NULL, look, &due), 0);
    pthread_join(t, NULL);
    assert_false(due);
    cancel_watch(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_watches), cmocka_unit_test(test_counts_work), cmocka_unit_test(test_asks_now_and_then), cmocka_unit_test(test_threads_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
