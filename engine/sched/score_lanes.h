// score_lanes.h - the sequences that compute the texts of a score: choice 0 of the session is the prompt, those behind it
// are lanes. A lane goes on from a copy of the prompt's pages, or of the nearest run before its own whose end another lane
// still holds, and computes run after run; all lanes have their rows in the same steps.
//
//   free ──fork──▶ computes a run ──▶ at its end: holds it while runs behind it wait for a lane
//    ▲                  ▲                  │ the last of them, or nobody else computes
//    │                  └──────────────────┤
//    └─────────────────────────────────────┘ nothing is left behind it
//
// A lane that no run is left for is given up, and its sequence with it. A preempted session keeps what it has learnt; its
// prompt, and runs that were on their way, are computed again. Scheduler thread, but for the first.
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct choice;
struct served;
struct session;

// Prep thread: how many lanes a prompt of this length gets, of sequences that may run and pages of the pool. ERR_CONTEXT: a text
// has no room behind it; ERR_INVALID: the pool is too small for both.
MUST_CHECK err_code score_lanes_count(const struct session *s, int nprompt, int max_running, int pages, int *ret_lanes, err *e);

bool score_lanes_has(const struct session *s, const struct choice *c);  // whether the choice is a lane
// The prompt is computed: what its last position says. Also again, after a preemption.
void score_lanes_begin(struct served *m, struct session *s, const float *logits);
// The lane's last `rows` positions were computed; [rows, vocab].
void score_lanes_take(struct served *m, struct session *s, struct choice *c, int rows, const float *logits);
void score_lanes_drop(struct session *s);  // its pages are gone
