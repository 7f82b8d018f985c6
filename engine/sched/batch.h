// batch.h - the rows of one step, as a family's forward pass sees them, and the builder the scheduler fills.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/sched/kv.h"

// A run of consecutive positions of one sequence.
struct batch_seq {
    int row, rows;   // rows [row, row + rows) of the batch
    int pos;         // position of the first of them
    struct kv_seq *kv;
};

struct batch {
    int rows, nseqs, nout;
    const int32_t *ids;       // [rows] token ids
    const int32_t *pos;       // [rows] positions
    const struct batch_seq *seqs;
    const int32_t *out_rows;  // [nout] ascending: rows whose logits are wanted
    float *logits;            // [nout, vocab]; NULL: hidden is wanted
    // Row groups of the head (MAT_GROUP token ids each; bit g of word g / 64, none past the last) whose logits are read by
    // anybody; NULL: all. The logits of other groups are unspecified: those of an earlier step, or no numbers at all.
    const uint64_t *out_groups;
    float *hidden;            // [nout, model.hidden]: the state after the final norm, instead of logits
    bool adapter;             // every linear adds its LoRA pair; all rows of a step or none
    void *scratch;            // gen_ops.scratch_bytes() bytes, 64-byte aligned, shared by the lanes
};

// Owns the arrays; nothing is allocated while a step is built.
struct batch_builder {
    struct batch b;  // what forward gets; logits and scratch are set by the owner
    int max_rows, max_seqs, max_out;
    int32_t *ids, *pos, *out_rows;
    struct batch_seq *seqs;
};

void batch_init(struct batch_builder *b, int max_rows, int max_seqs, int max_out);
void batch_done(struct batch_builder *b);
void batch_clear(struct batch_builder *b);
// Adds the run of `rows` tokens that follow kv's committed positions; ids points at the first of them; the last nout rows'
// logits are wanted. Returns the number of its first logits row. The caller keeps within the three limits.
int batch_add(struct batch_builder *b, struct kv_seq *kv, const int32_t *ids, int rows, int nout);
