// q5_k.c - 256 numbers of 5 bits; a 6-bit scale and a 6-bit minimum for each 32.
//
// Block, 176 bytes: f16 d; f16 dmin; u8 sm[12]; u8 high[32], bit g of byte i is bit 4 of number 32*g + i; u8 q[128] as
// in Q4_K.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/kscales.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 176) {
        float d = get_f16(b), dmin = get_f16(b + 2);
        const uint8_t *high = b + 16;
        for (int g = 0; g < 8; g++, dst += 32) {
            int scale, min;
            kscales_get(b + 4, g, &scale, &min);
            float dl = d * (float)scale, ml = dmin * (float)min;
            const uint8_t *q = b + 48 + 32 * (g / 2);
            for (int i = 0; i < 32; i++)
                dst[i] = dl * (float)((q[i] >> 4 * (g & 1) & 15) | (high[i] >> g & 1) << 4) - ml;
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    memcpy(c->m, b + 2, 2);
    for (int g = 0; g < 8; g++) {
        int scale, min;
        kscales_get(b + 4, g, &scale, &min);
        c->scales[g] = (uint8_t)scale;
        c->scales[8 + g] = (uint8_t)min;
        for (int i = 0; i < 32; i++) {
            int low = b[48 + 32 * (g / 2) + i] >> 4 * (g & 1) & 15;
            c->u[32 * g + i] = (uint8_t)(low | (b[16 + i] >> g & 1) << 4);
        }
    }
}

const struct quant quant_q5_k = {"Q5_K", 13, 256, 176, dequantize, codes};
