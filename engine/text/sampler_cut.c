// sampler_cut.c - see the header. Scheduler thread.
#include "engine/text/sampler_cut.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

// Sums and maxima over a vocabulary run in LANES chains side by side, always the same ones, so that they vectorise without
// any freedom of order.
enum { LANES = 16, BLOCK = 512 };
enum { MIROSTAT_M = 100 };  // likeliest tokens that Mirostat 1 estimates the distribution's shape from

// Order-preserving key of a float; both zeros are equal.
static inline uint32_t order_key(float v)
{
    union { float f; uint32_t u; } b = {.f = v + 0.0f};
    return b.u & 0x80000000u ? ~b.u : b.u | 0x80000000u;
}

struct edge {  // the last kept element
    uint32_t key;
    int id;
};

// The smallest set from the top, in the order (key down, id up), whose sum reaches target. The sum is of masses; NULL: of
// elements.
static struct edge find_edge(const float *key, const float *mass, int n, double target)
{
    static const int shifts[] = {21, 10, 0}, bits[] = {11, 11, 10};
    uint32_t prefix = 0, mask = 0;
    double above = 0;
    target = target > 0 ? target : 1e-300;  // at least one element
    for (int level = 0; level < 3; level++) {
        double sums[2048] = {0};
        uint32_t low = (1u << bits[level]) - 1;
        for (int i = 0; i < n; i++) {
            uint32_t k = order_key(key[i]);
            if ((k & mask) == prefix)
                sums[k >> shifts[level] & low] += mass ? mass[i] : 1;
        }
        uint32_t b = low;
        while (b > 0 && above + sums[b] < target)
            above += sums[b--];
        prefix |= b << shifts[level];
        mask |= low << shifts[level];
    }
    struct edge at = {prefix, n - 1};
    for (int i = 0; i < n; i++) {
        if (order_key(key[i]) != prefix)
            continue;
        above += mass ? mass[i] : 1;
        if (above >= target) {
            at.id = i;
            break;
        }
    }
    return at;
}

// key may be v itself: what is masked was looked at before.
static void mask_behind(float *v, const float *key, int n, struct edge at, float with)
{
    for (int i = 0; i < n; i++) {
        uint32_t k = order_key(key[i]);
        if (k < at.key || (k == at.key && i > at.id))
            v[i] = with;
    }
}

static double sum_block(const float *v, int n)
{
    double t[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            t[k] += v[i + k];
    for (; i < n; i++)
        t[0] += v[i];
    for (int k = 1; k < LANES; k++)
        t[0] += t[k];
    return t[0];
}

static int block_at(int i, int n)
{
    return n - i < BLOCK ? n - i : BLOCK;
}

double sampler_cut_sum(const float *v, int n)
{
    double t = 0;
    for (int i = 0; i < n; i += BLOCK)
        t += sum_block(v + i, block_at(i, n));
    return t;
}

float sampler_cut_top(const float *x, int n)
{
    float m[LANES];
    int bad[LANES] = {0}, i = 0;
    for (int k = 0; k < LANES; k++)
        m[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
            bad[k] |= x[i + k] != x[i + k];
        }
    for (; i < n; i++) {
        m[0] = x[i] > m[0] ? x[i] : m[0];
        bad[0] |= x[i] != x[i];
    }
    for (int k = 1; k < LANES; k++) {
        m[0] = m[k] > m[0] ? m[k] : m[0];
        bad[0] |= bad[k];
    }
    return bad[0] ? NAN : m[0];
}

int sampler_cut_first(const float *x, int n, float top)
{
    int i = 0;
    while (i < n - 1 && x[i] != top)
        i++;
    return i;
}

void sampler_cut_sigma(float *x, int n, float sigmas)
{
    double sum = 0, squares = 0;
    int count = 0;
    float top = -INFINITY;
    for (int i = 0; i < n; i++) {
        top = x[i] > top ? x[i] : top;
        sum += x[i] > -INFINITY ? x[i] : 0;
        count += x[i] > -INFINITY;
    }
    double mean = sum / count;
    for (int i = 0; i < n; i++)
        squares += x[i] > -INFINITY ? (x[i] - mean) * (x[i] - mean) : 0;
    double least = (double)top - (double)sigmas * sqrt(squares / count);
    for (int i = 0; i < n; i++)
        x[i] = (double)x[i] < least ? -INFINITY : x[i];
}

void sampler_cut_top_k(float *x, int n, int k)
{
    if (k > 0 && k < n)
        mask_behind(x, x, n, find_edge(x, NULL, n, k), -INFINITY);
}

void sampler_cut_top_p(float *w, int n, float p)
{
    if (p < 1)
        mask_behind(w, w, n, find_edge(w, w, n, (double)p * sampler_cut_sum(w, n)), 0);
}

void sampler_cut_min_p(float *w, int n, float p, float top)
{
    if (!(p > 0))
        return;
    float least = p * top;
    for (int i = 0; i < n; i++)
        w[i] = w[i] < least ? 0 : w[i];
}

// In nats; the logarithm of w[i] is x[i] - max.
static double entropy(const float *w, const float *x, float max, int n, double total)
{
    double t = 0;
    for (int i = 0; i < n; i++)
        t += w[i] > 0 ? (double)w[i] * ((double)x[i] - (double)max) : 0;
    return log(total) - t / total;
}

void sampler_cut_typical(float *w, const float *x, float max, int n, float p)
{
    float *key = mem_new((size_t)n * sizeof *key);
    double total = sampler_cut_sum(w, n), h = entropy(w, x, max, n, total), lse = log(total) + (double)max;
    for (int i = 0; i < n; i++)
        key[i] = w[i] > 0 ? (float)-fabs(lse - (double)x[i] - h) : -INFINITY;
    mask_behind(w, key, n, find_edge(key, w, n, (double)p * total), 0);
    free(key);
}

void sampler_cut_xtc(float *w, int n, float threshold)
{
    double least = (double)threshold * sampler_cut_sum(w, n);
    int kept = -1, count = 0;
    for (int i = 0; i < n; i++) {
        if (w[i] <= 0 || (double)w[i] < least)
            continue;
        count++;
        kept = kept < 0 || w[i] <= w[kept] ? i : kept;
    }
    for (int i = 0; count > 1 && i < n; i++)
        if ((double)w[i] >= least && i != kept)
            w[i] = 0;
}

float sampler_cut_dynatemp(const float *w, const float *x, float max, int n, float t, float range, float exponent)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += w[i] > 0;
    if (count < 2)
        return t;
    double h = entropy(w, x, max, n, sampler_cut_sum(w, n)) / log(count);
    h = h > 0 ? h : 0;  // rounding
    double low = t > range ? (double)t - (double)range : 0, high = (double)t + (double)range;
    return (float)(low + (high - low) * pow(h, (double)exponent));
}

// The weights of the likeliest, largest first; returns how many.
static int largest(const float *w, int n, double *ret)
{
    int have = 0;
    for (int i = 0; i < n; i++) {
        if (w[i] <= 0 || (have == MIROSTAT_M && (double)w[i] <= ret[have - 1]))
            continue;
        int k = have < MIROSTAT_M ? have++ : MIROSTAT_M - 1;
        for (; k > 0 && (double)w[i] > ret[k - 1]; k--)
            ret[k] = ret[k - 1];
        ret[k] = w[i];
    }
    return have;
}

static int mirostat_count(const float *w, int n, double mu)
{
    double top[MIROSTAT_M], tb = 0, tt = 0;
    int have = largest(w, n, top);
    for (int i = 0; i + 1 < have; i++) {
        double t = log((i + 2.0) / (i + 1.0));
        tb += t * log(top[i] / top[i + 1]);
        tt += t * t;
    }
    if (!(tb > 0))
        return have < 2 ? 1 : n;  // one is left, or all are alike
    double s = tb / tt, e = s - 1;
    double k = pow(e * exp2(mu) / (1 - pow(n, -e)), 1 / s);
    return k >= n ? n : k >= 1 ? (int)k : 1;
}

static void keep_first(float *w, int n, int k)
{
    if (k < n)
        mask_behind(w, w, n, find_edge(w, NULL, n, k), 0);
}

void sampler_cut_mirostat(float *w, int n, double mu)
{
    keep_first(w, n, mirostat_count(w, n, mu));
}

void sampler_cut_mirostat2(float *w, int n, double mu)
{
    double least = exp2(-mu) * sampler_cut_sum(w, n);
    if (least > (double)sampler_cut_top(w, n)) {
        keep_first(w, n, 1);
        return;
    }
    for (int i = 0; i < n; i++)
        w[i] = (double)w[i] < least ? 0 : w[i];
}

// The first element at which the sum from the left is above target; the last one with a weight if none is.
static int in_block(const float *v, int n, double t, double target)
{
    int last = 0;
    for (int i = 0; i < n; i++) {
        t += v[i];
        if (v[i] > 0)
            last = i;
        if (t > target)
            return i;
    }
    return last;
}

int sampler_cut_draw(const float *w, int n, double u)
{
    double target = u * sampler_cut_sum(w, n), t = 0;
    int last = 0;  // block
    for (int i = 0; i < n; i += BLOCK) {
        double b = sum_block(w + i, block_at(i, n));
        if (t + b > target)
            return i + in_block(w + i, block_at(i, n), t, target);
        if (b > 0)
            last = i;
        t += b;
    }
    return last + in_block(w + last, block_at(last, n), 0, INFINITY);
}
