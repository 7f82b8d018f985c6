// need.h - what a task counts as while it waits (slot.h), guessed before anything is prepared.
#pragma once

#include "engine/sched/slot.h"
#include "engine/task.h"

// Texts count a token for four bytes, ids one each; samples and texts count their bytes. Any thread; reads the task once.
void need_load(const struct task *t, struct slot_load *ret_load);
