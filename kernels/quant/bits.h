// bits.h - reading little-endian fields out of blocks that need no alignment.
#pragma once

#include <stdint.h>
#include <string.h>

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

// A bf16 number as the bf16 path takes it (kernels/mat.h): below 2^-56 it is 0.
static inline uint16_t bf16_kept(uint16_t h)
{
    return (h & 0x7fff) < (127 - 56) << 7 ? 0 : h;
}

static inline float get_float(enum quant_number number, const uint8_t *p)
{
    if (number == QUANT_NUMBER_F32)
        return float_of_bits(get_u32(p));
    return number == QUANT_NUMBER_F16 ? get_f16(p) : float_of_bits((uint32_t)get_u16(p) << 16);
}

// Half of an E8M0 power of two, 2^(e-128); the two smallest are subnormal. The standard calls e = 255 NaN; in ggml it is
// 2^128, so here.
static inline float e8m0_half(uint8_t e)
{
    return float_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

// Half the value of an E4M3 number (bias 7) whose sign bit is ignored. (The NaN 0x7F counts as zero in ggml: that is the
// caller's.)
static inline float e4m3_half(uint8_t s)
{
    uint32_t exp = s >> 3 & 15, man = s & 7;
    return exp ? float_of_bits((exp + 119) << 23 | man << 20) : (float)man * 0x1p-10f;
}

// Four fields to four bytes, lowest first: of 1, 2 and 3 bits each.
static inline uint32_t spread_1bit(uint32_t four)
{
    return (four & 15) * 0x00204081u & 0x01010101u;
}

static inline uint32_t spread_2bit(uint32_t byte)
{
    byte = ((byte & 255) | byte << 12) & 0x000F000Fu;
    return (byte | byte << 6) & 0x03030303u;
}

static inline uint32_t spread_3bit(uint32_t twelve)
{
    twelve = (twelve & 0x3F) | (twelve & 0xFC0) << 10;
    return (twelve & 0x00070007u) | (twelve & 0x00380038u) << 5;
}

static inline void put_u32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}
