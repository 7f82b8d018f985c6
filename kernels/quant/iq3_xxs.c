// iq3_xxs.c - 256 numbers in groups of 4 from a book of 256; a 4-bit scale for each 32.
//
// Block, 98 bytes: f16 d; u8 index[64]; u32 rest[8], for 32 numbers each: four times 7 bits of signs (a pair of groups
// each), then the scale.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq_grids.h"

static const uint8_t levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 98) {
        float d = get_f16(b);
        for (int g = 0; g < 32; g++, dst += 8) {
            uint32_t rest = get_u32(b + 66 + 4 * (g / 4));
            float db = d * (0.5f + (float)(rest >> 28)) * 0.5f;
            uint8_t signs = iq_signs(rest >> 7 * (g & 3));
            const uint8_t *index = b + 2 + 2 * g;
            iq3_group(dst, iq3_xxs_grid[index[0]], levels, signs, db);
            iq3_group(dst + 4, iq3_xxs_grid[index[1]], levels, signs >> 4, db);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 32; g++) {
        uint32_t rest = get_u32(b + 66 + 4 * (g / 4));
        uint8_t signs = iq_signs(rest >> 7 * (g & 3));
        const uint8_t *index = b + 2 + 2 * g;
        c->scales[g / 4] = (uint8_t)(2 * (rest >> 28) + 1);
        iq3_codes(c->u + 8 * g, iq3_xxs_grid[index[0]], signs);
        iq3_codes(c->u + 8 * g + 4, iq3_xxs_grid[index[1]], signs >> 4);
    }
}

const struct quant quant_iq3_xxs = {"IQ3_XXS", 18, 256, 98, dequantize, codes};
