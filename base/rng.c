#include "base/rng.h"

#include <sys/random.h>

#include "base/clock.h"

uint64_t rng_os(void)
{
    uint64_t v;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        v = rng_mix((uint64_t)clock_ns() ^ (uint64_t)(uintptr_t)&v);
    return v;
}
