// session.c - what happens to one task between its prompt and its last event. Called by the thread that owns the session.
#include "engine/sched/session.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/timing.h"

// legal[from][to]
static const bool legal[SESSION_STATES][SESSION_STATES] = {
    [SESSION_PREP] = {[SESSION_QUEUED] = true, [SESSION_DONE] = true},
    [SESSION_QUEUED] = {[SESSION_PREFILL] = true, [SESSION_WORK] = true, [SESSION_DONE] = true},
    [SESSION_PREFILL] = {[SESSION_DECODE] = true, [SESSION_PREEMPTED] = true, [SESSION_WORK] = true,
                         [SESSION_DONE] = true},
    [SESSION_DECODE] = {[SESSION_PREFILL] = true, [SESSION_PREEMPTED] = true, [SESSION_WORK] = true,
                        [SESSION_DONE] = true},
    [SESSION_WORK] = {[SESSION_DONE] = true},
    [SESSION_PREEMPTED] = {[SESSION_PREFILL] = true, [SESSION_DONE] = true},
};

struct session *session_new(struct task *t, struct ticket ticket, struct slot_table *slots)
{
    struct session *s = mem_new(sizeof *s);
    s->task = t;
    s->ticket = ticket;
    s->slots = slots;
    s->waiting = true;
    return s;
}

void session_set_state(struct session *s, enum session_state to)
{
    if (!legal[s->state][to])
        abort();
    if (to == SESSION_QUEUED)
        timing_queued(s, clock_ns());
    else if (s->state == SESSION_QUEUED && to != SESSION_DONE)
        timing_begun(s, clock_ns());
    timing_moved(s, (int)s->state, (int)to);
    s->state = to;
}

// ---- preparation

void session_init_choice(struct session *s, struct choice *c, int index)
{
    c->index = index;
    buf_init(&c->piece, SIZE_MAX);
    buf_init(&c->text, SIZE_MAX);
    if (s->task->kind != TASK_GENERATE)
        return;
    const struct generate *g = &s->task->generate;
    c->stop = stop_new(g->stop, g->nstop);
    c->limit = s->nprompt + (s->max_out > 1 ? s->max_out - 1 : 0);  // the last token is not computed
    if (s->model->tokenizer)
        detok_init(&c->detok, s->model->tokenizer, true);
    // An answer to messages is a text of its own; anything else continues the prompt's, leading space and all.
    c->detok.started = !g->prompt.messages || g->prompt.continue_final_message;
}

void session_set_prompt(struct session *s, int32_t *ids, int nids, int max_out, struct grammar *grammar)
{
    const struct generate *g = &s->task->generate;
    s->n = g->n;
    s->nprompt = s->prompt_tokens = nids;
    s->max_out = max_out;
    s->choices = mem_new((size_t)s->n * sizeof *s->choices);
    for (int i = 0; i < s->n; i++) {
        session_init_choice(s, &s->choices[i], i);
        s->choices[i].grammar = grammar ? grammar_begin(grammar) : NULL;
    }
    struct choice *c = &s->choices[0];
    c->ids = ids;
    c->nids = c->cap = nids;
    c->active = true;
    c->sampler = sampler_new(&g->sampling, s->model->vocab, 0);
    sampler_see_prompt(c->sampler, ids, nids);
    if (g->echo && g->logprobs >= 0)
        s->prompt_logprobs = mem_new((size_t)nids * sizeof *s->prompt_logprobs);
}

bool session_wants_prompt_logprobs(const struct session *s)
{
    return s->prompt_logprobs && s->nprompt_logprobs < s->nprompt;
}

bool session_over(const struct session *s)
{
    return s->work ? s->finished : s->ndone == s->n;
}

err_code session_must_end(const struct session *s, int64_t now_ns, err *e)
{
    if (slot_cancelled(s->slots, s->ticket))
        return err_set(e, ERR_CANCELLED, "the request was cancelled");
    int64_t deadline = s->task->deadline_ns, begin = s->task->begin_deadline_ns;
    if (s->waiting && begin && now_ns >= begin)
        return err_set(e, ERR_LATE, "the request waited until %.3f s after it should have begun",
                       (double)(now_ns - begin) * 1e-9);
    if (deadline && now_ns >= deadline)
        return err_set(e, ERR_TIMEOUT, "the deadline passed %.3f s ago", (double)(now_ns - deadline) * 1e-9);
    return ERR_OK;
}

// ---- events

void session_emit(struct session *s, struct event *ev)
{
    ev->usage = (struct usage){s->prompt_tokens, s->cached, s->completion_tokens, s->reasoning_tokens};
    s->task->on_event(s->task, ev);
}

static void add_piece(const struct session *s, struct token_alternative *a)
{
    const struct tokenizer *t = s->model->tokenizer;
    if (t && a->id < tokenizer_size(t))
        a->bytes = tokenizer_piece(t, a->id, &a->len);
}

// Log-probabilities of the model's own distribution.
static void take_logprobs(const struct session *s, const float *logits, int32_t id, struct token_logprob *ret)
{
    struct token_alternative top[SESSION_MAX_LOGPROBS];
    *ret = (struct token_logprob){.token.id = id};
    sampler_logprobs(logits, s->model->vocab, id, s->task->generate.logprobs, &ret->token.logprob, top, &ret->ntop);
    add_piece(s, &ret->token);
    for (int i = 0; i < ret->ntop; i++)
        add_piece(s, &top[i]);
    if (ret->ntop == 0)
        return;
    size_t bytes = (size_t)ret->ntop * sizeof *top;
    ret->top = memcpy(mem_new(bytes), top, bytes);
}

// The echoed prompt, by the same decoder as the answer.
static void emit_echo(struct session *s)
{
    struct buf text;
    buf_init(&text, SIZE_MAX);
    const struct choice *c0 = &s->choices[0];
    struct detok d;
    if (s->model->tokenizer) {
        detok_init(&d, s->model->tokenizer, true);
        for (int i = 0; i < s->nprompt; i++)
            if (c0->ids[i] < tokenizer_size(s->model->tokenizer))
                detok_add(&d, c0->ids[i], &text);
        detok_finish(&d, &text);
    }
    for (int i = 0; i < s->n; i++)
        session_emit(s, &(struct event){.kind = EVENT_TEXT, .choice = i, .text = text.data ? text.data : "",
                                        .len = text.len, .tokens = s->prompt_logprobs,
                                        .ntokens = (size_t)s->nprompt_logprobs});
    buf_done(&text);
}

void session_start(struct session *s)
{
    s->begun = true;
    session_emit(s, &(struct event){.kind = EVENT_START});
    if (s->task->kind == TASK_GENERATE && s->task->generate.echo && !s->prompt_logprobs)
        emit_echo(s);
}

void session_prompt_progress(struct session *s)
{
    if (s->task->kind == TASK_GENERATE && s->task->generate.progress)
        session_emit(s, &(struct event){.kind = EVENT_PROGRESS, .done = s->choices[0].seq.kv.len, .total = s->nprompt});
}

void session_prompt_logits(struct session *s, const float *logits, int at)
{
    const int32_t *ids = s->choices[0].ids;
    if (s->nprompt_logprobs == 0)
        s->prompt_logprobs[s->nprompt_logprobs++] = (struct token_logprob){.token = {.id = ids[0], .logprob = NAN}};
    if (at == s->nprompt_logprobs && at < s->nprompt)
        take_logprobs(s, logits, ids[at], &s->prompt_logprobs[s->nprompt_logprobs++]);
}

void session_prompt_done(struct session *s)
{
    if (!s->prompt_logprobs)
        return;
    add_piece(s, &s->prompt_logprobs[0].token);
    emit_echo(s);
}

// Sends this step's text with the first `ntokens` waiting tokens, and forgets them.
static void emit_text(struct session *s, struct choice *c, int ntokens)
{
    if (c->text.len == 0 && ntokens == 0)
        return;
    struct token_logprob *out = ntokens > 0 ? mem_new((size_t)ntokens * sizeof *out) : NULL;
    for (int i = 0; i < ntokens; i++)
        out[i] = c->tokens[i].logprob;
    session_emit(s, &(struct event){.kind = EVENT_TEXT, .choice = c->index, .text = c->text.len ? c->text.data : "",
                                    .len = c->text.len, .tokens = out, .ntokens = (size_t)ntokens});
    for (int i = 0; i < ntokens; i++)
        free((void *)out[i].top);
    free(out);
    c->ntokens -= ntokens;
    if (ntokens > 0)
        memmove(c->tokens, c->tokens + ntokens, (size_t)c->ntokens * sizeof *c->tokens);
    buf_clear(&c->text);
}

// ---- sampling and text

void session_fork_choice(struct session *s, struct choice *c)
{
    const struct choice *from = &s->choices[0];
    c->active = true;
    c->cap = c->nids = s->nprompt;
    c->ids = mem_new((size_t)c->cap * sizeof *c->ids);
    memcpy(c->ids, from->ids, (size_t)c->nids * sizeof *c->ids);
    c->sampler = sampler_fork(from->sampler, c->index);
}

void session_add_id(struct choice *c, int32_t id)
{
    if (c->nids == c->cap) {
        c->cap = c->cap + c->cap / 2 + 64;
        c->ids = mem_resize(c->ids, (size_t)c->cap * sizeof *c->ids);
    }
    c->ids[c->nids++] = id;
}

// What was detokenised goes through the stop matcher. True: a stop string was completed.
static bool feed(struct choice *c)
{
    size_t before = c->text.len;
    c->fed += c->piece.len;
    bool hit = c->piece.len > 0 && stop_feed(c->stop, c->piece.data, c->piece.len, &c->text);
    c->released += c->text.len - before;
    buf_clear(&c->piece);
    return hit;
}

static void remember(struct choice *c, const struct token_logprob *lp, size_t start)
{
    if (c->ntokens == c->tokens_cap) {
        c->tokens_cap = c->tokens_cap ? 2 * c->tokens_cap : 8;
        c->tokens = mem_resize(c->tokens, (size_t)c->tokens_cap * sizeof *c->tokens);
    }
    c->tokens[c->ntokens++] = (struct session_token){.logprob = *lp, .start = start, .end = c->fed};
}

// How many waiting tokens go with the text that left: those whose text is out. One without text of its own (part of a
// character) goes with the token that completes it.
static int tokens_out(const struct session *s, const struct choice *c)
{
    int n = 0;
    for (int i = 0; i < c->ntokens; i++) {
        const struct session_token *t = &c->tokens[i];
        if (!s->model->tokenizer || (t->end > t->start && t->end <= c->released))
            n = i + 1;
    }
    return n;
}

// After a stop string: only tokens that begin before the cut.
static int tokens_before_cut(const struct choice *c)
{
    int n = 0;
    while (n < c->ntokens && c->tokens[n].start < c->released)
        n++;
    return n;
}

static void finish_text(struct session *s, struct choice *c, bool cut)
{
    if (!cut && s->model->tokenizer) {
        detok_finish(&c->detok, &c->piece);
        cut = feed(c);
    }
    if (!cut) {
        size_t before = c->text.len;
        stop_flush(c->stop, &c->text);
        c->released += c->text.len - before;
    }
    emit_text(s, c, cut ? tokens_before_cut(c) : c->ntokens);
}

static void end_choice(struct session *s, struct choice *c, enum finish finish, bool cut)
{
    finish_text(s, c, cut);
    c->done = true;
    s->cut |= finish == FINISH_LENGTH;
    s->ndone++;
    prefix_seq_leave(s->prefix, &c->seq, c->ids);
    session_emit(s, &(struct event){.kind = EVENT_FINISH, .choice = c->index, .finish = finish});
}

void session_finish_choice(struct session *s, struct choice *c, enum finish finish)
{
    end_choice(s, c, finish, false);
}

static const int32_t *stop_ids(const struct session *s, size_t *ret_count)
{
    *ret_count = 0;
    return s->model->tokenizer ? tokenizer_stops(s->model->tokenizer, ret_count) : NULL;
}

static bool is_stop(const struct session *s, int32_t id)
{
    size_t n;
    const int32_t *stops = stop_ids(s, &n);
    for (size_t i = 0; i < n; i++)
        if (stops[i] == id)
            return true;
    return false;
}

// Adds the token's text; true: a stop string was completed.
static bool say(struct session *s, struct choice *c, int32_t id, const struct token_logprob *lp)
{
    const struct tokenizer *t = s->model->tokenizer;
    size_t start = c->fed;
    if (t && id < tokenizer_size(t))
        detok_add(&c->detok, id, &c->piece);
    bool hit = feed(c);
    if (lp)
        remember(c, lp, start);
    return hit;
}

// What may come next under a grammar, the tokens that end a turn included where the answer may end.
struct allowed {
    const uint64_t *mask;  // NULL: anything
    uint32_t n;            // tokens of the grammar
    bool ends;
};

// Tokens that end a turn are in no grammar: they are allowed where it may end, unless they shall not end anything.
static void allow(struct session *s, struct choice *c, const int32_t *stops, size_t nstops, struct allowed *ret)
{
    *ret = (struct allowed){0};
    if (!c->grammar)
        return;
    uint64_t *mask = grammar_mask(c->grammar, &ret->n);
    ret->mask = mask;
    ret->ends = grammar_ends(c->grammar) && !s->task->generate.ignore_eos && nstops > 0;
    for (size_t i = 0; i < nstops && ret->ends; i++)
        if (stops[i] < s->model->vocab)
            mask[stops[i] / 64] |= 1ull << stops[i] % 64;
    if (ret->n > 0 || ret->ends)
        return;
    err_set(&s->failure, grammar_broken(c->grammar) ? ERR_INVALID : ERR_INTERNAL,
            grammar_broken(c->grammar) ? "the grammar is too ambiguous to be followed"
                                       : "no token of this model continues an answer of the requested form");
}

void session_sample(struct session *s, struct choice *c, float *logits)
{
    const struct generate *g = &s->task->generate;
    int index = c->nids - s->nprompt;
    size_t nstops;
    const int32_t *stops = stop_ids(s, &nstops);
    struct token_logprob lp;
    struct allowed allowed;
    allow(s, c, stops, nstops, &allowed);
    if (s->failure.code)
        return;
    // An answer that has to end ends, however short it is.
    bool mask = index < g->min_tokens && (!allowed.mask || allowed.n > 0);
    // The distribution before anything is applied; the chosen one's is filled in afterwards.
    float *raw = NULL;
    if (g->logprobs >= 0) {
        raw = mem_new((size_t)s->model->vocab * sizeof *raw);
        memcpy(raw, logits, (size_t)s->model->vocab * sizeof *raw);
    }
    int32_t id = sampler_pick(c->sampler, logits, index, allowed.mask, mask ? stops : NULL, mask ? nstops : 0);
    bool stop = id >= 0 && !g->ignore_eos && is_stop(s, id);
    if (raw && id >= 0 && !stop)
        take_logprobs(s, raw, id, &lp);
    free(raw);
    if (id < 0) {
        err_set(&s->failure, ERR_INTERNAL, "the model's logits at position %d are not numbers, or all are masked",
                c->nids - 1);
        return;
    }
    session_add_id(c, id);
    s->completion_tokens++;
    if (!stop && c->grammar && !grammar_take(c->grammar, id)) {
        err_set(&s->failure, ERR_INTERNAL, "token %d is not part of an answer of the requested form", id);
        return;
    }
    if (stop)
        end_choice(s, c, FINISH_STOP, false);
    else if (say(s, c, id, g->logprobs >= 0 ? &lp : NULL))
        end_choice(s, c, FINISH_STOP, true);
    else if (c->grammar && grammar_ends(c->grammar) && !grammar_goes_on(c->grammar))
        end_choice(s, c, FINISH_STOP, false);  // nothing can follow: no step to find that out
    else if (index + 1 >= s->max_out)
        end_choice(s, c, FINISH_LENGTH, false);
    else
        emit_text(s, c, tokens_out(s, c));
}

// ---- the end

static void choice_done(struct session *s, struct choice *c)
{
    if (s->prefix)
        prefix_seq_leave(s->prefix, &c->seq, c->ids);
    for (int i = 0; i < c->ntokens; i++)
        free((void *)c->tokens[i].logprob.top);
    free(c->tokens);
    free(c->ids);
    sampler_free(c->sampler);
    grammar_free(c->grammar);
    stop_free(c->stop);
    buf_done(&c->piece);
    buf_done(&c->text);
}

void session_end(struct session *s, const err *why)
{
    session_set_state(s, SESSION_DONE);
    for (int i = 0; s->choices && i < s->n; i++)
        choice_done(s, &s->choices[i]);
    for (int i = 0; i < s->nprompt_logprobs; i++)
        free((void *)s->prompt_logprobs[i].top);
    free(s->prompt_logprobs);
    free(s->choices);
    if (s->work)
        s->work->ops->free(s->work);
    if (why && why->code == ERR_CANCELLED)
        slot_count_cancel(s->slots, s->ticket);
    int64_t cancelled_ns = slot_cancel_ns(s->slots, s->ticket);  // 0 while the canceller is just about to write it
    slot_give(s->slots, s->ticket, s->waiting);
    timing_end(s, why, cancelled_ns, clock_ns());
    struct event ev = {.kind = EVENT_END};
    if (why) {
        ev.error = *why;
        if (s->model)
            model_hide_paths(s->model, s->task->model, &ev.error);
    }
    session_emit(s, &ev);
    void (*on_end)(void *arg) = s->on_end;
    void *arg = s->on_end_arg;
    task_free(s->task);
    free(s);
    if (on_end)
        on_end(arg);
}
