// tq2_0.c - 256 numbers -1, 0, 1 in 2 bits, one scale.
//
// Block, 66 bytes: u8 q[64]; f16 d. q holds 128 numbers in 32 bytes: number 32*k + i is bits 2k, 2k+1 of byte i,
// offset 1.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 66) {
        float d = get_f16(b + 64);
        for (int g = 0; g < 8; g++, dst += 32)
            for (int i = 0; i < 32; i++)
                dst[i] = d * (float)((b[32 * (g / 4) + i] >> 2 * (g % 4) & 3) - 1);
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b + 64, 2);
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < 32; i++)
            c->u[32 * g + i] = b[32 * (g / 4) + i] >> 2 * (g % 4) & 3;
    }
}

const struct quant quant_tq2_0 = {"TQ2_0", 35, 256, 66, dequantize, codes};
