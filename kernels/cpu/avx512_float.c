// avx512_float.c - float weights with AVX-512: x86_float.h with vectors of 16 rows.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86_float.h"

#define TYPE(name, T)                                                                                                  \
    void avx512_float_##name(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n,  \
                             int k)                                                                                    \
    {                                                                                                                  \
        struct chain c = {acc, ldacc, w, (size_t)width * (QUANT_##T == QUANT_F32 ? 4 : 2), x, ldx, k, 0};              \
        product(QUANT_##T, avx2_float_##name, &c, width, ng, n);                                                       \
    }
TYPE(f32, F32)
TYPE(f16, F16)
TYPE(bf16, BF16)
