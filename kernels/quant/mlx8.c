// mlx8.c - MLX's affine numbers of 8 bits: value = d * code + m. In files their rows lie in parts (kernels/quant/mlx.h); this
// is a group of 32 of them as one block.
#include "kernels/quant/mlx.h"

static void dequantize(const void *src, float *dst, size_t n)
{
    mlx_dequantize(src, dst, n, 8);
}

static void codes(const uint8_t *b, struct quant_codes *c)
{
    mlx_codes(b, c, 8);
    for (int i = 0; i < 32; i++)
        c->u[i] ^= 0x80;  // the kernels keep signed bytes
}

const struct quant quant_mlx8 = {"MLX8", -1, 32, MLX_BLOCK(8), dequantize, codes};
