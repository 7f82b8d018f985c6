// x86_float.h - float weights for AVX2 and AVX-512, included once by the file of each: a lane is a row, one FMA chain per
// output, k ascending. Any lane, no state.
//
// Tiles of rows x tokens; weights are converted in registers at every k, on AVX-512 those of 16 bits once for many tokens. While
// weights come from memory (few tokens) a tile has all 32 rows of a block, so that they are one stream: AVX-512 takes 32
// rows x 8 tokens and asks for what comes soon; AVX2's registers hold 32 x 3, so up to 8 tokens take a piece of k several
// times, from the first cache but for the first time. With more tokens AVX2 takes 16 rows x 6 tokens, which loads least. Its
// last tile of several asks for what follows the piece of k.
#pragma once

#if defined(__AVX2__)  // nothing where the file is not compiled for it

#include "kernels/cpu/x86_vec.h"
#include "kernels/mat.h"

enum {
    MOST_TOKENS = VEC == 16 ? 8 : 6,   // of a tile; their x are streams, which may lie in one set of a cache of 8 ways
    FULL_TOKENS = 3,                   // AVX2: of a tile of all rows
    PASS_TOKENS = 8,                   // AVX2: up to so many take tiles of all rows, of 16-bit weights half as many
    PASS_BYTES = 16384,
    AHEAD = 4096,                      // AVX-512: bytes
    PANEL_K = 256,                     // AVX-512: 16-bit weights of many tokens
    PANEL_TOKENS = 24,
    ALL = 32 / VEC,                    // vectors of a block's rows
};

VEC_INLINE vec widen(enum quant_type t, const uint8_t *p)
{
    return t == QUANT_F32 ? vec_load((const float *)(const void *)p) : t == QUANT_F16 ? vec_f16(p) : vec_bf16(p);
}

// Even and odd lanes of two vectors, and back.
#if defined(__AVX512F__)
VEC_INLINE void split(vec *a, vec *b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vec e = _mm512_permutex2var_ps(*a, even, *b);
    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), *b);
    *a = e;
}

VEC_INLINE void join(vec *a, vec *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    vec l = _mm512_permutex2var_ps(*a, low, *b);
    *b = _mm512_permutex2var_ps(*a, _mm512_add_epi32(low, _mm512_set1_epi32(8)), *b);
    *a = l;
}

VEC_INLINE void widen_both(const uint8_t *p, vec *even, vec *odd)
{
    __m512i v = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
}
#else
VEC_INLINE void split(vec *a, vec *b)
{
    vec l = _mm256_permute2f128_ps(*a, *b, 0x20), h = _mm256_permute2f128_ps(*a, *b, 0x31);
    *a = _mm256_shuffle_ps(l, h, 0x88);
    *b = _mm256_shuffle_ps(l, h, 0xdd);
}

VEC_INLINE void join(vec *a, vec *b)
{
    vec l = _mm256_unpacklo_ps(*a, *b), h = _mm256_unpackhi_ps(*a, *b);
    *a = _mm256_permute2f128_ps(l, h, 0x20);
    *b = _mm256_permute2f128_ps(l, h, 0x31);
}

VEC_INLINE void widen_both(const uint8_t *p, vec *even, vec *odd)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}
#endif

struct chain {
    float *acc;
    int ldacc;
    const uint8_t *w;
    size_t step;   // bytes between k
    const float *x;
    int ldx, k;
    size_t ahead;  // this far behind w lies what is asked for meanwhile; 0: nothing
};

// For what follows, where it goes by too slowly for the hardware's own prefetching. Large tiles ask at every k without looking
// whether there is anything to ask for.
VEC_INLINE void ask(const struct chain *c, const uint8_t *w, size_t bytes, bool always)
{
    for (size_t b = 0; (always || c->ahead) && b < bytes; b += 64)
        _mm_prefetch((const char *)w + c->ahead + b, VEC == 16 ? _MM_HINT_T0 : _MM_HINT_T1);
}

// nv vectors of rows x nt tokens. Of bf16 a shift makes the even rows of two vectors f32 and a mask the odd ones, so a lane
// is another row than in memory until the end.
VEC_INLINE void tile(enum quant_type t, int nv, int nt, const struct chain *c)
{
    const size_t bytes = (size_t)VEC * (t == QUANT_F32 ? 4 : 2), ldx = (size_t)c->ldx, step = c->step;
    const int split_rows = t == QUANT_BF16 ? nv / 2 * 2 : 0;
    const uint8_t *w = c->w;
    vec s[MOST_TOKENS][ALL];
    for (int j = 0; j < nt; j++) {
        for (int v = 0; v < nv; v++)
            s[j][v] = vec_load(c->acc + j * c->ldacc + VEC * v);
        for (int v = 0; v < split_rows; v += 2)
            split(&s[j][v], &s[j][v + 1]);
    }
    for (size_t i = 0, n = (size_t)c->k; i < n; i++, w += step) {
        vec r[ALL];
        ask(c, w, (size_t)nv * bytes, nt > FULL_TOKENS);
        for (int v = 0; v < split_rows; v += 2)
            widen_both(w + (size_t)v * bytes, &r[v], &r[v + 1]);
        for (int v = split_rows; v < nv; v++)
            r[v] = widen(t, w + (size_t)v * bytes);
        for (int j = 0; j < nt; j++) {
            vec b = vec_all(c->x[(size_t)j * ldx + i]);
            for (int v = 0; v < nv; v++)
                s[j][v] = vec_fma(r[v], b, s[j][v]);
        }
    }
    for (int j = 0; j < nt; j++) {
        for (int v = 0; v < split_rows; v += 2)
            join(&s[j][v], &s[j][v + 1]);
        for (int v = 0; v < nv; v++)
            vec_store(c->acc + j * c->ldacc + VEC * v, s[j][v]);
    }
}

#define CASE(n)                                                                                                        \
    case n:                                                                                                            \
        tile(t, nv, n, c);                                                                                             \
        break
VEC_INLINE void tokens_upto3(enum quant_type t, int nv, int n, const struct chain *c)
{
    switch (n) {
        CASE(1);
        CASE(2);
        CASE(3);
    }
}

VEC_INLINE void tokens_any(enum quant_type t, int nv, int n, const struct chain *c)
{
    switch (n) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
#if defined(__AVX512F__)
        CASE(7);
        CASE(8);
#endif
    }
}
#undef CASE

static int even_tile(int left, int most)  // tiles as even as possible
{
    int tiles = (left + most - 1) / most;
    return (left + tiles - 1) / tiles;
}

// All tokens over nv vectors of rows.
VEC_INLINE void all_tokens(enum quant_type t, int nv, const struct chain *all, int n)
{
    struct chain c = *all;
    for (int j = 0, part; j < n; j += part) {
        part = even_tile(n - j, MOST_TOKENS);
        if (VEC == 16)
            c.ahead = n > FULL_TOKENS && n <= MOST_TOKENS ? AHEAD : 0;
        else
            c.ahead = n > part && j + part == n ? (size_t)c.k * c.step : 0;
        c.acc = all->acc + j * c.ldacc;
        c.x = all->x + (size_t)j * (size_t)c.ldx;
        tokens_any(t, nv, part, &c);
    }
}

// All rows, nv vectors, of a few tokens: piece by piece of k.
VEC_INLINE void all_rows(enum quant_type t, int nv, const struct chain *all, int n)
{
    struct chain c = *all;
    int piece = n <= FULL_TOKENS ? all->k : (int)(PASS_BYTES / all->step);
    for (int k = 0; k < all->k; k += piece) {
        c.k = all->k - k < piece ? all->k - k : piece;
        c.w = all->w + (size_t)k * c.step;
        for (int j = 0, part; j < n; j += part) {
            part = even_tile(n - j, FULL_TOKENS);
            c.acc = all->acc + j * c.ldacc;
            c.x = all->x + (size_t)j * (size_t)c.ldx + k;
            c.ahead = n > part && j + part == n ? (size_t)piece * c.step : 0;
            tokens_upto3(t, nv, part, &c);
        }
    }
}

#if defined(__AVX512F__)

// 16-bit weights of many tokens, all rows: a piece is made f32 once for all of them.
VEC_INLINE void widened(enum quant_type t, const struct chain *all, int n)
{
    _Alignas(64) float panel[PANEL_K * 32];
    struct chain c = *all;
    const uint8_t *w = all->w;
    c.w = (const uint8_t *)panel;
    c.step = 32 * sizeof *panel;
    for (int k = 0; k < all->k; k += PANEL_K) {
        c.k = all->k - k < PANEL_K ? all->k - k : PANEL_K;
        c.x = all->x + k;
        for (int i = 0; i < c.k; i++, w += all->step) {
            for (int v = 0; v < ALL; v++)
                vec_store(panel + 32 * i + VEC * v, widen(t, w + (size_t)(v * VEC * 2)));
        }
        all_tokens(QUANT_F32, ALL, &c, n);
    }
}

// The 8 rows left of an odd number of groups are AVX2's.
typedef void chain_fn(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);

VEC_INLINE void product(enum quant_type t, chain_fn *eight, const struct chain *c, int width, int ng, int n)
{
    if (t != QUANT_F32 && n >= PANEL_TOKENS && ng >= 4)
        widened(t, c, n);
    else if (ng >= 4)
        all_tokens(t, 2, c, n);
    else if (ng >= 2)
        all_tokens(t, 1, c, n);
    if (ng % 2) {
        size_t done = (size_t)(ng - 1) * 8;
        eight(c->acc + done, c->ldacc, c->w + done * (t == QUANT_F32 ? 4 : 2), width, 1, c->x, c->ldx, n, c->k);
    }
}

#else

VEC_INLINE void product(enum quant_type t, const struct chain *all, int ng, int n)
{
    struct chain c = *all;
    if (n <= (t == QUANT_F32 ? PASS_TOKENS : PASS_TOKENS / 2)) {
        if (ng == 4)
            all_rows(t, 4, &c, n);
        else if (ng == 3)
            all_rows(t, 3, &c, n);
        else if (ng == 2)
            all_rows(t, 2, &c, n);
        else
            all_rows(t, 1, &c, n);
        return;
    }
    for (; ng >= 2; ng -= 2, c.acc += 16, c.w += 16 * (t == QUANT_F32 ? 4 : 2))
        all_tokens(t, 2, &c, n);
    if (ng == 1)
        all_tokens(t, 1, &c, n);
}

#endif

#endif
