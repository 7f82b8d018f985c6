// attn_walk.h - how rows walk the keys, piece by piece and segment by segment: see attn_pieces.h.
#pragma once

#if defined(__AVX2__) || defined(__aarch64__)  // nothing where the file is not compiled for vectors

#include "kernels/cpu/attn_tiles.h"
#include "kernels/cpu/ref.h"

// ---- pieces

static int within(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static int pos_of(const struct walk *w, int state)
{
    return w->heads > 1 ? w->pos : w->pos + state / w->a->group;
}

// What a state sees of the piece.
static int first_of(const struct walk *w, int state)
{
    return w->whole ? 0 : within(attn_first_key(w->a, pos_of(w, state)) - w->piece, 0, KV_PIECE);
}

static int last_of(const struct walk *w, int state)
{
    return w->whole ? KV_PIECE : within(pos_of(w, state) + 1 - w->piece, 0, KV_PIECE);
}

// The number of states of the tile that starts at `state`: as even as possible.
static int tile_of(int state, int end)
{
    int left = end - state, tiles = (left + TILE_STATES - 1) / TILE_STATES;
    return (left + tiles - 1) / tiles;
}

static void score_all(const struct walk *w, const struct piece *k, int begin, int end)
{
    for (int i = begin, n; i < end; i += n) {
        n = tile_of(i, end);
        k->product(n, w, k, i, first_of(w, i), last_of(w, i + n - 1));
    }
}

// Values first..last of one state whose neighbours do not see them.
static void mix_alone(const struct walk *w, const struct piece *v, int state, int first, int last)
{
    if (first >= last)
        return;
    v->product(1, w, v, state, first, last);
    w->s.scale[state] = 1;
}

static void mix_all(const struct walk *w, const struct piece *v, int begin, int end)
{
    for (int i = begin, n; i < end; i += n) {
        n = tile_of(i, end);
        int first = first_of(w, i + n - 1), last = last_of(w, i);  // what all of them see
        for (int s = i; s < i + n && !w->whole; s++)
            mix_alone(w, v, s, first_of(w, s), first < last_of(w, s) ? first : last_of(w, s));
        if (first < last)
            v->product(n, w, v, i, first, last);
        for (int s = i; s < i + n && !w->whole; s++) {
            if (first < last)
                w->s.scale[s] = 1;
            mix_alone(w, v, s, first < last ? last : first > first_of(w, s) ? first : first_of(w, s), last_of(w, s));
        }
    }
}

static struct piece keys_of(const struct walk *w, int states)
{
    const struct attn_args *a = w->a;
    const uint8_t *at = head_at(w, attn_piece(a, a->k_off, w->piece));
    int blocks = (a->head_dim + 31) / 32;
    if (a->kv != KV_Q8)
        return (struct piece){a->kv == KV_F16 ? score_f16 : score_f32, at, KV_PIECE * size_of(a->kv), w->s.k, NULL, 0};
    if (states > TILE_STATES) {
        widen_keys(a, w->s.k, at);
        return (struct piece){score_f32, (const uint8_t *)w->s.k, KV_PIECE * sizeof(float), w->s.k, NULL, 0};
    }
    load_scales(w->s.k, at, blocks * KV_PIECE);
    return (struct piece){score_q8, at + 2 * blocks * KV_PIECE, KV_PIECE, w->s.k, NULL, 0};
}

static struct piece values_of(const struct walk *w, int states, int first, int last)
{
    const struct attn_args *a = w->a;
    const uint8_t *at = head_at(w, attn_piece(a, a->v_off, w->piece));
    size_t step = kv_row_bytes(a->kv, a->head_dim), codes = (size_t)(a->head_dim + 3) & ~(size_t)3;
    int blocks = (a->head_dim + 31) / 32;
    if (a->head_dim % VEC || (a->kv == KV_Q8 && states > TILE_STATES)) {
        widen_values(w, w->s.v, at, first, last);
        return (struct piece){mix_f32, (const uint8_t *)w->s.v, sizeof(float) * (size_t)w->pad, w->s.v, NULL, 0};
    }
    if (a->kv != KV_Q8)
        return (struct piece){a->kv == KV_F16 ? mix_f16 : mix_f32, at, step, w->s.v, NULL, 0};
    for (int j = first; j < last; j++)
        load_scales(w->s.v + j * blocks, at + (size_t)j * step, blocks);
    return (struct piece){mix_q8, at + step - codes, step, w->s.v, NULL, 0};
}

// What the walk reads after the piece at hand is asked for while it is worked on: the next head's, else the next page's.
static void look_ahead(const struct walk *w, struct piece *p, size_t off, bool more)
{
    bool last = w->head + 1 == w->heads;
    if (last && !more)
        return;
    p->next = last ? attn_piece(w->a, off, w->piece + KV_PIECE)
                   : head_at(w, attn_piece(w->a, off, w->piece)) + w->a->head_step;
    p->next_bytes = KV_PIECE * kv_row_bytes(w->a->kv, w->a->head_dim);
}

// All states of the head at hand with one piece of keys; more: another piece follows.
static void take_piece(struct walk *w, bool more)
{
    const struct attn_args *a = w->a;
    int begin = first_state(w), end = begin + w->rows * a->group;
    w->whole = w->pos + 1 >= w->piece + KV_PIECE && attn_first_key(a, w->pos + w->rows - 1) <= w->piece;
    while (begin < end && first_of(w, begin) >= last_of(w, begin))  // rows before the piece
        begin += a->group;
    while (end > begin && first_of(w, end - 1) >= last_of(w, end - 1))  // rows whose window is past it
        end -= a->group;
    if (begin == end)
        return;
    struct piece keys = keys_of(w, end - begin);
    look_ahead(w, &keys, a->k_off, more);
    score_all(w, &keys, begin, end);
    for (int i = begin; i < end; i++)
        bound(w, i, first_of(w, i), last_of(w, i));
    for (int i = begin / VEC * VEC; i < end; i += VEC)
        vec_store(w->s.scale + i, vec_exp_below(vec_load(w->s.scale + i)));
    for (int i = begin; i < end; i++)
        soften(w, i, first_of(w, i), last_of(w, i));
    struct piece values = values_of(w, end - begin, first_of(w, begin), last_of(w, end - 1));
    look_ahead(w, &values, a->v_off, more);
    mix_all(w, &values, begin, end);
}

// ---- segments and rows

// out = out * x + acc * y
static void join_rows(float *out, const float *acc, float x, float y, int n)
{
    int d = 0;
    for (; d + VEC <= n; d += VEC)
        vec_store(out + d, vec_fma(vec_load(out + d), vec_all(x), vec_mul(vec_load(acc + d), vec_all(y))));
    for (; d < n; d++)
        out[d] = fmaf(out[d], x, acc[d] * y);
}

static void join(float *out, float *top, float *sum, const float *acc, float max, float segment_sum, int head_dim)
{
    float m = *top > max ? *top : max, x = ref_exp(*top - m), y = ref_exp(max - m);
    join_rows(out, acc, x, y, head_dim);
    *sum = fmaf(*sum, x, segment_sum * y);
    *top = m;
}

static void divide(float *out, float sum, int n)
{
    float inverse = 1 / sum;
    int d = 0;
    for (; d + VEC <= n; d += VEC)
        vec_store(out + d, vec_mul(vec_load(out + d), vec_all(inverse)));
    for (; d < n; d++)
        out[d] *= inverse;
}

static void attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    float top = parts[head_dim], sum = parts[head_dim + 1];
    memcpy(out, parts, sizeof(float) * (size_t)head_dim);
    for (int i = 1; i < n; i++) {
        const float *p = parts + (size_t)i * (size_t)ld;
        join(out, &top, &sum, p, p[head_dim], p[head_dim + 1], head_dim);
    }
    divide(out, sum, head_dim);
}

static int states_of(const struct walk *w)
{
    return w->rows * w->heads * w->a->group;
}

// Where a state's query or result lies: heads follow each other.
static size_t place_of(const struct walk *w, int state, int ld)
{
    int width = w->heads > 1 ? w->heads * w->a->group : w->a->group, row = w->pos - w->a->pos0 + state / width;
    return (size_t)row * (size_t)ld + (size_t)(state % width) * (size_t)w->a->head_dim;
}

static void start(const struct walk *w)
{
    vec scale = vec_all(w->a->scale);
    int dim = w->a->head_dim;
    for (int i = 0; i < states_of(w); i++) {
        const float *q = w->a->q + place_of(w, i, w->a->ldq);
        float *to = w->s.q + i * w->pad;
        int d = 0;
        for (; d + VEC <= dim; d += VEC)
            vec_store(to + d, vec_mul(vec_load(q + d), scale));
        for (; d < dim; d++)
            to[d] = q[d] * w->a->scale;
    }
}

static void start_segment(const struct walk *w)
{
    int n = states_of(w);
    memset(w->s.acc, 0, sizeof(float) * (size_t)(n * w->pad));
    for (int i = 0; i < n; i++) {
        w->s.max[i] = -INFINITY;
        w->s.sum[i] = 0;
    }
}

static float *out_of(const struct walk *w, int state)
{
    return w->a->out + place_of(w, state, w->a->ldo);
}

static void end_segment(const struct walk *w, int seg)
{
    const struct attn_scratch *s = &w->s;
    int dim = w->a->head_dim;
    for (int i = 0; i < states_of(w); i++) {
        int pos = pos_of(w, i), first = attn_first_key(w->a, pos) / KV_SEGMENT;
        const float *acc = s->acc + i * w->pad;
        if (seg < first || seg > pos / KV_SEGMENT)
            continue;
        if (w->a->parts) {
            float *part = w->a->parts + (size_t)((seg - w->a->seg0) * w->a->group + i) * (size_t)(dim + 2);
            memcpy(part, acc, sizeof(float) * (size_t)dim);
            part[dim] = s->max[i];
            part[dim + 1] = s->sum[i];
        } else if (seg == first) {
            memcpy(out_of(w, i), acc, sizeof(float) * (size_t)dim);
            s->all_max[i] = s->max[i];
            s->all_sum[i] = s->sum[i];
        } else {
            join(out_of(w, i), s->all_max + i, s->all_sum + i, acc, s->max[i], s->sum[i], dim);
        }
    }
}

static void walk_rows(struct walk *w)
{
    const struct attn_args *a = w->a;
    int first = attn_first_key(a, w->pos), end = w->pos + w->rows;
    int seg = a->parts ? a->seg0 : first / KV_SEGMENT;
    if (a->parts && a->seg1 * KV_SEGMENT < end)
        end = a->seg1 * KV_SEGMENT;
    start(w);
    for (; seg * KV_SEGMENT < end; seg++) {
        int from = seg * KV_SEGMENT, to = from + KV_SEGMENT < end ? from + KV_SEGMENT : end;
        start_segment(w);
        for (w->piece = from > first ? from : first / KV_PIECE * KV_PIECE; w->piece < to; w->piece += KV_PIECE) {
            for (w->head = 0; w->head < w->heads; w->head++)
                take_piece(w, w->piece + KV_PIECE < end);
        }
        end_segment(w, seg);
    }
    for (int i = 0; i < states_of(w) && !a->parts; i++)
        divide(out_of(w, i), w->s.all_sum[i], a->head_dim);
}

static void attn(const struct attn_args *a)
{
    struct walk w = {.a = a, .s = attn_lay_out(a->scratch, a->group, a->head_dim), .pad = attn_pad(a->head_dim)};
    int most = attn_rows(a->group);
    w.heads = a->heads > 1 ? a->heads : 1;
    for (int row = 0; row < a->rows; row += most) {
        w.pos = a->pos0 + row;
        w.rows = a->rows - row < most ? a->rows - row : most;
        walk_rows(&w);
    }
}

#endif
