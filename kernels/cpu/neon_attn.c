// neon_attn.c - attention with NEON: attn_pieces.h with vectors of 8.
#include "kernels/cpu/attn_walk.h"
#include "kernels/cpu/neon.h"

void neon_attn(const struct attn_args *a)
{
    attn(a);
}

void neon_attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    attn_join(out, parts, ld, n, head_dim);
}
