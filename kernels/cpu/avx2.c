// avx2.c - vector operations with AVX2, FMA and F16C, and the table. Equal to ref.c bit for bit; any lane, no state.
//
// A length that is no multiple of 8 ends with a masked vector: missing elements are loaded as 0 (or what leaves the
// result as it is) and not stored.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/x86_exp.h"
#include "kernels/cpu/x86_tail.h"

void avx2_rmsnorm(float *y, const float *x, const float *w, int n, float eps, float add)
{
    __m256 p = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_tail(x + i, n - i);
        p = _mm256_fmadd_ps(v, v, p);
    }
    __m256 scale = _mm256_set1_ps(1 / sqrtf(tree8(p) / (float)n + eps)), a = _mm256_set1_ps(add);
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_tail(x + i, n - i), scale);
        if (w)
            v = _mm256_mul_ps(v, _mm256_add_ps(load_tail(w + i, n - i), a));
        store_tail(y + i, n - i, v);
    }
}

enum { NORM_ROWS = 4 };  // a row's sum is one chain, which waits for itself

void avx2_rmsnorm_rows(float *y, int ldy, const float *x, int ldx, const float *w, int rows, int n, float eps, float add)
{
    const size_t step = (size_t)ldx, step_y = (size_t)ldy;
    const __m256 a = _mm256_set1_ps(add);
    for (; rows >= NORM_ROWS; rows -= NORM_ROWS, x += NORM_ROWS * step, y += NORM_ROWS * step_y) {
        __m256 p[NORM_ROWS], scale[NORM_ROWS], v;
        for (int r = 0; r < NORM_ROWS; r++)
            p[r] = _mm256_setzero_ps();
        for (int i = 0; i < n; i += 8) {
            for (int r = 0; r < NORM_ROWS; r++) {
                v = load_tail(x + (size_t)r * step + i, n - i);
                p[r] = _mm256_fmadd_ps(v, v, p[r]);
            }
        }
        for (int r = 0; r < NORM_ROWS; r++)
            scale[r] = _mm256_set1_ps(1 / sqrtf(tree8(p[r]) / (float)n + eps));
        for (int i = 0; i < n; i += 8) {
            __m256 by = w ? _mm256_add_ps(load_tail(w + i, n - i), a) : a;
            for (int r = 0; r < NORM_ROWS; r++) {
                v = _mm256_mul_ps(load_tail(x + (size_t)r * step + i, n - i), scale[r]);
                store_tail(y + (size_t)r * step_y + i, n - i, w ? _mm256_mul_ps(v, by) : v);
            }
        }
    }
    for (; rows > 0; rows--, x += step, y += step_y)
        avx2_rmsnorm(y, x, w, n, eps, add);
}

void avx2_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    __m256 p = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8)
        p = _mm256_add_ps(p, load_tail(x + i, n - i));
    __m256 mean = _mm256_set1_ps(tree8(p) / (float)n);
    p = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_sub_ps(load_tail(x + i, n - i), mean);
        __m256 next = _mm256_fmadd_ps(v, v, p);
        p = n - i >= 8 ? next : _mm256_blendv_ps(p, next, _mm256_castsi256_ps(tail_mask(n - i)));
    }
    __m256 scale = _mm256_set1_ps(1 / sqrtf(tree8(p) / (float)n + eps));
    for (int i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(load_tail(x + i, n - i), mean), scale);
        v = _mm256_mul_ps(v, load_tail(w + i, n - i));
        if (b)
            v = _mm256_add_ps(v, load_tail(b + i, n - i));
        store_tail(y + i, n - i, v);
    }
}

void avx2_add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i += 8)
        store_tail(y + i, n - i, _mm256_add_ps(load_tail(y + i, n - i), load_tail(x + i, n - i)));
}

void avx2_silu_mul(float *y, const float *gate, const float *up, int n)
{
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 e[4];
        for (int j = 0; j < 4; j++)
            e[j] = _mm256_xor_ps(_mm256_loadu_ps(gate + i + 8 * j), sign);
        exp8_4(e);
        for (int j = 0; j < 4; j++) {
            __m256 v = _mm256_div_ps(_mm256_loadu_ps(gate + i + 8 * j), _mm256_add_ps(one, e[j]));
            _mm256_storeu_ps(y + i + 8 * j, _mm256_mul_ps(v, _mm256_loadu_ps(up + i + 8 * j)));
        }
    }
    for (; i < n; i += 8) {
        __m256 g = load_tail(gate + i, n - i);
        __m256 v = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, sign))));
        store_tail(y + i, n - i, _mm256_mul_ps(v, load_tail(up + i, n - i)));
    }
}

// x / (1 + exp(t))
static inline __m256 over_exp(__m256 x, __m256 t)
{
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1), exp8(t)));
}

void avx2_silu(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_tail(x + i, n - i);
        store_tail(y + i, n - i, over_exp(v, _mm256_xor_ps(v, _mm256_set1_ps(-0.0f))));
    }
}

static inline __m256 gelu_erf(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 a = _mm256_mul_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(0.70710678f));
    __m256 r = _mm256_set1_ps(-2.36511532e-5f);
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(2.43797374e-4f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(-8.17703665e-4f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(-8.96338664e-4f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(1.99079961e-2f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(-0.103073403f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(-0.636563361f));
    r = _mm256_fmadd_ps(r, a, _mm256_set1_ps(-1.12838292f));
    __m256 h = _mm256_mul_ps(exp8(_mm256_mul_ps(a, r)), _mm256_mul_ps(_mm256_set1_ps(0.5f), x));
    h = _mm256_andnot_ps(_mm256_cmp_ps(a, _mm256_set1_ps(4), _CMP_GT_OQ), h);
    return _mm256_blendv_ps(h, _mm256_sub_ps(x, h), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GT_OQ));
}

static inline __m256 gelu_tanh(__m256 x)
{
    __m256 cube = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), x), x), x);
    return over_exp(x, _mm256_mul_ps(_mm256_set1_ps(-1.5957691216f), _mm256_add_ps(x, cube)));
}

void avx2_gelu(float *y, const float *x, int n, enum gelu kind)
{
    for (int i = 0; i < n; i += 8) {
        __m256 v = load_tail(x + i, n - i);
        if (kind == GELU_ERF)
            v = gelu_erf(v);
        else if (kind == GELU_TANH)
            v = gelu_tanh(v);
        else
            v = over_exp(v, _mm256_mul_ps(_mm256_set1_ps(-1.702f), v));
        store_tail(y + i, n - i, v);
    }
}

static void rope_half(float *x, const float *c, const float *s, int half)
{
    for (int i = 0; i < half; i += 8) {
        int left = half - i;
        __m256 a = load_tail(x + i, left), b = load_tail(x + half + i, left);
        __m256 cc = load_tail(c + i, left), ss = load_tail(s + i, left);
        __m256 first = _mm256_sub_ps(_mm256_mul_ps(a, cc), _mm256_mul_ps(b, ss));
        __m256 second = _mm256_add_ps(_mm256_mul_ps(b, cc), _mm256_mul_ps(a, ss));
        store_tail(x + i, left, first);
        store_tail(x + half + i, left, second);
    }
}

// Four pairs a vector: cos and sin are doubled, and the partner of each element is its neighbour.
static void rope_adjacent(float *x, const float *c, const float *s, int half)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (int i = 0; i < half; i += 4) {
        int left = half - i;
        __m256 v = load_tail(x + 2 * i, 2 * left);
        __m256 cc = _mm256_permutevar8x32_ps(load_tail(c + i, left < 4 ? left : 4), twice);
        __m256 ss = _mm256_permutevar8x32_ps(load_tail(s + i, left < 4 ? left : 4), twice);
        __m256 partner = _mm256_permute_ps(v, 0xb1);
        v = _mm256_addsub_ps(_mm256_mul_ps(v, cc), _mm256_mul_ps(partner, ss));
        store_tail(x + 2 * i, 2 * left, v);
    }
}

void avx2_rope(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs)
{
    if (pairs == ROPE_HALF)
        rope_half(x, cos, sin, n / 2);
    else
        rope_adjacent(x, cos, sin, n / 2);
}

// MAXPS returns its second operand when one is a NaN: the running maximum stays.
float avx2_max(const float *x, int n)
{
    __m256 m[4];
    for (int j = 0; j < 4; j++)
        m[j] = _mm256_set1_ps(-INFINITY);
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++)
            m[j] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * j), m[j]);
    }
    float lanes[8], top = -INFINITY;
    _mm256_storeu_ps(lanes, _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
    for (int j = 0; j < 8; j++)
        top = lanes[j] > top ? lanes[j] : top;
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

// Where the maximum first is. Nothing is above minus infinity when there are only NaN and minus infinity: 0.
int avx2_argmax(const float *x, int n)
{
    float top = avx2_max(x, n);
    if (top == -INFINITY)
        return 0;
    __m256 t = _mm256_set1_ps(top);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), t, _CMP_EQ_OQ));
        if (hit)
            return i + __builtin_ctz((unsigned)hit);
    }
    while (i < n && x[i] != top)
        i++;
    return i;
}

double avx2_sum_exp(const float *x, int n, float max)
{
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    __m256 top = _mm256_set1_ps(max);
    for (int i = 0; i < n; i += 8) {
        __m256 v = exp8(_mm256_sub_ps(load_tail(x + i, n - i), top));
        if (n - i < 8)
            v = _mm256_and_ps(v, _mm256_castsi256_ps(tail_mask(n - i)));
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
    }
    __m256d p = _mm256_add_pd(low, high);  // p0 + p4, p1 + p5, p2 + p6, p3 + p7
    __m128d q = _mm_add_pd(_mm256_castpd256_pd128(p), _mm256_extractf128_pd(p, 1));
    return _mm_cvtsd_f64(q) + _mm_cvtsd_f64(_mm_unpackhi_pd(q, q));
}

static void store_f16(uint8_t *dst, const float *src, int n)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) {
        uint16_t h = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
        memcpy(dst + 2 * i, &h, 2);
    }
}

static inline float absolute_max(__m256i m)  // of 8 numbers without their sign bits; a NaN is above all
{
    __m128i v = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_max_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(v));
}

static void store_q8(uint8_t *dst, const float *src, int n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    int8_t *q = (int8_t *)dst + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    for (int b = 0; b < n; b += 32, dst += 2) {
        int len = n - b < 32 ? n - b : 32;
        __m256i m = _mm256_setzero_si256();
        for (int i = 0; i < len; i += 8)
            m = _mm256_max_epi32(m, _mm256_and_si256(magnitude, _mm256_castps_si256(load_tail(src + b + i, len - i))));
        uint16_t h = _cvtss_sh(absolute_max(m) / 127, _MM_FROUND_TO_NEAREST_INT);
        memcpy(dst, &h, 2);
        float d = _cvtsh_ss(h);
        __m256 inverse = _mm256_set1_ps(d > 0 ? 1 / d : 0);
        for (int i = 0; i < len; i += 8) {
            __m256 v = _mm256_mul_ps(load_tail(src + b + i, len - i), inverse);
            v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(-127)), _mm256_set1_ps(127));
            int32_t r[8];
            _mm256_storeu_si256((__m256i *)r, _mm256_cvtps_epi32(v));
            for (int j = 0; j < 8 && j < len - i; j++)
                q[b + i + j] = (int8_t)r[j];
        }
    }
}

void avx2_kv_store(void *dst, const float *src, int n, enum kv_type kv)
{
    if (kv == KV_F32)
        memcpy(dst, src, 4 * (size_t)n);
    else if (kv == KV_F16)
        store_f16(dst, src, n);
    else
        store_q8(dst, src, n);
}

const struct cpu_ops avx2_ops = {
    .isa = "avx2", .peak_sums = avx2_peak_sums, .mat = &avx2_mat_ops, .attn = avx2_attn, .attn_join = avx2_attn_join,
    AVX2_FLOAT_OPS,
};
