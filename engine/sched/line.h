// line.h - sessions that wait for a prep thread, in order of arrival.
//
//     line_push(l, s);                              // submit
//     while ((s = line_pop(l))) ...                 // a prep thread; NULL: closed and empty
//     while ((s = line_take_ended(l, now, &why)))   // the scheduler: those that nobody waits for leave out of the middle,
//         session_end(s, &why);                     //   so that they hold no slot until the ones before are prepared
//
// Any thread; a session belongs to whoever took it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct line;
struct session;

struct line *line_new(void);
void line_free(struct line *l);  // empty, and nobody waits in it

bool line_push(struct line *l, struct session *s);  // false: closed
struct session *line_pop(struct line *l);           // waits
struct session *line_take_ended(struct line *l, int64_t now_ns, err *ret_why);  // NULL: none must end
int64_t line_deadline(struct line *l);               // the earliest of those in it; INT64_MAX: none has one
void line_close(struct line *l);                    // no more pushes
