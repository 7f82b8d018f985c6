// avx2_peak.c - how fast AVX2 multiplies int8 at most, for each way of summing the products. Operands stay in
// registers. Any lane, for cpu_measure only.
#include <immintrin.h>

#include "kernels/cpu/avx2.h"

#define UNROLL _Pragma("GCC unroll 16")

// n instructions' products, each added as 16 bits, then widened once; several such sums are in flight.
#define SUMS(n)                                                                                           \
    static double sum##n(long rounds)                                                                     \
    {                                                                                                     \
        __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);            \
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};                                \
        for (long i = 0; i < rounds; i++) {                                                               \
            UNROLL for (int g = 0; g < 16 / n; g++) {                                                     \
                __m256i s = _mm256_setzero_si256();                                                       \
                UNROLL for (int j = 0; j < n; j++) {                                                      \
                    __asm__ volatile("" : "+x"(w));                                                       \
                    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(w, x));                                  \
                }                                                                                         \
                sum[g & 1] = _mm256_add_epi32(sum[g & 1], _mm256_madd_epi16(s, ones));                    \
            }                                                                                             \
        }                                                                                                 \
        __asm__ volatile("" : : "x"(sum[0]), "x"(sum[1]));                                                \
        return (double)rounds * 16 * 64;                                                                  \
    }

SUMS(8)
SUMS(4)
SUMS(2)

// Operands of 16 bits: half the products an instruction, and their sums have 32 bits at once.
static double wide(long rounds)
{
    __m256i w = _mm256_set1_epi16(3), x = _mm256_set1_epi16(5), sum[8];
    UNROLL for (int j = 0; j < 8; j++)
        sum[j] = _mm256_setzero_si256();
    for (long i = 0; i < rounds; i++) {
        UNROLL for (int j = 0; j < 16; j++) {
            __asm__ volatile("" : "+x"(w));
            sum[j & 7] = _mm256_add_epi32(sum[j & 7], _mm256_madd_epi16(w, x));
        }
    }
    UNROLL for (int j = 0; j < 8; j++)
        __asm__ volatile("" : : "x"(sum[j]));
    return (double)rounds * 16 * 32;
}

double avx2_peak_sums(long rounds, enum int8_sums sums)
{
    static double (*const patterns[])(long) = {[INT8_SUM8] = sum8, [INT8_SUM4] = sum4, [INT8_SUM2] = sum2,
                                               [INT8_WIDE] = wide};
    return patterns[sums](rounds);
}
