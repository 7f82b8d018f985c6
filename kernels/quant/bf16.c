// bf16.c - bfloat16: the upper half of a single.

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = float_of_bits((uint32_t)get_u16(b + 2 * i) << 16);
}

const struct quant quant_bf16 = {"BF16", 30, 1, 2, dequantize, NULL};
