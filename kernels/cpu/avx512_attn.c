// avx512_attn.c - attention with AVX-512: attn_pieces.h with vectors of 16.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/attn_walk.h"

// VCVTPH2PS of 16 numbers takes as long as two of 8 and holds up the FMAs meanwhile: f16 tiles of AVX2 reach 0.98 of the peak
// where those of AVX-512 reach 0.85. And a few states wait for memory, which AVX2's narrower tiles read in an order that suits
// the hardware better.
static bool suits_avx2(const struct attn_args *a)
{
    return a->rows == 1 ? a->group <= 4 && a->kv != KV_Q8 : a->kv == KV_F16;
}

void avx512_attn(const struct attn_args *a)
{
    if (suits_avx2(a))
        avx2_attn(a);
    else
        attn(a);
}

void avx512_attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    attn_join(out, parts, ld, n, head_dim);
}
