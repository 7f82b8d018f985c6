// nvfp4.c - 64 floats of 4 bits (E2M1), an unsigned E4M3 scale for each 16.
//
// Block, 36 bytes: u8 scale[4]; u8 q[32], 8 bytes for each 16 numbers: number i in the low half, 8+i in the high half.
// The levels are doubled, so the scale is halved. Scale 0x7F, NaN, counts as zero, as in ggml.

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 64, b += 36) {
        for (int g = 0; g < 4; g++, dst += 16) {
            float d = b[g] == 0x7F ? 0 : e4m3_half(b[g]);
            const uint8_t *q = b + 4 + 8 * g;
            for (int i = 0; i < 8; i++) {
                dst[i] = d * (float)e2m1_levels[q[i] & 15];
                dst[8 + i] = d * (float)e2m1_levels[q[i] >> 4];
            }
        }
    }
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    for (int g = 0; g < 4; g++) {
        c->scales[g] = b[g] == 0x7F ? 0 : b[g] & 0x7F;
        for (int i = 0; i < 8; i++) {
            c->u[16 * g + i] = b[4 + 8 * g + i] & 15;
            c->u[16 * g + 8 + i] = b[4 + 8 * g + i] >> 4;
        }
    }
}

const struct quant quant_nvfp4 = {"NVFP4", 40, 64, 36, dequantize, codes};
