// The table of tasks: its bounds, stale tickets, one cancel that wins, what an account may have, when to come again.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "engine/sched/slot.h"

static const struct slot_load one = {.n = 1};

static void test_bounds_and_generations(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){2, 1, 0, 0});
    struct ticket a, b, c;
    err e = {0};
    assert_int_equal(slot_take(t, &one, &a, &e), ERR_OK);
    assert_int_equal(slot_take(t, &one, &b, &e), ERR_OK);
    assert_int_equal(slot_take(t, &one, &c, &e), ERR_BUSY);
    slot_begin(t, a);
    assert_int_equal(slot_take(t, &one, &c, &e), ERR_OK);
    assert_int_equal(slot_waiting(t), 2);
    assert_int_equal(slot_unused(t), 0);
    slot_begin(t, b);
    struct ticket d;
    assert_int_equal(slot_take(t, &one, &d, &e), ERR_BUSY);  // one waits, but no slot is left

    assert_false(slot_cancelled(t, a));
    assert_true(slot_cancel(t, a));
    assert_false(slot_cancel(t, a));
    assert_true(slot_cancelled(t, a));
    assert_false(slot_cancelled(t, b));
    assert_true(slot_cancel_ns(t, a) > 0);
    slot_give(t, a, false);
    assert_int_equal(slot_take(t, &one, &d, &e), ERR_OK);
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
    struct slot_table *t = slot_open(&(struct slot_limits){4, 4, 0, 0});
    for (int round = 0; round < 100; round++) {
        struct race r[3];
        pthread_t th[3];
        err e = {0};
        struct ticket k;
        assert_int_equal(slot_take(t, &one, &k, &e), ERR_OK);
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

static void take(struct slot_table *t, const char *account, int n, size_t tokens, size_t bytes, struct ticket *ret_ticket)
{
    err e = {0};
    if (slot_take(t, &(struct slot_load){account, n, tokens, bytes}, ret_ticket, &e))
        fail_msg("%s", e.text);
}

// Returns the text; a static buffer.
static const char *refused(struct slot_table *t, const char *account, int n, size_t tokens, size_t bytes, err_code code)
{
    static err e;
    struct ticket k;
    e = (err){0};
    assert_int_equal(slot_take(t, &(struct slot_load){account, n, tokens, bytes}, &k, &e), code);
    assert_in_range(e.retry_ms, 800, 72000);
    return e.text;
}

static void test_tokens_and_bytes(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){8, 2, 1000, 5000});
    struct ticket a, b;
    take(t, NULL, 1, 3000, 0, &a);  // more than may wait, but nothing waits
    assert_string_equal(refused(t, NULL, 1, 1, 0, ERR_BUSY), "3000 prompt tokens are waiting, at most 1000 may");
    slot_refine(t, a, 600);
    assert_int_equal(slot_waiting_tokens(t), 600);
    assert_string_equal(refused(t, NULL, 1, 401, 0, ERR_BUSY), "600 prompt tokens are waiting, at most 1000 may");
    take(t, NULL, 1, 400, 4000, &b);
    slot_refine(t, b, 300);
    assert_string_equal(refused(t, NULL, 1, 0, 1001, ERR_BUSY), "4000 bytes of requests are waiting, at most 5000 may");
    err e = {0};
    assert_int_equal(slot_room(t, &(struct slot_load){.bytes = 1001}, &e), ERR_BUSY);
    assert_int_equal(slot_room(t, &(struct slot_load){.bytes = 1000}, &e), ERR_OK);
    assert_int_equal(slot_waiting(t), 2);  // nothing was taken
    slot_begin(t, b);
    assert_int_equal(slot_waiting_tokens(t), 600);
    slot_give(t, a, true);
    assert_int_equal(slot_waiting_tokens(t), 0);
    slot_give(t, b, false);
    slot_close(t);
}

static void test_choices_count(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){8, 2, 0, 0});
    struct ticket a, b;
    take(t, NULL, 5, 0, 0, &a);
    assert_int_equal(slot_waiting(t), 5);
    assert_string_equal(refused(t, NULL, 4, 0, 0, ERR_BUSY), "5 requests are waiting, at most 8 may");
    take(t, NULL, 3, 0, 0, &b);
    slot_begin(t, a);
    assert_int_equal(slot_waiting(t), 3);
    slot_give(t, a, false);
    slot_give(t, b, true);
    take(t, NULL, 20, 0, 0, &a);  // alone it may be more than the bound
    slot_give(t, a, true);
    slot_close(t);
}

static void test_accounts_share(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){16, 4, 0, 0});
    struct ticket a[16], b[4], c;
    for (int i = 0; i < 6; i++)
        take(t, "a", 1, 0, 0, &a[i]);  // alone: more than a quarter
    take(t, "b", 1, 0, 0, &b[0]);
    assert_string_equal(refused(t, "a", 1, 0, 0, ERR_QUOTA),
                        "6 requests of this caller are waiting, at most 4 may while others use the server");
    for (int i = 1; i < 4; i++)
        take(t, "b", 1, 0, 0, &b[i]);
    assert_string_equal(refused(t, "b", 1, 0, 0, ERR_QUOTA),
                        "4 requests of this caller are waiting, at most 4 may while others use the server");
    take(t, NULL, 1, 0, 0, &c);  // who has no key is an account like any other
    for (int i = 0; i < 3; i++)
        slot_begin(t, a[i]);
    take(t, "a", 1, 0, 0, &a[6]);  // three began: there is room in the share again
    refused(t, "a", 1, 0, 0, ERR_QUOTA);
    for (int i = 0; i < 4; i++)
        slot_give(t, b[i], true);
    refused(t, "a", 1, 0, 0, ERR_QUOTA);
    slot_give(t, c, true);
    take(t, "a", 1, 0, 0, &a[7]);  // alone again
    for (int i = 0; i < 8; i++)
        slot_give(t, a[i], i >= 3);
    assert_int_equal(slot_waiting(t), 0);
    assert_int_equal(slot_unused(t), 20);
    slot_close(t);
}

// The fuller the queue and the slower it moves, the later a caller is asked to come again.
static void test_retry(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){100, 100, 0, 0});
    struct ticket k[100];
    err e = {0};
    for (int i = 0; i < 100; i++)
        take(t, NULL, 1, 0, 0, &k[i]);
    assert_int_equal(slot_take(t, &one, &k[0], &e), ERR_BUSY);
    assert_in_range(e.retry_ms, 800, 1200);  // nothing has left the queue yet: nothing is known
    slot_begin(t, k[99]);
    take(t, NULL, 1, 0, 0, &k[98]);
    for (int i = 0; i < 3; i++) {  // a table that just opened saw one go in microseconds
        assert_int_equal(slot_take(t, &one, &k[0], &e), ERR_BUSY);
        assert_in_range(e.retry_ms, 800, 72000);
    }
    slot_close(t);
}

// Many accounts come and go; every one is found again and none is left.
static void test_many_accounts(void **state)
{
    (void)state;
    struct slot_table *t = slot_open(&(struct slot_limits){60, 4, 0, 0});
    struct ticket k[60];
    char name[16];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 60; i++) {
            snprintf(name, sizeof name, "key%d", (i * 7 + round) % 30);
            take(t, name, 1, 1, 1, &k[i]);
        }
        for (int i = 0; i < 60; i++)
            slot_give(t, k[(i * 17 + round) % 60], true);
        assert_int_equal(slot_waiting(t), 0);
        assert_int_equal(slot_waiting_tokens(t), 0);
        assert_int_equal(slot_unused(t), 64);
    }
    slot_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_and_generations),
        cmocka_unit_test(test_one_cancel_wins),
        cmocka_unit_test(test_tokens_and_bytes),
        cmocka_unit_test(test_choices_count),
        cmocka_unit_test(test_accounts_share),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_many_accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
