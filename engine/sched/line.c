// line.c - see line.h: two lists under a lock. They are as long as there are slots at most, so that nothing need bound them.
#include "engine/sched/line.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/sched/session.h"

struct list {
    struct session *first, **end;
    char *last;  // account of the one that was taken last; NULL: the common one, or none was
};

struct line {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct list lists[2];  // by size
    int most_large, nlarge;
    bool closed;
};

struct line *line_new(int threads)
{
    struct line *l = mem_new(sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    for (int i = 0; i < 2; i++)
        l->lists[i].end = &l->lists[i].first;
    l->most_large = threads > 1 ? threads / 2 : 1;
    return l;
}

void line_free(struct line *l)
{
    if (!l)
        return;
    pthread_cond_destroy(&l->filled);
    pthread_mutex_destroy(&l->lock);
    for (int i = 0; i < 2; i++)
        free(l->lists[i].last);
    free(l);
}

bool line_push(struct line *l, struct session *s, enum line_size size)
{
    struct list *list = &l->lists[size];
    s->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool open = !l->closed;
    if (open) {
        *list->end = s;
        list->end = &s->next;
        pthread_cond_signal(&l->filled);
    }
    pthread_mutex_unlock(&l->lock);
    return open;
}

// Takes the session at *at out. Called with the lock held.
static struct session *take(struct list *list, struct session **at)
{
    struct session *s = *at;
    *at = s->next;
    if (!*at)
        list->end = at;
    s->next = NULL;
    return s;
}

static bool same_account(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

// The first whose account is not the one that was served last; the first, when all are of that one.
static struct session *take_next(struct list *list)
{
    struct session **at = &list->first;
    while (*at && same_account((*at)->task->account, list->last))
        at = &(*at)->next;
    struct session *s = take(list, *at ? at : &list->first);
    if (!same_account(s->task->account, list->last)) {
        free(list->last);
        list->last = s->task->account ? mem_strdup(s->task->account) : NULL;
    }
    return s;
}

// The list that is served next; NULL: there is nothing, or only what must wait for another large one.
static struct list *next_list(struct line *l)
{
    if (l->lists[LINE_LARGE].first && l->nlarge < l->most_large)
        return &l->lists[LINE_LARGE];
    return l->lists[LINE_SMALL].first ? &l->lists[LINE_SMALL] : NULL;
}

static bool is_over(const struct line *l)
{
    return l->closed && !l->lists[LINE_SMALL].first && !l->lists[LINE_LARGE].first;
}

struct session *line_pop(struct line *l, enum line_size *ret_size)
{
    struct session *s = NULL;
    struct list *list;
    pthread_mutex_lock(&l->lock);
    while (!(list = next_list(l)) && !is_over(l))
        pthread_cond_wait(&l->filled, &l->lock);
    if (list) {
        *ret_size = list == &l->lists[LINE_LARGE] ? LINE_LARGE : LINE_SMALL;
        l->nlarge += *ret_size == LINE_LARGE;
        s = take_next(list);
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

void line_done(struct line *l, enum line_size size)
{
    if (size == LINE_SMALL)
        return;
    pthread_mutex_lock(&l->lock);
    l->nlarge--;
    pthread_cond_broadcast(&l->filled);
    pthread_mutex_unlock(&l->lock);
}

struct session *line_take_ended(struct line *l, int64_t now_ns, err *ret_why)
{
    struct session *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < 2; i++)
        for (struct session **at = &l->lists[i].first; *at && !found; at = found ? at : &(*at)->next)
            if (session_must_end(*at, now_ns, ret_why))
                found = take(&l->lists[i], at);
    pthread_mutex_unlock(&l->lock);
    return found;
}

int64_t line_deadline(struct line *l)
{
    int64_t first = INT64_MAX;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < 2; i++)
        for (const struct session *s = l->lists[i].first; s; s = s->next)
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
