// neon_mha.c - attention of plain rows with NEON, equal to ref.c bit for bit. Any lane, no state.
//
// A piece of keys is transposed into groups of 16, so that it is a small weight matrix: a lane is a key, a score one chain
// over d. Values are cut into strips of 16 numbers: a lane is an output element, one chain over the piece's keys. Both
// products are tiles of 16 lanes x 6 rows, whose 12 chains hide the FMA's latency; one to three rows take more lanes
// instead. The change of maximum is multiplied in where a tile loads its accumulators.
#include <math.h>

#include "kernels/cpu/attn.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"
#include "kernels/cpu/ref.h"

INLINE void tile(int nq, int nv, const struct mha_product *p, int v0, int q0)
{
    f8 s[12][8];
    const float *w[8], *x = p->x + (size_t)q0 * p->ldx;
    float *y = p->y + (size_t)q0 * p->ldy + 8 * v0;
    for (int v = 0; v < nv; v++)
        w[v] = p->w + (size_t)((v0 + v) / 2) * p->pair + (v0 + v) % 2 * 8;
    for (int q = 0; q < nq; q++) {
        for (int v = 0; v < nv; v++) {
            s[q][v] = f8_set(0);
            if (p->scale)
                s[q][v] = f8_mul1(f8_load(y + (size_t)q * p->ldy + 8 * v), p->scale[q0 + q]);
        }
    }
    const size_t step = p->step, ldx = p->ldx;
    for (size_t i = 0, n = (size_t)p->k; i < n; i++) {
        for (int v = 0; v < nv; v++) {
            f8 r = f8_load(w[v] + i * step);
            for (int q = 0; q < nq; q++)
                s[q][v] = f8_fma1(r, x[(size_t)q * ldx + i], s[q][v]);
        }
    }
    for (int q = 0; q < nq; q++) {
        for (int v = 0; v < nv; v++)
            f8_store(y + (size_t)q * p->ldy + 8 * v, s[q][v]);
    }
}

INLINE void transpose4(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d)
{
    float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)), ab1 = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));
    float64x2_t cd = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)), cd1 = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
    *a = vreinterpretq_f32_f64(vzip1q_f64(ab, cd));
    *b = vreinterpretq_f32_f64(vzip1q_f64(ab1, cd1));
    *c = vreinterpretq_f32_f64(vzip2q_f64(ab, cd));
    *d = vreinterpretq_f32_f64(vzip2q_f64(ab1, cd1));
}

INLINE void transpose8(f8 r[8])
{
    for (int i = 0; i < 8; i += 4) {
        transpose4(&r[i].l, &r[i + 1].l, &r[i + 2].l, &r[i + 3].l);
        transpose4(&r[i].h, &r[i + 1].h, &r[i + 2].h, &r[i + 3].h);
    }
    for (int i = 0; i < 4; i++) {
        float32x4_t high = r[i].h;
        r[i].h = r[i + 4].l;
        r[i + 4].l = high;
    }
}

// n keys from k on as [n/16][head_dim][16]; the keys missing in the last group are zero.
static void load_keys(const struct mha_args *a, const float *k, int n, float *dst)
{
    int dim = a->head_dim;
    for (int j = 0; j < (n + 15) / 16 * 16; j += 8) {
        float *to = dst + (size_t)(j / 16 * dim) * 16 + j % 16;
        for (int d = 0; d < dim; d += 8) {
            f8 r[8];
            for (int i = 0; i < 8; i++)
                r[i] = j + i < n ? f8_load_tail(k + (size_t)(j + i) * (size_t)a->ldk + d, dim - d) : f8_set(0);
            transpose8(r);
            for (int i = 0; i < 8 && d + i < dim; i++)
                f8_store(to + (size_t)(d + i) * 16, r[i]);
        }
    }
}

// n values from v on as [pad/16][MHA_PIECE][16].
static void load_values(const struct mha_args *a, const float *v, int n, float *dst)
{
    for (int d = 0; d < a->head_dim; d += 8) {
        float *to = dst + (size_t)(d / 16) * MHA_PIECE * 16 + d % 16;
        for (int j = 0; j < n; j++)
            f8_store(to + j * 16, f8_load_tail(v + (size_t)j * (size_t)a->ldv + d, a->head_dim - d));
    }
}

static void load_queries(const struct mha_args *a, const struct mha_scratch *s, size_t pad)
{
    f8 scale = f8_set(a->scale);
    for (int i = 0; i < a->rows; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
        for (int d = 0; d < (int)pad; d += 8) {
            f8 q = f8_load_tail(a->q + (size_t)i * (size_t)a->ldq + d, a->head_dim - d);
            f8_store(s->q + (size_t)i * pad + d, f8_mul(q, scale));
            f8_store(s->acc + (size_t)i * pad + d, f8_set(0));
        }
    }
}

// One row's n scores become weights; returns what its accumulators are multiplied by.
static float weigh(float *p, int n, float *max, float *sum)
{
    f8 top = f8_set(*max), lanes = f8_set(0);
    if (n % 8) {
        float *last = p + n / 8 * 8;
        f8_store(last, f8_if(f8_first(n % 8), f8_load(last), f8_set(-INFINITY)));
    }
    for (int j = 0; j < n; j += 8)
        top = f8_max(f8_load(p + j), top);
    float m = f8_top(top), scale = ref_exp(*max - m);
    top = f8_set(m);
    for (int j = 0; j < n; j += 8) {
        f8 e = exp8(f8_sub(f8_load(p + j), top));
        if (n - j < 8)
            e = f8_only(f8_first(n - j), e);
        f8_store(p + j, e);
        lanes = f8_add(lanes, e);
    }
    *max = m;
    *sum = fmaf(*sum, scale, f8_tree(lanes));
    return scale;
}

static void finish(const struct mha_args *a, const struct mha_scratch *s, size_t pad)
{
    for (int i = 0; i < a->rows; i++) {
        const float *acc = s->acc + (size_t)i * pad;
        float *out = a->out + (size_t)i * (size_t)a->ldo;
        f8 inverse = f8_set(1 / s->sum[i]);
        for (int d = 0; d < a->head_dim; d += 8) {
            f8 y = f8_mul(f8_load(acc + d), inverse);
            f8_store_tail(out + d, a->head_dim - d, y);
        }
    }
}

#include "kernels/cpu/mha_walk.h"

void neon_mha(const struct mha_args *a)
{
    walk(a);
}
