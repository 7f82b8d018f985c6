// exchange.h - lifetime of one request and its answer. The struct is in state.h.
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct exchange;
struct request;
struct server;

// One reference, MHD's. target is copied.
struct exchange *exchange_new(struct server *s, const char *target);
struct exchange *exchange_ref(struct exchange *x);
void exchange_unref(struct exchange *x);  // any thread; the last one frees everything
struct exchange *exchange_of(const struct request *r);

// The handler's side, any thread: the handler has answered. True when the client was still there (or the loop had not
// given up on the request); waits for an on_gone that is running.
bool exchange_end(struct exchange *x);
// Corrects the key's quota by what was used and gives it back; done by exchange_end. Any thread.
void exchange_settle(struct exchange *x);
// Loop thread: nobody waits for the answer any more. Runs on_gone unless the handler has answered or it ran before.
void exchange_gone(struct exchange *x);
// Loop thread: the client has waited long for a first byte. Runs on_quiet unless the handler has answered.
void exchange_quiet(struct exchange *x);
// Loop thread: the request is ended from outside. True: its stream has had its last event, by on_ended.
bool exchange_ended(struct exchange *x, const err *e);
// Marks the stream: no more events, reader breaks off.
void exchange_fail(struct exchange *x);
// Tells the loop to look at x, unless this is the handler being called by the loop right now.
void exchange_post(struct exchange *x);
