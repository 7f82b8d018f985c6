// whisper_rules.c - see whisper_rules.h. Runs on the scheduler thread between steps: a few passes over the vocabulary.
#include "engine/audio/whisper_rules.h"

#include <math.h>

#include "kernels/cpu.h"

static void ban(float *logits, int from, int to)
{
    for (int i = from; i < to; i++)
        logits[i] = -INFINITY;
}

static bool is_time(const struct whisper_tokens *t, int32_t id)
{
    return id >= t->first_time;
}

// Pairs in rising order.
static void order_times(const struct whisper_rules *r, const int32_t *sampled, int n, float *logits)
{
    const struct whisper_tokens *t = r->tokens;
    bool last = n > 0 && is_time(t, sampled[n - 1]), before = n < 2 || is_time(t, sampled[n - 2]);
    if (last && before)
        ban(logits, t->first_time, r->vocab);
    else if (last)
        ban(logits, 0, t->eot);
    for (int i = n - 1; i >= 0; i--) {
        if (is_time(t, sampled[i])) {
            ban(logits, t->first_time, last && !before ? sampled[i] : sampled[i] + 1);
            return;
        }
    }
}

// log(sum(exp)) of a range; -INFINITY when nothing is left in it.
static double log_sum(const struct whisper_rules *r, const float *x, int n)
{
    float max = n > 0 ? r->ops->max(x, n) : -INFINITY;
    return isfinite(max) ? (double)max + log(r->ops->sum_exp(x, n, max)) : -INFINITY;
}

void whisper_rules_apply(const struct whisper_rules *r, const int32_t *sampled, int n, float *logits)
{
    const struct whisper_tokens *t = r->tokens;
    uint8_t bits = n == 0 ? SUPPRESS_ALWAYS | SUPPRESS_FIRST : SUPPRESS_ALWAYS;
    for (int i = 0; i < r->vocab; i++)
        if (r->marks[i] & bits)
            logits[i] = -INFINITY;
    if (!r->timestamps) {
        ban(logits, t->first_time, r->vocab);
        return;
    }
    logits[t->no_timestamps] = -INFINITY;
    order_times(r, sampled, n, logits);
    if (n == 0) {
        ban(logits, 0, t->first_time);
        if (r->max_first >= 0 && r->max_first + 1 < t->times)
            ban(logits, t->first_time + r->max_first + 1, r->vocab);
    }
    double times = log_sum(r, logits + t->first_time, r->vocab - t->first_time);
    if (times > (double)r->ops->max(logits, t->first_time))
        ban(logits, 0, t->first_time);
}

static int32_t draw(const struct whisper_rules *r, const float *logits, float max, float temperature, double unit)
{
    double sum = 0, at = 0;
    int32_t last = -1;
    for (int i = 0; i < r->vocab; i++)
        if (logits[i] > -INFINITY)
            sum += exp((double)(logits[i] - max) / (double)temperature);
    for (int i = 0; i < r->vocab; i++) {
        if (logits[i] == -INFINITY)
            continue;
        at += exp((double)(logits[i] - max) / (double)temperature);
        last = i;
        if (at > unit * sum)
            break;
    }
    return last;
}

int32_t whisper_rules_pick(const struct whisper_rules *r, const float *logits, float temperature, double unit,
                           float *ret_logprob)
{
    int32_t id = r->ops->argmax(logits, r->vocab);
    if (id < 0 || !isfinite(logits[id]))
        return -1;
    double total = log_sum(r, logits, r->vocab);
    if (!isfinite(total))
        return -1;
    if (temperature > 0)
        id = draw(r, logits, logits[id], temperature, unit);
    *ret_logprob = (float)((double)logits[id] - total);
    return id;
}

float whisper_rules_probability(const struct whisper_rules *r, const float *logits, int32_t id)
{
    double p = exp((double)logits[id] - log_sum(r, logits, r->vocab));
    return isfinite(p) ? (float)p : 0;
}
