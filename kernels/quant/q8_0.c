// q8_0.c - 32 numbers of 8 bits, one scale.
//
// Block, 34 bytes: f16 d; i8 q[32].
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 34, dst += 32) {
        float d = get_f16(b);
        for (int i = 0; i < 32; i++)
            dst[i] = d * (float)(int8_t)b[2 + i];
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    memcpy(c->u, b + 2, 32);
}

const struct quant quant_q8_0 = {"Q8_0", 8, 32, 34, dequantize, codes};
