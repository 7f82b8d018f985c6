// metrics.h - the engine's numbers of one model (metrics.def). They are there from engine_add_model to engine_close, also
// while the model is not loaded. Any thread reads; who adds is said by no lock, so any may.
//
//     metrics_count(&m->prompt_tokens, n);
//     hist_add(&m->ttft_s, seconds);
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/hist.h"

struct metrics {
#define COUNT(name, help) _Atomic uint64_t name;
#define GAUGE(name, help) _Atomic int64_t name;
#define HIST(name, bounds, help) struct hist name;
#include "engine/metrics.def"
#undef COUNT
#undef GAUGE
#undef HIST
};

void metrics_init(struct metrics *m);

static inline void metrics_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void metrics_set(_Atomic int64_t *gauge, int64_t value)
{
    atomic_store_explicit(gauge, value, memory_order_relaxed);
}
