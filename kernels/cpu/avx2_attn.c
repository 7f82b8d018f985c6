// avx2_attn.c - attention with AVX2, equal to ref.c's bit for bit. Any lane; memory is the caller's scratch.
//
// Up to 32 (row, head) states of one KV head walk the keys together: scores in tiles of up to 3 states x 4 keys, values
// in tiles of up to 3 heads x 4 vectors. With many states a piece of 32 keys and values is widened to f32 in scratch (L1)
// once for all of them; a few states read f16 in place, where widening costs no more than loading. Values that a row
// must not see are never read for it; keys and values that no row of the call may see are not read at all.
#include <math.h>
#include <string.h>

#include "kernels/cpu/attn.h"
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86_exp.h"

#define INLINE static inline __attribute__((always_inline))

// ---- widening keys and values

static void widen_f16(float *dst, const uint8_t *src, int n, int pad)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + 2 * i))));
    for (; i < pad; i++) {
        uint16_t h = 0;
        if (i < n)
            memcpy(&h, src + 2 * i, 2);
        dst[i] = _cvtsh_ss(h);
    }
}

static void widen_q8(float *dst, const uint8_t *src, int n, int pad)
{
    const uint8_t *q = src + kv_row_bytes(KV_Q8, n) - ((size_t)(n + 3) & ~(size_t)3);
    uint16_t h;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&h, src + i / 32 * 2, 2);
        __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(q + i))));
        _mm256_storeu_ps(dst + i, _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(h)), v));
    }
    for (; i < pad; i++) {
        dst[i] = 0;
        if (i < n) {
            memcpy(&h, src + i / 32 * 2, 2);
            dst[i] = _cvtsh_ss(h) * (float)(int8_t)q[i];
        }
    }
}

static const uint8_t *row_at(const struct attn_args *a, int pos, size_t off)
{
    size_t at = (size_t)(pos % a->page_tokens) * kv_row_bytes(a->kv, a->head_dim);
    return (const uint8_t *)a->pages[pos / a->page_tokens] + off + at;
}

// Positions lo..hi of the piece at `piece` into dst [KV_PIECE][pad]. Rows of one page follow each other.
static void widen(const struct attn_args *a, float *dst, size_t off, int piece, int lo, int hi, int pad)
{
    size_t step = kv_row_bytes(a->kv, a->head_dim);
    const uint8_t *src = NULL;
    for (int pos = lo; pos < hi; pos++, src += step) {
        float *to = dst + (pos - piece) * pad;
        if (!src || pos % a->page_tokens == 0)
            src = row_at(a, pos, off);
        if (a->kv == KV_F16) {
            widen_f16(to, src, a->head_dim, pad);
        } else if (a->kv == KV_Q8) {
            widen_q8(to, src, a->head_dim, pad);
        } else {
            memcpy(to, src, sizeof(float) * (size_t)a->head_dim);
            memset(to + a->head_dim, 0, sizeof(float) * (size_t)(pad - a->head_dim));
        }
    }
}

// A piece's keys or values as they are read: in the page, or widened in scratch.
struct rows {
    const uint8_t *base;  // of the piece's first position
    size_t stride;
    bool half;
};

enum { FEW_STATES = 6 };

static struct rows piece_rows(const struct attn_args *a, float *scratch, size_t off, int piece, int lo, int hi, int pad,
                              int states)
{
    bool whole = a->head_dim == pad;  // no padding needed
    if (whole && (a->kv == KV_F32 || (a->kv == KV_F16 && states <= FEW_STATES)))
        return (struct rows){row_at(a, piece, off), kv_row_bytes(a->kv, a->head_dim), a->kv == KV_F16};
    widen(a, scratch, off, piece, lo, hi, pad);
    return (struct rows){(const uint8_t *)scratch, sizeof(float) * (size_t)pad, false};
}

INLINE __m256 load8(bool half, const uint8_t *row, int d)
{
    if (half)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 2 * d)));
    return _mm256_loadu_ps((const float *)(const void *)row + d);
}

// ---- scores

// tree8 of four vectors at once.
INLINE __m128 trees(const __m256 v[4])
{
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(v[0], v[1], 0x20), _mm256_permute2f128_ps(v[0], v[1], 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(v[2], v[3], 0x20), _mm256_permute2f128_ps(v[2], v[3], 0x31));
    // Lanes are now p0+p4, p1+p5, p2+p6, p3+p7 of a | b and of c | d.
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    // (p0+p4)+(p2+p6), (p1+p5)+(p3+p7) of a, c | b, d.
    s = _mm256_add_ps(s, _mm256_movehdup_ps(s));
    __m256 even = _mm256_permutevar8x32_ps(s, _mm256_setr_epi32(0, 4, 2, 6, 0, 0, 0, 0));
    return _mm256_castps256_ps128(even);
}

// Dot products of nh queries (pad floats apart) with 4 keys; s is [state][KV_PIECE].
INLINE void dots(bool half, int nh, const float *q, const uint8_t *const k[4], int pad, float *s)
{
    __m256 acc[3][4];
    for (int h = 0; h < nh; h++) {
        for (int j = 0; j < 4; j++)
            acc[h][j] = _mm256_setzero_ps();
    }
    for (int d = 0; d < pad; d += 8) {
        __m256 kv[4];
        for (int j = 0; j < 4; j++)
            kv[j] = load8(half, k[j], d);
        for (int h = 0; h < nh; h++) {
            __m256 v = _mm256_loadu_ps(q + h * pad + d);
            for (int j = 0; j < 4; j++)
                acc[h][j] = _mm256_fmadd_ps(v, kv[j], acc[h][j]);
        }
    }
    for (int h = 0; h < nh; h++)
        _mm_storeu_ps(s + h * KV_PIECE, trees(acc[h]));
}

// Scores of n states with the keys first..last of the piece, in fours; a four that is not full repeats a key, and what
// it gives is masked by every row.
INLINE void score(bool half, const struct attn_scratch *s, const struct rows *keys, int pad, int n, int first, int last)
{
    for (int j = first & ~3; j < last; j += 4) {
        const uint8_t *k[4];
        for (int c = 0; c < 4; c++) {
            int at = j + c < first ? first : j + c >= last ? last - 1 : j + c;
            k[c] = keys->base + (size_t)at * keys->stride;
        }
        int i = 0;
        for (; i + 3 <= n; i += 3)
            dots(half, 3, s->q + i * pad, k, pad, s->p + i * KV_PIECE + j);
        if (n - i == 2)
            dots(half, 2, s->q + i * pad, k, pad, s->p + i * KV_PIECE + j);
        else if (n - i == 1)
            dots(half, 1, s->q + i * pad, k, pad, s->p + i * KV_PIECE + j);
    }
}

INLINE __m256 capped(__m256 s, float cap)
{
    const __m256 one = _mm256_set1_ps(1), two = _mm256_set1_ps(2), c = _mm256_set1_ps(cap);
    __m256 e = exp8(_mm256_mul_ps(two, _mm256_div_ps(s, c)));
    return _mm256_mul_ps(c, _mm256_sub_ps(one, _mm256_div_ps(two, _mm256_add_ps(e, one))));
}

INLINE float max8(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Scales state i's scores; keys outside first..last (of the piece) become minus infinity. Leaves in s->scale by how much
// the running maximum grew, negated.
static void bound(const struct attn_args *a, const struct attn_scratch *s, int i, int first, int last)
{
    const __m256 scale = _mm256_set1_ps(a->scale), none = _mm256_set1_ps(-INFINITY);
    const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    float *p = s->p + i * KV_PIECE;
    __m256 v[4], top = none;
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_mul_ps(_mm256_loadu_ps(p + 8 * j), scale);
        if (a->softcap != 0)
            v[j] = capped(v[j], a->softcap);
    }
    for (int j = 0; j < 4 && (first > 0 || last < KV_PIECE); j++) {
        __m256i at = _mm256_add_epi32(iota, _mm256_set1_epi32(8 * j));
        __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), at),
                                      _mm256_cmpgt_epi32(at, _mm256_set1_epi32(last - 1)));
        v[j] = _mm256_blendv_ps(v[j], none, _mm256_castsi256_ps(out));
    }
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_ps(p + 8 * j, v[j]);
        top = _mm256_max_ps(v[j], top);
    }
    float m = max8(top);
    m = s->max[i] > m ? s->max[i] : m;
    s->scale[i] = s->max[i] - m;
    s->max[i] = m;
}

// State i's scores to weights, and the running sum.
static void soften(const struct attn_scratch *s, int i)
{
    float *p = s->p + i * KV_PIECE;
    __m256 m = _mm256_set1_ps(s->max[i]), sum = _mm256_setzero_ps();
    for (int j = 0; j < 4; j++) {
        __m256 v = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + 8 * j), m));
        _mm256_storeu_ps(p + 8 * j, v);
        sum = _mm256_add_ps(sum, v);
    }
    s->sum[i] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(s->sum[i]), _mm_set_ss(s->scale[i]), _mm_set_ss(tree8(sum))));
}

// ---- values

// nh states x nv vectors of the accumulator over the values first..last.
INLINE void mix(bool half, int nh, int nv, const struct attn_scratch *s, const struct rows *values, int i, int d, int pad,
                int first, int last)
{
    __m256 acc[3][8];
    const float *p = s->p + i * KV_PIECE;
    float *to = s->acc + i * pad + d;
    for (int h = 0; h < nh; h++) {
        for (int c = 0; c < nv; c++)
            acc[h][c] = _mm256_mul_ps(_mm256_loadu_ps(to + h * pad + 8 * c), _mm256_set1_ps(s->scale[i + h]));
    }
    const uint8_t *row = values->base + (size_t)first * values->stride;
    for (int j = first; j < last; j++, row += values->stride) {
        __m256 w[3];
        for (int h = 0; h < nh; h++)
            w[h] = _mm256_set1_ps(p[h * KV_PIECE + j]);
        for (int c = 0; c < nv; c++) {
            __m256 x = load8(half, row, d + 8 * c);
            for (int h = 0; h < nh; h++)
                acc[h][c] = _mm256_fmadd_ps(w[h], x, acc[h][c]);
        }
    }
    for (int h = 0; h < nh; h++) {
        for (int c = 0; c < nv; c++)
            _mm256_storeu_ps(to + h * pad + 8 * c, acc[h][c]);
    }
}

INLINE void mix_all(bool half, int nh, int nv, const struct attn_scratch *s, const struct rows *values, int i, int pad,
                    int first, int last)
{
    int d = 0;
    for (; d + 8 * nv <= pad; d += 8 * nv)
        mix(half, nh, nv, s, values, i, d, pad, first, last);
    for (; d < pad; d += 8)
        mix(half, nh, 1, s, values, i, d, pad, first, last);
}

// n heads of one row: they see the same keys.
INLINE void mix_row(bool half, const struct attn_scratch *s, const struct rows *values, int i, int n, int pad, int first,
                    int last)
{
    int h = 0;
    for (; h + 3 <= n; h += 3)
        mix_all(half, 3, 4, s, values, i + h, pad, first, last);
    if (n - h == 2)
        mix_all(half, 2, 4, s, values, i + h, pad, first, last);
    else if (n - h == 1)
        mix_all(half, 1, 8, s, values, i + h, pad, first, last);
}

// ---- rows

static int first_key(const struct attn_args *a, int pos)
{
    return a->window && pos - a->window + 1 > 0 ? pos - a->window + 1 : 0;
}

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void start(const struct attn_args *a, const struct attn_scratch *s, int row, int rows, int pad)
{
    for (int i = 0; i < rows * a->group; i++) {
        const float *q = a->q + (size_t)(row + i / a->group) * (size_t)a->ldq + (size_t)(i % a->group) * (size_t)a->head_dim;
        memcpy(s->q + i * pad, q, sizeof(float) * (size_t)a->head_dim);
        memset(s->q + i * pad + a->head_dim, 0, sizeof(float) * (size_t)(pad - a->head_dim));
        memset(s->acc + i * pad, 0, sizeof(float) * (size_t)pad);
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
    }
}

// Asks for the next piece's rows while this one is worked on.
static void fetch(const struct attn_args *a, size_t off, int lo, int hi)
{
    if (lo >= hi)
        return;
    const char *p = (const char *)row_at(a, lo, off);
    int rows = a->page_tokens - lo % a->page_tokens < hi - lo ? a->page_tokens - lo % a->page_tokens : hi - lo;
    size_t bytes = (size_t)rows * kv_row_bytes(a->kv, a->head_dim);
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch(p + i, _MM_HINT_T0);
}

// What row `pos` sees of the piece.
static void seen(const struct attn_args *a, int pos, int piece, int *ret_first, int *ret_last)
{
    *ret_first = clamp(first_key(a, pos) - piece, 0, KV_PIECE);
    *ret_last = clamp(pos + 1 - piece, 0, KV_PIECE);
}

static void weigh(const struct attn_args *a, const struct attn_scratch *s, int pos, int rows, int piece)
{
    int n = rows * a->group;
    for (int i = 0; i < n; i += a->group) {
        int first, last;
        seen(a, pos + i / a->group, piece, &first, &last);
        for (int h = 0; h < a->group && first < last; h++)
            bound(a, s, i + h, first, last);
        for (int h = 0; h < a->group && first >= last; h++)
            s->scale[i + h] = 0;  // nothing of this piece: not softened, not mixed
    }
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(s->scale + i, exp8(_mm256_loadu_ps(s->scale + i)));
    for (int i = 0; i < n; i += a->group) {
        int first, last;
        seen(a, pos + i / a->group, piece, &first, &last);
        for (int h = 0; h < a->group && first < last; h++)
            soften(s, i + h);
    }
}

// Rows row .. row + rows with one piece of keys.
static void take_piece(const struct attn_args *a, const struct attn_scratch *s, int row, int rows, int pad, int piece)
{
    int pos = a->pos0 + row, end = pos + rows, n = rows * a->group;
    int lo = clamp(first_key(a, pos), piece, piece + KV_PIECE), hi = clamp(end, piece, piece + KV_PIECE);
    struct rows keys = piece_rows(a, s->k, a->k_off, piece, lo, hi, pad, n);
    fetch(a, a->v_off, lo, hi);
    if (keys.half)
        score(true, s, &keys, pad, n, lo - piece, hi - piece);
    else
        score(false, s, &keys, pad, n, lo - piece, hi - piece);
    weigh(a, s, pos, rows, piece);
    struct rows values = piece_rows(a, s->v, a->v_off, piece, lo, hi, pad, n);
    fetch(a, a->k_off, piece + KV_PIECE, clamp(piece + 2 * KV_PIECE, 0, end));
    for (int i = 0; i < rows; i++) {
        int first, last;
        seen(a, pos + i, piece, &first, &last);
        if (first >= last)
            continue;
        if (values.half)
            mix_row(true, s, &values, i * a->group, a->group, pad, first, last);
        else
            mix_row(false, s, &values, i * a->group, a->group, pad, first, last);
    }
}

static void finish(const struct attn_args *a, const struct attn_scratch *s, int row, int rows, int pad)
{
    for (int i = 0; i < rows * a->group; i++) {
        float *out = a->out + (size_t)(row + i / a->group) * (size_t)a->ldo + (size_t)(i % a->group) * (size_t)a->head_dim;
        float inverse = 1 / s->sum[i];
        for (int d = 0; d < a->head_dim; d++)
            out[d] = s->acc[i * pad + d] * inverse;
    }
}

void avx2_attn(const struct attn_args *a)
{
    struct attn_scratch s = attn_lay_out(a->scratch, a->group, a->head_dim);
    int pad = attn_pad(a->head_dim), most = attn_rows(a->group);
    for (int row = 0; row < a->rows; row += most) {
        int rows = a->rows - row < most ? a->rows - row : most;
        start(a, &s, row, rows, pad);
        for (int piece = first_key(a, a->pos0 + row) / KV_PIECE * KV_PIECE; piece < a->pos0 + row + rows; piece += KV_PIECE)
            take_piece(a, &s, row, rows, pad, piece);
        finish(a, &s, row, rows, pad);
    }
}
