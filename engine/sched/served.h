// served.h - a model as it is served: its memory, its sessions, and the step being made. What the scheduler's files share:
//
//     sched.c     the thread: what arrives, what it tells others
//     turn.c      whose step is next, how long it may be, the step itself
//     admit.c     sessions begin (pages are promised), give their pages back, are ended
//     plan.c      which rows the next step has
//     commit.c    what a computed step brings
//     score_lanes.c  sequences that weigh texts instead of writing one
//     served.c    memory, lists, the end of a session
//
// Made by the loader thread (served_open), then handed to the scheduler's (sched_serve), which owns everything in it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/sched/batch.h"
#include "engine/sched/cost.h"
#include "engine/sched/heads.h"
#include "engine/sched/sched.h"
#include "engine/sched/session.h"
#include "engine/sched/share.h"

struct metrics;
struct model;
struct team;

// What all served models share.
struct sched_core {
    struct sched_config config;
    struct slot_table *slots;
    struct team *team;
    size_t charged;  // by all sessions together, beside the models' own
    struct share share;
    int64_t (*now_ns)(void);  // clock_ns; in tests a clock of their own
    uint64_t arrivals;
    // A cycle is a step of each model with decoding rows, and one of something else beside them (turn.c).
    uint64_t cycle;
    bool extra_done;
    bool gave_way;  // somebody was preempted in this turn
};

// A sequence's part of a step.
struct plan_item {
    struct session *session;
    struct choice *choice;
    int rows, first_out, nout;
    int ndraft;      // the last of them, which are the choice's draft
    bool extra;      // not a decoding row that every step has
    double cost_s;   // what it adds to the step
};

struct served {
    struct sched_core *core;
    struct model *model;
    struct metrics *metrics;
    struct grammar_cache *grammars;  // its own lock; used by prep threads
    struct kv_pool *pool;
    struct prefix *prefix;
    size_t kv_bytes, token_bytes;
    int context, max_rows;
    struct cost cost;

    struct session **waiting, **running;  // by arrival
    int nwaiting, nrunning, nseqs;        // nseqs: choices of the running ones that are not done
    int nworks;                           // running ones with a work
    uint64_t cycle;                       // in which its decoding rows had their last step
    bool decide;                          // the step is one of decisions: hidden states, adapter on

    struct batch_builder batch;
    struct heads heads;
    double head_share;                    // of the last step with logits
    struct plan_item *items;
    struct cost_step step;
    int nitems, prefill_rows, prompt_logits;
    float *logits, *spare;  // [max_out, vocab]; one row, for forks
    float *hidden;          // [max_out, model.hidden], when the model decides
    size_t logits_bytes, scratch_bytes, hidden_bytes, work_bytes;
    size_t state_bytes, reserve;  // of a sequence; of one task, held ready so that one can always run
    bool reserve_taken;
    void *scratch, *work_scratch;
};

// What serving a model takes beside its weights and its KV pool.
struct served_needs {
    size_t step;          // scratch, logits and hidden states of a batch
    size_t work_scratch;  // shared by the model's works
    size_t works;         // as many as run side by side, together
    size_t reserve;       // one task: its work, the recurrent state of its sequences
    size_t kv_page, kv_least, kv_most;  // a page, a pool worth having, the largest its sequences can use; 0: no pool
};
void served_needs(const struct model *m, const struct sched_config *c, int lanes, struct served_needs *ret_needs);

// Any thread. kv_bytes is the most the pool may take; it takes no more than its sequences could use twice over.
MUST_CHECK err_code served_open(struct sched_core *core, struct model *m, struct metrics *metrics, size_t kv_bytes,
                                struct served **ret_model, err *e);
void served_close(struct served *m);  // not the struct model

int served_context(const struct served *m);  // the model's, or fewer when the pool is smaller
int served_pages(const struct served *m);
size_t served_kv_bytes(const struct served *m);     // of the pool
size_t served_token_bytes(const struct served *m);
// The gauges of the pool; not loaded: there is none any more.
void served_show_pages(const struct served *m, bool loaded);
void served_attach(struct served *m, struct session *s);  // says which model a new session is for

// ---- for the scheduler's files

enum { SERVED_PROMPT_LOGITS = 16 };  // rows of prompts and drafts with logits in one step beyond the sequences' own

void served_insert(struct session **list, int *n, struct session *s);  // by arrival
void served_remove_at(struct session **list, int *n, int i);
void served_remove(struct session **list, int *n, const struct session *s);
int served_live_choices(const struct session *s);  // that have or will have a row
bool served_is_live(const struct choice *c);
bool served_in_step(const struct served *m, const struct session *s);  // of the kind the step is made of, and not held
// Memory that a session holds while it runs: its work and the recurrent states of its choices. The first has the model's
// reserve; any other is charged to the budget. False: it must wait. ERR_MEMORY in s->failure: it would wait for ever. Taking
// twice takes once: a preempted session keeps its work.
MUST_CHECK bool served_take_memory(struct served *m, struct session *s);
void served_give_memory(struct served *m, struct session *s);
void served_end(struct sched_core *core, struct session *s, const err *why);  // s is in neither list any more
void served_end_running(struct served *m, struct session *s, const err *why);
