// tq1_0.c - 256 numbers -1, 0, 1, five to a byte in base 3, one scale.
//
// Block, 54 bytes: u8 q[48]; u8 tail[4]; f16 d. A byte is its five digits as a fraction of 256 rounded up: times 3^k,
// modulo 256, times 3, the part above 256 is digit k. Bytes 0..31 hold 5 rows of 32 numbers, 32..47 then 5 rows of 16,
// the tail 4 rows of 4.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static const uint8_t powers[5] = {1, 3, 9, 27, 81};

// `rows` digits of each of `width` bytes, a row after the other.
static uint8_t *digits(const uint8_t *q, int width, int rows, uint8_t *u)
{
    for (int k = 0; k < rows; k++) {
        for (int i = 0; i < width; i++) {
            uint8_t turned = (uint8_t)(q[i] * powers[k]);
            *u++ = (uint8_t)(turned * 3 >> 8);
        }
    }
    return u;
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    memcpy(c->d, b + 52, 2);
    uint8_t *u = digits(b, 32, 5, c->u);
    u = digits(b + 32, 16, 5, u);
    digits(b + 48, 4, 4, u);
}

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (; n; n -= 256, b += 54, dst += 256) {
        struct quant_codes c;
        codes(b, &c);
        float d = get_f16(b + 52);
        for (int i = 0; i < 256; i++)
            dst[i] = d * (float)(c.u[i] - 1);
    }
}

const struct quant quant_tq1_0 = {"TQ1_0", 34, 256, 54, dequantize, codes};
