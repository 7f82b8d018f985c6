// plan.h - the rows of the next step: every decoding row, then prompts and batch rows into the room that is left, in the
// order of share.h. Scheduler thread.
#pragma once

#include <stdbool.h>

#include "engine/sched/served.h"

struct plan_room {
    bool decide;          // a step of decisions; else of generation
    bool extras;          // prompts and batch rows too
    double room_s;        // how much longer they may make the step; one token is always taken
    double batch_room_s;  // the same for batch work
};

void plan_step(struct served *m, const struct plan_room *room);  // m->batch, m->items and m->step
bool plan_is_decoding(const struct session *s, const struct choice *c);
// A row that every step of generation has: batch rows wait for room, decisions have steps of their own.
bool plan_is_due(const struct session *s, const struct choice *c);
// Whether it has other rows: of a prompt, of batch work, of a decision.
bool plan_has_extra(const struct session *s);
// Seconds of its own that the session's prompts and rounds take until they are computed.
double plan_rest_s(const struct served *m, const struct session *s);
