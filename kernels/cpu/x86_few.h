// x86_few.h - the kernel for a few tokens. Included by the kernels of one instruction set, which then define dot().
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include "kernels/cpu/x86_blocks.h"

// Writes 8 results, `left` of which exist.
INLINE void put8(float *y, __m256 v, int left, enum mat_write write)
{
    if (left >= 8) {
        _mm256_storeu_ps(y, write == MAT_ADD ? _mm256_add_ps(_mm256_loadu_ps(y), v) : v);
        return;
    }
    float r[8];
    _mm256_storeu_ps(r, v);
    for (int i = 0; i < left; i++)
        y[i] = write == MAT_ADD ? y[i] + r[i] : r[i];
}

// The integer sum of a block; of split forms that of the first half, and *ret_second the other's.
static inline __m256i dot(enum mat_form f, const __m256i w[8], const struct scales *s, const struct entry *x,
                          __m256i *ret_second);

enum { FEW_TOKENS = 8 };

// A few tokens (a constant n): a block's codes and the n sums stay in registers, the weights are one stream.
INLINE void few_tokens(enum mat_form f, int n, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                       int g1, enum mat_write write)
{
    const int block = block_of(f, m), head = head_of(f, m), size = record_of(f, m);
    const int32_t *pairs = acts_pairs(a);
    const int records = m->cols / block;
    const uint8_t *record = m->data + (size_t)g0 * (size_t)records * (size_t)size;
    const __m256i table = load_table(f, m);
    for (int g = g0; g < g1; g++) {
        __m256 acc[FEW_TOKENS];
        size_t at = 0;
        UNROLL for (int k = 0; k < n; k++)
            acc[k] = _mm256_setzero_ps();
        for (int i = 0; i < records; i++, record += size) {
            struct scales numbers = load_numbers(f, m, record);
            for (int b = 0; b < block / 32; b++, at += (size_t)n) {
                struct scales s = load_scales(f, &numbers, record + mat_pack_numbers(f), b);
                __m256i w[8];
                load_codes(f, table, record + head + b * mat_pack_plane(f), w);
                UNROLL for (int k = 0; k < n; k++) {
                    struct entry x = entry_at(a, pairs, at + (size_t)k);
                    __m256i second = _mm256_setzero_si256(), first = dot(f, w, &s, &x, &second);
                    acc[k] = advance(f, acc[k], first, second, &s, &x);
                }
            }
        }
        UNROLL for (int k = 0; k < n; k++)
            put8(y + (size_t)k * (size_t)ldy + 8 * g, acc[k], m->rows - 8 * g, write);
    }
}

#endif
