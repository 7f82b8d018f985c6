// gate.h - holds an engine's threads in a callback, so that a test says what is there before anything is computed, however slow
// or busy the machine is.
//
//     gate_close(&g, en, "m");       // the scheduler's thread rests in the first event of a task of one token
//     ... submit ...
//     gate_prepared(en, "m");        // all of it has been prepared
//     gate_open(&g);                 // and now begins together
//
// gate_prep does the same to the threads that prepare: what is submitted meanwhile waits in line.
#pragma once

#include <stdatomic.h>

#include "engine/engine.h"

enum { GATE_PREPARERS = 2 };  // threads that prepare

struct gate {
    atomic_int held, open, ended;
    struct ticket ticket;
    err error;
};

void gate_close(struct gate *g, struct engine *en, const char *model);
void gate_open(struct gate *g);  // waits for the end of its task

void gate_prep(struct gate g[GATE_PREPARERS], struct engine *en, const char *model);
void gate_prep_open(struct gate g[GATE_PREPARERS]);
void gate_prepared(struct engine *en, const char *model);
