// sampler_cut.h - what the samplers cut from a distribution, and the draw from what is left. Part of sampler.c.
//
// Nothing sorts the vocabulary. Every cut is "everything up to one element in the order (key down, id up)"; that element is
// found by a three-level radix histogram of counts or of probability mass, then what lies behind it is masked.
//
// x [n] logits, of which what is cut becomes -INFINITY; w [n] weights, the likeliest about 1, of which it becomes 0.
#pragma once

#include <stdint.h>

// exp for x <= 0 in plain IEEE operations and without a branch, so that it vectorises and gives the same bits on every
// machine; relative error below 2e-7. Cody-Waite reduction, degree-6 polynomial; 0 below -87.
static inline float sampler_cut_exp(float x)
{
    union { float f; int32_t i; } c = {.f = x}, scale;
    int32_t keep = -(int32_t)(x >= -87.0f);
    c.i &= keep;
    float n = (c.f * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (c.f - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.3888889e-3f;
    y = y * r + 8.3333333e-3f;
    y = y * r + 4.1666667e-2f;
    y = y * r + 1.6666667e-1f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    scale.i = ((int32_t)n + 127) << 23 & keep;
    return y * scale.f;
}

double sampler_cut_sum(const float *w, int n);
float sampler_cut_top(const float *x, int n);  // the largest; NAN if any is not a number
int sampler_cut_first(const float *x, int n, float top);  // the first that has the largest value

void sampler_cut_sigma(float *x, int n, float sigmas);  // what lies so many standard deviations below the likeliest
void sampler_cut_top_k(float *x, int n, int k);
void sampler_cut_top_p(float *w, int n, float p);
// What has less than p times the weight `top`, that of the likeliest.
void sampler_cut_min_p(float *w, int n, float p, float top);
// Locally typical: those whose surprise is closest to the entropy, up to a mass of p. w = exp(x - max).
void sampler_cut_typical(float *w, const float *x, float max, int n, float p);
// Of those whose probability is threshold or more all but the least likely.
void sampler_cut_xtc(float *w, int n, float threshold);
// The temperature between t - range and t + range that the entropy of w = exp(x - max) asks for.
float sampler_cut_dynatemp(const float *w, const float *x, float max, int n, float t, float range, float exponent);
// Mirostat 1 and 2: what is less likely than a surprise of mu bits asks for.
void sampler_cut_mirostat(float *w, int n, double mu);
void sampler_cut_mirostat2(float *w, int n, double mu);

int sampler_cut_draw(const float *w, int n, double u);  // u in [0, 1): ids upwards over what is left
