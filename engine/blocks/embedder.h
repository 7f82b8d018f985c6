// embedder.h - the work of an embedding task, whatever encoder a family has: tokens, batches of texts, steps, pooling.
//
//     struct bert { struct embedder embedder; ... };         // first in the family's own struct
//     embedder_open(&b->embedder, m, &encoder, hidden, positions, &e);
//     const struct family family_bert = { ..., .embed = &embedder_work, .describe = embedder_describe };
//
// Texts are not padded: the rows (tokens) of several texts stand one after another, at most as many as EMBEDDER_ROWS or
// one text. The encoder works through its parts, as many a step as the time slice allows. A row sees its own text
// alone, so a text's vector is the same whatever it is computed with.
#pragma once

#include "engine/blocks/pooling.h"
#include "engine/engine.h"
#include "engine/sched/work.h"

enum { EMBEDDER_ROWS = 512 };

// The texts that are computed together; pooling_text gives a text's rows.
struct encoder_rows {
    const int32_t *ids;  // [rows]
    const struct pooling_text *texts;
    int ntexts, rows;
    float *x;            // [rows, hidden]: the states. Part 0 fills them, the others change them
    void *scratch;       // of the encoder: what no part leaves to the next
};

struct encoder_ops {
    int (*parts)(const struct model *m);
    size_t (*scratch_bytes)(const struct model *m, int rows, int lanes);
    // Called by every lane; x is complete before it, and after it and the next barrier.
    void (*part)(const struct model *m, const struct encoder_rows *r, int part, struct lane *lane);
};

struct embedder {
    const struct encoder_ops *encoder;
    struct pooling *pool;
    int hidden;
};

// Reads how the model pools and how long a text may be, and sets the model's context: sentence-transformers'
// max_seq_length, else the tokenizer's limit, at most `positions`. What it took is released by embedder_close, also after
// a failure.
MUST_CHECK err_code embedder_open(struct embedder *em, struct model *m, const struct encoder_ops *encoder, int hidden,
                                  int positions, err *e);
void embedder_close(struct embedder *em);
void embedder_describe(const struct model *m, struct model_info *ret_info);

extern const struct work_ops embedder_work;
