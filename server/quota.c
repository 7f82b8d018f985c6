// See the header. Other threads only add to `owed` and take from `running`; the loop settles what is owed when it looks.
#include "server/quota.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

enum { MINUTE_MS = 60000 };

// level is in millionths of a unit, so that whole nanoseconds of a slow limit are not lost.
struct bucket {
    int64_t per_minute;  // 0: not limited
    int64_t level, at_ns;
};

struct quota_account {
    atomic_int refs;
    atomic_llong owed;     // tokens spent beyond the estimates
    atomic_llong running;
    struct bucket requests, tokens;
};

struct quota {
    struct map *names;
    struct quota_account **accounts;
    int n, cap;
};

static const int64_t unit = 1000000;

struct quota *quota_new(void)
{
    struct quota *q = mem_new(sizeof *q);
    q->names = map_new(64);
    return q;
}

static void unref(struct quota_account *a)
{
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
        free(a);
}

void quota_free(struct quota *q)
{
    if (!q)
        return;
    for (int i = 0; i < q->n; i++)
        unref(q->accounts[i]);
    free(q->accounts);
    map_free(q->names);
    free(q);
}

static struct quota_account *account_of(struct quota *q, const char *name)
{
    uint32_t i;
    if (map_get(q->names, name, strlen(name), &i))
        return q->accounts[i];
    if (q->n == q->cap) {
        q->cap = q->cap ? 2 * q->cap : 16;
        q->accounts = mem_resize(q->accounts, (size_t)q->cap * sizeof *q->accounts);
    }
    struct quota_account *a = mem_new(sizeof *a);
    atomic_init(&a->refs, 1);
    map_put(q->names, name, strlen(name), (uint32_t)q->n);
    return q->accounts[q->n++] = a;
}

// ---- buckets

// A new or changed limit starts full, less what the old one had been used.
static void set_limit(struct bucket *b, int64_t per_minute, int64_t now_ns)
{
    if (b->per_minute == per_minute)
        return;
    int64_t used = b->per_minute ? b->per_minute * unit - b->level : 0;
    *b = (struct bucket){per_minute, per_minute * unit - used, now_ns};
}

static void refill(struct bucket *b, int64_t now_ns)
{
    __int128 more = (__int128)(now_ns - b->at_ns) * b->per_minute * unit / ((int64_t)MINUTE_MS * 1000000);
    int64_t full = b->per_minute * unit;
    b->at_ns = now_ns;
    b->level = more >= full - b->level ? full : b->level + (int64_t)more;
}

// Milliseconds, rounded up, until the bucket holds so many millionths.
static int64_t wait_ms(const struct bucket *b, int64_t want)
{
    if (b->level >= want)
        return 0;
    __int128 rate = (__int128)b->per_minute * unit;
    return (int64_t)(((__int128)(want - b->level) * MINUTE_MS + rate - 1) / rate);
}

static void say(const struct bucket *b, struct quota_state *ret)
{
    *ret = (struct quota_state){b->per_minute, 0, 0};
    if (!b->per_minute)
        return;
    ret->remaining = b->level > 0 ? b->level / unit : 0;
    ret->reset_ms = wait_ms(b, b->per_minute * unit);
}

static err_code refuse(const char *name, const char *what, const struct bucket *b, int64_t wanted, err *e)
{
    int64_t ms = wait_ms(b, wanted * unit), used = (b->per_minute * unit - b->level + unit - 1) / unit;
    return err_set_retry(e, ERR_QUOTA, (int)(ms < QUOTA_RETRY_MAX_MS ? ms : QUOTA_RETRY_MAX_MS),
                         "Rate limit reached for the API key '%s' on %s per minute: limit %lld, used %lld, requested %lld. "
                         "Please try again in %lld.%03lld s.",
                         name, what, (long long)b->per_minute, (long long)used, (long long)wanted, (long long)(ms / 1000),
                         (long long)(ms % 1000));
}

// ---- accounts

static void settle(struct quota_account *a, const struct quota_limits *l, int64_t now_ns)
{
    set_limit(&a->requests, l->rpm, now_ns);
    set_limit(&a->tokens, l->tpm, now_ns);
    refill(&a->requests, now_ns);
    refill(&a->tokens, now_ns);
    int64_t full = a->tokens.per_minute * unit;
    int64_t level = a->tokens.level - (int64_t)atomic_exchange(&a->owed, 0) * unit;
    a->tokens.level = !full ? 0 : level < full ? level : full;
}

err_code quota_take(struct quota *q, const char *name, const struct quota_limits *limits, int64_t tokens, int64_t now_ns,
                    struct quota_account **ret_account, err *e)
{
    enum { CONCURRENT_RETRY_MS = 1000 };  // when another request ends is not known
    struct quota_account *a = account_of(q, name);
    settle(a, limits, now_ns);
    int64_t need = tokens < limits->tpm ? tokens : limits->tpm;
    long long running = atomic_load(&a->running);
    if (limits->concurrent && running >= limits->concurrent)
        return err_set_retry(e, ERR_QUOTA, CONCURRENT_RETRY_MS,
                             "Rate limit reached for the API key '%s' on concurrent requests: limit %lld, running %lld, "
                             "requested 1. Please try again in %d s.",
                             name, (long long)limits->concurrent, running, CONCURRENT_RETRY_MS / 1000);
    if (limits->rpm && a->requests.level < unit)
        return refuse(name, "requests", &a->requests, 1, e);
    if (limits->tpm && a->tokens.level < need * unit)
        return refuse(name, "tokens", &a->tokens, need, e);
    a->requests.level -= limits->rpm ? unit : 0;
    a->tokens.level -= limits->tpm ? tokens * unit : 0;
    atomic_fetch_add(&a->running, 1);
    atomic_fetch_add(&a->refs, 1);
    *ret_account = a;
    return ERR_OK;
}

void quota_say(struct quota *q, const char *name, int64_t now_ns, struct quota_state *ret_requests,
               struct quota_state *ret_tokens)
{
    struct quota_account *a = account_of(q, name);
    settle(a, &(struct quota_limits){.rpm = a->requests.per_minute, .tpm = a->tokens.per_minute}, now_ns);
    say(&a->requests, ret_requests);
    say(&a->tokens, ret_tokens);
}

void quota_spend(struct quota_account *a, int64_t tokens)
{
    atomic_fetch_add(&a->owed, tokens);
}

void quota_release(struct quota_account *a)
{
    if (!a)
        return;
    atomic_fetch_sub(&a->running, 1);
    unref(a);
}

void quota_time_text(int64_t ms, char ret_text[QUOTA_TIME_MAX])
{
    if (ms < 1000)
        snprintf(ret_text, QUOTA_TIME_MAX, "%lldms", (long long)ms);
    else if (ms < MINUTE_MS)
        snprintf(ret_text, QUOTA_TIME_MAX, "%.4gs", (double)ms / 1000);
    else
        snprintf(ret_text, QUOTA_TIME_MAX, "%lldm%llds", (long long)(ms / MINUTE_MS), (long long)(ms % MINUTE_MS / 1000));
}
