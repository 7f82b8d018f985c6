// figures.c - see the header.
#include "bench/load/figures.h"

#include <stdlib.h>

#include "base/mem.h"

void figures_add(struct figures *f, int64_t at_ns, double value)
{
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 1024;
        f->values = mem_resize(f->values, f->cap * sizeof *f->values);
    }
    f->values[f->n++] = (struct figures_value){at_ns, value};
}

void figures_clear(struct figures *f)
{
    f->n = 0;
}

void figures_done(struct figures *f)
{
    free(f->values);
    *f = (struct figures){0};
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct figures_value *)a)->value, y = ((const struct figures_value *)b)->value;
    return (x > y) - (x < y);
}

// The smallest value that a share p of all does not exceed (nearest rank).
static double percentile(const double *sorted, size_t n, double p)
{
    size_t rank = (size_t)(p * (double)n + 0.999999);
    return sorted[rank > 0 ? rank - 1 : 0];
}

void figures_json(struct figures *f, int64_t from_ns, int64_t to_ns, struct buf *out)
{
    if (f->n)
        qsort(f->values, f->n, sizeof *f->values, by_value);
    double *v = mem_new((f->n + 1) * sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (f->values[i].at_ns >= from_ns && f->values[i].at_ns <= to_ns)
            v[n++] = f->values[i].value * 1e3;
    if (n)
        buf_printf(out, "{\"n\": %zu, \"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"max\": %.2f}", n, percentile(v, n, .5),
                   percentile(v, n, .9), percentile(v, n, .99), v[n - 1]);
    else
        buf_add_str(out, "null");
    free(v);
}
