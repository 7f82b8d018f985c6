// iq2_xxs.c - 256 numbers in groups of 8 from a book of 256; a 4-bit scale for each 32.
//
// Block, 66 bytes: f16 d; 8 times for 32 numbers: u8 index[4]; u32, four times 7 bits of signs, then the scale.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq_grids.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 66) {
        float d = get_f16(b);
        for (int g = 0; g < 8; g++) {
            const uint8_t *index = b + 2 + 8 * g;
            uint32_t rest = get_u32(index + 4);
            float db = d * (0.5f + (float)(rest >> 28)) * 0.25f;
            for (int k = 0; k < 4; k++, dst += 8)
                iq2_group(dst, iq2_xxs_grid[index[k]], iq_signs(rest >> 7 * k), db);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 8; g++) {
        const uint8_t *index = b + 2 + 8 * g;
        uint32_t rest = get_u32(index + 4);
        c->scales[g] = (uint8_t)(2 * (rest >> 28) + 1);
        for (int k = 0; k < 4; k++)
            iq2_codes(c->u + 32 * g + 8 * k, iq2_xxs_grid[index[k]], iq_signs(rest >> 7 * k));
    }
}

const struct quant quant_iq2_xxs = {"IQ2_XXS", 16, 256, 66, dequantize, codes};
