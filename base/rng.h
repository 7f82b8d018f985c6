// rng.h - random numbers as a function, not a stream: the same (seed, a, b) always gives the same number, so a request
// that was paused and replayed, or ran beside others, draws what it would have drawn alone.
#pragma once

#include <stdint.h>

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
static inline uint64_t rng_mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline uint64_t rng_u64(uint64_t seed, uint64_t a, uint64_t b)
{
    return rng_mix(rng_mix(rng_mix(seed) ^ a) ^ b);
}

// Uniform in [0, 1), 53 bits.
static inline double rng_unit(uint64_t seed, uint64_t a, uint64_t b)
{
    return (double)(rng_u64(seed, a, b) >> 11) * 0x1p-53;
}

// From the operating system; for seeds, ids and hash keys.
uint64_t rng_os(void);
