// avx2.h - what the AVX2 files share with each other and with AVX-512, which takes most of its table from here.
#pragma once

#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/cpu/x86_forms.h"

void avx2_rmsnorm(float *y, const float *x, const float *w, int n, float eps, float add);
void avx2_rmsnorm_rows(float *y, int ldy, const float *x, int ldx, const float *w, int rows, int n, float eps, float add);
void avx2_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps);
void avx2_add(float *y, const float *x, int n);
void avx2_silu_mul(float *y, const float *gate, const float *up, int n);
void avx2_silu(float *y, const float *x, int n);
void avx2_gelu(float *y, const float *x, int n, enum gelu kind);
void avx2_rope(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs);
float avx2_max(const float *x, int n);
int avx2_argmax(const float *x, int n);
double avx2_sum_exp(const float *x, int n, float max);
void avx2_kv_store(void *dst, const float *src, int n, enum kv_type kv);

void avx2_attn(const struct attn_args *a);
void avx2_attn_join(float *out, const float *parts, int ld, int n, int head_dim);
void avx512_attn(const struct attn_args *a);
void avx512_attn_join(float *out, const float *parts, int ld, int n, int head_dim);
void avx2_mha(const struct mha_args *a);

void avx2_gdn_sigmoid_mul(float *y, const float *gate, int n);
void avx2_gdn_conv_silu(float *y, const float *const *x, const float *const *w, int taps, int n);
void avx2_gdn(const struct gdn_args *a);
void avx2_wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n);
void avx2_wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                         int rows, int n);

void avx2_mat_quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                   int32_t *pairs);
void avx512_quantize_rows(const struct acts *a, const float *x, int ldx, int n, int nblocks, int stride, size_t at);
void avx2_float_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx2_float_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx2_float_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx512_float_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx512_float_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx512_float_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void avx2_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs);
void avx2_pairs_to_bf16(const float *x, int n, uint16_t *dst);
void avx512_bf16_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs);
double avx512_bf16_peak(long rounds);
double avx2_peak_sums(long rounds, enum int8_sums sums);
#define FORM(F)                                                                                                        \
    void avx2_mat_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                    \
                      enum mat_write write);                                                                           \
    void avx2_mat_panel_##F(const struct mat *m, const uint8_t *record, float *dst);                                   \
    void avx512_mat_##F(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                  \
                        enum mat_write write);
X86_FORMS(FORM)
#undef FORM
double avx2_mat_peak_fma(long rounds);
uint64_t avx2_mat_peak_read(const uint8_t *p, size_t bytes);

extern const struct mat_ops avx2_mat_ops;
extern const struct conv_ops avx2_conv_ops;

extern const struct cpu_ops avx2_ops, avx512_ops;

// Every op but the matrices and attention; AVX-512 machines run these too.
#define AVX2_FLOAT_OPS \
    .rmsnorm = avx2_rmsnorm, \
    .rmsnorm_rows = avx2_rmsnorm_rows, \
    .layernorm = avx2_layernorm, \
    .add = avx2_add, \
    .silu_mul = avx2_silu_mul, \
    .silu = avx2_silu, \
    .gelu = avx2_gelu, \
    .sigmoid_mul = avx2_gdn_sigmoid_mul, \
    .conv_silu = avx2_gdn_conv_silu, \
    .gdn = avx2_gdn, \
    .rope = avx2_rope, \
    .max = avx2_max, \
    .argmax = avx2_argmax, \
    .sum_exp = avx2_sum_exp, \
    .kv_store = avx2_kv_store, \
    .mha = avx2_mha, \
    .snake = avx2_wave_snake, \
    .depthwise = avx2_wave_depthwise, \
    .conv = &avx2_conv_ops
