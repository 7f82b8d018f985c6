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

enum { DIRECT_ROWS = 6 };  // up to this many rows, values are read where they are

// Rows of a product and what they are multiplied by. Vector v of w's row k is at w + v/2 * pair + v%2 * 8 + k * step.
struct product {
    const float *w;
    size_t pair, step;
    const float *x;      // [rows][k], ldx apart
    size_t ldx;
    int k;
    float *y;            // [rows][8 * vectors], ldy apart
    size_t ldy;
    const float *scale;  // of each row: y is continued after one multiplication; NULL: starts at +0
};

INLINE void tile(int nq, int nv, const struct product *p, int v0, int q0)
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

static void one_row(const struct product *p, int vectors)
{
    int v = 0;
    for (; v + 8 <= vectors; v += 8)
        tile(1, 8, p, v, 0);
    for (; v + 4 <= vectors; v += 4)
        tile(1, 4, p, v, 0);
    for (; v + 2 <= vectors; v += 2)
        tile(1, 2, p, v, 0);
    for (; v < vectors; v++)
        tile(1, 1, p, v, 0);
}

INLINE void few_rows(int nq, const struct product *p, int vectors)
{
    int v = 0;
    for (; v + 4 <= vectors; v += 4)
        tile(nq, 4, p, v, 0);
    for (; v + 2 <= vectors; v += 2)
        tile(nq, 2, p, v, 0);
    for (; v < vectors; v++)
        tile(nq, 1, p, v, 0);
}

// Two vectors of all rows; 7 to 11 rows in two even parts.
static void two_vectors(const struct product *p, int v, int rows)
{
    for (int q = 0, next; q < rows; q = next) {
        int left = rows - q;
        next = left >= 12 ? q + 6 : left > 6 ? q + (left + 1) / 2 : rows;
        switch (next - q) {
        case 6:
            tile(6, 2, p, v, q);
            break;
        case 5:
            tile(5, 2, p, v, q);
            break;
        case 4:
            tile(4, 2, p, v, q);
            break;
        case 3:
            tile(3, 2, p, v, q);
            break;
        case 2:
            tile(2, 2, p, v, q);
            break;
        case 1:
            tile(1, 2, p, v, q);
            break;
        }
    }
}

static void last_vector(const struct product *p, int v, int rows)
{
    int q = 0;
    for (; q + 12 <= rows; q += 12)
        tile(12, 1, p, v, q);
    for (; q + 4 <= rows; q += 4)
        tile(4, 1, p, v, q);
    for (; q < rows; q++)
        tile(1, 1, p, v, q);
}

static void multiply(const struct product *p, int vectors, int rows)
{
    if (rows == 1) {
        one_row(p, vectors);
    } else if (rows == 2) {
        few_rows(2, p, vectors);
    } else if (rows == 3) {
        few_rows(3, p, vectors);
    } else {
        int v = 0;
        for (; v + 2 <= vectors; v += 2)
            two_vectors(p, v, rows);
        if (v < vectors)
            last_vector(p, v, rows);
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

static int row_end(const struct mha_args *a, int row)
{
    return a->causal && a->pos0 + row + 1 < a->keys ? a->pos0 + row + 1 : a->keys;
}

// How many keys of a piece a row sees.
static int seen(const struct mha_args *a, int row, int piece)
{
    int n = row_end(a, row) - piece;
    return n < 0 ? 0 : n < MHA_PIECE ? n : MHA_PIECE;
}

// Weights times values for rows r .. r+n (weights from row r0 on). Rows that see more keys than the first one of their
// tile continue alone.
static void add_values(const struct mha_args *a, const struct product *values, int piece, int r0, int r, int n)
{
    static const float one = 1;
    int common = seen(a, r, piece), vectors = (a->head_dim + 7) / 8;
    struct product p = *values;
    p.x += (size_t)(r - r0) * MHA_PIECE;
    p.y += (size_t)(r - r0) * p.ldy;
    p.scale += r - r0;
    p.k = common;
    multiply(&p, vectors, n);
    p.scale = &one;
    p.w += (size_t)common * p.step;
    p.x += common;
    for (int i = 0; i < n; i++, p.x += MHA_PIECE, p.y += p.ldy) {
        p.k = seen(a, r + i, piece) - common;
        if (p.k > 0)
            multiply(&p, vectors, 1);
    }
}

// One piece of keys for rows r0 .. r1, at most MHA_BLOCK of them.
static void block(const struct mha_args *a, const struct mha_scratch *s, const float *w, size_t pair, size_t step,
                  int piece, int r0, int r1)
{
    size_t pad = (size_t)attn_mha_pad(a->head_dim);
    float scale[MHA_BLOCK];
    int most = seen(a, r1 - 1, piece), rows = r1 - r0;
    if (!most)
        return;
    struct product scores = {.w = s->k, .pair = (size_t)a->head_dim * 16, .step = 16, .x = s->q + (size_t)r0 * pad,
                             .ldx = pad, .k = a->head_dim, .y = s->p, .ldy = MHA_PIECE};
    multiply(&scores, (most + 7) / 8, rows);
    for (int i = 0; i < rows; i++)
        scale[i] = weigh(s->p + i * MHA_PIECE, seen(a, r0 + i, piece), &s->max[r0 + i], &s->sum[r0 + i]);
    struct product values = {.w = w, .pair = pair, .step = step, .x = s->p, .ldx = MHA_PIECE,
                             .y = s->acc + (size_t)r0 * pad, .ldy = pad, .scale = scale};
    int together = seen(a, r0, piece) == most ? rows : 6;
    for (int r = r0; r < r1; r += together)
        add_values(a, &values, piece, r0, r, r1 - r < together ? r1 - r : together);
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

void neon_mha(const struct mha_args *a)
{
    size_t pad = (size_t)attn_mha_pad(a->head_dim);
    struct mha_scratch s = attn_mha_lay_out(a->scratch, a->rows, a->head_dim);
    bool direct = a->rows <= DIRECT_ROWS && a->head_dim % 8 == 0;
    int end = row_end(a, a->rows - 1);
    load_queries(a, &s, pad);
    for (int piece = 0; piece < end; piece += MHA_PIECE) {
        int n = end - piece < MHA_PIECE ? end - piece : MHA_PIECE;
        const float *v = a->v + (size_t)piece * (size_t)a->ldv;
        load_keys(a, a->k + (size_t)piece * (size_t)a->ldk, n, s.k);
        if (!direct)
            load_values(a, v, n, s.v);
        for (int r = 0; r < a->rows; r += MHA_BLOCK) {
            int last = a->rows - r < MHA_BLOCK ? a->rows : r + MHA_BLOCK;
            if (direct)
                block(a, &s, v, 16, (size_t)a->ldv, piece, r, last);
            else
                block(a, &s, s.v, MHA_PIECE * 16, 16, piece, r, last);
        }
    }
    finish(a, &s, pad);
}
