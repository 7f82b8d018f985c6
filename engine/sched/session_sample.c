// session_sample.c - how a choice gets its next tokens: what may be picked, what is no choice, what ends it. Called by the
// thread that owns the session.
//
// A token that is the only one its grammar admits needs no logits: it is taken at once, and so on until there is a choice, so
// that the next step computes the run together. Where a grammar admits several tokens that are all beginnings of the longest
// one, it asks for a text that can be cut in several ways: the longest are offered to the next step as a draft (plan.c), which
// computes logits after each and keeps those that are picked (commit.c). Of the logits only those of admitted tokens are read:
// the mask comes before everything else that looks at them, but for log-probabilities. None of this changes a bit of an answer.
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/heads.h"
#include "engine/sched/served.h"
#include "engine/sched/session.h"
#include "engine/text/bad_words.h"

enum { UTF8_MOST = 4 };  // bytes of a character

static const int32_t *stop_ids(const struct session *s, size_t *ret_count)
{
    *ret_count = 0;
    return s->model->tokenizer ? tokenizer_stops(s->model->tokenizer, ret_count) : NULL;
}

static bool is_among(int32_t id, const int32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == id)
            return true;
    return false;
}

// Whether this token ends the answer; it is not shown.
static bool is_end(const struct session *s, int32_t id)
{
    const struct generate *g = &s->task->generate;
    size_t n;
    const int32_t *stops = stop_ids(s, &n);
    return (!g->ignore_eos && is_among(id, stops, n)) || is_among(id, g->stop_ids, g->nstop_ids);
}

// ---- what may come next

// Under a grammar, the tokens that end an answer included where it may end.
struct allowed {
    uint64_t *mask;  // NULL: anything
    uint32_t n;      // tokens of the grammar
    bool ends;
};

static int mask_words(const struct session *s)
{
    return (s->model->vocab + 63) / 64;
}

static void admit(const struct session *s, struct allowed *a, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < s->model->vocab)
            a->mask[ids[i] / 64] |= 1ull << ids[i] % 64;
    a->ends |= n > 0;
}

// Tokens that end a turn are in no grammar: they are allowed where it may end, unless they shall not end anything.
static void allow(const struct session *s, struct grammar_state *grammar, struct allowed *ret)
{
    const struct generate *g = &s->task->generate;
    *ret = (struct allowed){0};
    if (!grammar)
        return;
    ret->mask = grammar_mask(grammar, &ret->n);
    if (!grammar_ends(grammar))
        return;
    size_t nstops;
    const int32_t *stops = stop_ids(s, &nstops);
    if (!g->ignore_eos)
        admit(s, ret, stops, nstops);
    admit(s, ret, g->stop_ids, g->nstop_ids);
}

static void need(const struct session *s, struct grammar_state *grammar, struct heads *h)
{
    struct allowed a;
    allow(s, grammar, &a);
    heads_add(h, a.mask);
}

void session_sample_needs(const struct session *s, const struct choice *c, int ndraft, struct heads *h)
{
    const struct generate *g = &s->task->generate;
    if (!c->grammar || g->logprobs >= 0 || g->one_by_one)
        heads_add_all(h);
    if (h->all)
        return;
    need(s, c->grammar, h);
    struct grammar_state *ahead = ndraft > 0 ? grammar_fork(c->grammar) : NULL;
    for (int i = 0; i < ndraft && grammar_take(ahead, c->draft[i]); i++)
        need(s, ahead, h);
    grammar_free(ahead);
}

// The ids that may not be picked as output token `index`.
static size_t list_banned(struct session *s, const struct choice *c, int index, const struct allowed *a)
{
    const struct generate *g = &s->task->generate;
    size_t n = 0, nstops;
    const int32_t *stops = stop_ids(s, &nstops);
    // An answer that has to end ends, however short it is.
    if (index < g->min_tokens && (!a->mask || a->n > 0)) {
        for (size_t i = 0; i < nstops; i++)
            s->banned[n++] = stops[i];
        for (size_t i = 0; i < g->nstop_ids; i++)
            s->banned[n++] = g->stop_ids[i];
    }
    return n + bad_words_banned(s->bad_words, c->ids + s->nprompt, (size_t)index, s->banned + n);
}

// ---- tokens that are no choice

// Not in the middle of a character.
static bool may_close(const struct session *s, const struct choice *c)
{
    if (!c->grammar)
        return c->text.detok.ntail == 0 || c->text.reasoned >= s->task->generate.reasoning_max + UTF8_MOST;
    struct grammar_state *g = grammar_fork(c->grammar);
    int taken = 0;
    while (taken < s->nclose && grammar_take(g, s->close[taken]))
        taken++;
    grammar_free(g);
    return taken == s->nclose;
}

static bool must_close(const struct session *s, const struct choice *c)
{
    return s->nclose > 0 && c->text.answer && c->text.reasoned >= s->task->generate.reasoning_max &&
           answer_in_reasoning(c->text.answer) && may_close(s, c);
}

// The next of the tokens that close the reasoning, once it has had as many as it may. If they do not close it they are not
// tried again.
static bool closing(const struct session *s, struct choice *c, int32_t *ret_id)
{
    if (c->closing < 0 || (c->closing == 0 && !must_close(s, c)))
        return false;
    if (c->closing == 0 && c->closed_at == c->nids) {
        c->closing = -1;
        return false;
    }
    *ret_id = s->close[c->closing++];
    if (c->closing == s->nclose) {
        c->closing = 0;
        c->closed_at = c->nids + 1;
    }
    return true;
}

static int32_t first_of(const struct session *s, const uint64_t *mask)
{
    for (int i = 0; i < mask_words(s); i++)
        if (mask[i])
            return i * 64 + __builtin_ctzll(mask[i]);
    return -1;
}

// A token that needs no logits, taken by the sampler.
static bool no_choice(const struct session *s, struct choice *c, int32_t *ret_id)
{
    const struct generate *g = &s->task->generate;
    struct allowed a;
    if (g->logprobs >= 0 || g->one_by_one)
        return false;
    if (!closing(s, c, ret_id)) {
        if (!c->grammar || s->bad_words)
            return false;
        allow(s, c->grammar, &a);
        if (a.n != 1 || a.ends)
            return false;
        *ret_id = first_of(s, a.mask);
    }
    sampler_take(c->sampler, *ret_id);
    return true;
}

// ---- drafts

// Of few tokens that are all beginnings of one of them that one, else -1.
static int32_t longest_of(const struct session *s, const struct allowed *a)
{
    const struct tokenizer *t = s->model->tokenizer;
    const char *text = NULL;
    size_t len = 0;
    int32_t best = -1;
    for (int i = 0; i < mask_words(s); i++)
        for (uint64_t word = a->mask[i]; word; word &= word - 1) {
            int32_t id = i * 64 + __builtin_ctzll(word);
            size_t n;
            const char *p = tokenizer_piece(t, id, &n);
            if (best >= 0 && memcmp(p, text, n < len ? n : len) != 0)
                return -1;
            if (best < 0 || n > len) {
                best = id;
                text = p;
                len = n;
            }
        }
    return best;
}

// The text the grammar asks for, a token at a time: each the longest that it admits. Returns how many.
static int walk(const struct session *s, const struct choice *c, int most, int32_t *ids, struct buf *text)
{
    enum { MOST_ALTERNATIVES = 16 };
    struct grammar_state *ahead = NULL;
    int n = 0;
    while (n < most) {
        struct allowed a;
        allow(s, ahead ? ahead : c->grammar, &a);
        int32_t id = a.n == 0 || a.n > MOST_ALTERNATIVES || a.ends ? -1 : longest_of(s, &a);
        if (id < 0)
            break;
        ahead = ahead ? ahead : grammar_fork(c->grammar);
        if (!grammar_take(ahead, id))
            break;
        ids[n++] = id;
        size_t len;
        const char *p = tokenizer_piece(s->model->tokenizer, id, &len);
        buf_add(text, p, len);
    }
    grammar_free(ahead);
    return n;
}

// The same text as the tokenizer cuts it, which is how a model mostly writes it. 0: the grammar does not admit that.
static int recut(const struct session *s, const struct choice *c, const struct buf *text, int most, int32_t *ids)
{
    struct text_span span = {text->data, text->len, false};
    struct ids cut = {0};
    err e;
    int n = 0;
    if (!tokenizer_encode(s->model->tokenizer, &span, 1, false, &cut, &e)) {
        struct grammar_state *ahead = grammar_fork(c->grammar);
        while (n < most && (size_t)n < cut.len && grammar_take(ahead, cut.data[n])) {
            ids[n] = cut.data[n];
            n++;
        }
        grammar_free(ahead);
    }
    free(cut.data);
    return n;
}

void session_sample_draft(const struct session *s, struct choice *c)
{
    int room = c->limit - c->nids, most = room < c->most_draft ? room : c->most_draft;
    c->ndraft = 0;
    if (!c->grammar || c->done || s->task->generate.one_by_one || s->owner->state_bytes > 0 || c->closing > 0)
        return;  // a recurrent state cannot be taken back
    struct buf text;
    buf_init(&text, SIZE_MAX);
    int n = walk(s, c, most, c->draft, &text);
    if (n > 0) {
        int32_t ids[SESSION_DRAFT];
        int better = recut(s, c, &text, most, ids);
        if (better > 0)
            memcpy(c->draft, ids, (size_t)better * sizeof *ids);
        c->ndraft = better > 0 ? better : n;
    }
    buf_done(&text);
}

// ---- picking and taking

static void fail_grammar(struct session *s, const struct choice *c, const char *otherwise)
{
    if (grammar_broken(c->grammar))
        err_set(&s->failure, ERR_INVALID, "the grammar is too ambiguous to be followed");
    else
        err_set(&s->failure, ERR_INTERNAL, "%s", otherwise);
}

// Whether every token that the form allows is one that may not be picked.
static bool all_banned(const struct session *s, const struct allowed *a, size_t nbanned)
{
    if (!a->mask || !nbanned)
        return false;
    size_t bytes = (size_t)mask_words(s) * sizeof *a->mask;
    uint64_t *left = memcpy(mem_new(bytes), a->mask, bytes), any = 0;
    for (size_t i = 0; i < nbanned; i++)
        if (s->banned[i] >= 0 && s->banned[i] < s->model->vocab)
            left[s->banned[i] / 64] &= ~(1ull << s->banned[i] % 64);
    for (int i = 0; i < mask_words(s); i++)
        any |= left[i];
    free(left);
    return !any;
}

// -1: s->failure says why.
static int32_t pick(struct session *s, struct choice *c, float *logits, int index)
{
    struct allowed a;
    allow(s, c->grammar, &a);
    if (a.mask && ((a.n == 0 && !a.ends) || grammar_broken(c->grammar))) {
        fail_grammar(s, c, "no token of this model continues an answer of the requested form");
        return -1;
    }
    int32_t id;
    if (closing(s, c, &id)) {
        sampler_take(c->sampler, id);
        return id;
    }
    size_t nbanned = list_banned(s, c, index, &a);
    id = sampler_pick(c->sampler, logits, index, a.mask, s->banned, nbanned);
    if (id < 0 && all_banned(s, &a, nbanned))
        err_set_param(&s->failure, ERR_INVALID, "bad_words", "they leave nothing that the form of the answer allows");
    else if (id < 0)
        err_set(&s->failure, ERR_INTERNAL, "the model's logits at position %d are not numbers, or all are masked",
                c->nids - 1);
    return id;
}

// It ended by itself: nothing can follow, or it was to have one call.
static bool is_whole(const struct session *s, const struct choice *c)
{
    if (c->grammar && grammar_ends(c->grammar) && !grammar_goes_on(c->grammar))
        return true;
    return c->text.answer && s->task->generate.tools.single && answer_ncalls(c->text.answer) > 0;
}

// Adds a token to the answer. False: it ended, or s->failure.
static bool take(struct session *s, struct choice *c, int32_t id, const struct token_logprob *lp)
{
    bool end = is_end(s, id);
    session_add_id(c, id);
    s->completion_tokens++;
    if (!end && c->grammar && !grammar_take(c->grammar, id)) {
        fail_grammar(s, c, "a token is not part of an answer of the requested form");
        return false;
    }
    if (end || session_text_say(s, c, id, lp) || is_whole(s, c))
        session_finish_choice(s, c, FINISH_STOP);
    else if (c->nids - s->nprompt >= s->max_out)
        session_finish_choice(s, c, FINISH_LENGTH);
    return !c->done;
}

void session_sample(struct session *s, struct choice *c, float *logits)
{
    const struct generate *g = &s->task->generate;
    size_t bytes = (size_t)s->model->vocab * sizeof *logits;
    struct token_logprob lp;
    // The distribution before anything is applied; the chosen one's is filled in afterwards.
    float *raw = g->logprobs >= 0 ? memcpy(mem_new(bytes), logits, bytes) : NULL;
    int32_t id = pick(s, c, logits, c->nids - s->nprompt);
    bool shown = raw && id >= 0 && !is_end(s, id);
    if (shown)
        session_take_logprobs(s, raw, id, g->logprobs, &lp);
    free(raw);
    bool more = id >= 0 && take(s, c, id, shown ? &lp : NULL);
    for (int i = 1; more && i < SESSION_RUN && no_choice(s, c, &id); i++)
        more = take(s, c, id, NULL);
    if (more)
        session_text_send(s, c);
}
