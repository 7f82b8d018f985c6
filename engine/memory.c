// memory.c - the budget's arithmetic. Any thread; the lock is held for a few instructions.
#include "engine/memory.h"

#include <assert.h>

#include "base/bytes.h"
#include "kernels/host.h"

static const size_t DAEMON_BYTES = (size_t)64 << 20, RESERVE_BYTES = (size_t)256 << 20;
enum { RESERVE_PERCENT = 5 };

size_t memory_budget_of(size_t machine)
{
    size_t reserve = machine / 100 * RESERVE_PERCENT;
    reserve = (reserve > RESERVE_BYTES ? reserve : RESERVE_BYTES) + DAEMON_BYTES;
    return machine > reserve ? machine - reserve : 0;
}

size_t memory_budget(size_t setting)
{
    return setting ? setting : memory_budget_of(host_memory());
}

size_t memory_share(int percent)
{
    return host_memory() / 100 * (size_t)percent;
}

void memory_init(struct memory *m, size_t total)
{
    *m = (struct memory){.total = total};
    pthread_mutex_init(&m->lock, NULL);
}

void memory_done(struct memory *m)
{
    pthread_mutex_destroy(&m->lock);
}

static size_t left_locked(const struct memory *m)
{
    size_t used = 0;
    for (int i = 0; i < MEMORY_ACCOUNTS; i++)
        used += m->used[i];
    return m->total - used;
}

bool memory_take(struct memory *m, enum memory_account a, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    bool ok = bytes <= left_locked(m);
    m->used[a] += ok ? bytes : 0;
    pthread_mutex_unlock(&m->lock);
    return ok;
}

err_code memory_charge(struct memory *m, enum memory_account a, size_t bytes, const char *what, err *e)
{
    if (memory_take(m, a, bytes))
        return ERR_OK;
    char need[BYTES_TEXT], left[BYTES_TEXT], all[BYTES_TEXT];
    return err_set_param(e, ERR_MEMORY, "memory", "%s: %s are needed, %s of %s are left; the setting 'memory' says how much all models may "
                         "take", what, bytes_text(bytes, need), bytes_text(memory_left(m), left), bytes_text(m->total, all));
}

void memory_give(struct memory *m, enum memory_account a, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    assert(bytes <= m->used[a]);
    m->used[a] -= bytes;
    pthread_mutex_unlock(&m->lock);
}

size_t memory_left(struct memory *m)
{
    pthread_mutex_lock(&m->lock);
    size_t left = left_locked(m);
    pthread_mutex_unlock(&m->lock);
    return left;
}

size_t memory_total(const struct memory *m)
{
    return m->total;
}

size_t memory_used(struct memory *m, enum memory_account a)
{
    pthread_mutex_lock(&m->lock);
    size_t used = m->used[a];
    pthread_mutex_unlock(&m->lock);
    return used;
}
