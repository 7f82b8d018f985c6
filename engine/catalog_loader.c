// catalog_loader.c - the loader's thread: opens and closes models one at a time, without the lock.
#include "engine/catalog_int.h"

#include <stdio.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "engine/decide/decide.h"
#include "engine/family/family.h"
#include "engine/sched/sched.h"
#include "engine/sched/served.h"
#include "engine/weights/weights.h"

// What on_model is told, taken down with the lock held and told without it.
struct news {
    struct model_info model;
    struct model_event event;
};

static void take_down(const struct entry *n, enum model_change change, enum model_state now, struct news *ret_news)
{
    struct model_event ev = {
        .change = change,
        .reason = n->reason,
        .room_for = n->room_for ? n->room_for->info.name : NULL,
        .took_s = (double)(clock_ns() - n->since_ns) * 1e-9,
        .idle_s = change == MODEL_WENT ? n->idle_s : 0,
        .retry_ms = change == MODEL_BROKE ? (int)((n->retry_ns - clock_ns()) / 1000000) : 0,
    };
    ret_news->event = ev;
    catalog_copy_info(n, n->info.name, &ret_news->model);
    ret_news->model.state = now;
}

// Called without the lock.
static void tell(const struct catalog *c, struct news *news)
{
    news->event.model = &news->model;
    if (c->config.on_model)
        c->config.on_model(c->config.on_model_arg, &news->event);
}

// What was going to make room stays: nobody needs it any more. Called with the lock held, which is let go meanwhile.
static void keep_victims(struct catalog *c)
{
    for (int i = 0; i < c->nentries; i++) {
        struct entry *n = c->entries[i];
        if (n->info.state == MODEL_UNLOADING && n->room_for && !n->busy)
            catalog_be_ready(n);
    }
}

static void close_model(struct entry *n)
{
    if (!n->given) {
        model_close(n->model);
        n->model = NULL;
    }
}

// Called with the lock held, which is let go meanwhile.
static void fail(struct entry *n, const err *why)
{
    struct catalog *c = n->catalog;
    int64_t ms = CATALOG_BACK_OFF_MS;
    for (int i = 0; i < n->failures && ms < CATALOG_MAX_BACK_OFF_MS; i++)
        ms *= 2;
    n->failures++;
    n->retry_ns = clock_ns() + (ms < CATALOG_MAX_BACK_OFF_MS ? ms : CATALOG_MAX_BACK_OFF_MS) * 1000000;
    n->info.error = *why;
    n->wanted = false;
    catalog_memory_give_back(n);
    metrics_count(&n->metrics.load_failures, 1);
    catalog_set_state(n, MODEL_FAILED);
    struct session *list = catalog_unpark(n);
    err e = {0};
    (void)catalog_loading_failed(n, &e);
    struct news news;
    take_down(n, MODEL_BROKE, MODEL_FAILED, &news);
    pthread_mutex_unlock(&c->lock);
    close_model(n);
    tell(c, &news);
    catalog_end_list(list, &e);
    pthread_mutex_lock(&c->lock);
    keep_victims(c);
}

static void fill_info(struct entry *n)
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
    i->fills = m->tokenizer && tokenizer_fim_has(m->tokenizer);
    i->context = served_context(n->served);
    i->kv_bytes_per_token = served_token_bytes(n->served);
    i->can = model_can(m);
    if (m->family->describe)
        m->family->describe(m, i);
    if (m->decider)
        decide_describe(m->decider, i);
    i->loaded_unix_s = clock_unix_s();
    i->resident_bytes = n->charged[MEMORY_WEIGHTS];
    i->kv_bytes = n->charged[MEMORY_KV];
    i->error = (err){0};
    metrics_set(&n->metrics.memory_bytes, (int64_t)catalog_memory_charged(n));
}

// The second half: its weights are there, now what serving it takes. kv 0: it has no pool. Called with the lock held,
// which is let go meanwhile.
static void serve(struct entry *n, const struct served_needs *needs, size_t kv)
{
    struct catalog *c = n->catalog;
    err e = {0};
    if (!catalog_memory_take(n, MEMORY_STEP, needs->step + needs->work_scratch) ||
        !catalog_memory_take(n, MEMORY_WORKS, needs->reserve) || !catalog_memory_take(n, MEMORY_KV, kv)) {
        catalog_memory_give_rest(n);  // a running work took it meanwhile; the loader comes again
        return;
    }
    n->busy = true;
    pthread_mutex_unlock(&c->lock);
    struct served *served = NULL;
    err_code code = sched_serve(c->config.sched, n->model, &n->metrics, kv, &served, &e);
    pthread_mutex_lock(&c->lock);
    n->busy = false;
    if (code) {
        fail(n, &e);
        return;
    }
    n->served = served;
    size_t unused = kv - served_kv_bytes(served);  // a pool has whole pages, and no more than its sequences can use
    memory_give(c->config.memory, MEMORY_KV, unused);
    n->charged[MEMORY_KV] -= unused;
    n->failures = 0;
    fill_info(n);
    metrics_count(&n->metrics.loads, 1);
    struct news news;
    take_down(n, MODEL_CAME, MODEL_READY, &news);
    n->busy = true;
    pthread_mutex_unlock(&c->lock);
    tell(c, &news);  // before the first answer
    pthread_mutex_lock(&c->lock);
    n->busy = false;
    catalog_be_ready(n);
}

static void open_weights(struct entry *n)
{
    struct catalog *c = n->catalog;
    err e = {0};
    struct model *m = NULL;
    double start_s = clock_s();
    n->busy = true;
    pthread_mutex_unlock(&c->lock);
    err_code code = model_open(n->path, &n->options, c->config.ops, &m, &e);
    if (!code)
        code = model_ready(m, &e);
    double took = clock_s() - start_s;
    pthread_mutex_lock(&c->lock);
    n->busy = false;
    n->info.load_s = took;
    n->model = m;
    if (code) {
        fail(n, &e);
        return;
    }
    n->weights_need = m->resident_bytes;
    size_t had = n->charged[MEMORY_WEIGHTS];
    if (had > m->resident_bytes) {
        memory_give(c->config.memory, MEMORY_WEIGHTS, had - m->resident_bytes);
        n->charged[MEMORY_WEIGHTS] = m->resident_bytes;
    } else if (!catalog_memory_take(n, MEMORY_WEIGHTS, m->resident_bytes - had)) {
        catalog_memory_give_back(n);  // its files said less; it is opened again when there is room for all of it
        close_model(n);
    }
}

static bool has_weights(const struct entry *n)
{
    return n->model && (n->given || n->charged[MEMORY_WEIGHTS] == n->weights_need);
}

// Nobody waits for it any more. Called with the lock held, which is let go meanwhile.
static void give_up(struct entry *n)
{
    struct catalog *c = n->catalog;
    struct news news;
    catalog_memory_give_back(n);
    catalog_set_state(n, MODEL_UNLOADED);
    take_down(n, MODEL_DROPPED, MODEL_UNLOADED, &news);
    struct model *m = n->given ? NULL : n->model;
    n->model = n->given ? n->model : NULL;
    pthread_mutex_unlock(&c->lock);
    model_close(m);
    tell(c, &news);
    pthread_mutex_lock(&c->lock);
    keep_victims(c);
}

static bool no_room(struct entry *n, size_t need, size_t kv)
{
    struct catalog *c = n->catalog;
    bool may_evict = n->info.lazy || n->info.loaded_unix_s;
    size_t left = memory_left(c->config.memory), most = may_evict ? catalog_memory_most_left(c) : left;
    if (need <= most)
        return catalog_memory_make_room(n, need);
    if (may_evict && need <= most + memory_used(c->config.memory, MEMORY_WORKS))
        return false;  // what running tasks hold comes back
    err e = {0};
    size_t has = catalog_memory_charged(n);
    char all[BYTES_TEXT], of_kv[BYTES_TEXT], had[BYTES_TEXT], total[BYTES_TEXT];
    err_set_param(&e, ERR_MEMORY, "memory",
                  "it needs %s, of them %s for keys and values, and %s of %s can be had; the setting 'memory' says how much all models may "
                  "take", bytes_text(need + has, all), bytes_text(kv, of_kv), bytes_text(most + has, had),
                  bytes_text(memory_total(c->config.memory), total));
    fail(n, &e);
    return true;
}

// One step towards having the model. True: something was done. Called with the lock held, which may be let go
// meanwhile.
static bool load_step(struct entry *n)
{
    struct catalog *c = n->catalog;
    if (!n->wanted && n->nparked == 0) {
        give_up(n);
        return true;
    }
    if (!has_weights(n)) {
        if (!catalog_memory_take(n, MEMORY_WEIGHTS, n->weights_need))
            return no_room(n, n->weights_need, 0);
        open_weights(n);
        return true;
    }
    struct served_needs needs;
    size_t kv = 0, least = 0;
    sched_needs(c->config.sched, n->model, &needs);
    if (needs.kv_page) {
        kv = catalog_memory_kv_share(c, n);
        kv = kv < needs.kv_most ? kv : needs.kv_most;
        kv -= kv % needs.kv_page;
        least = c->config.kv_bytes || kv < needs.kv_least ? kv : needs.kv_least;
    }
    size_t rest = needs.step + needs.work_scratch + needs.reserve, left = memory_left(c->config.memory);
    if (rest + least > left)
        return no_room(n, rest + least, least);
    serve(n, &needs, kv < left - rest ? kv : left - rest);
    return true;
}

static void tear_down(struct entry *n)
{
    struct catalog *c = n->catalog;
    struct news news;
    n->busy = true;
    pthread_mutex_unlock(&c->lock);
    sched_unserve(c->config.sched, n->served);
    served_close(n->served);
    close_model(n);
    pthread_mutex_lock(&c->lock);
    metrics_count(&n->metrics.evicted, n->room_for != NULL);
    take_down(n, MODEL_WENT, MODEL_UNLOADED, &news);
    n->room_for = NULL;
    n->served = NULL;
    catalog_memory_give_back(n);
    metrics_count(&n->metrics.unloads, 1);
    pthread_mutex_unlock(&c->lock);
    tell(c, &news);
    pthread_mutex_lock(&c->lock);
    n->busy = false;
    if (n->nparked > 0 || n->wanted)
        catalog_begin_load(n, n->nparked > 0 ? FOR_TASK : FOR_CALLER);
    else
        catalog_set_state(n, MODEL_UNLOADED);
}

static struct entry *next_to_tear_down(struct catalog *c)
{
    for (int i = 0; i < c->nentries; i++)
        if (c->entries[i]->info.state == MODEL_UNLOADING && c->entries[i]->users == 0)
            return c->entries[i];
    return NULL;
}

static struct entry *next_to_load(struct catalog *c)
{
    struct entry *best = NULL;
    for (int i = 0; i < c->nentries; i++) {
        struct entry *n = c->entries[i];
        bool goes = n->info.state == MODEL_LOADING && (!c->draining || n->nparked > 0 || !n->wanted);
        if (goes && (!best || n->order < best->order))
            best = n;
    }
    return best;
}

void *catalog_loader_run(void *arg)
{
    struct catalog *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        struct entry *n = next_to_tear_down(c);
        if (n) {
            tear_down(n);
            continue;
        }
        n = c->begun ? next_to_load(c) : NULL;
        if (n && load_step(n))
            continue;
        c->short_of_memory = n != NULL;
        pthread_cond_wait(&c->work, &c->lock);
        c->short_of_memory = false;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
