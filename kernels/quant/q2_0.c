// q2_0.c - 64 numbers -1, 0, 1, 2 in 2 bits, one scale.
//
// Block, 18 bytes: f16 d; u8 q[16]. Number i is bits 2k, 2k+1 of byte i / 4, k = i % 4, offset 1. (Files of the
// format's first authors have 128 numbers a block under the same number of type: their tensors end elsewhere.)
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 64, b += 18, dst += 64) {
        float d = get_f16(b);
        for (int i = 0; i < 64; i++)
            dst[i] = d * (float)((b[2 + i / 4] >> 2 * (i % 4) & 3) - 1);
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int i = 0; i < 16; i++)
        put_u32(c->u + 4 * i, spread_2bit(b[2 + i]));
}

const struct quant quant_q2_0 = {"Q2_0", 42, 64, 18, dequantize, codes};
