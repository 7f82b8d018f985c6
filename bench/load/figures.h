// figures.h - measured values with the moment of each, and what is said of them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct figures {
    struct figures_value {
        int64_t at_ns;
        double value;
    } *values;
    size_t n, cap;
};

void figures_add(struct figures *f, int64_t at_ns, double value);
void figures_clear(struct figures *f);  // empty, memory kept
void figures_done(struct figures *f);
// {"n", "p50", "p90", "p99", "max"} in milliseconds of values in seconds, those from from_ns up to to_ns; sorts them.
void figures_json(struct figures *f, int64_t from_ns, int64_t to_ns, struct buf *out);
