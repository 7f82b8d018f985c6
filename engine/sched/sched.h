// sched.h - the scheduler: one thread, lane 0 of the team, that owns all sessions, trees, pools and counters.
//
//     sched_open(&config, slots, line, &s, &e);              // starts the thread and the team
//     sched_serve(s, model, metrics, kv_bytes, &m, &e);      // loader thread: pool, scratch; then it is served
//     sched_unserve(s, m); served_close(m);                  // any time, when no session of the model is left
//     sched_submit(s, session);                              // prep thread: a session in state QUEUED
//     sched_wake(s);                                         // after a cancel
//     sched_close(s);                                        // ends every session with ERR_DRAINING
//     served_close(m);                                       // afterwards
//
// A turn of the thread: take what arrived, end what was cancelled or is late, admit, then one step of one model (turn.h).
// How long a step takes is predicted (cost.h); who gets the time beside the decoding rows is decided by lanes and accounts
// (share.h). Decisions and generation have batches of their own, since the adapter is on for all rows or for none.
// Scheduling changes when a token is computed, never which.
//
// Memory: a session is admitted when pages for its prompt and the next 256 tokens of each choice can be promised, and
// takes further promises as it grows. When there are none left somebody is preempted: he keeps what he knows, gives his
// pages back, and is computed again later. The oldest is never preempted, and prep refuses what could not run alone, so
// every stream ends. Who is admitted next: admit.h.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct line;
struct memory;
struct metrics;
struct model;
struct served_needs;
struct session;
struct slot_table;
struct sched;
struct served;

struct sched_config {
    int threads;         // 0: one per usable core
    bool pin;
    int max_running;     // sequences in one step
    int prefill_chunk;   // most prefill tokens in one step; 0: SCHED_MAX_CHUNK, and fewer as the budget says
    struct memory *memory;  // what works and states beyond the model's reserve are charged to; NULL: nothing counts them
};

enum { SCHED_MAX_CHUNK = 512, SCHED_GROW_TOKENS = 256, SCHED_MAX_MODELS = 64 };

// It ends those in the line that nobody waits for any more; the line stays the caller's.
MUST_CHECK err_code sched_open(const struct sched_config *c, struct slot_table *slots, struct line *line,
                               struct sched **ret_sched, err *e);
void sched_close(struct sched *s);  // the threads end; models stay the caller's
void sched_free(struct sched *s);   // after sched_close

// Any thread; see served_open.
MUST_CHECK err_code sched_serve(struct sched *s, struct model *m, struct metrics *metrics, size_t kv_bytes,
                                struct served **ret_served, err *e);
// Any thread: takes it out of service. No session of it is left anywhere. Returns when the scheduler has let go of it;
// served_close is the caller's.
void sched_unserve(struct sched *s, struct served *m);
// What serving the model takes (served.h), with this scheduler's settings and lanes.
void sched_needs(struct sched *s, const struct model *m, struct served_needs *ret_needs);
int sched_max_running(const struct sched *s);
void sched_submit(struct sched *s, struct session *session);
void sched_wake(struct sched *s);
int64_t sched_heartbeat_ns(const struct sched *s);  // when the thread last went round; takes no lock

// For tests: drops every cached page nobody uses, and checks the accounts, on the scheduler's thread. False: unsound.
bool sched_check(struct sched *s, bool flush);
