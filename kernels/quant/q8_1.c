// q8_1.c - 32 numbers of 8 bits, one scale, and their sum for dot products.
//
// Block, 36 bytes: f16 d; f16 s, d times the sum of q; i8 q[32]. The value needs d and q only.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 36, dst += 32) {
        float d = get_f16(b);
        for (int i = 0; i < 32; i++)
            dst[i] = d * (float)(int8_t)b[4 + i];
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    memcpy(c->u, b + 4, 32);
}

const struct quant quant_q8_1 = {"Q8_1", 9, 32, 36, dequantize, codes};
