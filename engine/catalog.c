// catalog.c - see the header, and catalog_int.h for its other files.
#include "engine/catalog_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/check.h"
#include "engine/need.h"
#include "engine/sched/prep.h"
#include "engine/sched/sched.h"
#include "engine/sched/served.h"
#include "engine/sched/timing.h"

// ---- names

static struct entry *find_entry(struct catalog *c, const char *name)
{
    for (int i = 0; i < c->nentries; i++)
        if (strcmp(c->entries[i]->info.name, name) == 0)
            return c->entries[i];
    for (int i = 0; i < c->naliases; i++)
        if (strcmp(c->aliases[i].name, name) == 0)
            return c->aliases[i].of;
    return NULL;
}

static err_code no_model(const char *name, err *e)
{
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%s' does not exist", name);
}

static err_code check_name(const char *name, err *e)
{
    if (!name || !name[0] || strlen(name) > ENGINE_NAME_MAX)
        return err_set_param(e, ERR_INVALID, "name", "a model's name has 1 to %d bytes", ENGINE_NAME_MAX);
    return ERR_OK;
}

// Called with the lock held.
static err_code check_new(struct catalog *c, const char *name, err *e)
{
    if (find_entry(c, name))
        return err_set_param(e, ERR_INVALID, "name", "there is already a model '%s'", name);
    if (c->nentries + c->naliases == ENGINE_MODELS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "more than %d models and aliases", ENGINE_MODELS_MAX);
    if (c->draining)
        return err_set(e, ERR_DRAINING, "the engine is closing");
    return ERR_OK;
}

// ---- states

// The only place that changes the state. Called with the lock held.
void catalog_set_state(struct entry *n, enum model_state to)
{
    struct catalog *c = n->catalog;
    n->info.state = to;
    pthread_cond_broadcast(&c->changed);
    pthread_cond_broadcast(&c->work);
    pthread_cond_broadcast(&c->tend);
}

// Something was asked for: from here on models are loaded. Until then all can be added that will share the memory.
static void begin(struct catalog *c)
{
    if (!c->begun)
        pthread_cond_broadcast(&c->work);
    c->begun = true;
}

void catalog_begin_load(struct entry *n, enum model_reason why)
{
    n->order = ++n->catalog->orders;
    n->unload_then = false;
    n->reason = why;
    n->since_ns = clock_ns();
    catalog_set_state(n, MODEL_LOADING);
}

void catalog_begin_unload(struct entry *n, enum model_reason why, const struct entry *room_for)
{
    n->reason = why;
    n->room_for = room_for;
    n->since_ns = clock_ns();
    n->idle_s = n->users ? 0 : (double)(n->since_ns - n->last_use_ns) * 1e-9;
    n->wanted = n->unload_then = false;
    catalog_set_state(n, MODEL_UNLOADING);
}

// A user has gone: a task ended, or was refused.
static void leave(void *arg)
{
    struct entry *n = arg;
    struct catalog *c = n->catalog;
    pthread_mutex_lock(&c->lock);
    n->last_use_ns = clock_ns();
    n->users--;
    if (c->short_of_memory || (n->users == 0 && n->info.state == MODEL_UNLOADING))
        pthread_cond_broadcast(&c->work);
    if (n->users == 0 && c->config.idle_unload_s)
        pthread_cond_broadcast(&c->tend);
    pthread_mutex_unlock(&c->lock);
}

// ---- tasks

// Why a model failed, for a client.
err_code catalog_loading_failed(const struct entry *n, err *e)
{
    const char *const paths[] = {n->path, n->vocoder, n->decision};
    int64_t wait_ms = (n->retry_ns - clock_ns()) / 1000000;
    err why = n->info.error;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        err_hide_path(&why, paths[i], n->info.name);
    err_set_param(e, ERR_INTERNAL, "model", "model '%s' could not be loaded: %s", n->info.name, why.text);
    err_fill_retry(e, wait_ms > 0 ? (int)wait_ms : 1);
    return ERR_INTERNAL;
}

static void give_model(struct entry *n, struct session *s)
{
    served_attach(n->served, s);
    s->on_end = leave;
    s->on_end_arg = n;
}

// The model is there and n->users counts the task.
static err_code start(struct entry *n, struct task *t, const struct slot_load *load, struct ticket *ret_ticket, err *e)
{
    struct catalog *c = n->catalog;
    struct ticket ticket;
    if (check_task(n->model, t, sched_max_running(c->config.sched), e) ||
        slot_take(c->config.slots, load, &ticket, e)) {
        model_hide_paths(n->model, t->model, e);
        leave(n);
        return e->code;
    }
    struct session *s = session_new(t, ticket, c->config.slots);
    give_model(n, s);
    *ret_ticket = ticket;  // before the first event can use it
    prep_submit(c->config.prep, s);
    return ERR_OK;
}

// A parked task whose model is there now, n->users counts it.
static void go_on(struct entry *n, struct session *s)
{
    err e = {0};
    give_model(n, s);
    if (check_task(n->model, s->task, sched_max_running(n->catalog->config.sched), &e))
        session_end(s, &e);
    else
        prep_submit(n->catalog->config.prep, s);
}

// Called with the lock held. The model is not there.
static err_code park(struct entry *n, struct task *t, const struct slot_load *load, struct ticket *ret_ticket, err *e)
{
    struct catalog *c = n->catalog;
    bool failed = n->info.state == MODEL_FAILED;
    if (failed && clock_ns() < n->retry_ns)
        return catalog_loading_failed(n, e);
    if (slot_take(c->config.slots, load, ret_ticket, e))
        return e->code;
    struct session *s = session_new(t, *ret_ticket, c->config.slots);
    timing_accepted(s, &n->metrics);
    s->parked_ns = clock_ns();
    *n->parked_end = s;
    n->parked_end = &s->next;
    n->nparked++;
    atomic_fetch_add(&c->parked, 1);
    metrics_set(&n->metrics.parked, n->nparked);
    if (failed || n->info.state == MODEL_UNLOADED)
        catalog_begin_load(n, FOR_TASK);
    n->unload_then = false;
    pthread_cond_broadcast(&c->tend);  // its deadlines
    return ERR_OK;
}

err_code catalog_submit(struct catalog *c, struct task *t, struct ticket *ret_ticket, err *e)
{
    struct slot_load load;
    need_load(t, &load);
    err_code code = ERR_OK;
    pthread_mutex_lock(&c->lock);
    begin(c);
    struct entry *n = t->model ? find_entry(c, t->model) : NULL;
    bool ready = n && n->info.state == MODEL_READY;
    if (!n)
        code = no_model(t->model ? t->model : "", e);
    else if (ready)
        n->users++;
    else
        code = park(n, t, &load, ret_ticket, e);
    pthread_mutex_unlock(&c->lock);
    return ready ? start(n, t, &load, ret_ticket, e) : code;
}

void catalog_cancelled(struct catalog *c)
{
    if (atomic_load(&c->parked) == 0)
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->tend);
    pthread_mutex_unlock(&c->lock);
}

// Takes all that are parked. Called with the lock held.
struct session *catalog_unpark(struct entry *n)
{
    struct session *list = n->parked;
    atomic_fetch_sub(&n->catalog->parked, n->nparked);
    n->parked = NULL;
    n->parked_end = &n->parked;
    n->nparked = 0;
    metrics_set(&n->metrics.parked, 0);
    return list;
}

// Called without the lock.
void catalog_end_list(struct session *list, const err *why)
{
    while (list) {
        struct session *s = list;
        list = s->next;
        session_end(s, why ? why : &s->failure);
    }
}

// READY, and everybody who waited goes on. Called with the lock held, which is let go meanwhile.
void catalog_be_ready(struct entry *n)
{
    struct catalog *c = n->catalog;
    n->users += n->nparked;
    n->last_use_ns = clock_ns();
    n->wanted = false;
    n->room_for = NULL;
    catalog_set_state(n, MODEL_READY);
    struct session *list = catalog_unpark(n);
    pthread_mutex_unlock(&c->lock);
    while (list) {
        struct session *s = list;
        list = s->next;
        go_on(n, s);
    }
    pthread_mutex_lock(&c->lock);
    if (n->unload_then && n->info.state == MODEL_READY)
        catalog_begin_unload(n, FOR_CALLER, NULL);
}

// ---- open and close

err_code catalog_open(const struct catalog_config *config, struct catalog **ret_catalog, err *e)
{
    struct catalog *c = mem_new(sizeof *c);
    c->config = *config;
    if (c->config.load_timeout_s <= 0)
        c->config.load_timeout_s = CATALOG_LOAD_TIMEOUT_S;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_cond_init(&c->work, &monotonic);
    pthread_cond_init(&c->tend, &monotonic);
    pthread_condattr_destroy(&monotonic);
    c->loading = pthread_create(&c->loader, NULL, catalog_loader_run, c) == 0;
    c->keeping = c->loading && pthread_create(&c->keeper, NULL, catalog_keeper_run, c) == 0;
    if (!c->keeping) {
        catalog_stop(c);
        catalog_free(c);
        return err_set(e, ERR_MEMORY, "the threads that load models cannot be started");
    }
    *ret_catalog = c;
    return ERR_OK;
}

void catalog_drain(struct catalog *c)
{
    pthread_mutex_lock(&c->lock);
    c->draining = true;
    pthread_cond_broadcast(&c->changed);
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
}

void catalog_stop(struct catalog *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->draining = c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_cond_broadcast(&c->work);
    pthread_cond_broadcast(&c->tend);
    pthread_mutex_unlock(&c->lock);
    if (c->loading)
        pthread_join(c->loader, NULL);
    if (c->keeping)
        pthread_join(c->keeper, NULL);
    c->loading = c->keeping = false;
    err e = {0};
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    for (int i = 0; i < c->nentries; i++)
        catalog_end_list(catalog_unpark(c->entries[i]), &e);
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

void catalog_free(struct catalog *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->nentries; i++)
        entry_free(c->entries[i]);
    pthread_cond_destroy(&c->changed);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->tend);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

// ---- models

static struct entry *entry_new(struct catalog *c)
{
    struct entry *n = mem_new(sizeof *n);
    n->catalog = c;
    n->parked_end = &n->parked;
    metrics_init(&n->metrics);
    return n;
}

static err_code add_entry(struct catalog *c, struct entry *n, err *e)
{
    pthread_mutex_lock(&c->lock);
    err_code code = check_new(c, n->info.name, e);
    if (!code) {
        c->entries[c->nentries++] = n;
        n->info.state = MODEL_UNLOADED;
        n->wanted = !n->info.lazy;
        if (n->wanted)
            catalog_begin_load(n, FOR_START);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

static char *copy(const char *text)
{
    return text ? mem_strdup(text) : NULL;
}

static err_code read_options(const struct model_config *c, struct entry *n, err *e)
{
    struct model_options *o = &n->options;
    const char *math = c->activations ? c->activations : "int8", *kv = c->kv ? c->kv : "f16";
    if (!mat_math_from_name(math, &o->math))
        return err_set_param(e, ERR_INVALID, "activations", "activations is '%s', expected int8, f32 or bf16", math);
    if (!kv_type_from_name(kv, &o->kv))
        return err_set_param(e, ERR_INVALID, "kv", "kv is '%s', expected f16, f32 or q8", kv);
    if (c->context < 0)
        return err_set_param(e, ERR_INVALID, "context", "context is %d, expected 0 or more", c->context);
    o->context = c->context;
    o->max_image_pixels = c->max_image_pixels;
    o->chat_template = n->chat_template = copy(c->chat_template);
    o->vocoder = n->vocoder = copy(c->vocoder);
    o->decision = n->decision = copy(c->decision);
    n->info.lazy = c->lazy;
    n->info.pinned = c->pinned;
    return ERR_OK;
}

err_code catalog_add(struct catalog *c, const struct model_config *m, err *e)
{
    if (check_name(m->name, e))
        return e->code;
    struct entry *n = entry_new(c);
    strcpy(n->info.name, m->name);
    err_code code = read_options(m, n, e);
    if (!code) {
        n->path = mem_strdup(m->path);
        snprintf(n->info.path, sizeof n->info.path, "%s", m->path);
        n->weights_need = catalog_memory_weights(m->path, 1) + catalog_memory_weights(m->vocoder, 0);
        code = add_entry(c, n, e);
    }
    if (code)
        entry_free(n);
    return code;
}

err_code catalog_add_open(struct catalog *c, const char *name, struct model *m, err *e)
{
    if (check_name(name, e))
        return e->code;
    struct entry *n = entry_new(c);
    strcpy(n->info.name, name);
    n->model = m;
    n->given = true;
    n->weights_need = m->resident_bytes;
    err_code code = add_entry(c, n, e);
    if (code) {
        n->model = NULL;
        entry_free(n);
    }
    return code;
}

err_code catalog_alias(struct catalog *c, const char *alias, const char *name, err *e)
{
    if (check_name(alias, e))
        return e->code;
    pthread_mutex_lock(&c->lock);
    struct entry *n = find_entry(c, name);
    err_code code = n ? check_new(c, alias, e) : no_model(name, e);
    if (!code) {
        struct alias *a = &c->aliases[c->naliases++];
        strcpy(a->name, alias);
        a->of = n;
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

void catalog_copy_info(const struct entry *n, const char *name, struct model_info *ret_info)
{
    *ret_info = n->info;
    ret_info->parked = n->nparked;
    ret_info->memory_bytes = catalog_memory_charged(n);
    if (name == n->info.name)
        return;
    snprintf(ret_info->name, sizeof ret_info->name, "%s", name);
    snprintf(ret_info->parent, sizeof ret_info->parent, "%s", n->info.name);
}

int catalog_list(struct catalog *c, struct model_info *ret_infos, int max)
{
    pthread_mutex_lock(&c->lock);
    int n = 0;
    for (int i = 0; i < c->nentries; i++, n++)
        if (n < max)
            catalog_copy_info(c->entries[i], c->entries[i]->info.name, &ret_infos[n]);
    for (int i = 0; i < c->naliases; i++, n++)
        if (n < max)
            catalog_copy_info(c->aliases[i].of, c->aliases[i].name, &ret_infos[n]);
    pthread_mutex_unlock(&c->lock);
    return n;
}

bool catalog_find(struct catalog *c, const char *name, struct model_info *ret_info)
{
    pthread_mutex_lock(&c->lock);
    const struct entry *n = find_entry(c, name);
    if (n)
        catalog_copy_info(n, strcmp(n->info.name, name) == 0 ? n->info.name : name, ret_info);
    pthread_mutex_unlock(&c->lock);
    return n != NULL;
}

const struct metrics *catalog_metrics(struct catalog *c, const char *name)
{
    pthread_mutex_lock(&c->lock);
    const struct entry *n = find_entry(c, name);
    pthread_mutex_unlock(&c->lock);
    return n ? &n->metrics : NULL;
}

err_code catalog_wait(struct catalog *c, const char *name, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&c->lock);
    begin(c);
    const struct entry *n = find_entry(c, name);
    while (n && !c->draining && (n->info.state == MODEL_LOADING || n->info.state == MODEL_UNLOADING))
        pthread_cond_wait(&c->changed, &c->lock);
    if (!n)
        code = no_model(name, e);
    else if (n->info.state == MODEL_FAILED)
        code = err_set_param(e, n->info.error.code, n->info.error.param, "%s", n->info.error.text);
    else if (n->info.state == MODEL_LOADING || n->info.state == MODEL_UNLOADING)
        code = err_set(e, ERR_DRAINING, "the server is shutting down");
    pthread_mutex_unlock(&c->lock);
    return code;
}

err_code catalog_load(struct catalog *c, const char *name, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&c->lock);
    begin(c);
    struct entry *n = find_entry(c, name);
    if (!n)
        code = no_model(name, e);
    else if (c->draining)
        code = err_set(e, ERR_DRAINING, "the server is shutting down");
    else if (n->info.state == MODEL_FAILED && clock_ns() < n->retry_ns)
        code = catalog_loading_failed(n, e);
    if (!code && n->info.state != MODEL_READY) {
        n->wanted = true;
        n->unload_then = false;
        if (n->info.state == MODEL_UNLOADED || n->info.state == MODEL_FAILED)
            catalog_begin_load(n, FOR_CALLER);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

err_code catalog_unload(struct catalog *c, const char *name, err *e)
{
    err_code code = ERR_OK;
    pthread_mutex_lock(&c->lock);
    struct entry *n = find_entry(c, name);
    if (!n)
        code = no_model(name, e);
    else if (catalog_fixed(n))
        code = err_set_param(e, ERR_INVALID, "model", "The model '%s' is pinned and stays in memory", name);
    else if (n->info.state == MODEL_READY)
        catalog_begin_unload(n, FOR_CALLER, NULL);
    else {
        n->unload_then = n->info.state == MODEL_LOADING;  // who waits for it is served first
        n->wanted = false;
        pthread_cond_broadcast(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

static void add_numbers(const struct metrics *m, struct engine_stats *st)
{
    st->running += (int)m->running;
    st->kv_pages += (size_t)m->kv_pages;
    st->kv_pages_used += (size_t)m->kv_pages_used;
    st->kv_pages_cached += (size_t)m->kv_pages_cached;
    st->prompt_tokens += m->prompt_tokens;
    st->cached_tokens += m->cached_tokens;
    st->completion_tokens += m->generation_tokens;
    st->steps += m->steps;
    st->cancelled += m->ended_cancelled;
    st->preempted += m->preemptions;
    st->model_loads += m->loads;
    st->model_unloads += m->unloads;
    st->model_evictions += m->evicted;
    st->model_failures += m->load_failures;
}

void catalog_stats(struct catalog *c, struct engine_stats *st)
{
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->nentries; i++) {
        add_numbers(&c->entries[i]->metrics, st);
        st->models_ready += c->entries[i]->info.state == MODEL_READY;
    }
    pthread_mutex_unlock(&c->lock);
}
