// Keys, Host and Origin. The table of keys is swapped under a lock that is held for a few instructions.
#include "server/auth.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "server/store.h"

enum { FILE_MAX = 8 << 20 };

// ---- the table

struct reader {
    struct auth_table *t;
    int cap, plain;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char plain_salt[APIKEY_SALT];  // new at every start; the same each time that keys are read

static void draw_salt(void)
{
    apikey_random(plain_salt, sizeof plain_salt);
}

static struct apikey *next_key(struct reader *r)
{
    struct auth_table *t = r->t;
    if (t->nkeys == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 8;
        t->keys = mem_resize(t->keys, (size_t)r->cap * sizeof *t->keys);
    }
    apikey_init(&t->keys[t->nkeys]);
    return &t->keys[t->nkeys++];
}

static err_code add_plain(struct reader *r, const char *key, err *e)
{
    r->plain++;
    if (!key || !*key)
        return err_set_param(e, ERR_INVALID, "api_key", "API key %d is empty.", r->plain);
    struct apikey *k = next_key(r);
    snprintf(k->name, sizeof k->name, "key%d", r->plain);
    memcpy(k->salt, plain_salt, sizeof k->salt);
    apikey_digest(k->salt, key, k->digest);
    return ERR_OK;
}

static err_code add_line(struct reader *r, char *line, err *e)
{
    struct apikey k;
    char *plain;
    apikey_init(&k);
    if (apikey_read_line(&k, line, &plain, e)) {
        apikey_done(&k);
        return e->code;
    }
    if (plain)
        return add_plain(r, plain, e);
    *next_key(r) = k;
    return ERR_OK;
}

static err_code add_file(struct reader *r, const char *path, err *e)
{
    char *text;
    size_t len;
    err_code rc = file_read(path, FILE_MAX, &text, &len, e);
    if (rc)
        return err_wrap(e, "api_key_file");
    int number = 0, before = r->t->nkeys;
    for (char *line = text, *end; line && !rc; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        number++;
        line[strcspn(line, "\r")] = 0;
        line += strspn(line, " \t");
        if (*line && *line != '#' && (rc = add_line(r, line, e)))
            err_wrap(e, "api_key_file '%s', line %d", path, number);
    }
    free(text);
    if (!rc && r->t->nkeys == before)
        rc = err_set_param(e, ERR_INVALID, "api_key_file", "'%s' holds no key", path);
    return rc;
}

static err_code add_store(struct reader *r, const char *path, err *e)
{
    struct store *s;
    struct store_keys found = {0};
    if (store_open(path, STORE_READ, &s, e))
        return e->code;
    err_code rc = store_keys(s, &found, e);
    for (int i = 0; i < found.len && !rc; i++) {
        *next_key(r) = found.items[i];
        found.items[i].models = NULL;  // moved
    }
    store_keys_done(&found);
    store_close(s);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct apikey *)a)->name, ((const struct apikey *)b)->name);
}

static int by_salt(const void *a, const void *b)
{
    return memcmp(((const struct apikey *)a)->salt, ((const struct apikey *)b)->salt, APIKEY_SALT);
}

static err_code check_names(struct auth_table *t, err *e)
{
    if (t->nkeys > 1)
        qsort(t->keys, (size_t)t->nkeys, sizeof *t->keys, by_name);
    for (int i = 1; i < t->nkeys; i++)
        if (!strcmp(t->keys[i - 1].name, t->keys[i].name))
            return err_set(e, ERR_INVALID, "two API keys are named '%s'", t->keys[i].name);
    return ERR_OK;
}

static err_code index_table(struct auth_table *t, err *e)
{
    if (t->nkeys > AUTH_KEYS_MAX)
        return err_set(e, ERR_TOO_LARGE, "%d API keys; at most %d", t->nkeys, AUTH_KEYS_MAX);
    if (t->nkeys > 1)
        qsort(t->keys, (size_t)t->nkeys, sizeof *t->keys, by_salt);
    t->digests = mem_new((size_t)t->nkeys * sizeof *t->digests);
    for (int i = 0; i < t->nkeys; i++) {
        memcpy(t->digests[i], t->keys[i].digest, APIKEY_DIGEST);
        if (i && !by_salt(&t->keys[i - 1], &t->keys[i]))
            continue;
        if (t->nsalts == AUTH_SALTS_MAX)
            return err_set(e, ERR_TOO_LARGE, "API keys with more than %d different salts: each costs every request a "
                           "hash; keys made by 'oxinferd key add' share one", AUTH_SALTS_MAX);
        t->first[t->nsalts++] = i;
    }
    t->first[t->nsalts] = t->nkeys;
    return ERR_OK;
}

err_code auth_read(const struct auth_sources *from, struct auth_table **ret_table, err *e)
{
    err local = {0};
    struct reader r = {.t = mem_new(sizeof *r.t)};
    atomic_init(&r.t->refs, 1);
    pthread_once(&once, draw_salt);
    err_code rc = ERR_OK;
    for (int i = 0; i < from->nkeys && !rc; i++)
        rc = add_plain(&r, from->keys[i], &local);
    if (!rc && from->file)
        rc = add_file(&r, from->file, &local);
    if (!rc && from->store)
        rc = add_store(&r, from->store, &local);
    if (!rc && !(rc = check_names(r.t, &local)))
        rc = index_table(r.t, &local);
    if (rc) {
        auth_unref(r.t);
        if (e)
            *e = local;
        return rc;
    }
    *ret_table = r.t;
    return ERR_OK;
}

static struct auth_table *auth_ref(struct auth_table *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void auth_unref(struct auth_table *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < t->nkeys; i++)
        apikey_done(&t->keys[i]);
    free(t->digests);
    free(t->keys);
    free(t);
}

// All ones when the digests are equal, else 0, without a branch on what they hold.
static uint64_t equal_mask(const unsigned char *a, const unsigned char *b)
{
    uint64_t x[APIKEY_DIGEST / 8], y[APIKEY_DIGEST / 8], diff = 0;
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    for (size_t i = 0; i < APIKEY_DIGEST / 8; i++)
        diff |= x[i] ^ y[i];
    return ((diff | -diff) >> 63) - 1;
}

const struct apikey *auth_find_key(const struct auth_table *t, const char *given)
{
    unsigned char digest[APIKEY_DIGEST];
    uint64_t found = 0;  // index + 1
    for (int salt = 0; salt < t->nsalts; salt++) {
        apikey_digest(t->keys[t->first[salt]].salt, given, digest);
        for (int i = t->first[salt]; i < t->first[salt + 1]; i++) {
            uint64_t mask = equal_mask(digest, t->digests[i]);
            found = (found & ~mask) | ((uint64_t)(i + 1) & mask);
        }
    }
    return found ? &t->keys[found - 1] : NULL;
}

// ---- the table of now

err_code auth_open(struct auth *a, err *e)
{
    pthread_mutex_init(&a->lock, NULL);
    if (auth_read(&a->sources, &a->table, e))
        return e->code;
    a->required = a->table->nkeys > 0;
    return ERR_OK;
}

void auth_close(struct auth *a)
{
    auth_unref(a->table);
    a->table = NULL;
    pthread_mutex_destroy(&a->lock);
}

err_code auth_reload(struct auth *a, err *e)
{
    struct auth_table *fresh;
    if (auth_read(&a->sources, &fresh, e))
        return e->code;
    pthread_mutex_lock(&a->lock);
    struct auth_table *old = a->table;
    a->table = fresh;
    a->required |= fresh->nkeys > 0;
    pthread_mutex_unlock(&a->lock);
    auth_unref(old);
    return ERR_OK;
}

struct auth_table *auth_take(struct auth *a)
{
    pthread_mutex_lock(&a->lock);
    struct auth_table *t = a->required ? auth_ref(a->table) : NULL;
    pthread_mutex_unlock(&a->lock);
    return t;
}

bool auth_required(struct auth *a)
{
    pthread_mutex_lock(&a->lock);
    bool yes = a->required;
    pthread_mutex_unlock(&a->lock);
    return yes;
}

// ---- names

const char *auth_bearer(const char *authorization)
{
    if (strncasecmp(authorization, "Bearer", 6) || (authorization[6] != ' ' && authorization[6]))
        return NULL;
    return authorization + 6 + strspn(authorization + 6, " ");
}

// Letters, digits, dots, hyphens, underscores, and the colons of an IPv6 address: nothing else is in a host's name.
static bool is_host_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !memchr(".-_:", s[i], 4))
            return false;
    return n > 0;
}

// "127.0.0.1", "127.8.8.8", "::1", "localhost", "x.localhost"; n bytes, without brackets or port.
static bool is_loopback(const char *host, size_t n)
{
    char text[64];
    if (n >= sizeof text || !is_host_text(host, n))
        return false;
    memcpy(text, host, n);
    text[n] = 0;
    if (text[n - 1] == '.')
        text[--n] = 0;
    if (!strcasecmp(text, "localhost") || (n > 10 && !strcasecmp(text + n - 10, ".localhost")))
        return true;
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// Splits "name:port", "[v6]:port"; false when what follows the name is no port.
static bool split_host(const char *host, const char **ret_name, size_t *ret_len)
{
    const char *name = host, *end;
    if (*host == '[') {
        name = host + 1;
        end = strchr(name, ']');
        if (!end)
            return false;
        *ret_len = (size_t)(end - name);
        end++;
    } else {
        end = host + strcspn(host, ":");
        *ret_len = (size_t)(end - name);
    }
    *ret_name = name;
    return !*end || (*end == ':' && strspn(end + 1, "0123456789") == strlen(end + 1));
}

bool auth_host_ok(const struct auth *a, const char *host)
{
    const char *name;
    size_t n;
    if (!split_host(host, &name, &n))
        return false;
    if (is_loopback(name, n))
        return true;
    for (int i = 0; i < a->nhosts; i++)
        if (!strcmp(a->hosts[i], "*") || (strlen(a->hosts[i]) == n && !strncasecmp(a->hosts[i], name, n)))
            return true;
    return false;
}

bool auth_origin_ok(const struct auth *a, const char *origin)
{
    for (int i = 0; i < a->norigins; i++)
        if (!strcmp(a->origins[i], "*") || !strcasecmp(a->origins[i], origin))
            return true;
    return false;
}
