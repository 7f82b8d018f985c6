// sampler.h - logits to a token.
//
// Order: logit bias, penalties (repetition over prompt and output; presence and frequency over output), then greedy if
// temperature is 0, else temperature, top-k, top-p, min-p, and a draw. The draw for output token number i of choice c is a
// function of (seed, c, i): replay and batch mates cannot change it. Ties go to the lower id everywhere.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

struct sampler;

struct sampler *sampler_new(const struct sampling *s, int vocab, int choice);  // copies s
struct sampler *sampler_fork(const struct sampler *s, int choice);             // same history
void sampler_free(struct sampler *s);

void sampler_see_prompt(struct sampler *s, const int32_t *ids, int n);
// Picks output token number `index`. logits [vocab] are changed in place. banned: ids that may not be chosen now (the
// stop set while below min_tokens), may be NULL. If log-probabilities are wanted take them before (logprobs are of the
// model's own distribution). mask: bits of the ids that may be chosen at all, before anything else is applied; NULL: all.
// -1: no token can be picked, the logits are not numbers (or all are masked).
int32_t sampler_pick(struct sampler *s, float *logits, int index, const uint64_t *mask, const int32_t *banned,
                     size_t nbanned);

// log-softmax of the chosen id and of the k likeliest (k <= 64), likeliest first, ties to the lower id.
void sampler_logprobs(const float *logits, int vocab, int32_t chosen, int k, float *ret_chosen,
                      struct token_alternative *ret_top, int *ret_ntop);
