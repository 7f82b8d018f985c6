// prep.h - the threads that turn a task into token ids: chat template, tokenizer, context check.
//
// A session belongs to one of them from prep_submit until it is handed on (generation) or ended (anything wrong, and the
// tasks that need no model: tokenize, detokenize, render). Nothing here waits for the scheduler. One that is cancelled or
// whose deadline passes leaves the line (line.h) at once and a thread's hands within a millisecond or so.
#pragma once

#include "engine/sched/session.h"

struct line;
struct prep;

// A preparation as a whole is bounded in units of work (base/cancel.h: a byte of text, or as much), some 20 to 50 ns each: what takes
// more is ERR_INVALID. One with more bytes than PREP_SMALL_BYTES, or that has done PREP_SMALL_WORK, is a large one (line.h).
enum { PREP_WORK = 256 << 20, PREP_SAMPLE_WORK = 4, PREP_SMALL_WORK = 2 << 20, PREP_SMALL_BYTES = 256 << 10 };
struct sched;

struct prep *prep_open(int threads, struct line *line, struct sched *sched);  // the line stays the caller's
void prep_submit(struct prep *p, struct session *s);
void prep_close(struct prep *p);  // ends what is left with ERR_DRAINING, waits for the threads
