// avx512_tile.h - integer block matrices with AVX-512 VNNI. Included by the files that compile it for some forms. Any
// lane; scratch is on the stack.
//
// VPDPBUSD sums four products of unsigned codes and signed activations into int32 without saturating, so a code may use
// all 8 bits: int8 codes become code + 128, and 128 * (sum of the activations) is taken off again. Up to 8 tokens
// take 8 rows in 256-bit registers (one stream of weights, sums in registers); more take 16 rows, whose codes of a block
// fill 8 registers. Where the halves of a block have scales, taking an offset off costs as much as two more products:
// there the tile has the codes signed and the activations unsigned, q + 128 (struct acts, wide), and the sums start at
// -128 * (sum of the codes).
#pragma once

#if defined(__AVX512VNNI__)

#include "kernels/cpu/avx512_words.h"
#include "kernels/cpu/x86_few.h"

// What is subtracted from an unsigned code.
INLINE int offset_of(enum mat_form f)
{
    return mat_traits[f].zero + (is_signed(f) ? 128 : 0);
}

// A half's sum times its scale. A sum that fits int16 is multiplied as a pair with 0: half the work of VPMULLD.
INLINE __m256i scaled(enum mat_form f, __m256i sum, __m256i scale)
{
    int top = most(f) - mat_traits[f].zero > mat_traits[f].zero ? most(f) - mat_traits[f].zero : mat_traits[f].zero;
    if (is_signed(f) || top * 127 * 16 > 32767)
        return _mm256_mullo_epi32(sum, scale);
    if (mat_traits[f].scales != MAT_SCALES_U4_16)  // no sign in the upper half
        scale = _mm256_and_si256(scale, _mm256_set1_epi32(0xffff));
    return _mm256_madd_epi16(sum, scale);
}

static inline __attribute__((always_inline)) __m256i dot(enum mat_form f, const __m256i w[8], const struct scales *s,
                                                         const struct entry *x, __m256i *ret_second)
{
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i flip = _mm256_set1_epi8(-128);
    bool halves = is_scaled16(f) || is_split(f);
    if (halves && offset_of(f)) {
        __m256i zero = _mm256_set1_epi16((short)-offset_of(f));
        for (int h = 0; h < 2; h++)
            sum[h] = _mm256_madd_epi16(zero, broadcast4(x->pairs + h));
    } else if (offset_of(f)) {
        sum[0] = _mm256_set1_epi32(-offset_of(f) * x->sum);
    }
    for (int j = 0; j < 8; j++) {
        __m256i u = is_signed(f) ? _mm256_xor_si256(w[j], flip) : w[j];
        sum[j / 4] = _mm256_dpbusd_epi32(sum[j / 4], u, broadcast4(x->q + 4 * j));
    }
    for (int h = 0; h < 2 && is_scaled16(f); h++)
        sum[h] = scaled(f, sum[h], s->s[h]);
    *ret_second = sum[1];
    return is_split(f) ? sum[0] : _mm256_add_epi32(sum[0], sum[1]);
}

// ---- 16 rows

INLINE bool is_flipped(enum mat_form f)  // signed codes, unsigned activations
{
    return (is_scaled16(f) || is_split(f)) && offset_of(f);
}

struct scales16 {
    __m512 d, m;
    __m512 half[2];  // split forms: the d of each half
    __m512 s[2];     // of the halves
    __m512i min[2];
    __m512i start[2];  // what the sums of the halves start at
};

// As load_codes for the planes p0 and p1 of two groups, as unsigned codes, or signed ones where is_flipped; the table
// likewise.
INLINE void load_codes16(enum mat_form f, __m512i table, const uint8_t *p0, const uint8_t *p1, __m512i w[8])
{
    enum mat_plane plane = mat_traits[f].plane;
    if (plane == MAT_PLANE_BYTES) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_xor_si512(load_both(p0 + 32 * j, p1 + 32 * j), _mm512_set1_epi8(-128));
        return;
    }
    if (plane == MAT_PLANE_2BIT || plane == MAT_PLANE_3BIT) {
        __m512i v[2] = {load_both(p0, p1), load_both(p0 + 32, p1 + 32)};
        for (int j = 0; j < 8; j++)
            w[j] = two_bits16(v[j / 4], j % 4, 0);
    } else {
        const __m512i low = _mm512_set1_epi8(15);
        for (int j = 0; j < 4; j++) {
            __m512i v = load_both(p0 + 32 * j, p1 + 32 * j);
            w[j] = _mm512_and_si512(v, low);
            w[4 + j] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        }
    }
    if (plane == MAT_PLANE_5BIT || plane == MAT_PLANE_3BIT) {
        int at = plane == MAT_PLANE_5BIT ? 128 : 64;
        __m512i high = load_both(p0 + at, p1 + at);
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], one_bit16(high, j, plane == MAT_PLANE_5BIT ? 4 : 2));
    } else if (plane == MAT_PLANE_6BIT) {
        __m512i v[2] = {load_both(p0 + 128, p1 + 128), load_both(p0 + 160, p1 + 160)};
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], two_bits16(v[j / 4], j % 4, 4));
    }
    for (int j = 0; j < 8; j++) {
        if (mat_traits[f].lookup)
            w[j] = _mm512_shuffle_epi8(table, w[j]);
        else if (is_flipped(f))
            w[j] = _mm512_sub_epi8(w[j], _mm512_set1_epi8((char)mat_traits[f].zero));
    }
}

INLINE __m512i load_table16(enum mat_form f, const struct mat *m)
{
    __m256i t = load_table(f, m);
    if (is_flipped(f))
        t = _mm256_sub_epi8(t, _mm256_set1_epi8((char)mat_traits[f].zero));
    else if (is_signed(f))
        t = _mm256_xor_si256(t, _mm256_set1_epi8(-128));
    return join(t, t);
}

INLINE struct scales16 load_scales16(enum mat_form f, const struct scales numbers[2], const uint8_t *const record[2], int b)
{
    struct scales s0 = load_scales(f, &numbers[0], record[0] + mat_pack_numbers(f), b);
    struct scales s1 = load_scales(f, &numbers[1], record[1] + mat_pack_numbers(f), b);
    struct scales16 s = {.d = join_f(s0.d, s1.d), .m = join_f(s0.m, s1.m)};
    for (int h = 0; h < 2; h++) {
        if (is_split(f))
            s.half[h] = join_f(s0.half[h], s1.half[h]);
        if (is_scaled16(f))
            s.s[h] = _mm512_cvtepi32_ps(join(s0.s[h], s1.s[h]));
        if (has_min16(f))
            s.min[h] = join(s0.min[h], s1.min[h]);
    }
    return s;
}

INLINE void sums_of_halves(enum mat_form f, const __m512i w[8], const struct scales16 *s, const struct acts *a, size_t at,
                           __m512i sum[2])
{
    const int8_t *q = a->q + 32 * at;
    if (is_flipped(f)) {
        const uint8_t *u = (const uint8_t *)a->wide + 32 * at;
        sum[0] = s->start[0];
        sum[1] = s->start[1];
        for (int j = 0; j < 4; j++) {
            sum[0] = _mm512_dpbusd_epi32(sum[0], broadcast16(u + 4 * j), w[j]);
            sum[1] = _mm512_dpbusd_epi32(sum[1], broadcast16(u + 16 + 4 * j), w[4 + j]);
        }
        return;
    }
    sum[0] = sum[1] = _mm512_setzero_si512();
    if (offset_of(f))
        sum[0] = _mm512_sub_epi32(sum[0], times32(broadcast16(a->sums + at), offset_of(f)));
    for (int j = 0; j < 4; j++) {
        sum[0] = _mm512_dpbusd_epi32(sum[0], w[j], broadcast16(q + 4 * j));
        sum[1] = _mm512_dpbusd_epi32(sum[1], w[4 + j], broadcast16(q + 16 + 4 * j));
    }
}

// -128 times the sums of the codes.
INLINE void start_sums(const __m512i w[8], struct scales16 *s)
{
    const __m512i all = _mm512_set1_epi8(-128);  // 128 as an unsigned byte
    for (int h = 0; h < 2; h++) {
        __m512i sum = _mm512_setzero_si512();
        for (int j = 0; j < 4; j++)
            sum = _mm512_dpbusd_epi32(sum, all, w[4 * h + j]);
        s->start[h] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
    }
}

// The step of the chain of 16 rows. Sums of scaled halves stay below 2^24, so their products are exact in f32 too.
INLINE __m512 advance16(enum mat_form f, __m512 acc, const __m512i w[8], const struct scales16 *s, const struct acts *a,
                        const int32_t *pairs, size_t at)
{
    __m512i sum[2];
    __m512 dx = _mm512_set1_ps(a->d[at]), isum;
    sums_of_halves(f, w, s, a, at, sum);
    if (is_split(f)) {
        acc = _mm512_fmadd_ps(_mm512_mul_ps(dx, _mm512_cvtepi32_ps(sum[0])), s->half[0], acc);
        return _mm512_fmadd_ps(_mm512_mul_ps(dx, _mm512_cvtepi32_ps(sum[1])), s->half[1], acc);
    }
    if (is_scaled16(f))
        isum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[0]), s->s[0], _mm512_mul_ps(_mm512_cvtepi32_ps(sum[1]), s->s[1]));
    else
        isum = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[0], sum[1]));
    acc = _mm512_fmadd_ps(_mm512_mul_ps(dx, isum), s->d, acc);
    if (has_add(f))
        return _mm512_fmadd_ps(s->m, _mm512_set1_ps(a->sx[at]), acc);
    if (has_min16(f)) {
        __m512i min = _mm512_madd_epi16(s->min[0], broadcast16(pairs + 2 * at));
        min = _mm512_add_epi32(min, _mm512_madd_epi16(s->min[1], broadcast16(pairs + 2 * at + 1)));
        return _mm512_fnmadd_ps(s->m, _mm512_mul_ps(dx, _mm512_cvtepi32_ps(min)), acc);
    }
    return has_min(f) ? _mm512_fnmadd_ps(s->m, _mm512_set1_ps(a->sx[at]), acc) : acc;
}

// Groups g and g + 1 for one token tile; alone when g + 1 is not this lane's: the second result is not stored.
INLINE void pair_of_groups(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g,
                           bool alone, int at_tile, enum mat_write write)
{
    _Alignas(64) float acc[ACT_TILE * 16];
    const int size = block_of(f, m), head = head_of(f, m), n = acts_tile(a, at_tile);
    const int32_t *pairs = acts_pairs(a);
    const __m512i table = load_table16(f, m);
    size_t bytes = (size_t)(m->cols / size) * (size_t)record_of(f, m), at = acts_base(a, at_tile);
    const uint8_t *record[2] = {m->data + (size_t)g * bytes, m->data + (size_t)(alone ? g : g + 1) * bytes};
    int ahead = fetch_ahead(f, head, size / 32, n);
    memset(acc, 0, (size_t)n * 16 * sizeof *acc);
    for (int i = 0; i < m->cols / size; i++) {
        struct scales numbers[2] = {load_numbers(f, m, record[0]), load_numbers(f, m, record[1])};
        for (int b = 0; b < size / 32; b++, at += (size_t)n) {
            int plane = head + b * mat_pack_plane(f);
            // The streams advance too slowly for the hardware to fetch ahead.
            for (int k = 0; k < mat_pack_plane(f); k += 64) {
                _mm_prefetch((const char *)record[0] + plane + ahead + k, _MM_HINT_T0);
                _mm_prefetch((const char *)record[1] + plane + ahead + k, _MM_HINT_T0);
            }
            struct scales16 s = load_scales16(f, numbers, record, b);
            __m512i w[8];
            load_codes16(f, table, record[0] + plane, record[1] + plane, w);
            if (is_flipped(f))
                start_sums(w, &s);
            for (int k = 0; k < n; k++) {
                float *to = acc + 16 * k;
                _mm512_store_ps(to, advance16(f, _mm512_load_ps(to), w, &s, a, pairs, at + (size_t)k));
            }
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

// The number of tokens if the kernel for a few suits them, else 0. It walks all activations for every 8 rows: from 4
// tokens on that pays only while they and 8 rows of weights stay in L1.
static inline int few(const struct acts *a)
{
    return a->n <= 3 || (a->n <= FEW_TOKENS && a->n * a->cols <= 8192) ? a->n : 0;
}

INLINE void multiply(enum mat_form f, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
                     enum mat_write write)
{
    switch (few(a)) {
#define FEW(n)                                                                                                         \
    case n:                                                                                                            \
        few_tokens(f, n, m, a, y, ldy, g0, g1, write);                                                                 \
        break;
        FEW(1) FEW(2) FEW(3) FEW(4) FEW(5) FEW(6) FEW(7) FEW(8)
#undef FEW
    default:
        for (int tile = 0; tile * ACT_TILE < a->n; tile++) {
            for (int g = g0; g < g1; g += 2)
                pair_of_groups(f, m, a, y, ldy, g, g + 1 == g1, tile, write);
        }
    }
}

#define KERNELS(F)                                                                                                     \
    void avx512_mat_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                  \
                        enum mat_write write)                                                                          \
    {                                                                                                                  \
        multiply(MAT_FORM_##F, m, a, y, ldy, g0, g1, write);                                                           \
    }

#endif
