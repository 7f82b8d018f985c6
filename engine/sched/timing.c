// timing.c - see timing.h. Times go into histograms at once, nothing is kept beyond the session.
#include "engine/sched/timing.h"

#include "engine/metrics.h"
#include "engine/sched/session.h"

static double seconds(int64_t from_ns, int64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

// Tokens are sampled for it. Decisions count one each in the usage, but none is sampled.
static bool samples(const struct session *s)
{
    return s->task->kind == TASK_GENERATE || s->task->kind == TASK_SPEAK;
}

static bool is_quick(const struct session *s)
{
    enum task_kind k = s->task->kind;
    return k == TASK_TOKENIZE || k == TASK_DETOKENIZE || k == TASK_RENDER || k == TASK_LOAD;
}

void timing_accepted(struct session *s, struct metrics *m)
{
    if (s->metrics || !m)
        return;
    s->metrics = m;
    atomic_fetch_add_explicit(&m->waiting, 1, memory_order_relaxed);
}

static _Atomic int64_t *gauge_of(struct metrics *m, int state)
{
    static const bool runs[SESSION_STATES] = {[SESSION_PREFILL] = true, [SESSION_DECODE] = true, [SESSION_WORK] = true};
    return state == SESSION_DONE ? NULL : runs[state] ? &m->running : &m->waiting;
}

void timing_moved(const struct session *s, int from, int to)
{
    if (!s->metrics)
        return;
    _Atomic int64_t *before = gauge_of(s->metrics, from), *after = gauge_of(s->metrics, to);
    if (before == after)
        return;
    if (before)
        atomic_fetch_sub_explicit(before, 1, memory_order_relaxed);
    if (after)
        atomic_fetch_add_explicit(after, 1, memory_order_relaxed);
}

void timing_queued(struct session *s, int64_t now)
{
    s->queued_ns = now;
}

void timing_begun(struct session *s, int64_t now)
{
    s->begun_ns = now;
    if (!s->metrics)
        return;
    hist_add(&s->metrics->queue_s, seconds(s->queued_ns, now));
    if (s->n == 0)  // no language model counts its prompt
        metrics_count(&s->metrics->prompt_tokens, (uint64_t)s->prompt_tokens);
}

static void first_tokens(struct session *s, int64_t now)
{
    s->first_ns = now;
    for (int i = 0; i < s->n; i++)
        s->choices[i].last_ns = now;
    hist_add(&s->metrics->ttft_s, seconds(s->task->arrived_ns, now));
    hist_add(&s->metrics->prefill_s, seconds(s->begun_ns, now));
}

void timing_tokens(struct session *s, struct choice *c, int tokens, int64_t now)
{
    if (!s->metrics || tokens <= 0 || !samples(s))
        return;
    metrics_count(&s->metrics->generation_tokens, (uint64_t)tokens);
    if (!s->first_ns) {
        first_tokens(s, now);
        return;
    }
    hist_add(&s->metrics->itl_s, seconds(c->last_ns, now));
    for (int i = 1; i < tokens; i++)  // they left together; so the sum stays true
        hist_add(&s->metrics->itl_s, 0);
    c->last_ns = now;
}

static void count_end(const struct session *s, const err *why)
{
    struct metrics *m = s->metrics;
    err_code code = why ? why->code : ERR_OK;
    if (code == ERR_OK)
        metrics_count(is_quick(s) ? &m->ended_quick : s->cut ? &m->ended_length : &m->ended_stop, 1);
    else if (code == ERR_CANCELLED)
        metrics_count(&m->ended_cancelled, 1);
    else if (code == ERR_TIMEOUT || code == ERR_LATE)
        metrics_count(&m->ended_deadline, 1);
    else
        metrics_count(&m->ended_error, 1);
}

static void observe_tokens(const struct session *s, int64_t now)
{
    struct metrics *m = s->metrics;
    hist_add(&m->request_generation_tokens, s->completion_tokens);
    if (s->task->kind == TASK_GENERATE) {
        hist_add(&m->request_n, session_answers(s));
        hist_add(&m->request_max_tokens, s->max_out);
    }
    if (!s->first_ns)
        return;
    int choices = s->task->kind == TASK_GENERATE ? session_answers(s) : 1;
    double each = (double)s->completion_tokens / choices, took = seconds(s->first_ns, now);
    hist_add(&m->decode_s, took);
    if (each >= 2)
        hist_add(&m->tpot_s, took / (each - 1));
}

void timing_end(const struct session *s, const err *why, int64_t cancelled, int64_t now)
{
    struct metrics *m = s->metrics;
    if (!m)
        return;
    count_end(s, why);
    if (why && why->code == ERR_CANCELLED)
        hist_add(&m->cancel_to_free_s, cancelled ? seconds(cancelled, now) : 0);
    if (!s->queued_ns)
        return;
    hist_add(&m->e2e_s, seconds(s->task->arrived_ns, now));
    hist_add(&m->task_s, seconds(s->task->arrived_ns, now));
    hist_add(&m->request_prompt_tokens, s->prompt_tokens);
    if (s->begun_ns) {
        hist_add(&m->request_computed_tokens, s->prompt_tokens - s->cached);
        hist_add(&m->inference_s, seconds(s->begun_ns, now));
    }
    if (samples(s))
        observe_tokens(s, now);
}
