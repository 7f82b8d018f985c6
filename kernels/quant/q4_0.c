// q4_0.c - 32 numbers of 4 bits, offset 8, one scale.
//
// Block, 18 bytes: f16 d; u8 q[16], number i in the low half of q[i], number 16+i in the high half.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 18, dst += 32) {
        float d = get_f16(b);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)((b[2 + i] & 15) - 8);
            dst[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int i = 0; i < 16; i++) {
        c->u[i] = b[2 + i] & 15;
        c->u[16 + i] = b[2 + i] >> 4;
    }
}

const struct quant quant_q4_0 = {"Q4_0", 2, 32, 18, dequantize, codes};
