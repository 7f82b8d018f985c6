// blocks.c - see blocks.h. Pure functions of any thread.
#include "tests/helpers/blocks.h"

#include <string.h>

#include "base/rng.h"

enum field { NONE, HALF, QUARTERS, POWER, E4M3, SINGLE, BRAIN };

struct rule {
    bool known;
    struct {
        enum field field;
        int at, exponent;
    } scales[2];
};

static const struct rule rules[QUANT_COUNT] = {
#define BLOCKS(name, field, at, exponent, field2, at2, exponent2) \
    [QUANT_##name] = {true, {{field, at, exponent}, {field2, at2, exponent2}}},
#include "tests/helpers/blocks.def"
#undef BLOCKS
};

bool blocks_known(enum quant_type type)
{
    return rules[type].known;
}

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// A scale's exponent becomes `exponent`; its sign and fraction stay as they are, or become + and 0.
static void set_scale(uint8_t *p, enum field field, int exponent, bool exact)
{
    uint16_t half = (uint16_t)(clamp(exponent + 15, 1, 30) << 10);
    if (field == HALF) {
        p[0] = exact ? 0 : p[0];
        p[1] = (uint8_t)(half >> 8 | (exact ? 0 : p[1] & 0x83));
    } else if (field == QUARTERS) {
        for (int i = 0; i < 4; i++) {
            int kept = exact ? 0 : 0x83ff >> 4 * i & 15;  // of the quarter's bits
            p[2 * i + 1] = (uint8_t)((p[2 * i + 1] & (0x0f | kept << 4)) | (half >> 4 * i & 15) << 4);
        }
    } else if (field == POWER) {
        p[0] = (uint8_t)(127 + exponent + (exact ? 0 : (p[0] & 1)));
    } else if (field == E4M3) {
        for (int i = 0; i < 4; i++)
            p[i] = (uint8_t)(clamp(exponent + 7, 0, 14) << 3 | (exact ? 0 : p[i] & 7));
    } else if (field == SINGLE || field == BRAIN) {
        uint8_t *top = p + (field == SINGLE ? 2 : 0);
        int bits = (top[1] & 0x80) << 8 | (127 + exponent) << 7 | (exact ? 0 : top[0] & 0x7f);
        top[0] = (uint8_t)bits;
        top[1] = (uint8_t)(bits >> 8);
        if (exact && field == SINGLE)
            p[0] = p[1] = 0;
    }
}

static void random_bytes(uint8_t *dst, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = rng_u64(1, stream, i / 8);
        for (size_t j = 0; j < 8 && i + j < n; j++)
            dst[i + j] = (uint8_t)(word >> 8 * j);
    }
}

// A scale that is infinite or NaN loses a bit of its exponent; the other kinds have none that files may not hold.
static void make_finite(uint8_t *p, enum field field)
{
    if (field == HALF && (p[1] & 0x7c) == 0x7c)
        p[1] &= 0xbf;
    if (field == QUARTERS && (p[7] & 0x70) == 0x70 && (p[5] & 0xc0) == 0xc0)
        p[7] &= 0xbf;
    uint8_t *top = p + (field == SINGLE ? 2 : 0);
    if ((field == SINGLE || field == BRAIN) && (top[1] & 0x7f) == 0x7f && top[0] & 0x80)
        top[1] &= 0xbf;
}

// exact: scales are 2^0, whatever numbers they give; else 2^exponent times the type's own.
static void set_scales(enum quant_type type, uint8_t *dst, size_t n, int exponent, bool exact)
{
    const struct rule *r = &rules[type];
    size_t size = (size_t)quant_get(type)->block_bytes;
    for (size_t b = 0; b < n; b++, dst += size) {
        for (size_t i = 0; i < size && !r->known; i++)
            dst[i] &= 0xbf;
        for (int i = 0; i < 2 && r->known; i++)
            set_scale(dst + r->scales[i].at, r->scales[i].field, exact ? 0 : exponent + r->scales[i].exponent, exact);
    }
}

void blocks_random(enum quant_type type, uint8_t *dst, size_t n, uint64_t stream, int exponent)
{
    random_bytes(dst, n * (size_t)quant_get(type)->block_bytes, stream);
    set_scales(type, dst, n, exponent, false);
}

void blocks_extreme(enum quant_type type, uint8_t *dst, size_t n, enum blocks_pattern pattern)
{
    static const uint8_t bytes[BLOCKS_PATTERNS] = {[BLOCKS_ONES] = 0xff, [BLOCKS_TOP] = 0x80, [BLOCKS_REST] = 0x7f};
    size_t size = n * (size_t)quant_get(type)->block_bytes;
    memset(dst, bytes[pattern], size);
    for (size_t i = 0; i < size && pattern == BLOCKS_MIXED; i++)
        dst[i] = i % 2 ? 0xff : 0;
    if (pattern == BLOCKS_CODES)
        random_bytes(dst, size, 99);
    set_scales(type, dst, n, 0, true);
}

void blocks_any(enum quant_type type, uint8_t *dst, size_t n, uint64_t stream)
{
    size_t size = (size_t)quant_get(type)->block_bytes;
    random_bytes(dst, n * size, stream);
    for (size_t b = 0; b < n && rules[type].known; b++)
        for (int i = 0; i < 2; i++)
            make_finite(dst + b * size + rules[type].scales[i].at, rules[type].scales[i].field);
    if (!rules[type].known)
        set_scales(type, dst, n, 0, false);
}
