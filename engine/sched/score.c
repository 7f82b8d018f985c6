// score.c - see the header. Made by a prep thread, then the scheduler's. The tree is built once over the texts sorted by their
// tokens; runs stand before those behind them, so one pass over them adds up all sums.
#include "engine/sched/score.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sched/session.h"
#include "engine/text/sampler.h"
#include "engine/tokenizer/tokenizer.h"

// ---- what does not go with it

// At temperature 0 nothing is cut or drawn.
static const char *draws(const struct sampling *s)
{
    bool typical = s->typical_p > 0 && s->typical_p < 1;
    return s->temperature == 0 ? NULL : s->top_k > 0 ? "top_k" : s->top_p < 1 ? "top_p" : s->min_p > 0 ? "min_p"
         : typical ? "typical_p" : s->top_n_sigma > 0 ? "top_n_sigma" : s->xtc_probability > 0 ? "xtc_probability"
         : s->mirostat ? "mirostat" : s->dynatemp_range > 0 ? "dynatemp_range" : NULL;
}

const char *score_hindrance(const struct generate *g)
{
    const struct sampling *s = &g->sampling;
    if (s->presence_penalty != 0)
        return "presence_penalty";
    if (s->frequency_penalty != 0)
        return "frequency_penalty";
    if (s->repetition_penalty != 1)
        return "repetition_penalty";
    if (s->nbias || s->dry_multiplier > 0)
        return s->nbias ? "logit_bias" : "dry_multiplier";
    if (g->nbad_words || g->nstop_ids)
        return g->nbad_words ? "bad_words" : "stop_token_ids";
    if (g->min_tokens > 0 || g->ignore_eos)
        return g->ignore_eos ? "ignore_eos" : "min_tokens";
    if (json_array_size(g->prompt.tools) > 0)
        return "tools";
    return draws(s);
}

// ---- texts

static int by_bytes(const void *a, const void *b)
{
    const struct score_text *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n ? memcmp(x->text, y->text, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static err_code read_texts(struct score *sc, const struct grammar_request *r, err *e)
{
    sc->list = json_loadb(r->text, r->len, JSON_DECODE_ANY, NULL);
    size_t n = json_array_size(sc->list);
    if (n == 0 || n > SCORE_MAX_TEXTS)
        return err_set(e, ERR_INVALID, "%zu choices, expected 1 to %d%s", n, SCORE_MAX_TEXTS,
                       n ? " where their probabilities decide, at temperature 0 or with 'probabilities'" : "");
    sc->texts = mem_new(n * sizeof *sc->texts);
    sc->ntexts = (int)n;
    for (int i = 0; i < sc->ntexts; i++) {
        const json_t *v = json_array_get(sc->list, (size_t)i);
        if (!json_is_string(v))
            return err_set(e, ERR_INVALID, "choice %d is not a string", i);
        sc->texts[i].text = json_string_value(v);
        sc->texts[i].len = json_string_length(v);
        sc->texts[i].given = i;
    }
    qsort(sc->texts, n, sizeof *sc->texts, by_bytes);
    return ERR_OK;
}

// What one is the beginning of stands right behind it.
static err_code compare_texts(struct score *sc, err *e)
{
    for (int i = 0; i + 1 < sc->ntexts; i++) {
        struct score_text *a = &sc->texts[i];
        const struct score_text *b = &sc->texts[i + 1];
        a->begins = a->len <= b->len && memcmp(a->text, b->text, a->len) == 0;
        if (a->begins && a->len == b->len)
            return err_set(e, ERR_INVALID, "'%.60s' is among the choices twice", a->text);
        sc->ends |= a->begins;
    }
    if (sc->ends && !sc->nstops)
        return err_set(e, ERR_UNSUPPORTED, "one choice is the beginning of another one, and the model has no token that ends an "
                       "answer");
    return ERR_OK;
}

// ---- tokens

// How many tokens from ids[from] on spell the text; -1: they spell another one.
static int spells(const struct tokenizer *t, const struct ids *ids, size_t from, const char *text, size_t len)
{
    size_t at = 0, i = from;
    for (; i < ids->len; i++) {
        size_t n;
        const char *p = tokenizer_piece(t, ids->data[i], &n);
        if (n > len - at || (n && memcmp(p, text + at, n) != 0))
            return -1;
        at += n;
    }
    return at == len ? (int)(i - from) : -1;
}

static err_code encode(const struct tokenizer *t, const char *before, const struct score_text *x, struct ids *ids, err *e)
{
    struct text_span spans[2] = {{before, strlen(before), false}, {x->text, x->len, false}};
    return tokenizer_encode(t, spans, 2, false, ids, e);
}

// Some tokenizers put a space in front of a text, which is not the answer's: left out where it is a token of its own. Behind a
// line break they put none before the text itself.
static err_code find_ids(const struct tokenizer *t, struct score_text *x, err *e)
{
    static const char *const before[] = {"", "\n"};
    for (int k = 0; k < 2 && x->len > 0; k++) {
        struct ids ids = {.max = SCORE_MAX_TOKENS + 2};
        if (encode(t, before[k], x, &ids, e)) {
            free(ids.data);
            return e->code;
        }
        for (size_t from = 0; from < ids.len; from++) {
            int n = spells(t, &ids, from, x->text, x->len);
            if (n < 0)
                continue;
            memmove(ids.data, ids.data + from, (size_t)n * sizeof *ids.data);
            x->ids = ids.data;
            x->n = n;
            return ERR_OK;
        }
        free(ids.data);
    }
    return x->len == 0 ? ERR_OK : err_set(e, ERR_UNSUPPORTED, "the model's tokenizer does not write '%.60s' as it stands", x->text);
}

static err_code encode_texts(struct score *sc, const struct tokenizer *t, err *e)
{
    size_t total = 0;
    for (int i = 0; i < sc->ntexts && total <= SCORE_MAX_TOKENS; i++) {
        struct score_text *x = &sc->texts[i];
        err_code code = find_ids(t, x, e);
        if (code && code != ERR_TOO_LARGE)
            return code;
        total += code ? SCORE_MAX_TOKENS + 1 : (size_t)x->n;
        for (int k = 0; k < x->n; k++)
            if (x->ids[k] >= sc->vocab)
                return err_set(e, ERR_UNSUPPORTED, "token %d of '%.60s' is outside the vocabulary", x->ids[k], x->text);
    }
    if (total > SCORE_MAX_TOKENS)
        return err_set(e, ERR_INVALID, "the choices have more than %d tokens in all", SCORE_MAX_TOKENS);
    return ERR_OK;
}

// ---- the tree

struct builder {
    struct score *sc;
    int *order;  // texts by their tokens
};

static int add_run(struct score *sc, int parent, int from, int n, int some)
{
    sc->runs[sc->nruns] = (struct score_run){.parent = parent, .child = -1, .next = -1, .from = from, .n = n,
                                             .first = sc->ntokens, .some = some, .text = -1, .lane = -1};
    sc->ntokens += n;
    return sc->nruns++;
}

static int common(const struct score_text *a, const struct score_text *b, int from)
{
    int k = from;
    while (k < a->n && k < b->n && a->ids[k] == b->ids[k])
        k++;
    return k;
}

// The texts order[lo .. hi) begin with the run's tokens and those before it.
static void add_behind(struct builder *b, int run, int lo, int hi)
{
    struct score *sc = b->sc;
    int at = sc->runs[run].from + sc->runs[run].n, *link = &sc->runs[run].child;
    if (lo < hi && sc->texts[b->order[lo]].n == at) {
        sc->runs[run].text = b->order[lo];
        sc->texts[b->order[lo++]].run = run;
    }
    while (lo < hi) {
        const struct score_text *first = &sc->texts[b->order[lo]];
        int end = lo + 1;
        while (end < hi && sc->texts[b->order[end]].ids[at] == first->ids[at])
            end++;
        int upto = common(first, &sc->texts[b->order[end - 1]], at);
        *link = add_run(sc, run, at, upto - at, b->order[lo]);
        link = &sc->runs[*link].next;
        add_behind(b, sc->nruns - 1, lo, end);
        lo = end;
    }
}

static int by_ids(const void *a, const void *b, void *texts)
{
    const struct score_text *x = (const struct score_text *)texts + *(const int *)a, *y = (const struct score_text *)texts + *(const int *)b;
    int k = common(x, y, 0);
    if (k == x->n || k == y->n)
        return (x->n > y->n) - (x->n < y->n);
    return x->ids[k] < y->ids[k] ? -1 : 1;
}

static void set_rows(struct score *sc)
{
    for (int i = 0; i < sc->nruns; i++) {
        struct score_run *r = &sc->runs[i];
        r->rows = r->child >= 0 || sc->ends || r->n == 0 ? r->n : r->n - 1;
        if (r->from + r->rows > sc->longest)
            sc->longest = r->from + r->rows;
    }
    sc->left = sc->nruns;
    sc->runs[0].state = SCORE_READY;
}

static void build(struct score *sc)
{
    size_t n = (size_t)sc->ntexts, tokens = 0;
    struct builder b = {sc, mem_new(n * sizeof *b.order)};
    for (int i = 0; i < sc->ntexts; i++) {
        b.order[i] = i;
        tokens += (size_t)sc->texts[i].n;
    }
    qsort_r(b.order, n, sizeof *b.order, by_ids, sc->texts);
    sc->runs = mem_new((2 * n + 1) * sizeof *sc->runs);
    add_run(sc, -1, 0, 0, 0);
    add_behind(&b, 0, 0, sc->ntexts);
    free(b.order);
    sc->logprobs = mem_new((tokens + 1) * sizeof *sc->logprobs);
    sc->results = mem_new(n * sizeof *sc->results);
    set_rows(sc);
}

err_code score_new(const struct tokenizer *t, const struct grammar_request *r, int vocab, struct score **ret_score, err *e)
{
    struct score *sc = mem_new(sizeof *sc);
    err own = {0};
    sc->vocab = vocab;
    sc->stops = tokenizer_stops(t, &sc->nstops);
    if (read_texts(sc, r, &own) || compare_texts(sc, &own) || encode_texts(sc, t, &own)) {
        score_free(sc);
        const char *field = r->field ? r->field : "grammar";
        return err_set_param(e, own.code, field, "Invalid '%s': %s", field, own.text);
    }
    build(sc);
    for (int i = 0; i < SCORE_LANES; i++)
        sc->lanes[i] = -1;
    *ret_score = sc;
    return ERR_OK;
}

void score_free(struct score *sc)
{
    if (!sc)
        return;
    for (int i = 0; sc->texts && i < sc->ntexts; i++)
        free(sc->texts[i].ids);
    for (int i = 0; sc->shown && i < sc->ntokens; i++)
        free((void *)sc->shown[i].top);
    free(sc->texts);
    free(sc->runs);
    free(sc->logprobs);
    free(sc->shown);
    free(sc->results);
    json_decref(sc->list);
    free(sc);
}

// ---- what the logits say

struct said {
    struct score *sc;
    const struct session *s;
    const float *logits;
    double lse;
};

static void learn(const struct said *w, int token, int32_t id)
{
    struct score *sc = w->sc;
    sc->logprobs[token] = (double)w->logits[id] - w->lse;
    if (!sc->shown)
        return;
    free((void *)sc->shown[token].top);
    session_take_logprobs(w->s, w->logits, id, w->s->task->generate.logprobs, &sc->shown[token]);
}

static void learn_end(const struct said *w, struct score_text *x)
{
    double sum = 0;
    x->end_id = -1;
    for (size_t i = 0; i < w->sc->nstops; i++) {
        int32_t id = w->sc->stops[i];
        if (id >= w->sc->vocab)
            continue;
        sum += exp((double)w->logits[id] - w->lse);
        if (x->end_id < 0 || w->logits[id] > w->logits[x->end_id])
            x->end_id = id;
    }
    x->end = log(sum);
}

static const int32_t *ids_of(const struct score *sc, const struct score_run *r)
{
    return sc->texts[r->some].ids;
}

// Of tokens before the run there is nothing to learn: whoever computed those did.
void score_take(struct score *sc, const struct session *s, int run, int at, const float *logits)
{
    const struct score_run *r = &sc->runs[run];
    int end = r->from + r->n;
    if (at < end && at <= r->from)
        return;
    struct said w = {sc, s, logits, sampler_lse(logits, sc->vocab)};
    if (at < end) {
        learn(&w, r->first + at - r->from, ids_of(sc, r)[at]);
        return;
    }
    for (int k = r->child; k >= 0; k = sc->runs[k].next)
        learn(&w, sc->runs[k].first, ids_of(sc, &sc->runs[k])[at]);
    if (sc->ends && r->text >= 0)
        learn_end(&w, &sc->texts[r->text]);
}

void score_run_done(struct score *sc, int run)
{
    sc->runs[run].state = SCORE_DONE;
    sc->left--;
    for (int k = sc->runs[run].child; k >= 0; k = sc->runs[k].next) {
        if (sc->runs[k].rows > 0)
            sc->runs[k].state = SCORE_READY;
        else
            score_run_done(sc, k);  // nothing is behind it
    }
}

int score_rest(const struct score *sc)
{
    int n = 0;
    for (int i = 0; i < sc->nruns; i++)
        n += sc->runs[i].state != SCORE_DONE ? sc->runs[i].rows : 0;
    return n;
}

// ---- the result

static void add_up(struct score *sc)
{
    double *sums = mem_new((size_t)sc->nruns * sizeof *sums);
    for (int i = 0; i < sc->nruns; i++) {
        const struct score_run *r = &sc->runs[i];
        sums[i] = r->parent >= 0 ? sums[r->parent] : 0;
        for (int k = 0; k < r->n; k++)
            sums[i] += sc->logprobs[r->first + k];
        if (r->text >= 0)
            sc->texts[r->text].sum = sums[i] + sc->texts[r->text].end;
    }
    free(sums);
}

static int likeliest(const struct score *sc)
{
    int best = 0;
    for (int i = 1; i < sc->ntexts; i++)
        if (sc->texts[i].sum > sc->texts[best].sum)
            best = i;
    return best;
}

err_code score_sum(struct score *sc, err *e)
{
    add_up(sc);
    bool fine = true;
    for (int i = 0; i < sc->ntexts; i++)
        fine &= !isnan(sc->texts[i].sum);
    double max = sc->texts[likeliest(sc)].sum, total = 0;
    if (!fine || !isfinite(max))
        return err_set(e, ERR_INTERNAL, "the model's logits are not numbers, or none of the choices is possible");
    for (int i = 0; i < sc->ntexts; i++)
        total += exp(sc->texts[i].sum - max);
    for (int i = 0; i < sc->ntexts; i++) {
        const struct score_text *x = &sc->texts[i];
        sc->results[x->given] = (struct scored_text){x->text, x->len, x->sum, exp(x->sum - max) / total};
    }
    return ERR_OK;
}

static double weight(const struct score *sc, int i, double max, float temperature)
{
    return exp((sc->texts[i].sum - max) / (double)temperature);
}

int score_pick(const struct score *sc, const struct sampling *s, int choice)
{
    int best = likeliest(sc), last = best;
    if (s->temperature == 0)
        return best;
    double max = sc->texts[best].sum, total = 0, upto = 0;
    for (int i = 0; i < sc->ntexts; i++)
        total += weight(sc, i, max, s->temperature);
    double mark = rng_unit(s->seed, (uint64_t)choice, 0) * total;
    for (int i = 0; i < sc->ntexts; i++) {
        double w = weight(sc, i, max, s->temperature);
        upto += w;
        last = w > 0 ? i : last;
        if (w > 0 && mark < upto)
            return i;
    }
    return last;
}

int score_token(const struct score *sc, int text, int k)
{
    const struct score_run *r = &sc->runs[sc->texts[text].run];
    while (k < r->from)
        r = &sc->runs[r->parent];
    return r->first + k - r->from;
}
