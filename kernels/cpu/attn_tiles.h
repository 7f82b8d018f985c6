// attn_tiles.h - products of some states with a piece of keys or values, and the softmax between: see attn_pieces.h.
#pragma once

#if defined(__AVX2__) || defined(__aarch64__)  // nothing where the file is not compiled for vectors

#include "kernels/cpu/attn_pieces.h"

// ---- scores

// ns states x nk vectors of keys from key `key` on. q is [ns][pad], p [ns][KV_PIECE].
VEC_INLINE void score_tile(enum kv_type t, int ns, int nk, const struct piece *k, int dim, int pad, const float *q, int key,
                           float *p, bool ahead)
{
    const size_t size = size_of(t), passes = KV_PIECE / VEC / (size_t)nk, pass = (size_t)(key / VEC / nk);
    const size_t steps = (size_t)(dim + 31) / 32;
    const uint8_t *at = k->at + (size_t)key * size;
    vec acc[TILE_STATES][8], scale[8];
    for (int j = 0; j < nk; j++) {
        scale[j] = vec_zero();
        for (int s = 0; s < ns; s++)
            acc[s][j] = vec_zero();
    }
    for (int b = 0; b < dim; b += 32) {
        int end = b + 32 < dim ? b + 32 : dim;
        if (ahead)
            fetch(k, pass * steps + (size_t)b / 32, passes * steps, ns);
        for (int j = 0; j < nk && t == KV_Q8; j++)
            scale[j] = vec_load(k->scales + b * (KV_PIECE / 32) + key + j * VEC);
        for (int d = b; d < end; d++, at += k->step)
            step_tile(t, ns, nk, acc, q + d, pad, at, scale);
    }
    for (int s = 0; s < ns; s++) {
        for (int j = 0; j < nk; j++)
            vec_store(p + s * KV_PIECE + key + j * VEC, acc[s][j]);
    }
}

VEC_INLINE void score_states(enum kv_type t, int ns, int nk, const struct walk *w, const struct piece *k, int state,
                             int first, int last)
{
    const float *q = w->s.q + state * w->pad;
    float *p = w->s.p + state * KV_PIECE;
    int dim = w->a->head_dim;
    for (int key = first / (nk * VEC) * (nk * VEC); key < last; key += nk * VEC)
        score_tile(t, ns, nk, k, dim, w->pad, q, key, p, k->next_bytes && state == first_state(w));
}

// Keys first..last of the piece for n states; more may be computed.
VEC_INLINE void score_some(enum kv_type t, int n, const struct walk *w, const struct piece *k, int state, int first, int last)
{
    switch (n) {
    case 1:
        score_states(t, 1, 64 / VEC, w, k, state, first, last);
        break;
    case 2:
        score_states(t, 2, 4, w, k, state, first, last);
        break;
    case 3:
        score_states(t, 3, VEC == 8 ? 4 : 2, w, k, state, first, last);
        break;
    case 4:
        score_states(t, 4, 2, w, k, state, first, last);
        break;
    case 5:
        score_states(t, 5, 2, w, k, state, first, last);
        break;
    case 6:
        score_states(t, 6, 2, w, k, state, first, last);
        break;
    }
}

VEC_INLINE vec capped(vec s, float cap)
{
    const vec one = vec_all(1), two = vec_all(2), c = vec_all(cap);
    vec e = vec_exp(vec_mul(two, vec_div(s, c)));
    return vec_mul(c, vec_sub(one, vec_div(two, vec_add(e, one))));
}

// Bounds state i's scores; keys outside first..last (of the piece) become minus infinity. Leaves in scale by how much the
// running maximum grew, negated.
static void bound(const struct walk *w, int i, int first, int last)
{
    const struct attn_scratch *s = &w->s;
    float *p = s->p + i * KV_PIECE;
    const vec none = vec_all(-INFINITY);
    vec top = none;
    if (w->a->softcap != 0 || first > 0 || last < KV_PIECE) {
        for (int j = 0; j < KV_PIECE; j += VEC) {
            vec v = vec_load(p + j);
            if (w->a->softcap != 0)
                v = capped(v, w->a->softcap);
            vec_store(p + j, vec_inside(v, j, first, last, none));
        }
    }
    for (int j = 0; j < KV_PIECE; j += VEC)
        top = vec_max(vec_load(p + j), top);
    float m = vec_top(top);
    m = s->max[i] > m ? s->max[i] : m;
    s->scale[i] = s->max[i] - m;
    s->max[i] = m;
}

// State i's scores to weights, and the running sum. Keys outside first..last have weight 0, which changes no sum.
static void soften(const struct walk *w, int i, int first, int last)
{
    const struct attn_scratch *s = &w->s;
    float *p = s->p + i * KV_PIECE;
    vec m = vec_all(s->max[i]), sum[VEC_16];
    for (int j = 0; j < VEC_16; j++)
        sum[j] = vec_zero();
    for (int j = first / (4 * VEC) * 4; j * VEC < last; j += 4) {
        vec v[4];
        for (int c = 0; c < 4; c++)
            v[c] = vec_sub(vec_load(p + (j + c) * VEC), m);
        vec_exp_below4(v);
        for (int c = 0; c < 4; c++) {
            vec_store(p + (j + c) * VEC, v[c]);
            sum[(j + c) % VEC_16] = vec_add(sum[(j + c) % VEC_16], v[c]);
        }
    }
    s->sum[i] = fmaf(s->sum[i], s->scale[i], vec_tree16(sum));
}

// ---- values

// ns states x nv vectors of dimensions from d on, over the values first..last, after one multiplication by the scale.
VEC_INLINE void mix_tile(enum kv_type t, int ns, int nv, const struct walk *w, const struct piece *v, int state, int d,
                         int first, int last, bool ahead)
{
    const size_t size = size_of(t), passes = (size_t)((w->a->head_dim + nv * VEC - 1) / (nv * VEC)), pass = (size_t)(d / (nv * VEC));
    const int blocks = (w->a->head_dim + 31) / 32, pad = w->pad;
    const float *p = w->s.p + state * KV_PIECE, *scale = w->s.scale + state;
    const uint8_t *row = v->at + (size_t)first * v->step + (size_t)d * size;
    float *to = w->s.acc + state * pad + d;
    vec acc[TILE_STATES][8], scales[8];
    for (int c = 0; c < nv; c++) {
        scales[c] = vec_zero();
        for (int s = 0; s < ns; s++)
            acc[s][c] = vec_mul(vec_load(to + s * pad + c * VEC), vec_all(scale[s]));
    }
    for (int j = first, end; j < last; j = end) {
        end = j / 16 * 16 + 16 < last ? j / 16 * 16 + 16 : last;
        if (ahead)
            fetch(v, pass * (KV_PIECE / 16) + (size_t)j / 16, passes * (KV_PIECE / 16), ns);
        for (int i = j; i < end; i++, row += v->step) {
            for (int c = 0; c < nv && t == KV_Q8; c++)
                scales[c] = vec_all(v->scales[i * blocks + (d + c * VEC) / 32]);
            step_tile(t, ns, nv, acc, p + i, KV_PIECE, row, scales);
        }
    }
    for (int s = 0; s < ns; s++) {
        for (int c = 0; c < nv; c++)
            vec_store(to + s * pad + c * VEC, acc[s][c]);
    }
}

VEC_INLINE int mix_vectors(enum kv_type t, int ns, int nv, const struct walk *w, const struct piece *v, int state, int d,
                           int first, int last)
{
    for (; d + nv * VEC <= (w->a->head_dim + VEC - 1) / VEC * VEC; d += nv * VEC)
        mix_tile(t, ns, nv, w, v, state, d, first, last, v->next_bytes && state == first_state(w));
    return d;
}

VEC_INLINE void mix_states(enum kv_type t, int ns, int nv, const struct walk *w, const struct piece *v, int state, int first,
                           int last)
{
    int d = mix_vectors(t, ns, nv, w, v, state, 0, first, last);
    if (nv > 4)
        d = mix_vectors(t, ns, 4, w, v, state, d, first, last);
    if (nv > 2)
        d = mix_vectors(t, ns, 2, w, v, state, d, first, last);
    mix_vectors(t, ns, 1, w, v, state, d, first, last);
}

VEC_INLINE void mix_some(enum kv_type t, int n, const struct walk *w, const struct piece *v, int state, int first, int last)
{
    switch (n) {
    case 1:
        mix_states(t, 1, 8, w, v, state, first, last);
        break;
    case 2:
        mix_states(t, 2, 4, w, v, state, first, last);
        break;
    case 3:
        mix_states(t, 3, 4, w, v, state, first, last);
        break;
    case 4:
        mix_states(t, 4, VEC == 8 ? 2 : 4, w, v, state, first, last);
        break;
    case 5:
        mix_states(t, 5, VEC == 8 ? 2 : 4, w, v, state, first, last);
        break;
    case 6:
        mix_states(t, 6, VEC == 8 ? 2 : 4, w, v, state, first, last);
        break;
    }
}

#define TYPE(name, t)                                                                                                  \
    static void score_##name(int n, const struct walk *w, const struct piece *p, int state, int first, int last)       \
    {                                                                                                                  \
        score_some(t, n, w, p, state, first, last);                                                                    \
    }                                                                                                                  \
    static void mix_##name(int n, const struct walk *w, const struct piece *p, int state, int first, int last)         \
    {                                                                                                                  \
        mix_some(t, n, w, p, state, first, last);                                                                      \
    }
TYPE(f16, KV_F16)
TYPE(f32, KV_F32)
TYPE(q8, KV_Q8)
#undef TYPE

#endif
