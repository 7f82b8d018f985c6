// check.h - what a task asks for against what its model can, before it is prepared. Quick; any thread.
#pragma once

#include "base/err.h"
#include "engine/task.h"

struct model;

// max_running: most sequences of a step. ERR_INVALID or ERR_UNSUPPORTED.
MUST_CHECK err_code check_task(const struct model *m, const struct task *t, int max_running, err *e);
