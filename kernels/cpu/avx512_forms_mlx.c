// avx512_forms_mlx.c - AVX-512 VNNI kernels of MLX's forms.
#include "kernels/cpu/avx512_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_MLX(KERNELS)
