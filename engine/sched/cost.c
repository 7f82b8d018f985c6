// cost.c - the step's running averages. Scheduler thread only.
#include "engine/sched/cost.h"

static const double target_s = 0.1, weight = 0.2, decay = 0.93;

enum {
    FIRST_BUDGET = 64,  // while nothing is known
    LEAST = 4,          // fewer tokens take as long: a tile of the matrix kernels has that many columns
    OUTLIER = 4,        // a step this many times slower than predicted counts as this many times slower
};

void cost_init(struct cost *c)
{
    *c = (struct cost){0};
}

static int bucket(int rows)
{
    int b = 0;
    while (rows > 1 && b < COST_BUCKETS - 1) {
        rows = (rows + 1) / 2;
        b++;
    }
    return b;
}

static void average(double *a, double x)
{
    *a = *a > 0 ? *a + weight * (x - *a) : x;
}

// An unknown size is taken from the nearest known smaller one, growing with the rows, or from a larger one as it is.
double cost_decode_s(const struct cost *c, int rows)
{
    if (rows <= 0)
        return 0;
    int b = bucket(rows);
    for (int i = b; i >= 0; i--)
        if (c->decode_s[i] > 0)
            return c->decode_s[i] * (double)(1 << (b - i));
    for (int i = b + 1; i < COST_BUCKETS; i++)
        if (c->decode_s[i] > 0)
            return c->decode_s[i];
    return 0;
}

// What a step takes before its first prefill token.
static double start_s(const struct cost *c, int decode_rows)
{
    double t = cost_decode_s(c, decode_rows);
    return decode_rows > 0 && t > 0 ? t : c->fixed_s;
}

double cost_target_s(const struct cost *c, int decode_rows)
{
    double t = start_s(c, decode_rows);
    double most = 2 * t > target_s ? 2 * t : target_s, want = decode_rows > 0 && t > 0 ? 5 * t : target_s;
    if (want < 0.4 * target_s)
        want = 0.4 * target_s;
    return want < most && decode_rows > 0 ? want : most;
}

int cost_budget(const struct cost *c, int decode_rows, int most)
{
    double target = cost_target_s(c, decode_rows);
    double room = target - start_s(c, decode_rows);
    if (room < 0.25 * target)
        room = 0.25 * target;
    double k = c->token_s > 0 ? room / c->token_s : FIRST_BUDGET;
    if (k < LEAST && LEAST * c->token_s < 2 * target)
        k = LEAST;
    return k >= most ? most : k < 1 ? 1 : (int)k;
}

// The line through the recent steps. Both parts are at least 0; where the steps do not differ in length the slope stays
// what it was.
static void fit(struct cost *c)
{
    double k = c->k / c->w, t = c->t / c->w, var = c->kk / c->w - k * k, cov = c->kt / c->w - k * t;
    double most = t / k, slope = c->token_s > 0 ? c->token_s : most;
    if (var > 0.01 * k * k)
        slope = cov / var;
    if (slope < 0.02 * most)
        slope = 0.02 * most;
    if (slope > most)
        slope = most;
    c->token_s = slope;
    c->fixed_s = t - slope * k;
}

void cost_learn(struct cost *c, int decode_rows, int prefill_rows, double seconds)
{
    if (prefill_rows == 0) {
        if (decode_rows > 0)
            average(&c->decode_s[bucket(decode_rows)], seconds);
        return;
    }
    // The decode rows' time holds the fixed part already.
    double t = seconds - start_s(c, decode_rows) + c->fixed_s;
    double expected = c->fixed_s + c->token_s * prefill_rows;
    if (c->token_s > 0 && t > OUTLIER * expected)
        t = OUTLIER * expected;
    c->w = decay * c->w + 1;
    c->k = decay * c->k + prefill_rows;
    c->t = decay * c->t + t;
    c->kk = decay * c->kk + (double)prefill_rows * prefill_rows;
    c->kt = decay * c->kt + prefill_rows * t;
    if (c->t > 0)
        fit(c);
}
