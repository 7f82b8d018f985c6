// q1_0.c - 128 signs, one scale.
//
// Block, 18 bytes: f16 d; u8 q[16]. Number i is bit i % 8 of byte i / 8: d where it is set, else -d.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 128, b += 18, dst += 128) {
        float d = get_f16(b);
        for (int i = 0; i < 128; i++)
            dst[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    for (int i = 0; i < 128; i += 4)
        put_u32(c->u + i, spread_1bit(b[2 + i / 8] >> i % 8) << 1);  // of -1, 0, 1
}

const struct quant quant_q1_0 = {"Q1_0", 41, 128, 18, dequantize, codes};
