// avx2_attn.c - attention with AVX2: attn_pieces.h with vectors of 8.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/attn_walk.h"

void avx2_attn(const struct attn_args *a)
{
    attn(a);
}

void avx2_attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    attn_join(out, parts, ld, n, head_dim);
}
