// cancel.h - long work on behalf of somebody asks, between its pieces, whether it still has to go on.
//
//     static bool gone(const struct cancel *c) { return atomic_load(&((const struct mine *)c)->stop); }
//     struct mine m = {.cancel.asked = gone, ...};          // cancel is its first member
//     const struct cancel *before = cancel_watch(&m.cancel);
//     ... anything on this thread: ...
//         while (more) {
//             if (cancel_check(bytes_done, e))               // ERR_CANCELLED; or: if (cancel_due(bytes_done)) break;
//                 return e->code;
//         }
//     cancel_watch(before);
//
// The watch is the thread's, so that what lies between the asker and the loops (a tokenizer, a template, a filter bank)
// need not hand it through. Once it has said yes it is not asked again: everything that looks after that is told to stop.
// Without a watch nothing is ever due, and looking costs a nanosecond.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { CANCEL_EVERY = 16 << 10 };  // units of work between two questions; a unit is a byte of text or about as much work

struct cancel {
    bool (*asked)(const struct cancel *c);
};

// Of this thread from now on; NULL: none. Returns the one before.
const struct cancel *cancel_watch(const struct cancel *c);
// Units of this thread's watch that have been told so far: a bound on work that does not depend on the machine. For `asked`, too.
size_t cancel_work(void);
bool cancel_due(size_t work);  // so much was done since the last look; true: stop
MUST_CHECK err_code cancel_check(size_t work, err *e);
