// x86_forms.h - which packed forms a file of kernels is compiled for: a few files instead of one, so that they compile
// side by side.
#pragma once

#define X86_FORMS_PLAIN(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(TQ2_0)
#define X86_FORMS_K(X) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K)
#define X86_FORMS_LOOKUP(X) X(IQ1_M) X(IQ1_S) X(IQ2_XS) X(IQ2_XXS) X(IQ3_S) X(IQ3_XXS) X(IQ4_NL) X(IQ4_XS) X(MXFP4) X(NVFP4)
#define X86_FORMS_MLX(X) X(MLX2) X(MLX3) X(MLX4) X(MLX5) X(MLX6) X(MLX8)
#define X86_FORMS(X) X86_FORMS_PLAIN(X) X86_FORMS_K(X) X86_FORMS_LOOKUP(X) X86_FORMS_MLX(X)
