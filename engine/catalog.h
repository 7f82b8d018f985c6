// catalog.h - the models by name: which are in memory, who waits for one that is not, which one has to go.
//
//              asked for, or eager                    loaded
//   UNLOADED ──────────────────────▶ LOADING ───────────────────────▶ READY
//      ▲  ▲                           │   ▲                             │ idle, evicted, or told to
//      │  └── nobody waits any more ──┘   └── somebody waits ──┐        ▼
//      └──────────────── its last task ended ───────────────── UNLOADING
//   LOADING ──▶ FAILED ──asked for again, after a back-off──▶ LOADING
//
// A task for a model that is not READY is parked here: it counts as waiting (slot.h), may be cancelled and has its
// deadlines, and goes on when the model is there. All parked tasks of a model begin before it can be evicted again, so
// models that take turns in too little memory all get their turn.
//
// Two threads. The loader opens and closes models, one at a time, in the order they were asked for: when there is not
// enough memory (memory.h) it takes the least recently used ones out of service, idle ones first, never pinned ones, and
// waits for the tasks that have them. The keeper ends parked tasks that were cancelled or waited too long, and unloads
// what is idle. The lock is never held while a model is opened or a task is ended.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/engine.h"

struct catalog;
struct cpu_ops;
struct memory;
struct model;
struct prep;
struct sched;
struct sched_config;
struct slot_table;

enum { CATALOG_LOAD_TIMEOUT_S = 300, CATALOG_BACK_OFF_MS = 1000, CATALOG_MAX_BACK_OFF_MS = 60000 };

struct catalog_config {
    const struct cpu_ops *ops;
    struct slot_table *slots;
    struct sched *sched;
    struct prep *prep;
    struct memory *memory;
    size_t kv_bytes;        // of all models; 0: what weights leave
    int load_timeout_s;     // a parked task waits so long; 0: CATALOG_LOAD_TIMEOUT_S
    int idle_unload_s;      // 0: never
    void (*on_model)(void *arg, const struct model_event *ev);
    void *on_model_arg;
};

MUST_CHECK err_code catalog_open(const struct catalog_config *c, struct catalog **ret_catalog, err *e);
// Nothing new begins to load unless tasks wait for it; waiting callers get ERR_DRAINING.
void catalog_drain(struct catalog *c);
// Ends the threads and every parked task. Afterwards sched_close, then catalog_free, then sched_free.
void catalog_stop(struct catalog *c);
void catalog_free(struct catalog *c);

MUST_CHECK err_code catalog_add(struct catalog *c, const struct model_config *m, err *e);
// A model the caller opened. It cannot be opened again, so it is as good as pinned. On failure it stays the caller's.
MUST_CHECK err_code catalog_add_open(struct catalog *c, const char *name, struct model *m, err *e);
MUST_CHECK err_code catalog_alias(struct catalog *c, const char *alias, const char *name, err *e);

int catalog_list(struct catalog *c, struct model_info *ret_infos, int max);
bool catalog_find(struct catalog *c, const char *name, struct model_info *ret_info);
const struct metrics *catalog_metrics(struct catalog *c, const char *name);
MUST_CHECK err_code catalog_wait(struct catalog *c, const char *name, err *e);
MUST_CHECK err_code catalog_load(struct catalog *c, const char *name, err *e);
MUST_CHECK err_code catalog_unload(struct catalog *c, const char *name, err *e);

// engine_submit, without the engine's own checks.
MUST_CHECK err_code catalog_submit(struct catalog *c, struct task *t, struct ticket *ret_ticket, err *e);
void catalog_cancelled(struct catalog *c);  // some task was: it may be parked

// Adds up the models' numbers (metrics.h).
void catalog_stats(struct catalog *c, struct engine_stats *st);
