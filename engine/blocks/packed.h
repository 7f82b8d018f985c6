// packed.h - the memory a model's weights were packed into, and which tensors of the file went into it.
//
// Made by a loader, owned by the model as long as its linears are used.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "engine/weights/weights.h"
#include "kernels/mat.h"

// One matrix as it is multiplied, for who counts what a step reads and computes.
struct packed_matrix {
    enum quant_type type;
    enum mat_math math;  // of its products
    int rows, cols;
    size_t bytes;  // read to multiply by it once
};

// What a tensor is used as. A matrix is multiplied by, a table read by row; both may be packed.
enum packed_use { PACKED_AS_PLAIN, PACKED_AS_MATRIX, PACKED_AS_TABLE };

struct packed {
    uint8_t *map;          // packed matrices and tables, one after another
    size_t bytes;
    size_t mapped;         // of matrices that are used as they lie in the file
    struct arena vectors;  // norm weights and biases as f32
    const struct tensor **used;  // in the order they were asked for
    enum packed_use *uses;       // of each
    size_t nused, cap;
    struct packed_matrix *matrices;
    size_t nmatrices, matrix_cap;
};

struct packed *packed_new(void);
void packed_free(struct packed *p);
size_t packed_bytes(const struct packed *p);  // what was packed, and what is used in the mapping
void packed_use(struct packed *p, const struct tensor *t, enum packed_use use);
// Whether some matrix, table or vector of the model was made from this tensor.
bool packed_uses(const struct packed *p, const struct tensor *t);
void packed_count(struct packed *p, const struct mat *m);
// Of all matrices counted, packed or read where they lie.
size_t packed_read_bytes(const struct packed *p);
