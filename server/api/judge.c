// judge.c - see judge.h for who runs what on which thread.
#include "server/api/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/api/models.h"
#include "server/apikey.h"
#include "server/api/pyjson.h"
#include "server/request.h"
#include "server/server.h"

enum { MAX_TEXT = 1 << 30 };

static void release(void *object)
{
    struct judge *j = object;
    for (int i = 0; i < j->nasks; i++)
        free(j->asks[i].p);
    free(j->asks);
    for (int i = 0; i < API_JUDGE_KINDS; i++)
        free(j->parts[i].asks);
    pthread_mutex_destroy(&j->lock);
}

struct judge *api_judge_new(struct request *r, int nasks)
{
    struct judge *j = arena_alloc(&r->arena, sizeof *j);
    j->r = r;
    j->engine = server_engine(r->server);
    j->model = arena_alloc(&r->arena, sizeof *j->model);
    j->asks = mem_new((size_t)nasks * sizeof *j->asks);
    j->nasks = nasks;
    pthread_mutex_init(&j->lock, NULL);
    arena_defer(&r->arena, release, j);
    return j;
}

// ---- the model

// The first one trained for it, else the first one that can.
static bool first_that_decides(const struct judge *j)
{
    struct model_info *infos = mem_new(ENGINE_MODELS_MAX * sizeof *infos);
    int n = engine_models(j->engine, infos, ENGINE_MODELS_MAX), best = -1;
    for (int i = 0; i < n; i++) {
        bool decides = engine_model_known(&infos[i]) && (infos[i].can & CAN_DECIDE) &&
                       apikey_may_use(j->r->key, infos[i].parent[0] ? infos[i].parent : infos[i].name);
        if (decides && (best < 0 || (infos[i].native_decisions && !infos[best].native_decisions)))
            best = i;
    }
    if (best >= 0)
        *j->model = infos[best];
    free(infos);
    return best >= 0;
}

bool api_judge_model(struct judge *j, struct fields *f)
{
    api_caller_read(&j->caller, f);
    if (!api_fields_get(f, "model") && first_that_decides(j))
        return true;
    return api_models_find(f, CAN_DECIDE, j->model);
}

// ---- texts and numbers

const char *api_judge_keep(struct request *r, struct buf *b)
{
    char *text = buf_take(b);
    arena_defer(&r->arena, free, text);
    return text;
}

const char *api_judge_text(struct request *r, const json_t *v)
{
    if (json_is_string(v))
        return json_string_value(v);
    struct buf b;
    buf_init(&b, MAX_TEXT);
    api_pyjson_dump(&b, v);
    return api_judge_keep(r, &b);
}

bool api_judge_count(struct judge *j, struct fields *f, size_t n, const char *path)
{
    int most = j->model->max_options;
    if (n >= 2 && n <= (size_t)most)
        return true;
    api_fields_fail(f, n < 2 ? "array_below_min_length" : "array_above_max_length", path,
                    "Invalid '%s': expected 2 to %d options, but got %zu instead.", path, most, n);
    return false;
}

double api_judge_confidence(const struct ask *a)
{
    double even = 1 / (double)a->n, c = (a->p[a->best] - even) / (1 - even);
    return c < 0 ? 0 : c > 1 ? 1 : c;
}

double api_judge_expected(const struct ask *a)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)i * a->p[i];
    return sum;
}

void api_judge_mass(const struct ask *a, struct buf *out)
{
    if (isnan(a->mass))
        buf_add_str(out, "null");
    else
        api_pyjson_float(out, a->mass);
}

// ---- the end

static void answer(struct judge *j)
{
    err e = j->error;
    for (int i = 0; i < j->nasks && !e.code; i++)
        if (!j->asks[i].done)
            err_set(&e, ERR_INTERNAL, "question %d was not answered", i);
    struct buf out;
    buf_init(&out, API_JUDGE_MAX_ANSWER);
    if (!e.code)
        j->write(j, &out);
    if (!e.code && out.over)
        err_set(&e, ERR_INTERNAL, "the answer is larger than %d MB", API_JUDGE_MAX_ANSWER >> 20);
    api_fields_clean(e.text);
    if (!e.code)
        reply_text(j->r, 200, "application/json", out.data, out.len);
    else if (j->fail)
        j->fail(j, &e);
    else
        reply_error(j->r, &e);
    buf_done(&out);
}

static void cancel_all(struct judge *j)
{
    pthread_mutex_lock(&j->lock);
    int n = j->submitted;
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < n; i++)
        engine_cancel(j->engine, j->tickets[i]);
}

// Gives back n of j->pending; whoever gives the last one answers. Nothing may touch j afterwards.
static void give_back(struct judge *j, int n)
{
    pthread_mutex_lock(&j->lock);
    j->pending -= n;
    bool last = j->pending == 0;
    pthread_mutex_unlock(&j->lock);
    if (last)
        answer(j);
}

static void record_error(struct judge *j, const err *e)
{
    if (!j->error.code)
        j->error = *e;
}

static void take(struct ask *a, const struct decision *d)
{
    if (d->n != a->n)
        return;
    memcpy(a->p, d->probabilities, a->n * sizeof *a->p);
    a->best = d->best;
    a->mass = d->mass;
    a->native = d->native;
    a->wide = d->wide;
    a->done = true;
}

static void handle(struct judge_part *p, const struct event *ev)
{
    struct judge *j = p->judge;
    if (ev->kind == EVENT_DECISION && ev->choice < p->n)
        take(&j->asks[p->asks[ev->choice]], ev->decision);
    if (ev->kind != EVENT_END)
        return;
    j->usage.prompt_tokens += ev->usage.prompt_tokens;
    j->usage.cached_tokens += ev->usage.cached_tokens;
    j->usage.completion_tokens += ev->usage.completion_tokens;
    request_note(j->r, &(struct request_facts){.model = j->model->name, .prompt_tokens = j->usage.prompt_tokens,
                                               .cached_tokens = j->usage.cached_tokens,
                                               .completion_tokens = j->usage.completion_tokens});
    if (ev->error.code)
        record_error(j, &ev->error);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct judge_part *p = t->ud;
    struct judge *j = p->judge;
    pthread_mutex_lock(&j->lock);
    handle(p, ev);
    pthread_mutex_unlock(&j->lock);
    if (ev->kind != EVENT_END)
        return;
    if (ev->error.code && j->nparts > 1)
        cancel_all(j);
    give_back(j, 1);
}

static void on_gone(struct request *r)
{
    cancel_all(r->ud);
}

// ---- tasks. A task shares no memory with its request.

static char *copy(struct task *t, const char *s)
{
    size_t n = strlen(s) + 1;
    char *c = mem_try(n);
    if (!c)
        return NULL;
    memcpy(c, s, n);
    arena_defer(&t->arena, free, c);
    return c;
}

static bool copy_question(struct task *t, const struct ask *a, struct decide_question *q)
{
    bool ok = (q->text = copy(t, a->text));
    const char **options = a->noptions ? arena_alloc(&t->arena, a->noptions * sizeof *options) : NULL;
    for (size_t i = 0; ok && i < a->noptions; i++)
        ok = (options[i] = copy(t, a->options[i]));
    q->kind = a->kind;
    q->options = options;
    q->noptions = a->noptions;
    return ok;
}

static struct task *make_task(struct judge *j, struct judge_part *p, err *e)
{
    struct task *t = task_new(TASK_DECIDE);
    struct decide_question *q = arena_alloc(&t->arena, (size_t)p->n * sizeof *q);
    t->model = arena_strdup(&t->arena, j->model->name);
    api_caller_fill(&j->caller, t);
    t->on_event = on_event;
    t->ud = p;
    t->decide = (struct decide){.questions = q, .nquestions = (size_t)p->n};
    bool ok = (t->decide.state = copy(t, j->state));
    for (int i = 0; ok && i < p->n; i++)
        ok = copy_question(t, &j->asks[p->asks[i]], &q[i]);
    if (ok)
        return t;
    err_set(e, ERR_MEMORY, "no memory for the questions");
    task_free(t);
    return NULL;
}

// Hands one kind's questions to the engine. False when the request has failed.
static bool submit(struct judge *j, struct judge_part *p)
{
    err e = {0};
    struct ticket ticket;
    struct task *t = make_task(j, p, &e);
    if (t && engine_submit(j->engine, t, &ticket, &e))
        task_free(t);
    pthread_mutex_lock(&j->lock);
    if (e.code)
        record_error(j, &e);
    else
        j->tickets[j->submitted++] = ticket;
    bool go_on = !j->error.code;
    pthread_mutex_unlock(&j->lock);
    return go_on;
}

static void make_parts(struct judge *j)
{
    for (int k = 0; k < API_JUDGE_KINDS; k++) {
        struct judge_part *p = &j->parts[j->nparts];
        *p = (struct judge_part){.judge = j, .asks = mem_new((size_t)j->nasks * sizeof *p->asks)};
        for (int i = 0; i < j->nasks; i++)
            if (j->asks[i].kind == (enum decide_kind)k)
                p->asks[p->n++] = i;
        if (p->n)
            j->nparts++;
        else
            free(p->asks);
        if (!p->n)
            p->asks = NULL;
    }
}

static size_t options_of(const struct ask *a)
{
    return a->kind == DECIDE_ENUM ? a->noptions : a->kind == DECIDE_BOOL ? 2 : 6;
}

void api_judge_start(struct judge *j)
{
    for (int i = 0; i < j->nasks; i++) {
        struct ask *a = &j->asks[i];
        a->n = options_of(a);
        a->p = mem_new(a->n * sizeof *a->p);
    }
    make_parts(j);
    j->r->ud = j;
    j->r->on_gone = on_gone;
    j->pending = j->nparts + 1;
    int i = 0;
    while (i < j->nparts && submit(j, &j->parts[i]))
        i++;
    if (i < j->nparts)
        cancel_all(j);
    give_back(j, j->nparts - j->submitted + 1);  // only this thread writes j->submitted
}
