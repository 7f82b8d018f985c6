// turn.c - see the header.
#include "engine/sched/turn.h"

#include "engine/family/family.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/commit.h"
#include "engine/sched/plan.h"
#include "engine/sched/work.h"
#include "kernels/team.h"

static const double target_s = 0.09;        // so that 99 of 100 gaps between tokens are within 100 ms
static const double work_s = 0.05;         // a step of a work when nobody decodes
static const double least_work_s = 0.002;
static const double batch_fill = 0.6;      // batch rows fill a step up to this share while others decode

// Something that is done beside decoding rows.
struct extra {
    struct served *m;         // NULL: there is none
    struct session *work;     // a step of its work; NULL: a batch
    bool decide;
    enum share_lane lane;
    struct share_rank rank;
};

// ---- who wants what

static enum share_lane work_lane(const struct session *s)
{
    return s->share.lane == SHARE_BATCH ? SHARE_BATCH : SHARE_MEDIA;
}

static void offer(struct extra *best, const struct extra *x)
{
    struct extra *b = &best[x->lane];
    if (!b->m || share_before(&x->rank, &b->rank))
        *b = *x;
}

// The first of each lane.
static void find_extras(struct served *m, int64_t now, struct extra *best)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        if (s->held_ns || s->failure.code)
            continue;
        if (s->ready)
            offer(best, &(struct extra){m, s, false, work_lane(s), share_rank(&s->share, share_guess_s(&s->share), now)});
        if (s->state != SESSION_WORK && plan_has_extra(s))
            offer(best, &(struct extra){m, NULL, session_decides(s), s->share.lane,
                                        share_rank(&s->share, plan_rest_s(m, s), now)});
    }
}

static unsigned wanting(const struct served *m)
{
    unsigned lanes = 0;
    for (int i = 0; i < m->nwaiting; i++)
        lanes |= 1u << m->waiting[i]->share.lane;
    return lanes;
}

static struct extra choose(struct sched_core *core, struct served *const *models, int n)
{
    struct extra best[SHARE_LANES] = {{0}};
    unsigned waiting = 0, ready = 0;
    int64_t now = core->now_ns();
    for (int i = 0; i < n; i++) {
        find_extras(models[i], now, best);
        waiting |= wanting(models[i]);
    }
    for (int i = 0; i < SHARE_LANES; i++)
        ready |= best[i].m ? 1u << i : 0;
    share_want(&core->share, ready | waiting);
    return ready ? best[share_next(&core->share, ready)] : (struct extra){0};
}

static bool is_due(const struct served *m)
{
    for (int i = 0; i < m->nrunning; i++)
        for (int k = 0; k < m->running[i]->n; k++)
            if (plan_is_due(m->running[i], &m->running[i]->choices[k]))
                return true;
    return false;
}

// ---- how long

// As much of the head counts as the last step had: which logits are read is known when the step is planned.
static double decode_s(const struct served *m)
{
    struct cost_step st = {0};
    for (int i = 0; i < m->nrunning; i++) {
        const struct session *s = m->running[i];
        for (int k = 0; k < s->n; k++)
            if (plan_is_due(s, &s->choices[k]))
                cost_add_decode(&m->cost, &st, s->choices[k].seq.kv.len);
    }
    st.heads *= m->head_share;
    return st.rows ? cost_predict_s(&m->cost, &st) : 0;
}

// What the decoding rows of all models take between two tokens of a stream. With several models that is more than each
// once: the one that has the extra in it goes first, so another one's steps may have a third one's twice between them.
static double all_decode_s(struct served *const *models, int n)
{
    double sum = 0, most = 0;
    int due = 0;
    for (int i = 0; i < n; i++) {
        double t = decode_s(models[i]);
        due += t > 0;
        sum += t;
        most = t > most ? t : most;
    }
    return due > 1 ? sum + most : sum;
}

static struct plan_room make_plan_room(const struct served *m, double decode, bool decide, bool extras)
{
    double room = cost_room_s(&m->cost, decode, target_s);
    double batch = decode > 0 ? batch_fill * cost_target_s(decode, target_s) - decode : room;
    return (struct plan_room){decide, extras, room, batch > room ? room : batch};
}

// ---- steps

static double seconds_since(const struct sched_core *core, int64_t start)
{
    return (double)(core->now_ns() - start) * 1e-9;
}

static void count_step(struct served *m, double took)
{
    metrics_count(&m->metrics->steps, 1);
    hist_add(&m->metrics->step_s, took);
}

// Ends what is done, went wrong or was cancelled meanwhile.
static void settle(struct served *m)
{
    for (int i = m->nrunning - 1; i >= 0; i--) {
        struct session *s = m->running[i];
        err e = {0};
        if (s->failure.code)
            served_end_running(m, s, &s->failure);
        else if (session_over(s))  // before a cancel that came after its last token
            served_end_running(m, s, NULL);
        else if (session_must_end(s, INT64_MIN, &e))
            served_end_running(m, s, &e);
    }
}

// Each pays for what its rows add to the step; what they have in common is shared out alike.
static void charge(struct served *m)
{
    double parts = 0, all = cost_predict_s(&m->cost, &m->step);
    for (int i = 0; i < m->nitems; i++)
        parts += m->items[i].cost_s;
    double factor = parts > 0 ? all / parts : 0;
    for (int i = 0; i < m->nitems; i++) {
        const struct plan_item *it = &m->items[i];
        share_charge(&it->session->share, it->cost_s * factor);
        if (it->extra)
            share_charge_lane(&m->core->share, it->session->share.lane, it->cost_s);
    }
}

static void count_logits(struct served *m)
{
    uint64_t all = m->decide ? 0 : (uint64_t)m->batch.b.nout * (uint64_t)m->model->vocab;
    uint64_t computed = (uint64_t)((double)all * heads_share(&m->heads));
    metrics_count(&m->metrics->logits, computed);
    metrics_count(&m->metrics->spared_logits, all - computed);
}

static void forward(struct lane *lane, void *arg)
{
    const struct served *m = arg;
    m->model->family->gen->forward(m->model, &m->batch.b, lane);
}

// One batch through the language model. False: there was nothing to compute. What is measured is all that a stream waits
// for: the plan, the step, and what comes of it.
static bool run_batch(struct served *m, const struct plan_room *room)
{
    struct sched_core *core = m->core;
    int64_t start = core->now_ns();
    plan_step(m, room);
    if (m->nitems == 0)
        return false;
    charge(m);
    team_run(core->team, forward, m);
    commit_step(m);
    double took = seconds_since(core, start);
    cost_learn(&m->cost, &m->step, took);
    count_step(m, took);
    hist_add(&m->metrics->step_tokens, m->batch.b.rows);
    count_logits(m);
    settle(m);
    return true;
}

static void work_step(struct lane *lane, void *arg)
{
    struct work *w = arg;
    w->ops->step(w, lane);
}

static bool run_work(struct served *m, struct session *s, double slice_s)
{
    struct sched_core *core = m->core;
    int64_t start = core->now_ns();
    s->work->slice_ns = start + (int64_t)(slice_s * 1e9);
    team_run(core->team, work_step, s->work);
    if (!slot_cancelled(s->slots, s->ticket))
        admit_advance(s);
    double took = seconds_since(core, start);
    share_charge(&s->share, took);
    share_charge_lane(&core->share, work_lane(s), took);
    count_step(m, took);
    settle(m);
    return true;
}

static bool run_extra(const struct extra *x, double decode)
{
    if (!x->work) {
        struct plan_room room = make_plan_room(x->m, decode, x->decide, true);
        if (!x->decide)
            x->m->cycle = x->m->core->cycle;  // its decoding rows are in it
        return run_batch(x->m, &room);
    }
    double slice = decode > 0 ? cost_room_s(&x->m->cost, decode, target_s) : work_s;
    slice = slice < work_s ? slice : work_s;
    return run_work(x->m, x->work, slice > least_work_s ? slice : least_work_s);
}

// ---- the turn

static struct served *next_due(const struct sched_core *core, struct served *const *models, int n)
{
    for (int i = 0; i < n; i++)
        if (models[i]->cycle != core->cycle && is_due(models[i]))
            return models[i];
    return NULL;
}

static bool run_due(struct served *m)
{
    struct plan_room none = {0};
    m->cycle = m->core->cycle;
    return run_batch(m, &none);
}

// The extra comes first, then the models that were not in it: the time between two steps of a model then has one extra
// in it, whichever way they follow each other.
static bool step(struct sched_core *core, struct served *const *models, int n)
{
    if (!core->extra_done) {
        struct extra x = choose(core, models, n);
        double decode = all_decode_s(models, n);
        core->extra_done = true;
        if (x.m && run_extra(&x, decode))
            return true;
    }
    struct served *m = next_due(core, models, n);
    if (m)
        return run_due(m);
    core->cycle++;
    core->extra_done = false;
    return false;
}

bool turn_make(struct sched_core *core, struct served *const *models, int n)
{
    core->gave_way = false;
    int64_t now = core->now_ns();
    for (int i = 0; i < n; i++) {
        admit_sweep(models[i], now);
        admit_waiting(models[i]);
        settle(models[i]);  // a work may have failed or be done as it begins
    }
    bool worked = false;
    // The end of a cycle has no step of its own, and making room may leave a step without rows.
    for (int i = 0; i < 4 && !worked; i++)
        worked = step(core, models, n);
    return worked || core->gave_way;
}
