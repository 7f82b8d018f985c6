// q2_k.c - 256 numbers of 2 bits; a 4-bit scale and a 4-bit minimum for each 16.
//
// Block, 84 bytes: u8 sm[16], scale in the low half, minimum in the high half; u8 q[64]; f16 d; f16 dmin. q holds
// 128 numbers in 32 bytes: number 32*k + i is bits 2k, 2k+1 of byte i.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 84) {
        float d = get_f16(b + 80), dmin = get_f16(b + 82);
        for (int g = 0; g < 16; g++, dst += 16) {
            float dl = d * (float)(b[g] & 15), ml = dmin * (float)(b[g] >> 4);
            const uint8_t *q = b + 16 + 32 * (g / 8) + 16 * (g & 1);
            for (int i = 0; i < 16; i++)
                dst[i] = dl * (float)(q[i] >> 2 * (g / 2 % 4) & 3) - ml;
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b + 80, 2);
    memcpy(c->m, b + 82, 2);
    memcpy(c->scales, b, 16);
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < 32; i++)
            c->u[32 * g + i] = b[16 + 32 * (g / 4) + i] >> 2 * (g % 4) & 3;
    }
}

const struct quant quant_q2_k = {"Q2_K", 10, 256, 84, dequantize, codes};
