// mlx2.c - MLX's affine numbers of 2 bits: value = d * code + m. In files their rows lie in parts (kernels/quant/mlx.h); this
// is a group of 32 of them as one block.
#include "kernels/quant/mlx.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    mlx_dequantize(src, dst, n, 2);
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    mlx_codes(b, c, 2);
}

const struct quant quant_mlx2 = {"MLX2", -1, 32, MLX_BLOCK(2), dequantize, codes};
