// engine.c - the door: models by name, tasks in, tickets out. Any thread.
//
// Threads: one loader (models are loaded one after another), the prep threads, the scheduler. A model's entry is written
// by the loader under the lock until it is ready or failed, and never again; entries live until engine_close.
#include "engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/queue.h"
#include "engine/decide/decide.h"
#include "engine/family/family.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/sched/prep.h"
#include "engine/sched/sched.h"
#include "engine/sched/served.h"
#include "engine/weights/weights.h"

enum { DEFAULT_WAITING = 256, DEFAULT_RUNNING = 16, MAX_RUNNING = 1024, PREP_THREADS = 2 };

struct entry {
    struct model_info info;
    struct metrics metrics;
    char *path, *chat_template, *vocoder, *decision;
    struct model_options options;
    struct model *model;       // before loading: opened by the caller, or NULL
    struct served *served;
};

struct engine {
    const struct cpu_ops *ops;
    int max_running;
    struct slot_table *slots;
    struct sched *sched;
    struct prep *prep;
    struct queue *loads;
    pthread_t loader;
    bool loading;  // the loader thread runs
    atomic_bool draining;

    pthread_mutex_t lock;
    pthread_cond_t changed;  // a model's state
    struct entry *entries[SCHED_MAX_MODELS];
    int nentries, npools;
    size_t kv_left;  // not yet given to a model
};

// ---- loading

// Models that have no pool yet share what is left equally.
static size_t kv_share(struct engine *en)
{
    pthread_mutex_lock(&en->lock);
    size_t share = en->kv_left / (size_t)(en->nentries - en->npools);
    pthread_mutex_unlock(&en->lock);
    return share;
}

static void fill_info(struct engine *en, struct entry *n)
{
    const struct model *m = n->model;
    struct model_info *i = &n->info;
    snprintf(i->family, sizeof i->family, "%s", m->family->name);
    if (m->weights) {
        snprintf(i->format, sizeof i->format, "%s",
                 weights_container(m->weights) == WEIGHTS_GGUF ? "gguf" : "safetensors");
        i->weight_bytes = weights_bytes(m->weights);
    }
    i->vocab = m->vocab;
    i->context = served_context(n->served);
    i->kv_bytes_per_token = served_token_bytes(n->served);
    i->can = model_can(m);
    if (m->family->describe)
        m->family->describe(m, i);
    if (m->decider)
        decide_describe(m->decider, i);
    i->loaded_unix_s = clock_unix_s();
    en->kv_left -= served_kv_bytes(n->served);
}

static void load(struct engine *en, struct entry *n)
{
    err e = {0};
    double start = clock_s();
    err_code code = ERR_OK;
    if (!n->model)
        code = model_open(n->path, &n->options, en->ops, &n->model, &e);
    if (!code)
        code = model_ready(n->model, &e);
    if (!code)
        code = sched_serve(en->sched, n->model, &n->metrics, kv_share(en), &n->served, &e);
    pthread_mutex_lock(&en->lock);
    en->npools++;
    n->info.error = e;
    if (!code)
        fill_info(en, n);
    n->info.load_s = clock_s() - start;
    n->info.state = code ? MODEL_FAILED : MODEL_READY;
    pthread_cond_broadcast(&en->changed);
    pthread_mutex_unlock(&en->lock);
}

static void *run_loader(void *arg)
{
    struct engine *en = arg;
    struct entry *n;
    while ((n = queue_pop(en->loads)))
        if (!atomic_load(&en->draining))
            load(en, n);
    return NULL;
}

// ---- open and close

// A quarter of the memory: weights are mapped beside it and need the rest.
static size_t default_kv_bytes(void)
{
    struct cpu_info info = {0};
    cpu_probe(&info);
    return info.memory / 4;
}

static err_code start(struct engine *en, const struct engine_config *c, err *e)
{
    int waiting = c->max_waiting > 0 ? c->max_waiting : DEFAULT_WAITING;
    en->max_running = c->max_running > 0 ? c->max_running : DEFAULT_RUNNING;
    if (en->max_running > MAX_RUNNING)
        return err_set_param(e, ERR_INVALID, "max_running", "max_running is %d, at most %d", c->max_running, MAX_RUNNING);
    en->slots = slot_open(waiting, en->max_running);
    struct sched_config sc = {c->threads, c->pin, en->max_running, c->prefill_chunk};
    if (sched_open(&sc, en->slots, &en->sched, e))
        return e ? e->code : ERR_INTERNAL;
    en->prep = prep_open(PREP_THREADS, slot_count(en->slots), en->sched);
    en->loads = queue_new(SCHED_MAX_MODELS);
    en->loading = en->prep && pthread_create(&en->loader, NULL, run_loader, en) == 0;
    if (!en->loading)
        return err_set(e, ERR_MEMORY, "the engine's threads cannot be started");
    return ERR_OK;
}

err_code engine_check_isa(const char *isa, err *e)
{
    const struct cpu_ops *ops;
    return cpu_select(isa, &ops, e);
}

err_code engine_open(const struct engine_config *c, struct engine **ret_engine, err *e)
{
    err local = {0};
    e = e ? e : &local;
    struct engine *en = mem_new(sizeof *en);
    pthread_mutex_init(&en->lock, NULL);
    pthread_cond_init(&en->changed, NULL);
    if (cpu_select(c->isa, &en->ops, e) || start(en, c, e)) {
        engine_close(en);
        return e->code;
    }
    en->kv_left = c->kv_bytes ? c->kv_bytes : default_kv_bytes();
    *ret_engine = en;
    return ERR_OK;
}

static void entry_free(struct entry *n)
{
    served_close(n->served);
    model_close(n->model);
    free(n->path);
    free(n->chat_template);
    free(n->vocoder);
    free(n->decision);
    free(n);
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    atomic_store(&en->draining, true);
    if (en->loading) {
        queue_close(en->loads);
        pthread_join(en->loader, NULL);
    }
    prep_close(en->prep);
    sched_close(en->sched);
    for (int i = 0; i < en->nentries; i++)
        entry_free(en->entries[i]);
    sched_free(en->sched);
    queue_free(en->loads);
    slot_close(en->slots);
    pthread_cond_destroy(&en->changed);
    pthread_mutex_destroy(&en->lock);
    free(en);
}

// ---- models

static struct entry *find_entry(struct engine *en, const char *name)
{
    for (int i = 0; i < en->nentries; i++)
        if (strcmp(en->entries[i]->info.name, name) == 0)
            return en->entries[i];
    return NULL;
}

static err_code add_entry(struct engine *en, struct entry *n, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&en->lock);
    if (find_entry(en, n->info.name))
        code = err_set_param(e, ERR_INVALID, "name", "there is already a model '%s'", n->info.name);
    else if (en->nentries == SCHED_MAX_MODELS)
        code = err_set(e, ERR_UNSUPPORTED, "more than %d models", SCHED_MAX_MODELS);
    else if (!queue_push(en->loads, n))
        code = err_set(e, ERR_DRAINING, "the engine is closing");
    else
        en->entries[en->nentries++] = n;
    pthread_mutex_unlock(&en->lock);
    return code;
}

static err_code read_options(const struct model_config *c, struct entry *n, err *e)
{
    struct model_options *o = &n->options;
    const char *math = c->activations ? c->activations : "int8", *kv = c->kv ? c->kv : "f16";
    if (strcmp(math, "int8") == 0)
        o->math = MAT_INT8;
    else if (strcmp(math, "f32") == 0)
        o->math = MAT_F32;
    else
        return err_set_param(e, ERR_INVALID, "activations", "activations is '%s', expected int8 or f32", math);
    if (!kv_type_from_name(kv, &o->kv))
        return err_set_param(e, ERR_INVALID, "kv", "kv is '%s', expected f16, f32 or q8", kv);
    if (c->context < 0)
        return err_set_param(e, ERR_INVALID, "context", "context is %d, expected 0 or more", c->context);
    o->context = c->context;
    o->max_image_pixels = c->max_image_pixels;
    n->chat_template = c->chat_template ? mem_strdup(c->chat_template) : NULL;
    o->chat_template = n->chat_template;
    n->vocoder = c->vocoder ? mem_strdup(c->vocoder) : NULL;
    o->vocoder = n->vocoder;
    n->decision = c->decision ? mem_strdup(c->decision) : NULL;
    o->decision = n->decision;
    return ERR_OK;
}

static err_code set_name(struct entry *n, const char *name, err *e)
{
    if (!name || !name[0] || strlen(name) >= sizeof n->info.name)
        return err_set_param(e, ERR_INVALID, "name", "a model's name has 1 to %zu bytes", sizeof n->info.name - 1);
    strcpy(n->info.name, name);
    return ERR_OK;
}

err_code engine_add_model(struct engine *en, const struct model_config *c, err *e)
{
    struct entry *n = mem_new(sizeof *n);
    metrics_init(&n->metrics);
    err_code code = set_name(n, c->name, e);
    if (!code)
        code = read_options(c, n, e);
    if (!code) {
        n->path = mem_strdup(c->path);
        snprintf(n->info.path, sizeof n->info.path, "%s", c->path);
        code = add_entry(en, n, e);
    }
    if (code)
        entry_free(n);
    return code;
}

err_code engine_add_open_model(struct engine *en, const char *name, struct model *m, err *e)
{
    struct entry *n = mem_new(sizeof *n);
    n->model = m;
    metrics_init(&n->metrics);
    err_code code = set_name(n, name, e);
    if (!code)
        code = add_entry(en, n, e);
    if (code) {
        n->model = NULL;
        entry_free(n);
    }
    return code;
}

int engine_models(struct engine *en, struct model_info *ret_infos, int max)
{
    pthread_mutex_lock(&en->lock);
    int n = en->nentries;
    for (int i = 0; i < n && i < max; i++)
        ret_infos[i] = en->entries[i]->info;
    pthread_mutex_unlock(&en->lock);
    return n;
}

bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info)
{
    pthread_mutex_lock(&en->lock);
    const struct entry *n = find_entry(en, name);
    if (n)
        *ret_info = n->info;
    pthread_mutex_unlock(&en->lock);
    return n != NULL;
}

const struct metrics *engine_metrics(struct engine *en, const char *name)
{
    pthread_mutex_lock(&en->lock);
    const struct entry *n = find_entry(en, name);
    pthread_mutex_unlock(&en->lock);
    return n ? &n->metrics : NULL;
}

static err_code no_model(const char *name, err *e)
{
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%s' does not exist", name);
}

err_code engine_wait_model(struct engine *en, const char *name, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&en->lock);
    const struct entry *n = find_entry(en, name);
    while (n && n->info.state == MODEL_LOADING)
        pthread_cond_wait(&en->changed, &en->lock);
    if (!n)
        code = no_model(name, e);
    else if (n->info.state == MODEL_FAILED)
        code = err_set_param(e, n->info.error.code, n->info.error.param, "%s", n->info.error.text);
    pthread_mutex_unlock(&en->lock);
    return code;
}

// ---- tasks

// Why a model failed, for a client.
static err_code loading_failed(const struct entry *n, err *e)
{
    const char *const paths[] = {n->path, n->vocoder, n->decision};
    err why = n->info.error;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        err_hide_path(&why, paths[i], n->info.name);
    return err_set_param(e, ERR_INTERNAL, "model", "model '%s' could not be loaded: %s", n->info.name, why.text);
}

// The entry if it is ready; it does not change any more.
static err_code ready_entry(struct engine *en, const char *name, const struct entry **ret_entry, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&en->lock);
    const struct entry *n = name ? find_entry(en, name) : NULL;
    if (!n)
        code = no_model(name ? name : "", e);
    else if (n->info.state == MODEL_LOADING)
        code = err_set_param(e, ERR_LOADING, "model", "model '%s' is loading", name);
    else if (n->info.state == MODEL_FAILED)
        code = loading_failed(n, e);
    pthread_mutex_unlock(&en->lock);
    if (!code)
        *ret_entry = n;
    return code;
}

static err_code check_sampling(const struct sampling *s, int vocab, err *e)
{
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return err_set_param(e, ERR_INVALID, "temperature", "temperature is %g, expected 0 or more", s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return err_set_param(e, ERR_INVALID, "top_p", "top_p is %g, expected 0 to 1", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set_param(e, ERR_INVALID, "min_p", "min_p is %g, expected 0 to 1", s->min_p);
    if (!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty)))
        return err_set_param(e, ERR_INVALID, "repetition_penalty", "repetition_penalty is %g, expected more than 0",
                             s->repetition_penalty);
    if (!isfinite(s->presence_penalty) || !isfinite(s->frequency_penalty))
        return err_set_param(e, ERR_INVALID, "frequency_penalty", "penalties must be finite");
    for (size_t i = 0; i < s->nbias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= vocab || isnan(s->bias[i].bias))
            return err_set_param(e, ERR_INVALID, "logit_bias", "token id %d with bias %g, expected an id below %d and a "
                                 "number", s->bias[i].id, s->bias[i].bias, vocab);
    return ERR_OK;
}

static err_code check_prompt(const struct model *m, const struct prompt *p, err *e)
{
    if ((p->messages != NULL) + (p->text != NULL) + (p->ids != NULL) != 1)
        return err_set_param(e, ERR_INVALID, "prompt", "expected exactly one of messages, text and ids");
    if (!p->ids && !m->tokenizer)
        return err_set(e, ERR_UNSUPPORTED, "the model has no tokenizer, only token ids can be its prompt%s%s",
                       m->tokenizer_error.text[0] ? ": " : "", m->tokenizer_error.text);
    if (p->messages && !m->chat)
        return err_set_param(e, ERR_UNSUPPORTED, "messages", "the model has no chat template%s%s",
                             m->chat_error.text[0] ? ": " : "", m->chat_error.text);
    return ERR_OK;
}

static err_code check_generate(const struct engine *en, const struct model *m, const struct generate *g, err *e)
{
    if (g->n < 1 || g->n > en->max_running)
        return err_set_param(e, ERR_INVALID, "n", "n is %d, expected 1 to %d", g->n, en->max_running);
    if (g->max_tokens < -1)
        return err_set_param(e, ERR_INVALID, "max_tokens", "max_tokens is %d", g->max_tokens);
    if (g->logprobs > SESSION_MAX_LOGPROBS)
        return err_set_param(e, ERR_INVALID, "logprobs", "logprobs is %d, at most %d", g->logprobs, SESSION_MAX_LOGPROBS);
    if (check_prompt(m, &g->prompt, e))
        return e->code;
    return check_sampling(&g->sampling, m->vocab, e);
}

static err_code check_task(const struct engine *en, const struct model *m, const struct task *t, err *e)
{
    if (t->kind >= TASK_EMBED) {
        const struct work_ops *w = model_work(m, t->kind);
        if (!w)
            return err_set_param(e, ERR_UNSUPPORTED, "model", "the model '%s' cannot do this", t->model);
        return w->check ? w->check(m, t, e) : ERR_OK;
    }
    if (!m->family->gen && t->kind == TASK_GENERATE)
        return err_set_param(e, ERR_UNSUPPORTED, "model", "the model '%s' generates no text", t->model);
    if (t->kind == TASK_GENERATE)
        return check_generate(en, m, &t->generate, e);
    const struct prompt *p = &t->tokenize.prompt;
    if (!m->tokenizer)
        return err_set(e, ERR_UNSUPPORTED, "the model has no tokenizer%s%s", m->tokenizer_error.text[0] ? ": " : "",
                       m->tokenizer_error.text);
    bool fits = t->kind == TASK_TOKENIZE ? p->text && !p->ids && !p->messages
              : t->kind == TASK_DETOKENIZE ? !p->text && !p->messages && (p->ids || p->nids == 0)
              : p->messages && !p->text && !p->ids;
    if (!fits)
        return err_set_param(e, ERR_INVALID, "prompt", "expected %s",
                             t->kind == TASK_TOKENIZE ? "text" : t->kind == TASK_DETOKENIZE ? "ids" : "messages");
    return p->messages ? check_prompt(m, p, e) : ERR_OK;
}

err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e)
{
    err local = {0};
    e = e ? e : &local;
    if (atomic_load(&en->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    const struct entry *n;
    struct ticket ticket;
    if (ready_entry(en, t->model, &n, e))
        return e->code;
    if (check_task(en, n->model, t, e) || slot_take(en->slots, &ticket, e)) {
        model_hide_paths(n->model, t->model, e);
        return e->code;
    }
    struct session *s = session_new(t, ticket, en->slots);
    served_attach(n->served, s);
    *ret_ticket = ticket;  // before the first event can use it
    prep_submit(en->prep, s);
    return ERR_OK;
}

void engine_cancel(struct engine *en, struct ticket ticket)
{
    if (slot_cancel(en->slots, ticket))
        sched_wake(en->sched);
}

void engine_drain(struct engine *en)
{
    atomic_store(&en->draining, true);
}

void engine_stats(struct engine *en, struct engine_stats *ret_stats)
{
    sched_stats(en->sched, ret_stats);
}

int64_t engine_heartbeat_ns(const struct engine *en)
{
    return sched_heartbeat_ns(en->sched);
}

bool engine_check(struct engine *en, bool flush)
{
    return sched_check(en->sched, flush);
}
