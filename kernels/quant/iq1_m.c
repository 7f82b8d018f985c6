// iq1_m.c - 256 numbers near -1, 0, 1 in groups of 8 from a book of 2048; a 3-bit scale for each 16.
//
// Block, 56 bytes: u8 index[32], low 8 bits; u8 high[16], for 2 groups each a half: 3 bits of index, the direction of
// the shift by 1/8; u16 scales[4], four times 3 bits, and on top a quarter of the f16 d, lowest first.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/iq1_grid.h"

static uint16_t block_scale(const uint8_t *scales)
{
    int h = 0;
    for (int i = 0; i < 4; i++)
        h |= scales[2 * i + 1] >> 4 << 4 * i;
    return (uint16_t)h;
}

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 56) {
        float d = quant_f16_to_f32(block_scale(b + 48));
        for (int g = 0; g < 32; g++, dst += 8) {
            int scale = get_u16(b + 48 + 2 * (g / 8)) >> 3 * (g / 2 & 3) & 7;
            float dl = d * (float)(2 * scale + 1);
            int high = b[32 + g / 2] >> 4 * (g & 1) & 15;
            iq1_group(dst, iq1_grid[b[g] | (high & 7) << 8], dl, high & 8 ? -0.125f : 0.125f);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    uint16_t d = block_scale(b + 48);
    memcpy(c->d, &d, 2);
    for (int g = 0; g < 32; g++) {
        int high = b[32 + g / 2] >> 4 * (g & 1) & 15;
        c->scales[g / 2] = (uint8_t)(2 * (get_u16(b + 48 + 2 * (g / 8)) >> 3 * (g / 2 & 3) & 7) + 1);
        iq1_codes(c->u + 8 * g, iq1_grid[b[g] | (high & 7) << 8], high & 8);
    }
}

const struct quant quant_iq1_m = {"IQ1_M", 29, 256, 56, dequantize, codes};
