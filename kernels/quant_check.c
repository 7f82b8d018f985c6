// quant_check.c - whether stored weights are finite: a NaN or an infinity in a checkpoint is damage, and one of them
// is enough to make every answer of a model wrong. Pure functions of any thread; the loader calls them on what it is
// about to pack, so they read a block's scales and leave the rest alone.
#include <math.h>
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

// Where a block keeps numbers that can be other than finite. Offsets are one more than they are, so that 0 is "none".
struct scales {
    uint8_t f16[2];
    uint8_t e8m0, e4m3;  // e4m3: how many, from the block's start
};

#define AT(offset) ((offset) + 1)

static const struct scales table[QUANT_COUNT] = {
    [QUANT_Q4_0] = {.f16 = {AT(0)}},
    [QUANT_Q4_1] = {.f16 = {AT(0), AT(2)}},
    [QUANT_Q5_0] = {.f16 = {AT(0)}},
    [QUANT_Q5_1] = {.f16 = {AT(0), AT(2)}},
    [QUANT_Q8_0] = {.f16 = {AT(0)}},
    [QUANT_Q8_1] = {.f16 = {AT(0)}},
    [QUANT_Q2_K] = {.f16 = {AT(80), AT(82)}},
    [QUANT_Q3_K] = {.f16 = {AT(108)}},
    [QUANT_Q4_K] = {.f16 = {AT(0), AT(2)}},
    [QUANT_Q5_K] = {.f16 = {AT(0), AT(2)}},
    [QUANT_Q6_K] = {.f16 = {AT(208)}},
    [QUANT_IQ1_S] = {.f16 = {AT(0)}},
    [QUANT_IQ2_XXS] = {.f16 = {AT(0)}},
    [QUANT_IQ2_XS] = {.f16 = {AT(0)}},
    [QUANT_IQ2_S] = {.f16 = {AT(0)}},
    [QUANT_IQ3_XXS] = {.f16 = {AT(0)}},
    [QUANT_IQ3_S] = {.f16 = {AT(0)}},
    [QUANT_IQ4_NL] = {.f16 = {AT(0)}},
    [QUANT_IQ4_XS] = {.f16 = {AT(0)}},
    [QUANT_Q1_0] = {.f16 = {AT(0)}},
    [QUANT_Q2_0] = {.f16 = {AT(0)}},
    [QUANT_TQ1_0] = {.f16 = {AT(52)}},
    [QUANT_TQ2_0] = {.f16 = {AT(64)}},
    [QUANT_MXFP4] = {.e8m0 = AT(0)},
    [QUANT_NVFP4] = {.e4m3 = 4},
};

enum { F16_EXP = 0x7C00 };

static const char *named(bool nan, bool minus)
{
    return nan ? "NaN" : minus ? "-Inf" : "Inf";
}

static const char *f16_value(uint16_t h)
{
    return named(h & 0x3FF, h >> 15);
}

// ---- floats: a quick look over a stretch, and a slow one where something is found

static bool any16(const uint8_t *p, size_t n, uint16_t exp)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        bad |= (uint16_t)-((h & exp) == exp);
    }
    return bad;
}

static bool any32(const uint8_t *p, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, p + 4 * i, 4);
        bad |= (uint32_t)-((u & 0x7F800000) == 0x7F800000);
    }
    return bad;
}

static bool floats(enum quant_type type, const uint8_t *p, size_t n, struct quant_flaw *ret)
{
    if (type == QUANT_F32 ? !any32(p, n) : !any16(p, n, type == QUANT_F16 ? F16_EXP : 0x7F80))
        return true;
    const struct quant *q = quant_get(type);
    for (size_t i = 0; i < n; i++) {
        float v;
        q->dequantize(p + i * (size_t)q->block_bytes, &v, 1);
        if (!isfinite(v)) {
            *ret = (struct quant_flaw){i, "number", named(isnan(v), v < 0)};
            return false;
        }
    }
    return true;
}

// ---- blocks

static bool halves(size_t offset, const uint8_t *p, size_t blocks, const struct quant *q, struct quant_flaw *ret)
{
    for (size_t i = 0; i < blocks; i++) {
        uint16_t h = get_u16(p + i * (size_t)q->block_bytes + offset);
        if ((h & F16_EXP) == F16_EXP) {
            *ret = (struct quant_flaw){i * (size_t)q->block, "scale", f16_value(h)};
            return false;
        }
    }
    return true;
}

// IQ1_M's scale is in the top quarters of four words.
static bool quarters(const uint8_t *p, size_t blocks, const struct quant *q, struct quant_flaw *ret)
{
    for (size_t i = 0; i < blocks; i++, p += q->block_bytes) {
        uint16_t h = (uint16_t)(p[49] >> 4 | (p[51] & 0xF0) | (p[53] & 0xF0) << 4 | (p[55] & 0xF0) << 8);
        if ((h & F16_EXP) == F16_EXP) {
            *ret = (struct quant_flaw){i * (size_t)q->block, "scale", f16_value(h)};
            return false;
        }
    }
    return true;
}

// Both formats have a NaN and no infinity.
static bool bytes(const struct scales *s, const uint8_t *p, size_t blocks, const struct quant *q,
                  struct quant_flaw *ret)
{
    for (size_t i = 0; i < blocks; i++, p += q->block_bytes) {
        bool bad = s->e8m0 && p[s->e8m0 - 1] == 0xFF;
        for (int k = 0; k < s->e4m3; k++)
            bad = bad || (p[k] & 0x7F) == 0x7F;
        if (bad) {
            *ret = (struct quant_flaw){i * (size_t)q->block, "scale", "NaN"};
            return false;
        }
    }
    return true;
}

// A type that the table says nothing about: what its numbers come out as.
static bool values(const struct quant *q, const uint8_t *p, size_t n, struct quant_flaw *ret)
{
    float v[512];
    size_t step = sizeof v / sizeof *v / (size_t)q->block * (size_t)q->block;
    for (size_t at = 0; at < n; at += step, p += step / (size_t)q->block * (size_t)q->block_bytes) {
        size_t piece = n - at < step ? n - at : step;
        q->dequantize(p, v, piece);
        for (size_t i = 0; i < piece; i++) {
            if (isfinite(v[i]))
                continue;
            size_t first = at + i / (size_t)q->block * (size_t)q->block;
            *ret = (struct quant_flaw){first, "scale", named(isnan(v[i]), v[i] < 0)};
            return false;
        }
    }
    return true;
}

bool quant_check(enum quant_type type, const void *src, size_t n, struct quant_flaw *ret_flaw)
{
    const struct quant *q = quant_get(type);
    const struct scales *s = &table[type];
    struct quant_flaw a, b;
    size_t blocks = n / (size_t)q->block;
    if (type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16)
        return floats(type, src, n, ret_flaw);
    if (type == QUANT_IQ1_M)
        return quarters(src, blocks, q, ret_flaw);
    if (s->e8m0 || s->e4m3)
        return bytes(s, src, blocks, q, ret_flaw);
    if (!s->f16[0])
        return values(q, src, n, ret_flaw);
    bool first = halves(s->f16[0] - 1u, src, blocks, q, &a);
    bool second = !s->f16[1] || halves(s->f16[1] - 1u, src, blocks, q, &b);
    if (!first || !second)
        *ret_flaw = first || (!second && b.at < a.at) ? b : a;
    return first && second;
}
