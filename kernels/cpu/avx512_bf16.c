// avx512_bf16.c - bf16 weights by bf16 activations with VDPBF16PS, which does two k of a row at once: acc + odd product, rounded,
// + even product, rounded. It takes subnormal numbers as 0, and there are none here (kernels/mat.h). A lane is a row. Any
// lane, no state.
//
// Machines with AVX-512 but without the instruction take AVX2's kernel, which gives the same bits.
#include <string.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86.h"

enum {
    MOST_TOKENS = 8,  // of a tile: rows of x beyond the streams that the hardware follows cost more than larger tiles gain
    AHEAD = 4096,     // bytes: with several tokens weights go by too slowly for its prefetching
};

struct pairs {
    float *acc;
    int ldacc;
    const uint8_t *w;
    size_t step;      // bytes between pairs
    __mmask16 last;   // rows of the last vector
    const uint16_t *x;
    int ldx, n;       // n: pairs
};

INLINE __m512bh both(const uint16_t *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return (__m512bh)_mm512_set1_epi32(v);
}

// nv vectors of 16 rows x nt tokens.
INLINE void tile(int nv, int nt, const struct pairs *p)
{
    __m512 s[MOST_TOKENS][2];
    for (int j = 0; j < nt; j++)
        for (int v = 0; v < nv; v++)
            s[j][v] = _mm512_loadu_ps(p->acc + j * p->ldacc + 16 * v);
    const uint8_t *w = p->w;
    for (size_t i = 0; i < (size_t)p->n; i++, w += p->step) {
        __m512bh r[2];
        for (int v = 0; v < nv; v++)
            _mm_prefetch((const char *)w + AHEAD + 64 * v, _MM_HINT_T0);
        for (int v = 0; v < nv; v++)
            r[v] = (__m512bh)_mm512_maskz_loadu_epi32(v == nv - 1 ? p->last : 0xffff, w + 64 * v);
        for (int j = 0; j < nt; j++) {
            __m512bh b = both(p->x + (size_t)j * (size_t)p->ldx + 2 * i);
            for (int v = 0; v < nv; v++)
                s[j][v] = _mm512_dpbf16_ps(s[j][v], r[v], b);
        }
    }
    for (int j = 0; j < nt; j++)
        for (int v = 0; v < nv; v++)
            _mm512_storeu_ps(p->acc + j * p->ldacc + 16 * v, s[j][v]);
}

#define CASE(n)             \
    case n:                 \
        tile(nv, n, p);     \
        break
INLINE void tokens(int nv, int nt, const struct pairs *p)
{
    switch (nt) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
    }
}
#undef CASE

// acc has 32 rows a token, whatever ng is.
void avx512_bf16_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs)
{
    if (!__builtin_cpu_supports("avx512bf16")) {
        avx2_pairs(acc, ldacc, w, width, ng, x, ldx, n, n_pairs);
        return;
    }
    struct pairs p = {acc, ldacc, w, (size_t)width * 4, ng % 2 ? 0xff : 0xffff, x, ldx, n_pairs};
    int tiles = (n + MOST_TOKENS - 1) / MOST_TOKENS;
    for (int left = n, part; left > 0; left -= part, tiles--) {
        part = (left + tiles - 1) / tiles;
        if (ng > 2)
            tokens(2, part, &p);
        else
            tokens(1, part, &p);
        p.acc += part * ldacc;
        p.x += (size_t)part * (size_t)ldx;
    }
}

double avx512_bf16_peak(long rounds)
{
    __m512 s[16];
    __m512bh w = (__m512bh)_mm512_set1_epi32(0x3f803f00), x = (__m512bh)_mm512_set1_epi32(0x3f003f80);
    if (!__builtin_cpu_supports("avx512bf16"))
        return 0;
    UNROLL for (int j = 0; j < 16; j++)
        s[j] = _mm512_setzero_ps();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 16; j++) {
            s[j] = _mm512_dpbf16_ps(s[j], w, x);
            __asm__ volatile("" : "+v"(s[j]));
        }
    }
    return (double)rounds * 16 * 64;
}
