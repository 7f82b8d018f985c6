// serve.h - `oxinferd serve`: turns settings into an engine and a server, and runs them.
#pragma once

#include "base/err.h"

struct config;

// Runs until a signal ends it; *ret_status is the process's exit status. A model that cannot be loaded ends the start with
// its error. args: what c was read from, to be read again.
MUST_CHECK err_code serve_run(const struct config *c, char *const *args, int nargs, int *ret_status, err *e);

// Everything serve_run would refuse before it loads or binds anything.
MUST_CHECK err_code serve_check(const struct config *c, err *e);
