// iq4_xs.c - 256 codes of 4 bits for uneven steps, a 6-bit scale for each 32.
//
// Block, 136 bytes: f16 d; u16 high, two bits a scale; u8 low[4], four bits a scale; u8 q[128], 16 bytes for each 32
// numbers: number i in the low half, 16+i in the high half. Scales have offset 32.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 136) {
        float d = get_f16(b);
        uint16_t high = get_u16(b + 2);
        const uint8_t *q = b + 8;
        for (int g = 0; g < 8; g++, q += 16, dst += 32) {
            int scale = (b[4 + g / 2] >> 4 * (g & 1) & 15) | (high >> 2 * g & 3) << 4;
            float dl = d * (float)(scale - 32);
            for (int i = 0; i < 16; i++) {
                dst[i] = dl * (float)iq4_levels[q[i] & 15];
                dst[16 + i] = dl * (float)iq4_levels[q[i] >> 4];
            }
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    uint16_t high = get_u16(b + 2);
    for (int g = 0; g < 8; g++) {
        int scale = (b[4 + g / 2] >> 4 * (g & 1) & 15) | (high >> 2 * g & 3) << 4;
        c->scales[g] = (uint8_t)(int8_t)(scale - 32);
        for (int i = 0; i < 16; i++) {
            c->u[32 * g + i] = b[8 + 16 * g + i] & 15;
            c->u[32 * g + 16 + i] = b[8 + 16 * g + i] >> 4;
        }
    }
}

const struct quant quant_iq4_xs = {"IQ4_XS", 23, 256, 136, dequantize, codes};
