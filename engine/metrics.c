// metrics.c - the bounds of the engine's histograms: those of vLLM where dashboards expect them.
#include "engine/metrics.h"

#define BOUNDS(name, ...)                                   \
    static const double name##_le[] = {__VA_ARGS__};        \
    static const struct hist_bounds name = {(int)(sizeof name##_le / sizeof *name##_le), name##_le}

BOUNDS(latency, .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560);
BOUNDS(gap, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80);
BOUNDS(duration, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680);
BOUNDS(size, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000);
BOUNDS(choices, 1, 2, 5, 10, 20);

void metrics_init(struct metrics *m)
{
#define COUNT(name, help)
#define GAUGE(name, help)
#define HIST(name, bounds, help) hist_init(&m->name, &bounds);
#include "engine/metrics.def"
#undef COUNT
#undef GAUGE
#undef HIST
}
