// score_lanes.c - see the header. Scheduler thread, but for score_lanes_count.
#include "engine/sched/score_lanes.h"

#include <string.h>

#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/score.h"

enum { POOL_SHARE = 4 };  // more than one lane only within this part of the pool

err_code score_lanes_count(const struct session *s, int nprompt, int max_running, int pages, int *ret_lanes, err *e)
{
    const struct score *sc = s->score;
    int most = nprompt + sc->longest, stem = prefix_pages(nprompt), own = prefix_pages(most) - nprompt / KV_PAGE_TOKENS;
    const char *field = s->task->generate.prompt.messages ? "messages" : "prompt";
    if (most <= s->context && stem + own > pages)  // the last page of the prompt is copied
        return err_set_param(e, ERR_INVALID, field, "the prompt and the longest choice need %d pages of KV memory, there are %d",
                             stem + own, pages);
    if (most > s->context)
        return err_set_param(e, ERR_CONTEXT, field, "This model's maximum context length is %d tokens. However, you requested %d "
                             "tokens (%d in the prompt, %d in the longest choice).", s->context, most, nprompt, sc->longest);
    int lanes = 1, ncompute = 0;
    for (int i = 1; i < sc->nruns; i++)
        ncompute += sc->runs[i].rows > 0;
    // A recurrent state of each would go beyond what is held ready for one task.
    while (lanes < SCORE_LANES && lanes < ncompute && lanes + 2 <= max_running && !s->owner->state_bytes &&
           stem + (lanes + 1) * own <= pages / POOL_SHARE)
        lanes++;
    *ret_lanes = lanes;
    return ERR_OK;
}

bool score_lanes_has(const struct session *s, const struct choice *c)
{
    return s->score && c != &s->choices[0];
}

// ---- lanes and their runs

static int *run_of(const struct session *s, const struct choice *c)
{
    return &s->score->lanes[c - &s->choices[1]];
}

static bool goes(const struct session *s, const struct choice *c)
{
    int run = *run_of(s, c);
    return run >= 0 && s->score->runs[run].state == SCORE_GOES;
}

// Runs behind the one whose end the lane holds that wait for a lane; the first of them. -1: none.
static int behind(const struct session *s, const struct choice *c, int *ret_n)
{
    const struct score *sc = s->score;
    int run = *run_of(s, c), first = -1;
    *ret_n = 0;
    for (int k = run < 0 ? -1 : sc->runs[run].child; k >= 0; k = sc->runs[k].next)
        if (sc->runs[k].state == SCORE_READY) {
            first = first < 0 ? k : first;
            ++*ret_n;
        }
    return first;
}

static void set_ids(const struct session *s, struct choice *c, const struct score_run *r)
{
    int n = s->nprompt + r->from + r->rows;
    if (n > c->cap) {
        c->cap = c->limit;
        c->ids = mem_resize(c->ids, (size_t)c->cap * sizeof *c->ids);
    }
    memcpy(c->ids, s->choices[0].ids, (size_t)s->nprompt * sizeof *c->ids);
    memcpy(c->ids + s->nprompt, s->score->texts[r->some].ids, (size_t)(n - s->nprompt) * sizeof *c->ids);
    c->nids = n;
}

// The lane computes this run from where its sequence is.
static void go(struct session *s, struct choice *c, int run)
{
    int *mine = run_of(s, c);
    if (*mine >= 0)
        s->score->runs[*mine].lane = -1;
    *mine = run;
    s->score->runs[run].state = SCORE_GOES;
    set_ids(s, c, &s->score->runs[run]);
}

static void let_go(struct session *s, struct choice *c)
{
    int *mine = run_of(s, c);
    if (*mine >= 0)
        s->score->runs[*mine].lane = -1;
    *mine = -1;
    prefix_seq_done(s->prefix, &c->seq);
    c->active = false;
}

// The nearest sequence before the run: that of a lane that holds an end, or the prompt's.
static const struct choice *nearest(const struct session *s, int run)
{
    const struct score *sc = s->score;
    int k = sc->runs[run].parent;
    while (k > 0 && sc->runs[k].lane < 0)
        k = sc->runs[k].parent;
    return k > 0 ? &s->choices[1 + sc->runs[k].lane] : &s->choices[0];
}

static int next_ready(const struct score *sc)
{
    for (int i = 1; i < sc->nruns; i++)
        if (sc->runs[i].state == SCORE_READY)
            return i;
    return -1;
}

// A free lane takes a run. False: there are no pages for it now.
static bool fork_lane(struct served *m, struct session *s, struct choice *c, int run)
{
    if (c->seq.promised == 0 && !admit_promise(s, c, m->nseqs))
        return false;
    if (!prefix_seq_fork(s->prefix, &nearest(s, run)->seq, &c->seq))
        return false;
    c->active = true;
    go(s, c, run);
    return true;
}

// ---- who goes on with what

// Lanes at an end: on to the last run behind it; one with nothing behind it is free.
static void clear_ends(struct session *s)
{
    for (int i = 1; i < s->n; i++) {
        struct choice *c = &s->choices[i];
        if (c->done || !c->active || goes(s, c))
            continue;
        int n, first = behind(s, c, &n);
        if (n == 1)
            go(s, c, first);
        else if (n == 0)
            let_go(s, c);
    }
}

static bool waits(const struct score *sc)
{
    for (int i = 1; i < sc->nruns; i++)
        if (sc->runs[i].state == SCORE_WAITS)
            return true;
    return false;
}

static void give_up_lane(struct served *m, struct session *s, struct choice *c)
{
    prefix_seq_done(s->prefix, &c->seq);
    c->done = true;
    s->ndone++;
    m->nseqs--;
}

static void fill_free(struct served *m, struct session *s)
{
    for (int i = 1; i < s->n; i++) {
        struct choice *c = &s->choices[i];
        int run = c->done || c->active ? -1 : next_ready(s->score);
        if (run >= 0 && !fork_lane(m, s, c, run))
            return;
        if (run < 0 && !c->done && !c->active && !waits(s->score))
            give_up_lane(m, s, c);
    }
}

static bool any_goes(const struct session *s)
{
    for (int i = 1; i < s->n; i++)
        if (!s->choices[i].done && goes(s, &s->choices[i]))
            return true;
    return false;
}

// All lanes hold ends: one of them goes on, and what else is behind it begins further back.
static bool force_one(struct session *s)
{
    for (int i = s->n - 1; i > 0; i--) {
        int n, first = s->choices[i].done ? -1 : behind(s, &s->choices[i], &n);
        if (first >= 0) {
            go(s, &s->choices[i], first);
            return true;
        }
    }
    return false;
}

static void finish(struct served *m, struct session *s)
{
    const struct generate *g = &s->task->generate;
    struct score *sc = s->score;
    if (score_sum(sc, &s->failure))
        return;
    if (g->choosing == CHOOSE_SCORED)
        session_emit(s, &(struct event){.kind = EVENT_SCORES, .scores = sc->results, .nscores = (size_t)sc->ntexts});
    for (int i = 0; i < g->n; i++)
        session_say_scored(s, i, score_pick(sc, &g->sampling, i));
    prefix_seq_leave(s->prefix, &s->choices[0].seq, s->choices[0].ids);
    m->nseqs -= served_live_choices(s);
    for (int i = 0; i < s->n; i++)
        s->choices[i].done = true;
    s->ndone = s->n;
}

static void go_on(struct served *m, struct session *s)
{
    if (s->score->left == 0) {
        finish(m, s);
        return;
    }
    clear_ends(s);
    fill_free(m, s);
    if (!any_goes(s) && !force_one(s))
        admit_preempt(m, s);
}

void score_lanes_begin(struct served *m, struct session *s, const float *logits)
{
    struct score *sc = s->score;
    if (sc->runs[0].state != SCORE_DONE) {
        score_take(sc, s, 0, 0, logits);
        score_run_done(sc, 0);
    }
    go_on(m, s);
}

void score_lanes_take(struct served *m, struct session *s, struct choice *c, int rows, const float *logits)
{
    struct score *sc = s->score;
    int run = *run_of(s, c), at = c->seq.kv.len - rows - s->nprompt;
    for (int i = 0; i < rows; i++)
        score_take(sc, s, run, at + i + 1, logits + (size_t)i * (size_t)sc->vocab);
    if (c->seq.kv.len < c->nids)
        return;
    sc->runs[run].lane = (int)(c - &s->choices[1]);
    score_run_done(sc, run);
    go_on(m, s);
}

void score_lanes_drop(struct session *s)
{
    struct score *sc = s->score;
    for (int i = 1; sc && i < s->n; i++) {
        struct choice *c = &s->choices[i];
        int *run = run_of(s, c);
        if (*run >= 0 && sc->runs[*run].state == SCORE_GOES)
            sc->runs[*run].state = SCORE_READY;
        if (*run >= 0)
            sc->runs[*run].lane = -1;
        *run = -1;
        c->active = false;
        c->nids = c->was = 0;
    }
}
