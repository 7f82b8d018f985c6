// loader.h - takes the weights of one model out of its files: finds tensors, checks shapes, plans layouts, and packs
// all matrices in parallel at the end.
//
//     struct loader *ld = loader_new(weights, MAT_INT8, ops);
//     linear_open(&l->q, ld, "blk.0.attn_q.weight", NULL, out, in, &e);    // any number of these
//     loader_vector(ld, "blk.0.attn_norm.weight", n, &l->norm, &e);
//     loader_run(ld, threads, &e);
//     m->packed = loader_take(ld);                                         // or loader_free(ld) on failure
//
// Of weights that are open for a survey (weights_set_survey) nothing is packed: what was asked for is in struct packed.
//
// Two phases because packing wants every core. A matrix' address must not change between being asked for and
// loader_run. A missing tensor or a wrong shape is ERR_CORRUPT naming tensor, found and expected shape.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/blocks/lora.h"
#include "engine/blocks/packed.h"
#include "engine/weights/weights.h"
#include "kernels/conv.h"
#include "kernels/cpu.h"

struct loader;

struct loader *loader_new(const struct weights *w, enum mat_math math, const struct cpu_ops *ops);
// Packs everything asked for, on `threads` threads (0: one per core the process may use). Needs no more memory than it
// makes, apart from a quarter of a megabyte a thread. ERR_CORRUPT names tensor, row and column of a weight or a scale
// that is NaN or infinite.
MUST_CHECK err_code loader_run(struct loader *ld, int threads, err *e);
// The packed memory, now the caller's. Frees the loader.
struct packed *loader_take(struct loader *ld);
void loader_free(struct loader *ld);  // instead of take, on failure

// Linears that are opened from here on take their pairs out of the adapter, which must live until loader_run. NULL:
// none.
void loader_set_adapter(struct loader *ld, struct lora *adapter);
// The order of the next linear's rows and columns, for its pair; copied. It holds for one linear.
void loader_set_order(struct loader *ld, const struct lora_order *order);
// The adapter's pair for a weight [out, in] of this module, owned by the packed memory; NULL: none. name is the
// weight's tensor: where the adapter has a copy of it, it must be the same.
MUST_CHECK err_code loader_pair(struct loader *ld, const char *module, const char *name, int out, int in,
                                const struct lora_pair **ret_pair, err *e);

bool loader_has(const struct loader *ld, const char *name);
// A matrix to multiply by, [rows, cols], or [rows, cols, 1, 1] as 1x1 convolutions are stored; one row may be [cols].
MUST_CHECK err_code loader_matrix(struct loader *ld, const char *name, int rows, int cols, struct mat *m, err *e);
// A part of a stack of matrices [count, out, cols]: rows [first, first + rows) of matrix `index`.
struct loader_slice {
    int count, out, cols;
    int index, first, rows;
};
MUST_CHECK err_code loader_slice(struct loader *ld, const char *name, const struct loader_slice *s, struct mat *m, err *e);
// A 3x3 convolution, [cout, cin, 3, 3]. As with a matrix, the address of *c must not change before loader_run.
MUST_CHECK err_code loader_conv(struct loader *ld, const char *name, int cout, int cin, struct conv *c, err *e);
// A table read by row (mat_row), never multiplied by: copied as it is, or left in the mapping where it is larger than
// 512 MB. The address must not change before loader_run; until then the rows are the mapping's.
MUST_CHECK err_code loader_table(struct loader *ld, const char *name, int rows, int cols, struct mat *ret_table,
                                 err *e);
// A vector (norm weight, bias) as f32, whatever its storage; owned by the packed memory.
MUST_CHECK err_code loader_vector(struct loader *ld, const char *name, int n, const float **ret_vector, err *e);
// The same of any shape, in the file's order; and the caller may still change it before the loading is over.
MUST_CHECK err_code loader_floats(struct loader *ld, const char *name, const int64_t *shape, int ndim, float **ret_floats,
                                  err *e);
// Zeroed memory that lives as long as the packed weights.
void *loader_alloc(struct loader *ld, size_t bytes);
