// mat_pack.h - the kernels' layout of integer block weights: eight rows interleaved ("R8"). A 32-byte vector holds 4
// consecutive k of each of 8 rows, one 32-bit lane a row, so that no sum crosses lanes.
//
// A group of 8 rows is cols/block records, block being the type's own. A record is made of arrays of 8 (one entry a
// row), in this order:
//
//   numbers    F16        f16 d
//              F16_ADD    f16 d, then f16 m: value = d * code + m
//              F16_SUB    f16 d, then f16 m: value = d * scale * code - m * min
//              ANY_ADD    d, then m, both f16, bf16 or f32 as the matrix says: value = d * code + m; it also says how many k
//                         a record has
//              E8M0       u8 e: d = 2^(e - 128)
//              NONE       (the sub-scales are the d)
//   sub-scales I8_32      i8 scale, for each 32 k
//              I8_16      i8 scale, for each 16 k
//              U8_32      u8 scale for each 32 k, then u8 min for each 32 k
//              U4_16      u8 scale | min << 4, for each 16 k
//              E4M3_16    u8, half of an E4M3 number is the d of 16 k
//   planes     for each 32 k, vectors of 32 bytes:
//              BYTES      8: vector j is k = 4j .. 4j+3
//              NIBBLES    4: low halves k = 4j.., high halves k = 16 + 4j..
//              5BIT       4 as NIBBLES; 1 of high bits: bit j of byte i of a row's lane is that of k = 4j + i
//              6BIT       4 as NIBBLES; 2 of high bits: bits 2f, 2f+1 of byte i of vector h are those of k = 4(4h+f) + i
//              3BIT       2 of low bits as 6BIT's high ones; 1 of high bits as 5BIT
//              2BIT       2 as 3BIT's low ones
//
// A code's value is code - zero, or an entry of the type's table (look-up; the kernels may add `zero` to the table to
// have it unsigned); BYTES are int8, and value = byte - zero. d is multiplied by the type's unit when it is read.
// Types that differ in table, unit or record length only share a form, so they share the kernels.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/quant.h"

enum { MAT_PACK_LAYOUT = 1 };  // the version of all this in files; another byte order is another number

enum mat_numbers { MAT_NUMBERS_NONE, MAT_NUMBERS_F16, MAT_NUMBERS_F16_ADD, MAT_NUMBERS_F16_SUB,
                   MAT_NUMBERS_ANY_ADD, MAT_NUMBERS_E8M0 };
enum mat_scales { MAT_SCALES_NONE, MAT_SCALES_I8_32, MAT_SCALES_I8_16, MAT_SCALES_U8_32, MAT_SCALES_U4_16, MAT_SCALES_E4M3_16 };
enum mat_plane { MAT_PLANE_BYTES, MAT_PLANE_NIBBLES, MAT_PLANE_5BIT, MAT_PLANE_6BIT, MAT_PLANE_3BIT, MAT_PLANE_2BIT };
enum mat_table { MAT_TABLE_NONE, MAT_TABLE_IQ4, MAT_TABLE_E2M1, MAT_TABLE_IQ3_XXS, MAT_TABLE_IQ3_S, MAT_TABLE_IQ2, MAT_TABLE_IQ1 };

enum mat_form {
    MAT_FORM_FLOAT,  // f32, f16, bf16: 32 rows are interleaved, [32-row block][k][32]; the last block is as narrow as its
                     // groups: 8, 16 or 24. bf16 to meet bf16: [32-row block][k/2][32][2], an odd k filled up with 0
#define FORM(name, numbers, scales, plane, zero, lookup) MAT_FORM_##name,
#include "kernels/forms.def"
#undef FORM
    MAT_FORM_COUNT
};

// A form's constants. In the header so that a constant form decides every branch when a kernel is compiled.
static const struct mat_traits {
    enum mat_numbers numbers;
    enum mat_scales scales;
    enum mat_plane plane;
    int zero;
    bool lookup;
} mat_traits[MAT_FORM_COUNT] = {
#define FORM(name, numbers, scales, plane, zero, lookup) \
    [MAT_FORM_##name] = {MAT_NUMBERS_##numbers, MAT_SCALES_##scales, MAT_PLANE_##plane, zero, lookup},
#include "kernels/forms.def"
#undef FORM
};

// How a type is packed.
struct mat_packing {
    enum mat_form form;
    const int8_t *table; // 16 values of the form's look-up; NULL
    float unit;
};
const struct mat_packing *mat_pack_of(enum quant_type type);

// Bytes of the numbers, of the sub-scales and of a plane of 32 k. Of ANY_ADD the matrix tells: its head and record.
static inline int mat_pack_numbers(enum mat_form f)
{
    enum mat_numbers n = mat_traits[f].numbers;
    return n == MAT_NUMBERS_NONE || n == MAT_NUMBERS_ANY_ADD ? 0 : n == MAT_NUMBERS_E8M0 ? 8 : n == MAT_NUMBERS_F16 ? 16 : 32;
}

static inline int mat_pack_scales(enum mat_form f, int block)  // arrays of 8
{
    enum mat_scales s = mat_traits[f].scales;
    return s == MAT_SCALES_NONE ? 0 : s == MAT_SCALES_I8_32 ? block / 32 : block / 16;
}

static inline int mat_pack_head(enum mat_form f, int block)  // bytes before the planes
{
    return mat_pack_numbers(f) + 8 * mat_pack_scales(f, block);
}

static inline int mat_pack_plane(enum mat_form f)  // bytes
{
    static const uint8_t vectors[] = {8, 4, 5, 6, 3, 2};
    return 32 * vectors[mat_traits[f].plane];
}

static inline int mat_pack_record(enum mat_form f, int block)  // bytes
{
    return mat_pack_head(f, block) + block / 32 * mat_pack_plane(f);
}

// Pairs of k in a row of bf16 that meets bf16.
static inline size_t mat_pack_pairs(int cols)
{
    return ((size_t)cols + 1) / 2;
}

// One row's 32 integers of a record: value k is (d[k/16] * s[k/16]) * v[k] - min * m[k/16].
struct mat_codes {
    int v[32];
    int s[2], m[2];
    float d[2], min;
    bool has_min;
    bool split;  // d[0] and d[1] differ: each 16 k are a step of the chain of their own
};

struct mat;
// Whether the numbers of groups g0..g1 of a packed matrix are finite; else the row and column of the first that is not.
bool mat_pack_finite(const struct mat *m, int g0, int g1, int *ret_row, int *ret_col);

// Row r (0..7) of the b-th 32-block of a record.
void mat_pack_codes(const struct mat *m, const uint8_t *record, int b, int r, struct mat_codes *ret_codes);
