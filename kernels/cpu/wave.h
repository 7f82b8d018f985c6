// wave.h - arithmetic of audio decoders over rows of channels, [time][channel]: the scalar definitions. The same bits on
// every instruction set.
#pragma once

enum { WAVE_TAPS = 7 };

// y = x + inv sin(alpha x)^2, alpha and inv per channel: the Snake activation (Ziyin, Hartwig, Ueda 2020) with
// inv = 1 / alpha. y may be x. sin^2 has the period pi: the argument is reduced by it.
void wave_snake(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n);

// A depthwise convolution of 7 taps: y[t][c] = b[c], then fma(w[k][c], x[t + k dilation][c], .) for k = 0 .. 6. w has ldw
// floats between taps; x needs rows + 6 dilation rows.
void wave_depthwise(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                    int rows, int n);

// sin(r) / r - 1 = r^2 (c0 + c1 r^2 + ...) for |r| <= pi/2: fitted, exact to 2e-11; pi in two parts.
#define WAVE_SIN0 -0.166666672f
#define WAVE_SIN1 0.00833333097f
#define WAVE_SIN2 -0.000198408001f
#define WAVE_SIN3 2.75225500e-06f
#define WAVE_SIN4 -2.38455121e-08f
#define WAVE_PI_HIGH 3.14159274f
#define WAVE_PI_LOW -8.74227766e-8f
