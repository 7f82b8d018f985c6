// work.c - the time slice of a step. Lane 0 looks at the clock, everybody else at what it saw.
#include "engine/sched/work.h"

#include "base/clock.h"

bool work_slice(struct work *w, struct lane *lane)
{
    if (lane->id == 0)
        w->slice_over = clock_ns() >= w->slice_ns;
    lane_barrier(lane);
    bool over = w->slice_over;
    lane_barrier(lane);  // nobody may write the next answer before all have read this one
    return over;
}
