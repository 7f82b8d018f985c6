// catalog_keeper.c - the keeper's thread: ends parked tasks that nobody waits for or that waited too long, and unloads
// models that are idle.
#include "engine/catalog_int.h"

#include "base/clock.h"
#include "engine/sched/session.h"

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
    if (!idle || catalog_fixed(n) || n->info.state != MODEL_READY || n->users > 0)
        return;
    if (now >= n->last_use_ns + idle)
        catalog_begin_unload(n, FOR_IDLENESS, NULL);
    else if (n->last_use_ns + idle < *next)
        *next = n->last_use_ns + idle;
}

void *catalog_keeper_run(void *arg)
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
            catalog_end_list(ended, NULL);
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
