// mlx5.c - MLX's affine numbers of 5 bits: value = d * code + m. In files their rows lie in parts (kernels/quant/mlx.h); this
// is a group of 32 of them as one block.
#include "kernels/quant/mlx.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    mlx_dequantize(src, dst, n, 5);
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    mlx_codes(b, c, 5);
}

const struct quant quant_mlx5 = {"MLX5", -1, 32, MLX_BLOCK(5), dequantize, codes};
