// served.c - a served model's memory and lists, and the end of a session.
#include "engine/sched/served.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/family/family.h"
#include "engine/metrics.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/sched/timing.h"
#include "engine/sched/work.h"
#include "engine/weights/weights.h"
#include "kernels/team.h"

enum {
    LEAST_CONTEXT = 1024,     // positions that a pool should have at least
    SERVED_SEQUENCES = 2,     // of one task: the stem and the round
    CHECKPOINT_PERCENT = 15,  // of the KV memory of a recurrent model
};

static int useful_pages(int max_running, int context)
{
    int64_t pages = 2 * (int64_t)max_running * prefix_pages(context);
    return pages < INT32_MAX ? (int)pages : INT32_MAX;
}

static size_t least_pages(const struct model *m)
{
    return (size_t)prefix_pages(m->context < LEAST_CONTEXT ? m->context : LEAST_CONTEXT);
}

// Beyond what the pool needs.
static size_t checkpoint_bytes(size_t kv_bytes, size_t pool_bytes)
{
    size_t share = kv_bytes / 100 * CHECKPOINT_PERCENT, rest = kv_bytes > pool_bytes ? kv_bytes - pool_bytes : 0;
    return share < rest ? share : rest;
}

static err_code open_pool(struct served *m, size_t kv_bytes, err *e)
{
    struct kv_layout layout = {0};
    m->model->family->gen->kv_layout(m->model, &layout);
    size_t page = kv_page_bytes(&layout), most = (size_t)useful_pages(m->core->config.max_running, m->model->context);
    if (most < kv_bytes / page)
        kv_bytes = most * page;
    size_t checkpoints = layout.state_bytes > 0 ? checkpoint_bytes(kv_bytes, least_pages(m->model) * page) : 0;
    if (kv_pool_open(&layout, kv_bytes - checkpoints, &m->pool, e))
        return e->code;
    m->kv_bytes = checkpoints + (size_t)kv_pool_pages(m->pool) * page;
    m->token_bytes = kv_token_bytes(&layout);
    m->state_bytes = layout.state_bytes;
    int64_t tokens = (int64_t)kv_pool_pages(m->pool) * KV_PAGE_TOKENS;
    m->context = tokens < m->model->context ? (int)tokens : m->model->context;
    m->prefix = prefix_open(m->pool, true);
    prefix_count_to(m->prefix, m->metrics);
    prefix_set_checkpoints(m->prefix, checkpoints);
    return ERR_OK;
}

static int max_out(const struct sched_config *c)
{
    return c->max_running + SERVED_PROMPT_LOGITS;
}

static int max_rows(const struct sched_config *c)
{
    return c->max_running + (c->prefill_chunk > 0 ? c->prefill_chunk : SCHED_MAX_CHUNK);
}

// One scratch for the steps of all kinds of work: they never run at the same time.
static void work_needs(const struct model *m, int lanes, struct served_needs *n)
{
    for (int kind = 0; kind < TASK_KINDS; kind++) {
        const struct work_ops *w = model_work(m, (enum task_kind)kind);
        if (!w)
            continue;
        size_t scratch = w->scratch_bytes ? w->scratch_bytes(m, lanes) : 0;
        size_t works = w->work_bytes ? w->work_bytes(m) * (size_t)w->max_running : 0;
        n->work_scratch = scratch > n->work_scratch ? scratch : n->work_scratch;
        n->works = works > n->works ? works : n->works;
        size_t one = w->work_bytes ? w->work_bytes(m) : 0;
        n->reserve = one > n->reserve ? one : n->reserve;
    }
}

void served_needs(const struct model *m, const struct sched_config *c, int lanes, struct served_needs *ret_needs)
{
    struct served_needs n = {0};
    work_needs(m, lanes, &n);
    if (m->family->gen) {
        size_t width = (size_t)m->vocab + (m->decider ? (size_t)m->hidden : 0);
        n.step = m->family->gen->scratch_bytes(m, max_rows(c), max_out(c), lanes) +
                 width * (size_t)(max_out(c) + 1) * sizeof(float);
    }
    if (m->family->gen) {
        struct kv_layout layout = {0};
        m->family->gen->kv_layout(m, &layout);
        n.reserve += SERVED_SEQUENCES * layout.state_bytes;
        n.kv_page = kv_page_bytes(&layout);
        n.kv_least = least_pages(m) * n.kv_page;
        if (!size_mul((size_t)useful_pages(c->max_running, m->context), n.kv_page, &n.kv_most))
            n.kv_most = SIZE_MAX;
    }
    *ret_needs = n;
}

static err_code open_works(struct served *m, err *e)
{
    struct served_needs n;
    served_needs(m->model, &m->core->config, team_size(m->core->team), &n);
    m->work_bytes = n.work_scratch;
    m->reserve = n.reserve;
    m->work_scratch = m->work_bytes > 0 ? mem_try_pages(m->work_bytes) : NULL;
    char text[BYTES_TEXT];
    if (m->work_bytes > 0 && !m->work_scratch)
        return err_set(e, ERR_MEMORY, "no memory for the steps of %s: %s", m->model->family->name, bytes_text(m->work_bytes, text));
    return ERR_OK;
}

static err_code open_hidden(struct served *m, int rows, err *e)
{
    if (!m->model->decider)
        return ERR_OK;
    m->hidden_bytes = (size_t)rows * (size_t)m->model->hidden * sizeof(float);
    m->hidden = mem_try_pages(m->hidden_bytes);
    return m->hidden ? ERR_OK : err_set(e, ERR_MEMORY, "no memory for %d hidden states", rows);
}

static err_code open_step(struct served *m, err *e)
{
    const struct sched_config *c = &m->core->config;
    const struct gen_ops *gen = m->model->family->gen;
    int nout = max_out(c);
    m->max_rows = max_rows(c);
    batch_init(&m->batch, m->max_rows, c->max_running, nout);
    heads_init(&m->heads, m->model->vocab);
    m->head_share = 1;
    m->items = mem_new((size_t)c->max_running * sizeof *m->items);
    m->scratch_bytes = gen->scratch_bytes(m->model, m->max_rows, nout, team_size(m->core->team));
    if (!size_mul((size_t)m->model->vocab, sizeof(float) * (size_t)(nout + 1), &m->logits_bytes))
        return err_set(e, ERR_MEMORY, "logits of %d rows by %d are too large", nout, m->model->vocab);
    m->logits = mem_try_pages(m->logits_bytes);
    m->scratch = m->scratch_bytes > 0 ? mem_try_pages(m->scratch_bytes) : NULL;
    char scratch[BYTES_TEXT], logits[BYTES_TEXT];
    if (!m->logits || (!m->scratch && m->scratch_bytes > 0))
        return err_set(e, ERR_MEMORY, "no memory for steps of %d rows: %s of scratch, %s of logits", m->max_rows,
                       bytes_text(m->scratch_bytes, scratch), bytes_text(m->logits_bytes, logits));
    m->spare = m->logits + (size_t)nout * (size_t)m->model->vocab;
    m->batch.b.scratch = m->scratch;
    return open_hidden(m, nout, e);
}

// What the model's size says of its steps.
static void cost_shape(const struct served *m, struct cost_shape *ret)
{
    const struct model *model = m->model;
    *ret = (struct cost_shape){.lanes = team_size(m->core->team), .token_macs = (double)model->token_macs,
                               .token_bytes = (double)model->token_bytes, .head_macs = (double)model->vocab * model->hidden,
                               .key_bytes = (double)m->token_bytes};
    if (!m->pool)
        return;
    const struct kv_layout *l = kv_pool_layout(m->pool);
    double all = 0;
    for (int g = 0; g < l->ngroups; g++)
        all += (double)l->groups[g].layers * l->groups[g].heads * l->groups[g].head_dim;
    ret->ngroups = l->ngroups < COST_GROUPS ? l->ngroups : COST_GROUPS;
    for (int g = 0; g < ret->ngroups; g++)
        ret->groups[g] = (struct cost_group){
            (double)l->groups[g].layers * l->groups[g].heads * l->groups[g].head_dim / all, l->groups[g].window};
}

static void show_memory(const struct served *m, bool loaded)
{
    if (!m->metrics)
        return;
    bool weights = loaded && m->model->weights;
    metrics_set(&m->metrics->loaded, loaded);
    metrics_set(&m->metrics->weight_bytes, weights ? (int64_t)weights_bytes(m->model->weights) : 0);
    metrics_set(&m->metrics->kv_bytes, loaded ? (int64_t)m->kv_bytes : 0);
    metrics_set(&m->metrics->kv_page_tokens, KV_PAGE_TOKENS);
    served_show_pages(m, loaded);
}

void served_show_pages(const struct served *m, bool loaded)
{
    if (!m->metrics)
        return;
    if (!m->pool)
        return;
    int pages = loaded ? kv_pool_pages(m->pool) : 0;
    metrics_set(&m->metrics->kv_pages, pages);
    metrics_set(&m->metrics->kv_pages_used, loaded ? pages - prefix_unclaimed(m->prefix) : 0);
    metrics_set(&m->metrics->kv_pages_cached, loaded ? prefix_cached(m->prefix) : 0);
}

err_code served_open(struct sched_core *s, struct model *model, struct metrics *metrics, size_t kv_bytes,
                     struct served **ret_model, err *e)
{
    struct served *m = mem_new(sizeof *m);
    m->core = s;
    m->model = model;
    m->metrics = metrics;
    m->grammars = grammar_cache_open(model->tokenizer, model->vocab);
    int nslots = slot_count(s->slots);
    m->waiting = mem_new((size_t)nslots * sizeof *m->waiting);
    m->running = mem_new((size_t)nslots * sizeof *m->running);
    m->context = model->context;
    err_code code = open_works(m, e);
    if (!code && model->family->gen)
        code = open_pool(m, kv_bytes, e);
    if (!code && model->family->gen)
        code = open_step(m, e);
    struct cost_shape shape;
    cost_shape(m, &shape);
    cost_init(&m->cost, &shape);
    if (code) {
        served_close(m);
        return code;
    }
    show_memory(m, true);
    *ret_model = m;
    return ERR_OK;
}

void served_close(struct served *m)
{
    if (!m)
        return;
    grammar_cache_close(m->grammars);
    show_memory(m, false);
    prefix_close(m->prefix);
    kv_pool_close(m->pool);
    batch_done(&m->batch);
    heads_done(&m->heads);
    mem_free_pages(m->logits, m->logits_bytes);
    mem_free_pages(m->scratch, m->scratch_bytes);
    mem_free_pages(m->hidden, m->hidden_bytes);
    mem_free_pages(m->work_scratch, m->work_bytes);
    free(m->items);
    free(m->waiting);
    free(m->running);
    free(m);
}

int served_context(const struct served *m)
{
    return m->context;
}

int served_pages(const struct served *m)
{
    return m->pool ? kv_pool_pages(m->pool) : 0;
}

size_t served_kv_bytes(const struct served *m)
{
    return m->kv_bytes;
}

size_t served_token_bytes(const struct served *m)
{
    return m->token_bytes;
}

void served_attach(struct served *m, struct session *s)
{
    s->owner = m;
    timing_accepted(s, m->metrics);
    s->model = m->model;
    s->prefix = m->prefix;
    s->context = m->context;
}

// ---- lists

void served_insert(struct session **list, int *n, struct session *s)
{
    int i = (*n)++;
    for (; i > 0 && list[i - 1]->arrival > s->arrival; i--)
        list[i] = list[i - 1];
    list[i] = s;
}

void served_remove_at(struct session **list, int *n, int i)
{
    memmove(list + i, list + i + 1, (size_t)(--*n - i) * sizeof *list);
}

void served_remove(struct session **list, int *n, const struct session *s)
{
    for (int i = 0; i < *n; i++)
        if (list[i] == s) {
            served_remove_at(list, n, i);
            return;
        }
    assert(!"session is in no list");
}

int served_live_choices(const struct session *s)
{
    return s->n - s->ndone;
}

bool served_is_live(const struct choice *c)
{
    return c->active && !c->done;
}

bool served_in_step(const struct served *m, const struct session *s)
{
    return session_decides(s) == m->decide && s->state != SESSION_WORK && !s->held_ns;
}

// ---- memory of running sessions

static size_t memory_of(const struct served *m, const struct session *s)
{
    const struct work_ops *w = s->work ? s->work->ops : NULL;
    return (w && w->work_bytes ? w->work_bytes(m->model) : 0) + (size_t)s->n * m->state_bytes;
}

bool served_take_memory(struct served *m, struct session *s)
{
    struct sched_core *core = m->core;
    size_t need = memory_of(m, s);
    if (!need || !core->config.memory || s->charged || s->reserved)
        return true;
    if (!m->reserve_taken && need <= m->reserve) {
        m->reserve_taken = s->reserved = true;
        return true;
    }
    err e = {0};
    if (memory_charge(core->config.memory, MEMORY_WORKS, need, "the request's work and states", &e)) {
        if (m->nrunning == 0 && core->charged == 0)  // nobody runs who could give anything back
            s->failure = e;
        return false;
    }
    s->charged = need;
    core->charged += need;
    return true;
}

void served_give_memory(struct served *m, struct session *s)
{
    if (s->reserved)
        m->reserve_taken = s->reserved = false;
    if (!s->charged)
        return;
    memory_give(m->core->config.memory, MEMORY_WORKS, s->charged);
    m->core->charged -= s->charged;
    s->charged = 0;
}

// ---- the end of a session

void served_end(struct sched_core *s, struct session *x, const err *why)
{
    share_leave(&s->share, &x->share);
    session_end(x, why);
}

void served_end_running(struct served *m, struct session *x, const err *why)
{
    m->nseqs -= served_live_choices(x);
    m->nworks -= x->work != NULL;
    served_remove(m->running, &m->nrunning, x);
    served_give_memory(m, x);
    served_end(m->core, x, why);
}
