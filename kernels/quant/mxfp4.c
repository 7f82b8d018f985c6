// mxfp4.c - 32 floats of 4 bits (E2M1) with a power of two (OCP Microscaling Formats 1.0).
//
// Block, 17 bytes: u8 e, the scale is 2^(e-127); u8 q[16], number i in the low half of q[i], number 16+i in the high
// half. The levels are doubled, so the scale is halved.

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 32, b += 17, dst += 32) {
        float d = e8m0_half(b[0]);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)e2m1_levels[b[1 + i] & 15];
            dst[16 + i] = d * (float)e2m1_levels[b[1 + i] >> 4];
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    c->d[0] = b[0];
    for (int i = 0; i < 16; i++) {
        c->u[i] = b[1 + i] & 15;
        c->u[16 + i] = b[1 + i] >> 4;
    }
}

const struct quant quant_mxfp4 = {"MXFP4", 39, 32, 17, dequantize, codes};
