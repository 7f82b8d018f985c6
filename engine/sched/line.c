// line.c - see line.h: a list under a lock. It is as long as there are slots at most, so that nothing need bound it.
#include "engine/sched/line.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/sched/session.h"

struct line {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct session *first, **end;
    bool closed;
};

struct line *line_new(void)
{
    struct line *l = mem_new(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    l->end = &l->first;
    return l;
}

void line_free(struct line *l)
{
    if (!l)
        return;
    pthread_cond_destroy(&l->filled);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

bool line_push(struct line *l, struct session *s)
{
    s->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool open = !l->closed;
    if (open) {
        *l->end = s;
        l->end = &s->next;
        pthread_cond_signal(&l->filled);
    }
    pthread_mutex_unlock(&l->lock);
    return open;
}

// Takes the session at *at out. Called with the lock held.
static struct session *take(struct line *l, struct session **at)
{
    struct session *s = *at;
    *at = s->next;
    if (!*at)
        l->end = at;
    s->next = NULL;
    return s;
}

struct session *line_pop(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->first && !l->closed)
        pthread_cond_wait(&l->filled, &l->lock);
    struct session *s = l->first ? take(l, &l->first) : NULL;
    pthread_mutex_unlock(&l->lock);
    return s;
}

struct session *line_take_ended(struct line *l, int64_t now_ns, err *ret_why)
{
    struct session *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct session **at = &l->first; *at && !found; at = found ? at : &(*at)->next)
        if (session_must_end(*at, now_ns, ret_why))
            found = take(l, at);
    pthread_mutex_unlock(&l->lock);
    return found;
}

int64_t line_deadline(struct line *l)
{
    int64_t first = INT64_MAX;
    pthread_mutex_lock(&l->lock);
    for (const struct session *s = l->first; s; s = s->next)
        if (s->task->deadline_ns && s->task->deadline_ns < first)
            first = s->task->deadline_ns;
    pthread_mutex_unlock(&l->lock);
    return first;
}

void line_close(struct line *l)
{
    pthread_mutex_lock(&l->lock);
    l->closed = true;
    pthread_cond_broadcast(&l->filled);
    pthread_mutex_unlock(&l->lock);
}
