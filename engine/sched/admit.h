// admit.h - sessions arrive, begin, wait for memory, give it back, and are ended. Scheduler thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/served.h"

// s was prepared: it waits for its turn from now on.
void admit_arrive(struct served *m, struct session *s);
// Ends what was cancelled, is late or cannot be in time any more; sees whose reader is behind.
void admit_sweep(struct served *m, int64_t now_ns);
// What was preempted first, then lane by lane in the order of share.h. One that finds no memory lets others pass for
// ADMIT_PATIENCE_S, then nobody begins before it does. Works beyond their max_running let others pass.
void admit_waiting(struct served *m);
void admit_preempt(struct served *m, struct session *s);
// Known tokens and the next few, but no more than it can ever need.
int admit_wanted(const struct session *s, const struct choice *c);
int admit_match(const struct session *s, struct choice *c);       // full pages; both return the positions it has
int admit_match_part(const struct session *s, struct choice *c);
// Who gives its pages back when there are none: batch work first, then whose reader is behind, then who has computed least,
// then the youngest. Not one that had to twice, if there is another, and never the oldest.
struct session *admit_victim(const struct served *m);
// Whether the first chunk waits for a page that another sequence is just computing.
bool admit_follows(const struct served *m, struct session *s, const struct choice *c);
bool admit_promise(struct session *s, struct choice *c, int spare);
// What the session's work wants next. Its failure ends the session with the step.
void admit_advance(struct session *s);

enum {
    ADMIT_PATIENCE_S = 5,
    ADMIT_HELD_S = 30,        // a reader this far behind gives its memory to others that wait for some
    ADMIT_HELD_MOST_S = 300,  // and is given up
};
