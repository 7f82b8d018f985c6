// pool.c - see pool.h. The threads share one bounded queue; nothing here belongs to the loop.
#include "server/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/queue.h"

enum { THREADS_MAX = 16, JOBS_MAX = 4096 };

struct entry {
    pool_job *job;
    void *arg;
};

struct pool {
    atomic_int refs;
    struct queue *jobs;
    pthread_t threads[THREADS_MAX];
    int nthreads;
};

static void *run(void *arg)
{
    struct pool *p = arg;
    struct entry *e;
    while ((e = queue_pop(p->jobs))) {
        e->job(e->arg);
        free(e);
    }
    return NULL;
}

struct pool *pool_open(int threads)
{
    struct pool *p = mem_new(sizeof *p);
    atomic_init(&p->refs, 1);
    p->jobs = queue_new(JOBS_MAX);
    while (p->nthreads < threads && p->nthreads < THREADS_MAX &&
           pthread_create(&p->threads[p->nthreads], NULL, run, p) == 0)
        p->nthreads++;
    if (p->nthreads > 0)
        return p;
    pool_unref(p);
    return NULL;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    queue_close(p->jobs);
    for (int i = 0; i < p->nthreads; i++)
        pthread_join(p->threads[i], NULL);
    p->nthreads = 0;
}

struct pool *pool_ref(struct pool *p)
{
    if (p)
        atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void pool_unref(struct pool *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    queue_free(p->jobs);
    free(p);
}

bool pool_post(struct pool *p, pool_job *job, void *arg)
{
    if (!p)
        return false;
    struct entry *e = mem_new(sizeof *e);
    *e = (struct entry){job, arg};
    if (queue_push(p->jobs, e))
        return true;
    free(e);
    return false;
}
