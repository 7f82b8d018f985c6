// avx2_forms_plain.c - AVX2 kernels of the forms without sub-scales or look-up.
#include "kernels/cpu/avx2_tile.h"
#include "kernels/cpu/x86_forms.h"

X86_FORMS_PLAIN(KERNELS)
