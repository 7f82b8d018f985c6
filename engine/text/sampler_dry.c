// sampler_dry.c - see the header. Scheduler thread, but for the prompt, which a prep thread gives.
//
// How far the tokens before each place agree with the last ones is the Z function (Gusfield 1997) of the tokens in reverse,
// so a step is linear in the window.
#include "engine/text/sampler_dry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/tokenizer/tokenizer.h"

struct dry {
    float multiplier, base;
    int allowed, last_n;  // last_n -1: all
    char **breakers;
    size_t nbreakers, longest;
    const struct tokenizer *tokenizer;
    int32_t *ids;
    int n, cap;
    int since;            // tokens after the last breaker
    struct buf tail;      // the text's end, shorter than the longest breaker
};

struct dry *sampler_dry_new(const struct sampling *s, const struct tokenizer *t)
{
    struct dry *d = mem_new(sizeof *d);
    d->multiplier = s->dry_multiplier;
    d->base = s->dry_base;
    d->allowed = s->dry_allowed_length;
    d->last_n = s->dry_last_n;
    d->tokenizer = t;
    d->breakers = mem_new((s->ndry_breakers + 1) * sizeof *d->breakers);
    buf_init(&d->tail, SIZE_MAX);
    for (size_t i = 0; t && i < s->ndry_breakers; i++) {
        size_t len = strlen(s->dry_breakers[i]);
        if (len == 0)
            continue;
        d->breakers[d->nbreakers++] = mem_strndup(s->dry_breakers[i], len);
        d->longest = len > d->longest ? len : d->longest;
    }
    return d;
}

struct dry *sampler_dry_copy(const struct dry *from)
{
    struct dry *d = mem_new(sizeof *d);
    *d = *from;
    d->breakers = mem_new((from->nbreakers + 1) * sizeof *d->breakers);
    for (size_t i = 0; i < from->nbreakers; i++)
        d->breakers[i] = mem_strndup(from->breakers[i], strlen(from->breakers[i]));
    d->cap = from->n;
    d->ids = mem_new(((size_t)d->cap + 1) * sizeof *d->ids);
    if (from->n > 0)
        memcpy(d->ids, from->ids, (size_t)from->n * sizeof *d->ids);
    buf_init(&d->tail, SIZE_MAX);
    buf_add(&d->tail, from->tail.data, from->tail.len);
    return d;
}

void sampler_dry_free(struct dry *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->nbreakers; i++)
        free(d->breakers[i]);
    free(d->breakers);
    free(d->ids);
    buf_done(&d->tail);
    free(d);
}

static bool holds(const char *text, size_t len, const char *part)
{
    return len > 0 && memmem(text, len, part, strlen(part)) != NULL;
}

static bool is_breaker(const struct dry *d, int32_t id)
{
    size_t len = 0;
    const char *piece = d->tokenizer && id < tokenizer_size(d->tokenizer) ? tokenizer_piece(d->tokenizer, id, &len) : NULL;
    for (size_t i = 0; i < d->nbreakers; i++)
        if (holds(piece, len, d->breakers[i]))
            return true;
    return false;
}

// Whether a breaker ends in this token; the tail moves on.
static bool breaks(struct dry *d, int32_t id)
{
    size_t len = 0;
    const char *piece = d->tokenizer && id < tokenizer_size(d->tokenizer) ? tokenizer_piece(d->tokenizer, id, &len) : NULL;
    bool hit = false;
    if (d->nbreakers == 0 || len == 0)
        return false;
    size_t before = d->tail.len;
    buf_add(&d->tail, piece, len);
    for (size_t i = 0; i < d->nbreakers && !hit; i++) {
        size_t most = strlen(d->breakers[i]) - 1, back = before < most ? before : most;  // it must end in the new part
        hit = holds(d->tail.data + before - back, back + len, d->breakers[i]);
    }
    size_t keep = d->longest - 1 < d->tail.len ? d->longest - 1 : d->tail.len;
    memmove(d->tail.data, d->tail.data + d->tail.len - keep, keep);
    d->tail.len = keep;
    return hit;
}

void sampler_dry_take(struct dry *d, int32_t id)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 256;
        d->ids = mem_resize(d->ids, (size_t)d->cap * sizeof *d->ids);
    }
    d->ids[d->n++] = id;
    d->since = breaks(d, id) ? 0 : d->since + 1;
}

// z[k]: how many of the last tokens stand k places further back too. last: the last token; z [n].
static void agreements(const int32_t *last, int n, int *z)
{
    int left = 0, right = 0;
    for (int k = 1; k < n; k++) {
        int m = k < right && z[k - left] < right - k ? z[k - left] : k < right ? right - k : 0;
        while (k + m < n && last[-m] == last[-k - m])
            m++;
        z[k] = m;
        if (k + m > right) {
            left = k;
            right = k + m;
        }
    }
}

static void lower(const struct dry *d, float *logits, int32_t id, int repeated)
{
    double by = (double)d->multiplier * pow((double)d->base, repeated - d->allowed);
    logits[id] -= by < 1e30 ? (float)by : 1e30f;  // finite: where nothing else is admitted it is taken all the same
}

// Of several repetitions that a token would continue the longest counts, so each token is met once.
static void lower_all(const struct dry *d, const int *z, int n, int most, float *logits, int vocab)
{
    const int32_t *last = d->ids + d->n - 1;
    int *longest = mem_new((size_t)vocab * sizeof *longest);  // 0: none
    for (int k = 1; k < n; k++) {
        int m = z[k] < most ? z[k] : most;
        int32_t next = last[1 - k];
        if (m >= d->allowed && m > 0 && next >= 0 && next < vocab && m > longest[next])
            longest[next] = m;
    }
    for (int32_t id = 0; id < vocab; id++)
        if (longest[id] > 0 && !is_breaker(d, id))
            lower(d, logits, id, longest[id]);
    free(longest);
}

void sampler_dry_apply(struct dry *d, float *logits, int vocab)
{
    int n = d->last_n >= 0 && d->last_n < d->n ? d->last_n : d->n;
    int most = d->since < n ? d->since : n;
    if (n <= d->allowed || most < d->allowed || n < 2)
        return;
    int *z = mem_new((size_t)n * sizeof *z);
    agreements(d->ids + d->n - 1, n, z);
    lower_all(d, z, n, most, logits, vocab);
    free(z);
}
