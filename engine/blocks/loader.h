// loader.h - takes the weights of one model out of its files: finds tensors, checks shapes, plans layouts, and packs
// all matrices in parallel at the end.
//
//     struct loader *ld = loader_new(weights, MAT_INT8, ops);
//     linear_open(&l->q, ld, "blk.0.attn_q.weight", NULL, out, in, &e);    // any number of these
//     loader_vector(ld, "blk.0.attn_norm.weight", n, &l->norm, &e);
//     loader_run(ld, threads, &e);
//     m->packed = loader_take(ld);                                         // or loader_free(ld) on failure
//
// Two phases because packing wants every core. A matrix' address must not change between being asked for and
// loader_run. A missing tensor or a wrong shape is ERR_CORRUPT naming tensor, found and expected shape.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/blocks/packed.h"
#include "engine/weights/weights.h"
#include "kernels/cpu.h"

struct loader;

struct loader *loader_new(const struct weights *w, enum mat_math math, const struct cpu_ops *ops);
// Packs everything asked for, on `threads` threads (0: one per core), and gives the pages of packed originals back to
// the kernel.
MUST_CHECK err_code loader_run(struct loader *ld, int threads, err *e);
// The packed memory, now the caller's. Frees the loader.
struct packed *loader_take(struct loader *ld);
void loader_free(struct loader *ld);  // instead of take, on failure

bool loader_has(const struct loader *ld, const char *name);
// A matrix to multiply by, [rows, cols].
MUST_CHECK err_code loader_matrix(struct loader *ld, const char *name, int rows, int cols, struct mat *m, err *e);
// A table read by row (mat_row), never multiplied by: stays in the mapping.
MUST_CHECK err_code loader_table(struct loader *ld, const char *name, int rows, int cols, struct mat *ret_table,
                                 err *e);
// A vector (norm weight, bias) as f32, whatever its storage; owned by the packed memory.
MUST_CHECK err_code loader_vector(struct loader *ld, const char *name, int n, const float **ret_vector, err *e);
