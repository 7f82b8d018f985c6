// q4_k.c - 256 numbers of 4 bits; a 6-bit scale and a 6-bit minimum for each 32.
//
// Block, 144 bytes: f16 d; f16 dmin; u8 sm[12]; u8 q[128], 32 bytes for each 64 numbers: number i in the low half,
// 32+i in the high half.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/kscales.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 144) {
        float d = get_f16(b), dmin = get_f16(b + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            int scale, min;
            kscales_get(b + 4, g, &scale, &min);
            float dl = d * (float)scale, ml = dmin * (float)min;
            const uint8_t *q = b + 16 + 32 * (g / 2);
            for (int i = 0; i < 32; i++)
                dst[i] = dl * (float)(q[i] >> 4 * (g & 1) & 15) - ml;
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
        for (int i = 0; i < 32; i++)
            c->u[32 * g + i] = b[16 + 32 * (g / 2) + i] >> 4 * (g & 1) & 15;
    }
}

const struct quant quant_q4_k = {"Q4_K", 12, 256, 144, dequantize, codes};
