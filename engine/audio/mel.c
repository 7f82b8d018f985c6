// mel.c - see mel.h. Called by prep threads and lanes; all scratch is on the stack.
//
// The transform of 400 real numbers is one of 200 complex ones (even samples real, odd ones imaginary) by Stockham's
// algorithm in steps of 5, 5, 4 and 2, in f64: in f32 the quiet bins beside loud ones would be rounding noise.
#include "engine/audio/mel.h"

#include <math.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/mem.h"

enum { FFT = 400, HALF = FFT / 2, BINS = HALF + 1, STEPS = 4 };

static const int radix[STEPS] = {5, 5, 4, 2};

struct band {
    int first, n;  // bins with a weight above 0
    size_t at;     // its first weight
};

struct mel {
    int mels;
    double window[FFT];
    double turn_re[STEPS][HALF], turn_im[STEPS][HALF];  // step's twiddles: [j * m + p], e^(-2 pi i j p / length)
    double post_re[BINS], post_im[BINS];                // e^(-2 pi i k / 400)
    struct band *bands;
    float *weights;
};

// ---- tables

static double hz_to_mel(double hz)
{
    return hz < 1000 ? 3 * hz / 200 : 15 + 27 * log(hz / 1000) / log(6.4);
}

static double mel_to_hz(double mel)
{
    return mel < 15 ? 200 * mel / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

// Triangles between neighbouring corners, each of area 1 (Slaney's norm).
static void make_filters(struct mel *m)
{
    double top = hz_to_mel(MEL_RATE / 2.0), step = top / (m->mels + 1);
    size_t at = 0;
    m->bands = mem_new((size_t)m->mels * sizeof *m->bands);
    m->weights = mem_new((size_t)m->mels * BINS * sizeof *m->weights);
    for (int i = 0; i < m->mels; i++) {
        double low = mel_to_hz(i * step), mid = mel_to_hz((i + 1) * step), high = mel_to_hz((i + 2) * step);
        struct band *b = &m->bands[i];
        b->at = at;
        for (int k = 0; k < BINS; k++) {
            double f = (double)k * MEL_RATE / FFT, up = (f - low) / (mid - low), down = (high - f) / (high - mid);
            float w = (float)(fmax(0, fmin(up, down)) * 2 / (high - low));
            if (w <= 0)
                continue;
            if (b->n == 0)
                b->first = k;
            b->n = k - b->first + 1;
            m->weights[at++] = w;
        }
    }
}

struct mel *mel_new(int mels)
{
    const double pi = 3.14159265358979323846;
    struct mel *m = mem_new(sizeof *m);
    m->mels = mels;
    for (int i = 0; i < FFT; i++)
        m->window[i] = 0.5 - 0.5 * cos(2 * pi * i / FFT);
    for (int s = 0, length = HALF; s < STEPS; length /= radix[s++]) {
        int part = length / radix[s];
        for (int j = 0; j < radix[s]; j++) {
            for (int p = 0; p < part; p++) {
                m->turn_re[s][j * part + p] = cos(2 * pi * j * p / length);
                m->turn_im[s][j * part + p] = -sin(2 * pi * j * p / length);
            }
        }
    }
    for (int k = 0; k < BINS; k++) {
        m->post_re[k] = cos(2 * pi * k / FFT);
        m->post_im[k] = -sin(2 * pi * k / FFT);
    }
    make_filters(m);
    return m;
}

void mel_free(struct mel *m)
{
    if (!m)
        return;
    free(m->bands);
    free(m->weights);
    free(m);
}

int mel_count(const struct mel *m)
{
    return m->mels;
}

size_t mel_frames(size_t nsamples)
{
    return nsamples / MEL_HOP;
}

// ---- transform

struct split {  // complex numbers, parts apart: the loops over q then run on vectors
    double re[HALF], im[HALF];
};

// Twiddle factor (wr, wi) times (r, i) into place `to`.
static inline void put(struct split *y, int to, double r, double i, double wr, double wi)
{
    y->re[to] = r * wr - i * wi;
    y->im[to] = r * wi + i * wr;
}

static void step2(const struct split *x, struct split *y, int stride)
{
    for (int q = 0; q < stride; q++) {
        double ar = x->re[q], ai = x->im[q], br = x->re[q + stride], bi = x->im[q + stride];
        y->re[q] = ar + br;
        y->im[q] = ai + bi;
        y->re[q + stride] = ar - br;
        y->im[q + stride] = ai - bi;
    }
}

static void step4(const double *wr, const double *wi, const struct split *x, struct split *y, int part, int stride)
{
    for (int p = 0; p < part; p++) {
        for (int q = 0; q < stride; q++) {
            const int a = q + stride * p, d = stride * part, to = q + stride * 4 * p;
            double sr = x->re[a] + x->re[a + 2 * d], si = x->im[a] + x->im[a + 2 * d];
            double tr = x->re[a] - x->re[a + 2 * d], ti = x->im[a] - x->im[a + 2 * d];
            double ur = x->re[a + d] + x->re[a + 3 * d], ui = x->im[a + d] + x->im[a + 3 * d];
            double vr = x->re[a + d] - x->re[a + 3 * d], vi = x->im[a + d] - x->im[a + 3 * d];
            put(y, to, sr + ur, si + ui, 1, 0);
            put(y, to + stride, tr + vi, ti - vr, wr[part + p], wi[part + p]);
            put(y, to + 2 * stride, sr - ur, si - ui, wr[2 * part + p], wi[2 * part + p]);
            put(y, to + 3 * stride, tr - vi, ti + vr, wr[3 * part + p], wi[3 * part + p]);
        }
    }
}

static void step5(const double *wr, const double *wi, const struct split *x, struct split *y, int part, int stride)
{
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410;
    const double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;
    for (int p = 0; p < part; p++) {
        for (int q = 0; q < stride; q++) {
            const int a = q + stride * p, d = stride * part, to = q + stride * 5 * p;
            double r0 = x->re[a], i0 = x->im[a];
            double ar = x->re[a + d] + x->re[a + 4 * d], ai = x->im[a + d] + x->im[a + 4 * d];
            double br = x->re[a + 2 * d] + x->re[a + 3 * d], bi = x->im[a + 2 * d] + x->im[a + 3 * d];
            double cr = x->re[a + d] - x->re[a + 4 * d], ci = x->im[a + d] - x->im[a + 4 * d];
            double er = x->re[a + 2 * d] - x->re[a + 3 * d], ei = x->im[a + 2 * d] - x->im[a + 3 * d];
            double mr = r0 + c1 * ar + c2 * br, mi = i0 + c1 * ai + c2 * bi;
            double nr = r0 + c2 * ar + c1 * br, ni = i0 + c2 * ai + c1 * bi;
            double gr = s1 * cr + s2 * er, gi = s1 * ci + s2 * ei, hr = s2 * cr - s1 * er, hi = s2 * ci - s1 * ei;
            put(y, to, r0 + ar + br, i0 + ai + bi, 1, 0);
            put(y, to + stride, mr + gi, mi - gr, wr[part + p], wi[part + p]);
            put(y, to + 2 * stride, nr + hi, ni - hr, wr[2 * part + p], wi[2 * part + p]);
            put(y, to + 3 * stride, nr - hi, ni + hr, wr[3 * part + p], wi[3 * part + p]);
            put(y, to + 4 * stride, mr - gi, mi + gr, wr[4 * part + p], wi[4 * part + p]);
        }
    }
}

// |X[k]|^2 of 400 windowed samples. The transform ends in `a` after four steps.
static void power_of(const struct mel *m, struct split *a, double *power)
{
    struct split b;
    step5(m->turn_re[0], m->turn_im[0], a, &b, 40, 1);
    step5(m->turn_re[1], m->turn_im[1], &b, a, 8, 5);
    step4(m->turn_re[2], m->turn_im[2], a, &b, 2, 25);
    step2(&b, a, 100);
    for (int k = 0; k < BINS; k++) {
        int u = k % HALF, v = (HALF - k) % HALF;
        double er = (a->re[u] + a->re[v]) / 2, ei = (a->im[u] - a->im[v]) / 2;
        double odd_r = (a->im[u] + a->im[v]) / 2, odd_i = (a->re[v] - a->re[u]) / 2;
        double r = er + odd_r * m->post_re[k] - odd_i * m->post_im[k];
        double i = ei + odd_r * m->post_im[k] + odd_i * m->post_re[k];
        power[k] = r * r + i * i;
    }
}

// The 400 samples round sample centre * 160.
static void take(const struct mel *m, const float *samples, size_t n, size_t frame, struct split *ret_z)
{
    ptrdiff_t from = (ptrdiff_t)(frame * MEL_HOP) - HALF;
    for (int i = 0; i < FFT; i++) {
        ptrdiff_t at = from + i < 0 ? -(from + i) : from + i;
        double v = (size_t)at < n ? (double)samples[at] * m->window[i] : 0;
        if (i % 2)
            ret_z->im[i / 2] = v;
        else
            ret_z->re[i / 2] = v;
    }
}

void mel_power(const struct mel *m, const float *samples, size_t n, size_t first, size_t count, float *ret_rows)
{
    struct split z;
    double power[BINS];
    for (size_t f = 0; f < count; f++, ret_rows += m->mels) {
        take(m, samples, n, first + f, &z);
        power_of(m, &z, power);
        for (int i = 0; i < m->mels; i++) {
            const struct band *b = &m->bands[i];
            const float *w = m->weights + b->at;
            const double *p = power + b->first;
            double sum = 0;
            for (int k = 0; k < b->n; k++)
                sum += (double)w[k] * p[k];
            ret_rows[i] = (float)sum;
        }
    }
}

float mel_peak(const struct mel *m, const float *samples, size_t n)
{
    float *row = mem_new((size_t)m->mels * sizeof *row), peak = 0;
    size_t frames = n ? (n + HALF) / MEL_HOP + 1 : 0;
    for (size_t f = 0; f < frames && isfinite(peak) && !cancel_due(FFT); f++) {
        mel_power(m, samples, n, f, 1, row);
        for (int i = 0; i < m->mels; i++)
            peak = row[i] <= peak ? peak : row[i];  // NaN is taken over
    }
    free(row);
    return peak;
}

void mel_log(float *rows, size_t n, float peak)
{
    float floor = log10f(fmaxf(peak, 1e-10f)) - 8;
    for (size_t i = 0; i < n; i++) {
        float v = log10f(fmaxf(rows[i], 1e-10f));
        rows[i] = (fmaxf(v, floor) + 4) / 4;
    }
}
