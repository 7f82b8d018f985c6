// iq2_xs.c - 256 numbers in groups of 8 from a book of 512; a 4-bit scale for each 16.
//
// Block, 74 bytes: f16 d; u16 q[32], a group each: 9 bits of index, 7 bits of signs; u8 scales[8], low half first.

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

const struct quant quant_iq2_xs = {"IQ2_XS", 17, 256, 74, dequantize};
