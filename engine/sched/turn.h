// turn.h - one turn of the scheduler over all models: who ends, who begins, whose step is next, and the step.
//
// Time is dealt out in cycles. A cycle is one extra, and one step of each model that has decoding rows. The extra is a
// step with prompts and batch rows of one model (and with its decoding rows, which then have had their step), a step of
// decisions, or a step of a work. Which it is the lanes of share.h decide; how long it may take is what the target leaves
// beside the decoding rows of all models, so that no stream waits longer than one cycle for its next token.
//
// Everything is decided from predicted costs and the clock given, so a run with a virtual clock is repeatable. Scheduler
// thread.
#pragma once

#include <stdbool.h>

#include "engine/sched/served.h"

// False: nobody has anything to do.
bool turn_make(struct sched_core *core, struct served *const *models, int n);
