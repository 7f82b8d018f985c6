// round.h - sessions whose work asks the language model: a stem and rounds that go on from it (work.h).
//
//     round_init(s)                       prep thread: choices 0 (the stem) and 1 (the first round)
//     round_fork(s, &e)                   the stem is computed: the round shares its pages
//     round_take(s, logits) / round_read(s, state)     the round's last position is computed; true: the round is over
//     round_next(s)                       false: it was the last one
//
// A round that was preempted is computed again like any other choice. Scheduler thread, but for round_init.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/sched/session.h"

// Takes the first round from the work. Errors: ERR_CONTEXT when a round cannot fit.
MUST_CHECK err_code round_init(struct session *s, err *e);
// The round becomes active; its pages must be promised. False: no page for its tail.
bool round_fork(struct session *s);
void round_needs(struct session *s, struct heads *h);  // adds the logits that round_take reads
bool round_take(struct session *s, float *logits);
bool round_read(struct session *s, const float *state);
// Ends the round; the next one is known but not active. s->failure when it cannot fit.
bool round_next(struct session *s);
