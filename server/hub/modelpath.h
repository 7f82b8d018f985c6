// modelpath.h - what model = NAME=VALUE means by its value: a path, or a model of the store.
#pragma once

#include "base/err.h"

struct config;

// The path itself when something is there, else where the store has the model of that name, which counts as used from now
// on. *ret_path is freed by free(). ERR_NOT_FOUND says how to fetch it.
MUST_CHECK err_code modelpath_find(const struct config *c, const char *value, char **ret_path, err *e);
// The same for a start that may fetch it (pull = missing): then any reference will do.
MUST_CHECK err_code modelpath_check(const struct config *c, const char *value, err *e);

// With pull = missing: fetches every model of the settings that is neither a path nor in the store, and logs it.
// Blocks.
MUST_CHECK err_code modelpath_pull_missing(const struct config *c, err *e);
