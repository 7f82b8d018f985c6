// mlx.h - what the MLX types share. https://ml-explore.github.io/mlx/build/html/python/_autosummary/mlx.core.quantize.html
//
// Block: f32 d; f32 m; 32 codes as one stream of bits, the lowest bits first.
#pragma once

#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

#define MLX_BLOCK(bits) (8 + 4 * (bits))

// Eight codes of a constant number of bits lie in as many bytes.
static inline __attribute__((always_inline)) void mlx_unpack(const uint8_t *p, uint8_t u[32], const int bits)
{
    for (int j = 0; j < 4; j++, p += bits) {
        uint64_t w = 0;
        for (int i = 0; i < bits; i++)
            w |= (uint64_t)p[i] << 8 * i;
        for (int i = 0; i < 8; i++)
            u[8 * j + i] = (uint8_t)(w >> bits * i & ((1u << bits) - 1));
    }
}

static inline __attribute__((always_inline)) void mlx_codes(const uint8_t *b, struct quant_codes *c, const int bits)
{
    memcpy(c->d, b, 4);
    memcpy(c->m, b + 4, 4);
    mlx_unpack(b + 8, c->u, bits);
}

static inline __attribute__((always_inline)) void mlx_dequantize(const uint8_t *b, float *dst, size_t n, const int bits)
{
    for (; n; n -= 32, b += MLX_BLOCK(bits), dst += 32) {
        float d = float_of_bits(get_u32(b)), m = float_of_bits(get_u32(b + 4));
        uint8_t u[32];
        mlx_unpack(b + 8, u, bits);
        for (int i = 0; i < 32; i++)
            dst[i] = d * (float)u[i] + m;
    }
}
