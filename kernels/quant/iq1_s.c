// iq1_s.c - 256 numbers near -1, 0, 1 in groups of 8 from a book of 2048; a 3-bit scale for each 32.
//
// Block, 50 bytes: f16 d; u8 index[32], low 8 bits; u16 high[8], for 32 numbers each: four times 3 bits of index, the
// scale, and the direction in which all 32 are shifted by 1/8.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq1_grid.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 50) {
        float d = get_f16(b);
        for (int g = 0; g < 32; g++, dst += 8) {
            uint16_t high = get_u16(b + 34 + 2 * (g / 4));
            float dl = d * (float)(2 * (high >> 12 & 7) + 1);
            int index = b[2 + g] | (high >> 3 * (g & 3) & 7) << 8;
            iq1_group(dst, iq1_grid[index], dl, high & 0x8000 ? -0.125f : 0.125f);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 32; g++) {
        uint16_t high = get_u16(b + 34 + 2 * (g / 4));
        int index = b[2 + g] | (high >> 3 * (g & 3) & 7) << 8;
        c->scales[g / 4] = (uint8_t)(2 * (high >> 12 & 7) + 1);
        iq1_codes(c->u + 8 * g, iq1_grid[index], high & 0x8000);
    }
}

const struct quant quant_iq1_s = {"IQ1_S", 19, 256, 50, dequantize, codes};
