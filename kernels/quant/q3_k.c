// q3_k.c - 256 numbers of 3 bits, offset 4; a 6-bit scale, offset 32, for each 16.
//
// Block, 110 bytes: u8 high[32], bit k of byte i is bit 2 of number 32*k + i; u8 q[64], the low two bits as in Q2_K;
// u8 scales[12]; f16 d. Scale g has its low four bits in half g/8 of byte g%8, its high two in byte 8 + g%4 at 2*(g/4).
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 110) {
        float d = get_f16(b + 108);
        const uint8_t *s = b + 96;
        for (int g = 0; g < 16; g++, dst += 16) {
            int scale = (s[g % 8] >> 4 * (g / 8) & 15) | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
            float dl = d * (float)(scale - 32);
            const uint8_t *q = b + 32 + 32 * (g / 8) + 16 * (g & 1), *high = b + 16 * (g & 1);
            for (int i = 0; i < 16; i++) {
                int v = (q[i] >> 2 * (g / 2 % 4) & 3) | (high[i] >> g / 2 & 1) << 2;
                dst[i] = dl * (float)(v - 4);
            }
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    const uint8_t *s = b + 96;
    memcpy(c->d, b + 108, 2);
    for (int g = 0; g < 16; g++) {
        int scale = (s[g % 8] >> 4 * (g / 8) & 15) | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4;
        c->scales[g] = (uint8_t)(int8_t)(scale - 32);
    }
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < 32; i++) {
            int low = b[32 + 32 * (g / 4) + i] >> 2 * (g % 4) & 3;
            c->u[32 * g + i] = (uint8_t)(low | (b[i] >> g & 1) << 2);
        }
    }
}

const struct quant quant_q3_k = {"Q3_K", 11, 256, 110, dequantize, codes};
