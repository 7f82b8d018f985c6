// f16.c - IEEE half precision.

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = get_f16(b + 2 * i);
}

const struct quant quant_f16 = {"F16", 1, 1, 2, dequantize, NULL};
