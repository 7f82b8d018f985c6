// plan.c - decode rows with pages to grow into, then prefill within the budget.
#include "engine/sched/plan.h"

#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/round.h"

bool plan_is_decoding(const struct session *s, const struct choice *c)
{
    return served_is_live(c) && c->nids > s->nprompt && c->nids - c->seq.kv.len == 1;
}

// A page for the next position. With a window a prompt can run out of promised pages too.
static bool grow(struct session *s, struct choice *c)
{
    struct prefix_seq *q = &c->seq;
    int next = q->kv.len + 1;
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
static void make_room(struct served *m)
{
    for (int i = 0; i < m->nrunning; i++)
        if (!grow_all(m, m->running[i])) {
            admit_preempt(m, admit_victim(m));
            i = -1;  // the list is another
        }
}

static void add_item(struct served *m, struct session *s, struct choice *c, int rows, enum batch_out out)
{
    int before = m->batch.b.nout;
    int first = batch_add(&m->batch, &c->seq.kv, c->ids + c->seq.kv.len, rows, out);
    m->items[m->nitems++] = (struct plan_item){s, c, rows, first, m->batch.b.nout - before};
}

static void plan_decode(struct served *m)
{
    for (int i = 0; i < m->nrunning; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && served_in_step(m, s); k++)
            if (plan_is_decoding(s, &s->choices[k]))
                add_item(m, s, &s->choices[k], 1, BATCH_OUT_LAST);
    }
    m->decode_rows = m->batch.b.rows;
}

static void count_prompt(struct served *m, struct session *s, int cached)
{
    s->cached = cached;
    m->core->stats.prompt_tokens += (uint64_t)s->nprompt;
    m->core->stats.cached_tokens += (uint64_t)cached;
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

static void plan_prompt(struct served *m, struct session *s, struct choice *c, int *budget)
{
    if (c->seq.kv.npages * KV_PAGE_TOKENS == c->seq.kv.len && !begin_prompt(m, s, c))
        return;
    int left = c->nids - c->seq.kv.len, rows = left < *budget ? left : *budget;
    int stop = prefix_seq_stop(s->prefix, &c->seq) - c->seq.kv.len;
    rows = rows < stop ? rows : stop;
    bool stem = session_has_rounds(s) && c == session_stem(s);
    enum batch_out out = rows == left && !stem ? BATCH_OUT_LAST : BATCH_OUT_NONE;
    if (session_wants_prompt_logprobs(s)) {
        int spare = SERVED_PROMPT_LOGITS - m->prompt_logits;
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

static void plan_prefill(struct served *m)
{
    int budget = cost_budget(&m->cost, m->decode_rows, m->core->config.prefill_chunk);
    for (int i = 0; i < m->nrunning && budget > 0; i++) {
        struct session *s = m->running[i];
        for (int k = 0; k < s->n && budget > 0 && served_in_step(m, s); k++)
            if (served_is_live(&s->choices[k]) && !plan_is_decoding(s, &s->choices[k]))
                plan_prompt(m, s, &s->choices[k], &budget);
    }
}

// Decisions and generation take turns: all rows of a step have the adapter or none.
static bool choose_kind(const struct served *m)
{
    bool kinds[2] = {false, false};
    for (int i = 0; i < m->nrunning; i++)
        if (m->running[i]->state != SESSION_WORK)
            kinds[session_decides(m->running[i])] = true;
    return kinds[0] && kinds[1] ? m->decide_next : kinds[1];
}

void plan_step(struct served *m)
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
