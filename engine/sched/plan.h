// plan.h - the rows of the next step: every decoding row, then prompts up to the budget. Scheduler thread.
#pragma once

#include <stdbool.h>

#include "engine/sched/served.h"

void plan_step(struct served *m);  // m->batch and m->items
bool plan_is_decoding(const struct session *s, const struct choice *c);
