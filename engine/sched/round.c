// round.c - see round.h.
#include "engine/sched/round.h"

#include <string.h>

#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/heads.h"

static void set_ids(struct choice *c, const int32_t *stem, int nstem, const int32_t *ids, int nids)
{
    int n = nstem + nids;
    if (n > c->cap) {
        c->cap = n;
        c->ids = mem_resize(c->ids, (size_t)n * sizeof *c->ids);
    }
    memcpy(c->ids, stem, (size_t)nstem * sizeof *stem);
    if (nids > 0)
        memcpy(c->ids + nstem, ids, (size_t)nids * sizeof *ids);
    c->nids = n;
}

static void new_sampler(struct session *s, struct choice *c)
{
    sampler_free(c->sampler);
    c->sampler = NULL;
    if (s->work->ops->rounds->decide)
        return;
    c->sampler = sampler_new(s->work->sampling, s->model->vocab, s->round - 1);  // rounds draw from numbers of their own
    sampler_see_prompt(c->sampler, c->ids, c->nids);
}

// The next round's ids into choice 1. False: there is none, or *e.
static bool load(struct session *s, err *e)
{
    struct work *w = s->work;
    const int32_t *ids;
    int nids, max_tokens;
    if (!w->ops->rounds->next(w, &ids, &nids, &max_tokens)) {
        w->rounds_over = true;
        return false;
    }
    s->round++;
    s->max_out = max_tokens;
    struct choice *c = session_round(s);
    int limit = w->nstem + nids + (max_tokens > 1 ? max_tokens - 1 : 0);
    if (limit > s->context) {
        err_set_param(e, ERR_CONTEXT, "input", "This model's maximum context length is %d tokens. However, you requested %d "
                      "tokens.", s->context, limit);
        return false;
    }
    set_ids(c, w->stem, w->nstem, ids, nids);
    c->limit = limit;
    c->active = false;
    new_sampler(s, c);
    return true;
}

static size_t mask_bytes(const struct session *s)
{
    return ((size_t)s->model->vocab + 63) / 64 * sizeof *s->admitted;
}

err_code round_init(struct session *s, err *e)
{
    struct work *w = s->work;
    s->n = 2;
    s->nprompt = w->nstem;
    s->choices = mem_new(2 * sizeof *s->choices);
    for (int i = 0; i < 2; i++)
        session_init_choice(s, &s->choices[i], i);
    struct choice *stem = session_stem(s);
    set_ids(stem, w->stem, w->nstem, NULL, 0);
    stem->limit = w->nstem;
    stem->active = true;
    s->admitted = mem_new(mask_bytes(s));
    if (!load(s, e) && !e->code)
        return err_set(e, ERR_INTERNAL, "a task without a round");
    return e->code;
}

bool round_fork(struct session *s)
{
    struct choice *c = session_round(s);
    if (!prefix_seq_fork(s->prefix, &session_stem(s)->seq, &c->seq))
        return false;
    c->active = true;
    return true;
}

// NULL: any token may come.
static const uint64_t *admitted(struct session *s)
{
    struct work *w = s->work;
    if (!w->ops->rounds->admit)
        return NULL;
    memset(s->admitted, 0, mask_bytes(s));
    w->ops->rounds->admit(w, s->admitted);
    return s->admitted;
}

void round_needs(struct session *s, struct heads *h)
{
    const uint64_t *mask = h->all ? NULL : admitted(s);
    if (mask)
        heads_add(h, mask);
    else
        heads_add_all(h);
}

bool round_take(struct session *s, float *logits)
{
    struct work *w = s->work;
    struct choice *c = session_round(s);
    int index = c->nids - (c->limit - (s->max_out > 1 ? s->max_out - 1 : 0));
    if (w->ops->rounds->look)
        w->ops->rounds->look(w, logits);
    int32_t id = sampler_pick(c->sampler, logits, index, admitted(s), NULL, 0);
    if (id < 0) {
        err_set(&s->failure, ERR_INTERNAL, "the model's logits at position %d are not numbers, or all are masked",
                c->nids - 1);
        return true;
    }
    session_add_id(c, id);
    s->completion_tokens++;
    return w->ops->rounds->token(w, id) || index + 1 >= s->max_out;
}

bool round_read(struct session *s, const float *state)
{
    s->completion_tokens++;  // nothing is generated; the reference counts one token a decision
    (void)!s->work->ops->rounds->hidden(s->work, s, state, &s->failure);
    return true;
}

bool round_next(struct session *s)
{
    struct work *w = s->work;
    struct choice *c = session_round(s);
    prefix_seq_done(s->prefix, &c->seq);
    c->active = false;
    if (w->ops->rounds->end)
        w->ops->rounds->end(w);
    return load(s, &s->failure);
}
