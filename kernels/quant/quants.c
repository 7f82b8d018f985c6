// quants.c - the registry of storage types, and conversion to and from half precision. Pure functions of any thread.

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "kernels/quant.h"
#include "kernels/quant/bits.h"

#define QUANT(file, name, pack) extern const struct quant quant_##file;
#include "kernels/quant/quants.def"
#undef QUANT

static const struct quant *const records[QUANT_COUNT] = {
#define QUANT(file, name, pack) [QUANT_##name] = &quant_##file,
#include "kernels/quant/quants.def"
#undef QUANT
};

const struct quant *quant_get(enum quant_type type)
{
    return records[type];
}

bool quant_from_ggml(uint32_t id, enum quant_type *ret_type)
{
    for (int i = 0; i < QUANT_COUNT; i++)
        if (records[i]->ggml_id >= 0 && (uint32_t)records[i]->ggml_id == id) {
            *ret_type = (enum quant_type)i;
            return true;
        }
    return false;
}

bool quant_from_name(const char *name, enum quant_type *ret_type)
{
    for (int i = 0; i < QUANT_COUNT; i++)
        if (strcasecmp(records[i]->name, name) == 0) {
            *ret_type = (enum quant_type)i;
            return true;
        }
    return false;
}

bool quant_bytes(enum quant_type type, size_t rows, size_t cols, size_t *ret_bytes)
{
    const struct quant *q = records[type];
    size_t row;
    if (cols % (size_t)q->block || !size_mul(cols / (size_t)q->block, (size_t)q->block_bytes, &row))
        return false;
    return size_mul(row, rows, ret_bytes);
}

// Signalling NaNs come out quiet, as the processors' own conversions do.
float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3FF;
    if (exp == 31)
        return float_of_bits(sign | 0x7F800000 | man << 13 | (man ? 0x400000u : 0));
    if (exp)
        return float_of_bits(sign | (exp + 112) << 23 | man << 13);
    float v = (float)man * 0x1p-24f;  // subnormal or zero: exact
    return sign ? -v : v;
}

uint16_t quant_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x3FF));
    if (u >= 0x477FF000)  // 65520, half way between the largest half and the next power of two
        return sign | 0x7C00;
    if (u < 0x33000001)  // at most half of the smallest subnormal: the tie goes to the even zero
        return sign;
    // The 24-bit significand loses 13 bits, more below 2^-14 where halves have a fixed step.
    uint32_t exp = u >> 23, man = exp < 113 ? (u & 0x7FFFFF) | 0x800000 : u - (112u << 23);
    uint32_t drop = exp < 113 ? 126 - exp : 13;
    uint32_t kept = man >> drop, rest = man & ((1u << drop) - 1), half = 1u << (drop - 1);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1)))));
}
