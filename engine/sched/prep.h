// prep.h - the threads that turn a task into token ids: chat template, tokenizer, context check.
//
// A session belongs to one of them from prep_submit until it is handed on (generation) or ended (anything wrong, and the
// tasks that need no model: tokenize, detokenize, render). Nothing here waits for the scheduler. One that is cancelled or
// whose deadline passes leaves the line (line.h) at once and a thread's hands within a millisecond or so.
#pragma once

#include "engine/sched/session.h"

struct line;
struct prep;
struct sched;

struct prep *prep_open(int threads, struct line *line, struct sched *sched);  // the line stays the caller's
void prep_submit(struct prep *p, struct session *s);
void prep_close(struct prep *p);  // ends what is left with ERR_DRAINING, waits for the threads
