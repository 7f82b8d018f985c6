// iq2_s.c - 256 numbers in groups of 8 from a book of 1024; a 4-bit scale for each 16.
//
// Block, 82 bytes: f16 d; u8 index[32], low 8 bits; u8 signs[32]; u8 high[8], two bits of index for each of 4 groups;
// u8 scales[8], low half first.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq_grids.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 82) {
        float d = get_f16(b);
        for (int g = 0; g < 32; g++, dst += 8) {
            int scale = b[74 + g / 4] >> 4 * (g / 2 & 1) & 15;
            float db = d * (0.5f + (float)scale) * 0.25f;
            int index = b[2 + g] | (b[66 + g / 4] >> 2 * (g & 3) & 3) << 8;
            iq2_group(dst, iq2_s_grid[index], b[34 + g], db);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 32; g++) {
        int index = b[2 + g] | (b[66 + g / 4] >> 2 * (g & 3) & 3) << 8;
        c->scales[g / 2] = (uint8_t)(2 * (b[74 + g / 4] >> 4 * (g / 2 & 1) & 15) + 1);
        iq2_codes(c->u + 8 * g, iq2_s_grid[index], b[34 + g]);
    }
}

const struct quant quant_iq2_s = {"IQ2_S", 22, 256, 82, dequantize, codes};
