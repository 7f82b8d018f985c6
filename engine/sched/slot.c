// slot.c - tickets and cancel words. Any thread; the lock is held for a few instructions.
#include "engine/sched/slot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

struct slot {
    _Atomic uint64_t word;  // generation << 1 | cancelled
    _Atomic int64_t cancel_ns;
};

struct slot_table {
    pthread_mutex_t lock;
    int count, nfree, waiting, max_waiting;
    uint32_t *free;  // stack of unused slots
    struct slot *slots;
};

struct slot_table *slot_open(int max_waiting, int max_running)
{
    struct slot_table *t = mem_new(sizeof *t);
    t->count = t->nfree = max_waiting + max_running;
    t->max_waiting = max_waiting;
    t->free = mem_new((size_t)t->count * sizeof *t->free);
    t->slots = mem_new((size_t)t->count * sizeof *t->slots);
    for (int i = 0; i < t->count; i++) {
        t->free[i] = (uint32_t)(t->count - 1 - i);
        atomic_store(&t->slots[i].word, 1u << 1);
    }
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void slot_close(struct slot_table *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    free(t->free);
    free(t->slots);
    free(t);
}

err_code slot_take(struct slot_table *t, struct ticket *ret_ticket, err *e)
{
    pthread_mutex_lock(&t->lock);
    int waiting = t->waiting;
    bool ok = waiting < t->max_waiting && t->nfree > 0;
    if (ok) {
        uint32_t i = t->free[--t->nfree];
        t->waiting++;
        *ret_ticket = (struct ticket){i, (uint32_t)(atomic_load(&t->slots[i].word) >> 1)};
    }
    pthread_mutex_unlock(&t->lock);
    if (!ok)
        return err_set(e, ERR_BUSY, "%d requests are waiting, at most %d may", waiting, t->max_waiting);
    return ERR_OK;
}

void slot_begin(struct slot_table *t)
{
    pthread_mutex_lock(&t->lock);
    t->waiting--;
    pthread_mutex_unlock(&t->lock);
}

void slot_give(struct slot_table *t, struct ticket ticket, bool waiting)
{
    struct slot *s = &t->slots[ticket.slot];
    pthread_mutex_lock(&t->lock);
    atomic_store(&s->word, (uint64_t)(uint32_t)(ticket.generation + 1) << 1);
    atomic_store(&s->cancel_ns, 0);
    t->free[t->nfree++] = ticket.slot;
    t->waiting -= waiting;
    pthread_mutex_unlock(&t->lock);
}

bool slot_cancel(struct slot_table *t, struct ticket ticket)
{
    if (ticket.slot >= (uint32_t)t->count)
        return false;
    struct slot *s = &t->slots[ticket.slot];
    uint64_t live = (uint64_t)ticket.generation << 1;
    int64_t now = clock_ns();
    if (!atomic_compare_exchange_strong(&s->word, &live, live | 1))
        return false;
    atomic_store(&s->cancel_ns, now);
    return true;
}

bool slot_cancelled(const struct slot_table *t, struct ticket ticket)
{
    return atomic_load_explicit(&t->slots[ticket.slot].word, memory_order_acquire) & 1;
}

int64_t slot_cancel_ns(const struct slot_table *t, struct ticket ticket)
{
    return atomic_load(&t->slots[ticket.slot].cancel_ns);
}

int slot_count(const struct slot_table *t)
{
    return t->count;
}

int slot_waiting(struct slot_table *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->waiting;
    pthread_mutex_unlock(&t->lock);
    return n;
}

int slot_unused(struct slot_table *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->nfree;
    pthread_mutex_unlock(&t->lock);
    return n;
}
