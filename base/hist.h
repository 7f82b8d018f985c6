// hist.h - how often a quantity fell where, and its sum, as Prometheus keeps it. Any thread adds, any thread reads.
//
//     static const double times_le[] = {.01, .1, 1};
//     static const struct hist_bounds times = {3, times_le};
//     struct hist h = {0};                          // counts nothing until it has bounds
//     hist_init(&h, &times);
//     hist_add(&h, 0.02);
//
// A reader sees each number whole, but not all of them of one moment.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { HIST_BUCKETS = 32 };

struct hist_bounds {
    int n;             // at most HIST_BUCKETS
    const double *le;  // ascending upper bounds
};

struct hist {
    const struct hist_bounds *bounds;
    _Atomic uint64_t counts[HIST_BUCKETS + 1];  // of each bucket alone; the last one is beyond all bounds
    _Atomic int64_t sum_millionths;
};

static inline void hist_init(struct hist *h, const struct hist_bounds *b)
{
    h->bounds = b;
}

static inline void hist_add(struct hist *h, double x)
{
    int i = 0;
    if (!h->bounds)
        return;
    while (i < h->bounds->n && !(x <= h->bounds->le[i]))
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_millionths, (int64_t)(x * 1e6 + 0.5), memory_order_relaxed);
}
