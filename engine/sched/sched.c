// sched.c - the scheduler's thread: takes what arrives, makes turns (turn.h), tells how it stands.
//
// Everything in struct sched above `lock` belongs to the scheduler thread; what is below it is shared and locked. Events
// are sent without the lock held. A plan is made, computed and worked off by the same thread, so it needs no lock either.
#include "engine/sched/sched.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/line.h"
#include "engine/sched/served.h"
#include "engine/sched/turn.h"
#include "kernels/team.h"

enum { PARK_MS = 500 };  // the longest sleep, so that the heartbeat goes on

struct sched {
    struct sched_core core;
    struct line *line;  // before the prep threads
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t wake, answered;
    bool woken, stopping, ready;
    err open_error;
    struct session *inbox, **inbox_end;
    struct served *models[SCHED_MAX_MODELS];
    int nmodels;
    struct served *leaving;        // sched_unserve waits for the thread to forget it
    int check_wanted, check_done;  // requests for sched_check, counted
    bool check_flush, check_ok;
    atomic_llong heartbeat_ns;
};

static void end_all(struct sched *s, const err *why)
{
    for (int i = 0; i < s->nmodels; i++) {
        struct served *m = s->models[i];
        while (m->nwaiting > 0)
            served_end(&s->core, m->waiting[--m->nwaiting], why);
        while (m->nrunning > 0)
            served_end_running(m, m->running[m->nrunning - 1], why);
    }
}

// ---- the thread

static void show_pages(const struct sched *s)
{
    for (int i = 0; i < s->nmodels; i++)
        served_show_pages(s->models[i], true);
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
    show_pages(s);
    pthread_cond_broadcast(&s->answered);
}

// Takes a model out of the list.
static void forget(struct sched *s)
{
    int i = 0;
    while (i < s->nmodels && s->models[i] != s->leaving)
        i++;
    if (i < s->nmodels)
        memmove(s->models + i, s->models + i + 1, (size_t)(--s->nmodels - i) * sizeof *s->models);
    s->leaving = NULL;
    show_pages(s);
    pthread_cond_broadcast(&s->answered);
}

// Takes what arrived; waits for something when `idle`. Returns false when the thread must end.
static bool receive(struct sched *s, bool idle)
{
    pthread_mutex_lock(&s->lock);
    show_pages(s);
    answer_check(s);
    if (s->leaving)
        forget(s);
    if (idle && !s->woken) {
        int64_t end = clock_ns() + PARK_MS * 1000000LL, deadline = line_deadline(s->line);
        end = deadline < end ? deadline : end;
        struct timespec until = {end / 1000000000, end % 1000000000};
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
        admit_arrive(x->owner, x);
    }
    return go_on;
}

static void sweep_line(struct sched *s, int64_t now)
{
    err why = {0};
    for (struct session *x; (x = line_take_ended(s->line, now, &why));)
        session_end(x, &why);
}

static bool turn(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->nmodels;
    pthread_mutex_unlock(&s->lock);
    sweep_line(s, clock_ns());
    return turn_make(&s->core, s->models, n);
}

// What can be done ahead when nobody waits for anything. True: something was done.
static bool use_rest(struct sched *s)
{
    bool any = false;
    pthread_mutex_lock(&s->lock);
    int n = s->nmodels;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n && !any; i++)
        any = s->models[i]->pool && kv_pool_warm(s->models[i]->pool);
    return any;
}

static void *run(void *arg)
{
    struct sched *s = arg;
    err e = {0};
    err_code code = team_open(s->core.config.threads, s->core.config.pin, &s->core.team, &e);
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    s->open_error = e;
    pthread_cond_broadcast(&s->answered);
    pthread_mutex_unlock(&s->lock);
    if (code)
        return NULL;
    bool worked = true;
    while (receive(s, !worked))
        worked = turn(s) || use_rest(s);
    err_set(&e, ERR_DRAINING, "the server is shutting down");
    end_all(s, &e);
    share_done(&s->core.share);
    team_close(s->core.team);
    return NULL;
}

static void wait_ready(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->ready)
        pthread_cond_wait(&s->answered, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

err_code sched_open(const struct sched_config *c, struct slot_table *slots, struct line *line, struct sched **ret_sched,
                    err *e)
{
    struct sched *s = mem_new(sizeof *s);
    s->core.config = *c;
    s->core.slots = slots;
    s->core.now_ns = clock_ns;
    s->line = line;
    s->inbox_end = &s->inbox;
    if (s->core.config.prefill_chunk <= 0)
        s->core.config.prefill_chunk = SCHED_MAX_CHUNK;
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

err_code sched_serve(struct sched *s, struct model *model, struct metrics *metrics, size_t kv_bytes,
                     struct served **ret_served, err *e)
{
    struct served *m;
    if (served_open(&s->core, model, metrics, kv_bytes, &m, e))
        return e ? e->code : ERR_INTERNAL;
    pthread_mutex_lock(&s->lock);
    bool ok = s->nmodels < SCHED_MAX_MODELS;
    if (ok)
        s->models[s->nmodels++] = m;
    pthread_mutex_unlock(&s->lock);
    if (!ok) {
        served_close(m);
        return err_set(e, ERR_UNSUPPORTED, "more than %d models", SCHED_MAX_MODELS);
    }
    *ret_served = m;
    return ERR_OK;
}

void sched_unserve(struct sched *s, struct served *m)
{
    assert(m->nwaiting == 0 && m->nrunning == 0);
    pthread_mutex_lock(&s->lock);
    s->leaving = m;
    s->woken = true;
    pthread_cond_signal(&s->wake);
    while (s->leaving)
        pthread_cond_wait(&s->answered, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void sched_needs(struct sched *s, const struct model *m, struct served_needs *ret_needs)
{
    served_needs(m, &s->core.config, team_size(s->core.team), ret_needs);
}

int sched_max_running(const struct sched *s)
{
    return s->core.config.max_running;
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

int64_t sched_heartbeat_ns(const struct sched *s)
{
    return atomic_load(&s->heartbeat_ns);
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
