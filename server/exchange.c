// Lifetime of exchanges. Freed by whichever thread drops the last reference; everything in it is then free of MHD and
// uv.
#include "server/exchange.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/state.h"

struct exchange *exchange_new(struct server *s, const char *target)
{
    struct exchange *x = mem_new(sizeof *x);
    atomic_init(&x->refs, 1);
    x->inbox = inbox_ref(s->inbox);
    x->r.server = s;
    x->r.method = x->r.path = x->r.tail = x->r.id = x->r.key_id = x->r.peer = "";
    x->uri = (struct uri){"", "", NULL};
    x->begun_ns = clock_ns();
    x->target = arena_strdup(&x->r.arena, target);
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&x->gone_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    return x;
}

struct exchange *exchange_ref(struct exchange *x)
{
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

void exchange_unref(struct exchange *x)
{
    if (!x || atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1)
        return;
    exchange_settle(x);
    arena_done(&x->r.arena);
    free(x->r.body);
    free(x->reply_body);
    free(x->ring);
    auth_unref(x->keys);
    pthread_mutex_destroy(&x->lock);
    pthread_mutex_destroy(&x->gone_lock);
    inbox_unref(x->inbox);
    free(x);
}

struct exchange *exchange_of(const struct request *r)
{
    return (struct exchange *)(uintptr_t)r;  // r is its first member
}

void exchange_settle(struct exchange *x)
{
    struct quota_account *a = atomic_exchange(&x->quota, NULL);
    if (!a)
        return;
    pthread_mutex_lock(&x->lock);
    int64_t used = (int64_t)x->facts.prompt_tokens + x->facts.completion_tokens;
    pthread_mutex_unlock(&x->lock);
    quota_spend(a, used - x->estimate);
    quota_release(a);
}

bool exchange_end(struct exchange *x)
{
    exchange_settle(x);  // before the caller can know that it may come again
    pthread_mutex_lock(&x->gone_lock);
    x->ended = true;
    bool wanted = !x->gone;
    pthread_mutex_unlock(&x->gone_lock);
    return wanted;
}

void exchange_gone(struct exchange *x)
{
    if (!x->taken)
        return;
    pthread_mutex_lock(&x->gone_lock);
    if (!x->ended && !x->gone) {
        x->gone = true;
        pthread_mutex_lock(&x->lock);
        x->closed = true;
        pthread_mutex_unlock(&x->lock);
        if (x->r.on_gone)
            x->r.on_gone(&x->r);
    }
    pthread_mutex_unlock(&x->gone_lock);
}

void exchange_quiet(struct exchange *x)
{
    void (*on_quiet)(struct request *r) = x->r.on_quiet;
    pthread_mutex_lock(&x->gone_lock);
    if (x->taken && !x->ended && !x->gone && on_quiet) {
        x->r.on_quiet = NULL;
        on_quiet(&x->r);
    }
    pthread_mutex_unlock(&x->gone_lock);
}

bool exchange_ended(struct exchange *x, const err *e)
{
    bool said = false;
    pthread_mutex_lock(&x->gone_lock);
    if (x->taken && !x->ended && !x->gone && x->r.on_ended)
        said = x->r.on_ended(&x->r, e);
    pthread_mutex_unlock(&x->gone_lock);
    return said;
}

void exchange_fail(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->closed = x->failed = true;
    pthread_mutex_unlock(&x->lock);
}

void exchange_post(struct exchange *x)
{
    if (inbox_on_loop_thread(x->inbox) && x->in_handler)
        return;
    inbox_post(x->inbox, x);
}
