// iq2_xs.c - 256 numbers in groups of 8 from a book of 512; a 4-bit scale for each 16.
//
// Block, 74 bytes: f16 d; u16 q[32], a group each: 9 bits of index, 7 bits of signs; u8 scales[8], low half first.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq_grids.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 74) {
        float d = get_f16(b);
        for (int g = 0; g < 32; g++, dst += 8) {
            int scale = b[66 + g / 4] >> 4 * (g / 2 & 1) & 15;
            float db = d * (0.5f + (float)scale) * 0.25f;
            uint16_t q = get_u16(b + 2 + 2 * g);
            iq2_group(dst, iq2_xs_grid[q & 511], iq_signs(q >> 9), db);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int g = 0; g < 32; g++) {
        uint16_t q = get_u16(b + 2 + 2 * g);
        c->scales[g / 2] = (uint8_t)(2 * (b[66 + g / 4] >> 4 * (g / 2 & 1) & 15) + 1);
        iq2_codes(c->u + 8 * g, iq2_xs_grid[q & 511], iq_signs(q >> 9));
    }
}

const struct quant quant_iq2_xs = {"IQ2_XS", 17, 256, 74, dequantize, codes};
