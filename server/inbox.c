// A bounded-by-construction FIFO: an exchange is in it at most once, so it is no longer than the exchanges there are.
// The loop is woken only when the inbox was empty: a batch of tokens for many streams costs one wake-up.
#include "server/inbox.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "server/exchange.h"
#include "server/state.h"

struct inbox {
    atomic_int refs;
    pthread_t loop_thread;
    pthread_mutex_t lock;
    uv_async_t *wake;  // NULL: closed
    struct exchange **items;
    size_t head, len, cap;
};

struct inbox *inbox_new(uv_async_t *wake)
{
    struct inbox *in = mem_new(sizeof *in);
    atomic_init(&in->refs, 1);
    in->loop_thread = pthread_self();
    pthread_mutex_init(&in->lock, NULL);
    in->wake = wake;
    return in;
}

struct inbox *inbox_ref(struct inbox *in)
{
    atomic_fetch_add(&in->refs, 1);
    return in;
}

void inbox_unref(struct inbox *in)
{
    if (!in || atomic_fetch_sub(&in->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&in->lock);
    free(in->items);
    free(in);
}

static void grow(struct inbox *in)
{
    size_t cap = in->cap ? in->cap * 2 : 64;
    struct exchange **items = mem_new(cap * sizeof(struct exchange *));
    for (size_t i = 0; i < in->len; i++)
        items[i] = in->items[(in->head + i) % in->cap];
    free(in->items);
    in->items = items;
    in->cap = cap;
    in->head = 0;
}

bool inbox_post(struct inbox *in, struct exchange *x)
{
    pthread_mutex_lock(&in->lock);
    bool open = in->wake != NULL;
    if (open && !x->posted) {
        x->posted = true;
        exchange_ref(x);
        if (in->len == in->cap)
            grow(in);
        in->items[(in->head + in->len) % in->cap] = x;
        if (in->len++ == 0)
            uv_async_send(in->wake);
    }
    pthread_mutex_unlock(&in->lock);
    return open;
}

struct exchange *inbox_take(struct inbox *in)
{
    struct exchange *x = NULL;
    pthread_mutex_lock(&in->lock);
    if (in->len) {
        x = in->items[in->head];
        in->head = (in->head + 1) % in->cap;
        in->len--;
        x->posted = false;
    }
    pthread_mutex_unlock(&in->lock);
    return x;
}

void inbox_close(struct inbox *in)
{
    if (!in)
        return;
    pthread_mutex_lock(&in->lock);
    in->wake = NULL;
    pthread_mutex_unlock(&in->lock);
    for (struct exchange *x; (x = inbox_take(in));) {
        if (x->again)  // its handler will not be called, so the handler's reference is given back here
            exchange_unref(x);
        exchange_unref(x);
    }
}

bool inbox_on_loop_thread(const struct inbox *in)
{
    return pthread_equal(in->loop_thread, pthread_self());
}
