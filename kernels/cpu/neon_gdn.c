// neon_gdn.c - the gated delta rule and what stands around it, with NEON. Equal to ref.c bit for bit; any lane, no state
// of its own.
//
// A column of the state is a lane, so that all chains run as in ref.c. A token passes over the state twice: reading
// S^T k, then writing S and reading S^T q in one go. A block of columns (GDN_COLS) of a head stays in L1 from one token
// to the next.

#include "kernels/cpu/neon.h"
#include "kernels/cpu/neon_vec.h"

void neon_gdn_sigmoid_mul(float *y, const float *gate, int n)
{
    const f8 one = f8_set(1);
    for (int i = 0; i < n; i += 8) {
        f8 g = exp8(f8_neg(f8_load_tail(gate + i, n - i)));
        f8_store_tail(y + i, n - i, f8_div(f8_load_tail(y + i, n - i), f8_add(one, g)));
    }
}

void neon_gdn_conv_silu(float *y, const float *const *x, const float *const *w, int taps, int n)
{
    for (int i = 0; i < n; i += 8) {
        f8 s = f8_mul(f8_load_tail(w[0] + i, n - i), f8_load_tail(x[0] + i, n - i));
        for (int j = 1; j < taps; j++)
            s = f8_fma(f8_load_tail(w[j] + i, n - i), f8_load_tail(x[j] + i, n - i), s);
        f8_store_tail(y + i, n - i, over_exp(s, f8_neg(s)));
    }
}

// What is written: beta (v - decay * read).
INLINE f8 delta(f8 read, const float *v, int left, float decay, float beta)
{
    f8 d = f8_sub(f8_load_tail(v, left), f8_mul1(read, decay));
    return f8_mul1(d, beta);
}

// One token; nv vectors of 8 columns.
INLINE void token(const struct gdn_args *a, int row, int nv)
{
    const float *q = a->q + (size_t)row * (size_t)a->ldqk, *k = a->k + (size_t)row * (size_t)a->ldqk;
    const float *v = a->v + (size_t)row * (size_t)a->ldv;
    float decay = a->decay[(size_t)row * (size_t)a->ldg], beta = a->beta[(size_t)row * (size_t)a->ldg];
    float *out = a->out + (size_t)row * (size_t)a->ldo;
    f8 d[GDN_COLS / 8], o[GDN_COLS / 8];
    for (int j = 0; j < nv; j++)
        d[j] = o[j] = f8_set(0);
    const float *from = a->state;
    for (int i = 0; i < a->k_dim; i++, from += GDN_COLS) {
        for (int j = 0; j < nv; j++)
            d[j] = f8_fma1(f8_load(from + 8 * j), k[i], d[j]);
    }
    for (int j = 0; j < nv; j++)
        d[j] = delta(d[j], v + 8 * j, a->cols - 8 * j, decay, beta);
    float *s = a->state;
    for (int i = 0; i < a->k_dim; i++, s += GDN_COLS) {
        for (int j = 0; j < nv; j++) {
            f8 now = f8_fma1(d[j], k[i], f8_mul1(f8_load(s + 8 * j), decay));
            f8_store(s + 8 * j, now);
            o[j] = f8_fma1(now, q[i], o[j]);
        }
    }
    for (int j = 0; j < nv; j++)
        f8_store_tail(out + 8 * j, a->cols - 8 * j, o[j]);
}

void neon_gdn(const struct gdn_args *a)
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
