// iq3_s.c - 256 numbers in groups of 4 from a book of 512; a 4-bit scale for each 32.
//
// Block, 110 bytes: f16 d; u8 index[64], low 8 bits; u8 high[8], bit i is bit 8 of index i of 8; u8 signs[32];
// u8 scales[4], low half first.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq_grids.h"

static const uint8_t levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 110) {
        float d = get_f16(b);
        for (int g = 0; g < 64; g++, dst += 4) {
            int scale = b[106 + g / 16] >> 4 * (g / 8 & 1) & 15;
            float db = d * (float)(1 + 2 * scale);
            int index = b[2 + g] | (b[66 + g / 8] >> (g & 7) & 1) << 8;
            iq3_group(dst, iq3_s_grid[index], levels, b[74 + g / 2] >> 4 * (g & 1), db);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 64; g++) {
        int scale = b[106 + g / 16] >> 4 * (g / 8 & 1) & 15;
        int index = b[2 + g] | (b[66 + g / 8] >> (g & 7) & 1) << 8;
        c->scales[g / 8] = (uint8_t)(1 + 2 * scale);
        iq3_codes(c->u + 4 * g, iq3_s_grid[index], b[74 + g / 2] >> 4 * (g & 1));
    }
}

const struct quant quant_iq3_s = {"IQ3_S", 21, 256, 110, dequantize, codes};
