// quant.h - the storage formats of weights: how a row of numbers is laid out in a file, and what it means.
//
// A type is one file in kernels/quant/ that exports one record, and one line in quants.def. Rows are made of whole
// blocks of `block` elements; [rows, cols] is rows * cols/block blocks. All formats are little-endian, as in their files.
//
//     const struct quant *q = quant_get(QUANT_Q4_0);
//     q->dequantize(src, dst, cols);            // cols is a multiple of q->block
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum quant_type {
#define QUANT(file, name, pack) QUANT_##name,
#include "kernels/quant/quants.def"
#undef QUANT
    QUANT_COUNT
};

// One block of the file as the kernels pack it (kernels/mat_pack.h): the row's numbers as stored, then sub-scales and
// codes in k order. A block of the file is a record's block.
struct quant_codes {
    uint8_t d[4], m[4];    // f16, one byte, or the matrix's kind of numbers
    uint8_t scales[16];    // as the form has them
    uint8_t u[256];
};

struct quant {
    const char *name;     // as files and people write it: "Q4_0", "BF16"
    int ggml_id;          // the number of the type in GGUF files; -1 when GGUF has none
    int block;            // elements per block; 1 for plain floats
    int block_bytes;
    // Writes n floats (n a multiple of block) from n/block blocks at src; src needs no alignment. This is the
    // definition of the type, equal bit for bit to ggml's reference dequantiser.
    void (*dequantize)(const void *src, float *dst, size_t n);
    void (*codes)(const uint8_t *block, struct quant_codes *ret_codes);  // NULL: floats
};

const struct quant *quant_get(enum quant_type type);

// A tensor whose rows lie in arrays of their own instead of blocks (MLX): codes, one stream of bits a row, the lowest bits
// first, and for each `group` columns a scale and, where the type has one, an offset. Borrowed.
enum quant_number { QUANT_NUMBER_F16, QUANT_NUMBER_BF16, QUANT_NUMBER_F32 };
struct quant_parts {
    const uint8_t *codes, *scales, *biases;  // biases NULL: the type has none
    int group;                               // a multiple of 32, or of scales of one byte what the type has
    enum quant_number number;                // scales and biases of the MLX types
};
// Whether a type may lie so, and bits of a code then.
bool quant_has_parts(enum quant_type type, int *ret_bits);
// Elements k..k+n of row r (multiples of the type's block) as blocks of the type.
void quant_gather(enum quant_type type, const struct quant_parts *p, int cols, int r, int k, int n, uint8_t *dst);
static inline int quant_number_bytes(enum quant_number number)
{
    return number == QUANT_NUMBER_F32 ? 4 : 2;
}

// The type with this GGUF number or this name (any case); false when there is none.
bool quant_from_ggml(uint32_t id, enum quant_type *ret_type);
bool quant_from_name(const char *name, enum quant_type *ret_type);

// Bytes of rows * cols elements; false when cols is not a multiple of the block or the size overflows.
bool quant_bytes(enum quant_type type, size_t rows, size_t cols, size_t *ret_bytes);

// What is wrong with stored numbers: `at` is the first element of the block (the element itself in float types).
struct quant_flaw {
    size_t at;
    const char *what;   // "number", "scale"
    const char *value;  // "NaN", "Inf", "-Inf"
};

// Whether n numbers (a multiple of block) are all finite: of the float types each number, of the others each block's
// scales and minimums. False writes *ret_flaw, the first.
bool quant_check(enum quant_type type, const void *src, size_t n, struct quant_flaw *ret_flaw);

// Half precisions, exact (round to nearest even on the way down).
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
