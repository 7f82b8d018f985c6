// thread_answers: what the kernel says of a thread before and after, and of the threads it starts.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"

// The head of sched_getattr(2)'s struct.
struct seen {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t turn_ns, deadline, period;
    int own_nice;
};

static void *look(void *arg)
{
    struct seen *s = arg;
    if (syscall(SYS_sched_getattr, 0, s, 48, 0) != 0)
        s->size = 0;
    s->own_nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    return NULL;
}

static struct seen look_in_thread(void)
{
    struct seen s = {0};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, look, &s), 0);
    pthread_join(t, NULL);
    return s;
}

static void short_turns_and_nothing_else(void **state)
{
    (void)state;
    struct seen before = {0}, after = {0};
    look(&before);
    if (!before.size)
        skip();  // a kernel without the call
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), before.own_nice + 1);
    thread_answers();
    look(&after);
    assert_int_equal(after.policy, before.policy);
    assert_int_equal(after.own_nice, before.own_nice + 1);
    assert_true(after.turn_ns == before.turn_ns || after.turn_ns == 100000);
    if (before.turn_ns)  // such a kernel tells turns, and so has them
        assert_int_equal(after.turn_ns, 100000);
    struct seen other = look_in_thread();
    assert_int_equal(other.turn_ns, before.turn_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_turns_and_nothing_else)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
