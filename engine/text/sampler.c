// sampler.c - logits to a token. What cuts a distribution is in sampler_cut.c; here is the order, and the history of an
// answer. Owned by one choice.
//
// Logits that are not a number, infinite upwards, or all masked give -1: the caller ends the request with an error.
#include "engine/text/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/text/sampler_cut.h"
#include "engine/text/sampler_dry.h"

// XTC's draws, apart from those of the tokens.
static const uint64_t xtc_stream = 1ull << 32;

struct sampler {
    struct sampling s;
    struct logit_bias *bias;
    int vocab, choice;
    // Only with penalties: ids met so far, and how often each was put out.
    int32_t *seen;
    int nseen, cap;
    uint32_t *counts;
    unsigned char *met;
    // Only with penalties that look at the last tokens: all tokens, and how many are the prompt's. seen, counts and met are
    // made of it for each pick.
    int32_t *past;
    int npast, past_cap, nprompt;
    struct dry *dry;  // NULL: off
    double mu;        // Mirostat's: the most surprise that is let pass
};

static bool has_penalties(const struct sampling *s)
{
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static bool is_greedy(const struct sampling *s)
{
    return !(s->temperature > 1e-30f);  // the reciprocal of less overflows
}

struct sampler *sampler_new(const struct sampling *s, int vocab, int choice)
{
    struct sampler *p = mem_new(sizeof *p);
    p->s = *s;
    p->vocab = vocab;
    p->choice = choice;
    p->mu = 2 * (double)s->mirostat_tau;
    if (s->nbias > 0) {
        p->bias = mem_new(s->nbias * sizeof *p->bias);
        memcpy(p->bias, s->bias, s->nbias * sizeof *p->bias);
    }
    p->s.bias = p->bias;
    if (has_penalties(s)) {
        p->counts = mem_new((size_t)vocab * sizeof *p->counts);
        p->met = mem_new((size_t)vocab);
    }
    if (s->dry_multiplier > 0)
        p->dry = sampler_dry_new(s, NULL);
    return p;
}

void sampler_set_tokenizer(struct sampler *s, const struct tokenizer *t)
{
    if (!s->dry)
        return;
    sampler_dry_free(s->dry);
    s->dry = sampler_dry_new(&s->s, t);
}

static int32_t *copy_ids(const int32_t *ids, int n)
{
    int32_t *copy = mem_new(((size_t)n + 1) * sizeof *copy);
    return n > 0 ? memcpy(copy, ids, (size_t)n * sizeof *copy) : copy;
}

struct sampler *sampler_fork(const struct sampler *s, int choice)
{
    struct sampling plain = s->s;
    plain.dry_multiplier = 0;
    struct sampler *p = sampler_new(&plain, s->vocab, choice);
    p->s.dry_multiplier = s->s.dry_multiplier;
    p->dry = s->dry ? sampler_dry_copy(s->dry) : NULL;
    p->mu = s->mu;
    if (!s->counts)
        return p;
    memcpy(p->counts, s->counts, (size_t)s->vocab * sizeof *p->counts);
    memcpy(p->met, s->met, (size_t)s->vocab);
    p->cap = p->nseen = s->nseen;
    p->seen = copy_ids(s->seen, s->nseen);
    p->past_cap = p->npast = s->npast;
    p->past = copy_ids(s->past, s->npast);
    p->nprompt = s->nprompt;
    return p;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    sampler_dry_free(s->dry);
    free(s->bias);
    free(s->seen);
    free(s->counts);
    free(s->met);
    free(s->past);
    free(s);
}

// ---- history

static void add_id(int32_t **list, int *n, int *cap, int32_t id)
{
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 64;
        *list = mem_resize(*list, (size_t)*cap * sizeof **list);
    }
    (*list)[(*n)++] = id;
}

static void meet(struct sampler *s, int32_t id)
{
    if (id < 0 || id >= s->vocab || s->met[id])
        return;
    s->met[id] = 1;
    add_id(&s->seen, &s->nseen, &s->cap, id);
}

static void remember(struct sampler *s, int32_t id, bool output)
{
    if (s->dry)
        sampler_dry_take(s->dry, id);
    if (!s->met)
        return;
    if (s->s.penalty_last_n > 0) {
        add_id(&s->past, &s->npast, &s->past_cap, id);
        s->nprompt += !output;
        return;
    }
    meet(s, id);
    if (output && id < s->vocab)
        s->counts[id]++;
}

void sampler_see_prompt(struct sampler *s, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        remember(s, ids[i], false);
}

static void look_back(struct sampler *s)
{
    for (int i = 0; i < s->nseen; i++)
        s->met[s->seen[i]] = s->counts[s->seen[i]] = 0;
    s->nseen = 0;
    int from = s->npast > s->s.penalty_last_n ? s->npast - s->s.penalty_last_n : 0;
    for (int i = from; i < s->npast; i++) {
        meet(s, s->past[i]);
        if (i >= s->nprompt && s->past[i] < s->vocab)
            s->counts[s->past[i]]++;
    }
}

// Repetition as in CTRL, presence and frequency as OpenAI defines them.
static void penalise(struct sampler *s, float *logits)
{
    if (s->met && s->s.penalty_last_n > 0)
        look_back(s);
    for (int i = 0; i < s->nseen; i++) {
        int32_t id = s->seen[i];
        float x = logits[id];
        x = x > 0 ? x / s->s.repetition_penalty : x * s->s.repetition_penalty;
        if (s->counts[id] > 0)
            x -= s->s.presence_penalty + s->s.frequency_penalty * (float)s->counts[id];
        logits[id] = x;
    }
}

// ---- picking

static int draw(const struct sampler *s, const float *w, int index)
{
    return sampler_cut_draw(w, s->vocab, rng_unit(s->s.seed, (uint64_t)s->choice, (uint64_t)index));
}

static void weigh(float *x, int n, float max, float inv)
{
    for (int i = 0; i < n; i++)
        x[i] = sampler_cut_exp((x[i] - max) * inv);
}

static int32_t pick(const struct sampler *s, float *x, float max, int index)
{
    const struct sampling *o = &s->s;
    int n = s->vocab;
    sampler_cut_top_k(x, n, o->top_k);
    weigh(x, n, max, 1.0f / o->temperature);
    sampler_cut_top_p(x, n, o->top_p);
    sampler_cut_min_p(x, n, o->min_p, 1);
    return draw(s, x, index);
}

static bool is_typical(const struct sampling *o)
{
    return o->typical_p > 0 && o->typical_p < 1;
}

static bool is_chain(const struct sampling *o)
{
    return is_typical(o) || o->top_n_sigma > 0 || o->xtc_probability > 0 || o->dynatemp_range > 0;
}

// Everything that cuts: from logits to weights at temperature 1.
static void cut(const struct sampler *s, float *x, float *w, float max, int index)
{
    const struct sampling *o = &s->s;
    int n = s->vocab;
    if (o->top_n_sigma > 0)
        sampler_cut_sigma(x, n, o->top_n_sigma);
    sampler_cut_top_k(x, n, o->top_k);
    memcpy(w, x, (size_t)n * sizeof *w);
    weigh(w, n, max, 1);
    if (is_typical(o))
        sampler_cut_typical(w, x, max, n, o->typical_p);
    sampler_cut_top_p(w, n, o->top_p);
    sampler_cut_min_p(w, n, o->min_p, sampler_cut_top(w, n));
    double u = rng_unit(o->seed, (uint64_t)s->choice | xtc_stream, (uint64_t)index);
    if (u < (double)o->xtc_probability && o->xtc_threshold <= 0.5f)
        sampler_cut_xtc(w, n, o->xtc_threshold);
}

static int32_t pick_chain(const struct sampler *s, float *x, float max, int index)
{
    const struct sampling *o = &s->s;
    int n = s->vocab;
    float *w = mem_new((size_t)n * sizeof *w);
    cut(s, x, w, max, index);
    float t = o->temperature;
    if (o->dynatemp_range > 0)
        t = sampler_cut_dynatemp(w, x, max, n, t, o->dynatemp_range, o->dynatemp_exponent);
    for (int i = 0; i < n; i++)
        x[i] = w[i] > 0 ? x[i] : -INFINITY;
    free(w);
    float top = sampler_cut_top(x, n);
    if (!(t > 1e-30f))
        return sampler_cut_first(x, n, top);
    weigh(x, n, top, 1 / t);
    return draw(s, x, index);
}

// mu follows the surprise of what is taken, in bits.
static void learn(struct sampler *s, double surprise)
{
    s->mu -= (double)s->s.mirostat_eta * (surprise - (double)s->s.mirostat_tau);
}

static int32_t pick_mirostat(struct sampler *s, float *x, float max, int index)
{
    int n = s->vocab;
    weigh(x, n, max, 1.0f / s->s.temperature);
    if (s->s.mirostat == 1)
        sampler_cut_mirostat(x, n, s->mu);
    else
        sampler_cut_mirostat2(x, n, s->mu);
    int32_t id = draw(s, x, index);
    learn(s, log2(sampler_cut_sum(x, n) / (double)x[id]));
    return id;
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

// A form that admits few tokens asks for punctuation again and again: penalties would drive an answer into the others.
static bool admits_few(const uint64_t *mask, int n)
{
    int count = 0;
    for (int i = 0; i < (n + 63) / 64 && count <= SAMPLER_FEW; i++)
        count += __builtin_popcountll(mask[i]);
    return count <= SAMPLER_FEW;
}

// Everything before temperature and cuts.
static void adjust(struct sampler *s, float *logits, const uint64_t *mask, const int32_t *banned, size_t nbanned)
{
    if (mask)
        apply_mask(logits, s->vocab, mask);
    for (size_t i = 0; i < s->s.nbias; i++)
        if (s->bias[i].id >= 0 && s->bias[i].id < s->vocab)
            logits[s->bias[i].id] += s->bias[i].bias;
    if (!mask || !admits_few(mask, s->vocab)) {
        penalise(s, logits);
        if (s->dry)
            sampler_dry_apply(s->dry, logits, s->vocab);
    }
    for (size_t i = 0; i < nbanned; i++)
        if (banned[i] >= 0 && banned[i] < s->vocab)
            logits[banned[i]] = -INFINITY;
}

int32_t sampler_pick(struct sampler *s, float *logits, int index, const uint64_t *mask, const int32_t *banned,
                     size_t nbanned)
{
    adjust(s, logits, mask, banned, nbanned);
    float max = sampler_cut_top(logits, s->vocab);
    if (!(max > -INFINITY && max < INFINITY))
        return -1;
    int32_t id;
    if (is_greedy(&s->s))
        id = sampler_cut_first(logits, s->vocab, max);
    else if (s->s.mirostat)
        id = pick_mirostat(s, logits, max, index);
    else
        id = is_chain(&s->s) ? pick_chain(s, logits, max, index) : pick(s, logits, max, index);
    remember(s, id, true);
    return id;
}

void sampler_take(struct sampler *s, int32_t id)
{
    if (s->s.mirostat && !is_greedy(&s->s))
        learn(s, 0);
    remember(s, id, true);
}

// ---- log-probabilities

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

double sampler_lse(const float *logits, int vocab)
{
    float max = sampler_cut_top(logits, vocab);
    double total = 0;
    for (int i = 0; i < vocab; i++)
        total += sampler_cut_exp(logits[i] - max);
    return (double)max + log(total);
}

void sampler_logprobs(const float *logits, int vocab, int32_t chosen, int k, float *ret_chosen, int *ret_rank,
                      struct token_alternative *ret_top, int *ret_ntop)
{
    float max = sampler_cut_top(logits, vocab);
    double total = 0;
    int n = 0, rank = 1;
    k = k < vocab ? k : vocab;
    for (int i = 0; i < vocab; i++) {
        total += sampler_cut_exp(logits[i] - max);
        rank += logits[i] > logits[chosen];
        if (k > 0)
            n = insert(ret_top, n, k, i, logits[i]);
    }
    double lse = (double)max + log(total);
    for (int i = 0; i < n; i++)
        ret_top[i].logprob = (float)((double)ret_top[i].logprob - lse);
    *ret_chosen = (float)((double)logits[chosen] - lse);
    *ret_rank = rank;
    *ret_ntop = n;
}
