// mlx6.c - MLX's affine numbers of 6 bits: value = d * code + m. In files their rows lie in parts (kernels/quant/mlx.h); this
// is a group of 32 of them as one block.
#include "kernels/quant/mlx.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    mlx_dequantize(src, dst, n, 6);
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    mlx_codes(b, c, 6);
}

const struct quant quant_mlx6 = {"MLX6", -1, 32, MLX_BLOCK(6), dequantize, codes};
