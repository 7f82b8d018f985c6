// prep.h - the threads that turn a task into token ids: chat template, tokenizer, context check.
//
// A session belongs to one of them from prep_submit until it is handed on (generation) or ended (anything wrong, and the
// tasks that need no model: tokenize, detokenize, render). Nothing here waits for the scheduler.
#pragma once

#include "engine/sched/session.h"

struct prep;
struct sched;

// capacity: most sessions that exist at once, so that submitting cannot fail.
struct prep *prep_open(int threads, int capacity, struct sched *sched);
void prep_submit(struct prep *p, struct session *s);
void prep_close(struct prep *p);  // ends what is left with ERR_DRAINING, waits for the threads
