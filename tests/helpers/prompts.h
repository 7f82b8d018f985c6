// prompts.h - numbered prompts for a text model "m", and what it answers to them: tokens and log-probabilities, to be
// compared bit for bit. Prompt i is the same in every test; every fourth shares a long stem with its like, every second is
// sampled.
#pragma once

#include <stdint.h>

#include "engine/engine.h"
#include "tests/helpers/client.h"

enum { PROMPTS_LONGEST = 200 };

struct prompts {
    int n, out;        // answers to prompts 0 .. n - 1, of out tokens each
    int most;          // prompts 3, 11, 19 ... get so many instead; prompts_init: as all
    int vocab;
    int32_t *ids;      // [n, most]
    float *logprobs;   // [n, most]
};

void prompts_init(struct prompts *p, struct engine *en, int n, int out);
void prompts_init_uneven(struct prompts *p, struct engine *en, int n, int out, int most);
void prompts_done(struct prompts *p);
int prompts_make(int32_t *ids, int i, int vocab);  // ids[PROMPTS_LONGEST]; its length
// Fails the test when it is refused. c->cancel_on and cancel_at (client.h) may be set before.
void prompts_submit(const struct prompts *p, struct client *c, struct engine *en, int i, const char *salt);
// Waits, checks that all came in order, and keeps the answer as that to prompt i; i < 0 keeps nothing. Ends the client.
void prompts_collect(struct prompts *p, struct client *c, int i);
int prompts_alone(struct prompts *p, struct engine *en, const char *salt);  // one after another; cached tokens
// Fails the test when two have different bits; how says what was compared.
void prompts_same(const char *how, const struct prompts *want, const struct prompts *got);
