// avx512_forms_plain.c - AVX-512 VNNI kernels of the forms without sub-scales or look-up.
#include "kernels/cpu/avx512_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_PLAIN(KERNELS)
