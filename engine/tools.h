// tools.h - the offline commands: work on a model without a server. Used by the command line only.
//
// The second door beside engine.h: these run a model directly on the calling thread's team, with no scheduler, so that a
// check of a family needs nothing but the family.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct tools_model {
    const char *path;
    const char *activations, *kv, *isa;  // NULL: default
    int threads, context;
};

// oxinferd logits: f32 little-endian [rows, vocab] to out; all: a row for every position, else the last one.
// chunk: most tokens a step takes (0: 512); the bits do not depend on it.
MUST_CHECK err_code tools_logits(const struct tools_model *m, const int32_t *ids, size_t nids, bool all, int chunk,
                                 FILE *out, err *e);

struct tools_bench {
    int prompt, generate, depth, parallel, reps;  // pp, tg, depth, parallel sequences, repetitions
};
// oxinferd bench: one JSON line a figure to out (ARCHITECTURE §8).
MUST_CHECK err_code tools_bench(const struct tools_model *m, const struct tools_bench *b, FILE *out, err *e);

// oxinferd show: family, sizes, tasks, tensors not used, template, memory needed.
MUST_CHECK err_code tools_show(const struct tools_model *m, FILE *out, err *e);

// oxinferd devices: CPU features, cores used and why, caches, measured ceilings, GPUs and what each will be used for.
MUST_CHECK err_code tools_devices(FILE *out, err *e);
