// timing.h - when a task came to what, and its one end, counted in its model's metrics; a session without metrics counts
// nothing. Called by the thread that owns the session. Times are clock_ns's, of the borders of steps.
//
// From arrival (the last byte of the request's body, task.arrived_ns) over the queue, the first admission and the first
// token to the end: ttft_s arrival to first token, queue_s queue to admission, prefill_s admission to first token, decode_s
// from there to the end, inference_s admission to end, e2e_s arrival to end. itl_s lies between two tokens of a choice; tokens of
// one step are one gap and zeros, so that sums stay true. tpot_s is decode_s by the tokens of a choice after the first.
#pragma once

#include <stdint.h>

#include "base/err.h"

struct choice;
struct metrics;
struct session;

// Whose numbers it counts in: from now on it is one of the model's that wait. Does nothing the second time.
void timing_accepted(struct session *s, struct metrics *m);
// The state it leaves and the one it enters: keeps the gauges of what waits and what runs.
void timing_moved(const struct session *s, int from, int to);
// Where a session is entered into SESSION_QUEUED, and where it is admitted for the first time.
void timing_queued(struct session *s, int64_t now_ns);
void timing_begun(struct session *s, int64_t now_ns);
// A step that ended at now_ns gave this many tokens: to choice c, or with the task's first tokens to all its choices.
void timing_tokens(struct session *s, struct choice *c, int tokens, int64_t now_ns);
// Everything was given back. cancelled_ns: when it was cancelled, 0 if it was not. why NULL: it ended by itself.
void timing_end(const struct session *s, const err *why, int64_t cancelled_ns, int64_t now_ns);
