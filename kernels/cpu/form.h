// form.h - what a packed form (kernels/mat_pack.h) means for a kernel. The form is a constant in every call, so that each
// answer is known when the kernel is compiled.
#pragma once

#include <stdbool.h>

#include "kernels/mat.h"

#define FORM_INLINE static inline __attribute__((always_inline))

FORM_INLINE bool is_split(enum mat_form f)  // the halves are steps of their own
{
    return mat_traits[f].scales == MAT_SCALES_E4M3_16;
}

FORM_INLINE bool is_scaled16(enum mat_form f)  // integer scales belong to 16 elements
{
    return mat_traits[f].scales == MAT_SCALES_I8_16 || mat_traits[f].scales == MAT_SCALES_U4_16;
}

FORM_INLINE bool has_min16(enum mat_form f)
{
    return mat_traits[f].scales == MAT_SCALES_U4_16;
}

FORM_INLINE bool is_open(enum mat_form f)  // the matrix says what its numbers are, and how long a record is
{
    return mat_traits[f].numbers == MAT_NUMBERS_ANY_ADD;
}

FORM_INLINE bool has_add(enum mat_form f)  // its m is added
{
    return mat_traits[f].numbers == MAT_NUMBERS_F16_ADD || is_open(f);
}

FORM_INLINE bool has_min(enum mat_form f)  // the record has an m
{
    return has_add(f) || mat_traits[f].numbers == MAT_NUMBERS_F16_SUB;
}

FORM_INLINE bool is_signed(enum mat_form f)  // codes are int8 over the whole range
{
    return mat_traits[f].plane == MAT_PLANE_BYTES || (mat_traits[f].lookup && !mat_traits[f].zero);
}

// Largest unsigned code, a table's with its zero added.
FORM_INLINE int most(enum mat_form f)
{
    const int of_plane[] = {255, 15, 31, 63, 7, 3};
    return mat_traits[f].lookup ? 2 * mat_traits[f].zero : of_plane[mat_traits[f].plane];
}

// k of a record: a constant where the form's sub-scales tell, else the matrix's.
FORM_INLINE int block_of(enum mat_form f, const struct mat *m)
{
    enum mat_scales s = mat_traits[f].scales;
    if (is_open(f))
        return m->block;
    return s == MAT_SCALES_E4M3_16 ? 64 : s != MAT_SCALES_NONE ? 256 : mat_traits[f].plane == MAT_PLANE_2BIT ? m->block : 32;
}

// Bytes of a record before its planes, and of all of it.
FORM_INLINE int head_of(enum mat_form f, const struct mat *m)
{
    return is_open(f) ? m->head : mat_pack_head(f, block_of(f, m));
}

FORM_INLINE int record_of(enum mat_form f, const struct mat *m)
{
    return is_open(f) ? m->record : mat_pack_record(f, block_of(f, m));
}
