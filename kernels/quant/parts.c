// parts.c - rows that lie in arrays of their own (MLX) as blocks of their type. Pure functions of any thread.
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

bool quant_has_parts(enum quant_type type, int *ret_bits)
{
    static const struct {
        enum quant_type type;
        int bits;
    } all[] = {{QUANT_MLX2, 2}, {QUANT_MLX3, 3}, {QUANT_MLX4, 4},  {QUANT_MLX5, 5},
               {QUANT_MLX6, 6}, {QUANT_MLX8, 8}, {QUANT_MXFP4, 4}, {QUANT_NVFP4, 4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].type == type) {
            *ret_bits = all[i].bits;
            return true;
        }
    return false;
}

// 16 codes of 4 bits, neighbours in a byte, to ggml's order: numbers i and i + half in a byte.
static void halves(const uint8_t *src, uint8_t *dst, int half)
{
    for (int i = 0; i < half; i++) {
        int low = src[i / 2] >> 4 * (i % 2) & 15, high = src[(half + i) / 2] >> 4 * (i % 2) & 15;
        dst[i] = (uint8_t)(low | high << 4);
    }
}

void quant_gather(enum quant_type type, const struct quant_parts *p, int cols, int r, int k, int n, uint8_t *dst)
{
    const struct quant *q = quant_get(type);
    int bits = 0;
    quant_has_parts(type, &bits);
    const size_t size = (size_t)quant_number_bytes(p->number);
    size_t first = (size_t)r * (size_t)(cols / 8) * (size_t)bits, groups = (size_t)(cols / p->group);
    for (int end = k + n; k < end; k += q->block, dst += q->block_bytes) {
        const uint8_t *codes = p->codes + first + (size_t)(k / 8) * (size_t)bits;
        size_t at = (size_t)r * groups + (size_t)(k / p->group);
        if (type == QUANT_MXFP4) {
            dst[0] = p->scales[at];
            halves(codes, dst + 1, 16);
        } else if (type == QUANT_NVFP4) {
            memcpy(dst, p->scales + at, 4);
            for (int s = 0; s < 4; s++)
                halves(codes + 8 * s, dst + 4 + 8 * s, 8);
        } else {
            float d = get_float(p->number, p->scales + at * size), m = get_float(p->number, p->biases + at * size);
            memcpy(dst, &d, 4);
            memcpy(dst + 4, &m, 4);
            memcpy(dst + 8, codes, (size_t)bits * 4);
        }
    }
}
