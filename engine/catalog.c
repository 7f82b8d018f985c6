// catalog.c - see the header. Everything in struct catalog below `lock` is shared and locked, and so are its entries, except
// model and served of an entry that is READY or has users: those do not change until the last user has left.
#include "engine/catalog.h"

#include <assert.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/check.h"
#include "engine/decide/decide.h"
#include "engine/family/family.h"
#include "engine/memory.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/need.h"
#include "engine/sched/prep.h"
#include "engine/sched/sched.h"
#include "engine/sched/served.h"
#include "engine/sched/timing.h"
#include "engine/weights/weights.h"

struct entry {
    struct catalog *catalog;
    struct model_info info;
    struct metrics metrics;
    char *path, *chat_template, *vocoder, *decision;
    struct model_options options;
    bool given;        // opened by the caller
    bool wanted;       // loads though nobody waits
    bool victim;       // UNLOADING to make room
    bool unload_then;  // told to unload while it was loading
    bool busy;         // the loader is at it, without the lock
    struct model *model;
    struct served *served;
    size_t weights_need;  // by its files, then as it was
    size_t charged[MEMORY_ACCOUNTS];
    int users;            // tasks that have it
    int nparked;
    struct session *parked, **parked_end;
    uint64_t order;       // LOADING: the smallest is first
    int64_t last_use_ns, retry_ns;
    int failures;
};

struct alias {
    char name[ENGINE_NAME_MAX + 1];
    struct entry *of;
};

struct catalog {
    struct catalog_config config;
    pthread_t loader, keeper;
    bool loading, keeping;  // the threads run

    pthread_mutex_t lock;
    pthread_cond_t changed;  // a model's state
    pthread_cond_t work;     // the loader has something to do
    pthread_cond_t tend;     // the keeper has
    bool begun, draining, closing;
    bool short_of_memory;    // the loader waits for tasks to end
    struct entry *entries[ENGINE_MODELS_MAX];
    struct alias aliases[ENGINE_MODELS_MAX];
    int nentries, naliases;
    uint64_t orders;
    struct catalog_counts counts;
    atomic_int parked;       // tasks, of all models
};

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
static void set_state(struct entry *n, enum model_state to)
{
    struct catalog *c = n->catalog;
    c->counts.ready += (to == MODEL_READY) - (n->info.state == MODEL_READY);
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

static void begin_load(struct entry *n)
{
    n->order = ++n->catalog->orders;
    n->unload_then = false;
    set_state(n, MODEL_LOADING);
}

static bool fixed(const struct entry *n)
{
    return n->given || n->info.pinned;
}

static void begin_unload(struct entry *n, bool victim)
{
    n->victim = victim;
    n->wanted = n->unload_then = false;
    set_state(n, MODEL_UNLOADING);
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
static err_code loading_failed(const struct entry *n, err *e)
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
    if (check_task(n->model, t, sched_max_running(c->config.sched), e) || slot_take(c->config.slots, load, &ticket, e)) {
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
        return loading_failed(n, e);
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
        begin_load(n);
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
static struct session *unpark(struct entry *n)
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
static void end_list(struct session *list, const err *why)
{
    while (list) {
        struct session *s = list;
        list = s->next;
        session_end(s, why ? why : &s->failure);
    }
}

// READY, and everybody who waited goes on. Called with the lock held, which is let go meanwhile.
static void be_ready(struct entry *n)
{
    struct catalog *c = n->catalog;
    n->users += n->nparked;
    n->last_use_ns = clock_ns();
    n->wanted = n->victim = false;
    set_state(n, MODEL_READY);
    struct session *list = unpark(n);
    pthread_mutex_unlock(&c->lock);
    while (list) {
        struct session *s = list;
        list = s->next;
        go_on(n, s);
    }
    pthread_mutex_lock(&c->lock);
    if (n->unload_then && n->info.state == MODEL_READY)
        begin_unload(n, false);
}

// ---- the keeper

// Why a parked task must end now; *next: when to ask again.
static err_code must_end(const struct entry *n, const struct session *s, int64_t now, int64_t *next, err *e)
{
    const struct catalog_config *c = &n->catalog->config;
    const struct task *t = s->task;
    int64_t until = s->parked_ns + (int64_t)c->load_timeout_s * 1000000000;
    if (session_must_end(s, now, e))
        return e->code;
    if (t->begin_deadline_ns && now >= t->begin_deadline_ns)
        return err_set(e, ERR_LATE, "the request could not begin in time: model '%s' is not loaded", n->info.name);
    if (now >= until)
        return err_set_retry(e, ERR_LOADING, 5000, "model '%s' was not loaded within %d s", n->info.name,
                             c->load_timeout_s);
    if (t->deadline_ns && t->deadline_ns < until)
        until = t->deadline_ns;
    if (t->begin_deadline_ns && t->begin_deadline_ns < until)
        until = t->begin_deadline_ns;
    *next = until < *next ? until : *next;
    return ERR_OK;
}

// Moves the entry's parked tasks that must end to *list, each with its reason.
static void take_ended(struct entry *n, int64_t now, int64_t *next, struct session **list)
{
    struct session **at = &n->parked, *s;
    while ((s = *at)) {
        if (!must_end(n, s, now, next, &s->failure)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = *list;
        *list = s;
        n->nparked--;
        atomic_fetch_sub(&n->catalog->parked, 1);
    }
    n->parked_end = at;
    if (n->nparked == 0 && *list)
        pthread_cond_broadcast(&n->catalog->work);  // it may have been loading for them alone
}

static void unload_idle(struct entry *n, int64_t now, int64_t *next)
{
    int64_t idle = (int64_t)n->catalog->config.idle_unload_s * 1000000000;
    if (!idle || fixed(n) || n->info.state != MODEL_READY || n->users > 0)
        return;
    if (now >= n->last_use_ns + idle)
        begin_unload(n, false);
    else if (n->last_use_ns + idle < *next)
        *next = n->last_use_ns + idle;
}

static void *run_keeper(void *arg)
{
    struct catalog *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        int64_t now = clock_ns(), next = INT64_MAX;
        struct session *ended = NULL;
        for (int i = 0; i < c->nentries; i++) {
            take_ended(c->entries[i], now, &next, &ended);
            unload_idle(c->entries[i], now, &next);
        }
        if (ended) {
            pthread_mutex_unlock(&c->lock);
            end_list(ended, NULL);
            pthread_mutex_lock(&c->lock);
        } else if (next == INT64_MAX) {
            pthread_cond_wait(&c->tend, &c->lock);
        } else {
            struct timespec until = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};
            pthread_cond_timedwait(&c->tend, &c->lock, &until);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- the loader: memory

static size_t charges(const struct entry *n)
{
    size_t sum = 0;
    for (int i = 0; i < MEMORY_ACCOUNTS; i++)
        sum += n->charged[i];
    return sum;
}

static void give_account(struct entry *n, enum memory_account a)
{
    memory_give(n->catalog->config.memory, a, n->charged[a]);
    n->charged[a] = 0;
}

// All but the weights.
static void give_rest(struct entry *n)
{
    for (int i = 0; i < MEMORY_ACCOUNTS; i++)
        if (i != MEMORY_WEIGHTS)
            give_account(n, i);
}

static void give_back(struct entry *n)
{
    give_rest(n);
    give_account(n, MEMORY_WEIGHTS);
    n->info.resident_bytes = n->info.kv_bytes = 0;
    metrics_set(&n->metrics.memory_bytes, 0);
}

static bool take(struct entry *n, enum memory_account a, size_t bytes)
{
    bool ok = memory_take(n->catalog->config.memory, a, bytes);
    n->charged[a] += ok ? bytes : 0;
    return ok;
}

// What its weights will take: packed or used as they lie, that is what the tensors of its files add up to, nearly. 0: the files
// cannot be read; loading will say why.
static size_t weights_of(const char *path, int depth)
{
    struct weights *w;
    err e = {0};
    if (!path || weights_open(path, &w, &e))
        return 0;
    size_t bytes = weights_bytes(w);
    weights_close(w);
    if (bytes)
        return bytes + bytes / 64 + (64 << 10);
    DIR *d = depth ? opendir(path) : NULL;  // a pipeline: its parts are folders
    struct dirent *item;
    while (d && (item = readdir(d))) {
        char part[1024];
        int len = snprintf(part, sizeof part, "%s/%s", path, item->d_name);
        if (item->d_name[0] != '.' && len < (int)sizeof part && file_is_dir(part))
            bytes += weights_of(part, depth - 1);
    }
    if (d)
        closedir(d);
    return bytes;
}

static bool is_loaded(const struct entry *n)
{
    return n->served != NULL;
}

// What the pools of all models may have together.
static size_t kv_total(struct catalog *c)
{
    size_t total = memory_total(c->config.memory), weights = 0;
    if (c->config.kv_bytes)
        return c->config.kv_bytes;
    for (int i = 0; i < c->nentries; i++)
        weights += c->entries[i]->weights_need;
    size_t rest = weights < total ? (total - weights) / 2 : 0;
    return rest > total / 4 ? rest : total / 4;
}

// Models that have no pool yet share what is left equally; those that failed get none.
static size_t kv_share(struct catalog *c, const struct entry *n)
{
    size_t total = kv_total(c), held = 0, sharers = 1;
    for (int i = 0; i < c->nentries; i++) {
        const struct entry *o = c->entries[i];
        held += o->charged[MEMORY_KV];
        sharers += o != n && !is_loaded(o) && o->info.state != MODEL_FAILED;
    }
    return held < total ? (total - held) / sharers : 0;
}

// Taking everything that may go out of service would leave so much.
static size_t most_left(struct catalog *c)
{
    size_t left = memory_left(c->config.memory);
    for (int i = 0; i < c->nentries; i++) {
        const struct entry *n = c->entries[i];
        if (n->info.state == MODEL_UNLOADING || (n->info.state == MODEL_READY && !fixed(n)))
            left += charges(n);
    }
    return left;
}

static struct entry *next_victim(struct catalog *c)
{
    struct entry *best = NULL;
    for (int i = 0; i < c->nentries; i++) {
        struct entry *n = c->entries[i];
        if (n->info.state != MODEL_READY || fixed(n))
            continue;
        bool idle = n->users == 0, best_idle = best && best->users == 0;
        if (!best || (idle != best_idle ? idle : n->last_use_ns < best->last_use_ns))
            best = n;
    }
    return best;
}

// Enough of them go for `need` to fit once their tasks have ended. True: something changed.
static bool make_room(struct catalog *c, size_t need)
{
    size_t left = memory_left(c->config.memory);
    bool any = false;
    for (int i = 0; i < c->nentries; i++)
        if (c->entries[i]->info.state == MODEL_UNLOADING)
            left += charges(c->entries[i]);
    while (left < need) {
        struct entry *n = next_victim(c);
        if (!n)
            break;
        left += charges(n);
        begin_unload(n, true);
        c->counts.evictions++;
        any = true;
    }
    return any;
}

// What was going to make room stays: nobody needs it any more. Called with the lock held, which is let go meanwhile.
static void keep_victims(struct catalog *c)
{
    for (int i = 0; i < c->nentries; i++) {
        struct entry *n = c->entries[i];
        if (n->info.state == MODEL_UNLOADING && n->victim && !n->busy)
            be_ready(n);
    }
}

// ---- the loader: a model

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
    give_back(n);
    c->counts.failures++;
    metrics_count(&n->metrics.load_failures, 1);
    set_state(n, MODEL_FAILED);
    struct session *list = unpark(n);
    err e = {0};
    (void)loading_failed(n, &e);
    pthread_mutex_unlock(&c->lock);
    close_model(n);
    end_list(list, &e);
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
    metrics_set(&n->metrics.memory_bytes, (int64_t)charges(n));
}

// The second half: its weights are there, now what serving it takes. kv 0: it has no pool. Called with the lock held,
// which is let go meanwhile.
static void serve(struct entry *n, const struct served_needs *needs, size_t kv)
{
    struct catalog *c = n->catalog;
    err e = {0};
    if (!take(n, MEMORY_STEP, needs->step + needs->work_scratch) || !take(n, MEMORY_WORKS, needs->reserve) ||
        !take(n, MEMORY_KV, kv)) {
        give_rest(n);  // a running work took it meanwhile; the loader comes again
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
    c->counts.loads++;
    metrics_count(&n->metrics.loads, 1);
    be_ready(n);
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
    } else if (!take(n, MEMORY_WEIGHTS, m->resident_bytes - had)) {
        give_back(n);  // its files said less; it is opened again when there is room for all of it
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
    give_back(n);
    set_state(n, MODEL_UNLOADED);
    struct model *m = n->given ? NULL : n->model;
    n->model = n->given ? n->model : NULL;
    pthread_mutex_unlock(&c->lock);
    model_close(m);
    pthread_mutex_lock(&c->lock);
    keep_victims(c);
}

static bool no_room(struct entry *n, size_t need, size_t kv)
{
    struct catalog *c = n->catalog;
    bool may_evict = n->info.lazy || n->info.loaded_unix_s;
    size_t left = memory_left(c->config.memory), most = may_evict ? most_left(c) : left;
    if (need <= most)
        return make_room(c, need);
    if (may_evict && need <= most + memory_used(c->config.memory, MEMORY_WORKS))
        return false;  // what running tasks hold comes back
    err e = {0};
    size_t all = need + charges(n);
    err_set_param(&e, ERR_MEMORY, "memory", "it needs %zu bytes (%zu of them for keys and values), %zu of %zu can be had; the "
                  "setting 'memory' says how much all models may take", all, kv, most + charges(n),
                  memory_total(c->config.memory));
    fail(n, &e);
    return true;
}

// One step towards having the model. True: something was done. Called with the lock held, which may be let go meanwhile.
static bool load_step(struct entry *n)
{
    struct catalog *c = n->catalog;
    if (!n->wanted && n->nparked == 0) {
        give_up(n);
        return true;
    }
    if (!has_weights(n)) {
        if (!take(n, MEMORY_WEIGHTS, n->weights_need))
            return no_room(n, n->weights_need, 0);
        open_weights(n);
        return true;
    }
    struct served_needs needs;
    size_t kv = 0, least = 0;
    sched_needs(c->config.sched, n->model, &needs);
    if (needs.kv_page) {
        kv = kv_share(c, n);
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
    n->busy = true;
    pthread_mutex_unlock(&c->lock);
    sched_unserve(c->config.sched, n->served);
    served_close(n->served);
    close_model(n);
    pthread_mutex_lock(&c->lock);
    metrics_count(&n->metrics.evicted, n->victim);
    n->busy = n->victim = false;
    n->served = NULL;
    give_back(n);
    c->counts.unloads++;
    metrics_count(&n->metrics.unloads, 1);
    if (n->nparked > 0 || n->wanted)
        begin_load(n);
    else
        set_state(n, MODEL_UNLOADED);
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

static void *run_loader(void *arg)
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
    c->loading = pthread_create(&c->loader, NULL, run_loader, c) == 0;
    c->keeping = c->loading && pthread_create(&c->keeper, NULL, run_keeper, c) == 0;
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
        end_list(unpark(c->entries[i]), &e);
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
            begin_load(n);
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
        n->weights_need = weights_of(m->path, 1) + weights_of(m->vocoder, 0);
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

static void copy_info(const struct entry *n, const char *name, struct model_info *ret_info)
{
    *ret_info = n->info;
    ret_info->parked = n->nparked;
    ret_info->memory_bytes = charges(n);
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
            copy_info(c->entries[i], c->entries[i]->info.name, &ret_infos[n]);
    for (int i = 0; i < c->naliases; i++, n++)
        if (n < max)
            copy_info(c->aliases[i].of, c->aliases[i].name, &ret_infos[n]);
    pthread_mutex_unlock(&c->lock);
    return n;
}

bool catalog_find(struct catalog *c, const char *name, struct model_info *ret_info)
{
    pthread_mutex_lock(&c->lock);
    const struct entry *n = find_entry(c, name);
    if (n)
        copy_info(n, strcmp(n->info.name, name) == 0 ? n->info.name : name, ret_info);
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
        code = loading_failed(n, e);
    if (!code && n->info.state != MODEL_READY) {
        n->wanted = true;
        n->unload_then = false;
        if (n->info.state == MODEL_UNLOADED || n->info.state == MODEL_FAILED)
            begin_load(n);
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
    else if (fixed(n))
        code = err_set_param(e, ERR_INVALID, "model", "The model '%s' is pinned and stays in memory", name);
    else if (n->info.state == MODEL_READY)
        begin_unload(n, false);
    else {
        n->unload_then = n->info.state == MODEL_LOADING;  // who waits for it is served first
        n->wanted = false;
        pthread_cond_broadcast(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

void catalog_counts(struct catalog *c, struct catalog_counts *ret_counts)
{
    pthread_mutex_lock(&c->lock);
    *ret_counts = c->counts;
    pthread_mutex_unlock(&c->lock);
}
