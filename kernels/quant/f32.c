// f32.c - plain single precision.

#include <string.h>

#include "kernels/quant.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

const struct quant quant_f32 = {"F32", 0, 1, 4, dequantize, NULL};
