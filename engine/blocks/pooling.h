// pooling.h - from the states of a text's tokens to its vector: pooling and the modules that follow it.
//
//     pooling_open(m, hidden, &p, &e);     // modules.json of a sentence-transformers folder; a GGUF's pooling_type
//     pooling_run(lane, p, ops, x, texts, n, scratch, out);             // every lane, ends with a barrier
//
// Built: Pooling (cls, max, mean, mean_sqrt_len, weightedmean, last token, or several of them side by side), Dense,
// LayerNorm, Normalize. A folder without modules.json gets mean pooling, as in sentence-transformers. A vector depends on
// its own text's rows alone. Immutable after open.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct model;
struct pooling;

struct pooling_text {
    int first, rows;  // of the states
    int skip;         // rows at the start that are not pooled (a prompt); less than rows
};

// ERR_UNSUPPORTED names a module, or an option of one, that is not built.
MUST_CHECK err_code pooling_open(struct model *m, int hidden, struct pooling **ret_pool, err *e);
void pooling_close(struct pooling *p);
int pooling_dims(const struct pooling *p);
bool pooling_includes_prompt(const struct pooling *p);
size_t pooling_bytes(const struct pooling *p);  // of packed weights
// For at most n texts.
size_t pooling_scratch_bytes(const struct pooling *p, int n);
// x [rows, hidden] must be complete. out [n, pooling_dims].
void pooling_run(struct lane *lane, const struct pooling *p, const struct cpu_ops *ops, const float *x,
              const struct pooling_text *texts, int n, void *scratch, float *out);
