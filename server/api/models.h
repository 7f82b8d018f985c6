// models.h - the models that are served, and finding the one a request means.
//
//     GET  /v1/models, /v1/models/{id}      what is served, in OpenAI's form; state, memory and limits under "meta"
//     POST /models/load, /models/unload     {"model": NAME}: asks for it to be in memory, or out of it; answers at once
#pragma once

#include <stdbool.h>

#include "engine/engine.h"

struct fields;
struct request;

// Reads the field "model" (an alias is as good as a name). What is found has been loaded once, so its facts are known; when
// the model never was, f fails for now and api_fields_reply waits for it and calls the handler again. Absent: the model, when exactly one is served or can do it. Fails with 404 and the names that
// are served when there is no such model, with 400 and the endpoints it serves when it is known to lack all of `can`
// (task_bits; 0: any model will do).
bool api_models_find(struct fields *f, unsigned can, struct model_info *ret_info);
// Waits until the model f->await is in memory, then calls the request's handler once more; answers with the error when it cannot be.
void api_models_await(struct fields *f);
