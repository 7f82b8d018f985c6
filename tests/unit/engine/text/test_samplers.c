// Every sampler against a definition in doubles that sorts and sums, by chi-square over 10,000 draws; Mirostat and DRY step by
// step; cuts and the repetition penalty against transformers.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/text/sampler.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/fake_tokenizer.h"

enum { VOCAB = 60, DRAWS = 10000 };

static struct sampling plain(void)
{
    return (struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 77};
}

static void make_logits(float *x, uint64_t seed)
{
    for (int i = 0; i < VOCAB; i++)
        x[i] = (float)(rng_unit(seed, (uint64_t)i, 0) * 6 - 3);
    x[7] = x[31] = x[12];  // ties
}

// ---- the definition

struct item {
    int id;
    double logit, p;
    bool kept;
};

static int by_logit(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

static void normalise(struct item *v, double t)
{
    double total = 0;
    for (int i = 0; i < VOCAB; i++)
        total += v[i].p = v[i].kept ? exp(v[i].logit / t) : 0;
    for (int i = 0; i < VOCAB; i++)
        v[i].p /= total;
}

static double entropy_of(const struct item *v)
{
    double h = 0;
    for (int i = 0; i < VOCAB; i++)
        h -= v[i].p > 0 ? v[i].p * log(v[i].p) : 0;
    return h;
}

static void keep_sigma(struct item *v, double n)
{
    double mean = 0, var = 0;
    for (int i = 0; i < VOCAB; i++)
        mean += v[i].logit / VOCAB;
    for (int i = 0; i < VOCAB; i++)
        var += (v[i].logit - mean) * (v[i].logit - mean) / VOCAB;
    for (int i = 0; i < VOCAB; i++)
        v[i].kept &= v[i].logit >= v[0].logit - n * sqrt(var);
}

static void keep_typical(struct item *v, double p)
{
    double h = entropy_of(v), mass = 0;
    bool taken[VOCAB] = {false};
    while (mass < p) {
        int best = -1;
        for (int i = 0; i < VOCAB; i++)
            if (v[i].kept && !taken[i] &&
                (best < 0 || fabs(-log(v[i].p) - h) < fabs(-log(v[best].p) - h) - 1e-9 ||
                 (fabs(v[i].logit - v[best].logit) < 1e-9 && v[i].id < v[best].id)))
                best = i;
        if (best < 0)
            break;
        taken[best] = true;
        mass += v[best].p;
    }
    for (int i = 0; i < VOCAB; i++)
        v[i].kept &= taken[i];
}

static void keep_mass(struct item *v, double p)
{
    double mass = 0;
    for (int i = 0; i < VOCAB; i++) {
        v[i].kept &= mass < p;
        mass += v[i].p;
    }
}

static void keep_min(struct item *v, double p)
{
    double top = 0;
    for (int i = 0; i < VOCAB; i++)
        top = v[i].p > top ? v[i].p : top;
    for (int i = 0; i < VOCAB; i++)
        v[i].kept &= v[i].p >= p * top;
}

static void keep_xtc(struct item *v, double threshold)
{
    int last = -1;
    for (int i = 0; i < VOCAB; i++)
        if (v[i].kept && v[i].p >= threshold)
            last = i;
    for (int i = 0; i < last; i++)
        v[i].kept = v[i].kept && v[i].p < threshold;
}

static double temperature_of(const struct item *v, const struct sampling *o)
{
    int kept = 0;
    for (int i = 0; i < VOCAB; i++)
        kept += v[i].kept;
    if (!(o->dynatemp_range > 0) || kept < 2)
        return (double)o->temperature;
    double low = fmax(0, (double)o->temperature - (double)o->dynatemp_range);
    double high = (double)o->temperature + (double)o->dynatemp_range;
    return low + (high - low) * pow(entropy_of(v) / log(kept), (double)o->dynatemp_exponent);
}

// llama-server's chain; adds the probabilities, by id, with a weight.
static void define(const float *logits, const struct sampling *o, bool xtc, double weight, double *ret)
{
    struct item v[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        v[i] = (struct item){i, (double)logits[i], 0, true};
    qsort(v, VOCAB, sizeof *v, by_logit);
    if (o->top_n_sigma > 0)
        keep_sigma(v, (double)o->top_n_sigma);
    for (int i = o->top_k ? o->top_k : VOCAB; i < VOCAB; i++)
        v[i].kept = false;
    normalise(v, 1);
    if (o->typical_p > 0)
        keep_typical(v, (double)o->typical_p);
    normalise(v, 1);
    if (o->top_p < 1)
        keep_mass(v, (double)o->top_p);
    normalise(v, 1);
    keep_min(v, (double)o->min_p);
    normalise(v, 1);
    if (xtc)
        keep_xtc(v, (double)o->xtc_threshold);
    normalise(v, 1);
    normalise(v, temperature_of(v, o));
    for (int i = 0; i < VOCAB; i++)
        ret[v[i].id] += weight * v[i].p;
}

// The draws' chi-square as standard deviations from its mean; bins of less than five expected draws are one.
static double deviation(const int *got, const double *want)
{
    double chi = 0, rest_want = 0, rest_got = 0;
    int bins = 0;
    for (int i = 0; i < VOCAB; i++) {
        double e = want[i] * DRAWS;
        if (e < 5) {
            rest_want += e;
            rest_got += got[i];
            continue;
        }
        chi += (got[i] - e) * (got[i] - e) / e;
        bins++;
    }
    if (rest_want >= 5) {
        chi += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        bins++;
    }
    return bins > 1 ? (chi - (bins - 1)) / sqrt(2.0 * (bins - 1)) : 0;
}

static void compare(const struct sampling *o, uint64_t seed)
{
    float logits[VOCAB], x[VOCAB];
    double want[VOCAB] = {0};
    int got[VOCAB] = {0};
    make_logits(logits, seed);
    define(logits, o, true, (double)o->xtc_probability, want);
    define(logits, o, false, 1 - (double)o->xtc_probability, want);
    struct sampler *s = sampler_new(o, VOCAB, 0);
    for (int i = 0; i < DRAWS; i++) {
        memcpy(x, logits, sizeof x);
        int32_t id = sampler_pick(s, x, i, NULL, NULL, 0);
        assert_true(id >= 0 && want[id] > 0);
        got[id]++;
    }
    sampler_free(s);
    double d = deviation(got, want);
    if (fabs(d) > 4)  // the furthest seen: 2.6
        fail_msg("chi-square is %.1f standard deviations off", d);
}

static void test_distributions(void **state)
{
    (void)state;
    static const struct sampling cases[] = {
        {.typical_p = 0.2f}, {.typical_p = 0.5f}, {.typical_p = 0.95f}, {.typical_p = 0.7f, .top_p = 0.8f, .min_p = 0.1f},
        {.top_n_sigma = 0.5f}, {.top_n_sigma = 1}, {.top_n_sigma = 1.5f, .temperature = 1.5f},
        {.xtc_probability = 1, .xtc_threshold = 0.05f}, {.xtc_probability = 0.5f, .xtc_threshold = 0.03f},
        {.xtc_probability = 0.3f, .xtc_threshold = 0.1f, .temperature = 1.3f, .top_k = 20},
        {.xtc_probability = 1, .xtc_threshold = 0.5f}, {.xtc_probability = 0.5f, .xtc_threshold = 0},
        {.dynatemp_range = 0.5f, .dynatemp_exponent = 1}, {.dynatemp_range = 0.9f, .dynatemp_exponent = 2, .top_k = 10},
        {.dynatemp_range = 2, .dynatemp_exponent = 0.5f, .min_p = 0.05f, .temperature = 0.5f},
        {.typical_p = 0.9f, .top_n_sigma = 2, .xtc_probability = 0.4f, .xtc_threshold = 0.04f, .dynatemp_range = 0.4f,
         .dynatemp_exponent = 1, .top_p = 0.95f, .min_p = 0.02f, .top_k = 40, .temperature = 0.8f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling o = cases[i];
        o.repetition_penalty = 1;
        o.seed = 100 + i;
        o.temperature = o.temperature > 0 ? o.temperature : 1;
        o.top_p = o.top_p > 0 ? o.top_p : 1;
        compare(&o, i);
    }
}

// ---- Mirostat

static double mirostat_k(const struct item *v, double mu)
{
    double tb = 0, tt = 0;
    for (int i = 0; i + 1 < VOCAB && i < 99; i++) {
        double t = log((i + 2.0) / (i + 1.0));
        tb += t * log(v[i].p / v[i + 1].p);
        tt += t * t;
    }
    double s = tb / tt, e = s - 1;
    return fmax(1, floor(pow(e * pow(2, mu) / (1 - pow(VOCAB, -e)), 1 / s)));
}

// What Mirostat keeps with this mu, as probabilities by id.
static void define_mirostat(const float *logits, const struct sampling *o, double mu, double *ret)
{
    struct item v[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        v[i] = (struct item){i, (double)logits[i], 0, true};
    qsort(v, VOCAB, sizeof *v, by_logit);
    normalise(v, (double)o->temperature);
    double k = o->mirostat == 1 ? mirostat_k(v, mu) : VOCAB;
    for (int i = 1; i < VOCAB; i++)
        v[i].kept = i < k && (o->mirostat == 1 || -log2(v[i].p) <= mu);
    normalise(v, (double)o->temperature);
    for (int i = 0; i < VOCAB; i++)
        ret[v[i].id] = v[i].p;
}

static int draw(const double *p, double u)
{
    double t = 0;
    int i = 0;
    for (; i < VOCAB - 1; i++)
        if ((t += p[i]) > u)
            break;
    return i;
}

// The same draws from the same numbers: mu goes the same way for 2,000 tokens.
static void test_mirostat(void **state)
{
    (void)state;
    for (int mode = 1; mode <= 2; mode++) {
        struct sampling o = plain();
        o.mirostat = mode;
        o.mirostat_tau = 2;
        o.mirostat_eta = 0.1f;
        o.temperature = 1.2f;
        struct sampler *s = sampler_new(&o, VOCAB, 3);
        double mu = 4, p[VOCAB], surprise = 0;
        for (int i = 0; i < 2000; i++) {
            float x[VOCAB];
            make_logits(x, (uint64_t)i);
            define_mirostat(x, &o, mu, p);
            int want = draw(p, rng_unit(o.seed, 3, (uint64_t)i));
            if (i == 1000) {  // a second choice goes the same way from here
                struct sampler *f = sampler_fork(s, 3);
                sampler_free(s);
                s = f;
            }
            int got = sampler_pick(s, x, i, NULL, NULL, 0);
            if (got != want)
                fail_msg("mirostat %d, token %d: %d, expected %d; mu %g p %g %g", mode, i, got, want, mu, p[got], p[want]);
            surprise += -log2(p[want]);
            mu -= (double)o.mirostat_eta * (-log2(p[want]) - 2);
        }
        sampler_free(s);
        assert_true(fabs(surprise / 2000 - 2) < 0.05);  // what it is for; 0.01 off at most
        o.mirostat_eta = 0;  // mu stays: the distribution is always the same
        int got[VOCAB] = {0};
        float logits[VOCAB], x[VOCAB];
        make_logits(logits, 1);
        define_mirostat(logits, &o, 4, p);
        s = sampler_new(&o, VOCAB, 0);
        for (int i = 0; i < DRAWS; i++) {
            memcpy(x, logits, sizeof x);
            got[sampler_pick(s, x, i, NULL, NULL, 0)]++;
        }
        sampler_free(s);
        assert_true(fabs(deviation(got, p)) < 4);  // seen: 1.1
    }
}

// What is taken without a choice leaves the same state as a pick with nothing else admitted.
static void test_take(void **state)
{
    (void)state;
    for (int mode = 0; mode <= 2; mode++) {
        struct sampling o = plain();
        o.mirostat = mode;
        o.mirostat_tau = 1;
        o.mirostat_eta = 0.3f;
        o.frequency_penalty = 0.5f;
        o.dry_multiplier = 1;
        o.dry_base = 1.5f;
        o.dry_allowed_length = 1;
        o.dry_last_n = -1;
        struct sampler *a = sampler_new(&o, VOCAB, 0), *b = sampler_new(&o, VOCAB, 0);
        for (int i = 0; i < 400; i++) {
            float x[VOCAB], y[VOCAB];
            make_logits(x, (uint64_t)i);
            make_logits(y, (uint64_t)i);
            int32_t only = i * 7 % VOCAB;
            if (i % 3 == 0) {
                uint64_t mask = 1ull << only;
                assert_int_equal(sampler_pick(a, x, i, &mask, NULL, 0), only);
                sampler_take(b, only);
            } else {
                assert_int_equal(sampler_pick(a, x, i, NULL, NULL, 0), sampler_pick(b, y, i, NULL, NULL, 0));
            }
        }
        sampler_free(a);
        sampler_free(b);
    }
}

// ---- DRY

// By definition: for each earlier place how far back it agrees with the end, up to the last breaker.
static void define_dry(const int32_t *ids, int n, int since, const struct sampling *o, const bool *breaker, double *ret)
{
    int longest[VOCAB] = {0};
    int from = o->dry_last_n >= 0 && n > o->dry_last_n ? n - o->dry_last_n : 0;
    for (int at = from; at + 1 < n; at++) {
        int m = 0;
        while (m < since && at - m >= from && ids[at - m] == ids[n - 1 - m])
            m++;
        if (m > longest[ids[at + 1]])
            longest[ids[at + 1]] = m;
    }
    for (int i = 0; i < VOCAB; i++)
        ret[i] = longest[i] >= o->dry_allowed_length && !breaker[i]
                     ? (double)o->dry_multiplier * pow((double)o->dry_base, longest[i] - o->dry_allowed_length) : 0;
}

// Whether the text of ids [0, n) has one that ends in the last of them.
static bool ends_here(const struct tokenizer *t, const int32_t *ids, int n, const char *breaker)
{
    char text[4000] = "";
    size_t len = 0, start = 0;
    for (int i = 0; i < n; i++) {
        start = strlen(text);
        const char *piece = tokenizer_piece(t, ids[i], &len);
        strncat(text, piece, len);
    }
    for (const char *at = text; (at = strstr(at, breaker)); at++)
        if ((size_t)(at - text) + strlen(breaker) > start)
            return true;
    return false;
}

// Tokens after the one in which the last breaker ends.
static int tokens_since(const struct tokenizer *t, const int32_t *ids, int n, const struct sampling *o)
{
    for (int end = n; end > 0; end--)
        for (size_t k = 0; k < o->ndry_breakers; k++)
            if (ends_here(t, ids, end, o->dry_breakers[k]))
                return n - end;
    return n;
}

static void check_dry(const struct tokenizer *t, const struct sampling *o, uint64_t seed, int letters)
{
    int32_t ids[120];
    bool breaker[VOCAB] = {false};
    for (int i = 0; i < VOCAB; i++)
        for (size_t k = 0; k < o->ndry_breakers; k++)
            breaker[i] |= ends_here(t, &i, 1, o->dry_breakers[k]);
    struct sampler *s = sampler_new(o, VOCAB, 0);
    sampler_set_tokenizer(s, t);
    for (int n = 0; n < 120; n++) {
        ids[n] = (int32_t)(rng_u64(seed, (uint64_t)n, 1) % (uint64_t)letters);
        if (n % 40 == 39)
            ids[n] = 27;  // a newline
        if (n < 30) {
            sampler_see_prompt(s, &ids[n], 1);
            continue;
        }
        float x[VOCAB] = {0};
        double want[VOCAB];
        define_dry(ids, n, tokens_since(t, ids, n, o), o, breaker, want);
        struct sampler *f = sampler_fork(s, 0);
        sampler_pick(f, x, n, NULL, NULL, 0);
        sampler_free(f);
        for (int i = 0; i < VOCAB; i++)
            if (fabs(want[i] + (double)x[i]) > 1e-5 * (1 + want[i]))
                fail_msg("token %d after %d: %g, expected %g", i, n, -(double)x[i], want[i]);
        sampler_take(s, ids[n]);
    }
    sampler_free(s);
}

static void test_dry(void **state)
{
    (void)state;
    static const char *const breakers[] = {"\n", "ca", "bcab"};
    struct tokenizer *t = fake_tokenizer();
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct sampling o = plain();
        o.temperature = 0;
        o.dry_multiplier = 0.8f;
        o.dry_base = seed % 3 == 0 ? 1 : 1.75f;
        o.dry_allowed_length = 1 + (int)(seed % 3);
        o.dry_last_n = seed % 4 == 1 ? 25 : -1;
        o.dry_breakers = breakers;
        o.ndry_breakers = seed % 4;
        check_dry(t, &o, seed, 2 + (int)(seed % 2));
    }
    tokenizer_close(t);
}

// However long a repetition, its only possible continuation is taken.
static void test_dry_is_finite(void **state)
{
    (void)state;
    struct sampling o = plain();
    o.dry_multiplier = 100;
    o.dry_base = 100;
    o.dry_allowed_length = 1;
    o.dry_last_n = -1;
    struct sampler *s = sampler_new(&o, 2, 0);
    uint64_t mask = 1;
    for (int i = 0; i < 500; i++) {
        float x[2] = {1, 2};
        assert_int_equal(sampler_pick(s, x, i, &mask, NULL, 0), 0);
    }
    sampler_free(s);
}

// ---- penalties over the last tokens

static void test_penalty_window(void **state)
{
    (void)state;
    for (int last = 1; last < 30; last += 3) {
        struct sampling o = plain();
        o.temperature = 0;
        o.repetition_penalty = 1.5f;
        o.presence_penalty = 0.25f;
        o.frequency_penalty = 0.125f;
        o.penalty_last_n = last;
        struct sampler *s = sampler_new(&o, VOCAB, 0);
        int32_t ids[60];
        for (int n = 0; n < 60; n++) {
            ids[n] = (int32_t)(rng_u64(9, (uint64_t)n, (uint64_t)last) % 8);
            if (n < 20) {
                sampler_see_prompt(s, &ids[n], 1);
                continue;
            }
            float x[VOCAB], raw[VOCAB];
            make_logits(raw, (uint64_t)n);
            memcpy(x, raw, sizeof x);
            struct sampler *f = sampler_fork(s, 0);
            sampler_pick(f, x, n, NULL, NULL, 0);
            sampler_free(f);
            for (int id = 0; id < VOCAB; id++) {
                int met = 0, out = 0;
                for (int i = n > last ? n - last : 0; i < n; i++) {
                    met += ids[i] == id;
                    out += ids[i] == id && i >= 20;
                }
                float want = met ? (raw[id] > 0 ? raw[id] / 1.5f : raw[id] * 1.5f) : raw[id];
                want -= out ? 0.25f + 0.125f * (float)out : 0;
                assert_float_equal(x[id], want, 0);
            }
            sampler_take(s, ids[n]);
        }
        sampler_free(s);
    }
}

// Penalties act where a form leaves much open, not where it asks for one of a few tokens.
static void test_few(void **state)
{
    (void)state;
    for (int admitted = 15; admitted <= 18; admitted++) {
        struct sampling o = plain();
        o.temperature = 0;
        o.frequency_penalty = 2;
        o.dry_multiplier = 5;
        o.dry_base = 2;
        o.dry_allowed_length = 1;
        o.dry_last_n = -1;
        struct sampler *s = sampler_new(&o, VOCAB, 0);
        uint64_t mask = (1ull << admitted) - 1;
        int first = 0;
        for (int i = 0; i < 30; i++) {
            float x[VOCAB] = {1};
            first += sampler_pick(s, x, i, &mask, NULL, 0) == 0;
        }
        assert_true(admitted <= SAMPLER_FEW ? first == 30 : first < 10);
        sampler_free(s);
    }
}

// ---- transformers

static void set(struct sampling *o, const char *name, double value)
{
    if (!strcmp(name, "typical_p"))
        o->typical_p = (float)value;
    else if (!strcmp(name, "top_p"))
        o->top_p = (float)value;
    else if (!strcmp(name, "min_p"))
        o->min_p = (float)value;
    else
        o->top_k = (int)value;
}

// Draws enough to meet everything that is kept, at a temperature that makes all alike.
static void check_kept(const float *logits, int n, const char *key, const json_t *list)
{
    char name[32];
    double value;
    assert_int_equal(sscanf(key, "%31[a-z_]=%lf", name, &value), 2);
    struct sampling o = plain();
    set(&o, name, value);
    bool want[VOCAB] = {false}, got[VOCAB] = {false};
    for (size_t i = 0; i < json_array_size(list); i++)
        want[json_integer_value(json_array_get(list, i))] = true;
    o.dynatemp_range = 1e-9f;  // the chain that sees the distribution before the temperature
    o.dynatemp_exponent = 1;
    o.temperature = 50;
    struct sampler *s = sampler_new(&o, n, 0);
    for (int i = 0; i < 2000; i++) {
        float x[VOCAB];
        memcpy(x, logits, (size_t)n * sizeof *x);
        got[sampler_pick(s, x, i, NULL, NULL, 0)] = true;
    }
    sampler_free(s);
    for (int i = 0; i < n; i++)
        if (want[i] != got[i])
            fail_msg("%s: token %d is %s", key, i, got[i] ? "kept" : "cut");
}

static void test_transformers(void **state)
{
    (void)state;
    json_error_t je;
    json_t *cases = json_load_file("tests/fixtures/sampling/transformers.json", 0, &je), *c, *list;
    assert_non_null(cases);
    size_t k;
    const char *key;
    json_array_foreach(cases, k, c) {
        float logits[VOCAB], x[VOCAB];
        int n = (int)json_array_size(json_object_get(c, "logits"));
        for (int i = 0; i < n; i++)
            x[i] = logits[i] = (float)json_number_value(json_array_get(json_object_get(c, "logits"), (size_t)i));
        struct sampling o = plain();
        o.temperature = 0;
        o.repetition_penalty = (float)json_number_value(json_object_get(c, "penalty"));
        struct sampler *s = sampler_new(&o, n, 0);
        for (size_t i = 0; i < json_array_size(json_object_get(c, "prompt")); i++) {
            int32_t id = (int32_t)json_integer_value(json_array_get(json_object_get(c, "prompt"), i));
            sampler_see_prompt(s, &id, 1);
        }
        assert_int_equal(sampler_pick(s, x, 0, NULL, NULL, 0), json_integer_value(json_object_get(c, "greedy")));
        for (int i = 0; i < n; i++)  // 5e-6 is the fixture's rounding
            assert_float_equal(x[i], (float)json_number_value(json_array_get(json_object_get(c, "punished"), (size_t)i)),
                               1e-5f);
        sampler_free(s);
        json_object_foreach(json_object_get(c, "kept"), key, list)
            check_kept(logits, n, key, list);
    }
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions), cmocka_unit_test(test_mirostat),       cmocka_unit_test(test_take),
        cmocka_unit_test(test_dry),           cmocka_unit_test(test_dry_is_finite),  cmocka_unit_test(test_penalty_window),
        cmocka_unit_test(test_few),           cmocka_unit_test(test_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
