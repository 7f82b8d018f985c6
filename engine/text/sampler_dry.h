// sampler_dry.h - DRY ("don't repeat yourself", p-e-w, text-generation-webui PR 5677; llama.cpp's rules for breakers): the
// token that would continue a repetition is made less likely, the more so the longer the repetition. Part of sampler.c.
//
// A repetition of m tokens is a longest end of the last last_n tokens that stands somewhere before too, after the last
// breaker. From m = allowed_length on, the token that followed there loses multiplier * base ^ (m - allowed_length).
//
// Breakers are texts, found in the text of the tokens: a token that has one in it breaks, and one that only ends in the
// next token breaks there. What is a breaker by itself is never made less likely. Owned by one sampler.
#pragma once

#include <stdint.h>

#include "engine/generate.h"

struct dry;
struct tokenizer;

// t: NULL: no breaker is ever met. Copies what it needs of s; t must outlive it.
struct dry *sampler_dry_new(const struct sampling *s, const struct tokenizer *t);
struct dry *sampler_dry_copy(const struct dry *d);
void sampler_dry_free(struct dry *d);
void sampler_dry_take(struct dry *d, int32_t id);
void sampler_dry_apply(struct dry *d, float *logits, int vocab);
