#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    size_t head, len, cap;
    bool closed;
    void *items[];
};

struct queue *queue_new(size_t capacity)
{
    struct queue *q = mem_new(sizeof *q + capacity * sizeof(void *));
    q->cap = capacity;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->filled, NULL);
    return q;
}

void queue_free(struct queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

bool queue_push(struct queue *q, void *item)
{
    pthread_mutex_lock(&q->lock);
    bool ok = !q->closed && q->len < q->cap;
    if (ok) {
        q->items[(q->head + q->len++) % q->cap] = item;
        pthread_cond_signal(&q->filled);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

static void *take(struct queue *q)
{
    if (q->len == 0)
        return NULL;
    void *item = q->items[q->head];
    q->head = (q->head + 1) % q->cap;
    q->len--;
    return item;
}

void *queue_pop(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->len == 0 && !q->closed)
        pthread_cond_wait(&q->filled, &q->lock);
    void *item = take(q);
    pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
}
