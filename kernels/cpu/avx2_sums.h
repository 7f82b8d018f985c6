// avx2_sums.h - exact integer sums of a 32-block of 16 rows for up to 4 tokens: what a tile of avx2_tile.h is made of.
//
// The empty asm statements keep the compiler from reordering the int16 sums into one long chain and from hoisting all
// broadcasts, which spills registers.
#pragma once

#if defined(__AVX2__)

#include "kernels/cpu/avx2_dot.h"

// Signed codes of up to 64: VPMADDUBSW with activations q + 128 does not saturate, and two of them fit int16 when the sum
// starts at -128 times the codes.
INLINE bool is_quartered(enum mat_form f)
{
    return f == MAT_FORM_IQ2_XS || f == MAT_FORM_IQ2_XXS || f == MAT_FORM_IQ3_XXS;
}

struct tile {
    __m256i w[16][2];  // codes of k = 4j.. of both groups of 8 rows; of signed forms int16: k = 4j, 4j + 2, then the rest
                       // (quartered: int8, then what the sums of every 8 k start at)
    struct scales scales[2];
};

// int16 sums over k-groups j0..j1 for n tokens and both row groups.
INLINE void sum16(const __m256i (*w)[2], int j0, int j1, const int8_t *q, int n, __m256i s[4][2])
{
    UNROLL for (int k = 0; k < n; k++)
        s[k][0] = s[k][1] = _mm256_setzero_si256();
    UNROLL for (int j = j0; j < j1; j++) {
        __m256i w0 = w[j][0], w1 = w[j][1];
        __asm__("" : "+x"(w0), "+x"(w1));
        UNROLL for (int k = 0; k < n; k++) {
            __m256i x = broadcast4(q + 32 * k + 4 * j);
            s[k][0] = _mm256_add_epi16(s[k][0], _mm256_maddubs_epi16(w0, x));
            s[k][1] = _mm256_add_epi16(s[k][1], _mm256_maddubs_epi16(w1, x));
            __asm__("" : "+x"(s[k][0]), "+x"(s[k][1]));
        }
    }
}

// int8 by int8 leaves no room for sums in int16: both sides are int16 here. Pieces j0..j1 of the 16.
INLINE void sums_wide(const struct tile *w, int j0, int j1, const int16_t *x, int n, __m256i s[4][2])
{
    UNROLL for (int k = 0; k < n; k++)
        s[k][0] = s[k][1] = _mm256_setzero_si256();
    UNROLL for (int j = j0; j < j1; j++) {
        __m256i w0 = w->w[j][0], w1 = w->w[j][1];
        __asm__("" : "+x"(w0), "+x"(w1));
        UNROLL for (int k = 0; k < n; k++) {
            __m256i v = broadcast4(x + 32 * k + 2 * j);
            s[k][0] = _mm256_add_epi32(s[k][0], _mm256_madd_epi16(w0, v));
            s[k][1] = _mm256_add_epi32(s[k][1], _mm256_madd_epi16(w1, v));
            __asm__("" : "+x"(s[k][0]), "+x"(s[k][1]));
        }
    }
}

INLINE void sums_quarters(enum mat_form f, const struct tile *w, const struct entry *x, int n, __m256i s[4][2])
{
    const __m256i flip = _mm256_set1_epi8(-128);
    UNROLL for (int p = 0; p < 4; p++) {
        __m256i quarter[4][2];
        UNROLL for (int k = 0; k < n; k++) {
            quarter[k][0] = w->w[8 + p][0];
            quarter[k][1] = w->w[8 + p][1];
        }
        UNROLL for (int j = 2 * p; j < 2 * p + 2; j++) {
            __m256i w0 = w->w[j][0], w1 = w->w[j][1];
            __asm__("" : "+x"(w0), "+x"(w1));
            UNROLL for (int k = 0; k < n; k++) {
                __m256i v = _mm256_xor_si256(broadcast4(x[k].q + 4 * j), flip);
                quarter[k][0] = _mm256_add_epi16(quarter[k][0], _mm256_maddubs_epi16(v, w0));
                quarter[k][1] = _mm256_add_epi16(quarter[k][1], _mm256_maddubs_epi16(v, w1));
                __asm__("" : "+x"(quarter[k][0]), "+x"(quarter[k][1]));
            }
        }
        UNROLL for (int k = 0; k < n; k++) {
            UNROLL for (int g = 0; g < 2; g++) {
                __m256i v = is_scaled16(f) ? _mm256_madd_epi16(quarter[k][g], w->scales[g].s[p / 2]) : madd_ones(quarter[k][g]);
                s[k][g] = p ? _mm256_add_epi32(s[k][g], v) : v;
            }
        }
    }
}

INLINE void sums_signed(enum mat_form f, const struct tile *w, const int16_t *wide, const struct entry *x, int n,
                        __m256i s[4][2])
{
    if (!is_scaled16(f)) {
        sums_wide(w, 0, 16, wide, n, s);
        UNROLL for (int k = 0; k < n; k++) {
            UNROLL for (int g = 0; g < 2; g++)
                s[k][g] = from_center(f, s[k][g], &x[k]);
        }
        return;
    }
    __m256i half[4][2];
    sums_wide(w, 0, 8, wide, n, s);
    sums_wide(w, 8, 16, wide, n, half);
    UNROLL for (int k = 0; k < n; k++) {
        UNROLL for (int g = 0; g < 2; g++)
            s[k][g] = _mm256_add_epi32(_mm256_mullo_epi32(s[k][g], lanes_i32(w->scales[g].s[0])),
                                       _mm256_mullo_epi32(half[k][g], lanes_i32(w->scales[g].s[1])));
    }
}

// Codes whose sums fit int16 for 16 k only; their halves may have scales, or be steps of their own.
INLINE void sums_halves(enum mat_form f, const struct tile *w, const struct entry *x, int n, __m256i s[4][2],
                        __m256i second[4][2])
{
    __m256i half[4][2];
    bool own = is_scaled16(f) || is_split(f);
    UNROLL for (int h = 0; h < 2; h++) {
        sum16(w->w, 4 * h, 4 * h + 4, x[0].q, n, half);
        UNROLL for (int k = 0; k < n; k++) {
            int zero = own ? mat_traits[f].zero : center_of(f);
            __m256i off = zero ? times16(broadcast4(x[k].pairs + h), zero) : _mm256_setzero_si256();
            UNROLL for (int g = 0; g < 2; g++) {
                __m256i v = zero ? _mm256_sub_epi16(half[k][g], off) : half[k][g];
                v = is_scaled16(f) ? _mm256_madd_epi16(v, w->scales[g].s[h]) : madd_ones(v);
                if (h == 0)
                    s[k][g] = v;
                else if (is_split(f))
                    second[k][g] = v;
                else
                    s[k][g] = _mm256_add_epi32(s[k][g], v);
            }
        }
    }
    if (own)
        return;
    UNROLL for (int k = 0; k < n; k++) {
        UNROLL for (int g = 0; g < 2; g++)
            s[k][g] = from_center(f, s[k][g], &x[k]);
    }
}

INLINE void sums_all(enum mat_form f, const struct tile *w, const struct entry *x, int n, __m256i s[4][2])
{
    sum16(w->w, 0, 8, x[0].q, n, s);
    UNROLL for (int k = 0; k < n; k++) {
        __m256i off = center_of(f) ? center_sum(f, &x[k], 2) : _mm256_setzero_si256();
        UNROLL for (int g = 0; g < 2; g++) {
            __m256i v = center_of(f) ? _mm256_sub_epi16(s[k][g], off) : s[k][g];
            s[k][g] = from_center(f, madd_ones(v), &x[k]);
        }
    }
}

#endif
