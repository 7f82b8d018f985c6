// samebits.h - the exactness rule on a whole model: all logits of a prompt are the same bits for any chunking, number of
// lanes, company in the batch and instruction set, and for any part of the output head.
#pragma once

#include "engine/tools/runner.h"

enum { SAMEBITS_ROWS = 512, SAMEBITS_SEQS = 4 };

struct samebits {
    const char *model;  // of tests/fixtures/models, or a path that holds a slash
    const char *activations, *kv, *isa;
    int threads;        // for samebits_open
    int tokens;         // of the prompt, at most 1000; past 600 the last ones also come one by one
};

// Fails the running test unless the model opens; NULL where the machine does not run s->isa.
struct runner *samebits_open(const struct samebits *s);
// The prompt's ids; the same for the same arguments.
void samebits_draw(int32_t *ids, int n, int vocab, int salt);
// [tokens, vocab], to be freed: the prompt fed `chunk` tokens at a time.
float *samebits_logits(struct runner *r, const int32_t *ids, int tokens, int chunk);
// Everything the rule says, on 1 and 2 lanes; the rest of *s as given.
void samebits_check(struct samebits s);
