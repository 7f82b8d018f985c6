// net.h - a network as a list of operations over planned memory: what layers.c fills and net_step runs.
//
//     struct net *n = net_new(ops, owner, images, lanes);
//     size_t x = net_take(n, floats);              // a place in the net's memory; offsets count floats
//     *net_add(n, run, units, cost) = ...          // operations in order; layers.h makes them
//     net_drop(n, x);                              // after the last operation that uses it: later ones may take it
//     net_allocate(n, &e);                         // now all is known
//
// An operation is `units` independent pieces of work, each short (milliseconds), run by whichever lane is free; all of them
// end before the next operation begins. Memory is planned while operations are added: a place that was dropped is given
// to later ones, so the net holds what the widest moment needs and not more.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/image/networks.h"
#include "kernels/conv.h"
#include "kernels/cpu.h"

struct net_op;
typedef void net_run(const struct net *n, const struct net_op *op, int unit, float *scratch);

// Which fields mean what is said by the function of layers.c that adds the operation.
struct net_op {
    net_run *run;
    int units;
    double cost;             // floating-point operations of a unit, about
    size_t x, y, add, aux;   // places
    bool has_add, flag;
    int rows, cols, ldx, ldy, per_unit, split;
    const void *w;
    const float *v, *u;
    union {
        struct {
            size_t bias_at, frame, v;
            const float *bias;
            int stride, y0, y1, h, wd, frame_rows, frame_width, first, tiles;
            size_t plane;
        } conv;
        struct {
            int h, w, c, to_h, to_w, y0, stride, rows, width;
            bool affine, silu;
        } frame;
        struct {
            size_t k, v;
            int keys, heads, head_dim, ldk;
            bool causal;
        } attn;
        struct {
            int groups, chunks, chunk, pixels;
            float eps;
        } norm;
        struct {
            float scale, shift;
        } number;
    };
};

struct net_place {
    size_t at, size;
    bool used;
};

struct net {
    const struct cpu_ops *ops;
    const void *owner;          // the network
    int images, lanes;
    double part;                // a lane looks at the clock after about this many floating-point operations
    // the plan
    struct net_op *list;
    int count, cap;
    struct net_place *places;   // [0, top) without gaps, ascending
    int nplaces, places_cap;
    size_t top, scratch;        // floats; scratch is one lane's
    float *memory;
    size_t bytes;
    // how far a forward pass has come
    int op, unit;
    unsigned turn;
    atomic_int next[2];         // of the units of a part; parts take turns, so that one is reset while the other is used
    // what it runs on
    const float *x, *states;
    const int32_t *ids;
    float timestep, *out;
};

struct net *net_new(const struct cpu_ops *ops, const void *owner, int images, int lanes);
size_t net_take(struct net *n, size_t floats);
void net_drop(struct net *n, size_t at);
struct net_op *net_add(struct net *n, net_run *run, int units, double cost);
void net_want_scratch(struct net *n, size_t floats);
size_t net_planned(const struct net *n);  // bytes of the plan
MUST_CHECK err_code net_allocate(struct net *n, err *e);
void net_restart(struct net *n);
