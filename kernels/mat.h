// mat.h - multiplying by a weight matrix: y[t] = W x[t] for every token t of a step.
//
//     mat_plan(&m, type, rows, cols, MAT_INT8);            // decides the layout; m.bytes is what it needs
//     mat_pack(&m, dst, src, g0, g1);                      // moves 8-row groups g0..g1 of the file's rows into it
//
//     acts_init(&a, memory, max_tokens, cols, MAT_INT8);
//     acts_set(ops, &a, x, ldx, t0, t1);                   // some lane's tokens
//     lane_barrier(lane);
//     mat_mul(ops, &m, &a, y, ldy, g0, g1, MAT_STORE);     // some lane's row groups, all tokens
//
// Shapes: W [rows, cols] in the file's row order, x [n, cols], y [n, rows] (token-major, f32).
//
// Exactness. The value of one (row, token) is one chain of operations that depends on that row and that token alone:
// it is the same for 1 token and for 500, for any split of rows over lanes, and on every instruction set.
//   floats       acc = fma(w[k], x[k], acc), k ascending, acc starts at +0
//   int8 path    x in blocks of 32: d = amax/127, q = rint(x * (127/amax)), integer sums exact, then per block in
//                ascending order acc = fma(d_x * (float)isum, d_w, acc); types with a minimum then add
//                acc = fma(-min, d_x * (float)sum_x, acc); NVFP4 takes its halves of 16 one after the other
//   bf16 path    weights stored as bf16, x rounded to bf16 (nearest even); of both, numbers below 2^-56 are 0. For each two k,
//                ascending, acc = fma(w[k+1], x[k+1], acc), then acc = fma(w[k], x[k], acc): VDPBF16PS's order. A product
//                is 0 or a multiple of 2^-126, so no sum is ever subnormal, and what instructions make of those cannot be told.
//   any type with f32 activations: the float chain on the dequantised weights
// kernels/cpu/ref.c is the definition; SIMD code equals it bit for bit.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/mat_pack.h"
#include "kernels/quant.h"

struct cpu_ops;

enum {
    MAT_GROUP = 8,   // rows interleaved together: the unit in which work is split and packed
    MAT_BLOCK = 32,  // columns of int8 activations with one scale
};

// What activations are made into. Bits: a model's matrices may need several forms.
enum mat_math {
    MAT_F32 = 0,   // f32 activations, weights dequantised
    MAT_INT8 = 1,  // int8 where the weights are integer blocks; f32 where they are floats
    MAT_BF16 = 2,  // bf16 where the weights are bf16; f32 where they are not
    MAT_INT8_BF16 = 3,
};
// The setting `activations`: "f32", "int8", or "bf16", which is int8 for integer blocks too.
bool mat_math_from_name(const char *name, enum mat_math *ret_math);
const char *mat_math_name(enum mat_math math);

enum mat_layout {
    MAT_BORROWED,  // rows as in the file, for mat_row alone: nothing multiplies by them
    MAT_PACKED,    // the kernels' row-interleaved layout (mat_pack.h)
};

enum mat_write { MAT_STORE, MAT_ADD };  // y = W x, or y += W x (one addition, after the sum is complete)

struct mat {
    enum quant_type type;
    enum mat_math math;   // one form only
    enum mat_layout layout;
    enum mat_form form;
    int rows, cols;
    int block, record;    // of a packed integer record: k, bytes
    int head;             // bytes of a record before its planes
    enum quant_number number;  // of forms that leave it open
    const int8_t *table;  // of the form's look-up
    float unit;           // d is multiplied by it
    size_t bytes;         // of the packed form; 0 when borrowed
    const uint8_t *data;  // set by the owner: the mapping, or what mat_pack filled
    const struct quant_parts *parts;  // where the file's rows lie, instead of in blocks; borrowed; NULL: in blocks
};

// Chooses layout and size; every type is packed. math: the forms allowed; the type decides, m->math says (MAT_F32: the f32
// chain). Errors: ERR_INVALID when cols is not a multiple of the type's block.
MUST_CHECK err_code mat_plan(struct mat *m, enum quant_type type, int rows, int cols, enum mat_math math, err *e);
// The same of a tensor whose rows lie in parts: records are its groups, with its kind of numbers. *parts must live until
// the packing is done, of a borrowed matrix as long as it.
MUST_CHECK err_code mat_plan_parts(struct mat *m, enum quant_type type, const struct quant_parts *parts, int rows, int cols,
                                   enum mat_math math, err *e);
bool mat_uses_int8(const struct mat *m);
static inline int mat_groups(const struct mat *m) { return (m->rows + MAT_GROUP - 1) / MAT_GROUP; }

// Packs row groups g0..g1 from src (the file's rows from row 0; NULL of a matrix in parts) into dst (m->bytes long, 64-byte
// aligned). Groups are independent: lanes may pack side by side. Rows past the last are zero.
void mat_pack(const struct mat *m, uint8_t *dst, const void *src, int g0, int g1);

// Dequantises row r to cols floats, from either layout (embedding look-up, checks).
void mat_row(const struct mat *m, int r, float *dst);

// ---- activations of one step, ready to be multiplied
struct acts {
    enum mat_math math;
    int n, max, cols;   // n: tokens set; the owner writes it before lanes call acts_set
    bool fine;          // acts_init_fine: each token is two rows of int8, the second of what the first leaves
    const float *x;     // the f32 rows as given (MAT_F32, and float weights)
    int ldx;
    bool adapter;       // linears add their low-rank pairs (engine/blocks/linear.h); mat_mul does not look at it
    int8_t *q;          // MAT_INT8: the kernels' tile packing
    void *wide;         // q in the form the instruction set also wants (mat_ops.h: widen)
    float *d;           // scale of each block
    float *sx;          // d * (sum of q)
    int32_t *sums;      // sum of q; then pairs of int16 sums (kernels/cpu/mat_ops.h)
    uint16_t *b;        // MAT_BF16: rows of acts_row16 numbers
};

// Bytes that `max` tokens of `cols` numbers need (64-byte aligned).
size_t acts_bytes(int max, int cols, enum mat_math math);
void acts_init(struct acts *a, void *memory, int max, int cols, enum mat_math math);

// The same with 16 bits of precision for integer weights: x is taken as the sum of two int8 rows, the second quantising
// what the first leaves of x, and a product is the sum of theirs. Weights are read once, so one token costs no more
// where memory is the limit. For output heads, whose products nothing averages out. Memory: acts_bytes of 2 * max.
void acts_init_fine(struct acts *a, void *memory, int max, int cols, enum mat_math math);

// Makes tokens t0..t1 of x (rows of ldx floats, x is the row of token 0) ready. Rows are independent. x must stay
// unchanged until the multiplications are done.
void acts_set(const struct cpu_ops *ops, struct acts *a, const float *x, int ldx, int t0, int t1);

// Columns c0..c1 alone, both multiples of 32 or c1 the end, of x that begins with column c0 of token t0. For products that no
// float weight meets: a->x is not set. Not of fine ones.
void acts_set_part(const struct cpu_ops *ops, const struct acts *a, const float *x, int ldx, int t0, int t1, int c0, int c1);

// Makes a's n tokens those of `from` that tokens[0..n) names, without quantising them again. x is not set: float weights
// need rows of their own. One lane, from and a of the same columns and math, from complete.
void acts_gather(const struct cpu_ops *ops, struct acts *a, const struct acts *from, const int32_t *tokens, int n);

// Asks the memory for row group g, or its beginning: for who multiplies by groups that do not follow each other.
void mat_fetch(const struct mat *m, int g);
// Row groups g0..g1 for tokens 0..a->n. y is the row of token 0, ldy floats between tokens.
void mat_mul(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
             enum mat_write write);
