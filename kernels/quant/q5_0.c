// q5_0.c - 32 numbers of 5 bits, offset 16, one scale.
//
// Block, 22 bytes: f16 d; u32 high, bit i is bit 4 of number i; u8 q[16] as in Q4_0.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 22, dst += 32) {
        float d = get_f16(b);
        uint32_t high = get_u32(b + 2);
        for (int i = 0; i < 16; i++) {
            int lo = (b[6 + i] & 15) | (int)(high >> i & 1) << 4;
            int hi = b[6 + i] >> 4 | (int)(high >> (16 + i) & 1) << 4;
            dst[i] = d * (float)(lo - 16);
            dst[16 + i] = d * (float)(hi - 16);
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b, 2);
    uint32_t high = get_u32(b + 2);
    for (int i = 0; i < 16; i += 4) {
        uint32_t q = get_u32(b + 6 + i);
        put_u32(c->u + i, (q & 0x0F0F0F0F) | spread_1bit(high >> i) << 4);
        put_u32(c->u + 16 + i, (q >> 4 & 0x0F0F0F0F) | spread_1bit(high >> (16 + i)) << 4);
    }
}

const struct quant quant_q5_0 = {"Q5_0", 6, 32, 22, dequantize, codes};
