// neon.c - vector operations with NEON, and the table of plain ARMv8-A. Equal to ref.c bit for bit; any lane, no state.
//
// A length that is no multiple of 8 ends with a partial vector: missing elements are loaded as 0 (or what leaves the
// result as it is) and not stored.
#include "kernels/cpu/neon.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/neon_vec.h"
#include "kernels/cpu/ref.h"

void neon_rmsnorm(float *y, const float *x, const float *w, int n, float eps, float add)
{
    f8 p = f8_set(0);
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_load_tail(x + i, n - i);
        p = f8_fma(v, v, p);
    }
    float scale = 1 / sqrtf(f8_tree(p) / (float)n + eps);
    f8 a = f8_set(add);
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_mul1(f8_load_tail(x + i, n - i), scale);
        if (w)
            v = f8_mul(v, f8_add(f8_load_tail(w + i, n - i), a));
        f8_store_tail(y + i, n - i, v);
    }
}

void neon_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    f8 p = f8_set(0);
    for (int i = 0; i < n; i += 8)
        p = f8_add(p, f8_load_tail(x + i, n - i));
    f8 mean = f8_set(f8_tree(p) / (float)n);
    p = f8_set(0);
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_sub(f8_load_tail(x + i, n - i), mean), next = f8_fma(v, v, p);
        p = n - i >= 8 ? next : f8_if(f8_first(n - i), next, p);
    }
    float scale = 1 / sqrtf(f8_tree(p) / (float)n + eps);
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_mul1(f8_sub(f8_load_tail(x + i, n - i), mean), scale);
        v = f8_mul(v, f8_load_tail(w + i, n - i));
        if (b)
            v = f8_add(v, f8_load_tail(b + i, n - i));
        f8_store_tail(y + i, n - i, v);
    }
}

void neon_add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i += 8)
        f8_store_tail(y + i, n - i, f8_add(f8_load_tail(y + i, n - i), f8_load_tail(x + i, n - i)));
}

void neon_silu_mul(float *y, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i += 8) {
        f8 g = f8_load_tail(gate + i, n - i);
        f8_store_tail(y + i, n - i, f8_mul(over_exp(g, f8_neg(g)), f8_load_tail(up + i, n - i)));
    }
}

void neon_silu(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_load_tail(x + i, n - i);
        f8_store_tail(y + i, n - i, over_exp(v, f8_neg(v)));
    }
}

INLINE f8 gelu_erf(f8 x)
{
    f8 a = f8_mul1(f8_abs(x), 0.70710678f), r = f8_set(-2.36511532e-5f);
    r = f8_fma(r, a, f8_set(2.43797374e-4f));
    r = f8_fma(r, a, f8_set(-8.17703665e-4f));
    r = f8_fma(r, a, f8_set(-8.96338664e-4f));
    r = f8_fma(r, a, f8_set(1.99079961e-2f));
    r = f8_fma(r, a, f8_set(-0.103073403f));
    r = f8_fma(r, a, f8_set(-0.636563361f));
    r = f8_fma(r, a, f8_set(-1.12838292f));
    f8 h = f8_mul(exp8(f8_mul(a, r)), f8_mul1(x, 0.5f));
    h = f8_if(f8_above(a, f8_set(4)), f8_set(0), h);
    return f8_if(f8_above(x, f8_set(0)), f8_sub(x, h), h);
}

INLINE f8 gelu_tanh(f8 x)
{
    f8 cube = f8_mul(f8_mul(f8_mul1(x, 0.044715f), x), x);
    return over_exp(x, f8_mul1(f8_add(x, cube), -1.5957691216f));
}

void neon_gelu(float *y, const float *x, int n, enum gelu kind)
{
    for (int i = 0; i < n; i += 8) {
        f8 v = f8_load_tail(x + i, n - i);
        if (kind == GELU_ERF)
            v = gelu_erf(v);
        else if (kind == GELU_TANH)
            v = gelu_tanh(v);
        else
            v = over_exp(v, f8_mul1(v, -1.702f));
        f8_store_tail(y + i, n - i, v);
    }
}

INLINE void turn(f8 *a, f8 *b, f8 c, f8 s)
{
    f8 first = f8_sub(f8_mul(*a, c), f8_mul(*b, s));
    *b = f8_add(f8_mul(*b, c), f8_mul(*a, s));
    *a = first;
}

static void rope_half(float *x, const float *c, const float *s, int half)
{
    for (int i = 0; i < half; i += 8) {
        int left = half - i;
        f8 a = f8_load_tail(x + i, left), b = f8_load_tail(x + half + i, left);
        turn(&a, &b, f8_load_tail(c + i, left), f8_load_tail(s + i, left));
        f8_store_tail(x + i, left, a);
        f8_store_tail(x + half + i, left, b);
    }
}

// Eight pairs at a time: LD2 and ST2 take them apart and put them together.
static void rope_adjacent(float *x, const float *c, const float *s, int half)
{
    int i = 0;
    for (; i + 8 <= half; i += 8) {
        float32x4x2_t v = vld2q_f32(x + 2 * i), w = vld2q_f32(x + 2 * i + 8);
        f8 a = {v.val[0], w.val[0]}, b = {v.val[1], w.val[1]};
        turn(&a, &b, f8_load(c + i), f8_load(s + i));
        v = (float32x4x2_t){{a.l, b.l}};
        w = (float32x4x2_t){{a.h, b.h}};
        vst2q_f32(x + 2 * i, v);
        vst2q_f32(x + 2 * i + 8, w);
    }
    for (; i < half; i++) {
        float x0 = x[2 * i], x1 = x[2 * i + 1];
        x[2 * i] = x0 * c[i] - x1 * s[i];
        x[2 * i + 1] = x1 * c[i] + x0 * s[i];
    }
}

void neon_rope(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs)
{
    if (pairs == ROPE_HALF)
        rope_half(x, cos, sin, n / 2);
    else
        rope_adjacent(x, cos, sin, n / 2);
}

float neon_max(const float *x, int n)
{
    f8 m[2] = {f8_set(-INFINITY), f8_set(-INFINITY)};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        m[0] = f8_max(f8_load(x + i), m[0]);
        m[1] = f8_max(f8_load(x + i + 8), m[1]);
    }
    f8 both = f8_max(m[0], m[1]);
    float top = f8_top(both);
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

// Where the maximum first is. Nothing is above minus infinity when there are only NaN and minus infinity: 0.
int neon_argmax(const float *x, int n)
{
    float top = neon_max(x, n);
    if (top == -INFINITY)
        return 0;
    float32x4_t t = vdupq_n_f32(top);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32x4_t hit = vorrq_u32(vceqq_f32(vld1q_f32(x + i), t), vceqq_f32(vld1q_f32(x + i + 4), t));
        if (vmaxvq_u32(hit))
            break;
    }
    while (i < n && x[i] != top)
        i++;
    return i;
}

double neon_sum_exp(const float *x, int n, float max)
{
    float64x2_t p[4];
    for (int j = 0; j < 4; j++)
        p[j] = vdupq_n_f64(0);
    for (int i = 0; i < n; i += 8) {
        f8 v = exp8(f8_sub(f8_load_tail(x + i, n - i), f8_set(max)));
        if (n - i < 8)
            v = f8_only(f8_first(n - i), v);
        p[0] = vaddq_f64(p[0], vcvt_f64_f32(vget_low_f32(v.l)));
        p[1] = vaddq_f64(p[1], vcvt_high_f64_f32(v.l));
        p[2] = vaddq_f64(p[2], vcvt_f64_f32(vget_low_f32(v.h)));
        p[3] = vaddq_f64(p[3], vcvt_high_f64_f32(v.h));
    }
    return vpaddd_f64(vaddq_f64(vaddq_f64(p[0], p[2]), vaddq_f64(p[1], p[3])));
}

static void store_f16(uint8_t *dst, const float *src, int n)
{
    int i = 0;
    for (; i + 4 <= n; i += 4)
        vst1_u16((uint16_t *)(void *)(dst + 2 * i), vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
    for (; i < n; i++) {
        uint16_t h = f16_of(src[i]);
        memcpy(dst + 2 * i, &h, 2);
    }
}

// Magnitudes are compared as integers: a NaN is above all and stays.
static void store_q8(uint8_t *dst, const float *src, int n)
{
    int8_t *q = (int8_t *)dst + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    for (int b = 0; b < n; b += 32, dst += 2) {
        int len = n - b < 32 ? n - b : 32;
        uint32x4_t m = vdupq_n_u32(0);
        for (int i = 0; i < len; i += 8) {
            f8 v = f8_abs(f8_load_tail(src + b + i, len - i));
            m = vmaxq_u32(m, vmaxq_u32(vreinterpretq_u32_f32(v.l), vreinterpretq_u32_f32(v.h)));
        }
        float amax = vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(vmaxvq_u32(m))), 0);
        uint16_t h = f16_of(amax / 127);
        memcpy(dst, &h, 2);
        float d = of_f16(h), inverse = d > 0 ? 1 / d : 0;
        for (int i = 0; i < len; i += 8) {
            f8 v = f8_max(f8_mul1(f8_load_tail(src + b + i, len - i), inverse), f8_set(-127));
            int16x8_t r = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vminq_f32(v.l, vdupq_n_f32(127)))),
                                       vmovn_s32(vcvtnq_s32_f32(vminq_f32(v.h, vdupq_n_f32(127)))));
            int8_t bytes[8];
            vst1_s8(bytes, vmovn_s16(r));
            memcpy(q + b + i, bytes, (size_t)(len - i < 8 ? len - i : 8));
        }
    }
}

void neon_kv_store(void *dst, const float *src, int n, enum kv_type kv)
{
    if (kv == KV_F32)
        memcpy(dst, src, 4 * (size_t)n);
    else if (kv == KV_F16)
        store_f16(dst, src, n);
    else
        store_q8(dst, src, n);
}

const struct cpu_ops neon_ops = {.isa = "neon", .mat = &neon_mat_ops, NEON_FLOAT_OPS};
