// avx2_tile.h - integer block matrices with AVX2: up to three tokens (avx2_dot.h), tiles of 16 rows x 4 tokens for more,
// and records as numbers. Included by the files that compile it for some forms. Any lane; scratch is on the stack.
#pragma once

#if defined(__AVX2__)

#include "kernels/cpu/avx2_sums.h"

INLINE void unpack(enum mat_form f, struct tile *to, const uint8_t *const record[2], const struct scales numbers[2],
                   __m256i table, int head, int b)
{
    for (int g = 0; g < 2; g++) {
        __m256i w[8];
        const uint8_t *plane = record[g] + head + b * mat_pack_plane(f);
        load_codes(f, table, plane, w);
        for (int j = 0; j < 8; j++) {
            if (is_quartered(f)) {
                __m256i sum = _mm256_maddubs_epi16(_mm256_set1_epi8(-128), w[j]);
                to->w[j][g] = w[j];
                to->w[8 + j / 2][g] = _mm256_sub_epi16(j % 2 ? to->w[8 + j / 2][g] : _mm256_setzero_si256(), sum);
            } else if (is_signed(f)) {
                to->w[2 * j][g] = _mm256_srai_epi16(_mm256_slli_epi16(w[j], 8), 8);
                to->w[2 * j + 1][g] = _mm256_srai_epi16(w[j], 8);
            } else {
                to->w[j][g] = w[j];
            }
        }
        to->scales[g] = load_scales(f, &numbers[g], record[g] + mat_pack_numbers(f), b);
    }
}

// One block for n tokens (1..4) whose entries start at `at`; acc is [token][16 rows].
INLINE void tokens(enum mat_form f, int n, const struct tile *w, const struct acts *a, const int32_t *pairs, size_t at,
                   float *acc)
{
    struct entry x[4];
    __m256i s[4][2], second[4][2];
    UNROLL for (int k = 0; k < n; k++) {
        x[k] = entry_at(a, pairs, at + (size_t)k);
        second[k][0] = second[k][1] = _mm256_setzero_si256();
    }
    if (is_quartered(f))
        sums_quarters(f, w, x, n, s);
    else if (is_signed(f))
        sums_signed(f, w, (const int16_t *)a->wide + 32 * at, x, n, s);
    else if (sums16(f))
        sums_all(f, w, x, n, s);
    else
        sums_halves(f, w, x, n, s, second);
    UNROLL for (int k = 0; k < n; k++) {
        UNROLL for (int g = 0; g < 2; g++) {
            float *to = acc + 16 * k + 8 * g;
            _mm256_store_ps(to, advance(f, _mm256_load_ps(to), s[k][g], second[k][g], &w->scales[g], &x[k]));
        }
    }
}

INLINE void block(enum mat_form f, int n, const struct tile *w, const struct acts *a, const int32_t *pairs, size_t at,
                  float *acc)
{
    int k = 0;
    for (; k + 4 <= n; k += 4)
        tokens(f, 4, w, a, pairs, at + (size_t)k, acc + 16 * k);
    switch (n - k) {
    case 3:
        tokens(f, 3, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    case 2:
        tokens(f, 2, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    case 1:
        tokens(f, 1, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    }
}

// Groups g and g + 1 for one token tile; when g + 1 is not this lane's the second result is not stored.
INLINE void pair_of_groups(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g, int g1,
                           int at_tile, enum mat_write write)
{
    _Alignas(64) float acc[ACT_TILE * 16];
    const int size = block_of(f, m), head = head_of(f, m), n = acts_tile(a, at_tile);
    const bool alone = g + 1 == g1;
    const int32_t *pairs = acts_pairs(a);
    const __m256i table = load_table(f, m);
    size_t bytes = (size_t)(m->cols / size) * (size_t)record_of(f, m), at = acts_base(a, at_tile);
    const uint8_t *record[2] = {m->data + (size_t)g * bytes, m->data + (size_t)(alone ? g : g + 1) * bytes};
    const uint8_t *next = record[0] + (g + 2 < g1 ? 2 * bytes : 0);
    __m256 zero = _mm256_setzero_ps();
    __asm__("" : "+x"(zero));  // a call of memset would cost more than these stores
    for (int k = 0; k < 2 * n; k++)
        _mm256_store_ps(acc + 8 * k, zero);
    for (int i = 0; i < m->cols / size; i++) {
        struct scales numbers[2] = {load_numbers(f, m, record[0]), load_numbers(f, m, record[1])};
        for (int b = 0; b < size / 32; b++, at += (size_t)n) {
            struct tile w;
            next = fetch_next(next, 2 * record_of(f, m) / (size / 32));
            unpack(f, &w, record, numbers, table, head, b);
            block(f, n, &w, a, pairs, at, acc);
        }
        record[0] += record_of(f, m);
        record[1] += record_of(f, m);
    }
    y += (size_t)at_tile * ACT_TILE * (size_t)ldy + 8 * g;
    for (int k = 0; k < n; k++, y += ldy) {
        put8(y, _mm256_load_ps(acc + 16 * k), m->rows - 8 * g, write);
        if (!alone)
            put8(y + 8, _mm256_load_ps(acc + 16 * k + 8), m->rows - 8 * g - 8, write);
    }
}

INLINE void multiply(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                     enum mat_write write)
{
    if (a->n == 1) {
        few_tokens(f, 1, m, a, y, ldy, g0, g1, write);
    } else if (a->n == 2) {
        few_tokens(f, 2, m, a, y, ldy, g0, g1, write);
    } else if (a->n == 3 && ((is_signed(f) && !is_quartered(f)) || f == MAT_FORM_IQ3_S)) {  // measured: the others gain by 16 rows
        few_tokens(f, 3, m, a, y, ldy, g0, g1, write);
    } else {
        for (int tile = 0; tile * ACT_TILE < a->n; tile++) {
            for (int g = g0; g < g1; g += 2)
                pair_of_groups(f, m, a, y, ldy, g, g1, tile, write);
        }
    }
}

// The record as numbers: dst[k * MAT_WIDE + row].
INLINE void numbers_of(enum mat_form f, const struct mat *m, const uint8_t *record, float *dst)
{
    const int size = block_of(f, m), head = head_of(f, m);
    const struct scales numbers = load_numbers(f, m, record);
    const __m256i table = load_table(f, m), zero = _mm256_set1_epi32(mat_traits[f].zero);
    for (int b = 0; b < size / 32; b++) {
        struct scales s = load_scales(f, &numbers, record + mat_pack_numbers(f), b);
        __m256i w[8];
        load_codes(f, table, record + head + b * mat_pack_plane(f), w);
        for (int j = 0; j < 8; j++) {
            __m256 scale = is_split(f) ? s.half[j / 4] : s.d, min = s.m;
            if (is_scaled16(f))
                scale = _mm256_mul_ps(s.d, _mm256_cvtepi32_ps(lanes_i32(s.s[j / 4])));
            if (has_min16(f))
                min = _mm256_mul_ps(s.m, _mm256_cvtepi32_ps(_mm256_srai_epi32(s.min[j / 4], 16)));
            for (int i = 0; i < 4; i++, dst += MAT_WIDE) {
                // The lane's i-th byte, with its sign for the signed forms.
                __m256i v = _mm256_slli_epi32(w[j], 24 - 8 * i);
                v = is_signed(f) ? _mm256_srai_epi32(v, 24) : _mm256_srli_epi32(v, 24);
                __m256 value = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_sub_epi32(v, zero)));
                if (has_add(f))
                    value = _mm256_add_ps(value, min);
                else if (has_min(f))
                    value = _mm256_sub_ps(value, min);
                _mm256_storeu_ps(dst, value);
            }
        }
    }
}

#define KERNELS(F)                                                                                                     \
    void avx2_mat_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                    \
                      enum mat_write write)                                                                            \
    {                                                                                                                  \
        multiply(MAT_FORM_##F, m, a, y, ldy, g0, g1, write);                                                           \
    }                                                                                                                  \
    void avx2_mat_panel_##F(const struct mat *m, const uint8_t *record, float *dst)                                    \
    {                                                                                                                  \
        numbers_of(MAT_FORM_##F, m, record, dst);                                                                      \
    }

#endif
