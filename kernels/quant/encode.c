// encode.c - floats to blocks of integers. Pure functions of any thread.
#include "kernels/quant/encode.h"

#include <math.h>
#include <string.h>

#include "kernels/quant.h"
#include "kernels/quant/bits.h"

enum { BLOCK = 32, TRIES = 9, ROUNDS = 2 };

static void put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// The float as f16 has it; false: it has none.
static bool to_f16(float v, uint16_t *ret_half, float *ret_value)
{
    *ret_half = quant_f32_to_f16(v);
    *ret_value = quant_f16_to_f32(*ret_half);
    return isfinite(*ret_value);
}

static bool bounds(const float *x, float *ret_low, float *ret_high)
{
    float low = x[0], high = x[0];
    bool finite = true;
    for (int i = 0; i < BLOCK; i++) {
        finite &= isfinite(x[i]) != 0;
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *ret_low = low;
    *ret_high = high;
    return finite;
}

bool quant_encode_q8_0(const float *src, uint8_t *dst, size_t n)
{
    for (; n; n -= BLOCK, src += BLOCK, dst += 34) {
        float low, high, d;
        uint16_t half;
        if (!bounds(src, &low, &high) || !to_f16((high > -low ? high : -low) / 127, &half, &d))
            return false;
        put_u16(dst, half);
        float by = d > 0 ? 1 / d : 0;
        for (int i = 0; i < BLOCK; i++) {
            float q = rintf(src[i] * by);
            dst[2 + i] = (uint8_t)(int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        }
    }
    return true;
}

// ---- Q4_1

struct fit {
    float d, m, error;  // error: the sum of squares
};

// Vectors of every machine there is; each lane is a sum of its own.
typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));

enum { LANES = 4 };

static inline lanes load(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline lanes all(float f)
{
    return (lanes){f, f, f, f};
}

static float total(lanes v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}

// The nearest code, 0 to 15.
static inline lanes codes_of(lanes x, float m, float by)
{
    lanes v = (x - all(m)) * all(by) + all(0.5f);
    masks above = v > all(0), below = v < all(15.5f);
    v = (lanes)((masks)v & above);
    v = (lanes)(((masks)v & below) | ((masks)all(15.5f) & ~below));
    return __builtin_convertvector(__builtin_convertvector(v, masks), lanes);
}

// Rounds to d and m, and solves for those that suit the codes best. False: all codes are equal.
static bool improve(const float *x, float sum_x, float *d, float *m)
{
    lanes sum = all(0), squares = all(0), product = all(0);
    float by = *d > 0 ? 1 / *d : 0, from = *m;
    for (int i = 0; i < BLOCK; i += LANES) {
        lanes v = load(x + i), q = codes_of(v, from, by);
        sum += q;
        squares += q * q;
        product += q * v;
    }
    float n = total(sum), det = BLOCK * total(squares) - n * n;
    if (!(det > 0))
        return false;
    *d = (BLOCK * total(product) - n * sum_x) / det;
    *m = (sum_x - *d * n) / BLOCK;
    return *d > 0;
}

// Takes d and m when they, as f16, are better than the best so far.
static void consider(const float *x, float d, float m, struct fit *best)
{
    lanes error = all(0);
    uint16_t half;
    if (!to_f16(d, &half, &d) || !to_f16(m, &half, &m))
        return;
    float by = d > 0 ? 1 / d : 0;
    for (int i = 0; i < BLOCK; i += LANES) {
        lanes v = load(x + i), off = v - (all(d) * codes_of(v, m, by) + all(m));
        error += off * off;
    }
    if (total(error) < best->error)
        *best = (struct fit){d, m, total(error)};
}

static struct fit fit_block(const float *x, float low, float high)
{
    struct fit best = {.error = INFINITY};
    float sum_x = 0;
    for (int i = 0; i < BLOCK; i++)
        sum_x += x[i];
    consider(x, (high - low) / 15, low, &best);
    for (int i = 0; i < TRIES && best.error > 0; i++) {
        float d = (high - low) / (13.0f + 0.5f * (float)i), m = low + (high - low - 15 * d) / 2;
        for (int r = 0; r < ROUNDS && improve(x, sum_x, &d, &m); r++)
            ;
        consider(x, d, m, &best);
    }
    for (int r = 0; r < ROUNDS && best.error > 0; r++) {
        float d = best.d, m = best.m;
        if (!improve(x, sum_x, &d, &m))
            break;
        consider(x, d, m, &best);
    }
    return best;
}

bool quant_encode_q4_1(const float *src, uint8_t *dst, size_t n)
{
    for (; n; n -= BLOCK, src += BLOCK, dst += 20) {
        float low, high;
        if (!bounds(src, &low, &high))
            return false;
        struct fit f = fit_block(src, low, high);
        if (!isfinite(f.error))
            return false;
        put_u16(dst, quant_f32_to_f16(f.d));
        put_u16(dst + 2, quant_f32_to_f16(f.m));
        float by = f.d > 0 ? 1 / f.d : 0;
        for (int i = 0; i < BLOCK / 2; i += LANES) {
            lanes low4 = codes_of(load(src + i), f.m, by), high4 = codes_of(load(src + 16 + i), f.m, by);
            for (int j = 0; j < LANES; j++)
                dst[4 + i + j] = (uint8_t)((int)low4[j] | (int)high4[j] << 4);
        }
    }
    return true;
}
