// sampling.h - the fields that say how tokens are chosen and what ends an answer: OpenAI's, and those of vLLM and llama-server.
//
//     api_sampling_read(&f, &r->arena, model.vocab, &settings);
//     api_sampling_copy(&task->generate, &task->arena);      // a task shares nothing with its request
#pragma once

#include "base/arena.h"
#include "engine/engine.h"
#include "server/api/fields.h"

// What is absent stays. Lists go into the arena, or stay the request's.
void api_sampling_read(struct fields *f, struct arena *a, int vocab, struct generate *g);
// The lists that g points to become the arena's.
void api_sampling_copy(struct generate *g, struct arena *a);
