// avx2_mat.c - integer block matrices with AVX2: quantising activations, the kernel for up to three tokens
// (x86_blocks.h), and tiles of 16 rows x 4 tokens for more. Any lane; scratch is on the stack.
//
// The building brick is VPMADDUBSW: unsigned codes times signed activations, summed in pairs to int16. The pairs must not
// saturate (2 * code * 127 <= 32767); sums of them are added in int16 and may wrap, as long as the final value, corrected
// for the code's zero point, fits. Integer sums are exact, so this order of work is free; the float chain is not.
// The empty asm statements keep the compiler from reordering the int16 sums into one long chain and from hoisting all
// broadcasts, which spills registers.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/x86_blocks.h"

INLINE __m256i madd_ones(__m256i s)
{
    return _mm256_madd_epi16(s, _mm256_set1_epi16(1));
}

// ---- activations

static inline void sums_of(__m256i q, int32_t *sum, int32_t *pairs)
{
    __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
    pairs[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(p));
    pairs[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(p, 1));
    __m256i s = madd_ones(p);
    *sum = _mm_cvtsi128_si32(_mm256_castsi256_si128(s)) + _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}

void avx2_mat_quantize(const float *x, int nblocks, int stride, int8_t *q, float *d, float *sx, int32_t *sums,
                   int32_t *pairs)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256 low = _mm256_set1_ps(-127);
    for (int b = 0; b < nblocks; b++, x += MAT_BLOCK) {
        __m256 v[4];
        __m256i m = _mm256_setzero_si256(), r[4];
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
        }
        m = _mm256_max_epi32(m, _mm256_permute2x128_si256(m, m, 1));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0x4e));
        m = _mm256_max_epi32(m, _mm256_shuffle_epi32(m, 0xb1));
        float amax = _mm256_cvtss_f32(_mm256_castsi256_ps(m));
        bool tiny = amax < 1e-30f;
        __m256 inverse = _mm256_set1_ps(tiny ? 0 : 127 / amax);
        for (int i = 0; i < 4; i++)
            r[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_mul_ps(v[i], inverse), low));
        __m256i a = _mm256_packs_epi32(r[0], r[1]), c = _mm256_packs_epi32(r[2], r[3]);
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, c), order);
        size_t at = (size_t)b * (size_t)stride;
        _mm256_storeu_si256((__m256i *)(q + at * MAT_BLOCK), bytes);
        sums_of(bytes, &sums[at], &pairs[2 * at]);
        d[at] = tiny ? 0 : amax / 127;
        sx[at] = d[at] * (float)sums[at];
    }
}

static void widen(const int8_t *q, int nblocks, int stride, int16_t *wide)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8,
                                           9, 12, 13, 10, 11, 14, 15);
    for (int b = 0; b < nblocks; b++, q += 32 * stride, wide += 32 * stride) {
        for (int i = 0; i < 32; i += 16) {
            __m256i v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(q + i)));
            _mm256_storeu_si256((__m256i *)(wide + i), _mm256_shuffle_epi8(v, order));
        }
    }
}

// ---- up to three tokens

INLINE __m256i dot_signed(const __m256i w[8], const int8_t *q)
{
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int j = 0; j < 8; j++) {
        // |w| is at most 128 as an unsigned byte; the sign goes to the activation, which is never -128.
        __m256i s = _mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(broadcast4(q + 4 * j), w[j]));
        sum[j % 2] = _mm256_add_epi32(sum[j % 2], madd_ones(s));
    }
    return _mm256_add_epi32(sum[0], sum[1]);
}

INLINE __m256i dot4(const __m256i *w, const int8_t *q)  // int16, 16 products a lane
{
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], broadcast4(q)), _mm256_maddubs_epi16(w[1], broadcast4(q + 4)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], broadcast4(q + 8)),
                                 _mm256_maddubs_epi16(w[3], broadcast4(q + 12)));
    return _mm256_add_epi16(a, b);
}

static inline __attribute__((always_inline)) __m256i dot(enum quant_type t, const __m256i w[8], const struct scales *s,
                                                         const struct entry *x)
{
    if (is_signed(t))
        return dot_signed(w, x->q);
    __m256i a = dot4(w, x->q), b = dot4(w + 4, x->q + 16), isum;
    if (halved(t)) {
        int shift = t == QUANT_Q6_K ? 5 : 2;
        if (zero_point(t)) {
            a = _mm256_sub_epi16(a, _mm256_slli_epi16(broadcast4(x->pairs), shift));
            b = _mm256_sub_epi16(b, _mm256_slli_epi16(broadcast4(x->pairs + 1), shift));
        }
        return _mm256_add_epi32(_mm256_madd_epi16(a, s->s[0]), _mm256_madd_epi16(b, s->s[1]));
    }
    if (five_bits(t))
        isum = _mm256_add_epi32(madd_ones(a), madd_ones(b));
    else
        isum = madd_ones(_mm256_add_epi16(a, b));
    if (zero_point(t))
        isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(zero_point(t) * x->sum));
    return isum;
}

// ---- tiles: 16 rows x 4 tokens

struct tile {
    __m256i w[16][2];  // codes of k = 4j.. of both groups of 8 rows; of signed types int16: k = 4j, 4j + 2, then the rest
    struct scales scales[2];
};

INLINE void unpack(enum quant_type t, struct tile *to, const uint8_t *record[2], int b, const __m256 d[2],
                   const __m256 m[2], int ahead)
{
    for (int g = 0; g < 2; g++) {
        __m256i w[8];
        const uint8_t *plane = record[g] + head_of(t) + b * step_of(t);
        load_codes(t, plane, w);
        // The stream advances too slowly for the hardware to fetch ahead.
        for (int i = 0; i < step_of(t); i += 64)
            _mm_prefetch((const char *)plane + ahead + i, _MM_HINT_T0);
        for (int j = 0; j < 8; j++) {
            if (is_signed(t)) {
                to->w[2 * j][g] = _mm256_srai_epi16(_mm256_slli_epi16(w[j], 8), 8);
                to->w[2 * j + 1][g] = _mm256_srai_epi16(w[j], 8);
            } else {
                to->w[j][g] = w[j];
            }
        }
        to->scales[g] = load_scales(t, record[g], b, d[g], m[g]);
    }
}

// int16 sums over k-groups j0..j1 for n tokens and both row groups.
INLINE void sum16(const __m256i (*w)[2], int j0, int j1, const int8_t *q, int n, __m256i s[4][2])
{
    UNROLL for (int k = 0; k < n; k++)
        s[k][0] = s[k][1] = _mm256_setzero_si256();
    UNROLL for (int j = j0; j < j1; j++) {
        __m256i w0 = w[j][0], w1 = w[j][1];
        __asm__("" : "+x"(w0), "+x"(w1));
        UNROLL for (int k = 0; k < n; k++) {
            __m256i x = broadcast4(q + 32 * k + 4 * j);
            s[k][0] = _mm256_add_epi16(s[k][0], _mm256_maddubs_epi16(w0, x));
            s[k][1] = _mm256_add_epi16(s[k][1], _mm256_maddubs_epi16(w1, x));
            __asm__("" : "+x"(s[k][0]), "+x"(s[k][1]));
        }
    }
}

// int8 by int8 leaves no room for sums in int16: both sides are int16 here.
INLINE void sums_signed(const struct tile *w, const int16_t *x, int n, __m256i s[4][2])
{
    UNROLL for (int k = 0; k < n; k++)
        s[k][0] = s[k][1] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < 16; j++) {
        __m256i w0 = w->w[j][0], w1 = w->w[j][1];
        __asm__("" : "+x"(w0), "+x"(w1));
        UNROLL for (int k = 0; k < n; k++) {
            __m256i v = broadcast4(x + 32 * k + 2 * j);
            s[k][0] = _mm256_add_epi32(s[k][0], _mm256_madd_epi16(w0, v));
            s[k][1] = _mm256_add_epi32(s[k][1], _mm256_madd_epi16(w1, v));
            __asm__("" : "+x"(s[k][0]), "+x"(s[k][1]));
        }
    }
}

INLINE void sums_halved(enum quant_type t, const struct tile *w, const struct entry *x, int n, __m256i s[4][2])
{
    __m256i half[4][2], first[4][2];
    int shift = t == QUANT_Q6_K ? 5 : 2;
    UNROLL for (int h = 0; h < 2; h++) {
        sum16(w->w, 4 * h, 4 * h + 4, x[0].q, n, half);
        UNROLL for (int k = 0; k < n; k++) {
            __m256i zero = _mm256_slli_epi16(broadcast4(x[k].pairs + h), shift);
            UNROLL for (int g = 0; g < 2; g++) {
                __m256i v = zero_point(t) ? _mm256_sub_epi16(half[k][g], zero) : half[k][g];
                v = _mm256_madd_epi16(v, w->scales[g].s[h]);
                if (h == 0)
                    first[k][g] = v;
                else
                    s[k][g] = _mm256_add_epi32(first[k][g], v);
            }
        }
    }
}

// Codes of 5 bits are summed as code - 16, which fits int16 after the correction.
INLINE void sums_five(enum quant_type t, const struct tile *w, const struct entry *x, int n, __m256i s[4][2])
{
    sum16(w->w, 0, 8, x[0].q, n, s);
    UNROLL for (int k = 0; k < n; k++) {
        __m256i zero = _mm256_add_epi16(broadcast4(x[k].pairs), broadcast4(x[k].pairs + 1));
        zero = _mm256_slli_epi16(zero, 4);
        UNROLL for (int g = 0; g < 2; g++) {
            s[k][g] = madd_ones(_mm256_sub_epi16(s[k][g], zero));
            if (t != QUANT_Q5_0)
                s[k][g] = _mm256_add_epi32(s[k][g], _mm256_set1_epi32(16 * x[k].sum));
        }
    }
}

INLINE void sums_nibbles(enum quant_type t, const struct tile *w, const struct entry *x, int n, __m256i s[4][2])
{
    sum16(w->w, 0, 8, x[0].q, n, s);
    UNROLL for (int k = 0; k < n; k++) {
        __m256i zero = _mm256_set1_epi32(8 * x[k].sum);
        UNROLL for (int g = 0; g < 2; g++) {
            s[k][g] = madd_ones(s[k][g]);
            if (t == QUANT_Q4_0)
                s[k][g] = _mm256_sub_epi32(s[k][g], zero);
        }
    }
}

// One block for n tokens (1..4) whose entries start at `at`; acc is [token][16 rows].
INLINE void tokens(enum quant_type t, int n, const struct tile *w, const struct acts *a, const int32_t *pairs, size_t at,
                   float *acc)
{
    struct entry x[4];
    __m256i s[4][2];
    UNROLL for (int k = 0; k < n; k++)
        x[k] = entry_at(a, pairs, at + (size_t)k);
    if (is_signed(t))
        sums_signed(w, a->wide + 32 * at, n, s);
    else if (halved(t))
        sums_halved(t, w, x, n, s);
    else if (five_bits(t))
        sums_five(t, w, x, n, s);
    else
        sums_nibbles(t, w, x, n, s);
    UNROLL for (int k = 0; k < n; k++) {
        UNROLL for (int g = 0; g < 2; g++) {
            float *to = acc + 16 * k + 8 * g;
            _mm256_store_ps(to, advance(t, _mm256_load_ps(to), s[k][g], &w->scales[g], &x[k]));
        }
    }
}

INLINE void block(enum quant_type t, int n, const struct tile *w, const struct acts *a, const int32_t *pairs, size_t at,
                  float *acc)
{
    int k = 0;
    for (; k + 4 <= n; k += 4)
        tokens(t, 4, w, a, pairs, at + (size_t)k, acc + 16 * k);
    switch (n - k) {
    case 3:
        tokens(t, 3, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    case 2:
        tokens(t, 2, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    case 1:
        tokens(t, 1, w, a, pairs, at + (size_t)k, acc + 16 * k);
        break;
    }
}

// Groups g and g + 1 for one token tile; alone when g + 1 is not this lane's: the second result is not stored.
INLINE void pair_of_groups(enum quant_type t, const struct mat *m, const struct acts *a, float *y, int ldy, int g,
                           bool alone, int at_tile, enum mat_write write)
{
    _Alignas(64) float acc[ACT_TILE * 16];
    int records = m->cols / block_of(t), n = acts_tile(a, at_tile);
    const int32_t *pairs = acts_pairs(a);
    size_t bytes = (size_t)records * (size_t)record_of(t), at = acts_base(a, at_tile);
    const uint8_t *record[2] = {m->data + (size_t)g * bytes, m->data + (size_t)(alone ? g : g + 1) * bytes};
    int ahead = fetch_ahead(t, n);
    memset(acc, 0, (size_t)n * 16 * sizeof *acc);
    for (int i = 0; i < records; i++) {
        __m256 d[2], min[2];
        for (int h = 0; h < 2; h++) {
            d[h] = load_f16(record[h]);
            min[h] = has_min(t) || t == QUANT_Q2_K ? load_f16(record[h] + 16) : d[h];
        }
        for (int b = 0; b < block_of(t) / 32; b++, at += (size_t)n) {
            struct tile w;
            unpack(t, &w, record, b, d, min, ahead);
            block(t, n, &w, a, pairs, at, acc);
        }
        record[0] += record_of(t);
        record[1] += record_of(t);
    }
    y += (size_t)at_tile * ACT_TILE * (size_t)ldy + 8 * g;
    for (int k = 0; k < n; k++, y += ldy) {
        put8(y, _mm256_load_ps(acc + 16 * k), m->rows - 8 * g, write);
        if (!alone)
            put8(y + 8, _mm256_load_ps(acc + 16 * k + 8), m->rows - 8 * g - 8, write);
    }
}

#define TYPE(T)                                                                                                        \
    static void mul_##T(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                  \
                        enum mat_write write)                                                                          \
    {                                                                                                                  \
        if (a->n == 1) {                                                                                               \
            few_tokens(QUANT_##T, 1, m, a, y, ldy, g0, g1, write);                                                     \
        } else if (a->n == 2) {                                                                                        \
            few_tokens(QUANT_##T, 2, m, a, y, ldy, g0, g1, write);                                                     \
        } else if (a->n == 3) {                                                                                        \
            few_tokens(QUANT_##T, 3, m, a, y, ldy, g0, g1, write);                                                     \
        } else {                                                                                                       \
            for (int tile = 0; tile * ACT_TILE < a->n; tile++) {                                                       \
                for (int g = g0; g < g1; g += 2)                                                                       \
                    pair_of_groups(QUANT_##T, m, a, y, ldy, g, g + 1 == g1, tile, write);                              \
            }                                                                                                          \
        }                                                                                                              \
    }
X86_TYPES(TYPE)
#undef TYPE

// ---- numbers

INLINE __m256 lanes_f32(__m256i twice)  // an int16 that fills both halves of its lane
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(twice, 16));
}

INLINE void numbers(enum quant_type t, const uint8_t *record, float *dst)
{
    __m256 d = load_f16(record), min = has_min(t) || t == QUANT_Q2_K ? load_f16(record + 16) : d;
    for (int b = 0; b < block_of(t) / 32; b++) {
        struct scales s = load_scales(t, record, b, d, min);
        __m256i w[8];
        load_codes(t, record + head_of(t) + b * step_of(t), w);
        for (int j = 0; j < 8; j++) {
            __m256 scale = halved(t) ? _mm256_mul_ps(s.d, lanes_f32(s.s[j / 4])) : s.d;
            __m256 m = t == QUANT_Q2_K ? _mm256_mul_ps(s.m, lanes_f32(s.min[j / 4])) : s.m;
            for (int i = 0; i < 4; i++, dst += MAT_WIDE) {
                // The lane's i-th byte, with its sign for the signed types.
                __m256i v = _mm256_slli_epi32(w[j], 24 - 8 * i);
                v = is_signed(t) ? _mm256_srai_epi32(v, 24) : _mm256_srli_epi32(v, 24);
                v = _mm256_sub_epi32(v, _mm256_set1_epi32(zero_point(t)));
                __m256 f = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(v));
                if (t == QUANT_Q4_1 || t == QUANT_Q5_1)
                    f = _mm256_add_ps(f, m);
                else if (has_min(t) || t == QUANT_Q2_K)
                    f = _mm256_sub_ps(f, m);
                _mm256_storeu_ps(dst, f);
            }
        }
    }
}

#define TYPE(T)                                                                                                        \
    void avx2_mat_panel_##T(const uint8_t *record, float *dst)                                                         \
    {                                                                                                                  \
        numbers(QUANT_##T, record, dst);                                                                               \
    }
X86_TYPES(TYPE)
#undef TYPE

// ---- ceilings

double avx2_mat_peak_fma(long rounds)
{
    __m256 a[12], half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
    UNROLL for (int j = 0; j < 12; j++)
        a[j] = _mm256_setzero_ps();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 12; j++) {
            a[j] = _mm256_fmadd_ps(a[j], half, one);
            __asm__ volatile("" : "+x"(a[j]));
        }
    }
    return (double)rounds * 12 * 8 * 2;
}

// Eight products summed in int16, then widened once: the densest pattern a 4-bit type may use.
static double peak_int8(long rounds)
{
    __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5), sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int g = 0; g < 2; g++) {
            __m256i s = _mm256_setzero_si256();
            UNROLL for (int j = 0; j < 8; j++) {
                __asm__ volatile("" : "+x"(w));
                s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w, x));
            }
            sum[g] = _mm256_add_epi32(sum[g], madd_ones(s));
        }
    }
    __asm__ volatile("" : : "x"(sum[0]), "x"(sum[1]));
    return (double)rounds * 2 * 8 * 64;
}

uint64_t avx2_mat_peak_read(const uint8_t *p, size_t bytes)
{
    __m256i s[4];
    for (int j = 0; j < 4; j++)
        s[j] = _mm256_setzero_si256();
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        UNROLL for (int j = 0; j < 4; j++)
            s[j] = _mm256_xor_si256(s[j], load(p + i + 32 * (size_t)j));
    }
    __m256i v = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    return (uint64_t)_mm256_extract_epi64(v, 0);
}

const struct mat_ops avx2_mat_ops = {
    .quantize = avx2_mat_quantize,
    .widen = widen,
    .chain_f32 = avx2_float_f32,
    .chain_f16 = avx2_float_f16,
    .chain_bf16 = avx2_float_bf16,
    .panel =
        {
#define TYPE(T) [QUANT_##T] = avx2_mat_panel_##T,
            X86_TYPES(TYPE)
#undef TYPE
        },
    .peak_fma = avx2_mat_peak_fma,
    .peak_int8 = peak_int8,
    .peak_read = avx2_mat_peak_read,
    .int8 =
        {
#define TYPE(T) [QUANT_##T] = mul_##T,
            X86_TYPES(TYPE)
#undef TYPE
        },
};
