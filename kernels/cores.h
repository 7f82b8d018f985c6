// cores.h - which of a team's cores take part in its runs. A core that a neighbour takes away from its lane holds up
// every lane at every barrier, so it sits out until it is free again; the work is split over the others (no result
// depends on the split). Pure bookkeeping: the team measures and asks.
//
//     cores_init(&c, size);
//     n = cores_active(&c, list);                       // before a run: its cores, ascending
//     cores_ran(&c, now, wall, lost);                   // after it: what each of them lost of the run's time
//     if (cores_wants_probe(&c, i, now)) ...            // try core i
//     cores_probed(&c, i, now, is_free);
//
//            loses more than its limit
//     in ------------------------------> out --- probe finds it busy ---> out, the same pause again
//      ^------ probe finds it free ------'
//
// One thread, the team's caller. Times are nanoseconds of one monotonic clock.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    CORES_MAX = 256,
    CORES_WINDOW_NS = 20 * 1000 * 1000,   // run time between two looks at the losses
    CORES_PAUSE_NS = 100 * 1000 * 1000,   // from going out to the first probe, and between probes
    CORES_LONGEST_NS = 400 * 1000 * 1000, // the same for a core that keeps coming in and going out
    CORES_STAY_NS = 1000 * 1000 * 1000,   // in for as long: what came before is forgotten
};

struct core {
    bool out, probing;
    int64_t lost_ns;   // in this window
    int64_t pause_ns;
    int64_t probe_at;  // when out
    int64_t in_since;
};

struct cores {
    int count, left_out;
    int64_t wall_ns;  // of runs in this window
    struct core core[CORES_MAX];
};

void cores_init(struct cores *c, int count);

// Writes the cores that take part, at least one; returns how many.
int cores_active(const struct cores *c, int *ret_list);

// A run of wall_ns is over. lost_ns[i] is the time core i's lane was ready to run and did not; of cores that took part.
void cores_ran(struct cores *c, int64_t now, int64_t wall_ns, const int64_t *lost_ns);

// Whether core i is out and due for a probe; it is then being probed until cores_probed.
bool cores_wants_probe(struct cores *c, int i, int64_t now);
void cores_probed(struct cores *c, int i, int64_t now, bool is_free);
