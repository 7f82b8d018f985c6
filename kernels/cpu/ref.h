// ref.h - the scalar table and the pieces of it that other tables fall back to.
#pragma once

#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"

extern const struct cpu_ops ref_ops;
extern const struct mat_ops ref_mat_ops;
extern const struct conv_ops ref_conv_ops;

// exp(x) within 1e-7 relative, the same bits on every instruction set: 0 below -86.6, infinite above 88.722839.
float ref_exp(float x);

void ref_mat_int8(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1, enum mat_write write);
void ref_mat_panel(const struct mat *m, const uint8_t *record, float *dst);
