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
    uint8_t d[2], m[2];    // f16, or one byte
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
