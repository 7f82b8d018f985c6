// neon.h - what the NEON files share. Three tables: "neon" runs on every ARMv8-A, "dotprod" and "i8mm" multiply
// integers with SDOT and SMMLA; their floats are NEON's.
#pragma once

#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"

void neon_rmsnorm(float *y, const float *x, const float *w, int n, float eps, float add);
void neon_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps);
void neon_add(float *y, const float *x, int n);
void neon_silu_mul(float *y, const float *gate, const float *up, int n);
void neon_silu(float *y, const float *x, int n);
void neon_gelu(float *y, const float *x, int n, enum gelu kind);
void neon_rope(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs);
float neon_max(const float *x, int n);
int neon_argmax(const float *x, int n);
double neon_sum_exp(const float *x, int n, float max);
void neon_kv_store(void *dst, const float *src, int n, enum kv_type kv);

void neon_attn(const struct attn_args *a);
void neon_attn_join(float *out, const float *parts, int ld, int n, int head_dim);
void neon_mha(const struct mha_args *a);

void neon_gdn_sigmoid_mul(float *y, const float *gate, int n);
void neon_gdn_conv_silu(float *y, const float *const *x, const float *const *w, int taps, int n);
void neon_gdn(const struct gdn_args *a);
void neon_wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n);
void neon_wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                         int rows, int n);

void neon_mat_quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                       int32_t *pairs);
double neon_mat_peak_fma(long rounds);
uint64_t neon_mat_peak_read(const uint8_t *p, size_t bytes);
void neon_float_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void neon_float_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);
void neon_float_pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs);
void neon_float_to_bf16(const float *x, int n, uint16_t *dst);
void neon_float_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);


#define FORM(F, numbers, scales, plane, zero, lookup) \
    void neon_mat_panel_##F(const struct mat *m, const uint8_t *record, float *dst);
#include "kernels/forms.def"
#undef FORM

extern const struct conv_ops neon_conv_ops;
extern const struct mat_ops neon_mat_ops;
extern const struct cpu_ops neon_ops, neon_dotprod_ops, neon_i8mm_ops;

// The slots of struct mat_ops that the three tables have in common.
#define NEON_MAT_OPS \
    .quantize = neon_mat_quantize, \
    .chain_f32 = neon_float_f32, \
    .chain_f16 = neon_float_f16, \
    .chain_bf16 = neon_float_bf16, \
    .pairs = neon_float_pairs, \
    .to_bf16 = neon_float_to_bf16, \
    .peak_fma = neon_mat_peak_fma, \
    .peak_read = neon_mat_peak_read

#define NEON_FLOAT_OPS \
    .rmsnorm = neon_rmsnorm, \
    .layernorm = neon_layernorm, \
    .add = neon_add, \
    .silu_mul = neon_silu_mul, \
    .silu = neon_silu, \
    .gelu = neon_gelu, \
    .sigmoid_mul = neon_gdn_sigmoid_mul, \
    .conv_silu = neon_gdn_conv_silu, \
    .gdn = neon_gdn, \
    .rope = neon_rope, \
    .max = neon_max, \
    .argmax = neon_argmax, \
    .sum_exp = neon_sum_exp, \
    .kv_store = neon_kv_store, \
    .attn = neon_attn, \
    .attn_join = neon_attn_join, \
    .mha = neon_mha, \
    .snake = neon_wave_snake, \
    .depthwise = neon_wave_depthwise, \
    .conv = &neon_conv_ops
