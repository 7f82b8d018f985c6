// lane.c - the barrier, and waiting for a word to change: spin, then a futex.
//
// Any lane. A core that has nothing else to run goes on within a tenth of a microsecond; an idle team costs nothing
// after about a tenth of a millisecond. There is no sched_yield between: beside a busy process on one core it gives
// away a whole time slice at every barrier (decode of a 135M model on two lanes: 4 tokens a second with it, 100
// without, 367 alone), while a thread that sleeps is put back as soon as it is woken.
#include "kernels/lane.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

enum { LANE_SPINS = 5000 };

static _Thread_local int64_t parked_ns;

int64_t lane_parked_ns(void)
{
    return parked_ns;
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void lane_relax(void)
{
    relax();
}

void lane_wait(struct lane_word *w, uint32_t old)
{
    for (int i = 0; i < LANE_SPINS; i++) {
        if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
            return;
        relax();
    }
    // Sequentially consistent on both sides: either the changer sees this sleeper, or this load sees the change.
    // The kernel compares the value once more before it sleeps.
    int64_t start = clock_ns();
    atomic_fetch_add(&w->sleepers, 1);
    while (atomic_load(&w->value) == old)
        syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
    parked_ns += clock_ns() - start;
}

void lane_change(struct lane_word *w, uint32_t value)
{
    atomic_store(&w->value, value);
    if (atomic_load(&w->sleepers) > 0)
        syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void lane_pass(struct lane_gate *g)
{
    uint32_t phase = atomic_load_explicit(&g->phase.value, memory_order_relaxed);
    int count = g->count;  // read before arriving: once all have, it may be the next run's
    if (atomic_fetch_add_explicit(&g->arrived, 1, memory_order_acq_rel) + 1 == count) {
        // Nobody can arrive again before the phase changes.
        atomic_store_explicit(&g->arrived, 0, memory_order_relaxed);
        lane_change(&g->phase, phase + 1);
    } else {
        lane_wait(&g->phase, phase);
    }
}

void lane_barrier(struct lane *lane)
{
    if (lane->count > 1)
        lane_pass(team_gate(lane->team));
}
