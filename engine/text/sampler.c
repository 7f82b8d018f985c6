// sampler.c - logits to a token; used by the scheduler thread only.
//
// Nothing sorts the vocabulary. Top-k and top-p are both "everything up to one element in the order (value down, id
// up)"; that element is found by a three-level radix histogram of counts or of probability mass, then what lies behind
// it is masked. The draw walks ids upwards over what is left.
//
// Logits that are not a number, infinite upwards, or all masked give -1: the caller ends the request with an error.
#include "engine/text/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

struct sampler {
    struct sampling s;
    struct logit_bias *bias;
    int vocab, choice;
    // Only with penalties: ids met so far, and how often each was put out.
    int32_t *seen;
    int nseen, cap;
    uint32_t *counts;
    unsigned char *met;
};

static bool has_penalties(const struct sampling *s)
{
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

struct sampler *sampler_new(const struct sampling *s, int vocab, int choice)
{
    struct sampler *p = mem_new(sizeof *p);
    p->s = *s;
    p->vocab = vocab;
    p->choice = choice;
    if (s->nbias > 0) {
        p->bias = mem_new(s->nbias * sizeof *p->bias);
        memcpy(p->bias, s->bias, s->nbias * sizeof *p->bias);
    }
    p->s.bias = p->bias;
    if (has_penalties(s)) {
        p->counts = mem_new((size_t)vocab * sizeof *p->counts);
        p->met = mem_new((size_t)vocab);
    }
    return p;
}

struct sampler *sampler_fork(const struct sampler *s, int choice)
{
    struct sampler *p = sampler_new(&s->s, s->vocab, choice);
    if (!s->counts)
        return p;
    memcpy(p->counts, s->counts, (size_t)s->vocab * sizeof *p->counts);
    memcpy(p->met, s->met, (size_t)s->vocab);
    p->cap = p->nseen = s->nseen;
    p->seen = mem_new(((size_t)p->cap + 1) * sizeof *p->seen);
    if (s->nseen > 0)
        memcpy(p->seen, s->seen, (size_t)s->nseen * sizeof *p->seen);
    return p;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->bias);
    free(s->seen);
    free(s->counts);
    free(s->met);
    free(s);
}

static void meet(struct sampler *s, int32_t id)
{
    if (!s->met || id < 0 || id >= s->vocab || s->met[id])
        return;
    if (s->nseen == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->seen = mem_resize(s->seen, (size_t)s->cap * sizeof *s->seen);
    }
    s->met[id] = 1;
    s->seen[s->nseen++] = id;
}

void sampler_see_prompt(struct sampler *s, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        meet(s, ids[i]);
}

// Repetition as in CTRL (Keskar et al. 2019), presence and frequency as OpenAI defines them.
static void penalise(const struct sampler *s, float *logits)
{
    for (int i = 0; i < s->nseen; i++) {
        int32_t id = s->seen[i];
        float x = logits[id];
        x = x > 0 ? x / s->s.repetition_penalty : x * s->s.repetition_penalty;
        if (s->counts[id] > 0)
            x -= s->s.presence_penalty + s->s.frequency_penalty * (float)s->counts[id];
        logits[id] = x;
    }
}

// Sums and maxima over a vocabulary run in LANES chains side by side, always the same ones, so that they vectorise without
// any freedom of order.
enum { LANES = 16, BLOCK = 512 };

// Largest value; NAN if any value is not a number.
static float top_value(const float *x, int n)
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

// The first that has the largest value, which is known.
static int first_of(const float *x, int n, float max)
{
    int i = 0;
    while (i < n - 1 && x[i] != max)
        i++;
    return i;
}

// exp for x <= 0 in plain IEEE operations and without a branch, so that it vectorises and gives the same bits on every
// machine; relative error below 2e-7. Cody-Waite reduction, degree-6 polynomial; 0 below -87.
static inline float exp_down(float x)
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

// The smallest set from the top, in the order (value down, id up), whose sum reaches target. The sum is of values
// (mass) or of elements.
static struct edge find_edge(const float *v, int n, bool mass, double target)
{
    static const int shifts[] = {21, 10, 0}, bits[] = {11, 11, 10};
    uint32_t prefix = 0, mask = 0;
    double above = 0;
    target = target > 0 ? target : 1e-300;  // at least one element
    for (int level = 0; level < 3; level++) {
        double sums[2048] = {0};
        uint32_t low = (1u << bits[level]) - 1;
        for (int i = 0; i < n; i++) {
            uint32_t k = order_key(v[i]);
            if ((k & mask) == prefix)
                sums[k >> shifts[level] & low] += mass ? v[i] : 1;
        }
        uint32_t b = low;
        while (b > 0 && above + sums[b] < target)
            above += sums[b--];
        prefix |= b << shifts[level];
        mask |= low << shifts[level];
    }
    struct edge at = {prefix, n - 1};
    for (int i = 0; i < n; i++) {
        if (order_key(v[i]) != prefix)
            continue;
        above += mass ? v[i] : 1;
        if (above >= target) {
            at.id = i;
            break;
        }
    }
    return at;
}

static void mask_behind(float *v, int n, struct edge at, float with)
{
    for (int i = 0; i < n; i++) {
        uint32_t k = order_key(v[i]);
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

static double sum(const float *v, int n)
{
    double t = 0;
    for (int i = 0; i < n; i += BLOCK)
        t += sum_block(v + i, block_at(i, n));
    return t;
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

static int draw(const float *weights, int n, double u)
{
    double target = u * sum(weights, n), t = 0;
    int last = 0;  // block
    for (int i = 0; i < n; i += BLOCK) {
        double b = sum_block(weights + i, block_at(i, n));
        if (t + b > target)
            return i + in_block(weights + i, block_at(i, n), t, target);
        if (b > 0)
            last = i;
        t += b;
    }
    return last + in_block(weights + last, block_at(last, n), 0, INFINITY);
}

static int32_t pick(const struct sampler *s, float *x, float max, int index)
{
    const struct sampling *o = &s->s;
    int n = s->vocab;
    if (o->top_k > 0 && o->top_k < n)
        mask_behind(x, n, find_edge(x, n, false, o->top_k), -INFINITY);
    float inv = 1.0f / o->temperature;
    for (int i = 0; i < n; i++)
        x[i] = exp_down((x[i] - max) * inv);
    if (o->top_p < 1)
        mask_behind(x, n, find_edge(x, n, true, (double)o->top_p * sum(x, n)), 0);
    if (o->min_p > 0)
        for (int i = 0; i < n; i++)
            x[i] = x[i] < o->min_p ? 0 : x[i];  // the likeliest has weight 1
    return draw(x, n, rng_unit(o->seed, (uint64_t)s->choice, (uint64_t)index));
}

static void apply_mask(float *logits, int n, const uint64_t *mask)
{
    for (int i = 0; i < n; i += 64) {
        uint64_t word = mask[i / 64];
        int end = n - i < 64 ? n - i : 64;
        if (word == UINT64_MAX)
            continue;
        for (int k = 0; k < end && word == 0; k++)  // most words are none or all
            logits[i + k] = -INFINITY;
        for (int k = 0; k < end && word != 0; k++)
            if (!(word >> k & 1))
                logits[i + k] = -INFINITY;
    }
}

int32_t sampler_pick(struct sampler *s, float *logits, int index, const uint64_t *mask, const int32_t *banned,
                     size_t nbanned)
{
    if (mask)
        apply_mask(logits, s->vocab, mask);
    for (size_t i = 0; i < s->s.nbias; i++)
        if (s->bias[i].id >= 0 && s->bias[i].id < s->vocab)
            logits[s->bias[i].id] += s->bias[i].bias;
    penalise(s, logits);
    for (size_t i = 0; i < nbanned; i++)
        if (banned[i] >= 0 && banned[i] < s->vocab)
            logits[banned[i]] = -INFINITY;
    float max = top_value(logits, s->vocab);
    if (!(max > -INFINITY && max < INFINITY))
        return -1;
    // A temperature so low that its reciprocal overflows is greedy too.
    bool greedy = !(s->s.temperature > 1e-30f);
    int32_t id = greedy ? first_of(logits, s->vocab, max) : pick(s, logits, max, index);
    meet(s, id);
    if (s->counts)
        s->counts[id]++;
    return id;
}

// Keeps top[0..n) sorted, likeliest first; ids arrive ascending, so an equal one stays behind.
static int insert(struct token_alternative *top, int n, int k, int32_t id, float logit)
{
    if (n == k && !(logit > top[n - 1].logprob))
        return n;
    int i = n < k ? n : k - 1;
    for (; i > 0 && logit > top[i - 1].logprob; i--)
        top[i] = top[i - 1];
    top[i] = (struct token_alternative){.id = id, .logprob = logit};
    return n < k ? n + 1 : n;
}

void sampler_logprobs(const float *logits, int vocab, int32_t chosen, int k, float *ret_chosen,
                      struct token_alternative *ret_top, int *ret_ntop)
{
    float max = top_value(logits, vocab);
    double total = 0;
    int n = 0;
    k = k < vocab ? k : vocab;
    for (int i = 0; i < vocab; i++) {
        total += exp_down(logits[i] - max);
        if (k > 0)
            n = insert(ret_top, n, k, i, logits[i]);
    }
    double lse = (double)max + log(total);
    for (int i = 0; i < n; i++)
        ret_top[i].logprob = (float)((double)ret_top[i].logprob - lse);
    *ret_chosen = (float)((double)logits[chosen] - lse);
    *ret_ntop = n;
}
