// q5_1.c - 32 numbers of 5 bits, a scale and a minimum.
//
// Block, 24 bytes: f16 d; f16 m; u32 high, bit i is bit 4 of number i; u8 q[16] as in Q4_1.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 24, dst += 32) {
        float d = get_f16(b), m = get_f16(b + 2);
        uint32_t high = get_u32(b + 4);
        for (int i = 0; i < 16; i++) {
            int lo = (b[8 + i] & 15) | (int)(high >> i & 1) << 4;
            int hi = b[8 + i] >> 4 | (int)(high >> (16 + i) & 1) << 4;
            dst[i] = d * (float)lo + m;
            dst[16 + i] = d * (float)hi + m;
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    memcpy(c->m, b + 2, 2);
    uint32_t high = get_u32(b + 4);
    for (int i = 0; i < 16; i += 4) {
        uint32_t q = get_u32(b + 8 + i);
        put_u32(c->u + i, (q & 0x0F0F0F0F) | spread_1bit(high >> i) << 4);
        put_u32(c->u + 16 + i, (q >> 4 & 0x0F0F0F0F) | spread_1bit(high >> (16 + i)) << 4);
    }
}

const struct quant quant_q5_1 = {"Q5_1", 7, 32, 24, dequantize, codes};
