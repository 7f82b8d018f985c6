// admit.h - sessions begin, wait for memory, give it back, and are ended. Scheduler thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/served.h"

void admit_sweep(struct served *m, int64_t now_ns);  // ends what was cancelled or is late
// In order of arrival; only one that waits for others of its kind to end lets the rest pass.
void admit_waiting(struct served *m);
void admit_preempt(struct served *m, struct session *s);
// Known tokens and the next few, but no more than it can ever need.
int admit_wanted(const struct session *s, const struct choice *c);
int admit_match(const struct session *s, struct choice *c);       // full pages; both return the positions it has
int admit_match_part(const struct session *s, struct choice *c);
// Who gives its pages back when there are none: batch work first, then who has computed least, then the youngest. Not one
// that had to twice, if there is another, and never the oldest.
struct session *admit_victim(const struct served *m);
// Whether the first chunk waits for a page that another sequence is just computing.
bool admit_follows(const struct served *m, struct session *s, const struct choice *c);
bool admit_promise(struct session *s, struct choice *c, int spare);
// What the session's work wants next. Its failure ends the session with the step.
void admit_advance(struct session *s);
