// line.h - sessions that wait for a prep thread: small ones and large ones, each in order of arrival, but for that the accounts take
// turns. Large ones have at most half of the threads, so that small ones never wait for them.
//
//     line_push(l, s, size);                        // submit
//     while ((s = line_pop(l, &size))) {            // a prep thread; NULL: closed and empty
//         ...
//         line_done(l, size);
//     }
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

enum line_size { LINE_SMALL, LINE_LARGE };

struct line *line_new(int threads);
void line_free(struct line *l);  // empty, and nobody waits in it

bool line_push(struct line *l, struct session *s, enum line_size size);  // false: closed
struct session *line_pop(struct line *l, enum line_size *ret_size);      // waits
void line_done(struct line *l, enum line_size size);                     // what was popped has been worked on
struct session *line_take_ended(struct line *l, int64_t now_ns, err *ret_why);  // NULL: none must end
int64_t line_deadline(struct line *l);               // the earliest of those in it; INT64_MAX: none has one
void line_close(struct line *l);                    // no more pushes
