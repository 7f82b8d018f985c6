// q6_k.c - 256 numbers of 6 bits, offset 32; an 8-bit scale for each 16.
//
// Block, 210 bytes: u8 low[128]; u8 high[64]; i8 scales[16]; f16 d. Of each 128 numbers, number 32*k + i has its low
// four bits in half k/2 of low[32*(k%2) + i] and its high two at 2*k of high[i].
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 210) {
        float d = get_f16(b + 208);
        for (int g = 0; g < 16; g++, dst += 16) {
            float dl = d * (float)(int8_t)b[192 + g];
            int k = g / 2 % 4;
            const uint8_t *low = b + 64 * (g / 8) + 32 * (k % 2) + 16 * (g & 1);
            const uint8_t *high = b + 128 + 32 * (g / 8) + 16 * (g & 1);
            for (int i = 0; i < 16; i++) {
                int v = (low[i] >> 4 * (k / 2) & 15) | (high[i] >> 2 * k & 3) << 4;
                dst[i] = dl * (float)(v - 32);
            }
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b + 208, 2);
    memcpy(c->scales, b + 192, 16);
    for (int g = 0; g < 8; g++) {
        const uint8_t *low = b + 64 * (g / 4) + 32 * (g & 1), *high = b + 128 + 32 * (g / 4);
        int k = g % 4;
        for (int i = 0; i < 32; i++)
            c->u[32 * g + i] = (uint8_t)((low[i] >> 4 * (k / 2) & 15) | (high[i] >> 2 * k & 3) << 4);
    }
}

const struct quant quant_q6_k = {"Q6_K", 14, 256, 210, dequantize, codes};
