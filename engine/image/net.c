// net.c - planning the memory of a network's operations, and running them in slices on every lane. See net.h.
//
// Planning happens on the thread that starts a task's work; net_step on the lanes. A net has one owner and is not shared.
#include "engine/image/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/sched/work.h"

enum { ALIGN = 16 };  // floats

static const double part_cost = 1e9;  // some 10 ms

struct net *net_new(const struct cpu_ops *ops, const void *owner, int images, int lanes)
{
    struct net *n = mem_new(sizeof *n);
    n->ops = ops;
    n->owner = owner;
    n->images = images;
    n->lanes = lanes;
    n->part = part_cost;
    return n;
}

void net_free(struct net *n)
{
    if (!n)
        return;
    mem_free_pages(n->memory, n->bytes);
    free(n->list);
    free(n->places);
    free(n);
}

// ---- the plan

static void insert_place(struct net *n, int i, struct net_place p)
{
    if (n->nplaces == n->places_cap) {
        n->places_cap = n->places_cap ? 2 * n->places_cap : 64;
        n->places = mem_resize(n->places, (size_t)n->places_cap * sizeof *n->places);
    }
    memmove(n->places + i + 1, n->places + i, (size_t)(n->nplaces - i) * sizeof *n->places);
    n->places[i] = p;
    n->nplaces++;
}

static void remove_place(struct net *n, int i)
{
    n->nplaces--;
    memmove(n->places + i, n->places + i + 1, (size_t)(n->nplaces - i) * sizeof *n->places);
}

static int smallest_fit(const struct net *n, size_t size)
{
    int best = -1;
    for (int i = 0; i < n->nplaces; i++) {
        const struct net_place *p = &n->places[i];
        if (!p->used && p->size >= size && (best < 0 || p->size < n->places[best].size))
            best = i;
    }
    return best;
}

size_t net_take(struct net *n, size_t floats)
{
    size_t size = (floats + ALIGN) / ALIGN * ALIGN;  // never zero
    int i = smallest_fit(n, size);
    if (i < 0) {
        i = n->nplaces - 1;
        if (i < 0 || n->places[i].used)
            insert_place(n, ++i, (struct net_place){.at = n->top});
        n->places[i].size = size;
        n->top = n->places[i].at + size;
    }
    size_t at = n->places[i].at, left = n->places[i].size - size;
    n->places[i].used = true;
    n->places[i].size = size;
    if (left)
        insert_place(n, i + 1, (struct net_place){.at = at + size, .size = left});
    return at;
}

void net_drop(struct net *n, size_t at)
{
    int i = 0;
    while (n->places[i].at != at)
        i++;
    n->places[i].used = false;
    if (i + 1 < n->nplaces && !n->places[i + 1].used) {
        n->places[i].size += n->places[i + 1].size;
        remove_place(n, i + 1);
    }
    if (i > 0 && !n->places[i - 1].used) {
        n->places[i - 1].size += n->places[i].size;
        remove_place(n, i);
    }
}

struct net_op *net_add(struct net *n, net_run *run, int units, double cost)
{
    if (n->count == n->cap) {
        n->cap = n->cap ? 2 * n->cap : 256;
        n->list = mem_resize(n->list, (size_t)n->cap * sizeof *n->list);
    }
    struct net_op *op = &n->list[n->count++];
    *op = (struct net_op){.run = run, .units = units, .cost = cost};
    return op;
}

void net_want_scratch(struct net *n, size_t floats)
{
    floats = (floats + ALIGN) / ALIGN * ALIGN;
    n->scratch = floats > n->scratch ? floats : n->scratch;
}

size_t net_planned(const struct net *n)
{
    return (n->top + n->scratch * (size_t)n->lanes) * sizeof(float);
}

size_t net_bytes(const struct net *n)
{
    return net_planned(n) + (size_t)n->cap * sizeof *n->list;
}

err_code net_allocate(struct net *n, err *e)
{
    size_t bytes = net_planned(n);
    n->memory = mem_try_pages(bytes);
    if (!n->memory)
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes of a network's buffers", bytes);
    n->bytes = bytes;
    return ERR_OK;
}

// ---- running

void net_restart(struct net *n)
{
    n->op = n->unit = 0;
    n->turn = 0;
    atomic_store(&n->next[0], 0);
    atomic_store(&n->next[1], 0);
}

// Units of an operation that are run before anybody looks at the clock.
static int part_end(const struct net *n, const struct net_op *op, int unit)
{
    double part = n->part * n->lanes / op->cost;
    int units = part < n->lanes ? n->lanes : part > op->units ? op->units : (int)part;
    return op->units - unit < units ? op->units : unit + units;
}

bool net_step(struct net *n, struct lane *lane, struct work *work)
{
    float *scratch = n->memory + n->top + n->scratch * (size_t)lane->id;
    int op = n->op, unit = n->unit;
    unsigned turn = n->turn;
    double since = 0;
    lane_barrier(lane);  // all have read where to go on
    while (op < n->count) {
        const struct net_op *o = &n->list[op];
        int end = part_end(n, o, unit);
        atomic_int *next = &n->next[turn % 2];
        // Nobody uses the other counter now: everybody has passed the barrier after its part.
        if (lane->id == 0)
            atomic_store_explicit(&n->next[(turn + 1) % 2], 0, memory_order_relaxed);
        for (int u; (u = unit + atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < end;)
            o->run(n, o, u, scratch);
        since += o->cost * (end - unit);
        unit = end;
        turn++;
        if (unit == o->units) {
            op++;
            unit = 0;
        }
        if (lane->id == 0) {
            n->op = op;
            n->unit = unit;
            n->turn = turn;
        }
        lane_barrier(lane);
        if (work && since >= n->part * n->lanes && op < n->count) {
            since = 0;
            if (work_slice(work, lane))
                return false;
        }
    }
    return true;
}
