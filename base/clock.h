// clock.h - monotonic time for durations, wall time for timestamps.
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)  // monotonic
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_s(void)  // monotonic
{
    return (double)clock_ns() * 1e-9;
}

static inline int64_t clock_unix_s(void)
{
    return (int64_t)time(NULL);
}
