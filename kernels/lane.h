// lane.h - how lanes wait for each other: the parts of a team that lane_barrier touches. Included by team.c and lane.c.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "kernels/team.h"

// A word that is waited on until it changes. A waiter spins, then sleeps in the kernel; whoever changes the
// word wakes sleepers only when there are some.
struct lane_word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic int sleepers;
};

// All lanes arrive, then all go on. The count of arrivals has its own cache line, apart from the word lanes spin on.
struct lane_gate {
    struct lane_word phase;
    _Alignas(64) _Atomic int arrived;
    int count;  // lanes of the present run
};

void lane_wait(struct lane_word *w, uint32_t old);  // returns when the value is no longer `old`
void lane_change(struct lane_word *w, uint32_t value);
void lane_pass(struct lane_gate *g);
int64_t lane_parked_ns(void);  // that the calling thread has slept in lane_wait so far
void lane_relax(void);         // one turn of a spinning loop

struct lane_gate *team_gate(struct team *t);

struct cores;
struct cores *team_cores(struct team *t);  // for tests: which cores take part in the next run
