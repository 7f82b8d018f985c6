// ref.c - every operation in plain scalar C: the definition the instruction sets are compared with, bit for bit.
//
// Fused multiply-add happens where fmaf is written and nowhere else. Sums that SIMD keeps in 8 lanes are 8 sums here,
// joined by one tree. Denormal numbers are left on everywhere (no thread sets FTZ or DAZ): one mode for every thread and
// for the compiler's own arithmetic, and the kernels' inputs hold no denormals worth the difference.
// Any lane; no state.
#include "kernels/cpu/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/attn.h"
#include "kernels/cpu/wave.h"
#include "kernels/quant/bits.h"

static float tree8(const float *p)
{
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
}

// x = n ln2 + r (Cody and Waite's two-part ln2), e^r by its Taylor polynomial of degree 7. The power of two is applied as
// 2^(n-1) * 2, so that the largest results do not pass through an infinite factor; nothing passes through a denormal
// number, so code for negative x may apply 2^n at once. A NaN gives a NaN.
float ref_exp(float x)
{
    if (x != x)
        return x;
    if (x < -86.6f)
        return 0;
    if (x > 88.722839f)
        return INFINITY;
    float n = rintf(x * 1.44269504f);
    float r = fmaf(n, -0.693145751953125f, x);
    r = fmaf(n, -1.42860682e-6f, r);
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1);
    p = fmaf(p, r, 1);
    uint32_t bits = (uint32_t)((int)n - 1 + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale * 2;
}

static void rmsnorm(float *y, const float *x, const float *w, int n, float eps, float add)
{
    float p[8] = {0};
    for (int i = 0; i < n; i++)
        p[i % 8] = fmaf(x[i], x[i], p[i % 8]);
    float scale = 1 / sqrtf(tree8(p) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = w ? x[i] * scale * (w[i] + add) : x[i] * scale;
}

static void layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    float p[8] = {0};
    for (int i = 0; i < n; i++)
        p[i % 8] += x[i];
    float mean = tree8(p) / (float)n;
    memset(p, 0, sizeof p);
    for (int i = 0; i < n; i++)
        p[i % 8] = fmaf(x[i] - mean, x[i] - mean, p[i % 8]);
    float scale = 1 / sqrtf(tree8(p) / (float)n + eps);
    for (int i = 0; i < n; i++) {
        float v = (x[i] - mean) * scale * w[i];
        y[i] = b ? v + b[i] : v;
    }
}

static void add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += x[i];
}

static void silu(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = x[i] / (1 + ref_exp(-x[i]));
}

// x/2 (1 + erf(x / sqrt 2)) by h = |x|/2 erfc(|x| / sqrt 2), which is what is missing to x or to 0. erfc(a) = exp(a R(a))
// with R of degree 7 fitted on [0, 4] (error 2e-8); past 4, h is below half a unit in the last place of x.
static float gelu_erf(float x)
{
    float a = fabsf(x) * 0.70710678f, half = 0.5f * x;
    float r = -2.36511532e-5f;
    r = fmaf(r, a, 2.43797374e-4f);
    r = fmaf(r, a, -8.17703665e-4f);
    r = fmaf(r, a, -8.96338664e-4f);
    r = fmaf(r, a, 1.99079961e-2f);
    r = fmaf(r, a, -0.103073403f);
    r = fmaf(r, a, -0.636563361f);
    r = fmaf(r, a, -1.12838292f);
    float h = a > 4 ? 0 : ref_exp(a * r) * half;
    return x > 0 ? x - h : h;
}

static float gelu_one(float x, enum gelu kind)
{
    if (kind == GELU_QUICK)
        return x / (1 + ref_exp(-1.702f * x));
    if (kind == GELU_TANH)  // x/2 (1 + tanh(u)) = x / (1 + exp(-2u))
        return x / (1 + ref_exp(-1.5957691216f * (x + 0.044715f * x * x * x)));
    return gelu_erf(x);
}

static void gelu(float *y, const float *x, int n, enum gelu kind)
{
    for (int i = 0; i < n; i++)
        y[i] = gelu_one(x[i], kind);
}

static void silu_mul(float *y, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = gate[i] / (1 + ref_exp(-gate[i])) * up[i];
}

static void sigmoid_mul(float *y, const float *gate, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = y[i] / (1 + ref_exp(-gate[i]));
}

static void conv_silu(float *y, const float *const *x, const float *const *w, int taps, int n)
{
    for (int i = 0; i < n; i++) {
        float s = w[0][i] * x[0][i];
        for (int j = 1; j < taps; j++)
            s = fmaf(w[j][i], x[j][i], s);
        y[i] = s / (1 + ref_exp(-s));
    }
}

static void gdn_column(const struct gdn_args *a, int row, int col)
{
    const float *q = a->q + (size_t)row * (size_t)a->ldqk, *k = a->k + (size_t)row * (size_t)a->ldqk;
    float decay = a->decay[(size_t)row * (size_t)a->ldg], beta = a->beta[(size_t)row * (size_t)a->ldg];
    float *s = a->state + col, read = 0, o = 0;
    for (int i = 0; i < a->k_dim; i++)
        read = fmaf(s[i * GDN_COLS], k[i], read);
    float d = beta * (a->v[(size_t)row * (size_t)a->ldv + (size_t)col] - decay * read);
    for (int i = 0; i < a->k_dim; i++) {
        s[i * GDN_COLS] = fmaf(k[i], d, decay * s[i * GDN_COLS]);
        o = fmaf(s[i * GDN_COLS], q[i], o);
    }
    a->out[(size_t)row * (size_t)a->ldo + (size_t)col] = o;
}

static void gdn(const struct gdn_args *a)
{
    for (int row = 0; row < a->rows; row++) {
        for (int col = 0; col < a->cols; col++)
            gdn_column(a, row, col);
    }
}

static void rope(float *x, const float *c, const float *s, int n, enum rope_pairs pairs)
{
    int half = n / 2;
    for (int i = 0; i < half; i++) {
        float *a = pairs == ROPE_HALF ? x + i : x + 2 * i, *b = pairs == ROPE_HALF ? a + half : a + 1;
        float x0 = *a, x1 = *b;
        *a = x0 * c[i] - x1 * s[i];
        *b = x1 * c[i] + x0 * s[i];
    }
}

static float max(const float *x, int n)
{
    float m = -INFINITY;
    for (int i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static int argmax(const float *x, int n)
{
    int best = 0;
    float m = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (x[i] > m) {
            m = x[i];
            best = i;
        }
    }
    return best;
}

static double sum_exp(const float *x, int n, float top)
{
    double p[8] = {0};
    for (int i = 0; i < n; i++)
        p[i % 8] += (double)ref_exp(x[i] - top);
    return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
}

// ---- keys and values

static void store_q8(uint8_t *dst, const float *src, int n)
{
    int8_t *q = (int8_t *)dst + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    for (int b = 0; b < n; b += 32, dst += 2) {
        int len = n - b < 32 ? n - b : 32;
        uint32_t top = 0;
        for (int i = 0; i < len; i++) {
            uint32_t bits;
            memcpy(&bits, &src[b + i], 4);
            bits &= 0x7fffffff;
            top = bits > top ? bits : top;
        }
        float amax, d = 0, inverse = 0;
        memcpy(&amax, &top, 4);
        uint16_t h = quant_f32_to_f16(amax / 127);
        memcpy(dst, &h, 2);
        d = quant_f16_to_f32(h);
        inverse = d > 0 ? 1 / d : 0;
        for (int i = 0; i < len; i++) {
            float v = src[b + i] * inverse;
            v = v > -127 ? v : -127;  // also what a NaN becomes
            v = v < 127 ? v : 127;
            q[b + i] = (int8_t)rintf(v);
        }
    }
}

static void kv_store(void *dst, const float *src, int n, enum kv_type kv)
{
    if (kv == KV_F32) {
        memcpy(dst, src, 4 * (size_t)n);
    } else if (kv == KV_Q8) {
        store_q8(dst, src, n);
    } else {
        uint8_t *p = dst;
        for (int i = 0; i < n; i++) {
            uint16_t h = quant_f32_to_f16(src[i]);
            memcpy(p + 2 * i, &h, 2);
        }
    }
}

static void kv_load(float *dst, const void *src, int n, enum kv_type kv)
{
    const uint8_t *p = src;
    uint16_t h;
    if (kv == KV_F32) {
        memcpy(dst, src, 4 * (size_t)n);
        return;
    }
    const int8_t *q = (const int8_t *)p + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    for (int i = 0; i < n; i++) {
        memcpy(&h, p + 2 * (kv == KV_F16 ? i : i / 32), 2);
        dst[i] = kv == KV_F16 ? quant_f16_to_f32(h) : quant_f16_to_f32(h) * (float)q[i];
    }
}

// ---- attention

// softcap * tanh(s / softcap), by tanh(x) = 1 - 2 / (e^2x + 1).
static float capped(float s, float cap)
{
    return cap == 0 ? s : cap * (1 - 2 / (ref_exp(2 * (s / cap)) + 1));
}

// Scores of the keys lo..hi (exclusive) of the piece at `piece`; the others are minus infinity. `row` holds a key as
// numbers and one as it is stored.
static void scores(const struct attn_args *a, const float *q, int piece, int lo, int hi, float *s, float *row)
{
    for (int j = 0; j < KV_PIECE; j++) {
        s[j] = -INFINITY;
        if (piece + j < lo || piece + j >= hi)
            continue;
        float *stored = row + a->head_dim, sum = 0;
        kv_get_key(attn_piece(a, a->k_off, piece), j, stored, a->head_dim, a->kv);
        kv_load(row, stored, a->head_dim, a->kv);
        for (int d = 0; d < a->head_dim; d++)
            sum = fmaf(q[d], row[d], sum);
        s[j] = capped(sum, a->softcap);
    }
}

// One row and head over the keys lo..hi of one segment, into the first state of s.
static void attend(const struct attn_args *a, const float *q, int lo, int hi, const struct attn_scratch *s)
{
    float top = -INFINITY, sum = 0, p[KV_PIECE];
    for (int d = 0; d < a->head_dim; d++) {
        s->acc[d] = 0;
        s->q[d] = q[d] * a->scale;
    }
    for (int piece = lo / KV_PIECE * KV_PIECE; piece < hi; piece += KV_PIECE) {
        scores(a, s->q, piece, lo, hi, p, s->k);
        float m = max(p, KV_PIECE), lanes[16] = {0}, half[8];
        m = top > m ? top : m;
        float scale = ref_exp(top - m);
        top = m;
        for (int j = 0; j < KV_PIECE; j++) {
            p[j] = ref_exp(p[j] - m);
            lanes[j % 16] += p[j];
        }
        for (int j = 0; j < 8; j++)
            half[j] = lanes[j] + lanes[j + 8];
        sum = fmaf(sum, scale, tree8(half));
        for (int d = 0; d < a->head_dim; d++)
            s->acc[d] *= scale;
        for (int j = 0; j < KV_PIECE; j++) {
            if (piece + j < lo || piece + j >= hi)
                continue;
            const uint8_t *value = attn_piece(a, a->v_off, piece) + (size_t)j * kv_row_bytes(a->kv, a->head_dim);
            kv_load(s->v, value, a->head_dim, a->kv);
            for (int d = 0; d < a->head_dim; d++)
                s->acc[d] = fmaf(p[j], s->v[d], s->acc[d]);
        }
    }
    s->max[0] = top;
    s->sum[0] = sum;
}

// Takes one more segment into a row's (out, *top, *sum).
static void join(float *out, float *top, float *sum, const float *acc, float segment_max, float segment_sum, int head_dim)
{
    float m = *top > segment_max ? *top : segment_max, x = ref_exp(*top - m), y = ref_exp(segment_max - m);
    for (int d = 0; d < head_dim; d++)
        out[d] = fmaf(out[d], x, acc[d] * y);
    *sum = fmaf(*sum, x, segment_sum * y);
    *top = m;
}

static void attn_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    float top = parts[head_dim], sum = parts[head_dim + 1];
    memcpy(out, parts, sizeof(float) * (size_t)head_dim);
    for (int i = 1; i < n; i++) {
        const float *p = parts + (size_t)i * (size_t)ld;
        join(out, &top, &sum, p, p[head_dim], p[head_dim + 1], head_dim);
    }
    float inverse = 1 / sum;
    for (int d = 0; d < head_dim; d++)
        out[d] *= inverse;
}

static void attn_state(const struct attn_args *a, const float *q, float *out, int pos, int h, const struct attn_scratch *s)
{
    int lo = attn_first_key(a, pos), first = lo / KV_SEGMENT, end = pos / KV_SEGMENT + 1, ld = a->head_dim + 2;
    for (int seg = a->parts ? a->seg0 : first; seg < (a->parts ? a->seg1 : end); seg++) {
        int from = seg * KV_SEGMENT, to = from + KV_SEGMENT;
        attend(a, q, from < lo ? lo : from, to < pos + 1 ? to : pos + 1, s);
        if (a->parts) {
            float *part = a->parts + (size_t)((seg - a->seg0) * a->group + h) * (size_t)ld;
            memcpy(part, s->acc, sizeof(float) * (size_t)a->head_dim);
            part[a->head_dim] = s->max[0];
            part[a->head_dim + 1] = s->sum[0];
        } else if (seg == first) {
            memcpy(out, s->acc, sizeof(float) * (size_t)a->head_dim);
            s->all_max[0] = s->max[0];
            s->all_sum[0] = s->sum[0];
        } else {
            join(out, s->all_max, s->all_sum, s->acc, s->max[0], s->sum[0], a->head_dim);
        }
    }
    float inverse = 1 / s->all_sum[0];
    for (int d = 0; d < a->head_dim && !a->parts; d++)
        out[d] *= inverse;
}

static void attn(const struct attn_args *a)
{
    struct attn_scratch s = attn_lay_out(a->scratch, a->group, a->head_dim);
    struct attn_args one = *a;
    for (int kv = 0; kv < (a->heads > 1 ? a->heads : 1); kv++) {
        one.k_off = a->k_off + (size_t)kv * a->head_step;
        one.v_off = a->v_off + (size_t)kv * a->head_step;
        for (int i = 0; i < a->rows * a->group; i++) {
            int row = i / a->group, h = i % a->group;
            size_t at = (size_t)(kv * a->group + h) * (size_t)a->head_dim;
            attn_state(&one, a->q + (size_t)row * (size_t)a->ldq + at, a->out + (size_t)row * (size_t)a->ldo + at,
                       a->pos0 + row, h, &s);
        }
    }
}

// One row of plain attention.
static void mha_row(const struct mha_args *a, int row, const struct mha_scratch *s)
{
    int dim = a->head_dim, end = a->causal && a->pos0 + row + 1 < a->keys ? a->pos0 + row + 1 : a->keys;
    float top = -INFINITY, sum = 0, p[MHA_PIECE];
    memset(s->acc, 0, sizeof(float) * (size_t)dim);
    for (int d = 0; d < dim; d++)
        s->q[d] = a->q[(size_t)row * (size_t)a->ldq + (size_t)d] * a->scale;
    for (int piece = 0; piece < end; piece += MHA_PIECE) {
        int n = end - piece < MHA_PIECE ? end - piece : MHA_PIECE;
        for (int j = 0; j < n; j++) {
            p[j] = 0;
            for (int d = 0; d < dim; d++)
                p[j] = fmaf(s->q[d], a->k[(size_t)(piece + j) * (size_t)a->ldk + (size_t)d], p[j]);
        }
        float m = max(p, n), lanes[8] = {0};
        m = top > m ? top : m;
        float scale = ref_exp(top - m);
        top = m;
        for (int j = 0; j < n; j++) {
            p[j] = ref_exp(p[j] - m);
            lanes[j % 8] += p[j];
        }
        sum = fmaf(sum, scale, tree8(lanes));
        for (int d = 0; d < dim; d++) {
            s->acc[d] *= scale;
            for (int j = 0; j < n; j++)
                s->acc[d] = fmaf(p[j], a->v[(size_t)(piece + j) * (size_t)a->ldv + (size_t)d], s->acc[d]);
        }
    }
    float inverse = 1 / sum;
    for (int d = 0; d < dim; d++)
        a->out[(size_t)row * (size_t)a->ldo + (size_t)d] = s->acc[d] * inverse;
}

static void mha(const struct mha_args *a)
{
    struct mha_scratch s = attn_mha_lay_out(a->scratch, a->rows, a->head_dim);
    for (int i = 0; i < a->rows; i++)
        mha_row(a, i, &s);
}

// ---- matrices

static void quantize_block(const float *x, int8_t *q, float *ret_d)
{
    uint32_t top = 0;
    for (int i = 0; i < MAT_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;  // as integers: a NaN is above everything and stays
    }
    float amax;
    memcpy(&amax, &top, 4);
    bool tiny = amax < 1e-30f;
    float inverse = tiny ? 0 : 127 / amax;
    *ret_d = tiny ? 0 : amax / 127;
    for (int i = 0; i < MAT_BLOCK; i++) {
        float v = x[i] * inverse;
        q[i] = (int8_t)rintf(v > -127 ? v : -127);  // also what a NaN becomes
    }
}

static int32_t pair_sums(const int8_t *q)  // of 16
{
    int even = 0, odd = 0;
    for (int i = 0; i < 16; i++) {
        if (i % 4 < 2)
            even += q[i];
        else
            odd += q[i];
    }
    return (int32_t)((uint32_t)(even & 0xffff) | (uint32_t)odd << 16);
}

static void quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                     int32_t *pairs)
{
    for (int b = 0; b < nblocks; b++) {
        int8_t *to = q + (size_t)b * (size_t)stride * MAT_BLOCK;
        size_t at = (size_t)b * (size_t)stride;
        quantize_block(x + b * MAT_BLOCK, to, &d[at]);
        int sum = 0;
        for (int i = 0; i < MAT_BLOCK; i++)
            sum += to[i];
        sums[at] = sum;
        sx[at] = d[at] * (float)sum;
        pairs[2 * at] = pair_sums(to);
        pairs[2 * at + 1] = pair_sums(to + 16);
    }
}

// One block's step of the chain of (row, token).
static float step(float acc, const struct mat_codes *c, const int8_t *x, float dx)
{
    int isum[2] = {0}, sum[2] = {0};
    for (int i = 0; i < MAT_BLOCK; i++) {
        isum[i / 16] += c->v[i] * x[i];
        sum[i / 16] += x[i];
    }
    if (c->split) {
        acc = fmaf(dx * (float)isum[0], c->d[0], acc);
        return fmaf(dx * (float)isum[1], c->d[1], acc);
    }
    acc = fmaf(dx * (float)(isum[0] * c->s[0] + isum[1] * c->s[1]), c->d[0], acc);
    if (c->has_min)
        acc = fmaf(-c->min, dx * (float)(sum[0] * c->m[0] + sum[1] * c->m[1]), acc);
    return acc;
}

// Tokens of one tile for one row.
static void row_tile(const struct mat *m, const struct acts *a, int row, int tile, float *acc)
{
    int block = m->block, n = acts_tile(a, tile);
    size_t bytes = (size_t)m->record, base = acts_base(a, tile);
    const uint8_t *p = m->data + (size_t)(row / MAT_GROUP) * (size_t)(m->cols / block) * bytes;
    struct mat_codes c;
    for (int b = 0; b < m->cols / MAT_BLOCK; b++) {
        int k = b * MAT_BLOCK;
        mat_pack_codes(m, p + (size_t)(k / block) * bytes, k % block / MAT_BLOCK, row % MAT_GROUP, &c);
        for (int t = 0; t < n; t++) {
            size_t at = base + (size_t)b * (size_t)n + (size_t)t;
            acc[t] = step(acc[t], &c, a->q + at * MAT_BLOCK, a->d[at]);
        }
    }
}

void ref_mat_int8(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1, enum mat_write write)
{
    int last = g1 * MAT_GROUP < m->rows ? g1 * MAT_GROUP : m->rows;
    for (int row = g0 * MAT_GROUP; row < last; row++) {
        for (int tile = 0; tile * ACT_TILE < a->n; tile++) {
            float acc[ACT_TILE] = {0};
            row_tile(m, a, row, tile, acc);
            for (int t = 0; t < acts_tile(a, tile); t++) {
                float *to = y + (size_t)(tile * ACT_TILE + t) * (size_t)ldy + row;
                *to = write == MAT_ADD ? *to + acc[t] : acc[t];
            }
        }
    }
}

void ref_mat_panel(const struct mat *m, const uint8_t *record, float *dst)
{
    struct mat_codes c;
    for (int b = 0; b < m->block / MAT_BLOCK; b++, dst += MAT_BLOCK * MAT_WIDE) {
        for (int r = 0; r < MAT_GROUP; r++) {
            mat_pack_codes(m, record, b, r, &c);
            for (int i = 0; i < MAT_BLOCK; i++) {
                float v = c.d[i / 16] * (float)c.s[i / 16] * (float)c.v[i];
                dst[i * MAT_WIDE + r] = c.has_min ? v - c.min * (float)c.m[i / 16] : v;
            }
        }
    }
}

typedef float load_fn(const void *w, size_t i);

static float load_f32(const void *w, size_t i)
{
    return ((const float *)w)[i];
}

static float load_f16(const void *w, size_t i)
{
    return quant_f16_to_f32(((const uint16_t *)w)[i]);
}

static float load_bf16(const void *w, size_t i)
{
    uint32_t bits = (uint32_t)((const uint16_t *)w)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void chain(load_fn *load, float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n,
                  int k)
{
    for (int i = 0; i < k; i++) {
        for (int r = 0; r < 8 * ng; r++) {
            float v = load(w, (size_t)i * (size_t)width + (size_t)r);
            for (int t = 0; t < n; t++)
                acc[t * ldacc + r] = fmaf(v, x[(size_t)t * (size_t)ldx + (size_t)i], acc[t * ldacc + r]);
        }
    }
}

static void chain_f32(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    chain(load_f32, acc, ldacc, w, width, ng, x, ldx, n, k);
}

static void chain_f16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    chain(load_f16, acc, ldacc, w, width, ng, x, ldx, n, k);
}

static void chain_bf16(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k)
{
    chain(load_bf16, acc, ldacc, w, width, ng, x, ldx, n, k);
}

static void pairs(float *acc, int ldacc, const void *w, int width, int ng, const uint16_t *x, int ldx, int n, int n_pairs)
{
    for (int t = 0; t < n; t++, acc += ldacc, x += ldx) {
        for (int i = 0; i < n_pairs; i++) {
            const uint16_t *row = (const uint16_t *)w + (size_t)i * (size_t)width * 2;
            for (int r = 0; r < 8 * ng; r++) {
                acc[r] = fmaf(load_bf16(row, (size_t)(2 * r + 1)), load_bf16(x, (size_t)(2 * i + 1)), acc[r]);
                acc[r] = fmaf(load_bf16(row, (size_t)(2 * r)), load_bf16(x, (size_t)(2 * i)), acc[r]);
            }
        }
    }
}

static void to_bf16(const float *x, int n, uint16_t *dst)
{
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        bool nan = (u & 0x7fffffff) > 0x7f800000;
        dst[i] = bf16_kept((uint16_t)(nan ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16));
    }
    if (n % 2)
        dst[n] = 0;
}

// ---- ceilings

static double peak_fma(long rounds)
{
    float a[8] = {0}, b = 1;
    for (long i = 0; i < rounds; i++) {
        for (int j = 0; j < 8; j++)
            a[j] = fmaf(a[j], 0.5f, b);
        __asm__ volatile("" : "+m"(a));
    }
    return (double)rounds * 8 * 2;
}

static double peak_int8(long rounds)
{
    int8_t x[32] = {1, 2, 3}, w[32] = {4, 5, 6};
    for (long i = 0; i < rounds; i++) {
        int sum = 0;
        __asm__ volatile("" : "+m"(x), "+m"(w));
        for (int j = 0; j < 32; j++)
            sum += x[j] * w[j];
        __asm__ volatile("" : : "r"(sum));
    }
    return (double)rounds * 32 * 2;
}

static uint64_t peak_read(const uint8_t *p, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v;
        memcpy(&v, p + i, 8);
        sum ^= v;
    }
    return sum;
}

const struct mat_ops ref_mat_ops = {
    .quantize = quantize,
    .chain_f32 = chain_f32,
    .chain_f16 = chain_f16,
    .chain_bf16 = chain_bf16,
    .pairs = pairs,
    .to_bf16 = to_bf16,
    .peak_fma = peak_fma,
    .peak_int8 = peak_int8,
    .peak_read = peak_read,
};

const struct cpu_ops ref_ops = {
    .isa = "scalar",
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .add = add,
    .silu_mul = silu_mul,
    .silu = silu,
    .gelu = gelu,
    .sigmoid_mul = sigmoid_mul,
    .conv_silu = conv_silu,
    .gdn = gdn,
    .rope = rope,
    .max = max,
    .argmax = argmax,
    .sum_exp = sum_exp,
    .kv_store = kv_store,
    .attn = attn,
    .attn_join = attn_join,
    .mha = mha,
    .snake = wave_snake,
    .depthwise = wave_depthwise,
    .mat = &ref_mat_ops,
    .conv = &ref_conv_ops,
};
