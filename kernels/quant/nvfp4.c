// nvfp4.c - 64 floats of 4 bits (E2M1), an unsigned E4M3 scale for each 16.
//
// Block, 36 bytes: u8 scale[4]; u8 q[32], 8 bytes for each 16 numbers: number i in the low half, 8+i in the high half.
// The levels are doubled, so the scale is halved.

#include "kernels/quant.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

// Half the value of an E4M3 number (bias 7) whose sign bit is ignored; the NaN 0x7F counts as zero, as in ggml.
static float half_scale(uint8_t s)
{
    uint32_t exp = s >> 3 & 15, man = s & 7;
    if (s == 0x7F)
        return 0;
    return exp ? float_of_bits((exp + 119) << 23 | man << 20) : (float)man * 0x1p-10f;
}

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 64, b += 36) {
        for (int g = 0; g < 4; g++, dst += 16) {
            float d = half_scale(b[g]);
            const uint8_t *q = b + 4 + 8 * g;
            for (int i = 0; i < 8; i++) {
                dst[i] = d * (float)e2m1_levels[q[i] & 15];
                dst[8 + i] = d * (float)e2m1_levels[q[i] >> 4];
            }
        }
    }
}

const struct quant quant_nvfp4 = {"NVFP4", 40, 64, 36, dequantize};
