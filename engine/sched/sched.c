// sched.c - the scheduler's thread: admission, the plan of a step, the step, and what comes of it.
//
// Everything in struct sched above `lock` belongs to the scheduler thread; what is below it is shared and locked. Events
// are sent without the lock held. A plan is made, computed and worked off by the same thread, so it needs no lock either.
#include "engine/sched/sched.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/sched/batch.h"
#include "engine/sched/cost.h"
#include "engine/sched/round.h"
#include "engine/sched/work.h"
#include "kernels/team.h"

enum {
    PARK_MS = 500,          // the longest sleep, so that the heartbeat goes on
    PROMPT_LOGITS = 16,     // prompt rows with logits in one step beyond the sequences' own
    SLICE_MS = 50,          // of a work's step
};

// A sequence's part of a step.
struct plan_item {
    struct session *session;
    struct choice *choice;
    int rows, first_out, nout;
};

struct sched_model {
    struct sched *sched;
    struct model *model;
    struct kv_pool *pool;
    struct prefix *prefix;
    size_t kv_bytes, token_bytes;
    int context, max_rows;
    struct cost cost;

    struct session **waiting, **running;  // by arrival
    int nwaiting, nrunning, nseqs;        // nseqs: choices of the running ones that are not done
    int nworks;                           // running ones with a work
    int work_turn;                        // the running session whose work was stepped last
    bool work_next, decide_next;          // what the next step prefers
    bool decide;                          // the step is one of decisions: hidden states, adapter on

    struct batch_builder batch;
    struct plan_item *items;
    int nitems, decode_rows, prefill_rows, prompt_logits;
    float *logits, *spare;  // [max_out, vocab]; one row, for forks
    float *hidden;          // [max_out, model.hidden], when the model decides
    size_t logits_bytes, scratch_bytes, hidden_bytes, work_bytes;
    void *scratch, *work_scratch;
};

struct sched {
    struct sched_config config;
    struct slot_table *slots;
    struct team *team;
    pthread_t thread;
    bool started;
    int turn;           // model that goes first next
    uint64_t arrivals;
    struct engine_stats stats;

    pthread_mutex_t lock;
    pthread_cond_t wake, answered;
    bool woken, stopping, ready;
    err open_error;
    struct session *inbox, **inbox_end;
    struct sched_model *models[SCHED_MAX_MODELS];
    int nmodels;
    struct engine_stats shown;
    int check_wanted, check_done;  // requests for sched_check, counted
    bool check_flush, check_ok;
    atomic_llong heartbeat_ns;
};

// ---- models

static int useful_pages(const struct sched *s, int context)
{
    int64_t pages = 2 * (int64_t)s->config.max_running * prefix_pages(context);
    return pages < INT32_MAX ? (int)pages : INT32_MAX;
}

static err_code open_pool(struct sched_model *m, size_t kv_bytes, err *e)
{
    struct kv_layout layout = {0};
    m->model->family->gen->kv_layout(m->model, &layout);
    size_t page = kv_page_bytes(&layout), most = (size_t)useful_pages(m->sched, m->model->context);
    if (most < kv_bytes / page)
        kv_bytes = most * page;
    if (kv_pool_open(&layout, kv_bytes, &m->pool, e))
        return e->code;
    m->kv_bytes = (size_t)kv_pool_pages(m->pool) * page;
    m->token_bytes = kv_token_bytes(&layout);
    int64_t tokens = (int64_t)kv_pool_pages(m->pool) * KV_PAGE_TOKENS;
    m->context = tokens < m->model->context ? (int)tokens : m->model->context;
    m->prefix = prefix_open(m->pool, true);
    return ERR_OK;
}

static int max_out(const struct sched_config *c)
{
    return c->max_running + PROMPT_LOGITS;
}

static int max_rows(const struct sched_config *c)
{
    return c->max_running + (c->prefill_chunk > 0 ? c->prefill_chunk : SCHED_MAX_CHUNK);
}

// One scratch for the steps of all kinds of work: they never run at the same time.
static void work_needs(const struct model *m, int lanes, struct sched_needs *n)
{
    for (int kind = 0; kind < TASK_KINDS; kind++) {
        const struct work_ops *w = model_work(m, (enum task_kind)kind);
        if (!w)
            continue;
        size_t scratch = w->scratch_bytes ? w->scratch_bytes(m, lanes) : 0;
        size_t works = w->work_bytes ? w->work_bytes(m) * (size_t)w->max_running : 0;
        n->work_scratch = scratch > n->work_scratch ? scratch : n->work_scratch;
        n->works = works > n->works ? works : n->works;
    }
}

void sched_needs(const struct model *m, const struct sched_config *c, int lanes, struct sched_needs *ret_needs)
{
    struct sched_needs n = {0};
    work_needs(m, lanes, &n);
    if (m->family->gen) {
        size_t width = (size_t)m->vocab + (m->decider ? (size_t)m->hidden : 0);
        n.step = m->family->gen->scratch_bytes(m, max_rows(c), max_out(c), lanes) +
                 width * (size_t)(max_out(c) + 1) * sizeof(float);
    }
    *ret_needs = n;
}

static err_code open_works(struct sched_model *m, err *e)
{
    struct sched_needs n = {0};
    work_needs(m->model, team_size(m->sched->team), &n);
    m->work_bytes = n.work_scratch;
    m->work_scratch = m->work_bytes > 0 ? mem_try_pages(m->work_bytes) : NULL;
    if (m->work_bytes > 0 && !m->work_scratch)
        return err_set(e, ERR_MEMORY, "no memory for the steps of %s: %zu bytes", m->model->family->name, m->work_bytes);
    return ERR_OK;
}

static err_code open_hidden(struct sched_model *m, int rows, err *e)
{
    if (!m->model->decider)
        return ERR_OK;
    m->hidden_bytes = (size_t)rows * (size_t)m->model->hidden * sizeof(float);
    m->hidden = mem_try_pages(m->hidden_bytes);
    return m->hidden ? ERR_OK : err_set(e, ERR_MEMORY, "no memory for %d hidden states", rows);
}

static err_code open_step(struct sched_model *m, err *e)
{
    const struct sched_config *c = &m->sched->config;
    const struct gen_ops *gen = m->model->family->gen;
    int nout = max_out(c);
    m->max_rows = max_rows(c);
    batch_init(&m->batch, m->max_rows, c->max_running, nout);
    m->items = mem_new((size_t)c->max_running * sizeof *m->items);
    m->scratch_bytes = gen->scratch_bytes(m->model, m->max_rows, nout, team_size(m->sched->team));
    if (!size_mul((size_t)m->model->vocab, sizeof(float) * (size_t)(nout + 1), &m->logits_bytes))
        return err_set(e, ERR_MEMORY, "logits of %d rows by %d are too large", nout, m->model->vocab);
    m->logits = mem_try_pages(m->logits_bytes);
    m->scratch = m->scratch_bytes > 0 ? mem_try_pages(m->scratch_bytes) : NULL;
    if (!m->logits || (!m->scratch && m->scratch_bytes > 0))
        return err_set(e, ERR_MEMORY, "no memory for steps of %d rows: %zu bytes of scratch, %zu of logits", m->max_rows,
                       m->scratch_bytes, m->logits_bytes);
    m->spare = m->logits + (size_t)nout * (size_t)m->model->vocab;
    m->batch.b.scratch = m->scratch;
    return open_hidden(m, nout, e);
}

static bool publish_model(struct sched *s, struct sched_model *m)
{
    pthread_mutex_lock(&s->lock);
    bool ok = s->nmodels < SCHED_MAX_MODELS;
    if (ok)
        s->models[s->nmodels++] = m;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

err_code sched_model_open(struct sched *s, struct model *model, size_t kv_bytes, struct sched_model **ret_model, err *e)
{
    struct sched_model *m = mem_new(sizeof *m);
    m->sched = s;
    m->model = model;
    cost_init(&m->cost);
    int nslots = slot_count(s->slots);
    m->waiting = mem_new((size_t)nslots * sizeof *m->waiting);
    m->running = mem_new((size_t)nslots * sizeof *m->running);
    m->context = model->context;
    err_code code = open_works(m, e);
    if (!code && model->family->gen)
        code = open_pool(m, kv_bytes, e);
    if (!code && model->family->gen)
        code = open_step(m, e);
    if (!code && !publish_model(s, m))
        code = err_set(e, ERR_UNSUPPORTED, "more than %d models", SCHED_MAX_MODELS);
    if (code) {
        sched_model_close(m);
        return code;
    }
    *ret_model = m;
    return ERR_OK;
}

void sched_model_close(struct sched_model *m)
{
    if (!m)
        return;
    prefix_close(m->prefix);
    kv_pool_close(m->pool);
    batch_done(&m->batch);
    mem_free_pages(m->logits, m->logits_bytes);
    mem_free_pages(m->scratch, m->scratch_bytes);
    mem_free_pages(m->hidden, m->hidden_bytes);
    mem_free_pages(m->work_scratch, m->work_bytes);
    free(m->items);
    free(m->waiting);
    free(m->running);
    free(m);
}

int sched_model_context(const struct sched_model *m)
{
    return m->context;
}

int sched_model_pages(const struct sched_model *m)
{
    return m->pool ? kv_pool_pages(m->pool) : 0;
}

size_t sched_model_kv_bytes(const struct sched_model *m)
{
    return m->kv_bytes;
}

size_t sched_model_token_bytes(const struct sched_model *m)
{
    return m->token_bytes;
}

void sched_session(struct sched_model *m, struct session *s)
{
    s->owner = m;
    s->model = m->model;
    s->prefix = m->prefix;
    s->context = m->context;
}

// ---- lists

static void insert_sorted(struct session **list, int *n, struct session *s)
{
    int i = (*n)++;
    for (; i > 0 && list[i - 1]->arrival > s->arrival; i--)
        list[i] = list[i - 1];
    list[i] = s;
}

static void remove_at(struct session **list, int *n, int i)
{
    memmove(list + i, list + i + 1, (size_t)(--*n - i) * sizeof *list);
}

static void remove_from(struct session **list, int *n, const struct session *s)
{
    for (int i = 0; i < *n; i++)
        if (list[i] == s) {
            remove_at(list, n, i);
            return;
        }
    assert(!"session is in no list");
}

// Choices that have or will have a row.
static int live_choices(const struct session *s)
{
    return s->n - s->ndone;
}

static bool is_live(const struct choice *c)
{
    return c->active && !c->done;
}

// Of the kind the step is made of.
static bool in_step(const struct sched_model *m, const struct session *s)
{
    return session_decides(s) == m->decide && s->state != SESSION_WORK;
}

// ---- the end of a session

static void count_end(struct sched *s, const struct session *x, const err *why)
{
    if (!why || why->code != ERR_CANCELLED)
        return;
    int64_t at = slot_cancel_ns(x->slots, x->ticket);  // 0 while the canceller is just about to write it
    s->stats.cancelled++;
    s->stats.last_cancel_to_free_s = at ? (double)(clock_ns() - at) * 1e-9 : 0;
}

// x is in neither list any more.
static void end_session(struct sched *s, struct session *x, const err *why)
{
    count_end(s, x, why);
    session_end(x, why);
}

static void end_running(struct sched_model *m, struct session *x, const err *why)
{
    m->nseqs -= live_choices(x);
    m->nworks -= x->work != NULL;
    remove_from(m->running, &m->nrunning, x);
    end_session(m->sched, x, why);
}

// Ends what was cancelled or is late.
static void sweep(struct sched_model *m, int64_t now)
{
    for (int i = m->nwaiting - 1; i >= 0; i--) {
        struct session *x = m->waiting[i];
        err e = {0};
        if (!session_must_end(x, now, &e))
            continue;
        remove_at(m->waiting, &m->nwaiting, i);
        end_session(m->sched, x, &e);
    }
    for (int i = m->nrunning - 1; i >= 0; i--) {
        err e = {0};
        if (session_must_end(m->running[i], now, &e))
            end_running(m, m->running[i], &e);
    }
}

static void end_all(struct sched *s, const err *why)
{
    for (int i = 0; i < s->nmodels; i++) {
        struct sched_model *m = s->models[i];
        while (m->nwaiting > 0)
            end_session(s, m->waiting[--m->nwaiting], why);
        while (m->nrunning > 0)
            end_running(m, m->running[m->nrunning - 1], why);
    }
}

// ---- admission

// Known tokens and the next few, but no more than it can ever need.
static int wanted_positions(const struct session *s, const struct choice *c)
{
    int known = c->ids ? c->nids : s->nprompt, want = known + SCHED_GROW_TOKENS;
    return want < c->limit ? want : c->limit;
}

static int match(const struct session *s, struct choice *c)
{
    if (session_wants_prompt_logprobs(s))
        return c->seq.kv.len;  // every position's logits are needed
    return prefix_seq_match(s->prefix, &c->seq, c->ids, c->nids - 1);
}

static bool promise_choice(struct session *s, struct choice *c, int spare)
{
    int have;
    if (c->active) {
        prefix_seq_init(s->prefix, &c->seq, s->task->cache_salt, session_decides(s));
        have = match(s, c) / KV_PAGE_TOKENS;
    } else {
        have = s->nprompt / KV_PAGE_TOKENS;  // shared with choice 0 after the fork
    }
    return prefix_seq_promise(s->prefix, &c->seq, prefix_pages(wanted_positions(s, c)) - have, spare);
}

static void release_pages(struct session *s)
{
    for (int i = 0; i < s->n; i++)
        prefix_seq_done(s->prefix, &s->choices[i].seq);
}

// All choices or none. A page for each running sequence stays unclaimed, so that they can grow.
static bool promise_pages(struct sched_model *m, struct session *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->choices[i].done && !promise_choice(s, &s->choices[i], m->nseqs)) {
            release_pages(s);
            return false;
        }
    return true;
}

// As many works of the kind as run side by side are running.
static bool works_full(const struct sched_model *m, const struct session *s)
{
    return s->work && m->nworks >= s->work->ops->max_running;
}

// What the work wants next. Its failure ends the session with the step.
static void advance(struct session *s)
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

static void begin_work(struct sched_model *m, struct session *s)
{
    struct work *w = s->work;
    w->scratch = m->work_scratch;
    w->lanes = team_size(m->sched->team);
    if (w->ops->begin && w->ops->begin(w, &s->failure))
        return;
    if (!session_has_rounds(s))
        session_start(s);
    advance(s);
}

static void start(struct sched_model *m, struct session *s)
{
    bool first = s->state == SESSION_QUEUED;
    insert_sorted(m->running, &m->nrunning, s);
    m->nseqs += live_choices(s);
    m->nworks += s->work != NULL;
    session_set_state(s, s->n > 0 ? SESSION_PREFILL : SESSION_WORK);
    if (s->waiting)
        slot_begin(s->slots);
    s->waiting = false;
    if (s->work && first)
        begin_work(m, s);
}

// In order of arrival; only one that waits for others of its kind to end lets the rest pass.
static void admit(struct sched_model *m)
{
    for (int i = 0; i < m->nwaiting;) {
        struct session *s = m->waiting[i];
        if (works_full(m, s)) {
            i++;
            continue;
        }
        if (m->nseqs + live_choices(s) > m->sched->config.max_running || !promise_pages(m, s))
            return;
        remove_at(m->waiting, &m->nwaiting, i);
        start(m, s);
    }
}

static void preempt(struct sched_model *m, struct session *s)
{
    release_pages(s);
    m->sched->stats.preempted++;
    remove_from(m->running, &m->nrunning, s);
    m->nseqs -= live_choices(s);
    m->nworks -= s->work != NULL;
    session_set_state(s, SESSION_PREEMPTED);
    insert_sorted(m->waiting, &m->nwaiting, s);
}

// ---- the plan

static bool is_decoding(const struct session *s, const struct choice *c)
{
    return is_live(c) && c->nids > s->nprompt && c->nids - c->seq.kv.len == 1;
}

static bool grow(struct session *s, struct choice *c)
{
    struct prefix_seq *q = &c->seq;
    int next = q->kv.len + 1;
    if (prefix_pages(next) > q->kv.npages && q->promised == 0) {
        int pages = prefix_pages(wanted_positions(s, c)) - q->kv.npages, free_pages = prefix_unclaimed(s->prefix);
        if (!prefix_seq_promise(s->prefix, q, pages < free_pages ? pages : free_pages, 0) || q->promised == 0)
            return false;
    }
    return prefix_seq_reserve(s->prefix, q, next);
}

// The youngest that has pages.
static struct session *youngest(const struct sched_model *m)
{
    int i = m->nrunning - 1;
    while (m->running[i]->state == SESSION_WORK)
        i--;
    return m->running[i];
}

// Pages for this step's decode rows, oldest sessions first; the youngest pays when there are none.
static void make_room(struct sched_model *m)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && in_step(m, s); k++) {
            struct choice *c = &s->choices[k];
            while (s->state != SESSION_PREEMPTED && is_decoding(s, c) && !grow(s, c))
                preempt(m, youngest(m));
        }
    }
}

static void add_item(struct sched_model *m, struct session *s, struct choice *c, int rows, enum batch_out out)
{
    int before = m->batch.b.nout;
    int first = batch_add(&m->batch, &c->seq.kv, c->ids + c->seq.kv.len, rows, out);
    m->items[m->nitems++] = (struct plan_item){s, c, rows, first, m->batch.b.nout - before};
}

static void plan_decode(struct sched_model *m)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && in_step(m, s); k++)
            if (is_decoding(s, &s->choices[k]))
                add_item(m, s, &s->choices[k], 1, BATCH_OUT_LAST);
    }
    m->decode_rows = m->batch.b.rows;
}

// The first chunk of a prompt: what the cache has by now is what counts as cached.
static void begin_prompt(struct sched_model *m, struct session *s, struct choice *c)
{
    int len = match(s, c);
    if (s->begun)
        return;
    s->cached = len;
    m->sched->stats.prompt_tokens += (uint64_t)s->nprompt;
    m->sched->stats.cached_tokens += (uint64_t)len;
    session_start(s);
}

static void plan_prompt(struct sched_model *m, struct session *s, struct choice *c, int *budget)
{
    if (c->seq.kv.npages * KV_PAGE_TOKENS == c->seq.kv.len)
        begin_prompt(m, s, c);
    int left = c->nids - c->seq.kv.len, rows = left < *budget ? left : *budget;
    bool stem = session_has_rounds(s) && c == session_stem(s);
    enum batch_out out = rows == left && !stem ? BATCH_OUT_LAST : BATCH_OUT_NONE;
    if (session_wants_prompt_logprobs(s)) {
        int spare = PROMPT_LOGITS - m->prompt_logits;
        rows = rows < spare ? rows : spare;
        out = BATCH_OUT_ALL;
        m->prompt_logits += rows;
    }
    if (rows <= 0 || !prefix_seq_reserve(s->prefix, &c->seq, c->seq.kv.len + rows))
        return;
    add_item(m, s, c, rows, out);
    m->prefill_rows += rows;
    *budget -= rows;
}

static void plan_prefill(struct sched_model *m)
{
    int budget = cost_budget(&m->cost, m->decode_rows, m->sched->config.prefill_chunk);
    for (int i = 0; i < m->nrunning && budget > 0; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && budget > 0 && in_step(m, s); k++)
            if (is_live(&s->choices[k]) && !is_decoding(s, &s->choices[k]))
                plan_prompt(m, s, &s->choices[k], &budget);
    }
}

// Decisions and generation take turns: all rows of a step have the adapter or none.
static bool choose_kind(const struct sched_model *m)
{
    bool kinds[2] = {false, false};
    for (int i = 0; i < m->nrunning; i++)
        if (m->running[i]->state != SESSION_WORK)
            kinds[session_decides(m->running[i])] = true;
    return kinds[0] && kinds[1] ? m->decide_next : kinds[1];
}

static void plan(struct sched_model *m)
{
    batch_clear(&m->batch);
    m->nitems = m->decode_rows = m->prefill_rows = m->prompt_logits = 0;
    m->decide = choose_kind(m);
    m->decide_next = !m->decide;
    m->batch.b.logits = m->decide ? NULL : m->logits;
    m->batch.b.hidden = m->decide ? m->hidden : NULL;
    m->batch.b.adapter = m->decide;
    make_room(m);
    plan_decode(m);
    plan_prefill(m);
}

// ---- what a step brings

static float *logits_row(const struct sched_model *m, int i)
{
    return m->logits + (size_t)i * (size_t)m->model->vocab;
}

static void take_prompt_logits(const struct sched_model *m, const struct plan_item *it)
{
    struct session *s = it->session;
    int first = it->choice->seq.kv.len - it->rows;  // position of the first row; it predicts the token after it
    for (int i = 0; i < it->nout && session_wants_prompt_logprobs(s); i++)
        session_prompt_logits(s, logits_row(m, it->first_out + i), first + i + 1);
}

// The prompt of a new session is computed: every choice samples its first token from the same logits.
static void finish_prompt(struct sched_model *m, struct session *s, const float *logits)
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
        m->nseqs -= c->done;
    }
}

// A round is over: the next one goes on from the stem, now or once there are pages for it.
static void next_round(struct sched_model *m, struct session *s)
{
    struct choice *c = session_round(s);
    if (round_next(s)) {
        const struct choice *stem = session_stem(s);  // after a preemption it may not be computed again yet
        if (!promise_choice(s, c, m->nseqs) || (stem->seq.kv.len == stem->nids && !round_fork(s)))
            preempt(m, s);
        else if (s->state == SESSION_DECODE)
            session_set_state(s, SESSION_PREFILL);
        return;
    }
    if (s->failure.code)
        return;
    prefix_seq_done(s->prefix, &session_stem(s)->seq);
    m->nseqs -= live_choices(s);
    s->choices[0].done = s->choices[1].done = true;
    s->ndone = s->n;
    session_set_state(s, SESSION_WORK);
}

static void work_off_round(struct sched_model *m, const struct plan_item *it)
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
        advance(s);
}

static bool all_decoding(const struct session *s)
{
    for (int i = 0; i < s->n; i++)
        if (!s->choices[i].done && !is_decoding(s, &s->choices[i]))
            return false;
    return true;
}

static void work_off(struct sched_model *m, const struct plan_item *it)
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
    if (c->seq.kv.len < c->nids)
        return;
    float *logits = logits_row(m, it->first_out + it->nout - 1);
    if (!s->forked) {
        finish_prompt(m, s, logits);
    } else {
        session_sample(s, c, logits);
        m->nseqs -= c->done;
    }
    if (s->state == SESSION_PREFILL && all_decoding(s))
        session_set_state(s, SESSION_DECODE);
}

// Rows are committed and published first, cancelled or not: what was computed may serve another request.
static void commit(struct sched_model *m)
{
    for (int i = 0; i < m->nitems; i++) {
        const struct plan_item *it = &m->items[i];
        prefix_seq_commit(m->prefix, &it->choice->seq, it->choice->ids, it->rows);
    }
    for (int i = 0; i < m->nitems; i++) {
        int before = m->items[i].session->completion_tokens;
        work_off(m, &m->items[i]);
        m->sched->stats.completion_tokens += (uint64_t)(m->items[i].session->completion_tokens - before);
    }
}

// Ends what is done, went wrong or was cancelled meanwhile.
static void settle(struct sched_model *m)
{
    for (int i = m->nrunning - 1; i >= 0; i--) {
        struct session *s = m->running[i];
        err e = {0};
        if (s->failure.code)
            end_running(m, s, &s->failure);
        else if (session_over(s))  // before a cancel that came after its last token
            end_running(m, s, NULL);
        else if (session_must_end(s, INT64_MIN, &e))
            end_running(m, s, &e);
    }
}

static void forward(struct lane *lane, void *arg)
{
    const struct sched_model *m = arg;
    m->model->family->gen->forward(m->model, &m->batch.b, lane);
}

// One batch through the language model. False: there was nothing to compute.
static bool run_batch(struct sched_model *m)
{
    struct sched *s = m->sched;
    if (m->nseqs == 0)
        return false;
    plan(m);
    if (m->nitems == 0)  // making room took the pages of all of this kind; the other kind goes on
        plan(m);
    if (m->nitems == 0)
        return false;
    double start = clock_s();
    team_run(s->team, forward, m);
    double took = clock_s() - start;
    cost_learn(&m->cost, m->decode_rows, m->prefill_rows, took);
    s->stats.busy_s += took;
    commit(m);
    return true;
}

static void work_step(struct lane *lane, void *arg)
{
    struct work *w = arg;
    w->ops->step(w, lane);
}

// One step of the next session whose work has one. False: none has.
static bool run_work(struct sched_model *m)
{
    for (int i = 1; i <= m->nrunning; i++) {
        int k = (m->work_turn + i) % m->nrunning;
        struct session *s = m->running[k];
        if (!s->ready || s->failure.code)
            continue;
        double start = clock_s();
        s->work->slice_ns = clock_ns() + SLICE_MS * 1000000LL;
        team_run(m->sched->team, work_step, s->work);
        m->sched->stats.busy_s += clock_s() - start;
        m->work_turn = k;
        if (!slot_cancelled(s->slots, s->ticket))
            advance(s);
        return true;
    }
    return false;
}

// A step of a work and one of the language model take turns when both have something to do.
static bool step(struct sched_model *m)
{
    bool worked = m->work_next ? run_work(m) || run_batch(m) : run_batch(m) || run_work(m);
    m->work_next = !m->work_next;
    m->sched->stats.steps += worked;
    settle(m);
    return worked;
}

// ---- the thread

static void add_pages(const struct sched_model *m, struct engine_stats *st)
{
    st->running += m->nrunning;
    if (!m->pool)
        return;
    int pages = kv_pool_pages(m->pool), cached = prefix_evictable(m->prefix);
    st->kv_pages += (size_t)pages;
    st->kv_pages_cached += (size_t)prefix_cached(m->prefix);
    st->kv_pages_used += (size_t)(pages - kv_pool_free_pages(m->pool) - cached);
}

// Called with the lock held.
static void show_stats(struct sched *s)
{
    s->shown = s->stats;
    for (int i = 0; i < s->nmodels; i++)
        add_pages(s->models[i], &s->shown);
}

static void answer_check(struct sched *s)
{
    if (s->check_done == s->check_wanted)
        return;
    s->check_ok = true;
    for (int i = 0; i < s->nmodels; i++) {
        if (!s->models[i]->pool)
            continue;
        if (s->check_flush)
            prefix_flush(s->models[i]->prefix);
        s->check_ok &= prefix_check(s->models[i]->prefix);
    }
    s->check_done = s->check_wanted;
    show_stats(s);
    pthread_cond_broadcast(&s->answered);
}

// Takes what arrived; waits for something when `idle`. Returns false when the thread must end.
static bool receive(struct sched *s, bool idle)
{
    pthread_mutex_lock(&s->lock);
    show_stats(s);
    answer_check(s);
    if (idle && !s->woken) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PARK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->wake, &s->lock, &until);
    }
    s->woken = false;
    struct session *list = s->inbox;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
    bool go_on = !s->stopping;
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->heartbeat_ns, clock_ns());
    while (list) {
        struct session *x = list;
        list = x->next;
        x->arrival = ++s->arrivals;
        insert_sorted(x->owner->waiting, &x->owner->nwaiting, x);
    }
    return go_on;
}

// One round over the models. True: a step was made.
static bool turn(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->nmodels;
    pthread_mutex_unlock(&s->lock);
    int64_t now = clock_ns();
    for (int i = 0; i < n; i++) {
        sweep(s->models[i], now);
        admit(s->models[i]);
    }
    for (int i = 0; i < n; i++) {
        int k = (s->turn + i) % n;
        if (s->models[k]->nrunning == 0)
            continue;
        s->turn = k + 1;
        if (step(s->models[k]))
            return true;
    }
    return false;
}

static void *run(void *arg)
{
    struct sched *s = arg;
    err e = {0};
    err_code code = team_open(s->config.threads, s->config.pin, &s->team, &e);
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    s->open_error = e;
    pthread_cond_broadcast(&s->answered);
    pthread_mutex_unlock(&s->lock);
    if (code)
        return NULL;
    bool worked = true;
    while (receive(s, !worked))
        worked = turn(s);
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    end_all(s, &e);
    team_close(s->team);
    return NULL;
}

static void wait_ready(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->ready)
        pthread_cond_wait(&s->answered, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

err_code sched_open(const struct sched_config *c, struct slot_table *slots, struct sched **ret_sched, err *e)
{
    struct sched *s = mem_new(sizeof *s);
    s->config = *c;
    s->slots = slots;
    s->inbox_end = &s->inbox;
    if (s->config.prefill_chunk <= 0)
        s->config.prefill_chunk = SCHED_MAX_CHUNK;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_cond_init(&s->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_store(&s->heartbeat_ns, clock_ns());
    s->started = pthread_create(&s->thread, NULL, run, s) == 0;
    if (s->started)
        wait_ready(s);
    else
        err_set(&s->open_error, ERR_MEMORY, "the scheduler's thread cannot be started");
    if (s->open_error.code) {
        if (e)
            *e = s->open_error;
        err_code code = s->open_error.code;
        sched_close(s);
        sched_free(s);
        return code;
    }
    *ret_sched = s;
    return ERR_OK;
}

void sched_close(struct sched *s)
{
    if (!s || !s->started)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    sched_wake(s);
    pthread_join(s->thread, NULL);
    s->started = false;
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->answered);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void sched_submit(struct sched *s, struct session *session)
{
    session->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->inbox_end = session;
    s->inbox_end = &session->next;
    s->woken = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void sched_wake(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->woken = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void sched_stats(struct sched *s, struct engine_stats *ret_stats)
{
    pthread_mutex_lock(&s->lock);
    *ret_stats = s->shown;
    pthread_mutex_unlock(&s->lock);
    ret_stats->heartbeat_ns = atomic_load(&s->heartbeat_ns);
    ret_stats->waiting = slot_waiting(s->slots);
    ret_stats->free_slots = slot_unused(s->slots);
}

bool sched_check(struct sched *s, bool flush)
{
    pthread_mutex_lock(&s->lock);
    int mine = ++s->check_wanted;
    s->check_flush = flush;
    s->woken = true;
    pthread_cond_signal(&s->wake);
    while (s->check_done < mine)
        pthread_cond_wait(&s->answered, &s->lock);
    bool ok = s->check_ok;
    pthread_mutex_unlock(&s->lock);
    return ok;
}
