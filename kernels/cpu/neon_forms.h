// neon_forms.h - integer block matrices with NEON: the loops over rows, records and tokens. The file of an instruction
// set includes it and defines sums() and block(). Any lane; scratch is on the stack.
#pragma once

#if defined(__aarch64__)  // nothing where the file is not compiled for it

#include "kernels/cpu/neon_blocks.h"

// ---- what the instruction set defines

// Integer sums of k-groups j0..j1 (constants) for one token.
INLINE sums8 sums(enum mat_form f, const struct codes *c, int j0, int j1, const int8_t *q);

// One block for n tokens whose entries start at `at`; acc is [token][8 rows].
INLINE void block(enum mat_form f, int n, const struct codes *c, const struct scales *s, const struct acts *a,
                  const int32_t *pairs, size_t at, float *acc);

// ---- chains

INLINE struct entry entry_at(const struct acts *a, const int32_t *pairs, size_t at)
{
    return (struct entry){a->q + 32 * at, pairs + 2 * at, a->d[at], a->sx[at]};
}

INLINE int sum16(int32_t pairs)  // of an entry's 16: its two int16 together
{
    return (int16_t)(pairs & 0xffff) + (pairs >> 16);
}

// The step of the chain of 8 rows for one token. Forms with something for each half of 16 give the sums of both.
INLINE f8 advance(enum mat_form f, f8 acc, sums8 first, sums8 second, const struct scales *s, const struct entry *x)
{
    if (is_split(f)) {
        acc = f8_fma(f8_mul1(f8_from_sums(first), x->d), s->half[0], acc);
        return f8_fma(f8_mul1(f8_from_sums(second), x->d), s->half[1], acc);
    }
    if (is_scaled16(f))
        first = sums_add(sums_mul(first, s->s[0]), sums_mul(second, s->s[1]));
    if (zero_of_bytes(f)) {
        int32x4_t off = vdupq_n_s32(-zero_of_bytes(f) * (sum16(x->pairs[0]) + sum16(x->pairs[1])));
        first = sums_add(first, (sums8){off, off});
    }
    acc = f8_fma(f8_mul1(f8_from_sums(first), x->d), s->d, acc);
    if (has_add(f))
        return f8_fma1(s->m, x->sx, acc);
    if (has_min16(f)) {
        int32x4_t a = vdupq_n_s32(sum16(x->pairs[0])), b = vdupq_n_s32(sum16(x->pairs[1]));
        sums8 sum = sums_add(sums_mul(s->min[0], (sums8){a, a}), sums_mul(s->min[1], (sums8){b, b}));
        return f8_fnma(s->m, f8_mul1(f8_from_sums(sum), x->d), acc);
    }
    return has_min(f) ? f8_fnma(s->m, f8_set(x->sx), acc) : acc;
}

INLINE f8 step(enum mat_form f, f8 acc, const struct codes *c, const struct scales *s, const struct entry *x)
{
    if (!is_split(f) && !is_scaled16(f)) {
        sums8 all = sums(f, c, 0, 8, x->q);
        return advance(f, acc, all, all, s, x);
    }
    return advance(f, acc, sums(f, c, 0, 4, x->q), sums(f, c, 4, 8, x->q), s, x);
}

// Tokens from..n, one after the other.
INLINE void each_token(enum mat_form f, int from, int n, const struct codes *c, const struct scales *s,
                       const struct acts *a, const int32_t *pairs, size_t at, float *acc)
{
    for (int k = from; k < n; k++) {
        struct entry x = entry_at(a, pairs, at + (size_t)k);
        f8_store(acc + 8 * k, step(f, f8_load(acc + 8 * k), c, s, &x));
    }
}

// Writes 8 results, `left` of which exist.
INLINE void put8(float *y, f8 v, int left, enum mat_write write)
{
    f8_store_tail(y, left, write == MAT_ADD ? f8_add(f8_load_tail(y, left), v) : v);
}

// A few tokens (a constant n): sums stay in registers, the weights are one stream.
INLINE void few_tokens(enum mat_form f, int n, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                       int g1, enum mat_write write)
{
    const int size = block_of(f, m), head = head_of(f, m), bytes = record_of(f, m);
    const int32_t *pairs = acts_pairs(a);
    const int records = m->cols / size;
    const uint8_t *record = m->data + (size_t)g0 * (size_t)records * (size_t)bytes;
    const int8x16_t table = load_table(f, m);
    for (int g = g0; g < g1; g++) {
        f8 acc[3];
        size_t at = 0;
        UNROLL for (int k = 0; k < n; k++)
            acc[k] = f8_set(0);
        for (int i = 0; i < records; i++, record += bytes) {
            struct scales numbers = load_numbers(f, m, record);
            for (int b = 0; b < size / 32; b++, at += (size_t)n) {
                struct scales s = load_scales(f, &numbers, record + mat_pack_numbers(f), b);
                struct codes c = load_codes(f, table, record + head + b * mat_pack_plane(f));
                UNROLL for (int k = 0; k < n; k++) {
                    struct entry x = entry_at(a, pairs, at + (size_t)k);
                    acc[k] = step(f, acc[k], &c, &s, &x);
                }
            }
        }
        UNROLL for (int k = 0; k < n; k++)
            put8(y + (size_t)k * (size_t)ldy + 8 * g, acc[k], m->rows - 8 * g, write);
    }
}

// Group g for one token tile.
INLINE void group_tile(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g, int tile,
                       enum mat_write write)
{
    _Alignas(64) float acc[ACT_TILE * 8];
    const int size = block_of(f, m), head = head_of(f, m), bytes = record_of(f, m);
    const int n = acts_tile(a, tile);
    const int32_t *pairs = acts_pairs(a);
    const int8x16_t table = load_table(f, m);
    const uint8_t *record = m->data + (size_t)g * (size_t)(m->cols / size) * (size_t)bytes;
    size_t at = acts_base(a, tile);
    memset(acc, 0, (size_t)n * 8 * sizeof *acc);
    for (int i = 0; i < m->cols / size; i++, record += bytes) {
        struct scales numbers = load_numbers(f, m, record);
        for (int b = 0; b < size / 32; b++, at += (size_t)n) {
            struct scales s = load_scales(f, &numbers, record + mat_pack_numbers(f), b);
            struct codes c = load_codes(f, table, record + head + b * mat_pack_plane(f));
            block(f, n, &c, &s, a, pairs, at, acc);
        }
    }
    y += (size_t)tile * ACT_TILE * (size_t)ldy + 8 * g;
    for (int k = 0; k < n; k++, y += ldy)
        put8(y, f8_load(acc + 8 * k), m->rows - 8 * g, write);
}

INLINE void multiply(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                     enum mat_write write)
{
    if (a->n == 1) {
        few_tokens(f, 1, m, a, y, ldy, g0, g1, write);
    } else if (a->n == 2) {
        few_tokens(f, 2, m, a, y, ldy, g0, g1, write);
    } else if (a->n == 3) {
        few_tokens(f, 3, m, a, y, ldy, g0, g1, write);
    } else {
        for (int tile = 0; tile * ACT_TILE < a->n; tile++) {
            for (int g = g0; g < g1; g++)
                group_tile(f, m, a, y, ldy, g, tile, write);
        }
    }
}

// The record as numbers: dst[k * MAT_WIDE + row].
INLINE void numbers_of(enum mat_form f, const struct mat *m, const uint8_t *record, float *dst)
{
    const int size = block_of(f, m), head = head_of(f, m);
    const struct scales numbers = load_numbers(f, m, record);
    const int8x16_t table = load_table(f, m);
    for (int b = 0; b < size / 32; b++) {
        struct scales s = load_scales(f, &numbers, record + mat_pack_numbers(f), b);
        struct codes c = load_codes(f, table, record + head + b * mat_pack_plane(f));
        for (int k = 0; k < 32; k++, dst += MAT_WIDE) {
            f8 scale = is_split(f) ? s.half[k / 16] : s.d, min = s.m;
            if (is_scaled16(f))
                scale = f8_mul(s.d, f8_from_sums(s.s[k / 16]));
            if (has_min16(f))
                min = f8_mul(s.m, f8_from_sums(s.min[k / 16]));
            // The lane's byte, with its sign.
            int32x4_t up = vdupq_n_s32(24 - 8 * (k % 4));
            sums8 v = {vshlq_s32(vreinterpretq_s32_s8(c.w[k / 4][0]), up),
                       vshlq_s32(vreinterpretq_s32_s8(c.w[k / 4][1]), up)};
            int32x4_t off = vdupq_n_s32(-zero_of_bytes(f));
            sums8 code = sums_add((sums8){vshrq_n_s32(v.l, 24), vshrq_n_s32(v.h, 24)}, (sums8){off, off});
            f8 value = f8_mul(scale, f8_from_sums(code));
            if (has_add(f))
                value = f8_add(value, min);
            else if (has_min(f))
                value = f8_sub(value, min);
            f8_store(dst, value);
        }
    }
}

#define KERNEL(F)                                                                                                   \
    static void multiply_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,          \
                             enum mat_write write)                                                                  \
    {                                                                                                               \
        multiply(MAT_FORM_##F, m, a, y, ldy, g0, g1, write);                                                        \
    }

#endif
