// slot.h - the table of accepted tasks: tickets, cancel words, and the bounds on what may wait.
//
//     struct slot_load load = {account, n, tokens, bytes};  // as it is known before preparation
//     slot_take(slots, &load, &ticket, &e);     // submit: ERR_BUSY when too much waits, ERR_QUOTA when too much of it
//                                               // is this account's; e.retry_ms says when there will be room
//     slot_refine(slots, ticket, ntokens);      // tokenised
//     slot_cancel(slots, ticket);               // any thread, any number of times; a stale ticket does nothing
//     if (slot_cancelled(slots, ticket)) ...    // whoever works on the task
//     slot_begin(slots, ticket);                // it left the queue
//     slot_give(slots, ticket, false);          // it ended: the generation rises, later cancels miss
//
// Three bounds hold for all that wait: requests (n choices count n), prompt tokens, bytes. An account may have all of
// each while no other has a task; else at most a quarter. What alone is larger than a bound is taken when nothing waits, so
// that a bound delays and never excludes. Refining refuses nothing: tokens are guessed from bytes, four to one.
//
// A slot's word is its generation and one cancel bit, so a cancel is one compare-and-swap. Taking and giving lock.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"

struct slot_table;

struct slot_limits {
    int max_waiting, max_running;  // at most the sum of both exists
    size_t max_tokens, max_bytes;  // of what waits; 0: no bound
};

struct slot_load {
    const char *account;   // NULL: the common one
    int n;                 // requests it counts as; 0 counts as 1
    size_t tokens, bytes;
};

struct slot_table *slot_open(const struct slot_limits *limits);
void slot_close(struct slot_table *t);

MUST_CHECK err_code slot_take(struct slot_table *t, const struct slot_load *load, struct ticket *ret_ticket, err *e);
// What slot_take would say, without taking anything: before work is put into a request that will be refused.
MUST_CHECK err_code slot_room(struct slot_table *t, const struct slot_load *load, err *e);
void slot_refine(struct slot_table *t, struct ticket ticket, size_t tokens);  // while it waits
void slot_begin(struct slot_table *t, struct ticket ticket);
void slot_give(struct slot_table *t, struct ticket ticket, bool waiting);  // waiting: it never began

bool slot_cancel(struct slot_table *t, struct ticket ticket);  // true: this call did it
bool slot_cancelled(const struct slot_table *t, struct ticket ticket);
int64_t slot_cancel_ns(const struct slot_table *t, struct ticket ticket);  // when; 0: not cancelled

int slot_count(const struct slot_table *t);  // all slots
int slot_waiting(struct slot_table *t);      // requests
size_t slot_waiting_tokens(struct slot_table *t);
int slot_unused(struct slot_table *t);
