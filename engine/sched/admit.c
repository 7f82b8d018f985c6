// admit.c - promises of pages, beginnings, preemption, and what ends before its time.
#include "engine/sched/admit.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/metrics.h"
#include "engine/sched/plan.h"
#include "engine/sched/score_lanes.h"
#include "kernels/team.h"

int admit_wanted(const struct session *s, const struct choice *c)
{
    int known = c->ids ? c->nids : s->nprompt, want = known + SCHED_GROW_TOKENS;
    return want < c->limit ? want : c->limit;
}

// Every position's logits are needed, so none may come from the cache.
static bool needs_all(const struct session *s, const struct choice *c)
{
    return session_wants_prompt_logprobs(s) || score_lanes_has(s, c);
}

int admit_match(const struct session *s, struct choice *c)
{
    if (needs_all(s, c))
        return c->seq.kv.len;
    return prefix_seq_match(s->prefix, &c->seq, c->ids, c->nids - 1);
}

int admit_match_part(const struct session *s, struct choice *c)
{
    if (needs_all(s, c))
        return c->seq.kv.len;
    return prefix_seq_match_part(s->prefix, &c->seq, c->ids, c->nids - 1);
}

// A token that joins the two parts in another way may be one fewer.
static void begin_seq(const struct session *s, struct choice *c)
{
    prefix_seq_init(s->prefix, &c->seq, s->task->cache_salt, session_decides(s));
    c->seq.settled = s->passing && s->nprompt > s->passing + 1 ? s->nprompt - s->passing - 1 : 0;
}

bool admit_promise(struct session *s, struct choice *c, int spare)
{
    int have;
    if (c->active) {
        begin_seq(s, c);
        prefix_seq_charge(s->prefix, &c->seq, s->task->account);
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
// Batch work leaves more, or the next to come would take its pages from it at once.
static int watermark(const struct served *m, const struct session *s)
{
    int pages = m->pool ? kv_pool_pages(m->pool) : 0;
    int share = s->state == SESSION_QUEUED && m->nseqs > 0 ? pages * 3 / 100 : 0;
    if (s->share.lane == SHARE_BATCH && m->nrunning > 0)
        share = m->nseqs + pages / 8;
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

// ---- who begins

enum {
    LONG_TOKENS = 1024,  // a prompt with more of them not cached is a long one
    TRIES = 4,           // sessions looked at in vain in one turn: each may cost a walk through the prefix tree
    BATCH_GIVES = 2,     // times that a batch session makes place
    LEAST_ROWS = 4,      // decoding rows that run together however slow they are
};
static const double long_s = 4, most_decode_s = 0.15;

// Tokens of the prompt that the cache does not have.
static int uncached(struct session *s)
{
    if (s->n == 0)
        return 0;
    struct choice *c = &s->choices[0];
    begin_seq(s, c);
    int have = admit_match(s, c);
    prefix_seq_done(s->prefix, &c->seq);
    return c->nids - have;
}

static enum share_lane lane_of(const struct served *m, struct session *s)
{
    if (s->task->class == CLASS_BATCH)
        return SHARE_BATCH;
    if (s->n == 0)
        return SHARE_MEDIA;
    if (s->task->class == CLASS_INTERACTIVE || s->work)
        return SHARE_SHORT;
    int tokens = uncached(s);
    return tokens > LONG_TOKENS || cost_prompt_s(&m->cost, 0, tokens) > long_s ? SHARE_LONG : SHARE_SHORT;
}

void admit_arrive(struct served *m, struct session *s)
{
    struct sched_core *core = m->core;
    double weight = (double)s->task->weight * (s->task->class == CLASS_INTERACTIVE ? 2 : 1);
    s->arrival = s->share.number = ++core->arrivals;
    share_enter(&core->share, &s->share, s->task->account, weight, lane_of(m, s), core->now_ns());
    served_insert(m->waiting, &m->nwaiting, s);
}

// Whether so many more decoding rows would make every stream slow. Where there is none, nobody minds.
static bool rows_slow(const struct served *m, int more)
{
    struct cost_step st = {0};
    for (int i = 0; i < m->nrunning; i++) {
        const struct session *s = m->running[i];
        for (int k = 0; k < s->n && s->share.lane != SHARE_BATCH; k++)
            if (!s->choices[k].done)
                cost_add_decode(&m->cost, &st, s->choices[k].seq.kv.len);
    }
    if (st.rows == 0 || st.rows + more <= LEAST_ROWS || !cost_known(&m->cost))
        return false;
    for (int i = 0; i < more; i++)
        cost_add_decode(&m->cost, &st, 0);
    return cost_predict_s(&m->cost, &st) / m->cost.scale > most_decode_s;
}

// The youngest batch session that has pages makes place, unless that happened to it twice: it would never get on. False:
// there is none.
static bool preempt_batch(struct served *m)
{
    for (int i = m->nrunning - 1; i >= 0; i--) {
        struct session *s = m->running[i];
        if (s->share.lane != SHARE_BATCH || s->state == SESSION_WORK || s->preempted >= BATCH_GIVES)
            continue;
        admit_preempt(m, s);
        return true;
    }
    return false;
}

// The one whose reader has been behind for longest, and for long. False: there is none.
static bool preempt_held(struct served *m, int64_t now)
{
    struct session *worst = NULL;
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        if (s->held_ns && s->state != SESSION_WORK && now - s->held_ns >= ADMIT_HELD_S * 1000000000LL &&
            (!worst || s->held_ns < worst->held_ns))
            worst = s;
    }
    if (worst)
        admit_preempt(m, worst);
    return worst;
}

static int batch_rows(const struct served *m)
{
    int n = 0;
    for (int i = 0; i < m->nrunning; i++)
        n += m->running[i]->share.lane == SHARE_BATCH ? served_live_choices(m->running[i]) : 0;
    return n;
}

static bool only_batch(const struct served *m)
{
    for (int i = 0; i < m->nrunning; i++)
        if (m->running[i]->share.lane != SHARE_BATCH)
            return false;
    for (int i = 0; i < m->nwaiting; i++)
        if (m->waiting[i]->share.lane != SHARE_BATCH)
            return false;
    return true;
}

// Batch work has a third of the sequences while others are there, and leaves a third of them when it is alone. Others may
// take back what it has beyond its third.
static bool rows_full(struct served *m, const struct session *s)
{
    int most = m->core->config.max_running, more = served_live_choices(s), batch = batch_rows(m);
    if (s->share.lane == SHARE_BATCH)
        return m->nseqs + more > most || (batch > 0 && batch + more > (only_batch(m) ? most - most / 3 : most / 3));
    while (m->nseqs + more > most)
        if (batch_rows(m) <= most / 3 || !preempt_batch(m))
            return true;
    return false;
}

// Whether the pages of batch work could be enough: else they are not taken from it in vain.
static bool batch_would_do(const struct served *m, const struct session *s)
{
    int have = prefix_unclaimed(m->prefix), need = m->nseqs;
    for (int k = 0; k < s->n; k++)
        need += s->choices[k].done ? 0 : prefix_pages(admit_wanted(s, &s->choices[k]));
    for (int i = 0; i < m->nrunning; i++) {
        const struct session *x = m->running[i];
        for (int k = 0; k < x->n && x->share.lane == SHARE_BATCH && x->preempted < BATCH_GIVES; k++)
            have += x->choices[k].seq.kv.npages + x->choices[k].seq.promised;
    }
    return have >= need;
}

static bool fits(struct served *m, struct session *s, int64_t now)
{
    bool urgent = s->share.lane != SHARE_BATCH;
    if (rows_full(m, s))
        return false;
    if (urgent && s->n > 0 && rows_slow(m, served_live_choices(s)))
        return false;
    if (!served_take_memory(m, s))
        return false;
    while (!promise_pages(m, s))
        if (!preempt_held(m, now) && !(urgent && batch_would_do(m, s) && preempt_batch(m))) {
            if (s->state != SESSION_PREEMPTED || !s->work)
                served_give_memory(m, s);
            return false;
        }
    return true;
}

static unsigned waiting_lanes(const struct served *m)
{
    unsigned lanes = 0;
    for (int i = 0; i < m->nwaiting; i++)
        if (!m->waiting[i]->planned)
            lanes |= 1u << m->waiting[i]->share.lane;
    return lanes;
}

// The next to begin that was not tried: what was preempted, by age, then by lane and rank.
static struct session *next_waiting(const struct served *m, int64_t now)
{
    struct session *best = NULL;
    struct share_rank first = {0};
    unsigned lanes = waiting_lanes(m);
    for (int i = 0; i < m->nwaiting && lanes; i++) {
        struct session *s = m->waiting[i];
        if (s->planned)
            continue;
        if (s->state == SESSION_PREEMPTED && s->share.lane != SHARE_BATCH)
            return s;
        if (s->share.lane != share_next(&m->core->share, lanes))
            continue;
        struct share_rank r = share_rank(&s->share, plan_rest_s(m, s), now);
        if (!best || share_before(&r, &first)) {
            best = s;
            first = r;
        }
    }
    return best;
}

static bool out_of_patience(struct session *s, int64_t now)
{
    if (!s->blocked_ns)
        s->blocked_ns = now;
    return now - s->blocked_ns > ADMIT_PATIENCE_S * 1000000000LL;
}

void admit_waiting(struct served *m)
{
    int64_t now = m->core->now_ns();
    int tries = 0;
    for (int i = 0; i < m->nwaiting; i++)
        m->waiting[i]->planned = m->waiting[i]->held_ns != 0;
    for (struct session *s; tries < TRIES && (s = next_waiting(m, now));) {
        s->planned = true;
        if (works_full(m, s))
            continue;
        if (fits(m, s, now)) {
            s->blocked_ns = 0;
            served_remove(m->waiting, &m->nwaiting, s);
            start(m, s);
        } else if (s->failure.code) {
            served_remove(m->waiting, &m->nwaiting, s);
            served_end(m->core, s, &s->failure);
        } else if (++tries, out_of_patience(s, now)) {
            return;
        }
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
    if ((a->held_ns != 0) != (b->held_ns != 0))
        return a->held_ns != 0;
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
    score_lanes_drop(s);
    if (!s->work)  // a work keeps what it has
        served_give_memory(m, s);
    s->preempted++;
    m->core->gave_way = true;
    metrics_count(&m->metrics->preemptions, 1);
    served_remove(m->running, &m->nrunning, s);
    m->nseqs -= served_live_choices(s);
    m->nworks -= s->work != NULL;
    session_set_state(s, SESSION_PREEMPTED);
    s->planned = true;  // not again in this turn
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
        for (int k = 0; o != s && !o->held_ns && k < o->n; k++) {
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

// ---- who ends

// The rest of its prompt alone takes longer than there is, even if everything went twice as fast as it does.
static bool hopeless(const struct served *m, const struct session *s, int64_t now, err *e)
{
    int64_t deadline = s->task->deadline_ns;
    if (!deadline || !cost_known(&m->cost) || s->state == SESSION_WORK)
        return false;
    double left = (double)(deadline - now) * 1e-9, need = 0.5 * plan_rest_s(m, s);
    if (need <= left)
        return false;
    err_set(e, ERR_TIMEOUT, "the deadline in %.3f s cannot be met: the prompt alone takes %.3f s more", left, 2 * need);
    return true;
}

// How its reader does. True: it has been behind for too long.
static bool given_up(struct session *s, int64_t now, err *e)
{
    bool held = s->task->held && atomic_load_explicit(s->task->held, memory_order_acquire);
    s->held_ns = !held ? 0 : s->held_ns ? s->held_ns : now;
    if (!held || now - s->held_ns < ADMIT_HELD_MOST_S * 1000000000LL)
        return false;
    err_set(e, ERR_TIMEOUT, "nobody read the answer for %d s", ADMIT_HELD_MOST_S);
    return true;
}

static bool must_end(const struct served *m, struct session *s, int64_t now, err *e)
{
    return session_must_end(s, now, e) || given_up(s, now, e) || hopeless(m, s, now, e);
}

void admit_sweep(struct served *m, int64_t now)
{
    for (int i = m->nwaiting - 1; i >= 0; i--) {
        struct session *x = m->waiting[i];
        err e = {0};
        if (!must_end(m, x, now, &e))
            continue;
        served_remove_at(m->waiting, &m->nwaiting, i);
        served_end(m->core, x, &e);
    }
    for (int i = m->nrunning - 1; i >= 0; i--) {
        err e = {0};
        if (must_end(m, m->running[i], now, &e))
            served_end_running(m, m->running[i], &e);
    }
}
