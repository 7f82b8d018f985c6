// sampler.h - logits to a token.
//
// Order: mask, logit bias, penalties (repetition over prompt and output; presence and frequency over output), DRY, banned
// tokens; then greedy if temperature is 0, whatever else is asked for; else temperature, top-k, top-p, min-p and a draw, as
// vLLM and transformers do it. Where a mask admits SAMPLER_FEW tokens or fewer, penalties and DRY are left out.
//
// With typical_p, top_n_sigma, XTC or dynamic temperature the rest is llama-server's chain instead, which sees the model's
// distribution and applies the temperature last: top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature, draw. With
// mirostat it is temperature, Mirostat and a draw; the other cuts are not applied, as in llama-server.
//
//     repetition      Keskar et al. 2019 (CTRL), over the last penalty_last_n tokens of prompt and output, as are the others
//     typical_p       Meister et al. 2022: the tokens whose surprise is nearest the entropy, up to this mass
//     top_n_sigma     Tang et al. 2024: logits at least max - n standard deviations
//     XTC             p-e-w, text-generation-webui PR 6335: with xtc_probability, of the tokens with a probability of
//                     xtc_threshold or more only the least likely stays
//     DRY             sampler_dry.h
//     dynatemp        t - range to t + range, by (entropy / largest entropy) ^ exponent, as in llama.cpp
//     mirostat 1, 2   Basu et al. 2020; 1 with m = 100 as in llama.cpp. Its mu is a function of the tokens that were taken
//
// The draws for output token number i of choice c are functions of (seed, c, i): replay and batch mates cannot change them.
// Ties go to the lower id everywhere. A prep thread makes a sampler, the scheduler's uses it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/task.h"

struct sampler;
struct tokenizer;

enum { SAMPLER_FEW = 16 };

struct sampler *sampler_new(const struct sampling *s, int vocab, int choice);  // copies s
struct sampler *sampler_fork(const struct sampler *s, int choice);             // same history
void sampler_free(struct sampler *s);

// The tokens' texts, in which DRY looks for its breakers; before any token is seen. Must outlive the sampler.
void sampler_set_tokenizer(struct sampler *s, const struct tokenizer *t);
void sampler_see_prompt(struct sampler *s, const int32_t *ids, int n);
// Picks output token number `index`. logits [vocab] are changed in place. banned: ids that may not be chosen now (the
// stop set while below min_tokens), may be NULL. If log-probabilities are wanted take them before (logprobs are of the
// model's own distribution). mask: bits of the ids that may be chosen at all, before anything else is applied; NULL: all.
// -1: no token can be picked, the logits are not numbers (or all are masked).
int32_t sampler_pick(struct sampler *s, float *logits, int index, const uint64_t *mask, const int32_t *banned,
                     size_t nbanned);
// The next output token is this one, without a choice: leaves everything as if it had been the only one admitted to a pick.
void sampler_take(struct sampler *s, int32_t id);

// log-softmax of the chosen id and of the k likeliest (k <= 64), likeliest first, ties to the lower id. *ret_rank: how many
// tokens are likelier, and 1.
void sampler_logprobs(const float *logits, int vocab, int32_t chosen, int k, float *ret_chosen, int *ret_rank,
                      struct token_alternative *ret_top, int *ret_ntop);
// What the log-softmax takes off every logit; NAN when one is not a number.
double sampler_lse(const float *logits, int vocab);
