// avx512_forms_lookup.c - AVX-512 VNNI kernels of the forms whose codes are looked up.
#include "kernels/cpu/avx512_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_LOOKUP(KERNELS)
