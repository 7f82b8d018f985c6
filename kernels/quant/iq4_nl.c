// iq4_nl.c - 32 codes of 4 bits for uneven steps, one scale.
//
// Block, 18 bytes: f16 d; u8 q[16], number i in the low half of q[i], number 16+i in the high half.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 18, dst += 32) {
        float d = get_f16(b);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)iq4_levels[b[2 + i] & 15];
            dst[16 + i] = d * (float)iq4_levels[b[2 + i] >> 4];
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

const struct quant quant_iq4_nl = {"IQ4_NL", 20, 32, 18, dequantize, codes};
