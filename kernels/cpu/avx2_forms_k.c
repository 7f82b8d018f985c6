// avx2_forms_k.c - AVX2 kernels of the K-quants' forms.
#include "kernels/cpu/avx2_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_K(KERNELS)
