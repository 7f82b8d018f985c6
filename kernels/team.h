// team.h - the pinned worker threads. All of them run the same function side by side; each is a lane.
//
//     static void work(struct lane *lane, void *arg)
//     {
//         int lo, hi;
//         lane_split(lane, rows, 1, &lo, &hi);       // this lane's contiguous share
//         ... rows lo..hi ...
//         lane_barrier(lane);                        // everyone's rows are written
//     }
//     team_run(team, work, arg);                     // the caller is lane 0; returns when all lanes have
//
// Every lane passes the same barriers in the same order. No allocation, no lock and no system call happens inside a
// run apart from parking. Workers are pinned one to a core of the process's cpuset, at nice 10 (unless the process
// was started with a nice value of its own); waiting lanes spin, then park (not yield: lane.c says why). One run at a
// time; team_run is called by one thread (the scheduler). What is computed never depends on the number of lanes: work
// is split over outputs, never over a sum.
//
// A run of a pinned team may have fewer lanes than the team: a core that another process keeps busy is left to it, and
// taken back within half a second of becoming free (cores.h). So memory of a run is sized for team_size() lanes, and
// what a run does is split by lane->count, which is the same for all lanes of one run and may be another in the next.
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct team;

struct lane {
    struct team *team;
    int id, count;
};

typedef void team_fn(struct lane *lane, void *arg);

// threads: 0 takes one per core of the cpuset, reduced to the cgroup's CPU quota (rounded up). More than the cpuset has
// is ERR_INVALID. pin = false for tests that share a core.
MUST_CHECK err_code team_check(int threads, bool pin, err *e);  // what it would say of these
MUST_CHECK err_code team_open(int threads, bool pin, struct team **ret_team, err *e);
void team_close(struct team *t);
int team_size(const struct team *t);
// Every run takes all lanes, whoever else uses their cores: for measurements. Before the first run.
void team_keep_whole(struct team *t, bool whole);

void team_run(struct team *t, team_fn *fn, void *arg);
void lane_barrier(struct lane *lane);

// Contiguous share of [0, n) for this lane, in whole groups of `group`; shares differ by at most one group.
static inline void lane_split(const struct lane *lane, int n, int group, int *ret_lo, int *ret_hi)
{
    long groups = (n + group - 1) / group;
    long lo = groups * lane->id / lane->count * group, hi = groups * (lane->id + 1) / lane->count * group;
    *ret_lo = (int)(lo < n ? lo : n);
    *ret_hi = (int)(hi < n ? hi : n);
}
