// The line before the prep threads: who is next of small and large ones, of several accounts; who leaves out of the middle; the end.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "engine/sched/line.h"
#include "engine/sched/session.h"

enum { N = 12 };
static struct task tasks[N];
static struct session sessions[N];
static struct slot_table *slots;

static int set_up(void **state)
{
    (void)state;
    slots = slot_open(&(struct slot_limits){N, N, 0, 0});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    slot_close(slots);
    return 0;
}

static struct session *make(int i, const char *account)
{
    err e;
    memset(&tasks[i], 0, sizeof *tasks);
    memset(&sessions[i], 0, sizeof *sessions);
    tasks[i].account = account;
    sessions[i].task = &tasks[i];
    sessions[i].slots = slots;
    assert_int_equal(slot_take(slots, &(struct slot_load){.n = 1}, &sessions[i].ticket, &e), ERR_OK);
    return &sessions[i];
}

static void gone(const struct session *s)
{
    slot_give(slots, s->ticket, true);
}

static void push(struct line *l, int i, const char *account, enum line_size size)
{
    assert_true(line_push(l, make(i, account), size));
}

// The next one is number i, of this size; it stays with its thread.
static void next(struct line *l, int i, enum line_size size)
{
    enum line_size got;
    struct session *s = line_pop(l, &got);
    assert_int_equal(s - sessions, i);
    assert_int_equal(got, size);
    gone(s);
}

static void test_large_ones_have_half(void **state)
{
    (void)state;
    struct line *l = line_new(4);
    enum line_size size;
    for (int i = 0; i < 4; i++)
        push(l, i, NULL, LINE_LARGE);
    for (int i = 4; i < 8; i++)
        push(l, i, NULL, LINE_SMALL);
    next(l, 0, LINE_LARGE);
    next(l, 1, LINE_LARGE);
    next(l, 4, LINE_SMALL);  // two of four threads have large ones
    next(l, 5, LINE_SMALL);
    line_done(l, LINE_SMALL);
    next(l, 6, LINE_SMALL);
    line_done(l, LINE_LARGE);
    next(l, 2, LINE_LARGE);
    next(l, 7, LINE_SMALL);
    line_done(l, LINE_LARGE);
    next(l, 3, LINE_LARGE);
    line_close(l);
    assert_null(line_pop(l, &size));
    assert_false(line_push(l, &sessions[0], LINE_SMALL));
    line_free(l);
    l = line_new(1);  // one thread takes all
    push(l, 0, NULL, LINE_LARGE);
    next(l, 0, LINE_LARGE);
    line_free(l);
}

static void test_accounts_take_turns(void **state)
{
    (void)state;
    static const struct { int i; const char *account; } in[] = {{0, "a"}, {1, "a"}, {2, "a"}, {3, "b"}, {4, NULL}, {5, "b"}, {6, "a"}};
    static const int out[] = {0, 3, 1, 4, 2, 5, 6};
    for (int size = LINE_SMALL; size <= LINE_LARGE; size++) {
        struct line *l = line_new(2);
        for (size_t i = 0; i < sizeof in / sizeof *in; i++)
            push(l, in[i].i, in[i].account, (enum line_size)size);
        for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
            next(l, out[i], (enum line_size)size);
            line_done(l, (enum line_size)size);
        }
        line_free(l);
    }
}

static void test_the_cancelled_leave(void **state)
{
    (void)state;
    struct line *l = line_new(2);
    err why = {0};
    for (int i = 0; i < 6; i++)
        push(l, i, NULL, i % 2 ? LINE_LARGE : LINE_SMALL);
    assert_int_equal(line_deadline(l), INT64_MAX);
    tasks[2].deadline_ns = 70;
    tasks[5].deadline_ns = 50;
    assert_int_equal(line_deadline(l), 50);
    assert_null(line_take_ended(l, 49, &why));
    struct session *s = line_take_ended(l, 50, &why);
    assert_int_equal(s - sessions, 5);
    assert_int_equal(why.code, ERR_TIMEOUT);
    gone(s);
    slot_cancel(slots, sessions[0].ticket);
    s = line_take_ended(l, 50, &why);
    assert_int_equal(s - sessions, 0);
    assert_int_equal(why.code, ERR_CANCELLED);
    gone(s);
    push(l, 6, NULL, LINE_LARGE);  // behind the last, which has left
    static const int small[] = {2, 4}, large[] = {1, 3, 6};
    for (int i = 0; i < 3; i++) {
        next(l, large[i], LINE_LARGE);
        if (i < 2)
            next(l, small[i], LINE_SMALL);
        line_done(l, LINE_LARGE);
    }
    line_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_ones_have_half),
        cmocka_unit_test(test_accounts_take_turns),
        cmocka_unit_test(test_the_cancelled_leave),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
