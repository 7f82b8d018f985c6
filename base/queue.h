// queue.h - bounded FIFO of pointers between threads. Pushing never waits: a full queue refuses.
//
//     producer: if (!queue_push(q, job)) -> ERR_BUSY
//     consumer: while ((job = queue_pop(q))) ...     // NULL once the queue is closed and empty
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct queue;

struct queue *queue_new(size_t capacity);
void queue_free(struct queue *q);  // nobody may be waiting in it

bool queue_push(struct queue *q, void *item);  // false: full or closed; item is not NULL
void *queue_pop(struct queue *q);              // waits; NULL: closed and empty
void queue_close(struct queue *q);             // no more pushes; waiting poppers wake
