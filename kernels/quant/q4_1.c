// q4_1.c - 32 numbers of 4 bits, a scale and a minimum.
//
// Block, 20 bytes: f16 d; f16 m; u8 q[16], number i in the low half of q[i], number 16+i in the high half.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 20, dst += 32) {
        float d = get_f16(b), m = get_f16(b + 2);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)(b[4 + i] & 15) + m;
            dst[16 + i] = d * (float)(b[4 + i] >> 4) + m;
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    memcpy(c->m, b + 2, 2);
    for (int i = 0; i < 16; i++) {
        c->u[i] = b[4 + i] & 15;
        c->u[16 + i] = b[4 + i] >> 4;
    }
}

const struct quant quant_q4_1 = {"Q4_1", 3, 32, 20, dequantize, codes};
