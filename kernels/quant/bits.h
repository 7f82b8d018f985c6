// bits.h - reading little-endian fields out of blocks that need no alignment.
#pragma once

#include <stdint.h>

#include "kernels/quant.h"

static inline uint16_t get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline float get_f16(const uint8_t *p)
{
    return quant_f16_to_f32(get_u16(p));
}

// The float with these bits.
static inline float float_of_bits(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {bits};
    return v.f;
}
