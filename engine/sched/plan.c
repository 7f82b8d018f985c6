// plan.c - decoding rows with pages to grow into, then lane by lane what else there is room for.
#include "engine/sched/plan.h"

#include "engine/metrics.h"
#include "engine/sched/admit.h"
#include "engine/sched/round.h"
#include "engine/sched/score.h"
#include "engine/sched/score_lanes.h"

bool plan_is_decoding(const struct session *s, const struct choice *c)
{
    int known = c->nids - c->seq.kv.len;
    return served_is_live(c) && c->nids > s->nprompt && known >= 1 && known <= c->run;
}

bool plan_is_due(const struct session *s, const struct choice *c)
{
    return s->share.lane != SHARE_BATCH && !session_decides(s) && !s->held_ns && plan_is_decoding(s, c);
}

// The stem of a work's rounds stays live when it is computed.
static bool is_extra(const struct session *s, const struct choice *c)
{
    return served_is_live(c) && c->nids > c->seq.kv.len && !plan_is_due(s, c);
}

bool plan_has_extra(const struct session *s)
{
    for (int k = 0; k < s->n; k++)
        if (is_extra(s, &s->choices[k]))
            return true;
    return false;
}

double plan_rest_s(const struct served *m, const struct session *s)
{
    double rest = s->score ? cost_prompt_s(&m->cost, s->nprompt, score_rest(s->score)) : 0;
    for (int k = 0; k < s->n; k++) {
        const struct choice *c = &s->choices[k];
        int have = served_is_live(c) ? c->seq.kv.len : 0;
        if (!c->done && (k == 0 || c->active) && c->nids > have)
            rest += cost_prompt_s(&m->cost, have, c->nids - have);
    }
    return rest;
}

// A page for the next positions: fewer than a page of them. With a window a prompt can run out of promised pages too.
static bool grow(struct session *s, struct choice *c)
{
    struct prefix_seq *q = &c->seq;
    if (c->nids <= q->kv.len)
        return true;  // it waits, with nothing to compute
    int next = plan_is_decoding(s, c) ? c->nids : q->kv.len + 1;
    if (prefix_pages(next) > q->kv.npages && q->promised == 0) {
        int pages = prefix_pages(admit_wanted(s, c)) - q->kv.npages, free_pages = prefix_unclaimed(s->prefix);
        if (!prefix_seq_promise(s->prefix, q, pages < free_pages ? pages : free_pages, 0) || q->promised == 0)
            return false;
    }
    return !plan_is_decoding(s, c) || prefix_seq_reserve(s->prefix, q, next);
}

static bool grow_all(const struct served *m, struct session *s)
{
    for (int k = 0; k < s->n && served_in_step(m, s); k++)
        if (served_is_live(&s->choices[k]) && !grow(s, &s->choices[k]))
            return false;
    return true;
}

// Pages for this step, oldest sessions first; somebody pays when there are none.
static void make_room(struct served *m, bool extras)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        if ((extras || s->share.lane != SHARE_BATCH) && !grow_all(m, s)) {
            admit_preempt(m, admit_victim(m));
            i = -1;  // the list is another
        }
    }
}

// Which of its logits the item's owner reads.
static void add_heads(struct served *m, const struct plan_item *it)
{
    struct session *s = it->session;
    if (session_has_rounds(s))
        round_needs(s, &m->heads);
    else if (s->score || session_wants_prompt_logprobs(s))
        heads_add_all(&m->heads);
    else
        session_sample_needs(s, it->choice, it->ndraft, &m->heads);
}

// The step `with` its rows; what they add to it is the item's cost.
static void add_item(struct served *m, struct plan_item it, struct cost_step with)
{
    struct choice *c = it.choice;
    it.first_out = batch_add(&m->batch, &c->seq.kv, c->ids + c->seq.kv.len, it.rows, it.nout);
    if (it.nout > 0 && !m->decide)
        add_heads(m, &it);
    with.heads = m->decide ? 0 : m->batch.b.nout * heads_share(&m->heads);
    it.cost_s = cost_predict_s(&m->cost, &with) - cost_predict_s(&m->cost, &m->step);
    m->items[m->nitems++] = it;
    m->step = with;
}

// How much of a draft there is room for. It gets no page of its own.
static int draft_rows(const struct served *m, const struct choice *c, int room)
{
    int spare = SERVED_PROMPT_LOGITS - m->prompt_logits, page = c->seq.kv.npages * KV_PAGE_TOKENS - c->nids;
    int n = c->ndraft < room ? c->ndraft : room;
    n = n < spare ? n : spare;
    n = n < page ? n : page;
    return n > 0 && !m->decide ? n : 0;
}

// The draft behind the known tokens, for as long as the batch reads them.
static void lay_draft(struct choice *c, int n)
{
    int known = c->nids;
    for (int i = 0; i < n; i++)
        session_add_id(c, c->draft[i]);
    c->nids = known;
}

// The row of a decoding sequence, or the run of those that are known, and its draft.
static void add_row(struct served *m, struct session *s, struct choice *c, bool extra)
{
    int at = c->seq.kv.len, room = m->core->config.prefill_chunk - m->prefill_rows;
    int stop = prefix_seq_stop(m->prefix, &c->seq) - at, left = c->nids - at;
    int rows = left - 1 < room ? left : room > 0 ? 1 + room : 1;
    rows = rows < stop ? rows : stop;
    int ndraft = rows == left ? draft_rows(m, c, room - (rows - 1)) : 0, nout = rows == left ? 1 + ndraft : 0;
    rows += ndraft;
    struct cost_step with = m->step;
    if (rows == 1)
        cost_add_decode(&m->cost, &with, at);
    else
        cost_add_prompt(&m->cost, &with, at, rows, nout);
    lay_draft(c, ndraft);
    add_item(m, (struct plan_item){.session = s, .choice = c, .rows = rows, .nout = nout, .ndraft = ndraft, .extra = extra},
             with);
    m->prefill_rows += rows - 1;
    m->prompt_logits += ndraft;
}

static void plan_decode(struct served *m)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && served_in_step(m, s); k++)
            if (plan_is_due(s, &s->choices[k]))
                add_row(m, s, &s->choices[k], false);
    }
}

static void count_prompt(struct served *m, struct session *s, int cached)
{
    s->cached = cached;
    metrics_count(&m->metrics->prompt_tokens, (uint64_t)s->nprompt);
    metrics_count(&m->metrics->cached_tokens, (uint64_t)cached);
}

// At a page border the cache may have more by now; what it has at the first chunk of a prompt is what counts as cached.
// False: another sequence is about to bring more.
static bool begin_prompt(struct served *m, struct session *s, struct choice *c)
{
    admit_match(s, c);
    if (!s->begun && admit_follows(m, s, c))
        return false;
    int len = admit_match_part(s, c);
    if (c->was > len)
        metrics_count(&m->metrics->recomputed_tokens, (uint64_t)(c->was - len));
    c->was = 0;
    if (s->begun)
        return true;
    count_prompt(m, s, len);
    session_start(s);
    return true;
}

// Whether the step may be that one. The first extra always fits.
static bool fits(const struct served *m, const struct cost_step *with, double limit_s)
{
    return m->nitems == 0 || !m->items[m->nitems - 1].extra || cost_predict_s(&m->cost, with) <= limit_s;
}

static bool token_fits(const struct served *m, const struct choice *c, double limit_s)
{
    struct cost_step one = m->step;
    cost_add_prompt(&m->cost, &one, c->seq.kv.len, 1, 0);
    return m->prefill_rows < m->core->config.prefill_chunk && fits(m, &one, limit_s);
}

static void plan_prompt(struct served *m, struct session *s, struct choice *c, double limit_s)
{
    if (!token_fits(m, c, limit_s))
        return;
    if (c->seq.kv.npages * KV_PAGE_TOKENS == c->seq.kv.len && !begin_prompt(m, s, c))
        return;
    int left = c->nids - c->seq.kv.len, most = m->core->config.prefill_chunk - m->prefill_rows;
    int stop = prefix_seq_stop(s->prefix, &c->seq) - c->seq.kv.len;
    most = most < left ? most : left;
    int rows = cost_fit(&m->cost, &m->step, c->seq.kv.len, most < stop ? most : stop,
                        limit_s - cost_predict_s(&m->cost, &m->step));
    bool stem = session_has_rounds(s) && c == session_stem(s);
    int nout = rows == left && !stem;
    if (session_wants_prompt_logprobs(s)) {
        int spare = SERVED_PROMPT_LOGITS - m->prompt_logits;
        rows = rows < spare ? rows : spare;
        nout = rows;
        m->prompt_logits += rows;
    } else if (score_lanes_has(s, c)) {  // one of its own, and of those that all share
        int spare = SERVED_PROMPT_LOGITS - m->prompt_logits;
        nout = rows = rows < 1 + spare ? rows : 1 + spare;
        m->prompt_logits += rows - 1;
    }
    if (rows <= 0 || !prefix_seq_reserve(s->prefix, &c->seq, c->seq.kv.len + rows))
        return;
    struct cost_step with = m->step;
    cost_add_prompt(&m->cost, &with, c->seq.kv.len, rows, nout);
    add_item(m, (struct plan_item){.session = s, .choice = c, .rows = rows, .nout = nout, .extra = true}, with);
    m->prefill_rows += rows;
}

// A row of batch work or of a decision.
static void plan_row(struct served *m, struct session *s, struct choice *c, double limit_s)
{
    struct cost_step with = m->step;
    cost_add_decode(&m->cost, &with, c->seq.kv.len);
    if (fits(m, &with, limit_s) && grow(s, c))
        add_row(m, s, c, true);
}

static void plan_session(struct served *m, struct session *s, double limit_s)
{
    s->planned = true;
    for (int k = 0; k < s->n; k++) {
        struct choice *c = &s->choices[k];
        if (!is_extra(s, c))
            continue;
        if (plan_is_decoding(s, c))
            plan_row(m, s, c, limit_s);
        else
            plan_prompt(m, s, c, limit_s);
    }
}

static bool is_full(const struct served *m, double limit_s)
{
    return m->nitems > 0 && m->items[m->nitems - 1].extra && cost_predict_s(&m->cost, &m->step) >= limit_s;
}

// The next session of the lane by rank that was not looked at.
static struct session *next_of(const struct served *m, enum share_lane lane, int64_t now)
{
    struct session *best = NULL;
    struct share_rank first = {0};
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        if (s->planned || s->share.lane != lane || !served_in_step(m, s) || !plan_has_extra(s))
            continue;
        struct share_rank r = share_rank(&s->share, plan_rest_s(m, s), now);
        if (!best || share_before(&r, &first)) {
            best = s;
            first = r;
        }
    }
    return best;
}

static void plan_extras(struct served *m, const struct plan_room *room)
{
    struct sched_core *core = m->core;
    double start = cost_predict_s(&m->cost, &m->step);
    int64_t now = core->now_ns();
    for (int i = 0; i < m->nrunning; i++)
        m->running[i]->planned = false;
    for (unsigned lanes = (1u << SHARE_LANES) - 1; lanes;) {
        enum share_lane lane = share_next(&core->share, lanes);
        lanes &= ~(1u << lane);
        double limit = start + (lane == SHARE_BATCH ? room->batch_room_s : room->room_s);
        for (struct session *s; !is_full(m, limit) && (s = next_of(m, lane, now));)
            plan_session(m, s, limit);
    }
}

void plan_step(struct served *m, const struct plan_room *room)
{
    batch_clear(&m->batch);
    heads_clear(&m->heads);
    m->nitems = m->prefill_rows = m->prompt_logits = 0;
    m->step = (struct cost_step){0};
    m->decide = room->decide;
    m->batch.b.logits = m->decide ? NULL : m->logits;
    m->batch.b.hidden = m->decide ? m->hidden : NULL;
    m->batch.b.adapter = m->decide;
    make_room(m, room->extras);
    plan_decode(m);
    if (room->extras)
        plan_extras(m, room);
    m->batch.b.out_groups = m->decide ? NULL : heads_groups(&m->heads);
    if (!m->decide && m->batch.b.nout > 0)
        m->head_share = heads_share(&m->heads);
}
