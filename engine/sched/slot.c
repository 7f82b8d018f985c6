// slot.c - tickets, cancel words and the queue's bounds. Any thread; the lock is held for a few instructions.
#include "engine/sched/slot.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"

enum { SHARE = 4, NONE = -1, MIN_RETRY_MS = 1000, MAX_RETRY_MS = 60000 };

static const double RATE_S = 30;  // over which what leaves the queue is averaged

struct amount {
    int n;
    size_t tokens, bytes;
};

struct slot {
    _Atomic uint64_t word;  // generation << 1 | cancelled
    _Atomic int64_t cancel_ns;
    int account;
    struct amount load;  // as long as it waits
};

struct account {
    char *name;
    int next;    // in its bucket, or among the free ones
    int tasks;   // waiting and running; 0: free
    struct amount waiting;
};

struct slot_table {
    pthread_mutex_t lock;
    struct slot_limits limits;
    int count, nfree;
    uint32_t *free;  // stack of unused slots
    struct slot *slots;
    struct amount waiting;
    struct account *accounts;  // [count]
    int *buckets, nbuckets, free_account, naccounts;
    double rate_n, rate_tokens;  // that leave the queue, a second
    int64_t opened_ns, rated_ns;
    uint64_t refusals;
};

struct slot_table *slot_open(const struct slot_limits *limits)
{
    struct slot_table *t = mem_new(sizeof *t);
    t->limits = *limits;
    t->count = t->nfree = t->nbuckets = limits->max_waiting + limits->max_running;
    t->free = mem_new((size_t)t->count * sizeof *t->free);
    t->slots = mem_new((size_t)t->count * sizeof *t->slots);
    t->accounts = mem_new((size_t)t->count * sizeof *t->accounts);
    t->buckets = mem_new((size_t)t->nbuckets * sizeof *t->buckets);
    for (int i = 0; i < t->count; i++) {
        t->free[i] = (uint32_t)(t->count - 1 - i);
        atomic_store(&t->slots[i].word, 1u << 1);
        t->accounts[i].next = i + 1 < t->count ? i + 1 : NONE;
        t->buckets[i] = NONE;
    }
    t->opened_ns = t->rated_ns = clock_ns();
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void slot_close(struct slot_table *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    for (int i = 0; i < t->count; i++)
        free(t->accounts[i].name);
    free(t->accounts);
    free(t->buckets);
    free(t->free);
    free(t->slots);
    free(t);
}

// ---- accounts

static int *bucket_of(struct slot_table *t, const char *name)
{
    return &t->buckets[map_hash(name, strlen(name)) % (unsigned)t->nbuckets];
}

static int find_account(struct slot_table *t, const char *name)
{
    int i = *bucket_of(t, name);
    while (i != NONE && strcmp(t->accounts[i].name, name) != 0)
        i = t->accounts[i].next;
    return i;
}

// There are as many accounts as slots, so one is free whenever a slot is.
static int add_account(struct slot_table *t, const char *name)
{
    int i = t->free_account, *bucket = bucket_of(t, name);
    struct account *a = &t->accounts[i];
    t->free_account = a->next;
    *a = (struct account){.name = mem_strdup(name), .next = *bucket};
    *bucket = i;
    t->naccounts++;
    return i;
}

static void drop_account(struct slot_table *t, int i)
{
    struct account *a = &t->accounts[i];
    int *at = bucket_of(t, a->name);
    while (*at != i)
        at = &t->accounts[*at].next;
    *at = a->next;
    free(a->name);
    a->name = NULL;
    a->next = t->free_account;
    t->free_account = i;
    t->naccounts--;
}

// ---- bounds

static void add(struct amount *a, const struct amount *b)
{
    a->n += b->n;
    a->tokens += b->tokens;
    a->bytes += b->bytes;
}

static void subtract(struct amount *a, const struct amount *b)
{
    a->n -= b->n;
    a->tokens -= b->tokens;
    a->bytes -= b->bytes;
}

static bool over(size_t have, size_t more, size_t limit)
{
    return limit && have && (more > limit || have > limit - more);
}

// Which bound the load would break: its unit, what is there and what may be. NULL: none.
static const char *broken(const struct amount *have, const struct amount *more, const struct slot_limits *l, int part,
                          size_t *ret_have, size_t *ret_limit)
{
    size_t waiting = (size_t)l->max_waiting / (size_t)part;
    const struct {
        const char *unit;
        size_t have, more, limit;
    } bounds[] = {
        {"requests", (size_t)have->n, (size_t)more->n, waiting ? waiting : 1},
        {"prompt tokens", have->tokens, more->tokens, l->max_tokens / (size_t)part},
        {"bytes of requests", have->bytes, more->bytes, l->max_bytes / (size_t)part},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (over(bounds[i].have, bounds[i].more, bounds[i].limit)) {
            *ret_have = bounds[i].have;
            *ret_limit = bounds[i].limit;
            return bounds[i].unit;
        }
    return NULL;
}

// ---- how long

static void fade(struct slot_table *t, int64_t now)
{
    double keep = exp(-(double)(now - t->rated_ns) * 1e-9 / RATE_S);
    t->rate_n *= keep;
    t->rate_tokens *= keep;
    t->rated_ns = now;
}

// Until so much of the queue has left that there is room again with a fifth to spare: queue and the load itself, by what
// leaves the queue in a second. A young table has averaged over less than its time.
static int retry_ms(struct slot_table *t, const struct amount *have, const struct amount *more, int part, int sharers)
{
    int64_t now = clock_ns();
    fade(t, now);
    double seen = 1 - exp(-(double)(now - t->opened_ns) * 1e-9 / RATE_S);
    double each = seen > 0 ? 1 / (seen * sharers) : 0, ms = 0;
    double n = (double)(have->n + more->n) - 0.8 * t->limits.max_waiting / part;
    double tokens = (double)(have->tokens + more->tokens) - 0.8 * (double)t->limits.max_tokens / part;
    if (t->rate_n > 0 && n > 0)
        ms = 1000 * n / (t->rate_n * each);
    if (t->rate_tokens > 0 && t->limits.max_tokens && 1000 * tokens / (t->rate_tokens * each) > ms)
        ms = 1000 * tokens / (t->rate_tokens * each);
    ms = ms < MIN_RETRY_MS ? MIN_RETRY_MS : ms > MAX_RETRY_MS ? MAX_RETRY_MS : ms;
    return (int)(ms * (0.8 + 0.4 * rng_unit(7, ++t->refusals, 0)));  // so that those refused together do not come together
}

static err_code refuse(struct slot_table *t, const struct slot_load *load, const struct amount *more, int account, err *e)
{
    size_t have, limit;
    const char *unit = broken(&t->waiting, more, &t->limits, 1, &have, &limit);
    if (unit)
        return err_set_retry(e, ERR_BUSY, retry_ms(t, &t->waiting, more, 1, 1), "%zu %s are waiting, at most %zu may", have,
                             unit, limit);
    if (t->nfree == 0)
        return err_set_retry(e, ERR_BUSY, retry_ms(t, &t->waiting, more, 1, 1), "%d requests are waiting, at most %d may",
                             t->waiting.n, t->limits.max_waiting);
    bool alone = t->naccounts == (account != NONE);
    if (alone || account == NONE)
        return ERR_OK;
    const struct amount *mine = &t->accounts[account].waiting;
    unit = broken(mine, more, &t->limits, SHARE, &have, &limit);
    if (!unit)
        return ERR_OK;
    return err_set_retry(e, ERR_QUOTA, retry_ms(t, mine, more, SHARE, t->naccounts),
                         "%zu %s of %s are waiting, at most %zu may while others use the server", have, unit,
                         load->account ? "this caller" : "callers without a key", limit);
}

err_code slot_take(struct slot_table *t, const struct slot_load *load, struct ticket *ret_ticket, err *e)
{
    const char *name = load->account ? load->account : "";
    struct amount more = {load->n > 0 ? load->n : 1, load->tokens, load->bytes};
    pthread_mutex_lock(&t->lock);
    int account = find_account(t, name);
    err_code code = refuse(t, load, &more, account, e);
    if (!code) {
        if (account == NONE)
            account = add_account(t, name);
        uint32_t i = t->free[--t->nfree];
        t->slots[i].account = account;
        t->slots[i].load = more;
        t->accounts[account].tasks++;
        add(&t->accounts[account].waiting, &more);
        add(&t->waiting, &more);
        *ret_ticket = (struct ticket){i, (uint32_t)(atomic_load(&t->slots[i].word) >> 1)};
    }
    pthread_mutex_unlock(&t->lock);
    return code;
}

err_code slot_room(struct slot_table *t, const struct slot_load *load, err *e)
{
    struct amount more = {load->n > 0 ? load->n : 1, load->tokens, load->bytes};
    pthread_mutex_lock(&t->lock);
    err_code code = refuse(t, load, &more, find_account(t, load->account ? load->account : ""), e);
    pthread_mutex_unlock(&t->lock);
    return code;
}

void slot_refine(struct slot_table *t, struct ticket ticket, size_t tokens)
{
    struct slot *s = &t->slots[ticket.slot];
    pthread_mutex_lock(&t->lock);
    struct account *a = &t->accounts[s->account];
    a->waiting.tokens += tokens - s->load.tokens;  // unsigned: a smaller one wraps and comes out right
    t->waiting.tokens += tokens - s->load.tokens;
    s->load.tokens = tokens;
    pthread_mutex_unlock(&t->lock);
}

static void leave_queue(struct slot_table *t, struct slot *s)
{
    subtract(&t->waiting, &s->load);
    subtract(&t->accounts[s->account].waiting, &s->load);
    s->load = (struct amount){0};
}

void slot_begin(struct slot_table *t, struct ticket ticket)
{
    struct slot *s = &t->slots[ticket.slot];
    pthread_mutex_lock(&t->lock);
    fade(t, clock_ns());
    t->rate_n += s->load.n / RATE_S;
    t->rate_tokens += (double)s->load.tokens / RATE_S;
    leave_queue(t, s);
    pthread_mutex_unlock(&t->lock);
}

void slot_give(struct slot_table *t, struct ticket ticket, bool waiting)
{
    struct slot *s = &t->slots[ticket.slot];
    pthread_mutex_lock(&t->lock);
    if (waiting)
        leave_queue(t, s);
    if (--t->accounts[s->account].tasks == 0)
        drop_account(t, s->account);
    atomic_store(&s->word, (uint64_t)(uint32_t)(ticket.generation + 1) << 1);
    atomic_store(&s->cancel_ns, 0);
    t->free[t->nfree++] = ticket.slot;
    pthread_mutex_unlock(&t->lock);
}

// ---- cancel words

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

// ---- counts

int slot_count(const struct slot_table *t)
{
    return t->count;
}

int slot_waiting(struct slot_table *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->waiting.n;
    pthread_mutex_unlock(&t->lock);
    return n;
}

size_t slot_waiting_tokens(struct slot_table *t)
{
    pthread_mutex_lock(&t->lock);
    size_t n = t->waiting.tokens;
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
