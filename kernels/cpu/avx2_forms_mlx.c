// avx2_forms_mlx.c - AVX2 kernels of MLX's forms.
#include "kernels/cpu/avx2_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_MLX(KERNELS)
