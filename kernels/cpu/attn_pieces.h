// attn_pieces.h - attention with vectors (vec.h); equal to ref.c's bit for bit. Any lane; memory is the caller's scratch.
// This file has what tiles (attn_tiles.h) and the walk over keys (attn_walk.h) share; the file of each instruction set
// includes the last, once.
//
// Up to ATTN_STATES (row, head) states of one KV head walk the keys together. Scores are tiles of states x keys: a lane is
// a key, as keys are stored interleaved, and a score one chain over d. Values are tiles of states x dimensions: a lane is
// a dimension, one chain over keys. Both read f16 in place and convert it in registers; q8 too when one tile holds all
// states, else it is widened to f32 in scratch once for all. The first tile of a piece asks for the next piece's memory,
// a line or two at every step, so that memory is read while arithmetic runs. Values that a row must not see are never
// read for it.
#pragma once

#if defined(__AVX2__) || defined(__aarch64__)  // nothing where the file is not compiled for vectors

#include <math.h>
#include <string.h>

#include "kernels/cpu/attn.h"
#include "kernels/cpu/vec.h"

enum { TILE_STATES = 6 };

struct walk;
struct piece;

// Scores of n states, at most TILE_STATES, from `state` on with keys first..last, or their sums over values first..last.
typedef void product_fn(int n, const struct walk *w, const struct piece *p, int state, int first, int last);

// Keys or values of a piece as they are read.
struct piece {
    product_fn *product;
    const uint8_t *at;
    size_t step;          // bytes between dimensions of keys, between values
    const float *scales;  // q8 read in place: of keys [blocks][KV_PIECE], of values [KV_PIECE][blocks]
    const uint8_t *next;  // memory to ask for meanwhile
    size_t next_bytes;    // 0: none
};

// What some rows walk with.
struct walk {
    const struct attn_args *a;
    struct attn_scratch s;
    int pad;
    int pos, rows;  // position of the first row
    int heads;      // more than one only with one row: states are then [head][group], else [row][group]
    int head;       // the one at hand
    int piece;      // position of its first key
    bool whole;     // every row sees all of it
};

VEC_INLINE size_t size_of(enum kv_type t)
{
    return t == KV_F32 ? 4 : t == KV_F16 ? 2 : 1;
}

// Vector j of the numbers at p; scale is that of q8.
VEC_INLINE vec load_numbers(enum kv_type t, const uint8_t *p, int j, vec scale)
{
    p += (size_t)(j * VEC) * size_of(t);
    return t == KV_F32 ? vec_load((const float *)(const void *)p) : t == KV_F16 ? vec_f16(p) : vec_mul(scale, vec_i8(p));
}

static const uint8_t *head_at(const struct walk *w, const uint8_t *p)
{
    return p + (size_t)w->head * w->a->head_step;
}

// Asks for part i of n of a piece's next memory. One state reads whole lines in order: then one line in four is enough, as
// the hardware fetches those between, and faster than when it is asked for all. More states take several passes over parts
// of lines, which it does not follow.
VEC_INLINE void fetch(const struct piece *p, size_t i, size_t n, int ns)
{
    size_t step = ns == 1 ? 256 : 64;
    for (size_t at = p->next_bytes * i / n & ~(step - 1); at < p->next_bytes * (i + 1) / n; at += step)
        __builtin_prefetch(p->next + at, 0, 2);
}

// ---- q8

static void load_scales(float *to, const uint8_t *from, int n)
{
    int i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(to + i, vec_f16(from + 2 * i));
    for (; i < n; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, 2);
        to[i] = vec_of_f16(h);
    }
}

// The piece's keys as [head_dim][KV_PIECE] floats.
static void widen_keys(const struct attn_args *a, float *to, const uint8_t *from)
{
    int blocks = (a->head_dim + 31) / 32;
    const uint8_t *codes = from + 2 * blocks * KV_PIECE;
    for (int b = 0; b < blocks; b++) {
        vec scale[KV_PIECE / VEC];
        for (int j = 0; j < KV_PIECE / VEC; j++)
            scale[j] = vec_f16(from + 2 * (b * KV_PIECE + j * VEC));
        for (int d = 32 * b; d < a->head_dim && d < 32 * b + 32; d++) {
            for (int j = 0; j < KV_PIECE / VEC; j++)
                vec_store(to + d * KV_PIECE + j * VEC, vec_mul(scale[j], vec_i8(codes + d * KV_PIECE + j * VEC)));
        }
    }
}

// ---- values that are no whole vectors, or q8 for many states

static void widen_q8(float *to, const uint8_t *from, int n)
{
    const uint8_t *q = from + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    for (int i = 0; i < n; i += VEC) {
        float scale;
        load_scales(&scale, from + i / 32 * 2, 1);
        if (n - i >= VEC)
            vec_store(to + i, vec_mul(vec_all(scale), vec_i8(q + i)));
        for (int j = i; j < n && n - i < VEC; j++)
            to[j] = scale * (float)(int8_t)q[j];
    }
}

// Values first..last of the piece into to [KV_PIECE][pad]; the padding is zero.
static void widen_values(const struct walk *w, float *to, const uint8_t *from, int first, int last)
{
    const struct attn_args *a = w->a;
    size_t step = kv_row_bytes(a->kv, a->head_dim);
    from += (size_t)first * step;
    to += first * w->pad;
    for (int j = first; j < last; j++, from += step, to += w->pad) {
        if (a->kv == KV_F16)
            load_scales(to, from, a->head_dim);
        else if (a->kv == KV_Q8)
            widen_q8(to, from, a->head_dim);
        else
            memcpy(to, from, sizeof(float) * (size_t)a->head_dim);
        memset(to + a->head_dim, 0, sizeof(float) * (size_t)(w->pad - a->head_dim));
    }
}

// One step of a tile: acc[s][j] = fma(y[s], x[j], acc[s][j]) with y[s] = y[s * ld]. What is more numerous of x and y
// passes through one register while the other is held, so that 12 sums fit 16 registers.
VEC_INLINE void step_tile(enum kv_type t, int ns, int nx, vec acc[TILE_STATES][8], const float *y, int ld, const uint8_t *x,
                          const vec *scale)
{
    vec held[8];
    if (nx <= ns) {
        for (int j = 0; j < nx; j++)
            held[j] = load_numbers(t, x, j, scale[j]);
        for (int s = 0; s < ns; s++) {
            vec v = vec_all(y[s * ld]);
            for (int j = 0; j < nx; j++)
                acc[s][j] = vec_fma(v, held[j], acc[s][j]);
        }
    } else {
        for (int s = 0; s < ns; s++)
            held[s] = vec_all(y[s * ld]);
        for (int j = 0; j < nx; j++) {
            vec v = load_numbers(t, x, j, scale[j]);
            for (int s = 0; s < ns; s++)
                acc[s][j] = vec_fma(held[s], v, acc[s][j]);
        }
    }
}

static inline int first_state(const struct walk *w)  // of the head at hand
{
    return w->head * w->a->group;
}

#endif
