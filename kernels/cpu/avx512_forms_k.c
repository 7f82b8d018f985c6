// avx512_forms_k.c - AVX-512 VNNI kernels of the K-quants' forms.
#include "kernels/cpu/avx512_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_K(KERNELS)
