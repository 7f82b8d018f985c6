// admit.c - promises of pages, beginnings, preemption, and what ends before its time.
#include "engine/sched/admit.h"

#include "engine/sched/round.h"
#include "kernels/team.h"

int admit_wanted(const struct session *s, const struct choice *c)
{
    int known = c->ids ? c->nids : s->nprompt, want = known + SCHED_GROW_TOKENS;
    return want < c->limit ? want : c->limit;
}

int admit_match(const struct session *s, struct choice *c)
{
    if (session_wants_prompt_logprobs(s))
        return c->seq.kv.len;  // every position's logits are needed
    return prefix_seq_match(s->prefix, &c->seq, c->ids, c->nids - 1);
}

bool admit_promise(struct session *s, struct choice *c, int spare)
{
    int have;
    if (c->active) {
        prefix_seq_init(s->prefix, &c->seq, s->task->cache_salt, session_decides(s));
        have = admit_match(s, c) / KV_PAGE_TOKENS;
    } else {
        have = s->nprompt / KV_PAGE_TOKENS;  // shared with choice 0 after the fork
    }
    return prefix_seq_promise(s->prefix, &c->seq, prefix_pages(admit_wanted(s, c)) - have, spare);
}

static void release_pages(struct session *s)
{
    for (int i = 0; i < s->n; i++)
        prefix_seq_done(s->prefix, &s->choices[i].seq);
}

// All choices or none. A page for each running sequence stays unclaimed, so that they can grow.
static bool promise_pages(struct served *m, struct session *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->choices[i].done && !admit_promise(s, &s->choices[i], m->nseqs)) {
            release_pages(s);
            return false;
        }
    return true;
}

// As many works of the kind as run side by side are running.
static bool works_full(const struct served *m, const struct session *s)
{
    return s->work && m->nworks >= s->work->ops->max_running;
}

void admit_advance(struct session *s)
{
    err e = {0};
    enum work_next next = s->work->ops->after ? s->work->ops->after(s->work, s, &e)
                        : s->work->rounds_over ? WORK_DONE : WORK_WAIT;
    s->ready = next == WORK_MORE;
    s->finished = next == WORK_DONE;
    bool stuck = next == WORK_WAIT && (!session_has_rounds(s) || s->work->rounds_over);
    if (stuck && !s->failure.code)
        err_set(&s->failure, ERR_INTERNAL, "the task waits for nothing");
    if (next == WORK_FAIL)
        s->failure = e;
}

static void begin_work(struct served *m, struct session *s)
{
    struct work *w = s->work;
    w->scratch = m->work_scratch;
    w->lanes = team_size(m->core->team);
    if (w->ops->begin && w->ops->begin(w, &s->failure))
        return;
    if (!session_has_rounds(s))
        session_start(s);
    admit_advance(s);
}

static void start(struct served *m, struct session *s)
{
    bool first = s->state == SESSION_QUEUED;
    served_insert(m->running, &m->nrunning, s);
    m->nseqs += served_live_choices(s);
    m->nworks += s->work != NULL;
    session_set_state(s, s->n > 0 ? SESSION_PREFILL : SESSION_WORK);
    if (s->waiting)
        slot_begin(s->slots, s->ticket);
    s->waiting = false;
    if (s->work && first)
        begin_work(m, s);
}

void admit_waiting(struct served *m)
{
    for (int i = 0; i < m->nwaiting;) {
        struct session *s = m->waiting[i];
        if (works_full(m, s)) {
            i++;
            continue;
        }
        if (m->nseqs + served_live_choices(s) > m->core->config.max_running)
            return;
        if (!served_take_memory(m, s)) {
            if (!s->failure.code)
                return;
            served_remove_at(m->waiting, &m->nwaiting, i);
            served_end(m->core, s, &s->failure);
            continue;
        }
        if (!promise_pages(m, s)) {
            if (s->state != SESSION_PREEMPTED || !s->work)
                served_give_memory(m, s);
            return;
        }
        served_remove_at(m->waiting, &m->nwaiting, i);
        start(m, s);
    }
}

void admit_preempt(struct served *m, struct session *s)
{
    release_pages(s);
    if (!s->work)  // a work keeps what it has
        served_give_memory(m, s);
    m->core->stats.preempted++;
    served_remove(m->running, &m->nrunning, s);
    m->nseqs -= served_live_choices(s);
    m->nworks -= s->work != NULL;
    session_set_state(s, SESSION_PREEMPTED);
    served_insert(m->waiting, &m->nwaiting, s);
}


void admit_sweep(struct served *m, int64_t now)
{
    for (int i = m->nwaiting - 1; i >= 0; i--) {
        struct session *x = m->waiting[i];
        err e = {0};
        if (!session_must_end(x, now, &e))
            continue;
        served_remove_at(m->waiting, &m->nwaiting, i);
        served_end(m->core, x, &e);
    }
    for (int i = m->nrunning - 1; i >= 0; i--) {
        err e = {0};
        if (session_must_end(m->running[i], now, &e))
            served_end_running(m, m->running[i], &e);
    }
}
