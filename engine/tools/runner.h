// runner.h - runs a model without a scheduler: for the offline commands and the tests of families.
//
//     struct runner *r;
//     runner_open(&tools_model, 512, 1, 1, 4096, true, &r, &e);  // 512 rows a step, 1 sequence, 4096 positions
//     struct kv_seq s;
//     kv_seq_init(&s, r->pool);
//     struct piece p = {&s, ids, n, PIECE_LAST};
//     runner_step(r, &p, 1, &e);                                 // r->logits [r->nout, vocab]
//     kv_seq_done(&s);
//     runner_close(r);
//
// One thread owns a runner and is lane 0 of its team.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/model.h"
#include "engine/sched/batch.h"
#include "engine/sched/kv.h"
#include "engine/tools.h"

struct team;

enum piece_out { PIECE_NONE, PIECE_LAST, PIECE_ALL };  // whose logits are wanted

// Rows of one sequence in a step: they follow its committed positions.
struct piece {
    struct kv_seq *seq;
    const int32_t *ids;
    int rows;
    enum piece_out out;
};

struct runner {
    struct model *model;
    const struct cpu_ops *ops;
    struct team *team;
    struct kv_pool *pool;
    int max_rows, max_seqs;
    bool adapter;    // steps use the adapter: on when one was asked for, and the owner may switch it
    const uint64_t *out_groups;  // as in struct batch; the owner may set it
    int nout;        // of the last step
    float *logits;   // [max_out, vocab]
    int max_out;
    void *scratch;
    size_t scratch_bytes;
    int32_t *ids, *pos, *out_rows;  // [max_rows]
    struct batch_seq *seqs;         // [max_seqs]
};

// Words of a tools_model as options; ERR_INVALID names the wrong one.
MUST_CHECK err_code runner_options(const struct tools_model *t, struct model_options *ret_options, err *e);

// positions: KV memory for that many, in whole pages for each of max_seqs sequences. max_out: rows of logits a step may
// have. Errors: those of model_open, and ERR_UNSUPPORTED when the model generates no text.
MUST_CHECK err_code runner_open(const struct tools_model *t, int max_rows, int max_seqs, int max_out, size_t positions,
                                bool pin, struct runner **ret_runner, err *e);
void runner_close(struct runner *r);

// Errors: ERR_INVALID (an id outside the vocabulary, too many rows), ERR_CONTEXT, ERR_MEMORY (no page left).
MUST_CHECK err_code runner_step(struct runner *r, const struct piece *pieces, int n, err *e);
