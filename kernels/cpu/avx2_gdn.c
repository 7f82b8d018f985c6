// avx2_gdn.c - the gated delta rule and what stands around it, with AVX2 and FMA. Equal to ref.c bit for bit; any lane, no
// state of its own.
//
// A column of the state is a lane, so that all chains run as in ref.c. A token passes over the state twice: reading
// S^T k, then writing S and reading S^T q in one go. A block of columns (GDN_COLS) of a head stays in L1 from one token
// to the next.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86_exp.h"
#include "kernels/cpu/x86_tail.h"

#define INLINE static inline __attribute__((always_inline))

void avx2_gdn_sigmoid_mul(float *y, const float *gate, int n)
{
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
    for (int i = 0; i < n; i += 8) {
        __m256 g = exp8(_mm256_xor_ps(load_tail(gate + i, n - i), sign));
        store_tail(y + i, n - i, _mm256_div_ps(load_tail(y + i, n - i), _mm256_add_ps(one, g)));
    }
}

void avx2_gdn_conv_silu(float *y, const float *const *x, const float *const *w, int taps, int n)
{
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
    for (int i = 0; i < n; i += 8) {
        __m256 s = _mm256_mul_ps(load_tail(w[0] + i, n - i), load_tail(x[0] + i, n - i));
        for (int j = 1; j < taps; j++)
            s = _mm256_fmadd_ps(load_tail(w[j] + i, n - i), load_tail(x[j] + i, n - i), s);
        store_tail(y + i, n - i, _mm256_div_ps(s, _mm256_add_ps(one, exp8(_mm256_xor_ps(s, sign)))));
    }
}

// What is written: beta (v - decay * read).
INLINE __m256 delta(__m256 read, const float *v, int left, float decay, float beta)
{
    __m256 d = _mm256_sub_ps(load_tail(v, left), _mm256_mul_ps(_mm256_set1_ps(decay), read));
    return _mm256_mul_ps(_mm256_set1_ps(beta), d);
}

// One token; nv vectors of 8 columns.
INLINE void token(const struct gdn_args *a, int row, int nv)
{
    const float *q = a->q + (size_t)row * (size_t)a->ldqk, *k = a->k + (size_t)row * (size_t)a->ldqk;
    const float *v = a->v + (size_t)row * (size_t)a->ldv;
    float decay = a->decay[(size_t)row * (size_t)a->ldg], beta = a->beta[(size_t)row * (size_t)a->ldg];
    float *out = a->out + (size_t)row * (size_t)a->ldo;
    __m256 d[GDN_COLS / 8], o[GDN_COLS / 8], g = _mm256_set1_ps(decay);
    for (int j = 0; j < nv; j++)
        d[j] = o[j] = _mm256_setzero_ps();
    const float *from = a->state;
    for (int i = 0; i < a->k_dim; i++, from += GDN_COLS) {
        __m256 ki = _mm256_broadcast_ss(k + i);
        for (int j = 0; j < nv; j++)
            d[j] = _mm256_fmadd_ps(_mm256_loadu_ps(from + 8 * j), ki, d[j]);
    }
    for (int j = 0; j < nv; j++)
        d[j] = delta(d[j], v + 8 * j, a->cols - 8 * j, decay, beta);
    float *s = a->state;
    for (int i = 0; i < a->k_dim; i++, s += GDN_COLS) {
        __m256 ki = _mm256_broadcast_ss(k + i), qi = _mm256_broadcast_ss(q + i);
        for (int j = 0; j < nv; j++) {
            __m256 now = _mm256_fmadd_ps(ki, d[j], _mm256_mul_ps(g, _mm256_loadu_ps(s + 8 * j)));
            _mm256_storeu_ps(s + 8 * j, now);
            o[j] = _mm256_fmadd_ps(now, qi, o[j]);
        }
    }
    for (int j = 0; j < nv; j++)
        store_tail(out + 8 * j, a->cols - 8 * j, o[j]);
}

void avx2_gdn(const struct gdn_args *a)
{
    int nv = (a->cols + 7) / 8;
    for (int row = 0; row < a->rows; row++) {
        if (nv == 4)
            token(a, row, 4);
        else if (nv == 3)
            token(a, row, 3);
        else if (nv == 2)
            token(a, row, 2);
        else
            token(a, row, 1);
    }
}
