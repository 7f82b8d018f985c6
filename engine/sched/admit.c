// admit.c - promises of pages, beginnings, preemption, and what ends before its time.
#include "engine/sched/admit.h"

#include <string.h>

#include "engine/metrics.h"
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

int admit_match_part(const struct session *s, struct choice *c)
{
    if (session_wants_prompt_logprobs(s))
        return c->seq.kv.len;
    return prefix_seq_match_part(s->prefix, &c->seq, c->ids, c->nids - 1);
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
    int pages = prefix_pages(admit_wanted(s, c)) - have, most = prefix_most_pages(s->prefix, s->owner->max_rows);
    return prefix_seq_promise(s->prefix, &c->seq, pages < most ? pages : most, spare);
}

static void release_pages(struct session *s)
{
    for (int i = 0; i < s->n; i++)
        prefix_seq_leave(s->prefix, &s->choices[i].seq, s->choices[i].ids);
}

// Pages that stay unclaimed so that the running sequences can grow: one for each, and for a new session not less than 3 %.
static int watermark(const struct served *m, const struct session *s)
{
    int share = s->state == SESSION_QUEUED && m->nseqs > 0 ? kv_pool_pages(m->pool) * 3 / 100 : 0;
    return m->nseqs > share ? m->nseqs : share;
}

// All choices or none.
static bool promise_pages(struct served *m, struct session *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->choices[i].done && !admit_promise(s, &s->choices[i], watermark(m, s))) {
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

static int computed(const struct session *s)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->choices[i].seq.kv.len;
    return n;
}

// Whether a, which came later, gives its pages back rather than b.
static bool gives_way(const struct session *a, const struct session *b)
{
    bool spared[2] = {a->preempted >= 2, b->preempted >= 2};
    bool batch[2] = {a->task->class == CLASS_BATCH, b->task->class == CLASS_BATCH};
    if (spared[0] != spared[1])
        return spared[1];
    if (batch[0] != batch[1])
        return batch[0];
    return computed(a) <= computed(b);
}

struct session *admit_victim(const struct served *m)
{
    struct session *victim = NULL, *oldest = NULL;
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        if (s->state == SESSION_WORK)
            continue;
        if (!oldest)
            oldest = s;
        else if (!victim || gives_way(s, victim))
            victim = s;
    }
    return victim ? victim : oldest;
}

void admit_preempt(struct served *m, struct session *s)
{
    for (int i = 0; i < s->n; i++)
        s->choices[i].was = s->choices[i].seq.kv.len;
    release_pages(s);
    if (!s->work)  // a work keeps what it has
        served_give_memory(m, s);
    s->preempted++;
    m->core->stats.preempted++;
    metrics_count(&m->metrics->preemptions, 1);
    served_remove(m->running, &m->nrunning, s);
    m->nseqs -= served_live_choices(s);
    m->nworks -= s->work != NULL;
    session_set_state(s, SESSION_PREEMPTED);
    served_insert(m->waiting, &m->nwaiting, s);
}

// ---- the same prefix twice at a time

enum { STILL = 32 };  // plans that a follower's leader may stay where it is

// l is ahead of c on the same path, and where it gets next is of use to c.
static bool leads(const struct prefix *p, const struct choice *l, const struct choice *c, bool older)
{
    int from = c->seq.kv.len, at = l->seq.kv.len, to = prefix_seq_next(p, &l->seq);
    if (to > c->nids - 1 || to > l->nids || to <= from || at < from || (at == from && !older))
        return false;
    return prefix_seq_related(&l->seq, &c->seq) && memcmp(l->ids, c->ids, (size_t)to * sizeof *c->ids) == 0;
}

// Who leads is further ahead, or older: nobody waits for himself, round any number of corners.
bool admit_follows(const struct served *m, struct session *s, const struct choice *c)
{
    if (session_wants_prompt_logprobs(s))
        return false;
    for (int i = 0; i < m->nrunning && s->led_still < STILL; i++) {
        const struct session *o = m->running[i];
        for (int k = 0; o != s && k < o->n; k++) {
            const struct choice *l = &o->choices[k];
            if (!served_is_live(l) || !leads(m->prefix, l, c, o->arrival < s->arrival))
                continue;
            s->led_still = s->led_at == l->seq.kv.len ? s->led_still + 1 : 0;
            s->led_at = l->seq.kv.len;
            return true;
        }
    }
    return false;
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
