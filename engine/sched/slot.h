// slot.h - the table of accepted tasks: tickets, cancel words, and the bound on how many may wait.
//
//     slot_take(slots, &ticket, &e);            // submit: ERR_BUSY when too many wait
//     slot_cancel(slots, ticket);               // any thread, any number of times; a stale ticket does nothing
//     if (slot_cancelled(slots, ticket)) ...    // whoever works on the task
//     slot_begin(slots);                        // it left the queue
//     slot_give(slots, ticket, false);          // it ended: the generation rises, later cancels miss
//
// A slot's word is its generation and one cancel bit, so a cancel is one compare-and-swap. Taking and giving lock.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct slot_table;

// At most max_waiting tasks wait and max_waiting + max_running exist.
struct slot_table *slot_open(int max_waiting, int max_running);
void slot_close(struct slot_table *t);

MUST_CHECK err_code slot_take(struct slot_table *t, struct ticket *ret_ticket, err *e);
void slot_begin(struct slot_table *t);
void slot_give(struct slot_table *t, struct ticket ticket, bool waiting);  // waiting: it never began

bool slot_cancel(struct slot_table *t, struct ticket ticket);  // true: this call did it
bool slot_cancelled(const struct slot_table *t, struct ticket ticket);
int64_t slot_cancel_ns(const struct slot_table *t, struct ticket ticket);  // when; 0: not cancelled

int slot_count(const struct slot_table *t);  // all slots
int slot_waiting(struct slot_table *t);
int slot_unused(struct slot_table *t);
