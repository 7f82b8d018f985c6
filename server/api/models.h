// models.h - the models that are served, and finding the one a request means.
#pragma once

#include <stdbool.h>

#include "engine/engine.h"

struct fields;

// Reads the field "model". Absent: the model, when exactly one is served or can do it. Fails with 404 and the names that
// are served when there is no such model, with 400 and the endpoints it serves when it is known to lack all of `can`
// (task_bits; 0: any model will do).
bool api_models_find(struct fields *f, unsigned can, struct model_info *ret_info);
