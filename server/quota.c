// See the header. Other threads only add to `owed` and take from `running`; the loop settles what is owed when it looks.
#include "server/quota.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

enum { MINUTE_MS = 60000, SWEEP_MS = 1000 };

// level is in millionths of a unit, so that whole nanoseconds of a slow limit are not lost.
struct bucket {
    int64_t per_minute;  // 0: not limited
    int64_t level, at_ns;
};

struct quota_account {
    char *name;            // the loop's
    atomic_int refs;
    atomic_llong owed;     // tokens spent beyond the estimates
    atomic_llong running;
    struct bucket requests, tokens;
};

struct table {
    struct map *names;
    struct quota_account **accounts;
    int n, cap;
};

struct quota {
    struct table keys, addresses;
    int64_t swept_ns;
};

static const int64_t unit = 1000000;

struct quota *quota_new(void)
{
    struct quota *q = mem_new(sizeof *q);
    q->keys.names = map_new(64);
    q->addresses.names = map_new(64);
    q->swept_ns = INT64_MIN / 2;
    return q;
}

static void unref(struct quota_account *a)
{
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
        free(a);
}

static void forget(struct quota_account *a)
{
    free(a->name);
    a->name = NULL;
    unref(a);
}

static void table_done(struct table *t)
{
    for (int i = 0; i < t->n; i++)
        forget(t->accounts[i]);
    free(t->accounts);
    map_free(t->names);
}

void quota_free(struct quota *q)
{
    if (!q)
        return;
    table_done(&q->keys);
    table_done(&q->addresses);
    free(q);
}

static struct quota_account *find(const struct table *t, const char *name)
{
    uint32_t i;
    return map_get(t->names, name, strlen(name), &i) ? t->accounts[i] : NULL;
}

static struct quota_account *add(struct table *t, const char *name)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 16;
        t->accounts = mem_resize(t->accounts, (size_t)t->cap * sizeof *t->accounts);
    }
    struct quota_account *a = mem_new(sizeof *a);
    atomic_init(&a->refs, 1);
    a->name = mem_strdup(name);
    map_put(t->names, name, strlen(name), (uint32_t)t->n);
    return t->accounts[t->n++] = a;
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

enum { WHO_MAX = 160 };

static const char *whose(const char *name, char out[WHO_MAX])
{
    const char *colon = strchr(name, ':');
    if (colon)
        snprintf(out, WHO_MAX, "the address %s, without an API key,", colon + 1);
    else
        snprintf(out, WHO_MAX, "the API key '%s'", name);
    return out;
}

static err_code refuse(const char *name, const char *what, const struct bucket *b, int64_t wanted, err *e)
{
    char who[WHO_MAX];
    int64_t ms = wait_ms(b, wanted * unit), used = (b->per_minute * unit - b->level + unit - 1) / unit;
    return err_set_retry(e, ERR_QUOTA, (int)(ms < QUOTA_RETRY_MAX_MS ? ms : QUOTA_RETRY_MAX_MS),
                         "Rate limit reached for %s on %s per minute: limit %lld, used %lld, requested %lld. "
                         "Please try again in %lld.%03lld s.",
                         whose(name, who), what, (long long)b->per_minute, (long long)used, (long long)wanted, (long long)(ms / 1000),
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

// Nothing would change for its owner if it were new.
static bool is_whole(struct quota_account *a, int64_t now_ns)
{
    settle(a, &(struct quota_limits){.rpm = a->requests.per_minute, .tpm = a->tokens.per_minute}, now_ns);
    return atomic_load(&a->running) == 0 && a->requests.level >= a->requests.per_minute * unit &&
           a->tokens.level >= a->tokens.per_minute * unit;
}

// At most once a second, so that a crowd of addresses costs each request little.
static void sweep(struct quota *q, int64_t now_ns)
{
    struct table *t = &q->addresses;
    if (now_ns - q->swept_ns < (int64_t)SWEEP_MS * 1000000)
        return;
    q->swept_ns = now_ns;
    map_free(t->names);
    t->names = map_new(QUOTA_ADDRESSES);
    int kept = 0;
    for (int i = 0; i < t->n; i++) {
        struct quota_account *a = t->accounts[i];
        if (is_whole(a, now_ns)) {
            forget(a);
            continue;
        }
        map_put(t->names, a->name, strlen(a->name), (uint32_t)kept);
        t->accounts[kept++] = a;
    }
    t->n = kept;
}

static bool is_address(const char *name)
{
    return strchr(name, ':') != NULL;  // which no key's name has
}

static struct quota_account *account_of(struct quota *q, const char *name, int64_t now_ns)
{
    static const char *const others = "address:others";
    struct table *t = is_address(name) ? &q->addresses : &q->keys;
    struct quota_account *a = find(t, name);
    if (a)
        return a;
    if (t == &q->addresses && t->n >= QUOTA_ADDRESSES)
        sweep(q, now_ns);
    if (t == &q->addresses && t->n >= QUOTA_ADDRESSES) {
        a = find(t, others);
        name = others;
    }
    return a ? a : add(t, name);
}

err_code quota_take(struct quota *q, const char *name, const struct quota_limits *limits, int64_t tokens, int64_t now_ns,
                    struct quota_account **ret_account, err *e)
{
    enum { CONCURRENT_RETRY_MS = 1000 };  // when another request ends is not known
    struct quota_account *a = account_of(q, name, now_ns);
    settle(a, limits, now_ns);
    int64_t need = tokens < limits->tpm ? tokens : limits->tpm;
    long long running = atomic_load(&a->running);
    char who[WHO_MAX];
    if (limits->concurrent && running >= limits->concurrent)
        return err_set_retry(e, ERR_QUOTA, CONCURRENT_RETRY_MS,
                             "Rate limit reached for %s on concurrent requests: limit %lld, running %lld, requested 1. "
                             "Please try again in %d s.",
                             whose(name, who), (long long)limits->concurrent, running, CONCURRENT_RETRY_MS / 1000);
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
    struct quota_account *a = account_of(q, name, now_ns);
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

// Also an IPv4 address that a socket of IPv6 shows as one of its own.
void quota_address(const char *peer, char ret_name[QUOTA_NAME_MAX])
{
    struct in6_addr a;
    char text[INET6_ADDRSTRLEN];
    if (inet_pton(AF_INET6, peer, &a) != 1) {
        snprintf(ret_name, QUOTA_NAME_MAX, "address:%.48s", peer);
    } else if (IN6_IS_ADDR_V4MAPPED(&a)) {
        inet_ntop(AF_INET, a.s6_addr + 12, text, sizeof text);
        snprintf(ret_name, QUOTA_NAME_MAX, "address:%s", text);
    } else {
        memset(a.s6_addr + 8, 0, 8);
        inet_ntop(AF_INET6, &a, text, sizeof text);
        snprintf(ret_name, QUOTA_NAME_MAX, "address:%s/64", text);
    }
}
