// readout.c - see readout.h. Any thread; owns nothing.
#include "engine/decide/readout.h"

#include <math.h>

bool readout_softmax(const double *l, const float *bias, int n, double temperature, double *ret_p, int *ret_best)
{
    int best = 0;
    for (int i = 0; i < n; i++) {
        ret_p[i] = (l[i] + (bias ? (double)bias[i] : 0)) / temperature;
        if (!isfinite(ret_p[i]))
            return false;
        if (ret_p[i] > ret_p[best])
            best = i;
    }
    double top = ret_p[best], sum = 0;
    for (int i = 0; i < n; i++) {
        ret_p[i] = exp(ret_p[i] - top);
        sum += ret_p[i];
    }
    for (int i = 0; i < n; i++)
        ret_p[i] /= sum;
    *ret_best = best;
    return true;
}

double readout_mass(const float *logits, int vocab, const int32_t *ids, int n)
{
    float top = logits[0];
    for (int i = 1; i < vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    double all = 0, some = 0;
    for (int i = 0; i < vocab; i++)
        all += exp((double)(logits[i] - top));
    for (int i = 0; i < n; i++)
        some += exp((double)(logits[ids[i]] - top));
    return some < all ? some / all : 1;
}

double readout_together(const float *logits, const int32_t *ids, int n)
{
    double top = (double)logits[ids[0]], sum = 0;
    for (int i = 1; i < n; i++)
        top = (double)logits[ids[i]] > top ? (double)logits[ids[i]] : top;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[ids[i]] - top);
    return n > 1 ? top + log(sum) : top;
}

double readout_dot(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}
