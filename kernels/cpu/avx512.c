// avx512.c - integer block matrices with AVX-512 VNNI; everything else is AVX2's, which these machines run as fast.
// Any lane; scratch is on the stack.
//
// VPDPBUSD sums four products of unsigned codes and signed activations into int32 without saturating, so a code may use
// all 8 bits: int8 codes become code + 128, and 128 * (sum of the activations) is taken off again. Up to 8 tokens
// take 8 rows in 256-bit registers (one stream of weights, sums in registers); more take 16 rows, whose codes of a block
// fill 8 registers.
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/x86_blocks.h"

// What is subtracted from an unsigned code.
INLINE int offset_of(enum quant_type t)
{
    return is_signed(t) ? 128 : zero_point(t);
}

static inline __attribute__((always_inline)) __m256i dot(enum quant_type t, const __m256i w[8], const struct scales *s,
                                                         const struct entry *x)
{
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    const __m256i flip = _mm256_set1_epi8(-128);
    if (halved(t) && offset_of(t)) {
        __m256i zero = _mm256_set1_epi16((short)-offset_of(t));
        for (int h = 0; h < 2; h++)
            sum[h] = _mm256_madd_epi16(zero, broadcast4(x->pairs + h));
    } else if (offset_of(t)) {
        sum[0] = _mm256_set1_epi32(-offset_of(t) * x->sum);
    }
    for (int j = 0; j < 8; j++) {
        __m256i u = is_signed(t) ? _mm256_xor_si256(w[j], flip) : w[j];
        sum[j / 4] = _mm256_dpbusd_epi32(sum[j / 4], u, broadcast4(x->q + 4 * j));
    }
    if (halved(t)) {
        for (int h = 0; h < 2; h++)
            sum[h] = _mm256_mullo_epi32(sum[h], _mm256_srai_epi32(s->s[h], 16));
    }
    return _mm256_add_epi32(sum[0], sum[1]);
}

// ---- 16 rows

struct scales16 {
    __m512 d, m;
    __m512 s[2];     // of the halves
    __m512i min[2];  // Q2_K
};

INLINE __m512i join(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

INLINE __m512 join_f(__m256 a, __m256 b)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
}

INLINE __m512i load_both(const uint8_t *p0, const uint8_t *p1)
{
    return join(load(p0), load(p1));
}

INLINE __m512i two_bits16(__m512i v, int f, int to)
{
    int shift = 2 * f - to;
    v = shift > 0 ? _mm512_srli_epi16(v, (unsigned)shift) : _mm512_slli_epi16(v, (unsigned)-shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)(3 << to)));
}

INLINE __m512i one_bit16(__m512i v, int j, int to)
{
    int shift = j - to;
    v = shift > 0 ? _mm512_srli_epi16(v, (unsigned)shift) : _mm512_slli_epi16(v, (unsigned)-shift);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)(1 << to)));
}

// As load_codes for the planes p0 and p1 of two groups, all as unsigned codes.
INLINE void load_codes16(enum quant_type t, const uint8_t *p0, const uint8_t *p1, __m512i w[8])
{
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(-128);
    if (t == QUANT_Q8_0) {
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_xor_si512(load_both(p0 + 32 * j, p1 + 32 * j), flip);
        return;
    }
    if (t == QUANT_Q2_K || t == QUANT_Q3_K) {
        __m512i v[2] = {load_both(p0, p1), load_both(p0 + 32, p1 + 32)};
        for (int j = 0; j < 8; j++)
            w[j] = two_bits16(v[j / 4], j % 4, 0);
        if (t == QUANT_Q3_K) {
            __m512i high = load_both(p0 + 64, p1 + 64);
            for (int j = 0; j < 8; j++)
                w[j] = _mm512_or_si512(w[j], one_bit16(high, j, 2));
        }
        return;
    }
    for (int j = 0; j < 4; j++) {
        __m512i v = load_both(p0 + 32 * j, p1 + 32 * j);
        w[j] = _mm512_and_si512(v, low);
        w[4 + j] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
    if (five_bits(t)) {
        __m512i high = load_both(p0 + 128, p1 + 128);
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], one_bit16(high, j, 4));
    } else if (t == QUANT_Q6_K) {
        __m512i v[2] = {load_both(p0 + 128, p1 + 128), load_both(p0 + 160, p1 + 160)};
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_or_si512(w[j], two_bits16(v[j / 4], j % 4, 4));
    } else if (is_signed(t)) {
        __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)mat_pack_iq4_values));
        table = _mm512_xor_si512(table, flip);
        for (int j = 0; j < 8; j++)
            w[j] = _mm512_shuffle_epi8(table, w[j]);
    }
}

INLINE struct scales16 load_scales16(enum quant_type t, const uint8_t *const record[2], int b, const __m256 d[2],
                                     const __m256 m[2])
{
    struct scales s0 = load_scales(t, record[0], b, d[0], m[0]), s1 = load_scales(t, record[1], b, d[1], m[1]);
    struct scales16 s = {.d = join_f(s0.d, s1.d), .m = join_f(s0.m, s1.m)};
    for (int h = 0; h < 2 && halved(t); h++) {
        s.s[h] = _mm512_cvtepi32_ps(_mm512_srai_epi32(join(s0.s[h], s1.s[h]), 16));
        if (t == QUANT_Q2_K)
            s.min[h] = join(s0.min[h], s1.min[h]);
    }
    return s;
}

INLINE __m512i broadcast16(const void *p)
{
    int32_t v;
    memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
}

// (float)(integer sum of a block). Sums of scaled halves stay below 2^24, so their products are exact in f32 too.
INLINE __m512 sum_of(enum quant_type t, const __m512i w[8], const struct scales16 *s, const struct acts *a,
                     const int32_t *pairs, size_t at)
{
    __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const int8_t *q = a->q + 32 * at;
    if (halved(t) && offset_of(t)) {
        __m512i zero = _mm512_set1_epi16((short)-offset_of(t));
        for (int h = 0; h < 2; h++)
            sum[h] = _mm512_madd_epi16(zero, broadcast16(pairs + 2 * at + (size_t)h));
    } else if (offset_of(t)) {
        // Offsets are powers of two.
        __m512i total = _mm512_slli_epi32(broadcast16(a->sums + at), (unsigned)__builtin_ctz((unsigned)offset_of(t)));
        sum[0] = _mm512_sub_epi32(sum[0], total);
    }
    for (int j = 0; j < 4; j++) {
        sum[0] = _mm512_dpbusd_epi32(sum[0], w[j], broadcast16(q + 4 * j));
        sum[1] = _mm512_dpbusd_epi32(sum[1], w[4 + j], broadcast16(q + 16 + 4 * j));
    }
    if (!halved(t))
        return _mm512_cvtepi32_ps(_mm512_add_epi32(sum[0], sum[1]));
    __m512 second = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[1]), s->s[1]);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[0]), s->s[0], second);
}

INLINE __m512 advance16(enum quant_type t, __m512 acc, const __m512i w[8], const struct scales16 *s,
                        const struct acts *a, const int32_t *pairs, size_t at)
{
    __m512 dx = _mm512_set1_ps(a->d[at]);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(dx, sum_of(t, w, s, a, pairs, at)), s->d, acc);
    if (t == QUANT_Q4_1 || t == QUANT_Q5_1)
        acc = _mm512_fmadd_ps(s->m, _mm512_set1_ps(a->sx[at]), acc);
    else if (has_min(t))
        acc = _mm512_fnmadd_ps(s->m, _mm512_set1_ps(a->sx[at]), acc);
    if (t == QUANT_Q2_K) {
        __m512i sum = _mm512_madd_epi16(s->min[0], broadcast16(pairs + 2 * at));
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(s->min[1], broadcast16(pairs + 2 * at + 1)));
        acc = _mm512_fnmadd_ps(s->m, _mm512_mul_ps(dx, _mm512_cvtepi32_ps(sum)), acc);
    }
    return acc;
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
            int plane = head_of(t) + b * step_of(t);
            // The streams advance too slowly for the hardware to fetch ahead.
            for (int k = 0; k < step_of(t); k += 64) {
                _mm_prefetch((const char *)record[0] + plane + ahead + k, _MM_HINT_T0);
                _mm_prefetch((const char *)record[1] + plane + ahead + k, _MM_HINT_T0);
            }
            struct scales16 s = load_scales16(t, record, b, d, min);
            __m512i w[8];
            load_codes16(t, record[0] + plane, record[1] + plane, w);
            for (int k = 0; k < n; k++) {
                float *to = acc + 16 * k;
                _mm512_store_ps(to, advance16(t, _mm512_load_ps(to), w, &s, a, pairs, at + (size_t)k));
            }
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

// The number of tokens if the kernel for a few suits them, else 0. It walks all activations for every 8 rows: from 4
// tokens on that pays only while they and 8 rows of weights stay in L1.
static int few(const struct acts *a)
{
    return a->n <= 3 || (a->n <= FEW_TOKENS && a->n * a->cols <= 8192) ? a->n : 0;
}

#define TYPE(T)                                                                                                        \
    static void mul_##T(const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,                  \
                        enum mat_write write)                                                                          \
    {                                                                                                                  \
        switch (few(a)) {                                                                                              \
        case 1:                                                                                                        \
            few_tokens(QUANT_##T, 1, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 2:                                                                                                        \
            few_tokens(QUANT_##T, 2, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 3:                                                                                                        \
            few_tokens(QUANT_##T, 3, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 4:                                                                                                        \
            few_tokens(QUANT_##T, 4, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 5:                                                                                                        \
            few_tokens(QUANT_##T, 5, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 6:                                                                                                        \
            few_tokens(QUANT_##T, 6, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 7:                                                                                                        \
            few_tokens(QUANT_##T, 7, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        case 8:                                                                                                        \
            few_tokens(QUANT_##T, 8, m, a, y, ldy, g0, g1, write);                                                     \
            break;                                                                                                     \
        default:                                                                                                       \
            for (int tile = 0; tile * ACT_TILE < a->n; tile++) {                                                       \
                for (int g = g0; g < g1; g += 2)                                                                       \
                    pair_of_groups(QUANT_##T, m, a, y, ldy, g, g + 1 == g1, tile, write);                              \
            }                                                                                                          \
        }                                                                                                              \
    }
X86_TYPES(TYPE)
#undef TYPE

static double peak_int8(long rounds)
{
    __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5), sum[8];
    UNROLL for (int j = 0; j < 8; j++)
        sum[j] = _mm512_setzero_si512();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 8; j++) {
            sum[j] = _mm512_dpbusd_epi32(sum[j], w, x);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    }
    return (double)rounds * 8 * 128;
}

static const struct mat_ops mat_ops = {
    .quantize = avx2_mat_quantize,
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

const struct cpu_ops avx512_ops = {.isa = "avx512", .mat = &mat_ops, AVX2_FLOAT_OPS};
