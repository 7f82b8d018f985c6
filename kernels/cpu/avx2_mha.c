// avx2_mha.c - attention of plain rows with AVX2 and FMA, equal to ref.c bit for bit. Any lane, no state.
//
// A piece of keys is transposed into groups of 16, so that it is a small weight matrix: a lane is a key, a score one chain
// over d. Values are cut into strips of 16 numbers: a lane is an output element, one chain over the piece's keys. Both
// products are tiles of 16 lanes x 6 rows, whose 12 chains hide the FMA's latency; one to three rows take more lanes
// instead. The change of maximum is multiplied in where a tile loads its accumulators.
#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/attn.h"
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86_exp.h"

#define INLINE static inline __attribute__((always_inline))

INLINE void tile(int nq, int nv, const struct mha_product *p, int v0, int q0)
{
    __m256 s[12][8];
    const float *w[8], *x = p->x + (size_t)q0 * p->ldx;
    float *y = p->y + (size_t)q0 * p->ldy + 8 * v0;
    for (int v = 0; v < nv; v++)
        w[v] = p->w + (size_t)((v0 + v) / 2) * p->pair + (v0 + v) % 2 * 8;
    for (int q = 0; q < nq; q++) {
        for (int v = 0; v < nv; v++) {
            s[q][v] = _mm256_setzero_ps();
            if (p->scale)
                s[q][v] = _mm256_mul_ps(_mm256_loadu_ps(y + (size_t)q * p->ldy + 8 * v), _mm256_set1_ps(p->scale[q0 + q]));
        }
    }
    const size_t step = p->step, ldx = p->ldx;
    for (size_t i = 0, n = (size_t)p->k; i < n; i++) {
        __m256 r[8];
        for (int v = 0; v < nv; v++)
            r[v] = _mm256_loadu_ps(w[v] + i * step);
        for (int q = 0; q < nq; q++) {
            __m256 b = _mm256_set1_ps(x[(size_t)q * ldx + i]);
            for (int v = 0; v < nv; v++)
                s[q][v] = _mm256_fmadd_ps(r[v], b, s[q][v]);
        }
    }
    for (int q = 0; q < nq; q++) {
        for (int v = 0; v < nv; v++)
            _mm256_storeu_ps(y + (size_t)q * p->ldy + 8 * v, s[q][v]);
    }
}

static inline __m256i tail_mask(int left)  // the first `left` of 8 lanes
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline __m256 load_tail(const float *x, int left)
{
    return left >= 8 ? _mm256_loadu_ps(x) : left > 0 ? _mm256_maskload_ps(x, tail_mask(left)) : _mm256_setzero_ps();
}

INLINE void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

// n keys from k on as [n/16][head_dim][16]; the keys missing in the last group are zero.
static void load_keys(const struct mha_args *a, const float *k, int n, float *dst)
{
    int dim = a->head_dim;
    for (int j = 0; j < (n + 15) / 16 * 16; j += 8) {
        float *to = dst + (size_t)(j / 16 * dim) * 16 + j % 16;
        for (int d = 0; d < dim; d += 8) {
            __m256 r[8];
            for (int i = 0; i < 8; i++)
                r[i] = j + i < n ? load_tail(k + (size_t)(j + i) * (size_t)a->ldk + d, dim - d) : _mm256_setzero_ps();
            transpose8(r);
            for (int i = 0; i < 8 && d + i < dim; i++)
                _mm256_storeu_ps(to + (size_t)(d + i) * 16, r[i]);
        }
    }
}

// n values from v on as [pad/16][MHA_PIECE][16].
static void load_values(const struct mha_args *a, const float *v, int n, float *dst)
{
    for (int d = 0; d < a->head_dim; d += 8) {
        float *to = dst + (size_t)(d / 16) * MHA_PIECE * 16 + d % 16;
        for (int j = 0; j < n; j++)
            _mm256_storeu_ps(to + j * 16, load_tail(v + (size_t)j * (size_t)a->ldv + d, a->head_dim - d));
    }
}

static void load_queries(const struct mha_args *a, const struct mha_scratch *s, size_t pad)
{
    __m256 scale = _mm256_set1_ps(a->scale);
    for (int i = 0; i < a->rows; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
        for (int d = 0; d < (int)pad; d += 8) {
            __m256 q = load_tail(a->q + (size_t)i * (size_t)a->ldq + d, a->head_dim - d);
            _mm256_storeu_ps(s->q + (size_t)i * pad + d, _mm256_mul_ps(q, scale));
            _mm256_storeu_ps(s->acc + (size_t)i * pad + d, _mm256_setzero_ps());
        }
    }
}

// One row's n scores become weights; returns what its accumulators are multiplied by.
static float weigh(float *p, int n, float *max, float *sum)
{
    __m256 top = _mm256_set1_ps(*max), lanes = _mm256_setzero_ps();
    if (n % 8) {
        float *last = p + n / 8 * 8;
        __m256 mask = _mm256_castsi256_ps(tail_mask(n % 8));
        _mm256_storeu_ps(last, _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_loadu_ps(last), mask));
    }
    for (int j = 0; j < n; j += 8)  // MAXPS returns its second operand when one is a NaN: the running maximum stays
        top = _mm256_max_ps(_mm256_loadu_ps(p + j), top);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(top), _mm256_extractf128_ps(top, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    top = _mm256_broadcastss_ps(m);
    float scale = _mm256_cvtss_f32(exp8(_mm256_sub_ps(_mm256_set1_ps(*max), top)));
    for (int j = 0; j < n; j += 8) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + j), top));
        if (n - j < 8)
            e = _mm256_and_ps(e, _mm256_castsi256_ps(tail_mask(n - j)));
        _mm256_storeu_ps(p + j, e);
        lanes = _mm256_add_ps(lanes, e);
    }
    *max = _mm_cvtss_f32(m);
    *sum = fmaf(*sum, scale, tree8(lanes));
    return scale;
}

static void finish(const struct mha_args *a, const struct mha_scratch *s, size_t pad)
{
    for (int i = 0; i < a->rows; i++) {
        const float *acc = s->acc + (size_t)i * pad;
        float *out = a->out + (size_t)i * (size_t)a->ldo;
        __m256 inverse = _mm256_set1_ps(1 / s->sum[i]);
        for (int d = 0; d < a->head_dim; d += 8) {
            __m256 y = _mm256_mul_ps(_mm256_loadu_ps(acc + d), inverse);
            if (a->head_dim - d >= 8)
                _mm256_storeu_ps(out + d, y);
            else
                _mm256_maskstore_ps(out + d, tail_mask(a->head_dim - d), y);
        }
    }
}

#include "kernels/cpu/mha_walk.h"

void avx2_mha(const struct mha_args *a)
{
    walk(a);
}
