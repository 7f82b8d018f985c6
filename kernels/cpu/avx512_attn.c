// avx512_attn.c - attention with AVX-512: attn_pieces.h with vectors of 16.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/attn_walk.h"

// A few states wait for memory, which AVX2's narrower tiles read in an order that suits the hardware better.
void avx512_attn(const struct attn_args *a)
{
    if (a->rows == 1 && a->group <= 4 && a->kv != KV_Q8)
        avx2_attn(a);
    else
        attn(a);
}

void avx512_attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    attn_join(out, parts, ld, n, head_dim);
}
