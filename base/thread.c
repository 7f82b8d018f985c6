// thread.c - see the header. Not in glibc 2.36, so by its number; the struct is sched_setattr(2)'s.
#include "base/thread.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

enum { RESET_ON_FORK = 1, TURN_NS = 100000 };

void thread_answers(void)
{
    struct attributes a = {0};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != 0)
        return;  // no such call, or somebody chose a policy
    a.size = sizeof a;
    a.flags |= RESET_ON_FORK;
    a.runtime = TURN_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
