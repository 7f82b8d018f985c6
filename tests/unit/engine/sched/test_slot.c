#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>

#include "engine/sched/slot.h"

static void test_bounds_and_generations(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(2, 1);
    struct ticket a, b, c;
    err e = {0};
    assert_int_equal(slot_take(t, &a, &e), ERR_OK);
    assert_int_equal(slot_take(t, &b, &e), ERR_OK);
    assert_int_equal(slot_take(t, &c, &e), ERR_BUSY);
    slot_begin(t);
    assert_int_equal(slot_take(t, &c, &e), ERR_OK);
    assert_int_equal(slot_waiting(t), 2);
    assert_int_equal(slot_unused(t), 0);
    slot_begin(t);
    struct ticket d;
    assert_int_equal(slot_take(t, &d, &e), ERR_BUSY);  // one waits, but no slot is left

    assert_false(slot_cancelled(t, a));
    assert_true(slot_cancel(t, a));
    assert_false(slot_cancel(t, a));
    assert_true(slot_cancelled(t, a));
    assert_false(slot_cancelled(t, b));
    assert_true(slot_cancel_ns(t, a) > 0);
    slot_give(t, a, false);
    assert_int_equal(slot_take(t, &d, &e), ERR_OK);
    assert_int_equal(d.slot, a.slot);
    assert_int_not_equal(d.generation, a.generation);
    assert_false(slot_cancelled(t, d));
    assert_false(slot_cancel(t, a));  // too late: somebody else has the slot
    assert_false(slot_cancelled(t, d));
    assert_false(slot_cancel(t, (struct ticket){99, 1}));
    slot_give(t, d, true);
    slot_give(t, c, true);
    slot_give(t, b, false);
    assert_int_equal(slot_waiting(t), 0);
    assert_int_equal(slot_unused(t), 3);
    slot_close(t);
}

struct race {
    struct slot_table *t;
    struct ticket ticket;
    int won;
};

static void *cancel(void *arg)
{
    struct race *r = arg;
    r->won = slot_cancel(r->t, r->ticket);
    return NULL;
}

static void test_one_cancel_wins(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(4, 4);
    for (int round = 0; round < 100; round++) {
        struct race r[3];
        pthread_t th[3];
        err e = {0};
        struct ticket k;
        assert_int_equal(slot_take(t, &k, &e), ERR_OK);
        int won = 0;
        for (int i = 0; i < 3; i++) {
            r[i] = (struct race){t, k, 0};
            pthread_create(&th[i], NULL, cancel, &r[i]);
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(th[i], NULL);
            won += r[i].won;
        }
        assert_int_equal(won, 1);
        slot_give(t, k, true);
    }
    slot_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_and_generations),
        cmocka_unit_test(test_one_cancel_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
