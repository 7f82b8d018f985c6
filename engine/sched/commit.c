// commit.c - rows are committed first, then each sequence is worked off: forks, samples, ends of rounds.
#include "engine/sched/commit.h"

#include <string.h>

#include "base/clock.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/plan.h"
#include "engine/sched/round.h"
#include "engine/sched/score_lanes.h"
#include "engine/sched/timing.h"

static float *logits_row(const struct served *m, int i)
{
    return m->logits + (size_t)i * (size_t)m->model->vocab;
}

static void take_prompt_logits(const struct served *m, const struct plan_item *it)
{
    struct session *s = it->session;
    int first = it->choice->seq.kv.len - it->rows;  // position of the first row; it predicts the token after it
    for (int i = 0; i < it->nout && session_wants_prompt_logprobs(s); i++)
        session_prompt_logits(s, logits_row(m, it->first_out + i), first + i + 1);
}

// The next step computes what is known as a run, with what may follow.
static void look_ahead(const struct session *s, struct choice *c)
{
    c->run = c->nids - c->seq.kv.len;
    session_sample_draft(s, c);
}

// Picks from the row's logits, then from the rows of the draft for as long as they are those of the tokens that were picked.
// Only these positions are kept: what lies behind them is written again.
static void sample(struct served *m, struct session *s, struct choice *c, const struct plan_item *it)
{
    int first = it->first_out + it->nout - 1 - it->ndraft, at = 0;
    int32_t draft[SESSION_DRAFT];
    memcpy(draft, c->draft, sizeof draft);
    for (;;) {
        int before = c->nids, same = 0;
        session_sample(s, c, logits_row(m, first + at));
        if (c->done || s->failure.code)
            break;
        while (before + same < c->nids && at + same < it->ndraft && c->ids[before + same] == draft[at + same])
            same++;
        if (same > 0)
            prefix_seq_commit(m->prefix, &c->seq, c->ids, same);
        at += same;
        if (before + same < c->nids)
            break;
    }
    if (it->ndraft > 0)  // a model that writes otherwise than the tokenizer cuts is offered less
        c->most_draft = at < it->ndraft && at + 2 < SESSION_DRAFT ? at + 2 : SESSION_DRAFT;
    metrics_count(&m->metrics->draft_tokens, (uint64_t)it->ndraft);
    metrics_count(&m->metrics->accepted_tokens, (uint64_t)at);
    if (!c->done && !s->failure.code)
        look_ahead(s, c);
}

// The prompt of a new session is computed: every choice samples its first token from the same logits.
static void finish_prompt(struct served *m, struct session *s, const float *logits)
{
    size_t bytes = (size_t)m->model->vocab * sizeof *logits;
    session_prompt_done(s);
    s->forked = true;
    for (int i = 1; i < s->n; i++) {
        if (!prefix_seq_fork(s->prefix, &s->choices[0].seq, &s->choices[i].seq)) {
            err_set(&s->failure, ERR_MEMORY, "no memory to fork choice %d", i);
            return;
        }
        session_fork_choice(s, &s->choices[i]);
    }
    for (int i = 0; i < s->n && !s->failure.code; i++) {
        struct choice *c = &s->choices[i];
        memcpy(m->spare, logits, bytes);
        if (s->max_out == 0)
            session_finish_choice(s, c, FINISH_LENGTH);
        else
            session_sample(s, c, m->spare);
        if (!c->done && !s->failure.code)
            look_ahead(s, c);
        m->nseqs -= c->done;
    }
}

// A round is over: the next one goes on from the stem, now or once there are pages for it.
static void next_round(struct served *m, struct session *s)
{
    struct choice *c = session_round(s);
    if (round_next(s)) {
        const struct choice *stem = session_stem(s);  // after a preemption it may not be computed again yet
        if (!admit_promise(s, c, m->nseqs) || (stem->seq.kv.len == stem->nids && !round_fork(s)))
            admit_preempt(m, s);
        else if (s->state == SESSION_DECODE)
            session_set_state(s, SESSION_PREFILL);
        return;
    }
    if (s->failure.code)
        return;
    prefix_seq_leave(s->prefix, &session_stem(s)->seq, session_stem(s)->ids);
    m->nseqs -= served_live_choices(s);
    s->choices[0].done = s->choices[1].done = true;
    s->ndone = s->n;
    session_set_state(s, SESSION_WORK);
}

static void work_off_round(struct served *m, const struct plan_item *it)
{
    struct session *s = it->session;
    struct choice *stem = session_stem(s), *c = session_round(s);
    if (it->choice == stem) {
        if (stem->seq.kv.len == stem->nids && !c->active && !round_fork(s))
            err_set(&s->failure, ERR_MEMORY, "no memory to go on from the common part");
        return;
    }
    if (c->seq.kv.len < c->nids)
        return;
    size_t row = (size_t)(it->first_out + it->nout - 1);
    bool over = m->decide ? round_read(s, m->hidden + row * (size_t)m->model->hidden)
                          : round_take(s, m->logits + row * (size_t)m->model->vocab);
    if (!s->failure.code && over)
        next_round(m, s);
    else if (s->state == SESSION_PREFILL)
        session_set_state(s, SESSION_DECODE);
    if (!s->failure.code)
        admit_advance(s);
}

// Rows of the prompt, or of a lane.
static void work_off_score(struct served *m, const struct plan_item *it)
{
    struct session *s = it->session;
    struct choice *c = it->choice;
    if (score_lanes_has(s, c)) {
        score_lanes_take(m, s, c, it->rows, logits_row(m, it->first_out));
        return;
    }
    if (c->seq.kv.len < c->nids)
        return;
    if (!s->forked)
        session_prompt_done(s);
    s->forked = true;
    score_lanes_begin(m, s, logits_row(m, it->first_out + it->nout - 1));
}

static bool all_decoding(const struct session *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->choices[i].done && !plan_is_decoding(s, &s->choices[i]))
            return false;
    return true;
}

static void work_off(struct served *m, const struct plan_item *it)
{
    struct session *s = it->session;
    struct choice *c = it->choice;
    if (s->failure.code || slot_cancelled(s->slots, s->ticket) || s->state == SESSION_PREEMPTED)
        return;
    if (session_has_rounds(s)) {
        work_off_round(m, it);
        return;
    }
    if (session_wants_prompt_logprobs(s))
        take_prompt_logits(m, it);
    if (!s->forked)
        session_prompt_progress(s);
    if (s->score) {
        work_off_score(m, it);
        return;
    }
    if (c->seq.kv.len < c->nids)
        return;
    float *logits = logits_row(m, it->first_out + it->nout - 1);
    if (!s->forked) {
        finish_prompt(m, s, logits);
    } else {
        sample(m, s, c, it);
        m->nseqs -= c->done;
    }
    if (s->state == SESSION_PREFILL && all_decoding(s))
        session_set_state(s, SESSION_DECODE);
}

// Rows are committed and published first, cancelled or not: what was computed may serve another request.
void commit_step(struct served *m)
{
    for (int i = 0; i < m->nitems; i++) {
        const struct plan_item *it = &m->items[i];
        prefix_seq_commit(m->prefix, &it->choice->seq, it->choice->ids, it->rows - it->ndraft);
    }
    int64_t now = clock_ns();
    for (int i = 0; i < m->nitems; i++) {
        struct session *s = m->items[i].session;
        int before = s->completion_tokens;
        work_off(m, &m->items[i]);
        timing_tokens(s, m->items[i].choice, s->completion_tokens - before, now);
    }
}
