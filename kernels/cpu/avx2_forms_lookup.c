// avx2_forms_lookup.c - AVX2 kernels of the forms whose codes are looked up.
#include "kernels/cpu/avx2_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_LOOKUP(KERNELS)
