// session.c - what happens to one task between its prompt and its last event. Called by the thread that owns the session.
#include "engine/sched/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/score.h"
#include "engine/sched/timing.h"
#include "engine/text/bad_words.h"

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
    session_text_init(s, c);
    c->run = 1;
    c->most_draft = SESSION_DRAFT;
    if (s->task->kind == TASK_GENERATE)
        c->limit = s->nprompt + (s->max_out > 1 ? s->max_out - 1 : 0);  // the last token is not computed
}

static bool wants_prompt(const struct generate *g)
{
    return g->prompt_logprobs >= 0 || (g->echo && g->logprobs >= 0);
}

static void set_prompt(struct session *s, int32_t *ids, int nids, int max_out, int nchoices)
{
    s->n = nchoices;
    s->nprompt = s->prompt_tokens = nids;
    s->max_out = max_out;
    s->choices = mem_new((size_t)s->n * sizeof *s->choices);
    for (int i = 0; i < s->n; i++)
        session_init_choice(s, &s->choices[i], i);
    struct choice *c = &s->choices[0];
    c->ids = ids;
    c->nids = c->cap = nids;
    c->active = true;
    if (wants_prompt(&s->task->generate))
        s->prompt_logprobs = mem_new((size_t)nids * sizeof *s->prompt_logprobs);
}

void session_set_prompt(struct session *s, int32_t *ids, int nids, int max_out, struct grammar *grammar)
{
    const struct generate *g = &s->task->generate;
    set_prompt(s, ids, nids, max_out, g->n);
    for (int i = 0; i < s->n; i++)
        s->choices[i].grammar = grammar ? grammar_begin(grammar) : NULL;
    struct choice *c = &s->choices[0];
    c->sampler = sampler_new(&g->sampling, s->model->vocab, 0);
    sampler_set_tokenizer(c->sampler, s->model->tokenizer);
    sampler_see_prompt(c->sampler, ids, nids);
    size_t nstops = 0;
    if (s->model->tokenizer)
        (void)tokenizer_stops(s->model->tokenizer, &nstops);
    s->banned = mem_new((nstops + g->nstop_ids + bad_words_most(s->bad_words) + 1) * sizeof *s->banned);
}

void session_set_scored(struct session *s, int32_t *ids, int nids, int max_out, int lanes)
{
    struct score *sc = s->score;
    set_prompt(s, ids, nids, max_out, 1 + lanes);
    s->choices[0].limit = nids;
    for (int i = 1; i < s->n; i++)
        s->choices[i].limit = nids + sc->longest;
    if (s->task->generate.logprobs >= 0)
        sc->shown = mem_new(((size_t)sc->ntokens + 1) * sizeof *sc->shown);
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

void session_take_logprobs(const struct session *s, const float *logits, int32_t id, int k, struct token_logprob *ret)
{
    struct token_alternative top[SESSION_MAX_LOGPROBS];
    *ret = (struct token_logprob){.token.id = id};
    sampler_logprobs(logits, s->model->vocab, id, k, &ret->token.logprob, &ret->rank, top, &ret->ntop);
    add_piece(s, &ret->token);
    for (int i = 0; i < ret->ntop; i++)
        add_piece(s, &top[i]);
    if (ret->ntop == 0)
        return;
    size_t bytes = (size_t)ret->ntop * sizeof *top;
    ret->top = memcpy(mem_new(bytes), top, bytes);
}

void session_start(struct session *s)
{
    s->begun = true;
    bool ids = s->task->kind == TASK_GENERATE && s->task->generate.token_ids;
    session_emit(s, &(struct event){.kind = EVENT_START, .ids = ids ? s->choices[0].ids : NULL,
                                    .nids = ids ? (size_t)s->nprompt : 0});
    if (s->task->kind == TASK_GENERATE && s->task->generate.echo && !s->prompt_logprobs)
        session_text_echo(s, NULL);
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
    const struct generate *g = &s->task->generate;
    int k = g->echo && g->logprobs > g->prompt_logprobs ? g->logprobs : g->prompt_logprobs;
    if (at == s->nprompt_logprobs && at < s->nprompt)
        session_take_logprobs(s, logits, ids[at], k, &s->prompt_logprobs[s->nprompt_logprobs++]);
}

// The prompt's tokens with at most k alternatives; to be freed, not what they point to.
static struct token_logprob *prompt_tokens(const struct session *s, int k)
{
    struct token_logprob *list = mem_new((size_t)s->nprompt * sizeof *list);
    for (int i = 0; i < s->nprompt_logprobs; i++) {
        list[i] = s->prompt_logprobs[i];
        list[i].ntop = list[i].ntop < k ? list[i].ntop : k;
    }
    return list;
}

void session_prompt_done(struct session *s)
{
    const struct generate *g = &s->task->generate;
    if (!s->prompt_logprobs)
        return;
    add_piece(s, &s->prompt_logprobs[0].token);
    if (g->prompt_logprobs >= 0) {
        struct token_logprob *list = prompt_tokens(s, g->prompt_logprobs);
        session_emit(s, &(struct event){.kind = EVENT_PROMPT, .tokens = list, .ntokens = (size_t)s->nprompt_logprobs});
        free(list);
    }
    if (!g->echo)
        return;
    struct token_logprob *list = g->logprobs >= 0 ? prompt_tokens(s, g->logprobs) : NULL;
    session_text_echo(s, list);
    free(list);
}

// ---- choices

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

// By itself, with calls in it: somebody else goes on.
static enum finish finish_of(const struct choice *c, enum finish finish)
{
    bool calls = c->text.answer && answer_ncalls(c->text.answer) > 0;
    return finish == FINISH_STOP && calls ? FINISH_CALLS : finish;
}

void session_finish_choice(struct session *s, struct choice *c, enum finish finish)
{
    session_text_finish(s, c, finish == FINISH_LENGTH);
    finish = finish_of(c, finish);
    c->done = true;
    s->cut |= finish == FINISH_LENGTH;
    s->ndone++;
    prefix_seq_leave(s->prefix, &c->seq, c->ids);
    struct event ev = {.kind = EVENT_FINISH, .choice = c->index, .finish = finish};
    session_text_ids(s, c, &ev);
    session_emit(s, &ev);
}

// The text it has belongs to one answer; the next one begins with another.
void session_say_scored(struct session *s, int answer, int text)
{
    const struct score *sc = s->score;
    const struct score_text *x = &sc->texts[text];
    struct choice *c = &s->choices[0];
    session_text_done(c);
    c->text = (struct session_text){0};
    c->index = answer;
    c->nids = s->nprompt;
    session_text_init(s, c);
    int n = x->n < s->max_out ? x->n : s->max_out;
    bool hit = false;
    for (int k = 0; k < n && !hit; k++) {
        struct token_logprob lp;
        const struct token_logprob *shown = sc->shown ? &sc->shown[score_token(sc, text, k)] : NULL;
        if (shown) {
            lp = *shown;
            lp.top = lp.ntop ? memcpy(mem_new((size_t)lp.ntop * sizeof *lp.top), lp.top, (size_t)lp.ntop * sizeof *lp.top) : NULL;
        }
        session_add_id(c, x->ids[k]);
        s->completion_tokens++;
        hit = session_text_say(s, c, x->ids[k], shown ? &lp : NULL);
    }
    bool cut = !hit && n < x->n;
    if (x->begins && !hit && n < s->max_out) {  // as when it is sampled token by token; others are whole without
        session_add_id(c, x->end_id);
        s->completion_tokens++;
    }
    session_text_finish(s, c, cut);
    s->cut |= cut;
    struct event ev = {.kind = EVENT_FINISH, .choice = answer, .finish = cut ? FINISH_LENGTH : FINISH_STOP};
    session_text_ids(s, c, &ev);
    session_emit(s, &ev);
}

// ---- the end

static void choice_done(struct session *s, struct choice *c)
{
    if (s->prefix)
        prefix_seq_leave(s->prefix, &c->seq, c->ids);
    session_text_done(c);
    free(c->ids);
    sampler_free(c->sampler);
    grammar_free(c->grammar);
}

void session_end(struct session *s, const err *why)
{
    session_set_state(s, SESSION_DONE);
    for (int i = 0; s->choices && i < s->n; i++)
        choice_done(s, &s->choices[i]);
    for (int i = 0; i < s->nprompt_logprobs; i++)
        free((void *)s->prompt_logprobs[i].top);
    free(s->prompt_logprobs);
    score_free(s->score);
    free(s->choices);
    free(s->close);
    free(s->banned);
    free(s->admitted);
    bad_words_free(s->bad_words);
    if (s->work)
        s->work->ops->free(s->work);
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
