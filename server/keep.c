// keep.c - see keep.h. A list under one lock: a few hundred files at most.
#include "server/keep.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

struct file {
    struct file *next;
    char id[KEEP_ID];
    const char *type;
    void *data;
    size_t len;
    int64_t until_ns;
};

struct keep {
    pthread_mutex_t lock;
    int refs, ttl_s;
    size_t max_files, max_bytes, files, bytes, promised_files, promised_bytes;
    struct file *first;
};

struct keep *keep_open(int ttl_s, size_t max_files, size_t max_bytes)
{
    struct keep *k = mem_new(sizeof *k);
    pthread_mutex_init(&k->lock, NULL);
    k->refs = 1;
    k->ttl_s = ttl_s;
    k->max_files = max_files;
    k->max_bytes = max_bytes;
    return k;
}

static void free_file(struct file *f)
{
    free(f->data);
    free(f);
}

struct keep *keep_ref(struct keep *k)
{
    pthread_mutex_lock(&k->lock);
    k->refs++;
    pthread_mutex_unlock(&k->lock);
    return k;
}

void keep_unref(struct keep *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    bool last = --k->refs == 0;
    pthread_mutex_unlock(&k->lock);
    if (!last)
        return;
    for (struct file *f = k->first, *next; f; f = next) {
        next = f->next;
        free_file(f);
    }
    pthread_mutex_destroy(&k->lock);
    free(k);
}

int keep_ttl_s(const struct keep *k)
{
    return k->ttl_s;
}

// Wants the lock, as all below that have no lock of their own.
static void drop_old(struct keep *k)
{
    int64_t now = clock_ns();
    for (struct file **at = &k->first; *at;) {
        struct file *f = *at;
        if (f->until_ns > now) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        k->files--;
        k->bytes -= f->len;
        free_file(f);
    }
}

bool keep_reserve(struct keep *k, size_t files, size_t bytes)
{
    pthread_mutex_lock(&k->lock);
    drop_old(k);
    size_t all;
    bool ok = k->files + k->promised_files + files <= k->max_files &&
              size_add(k->bytes + k->promised_bytes, bytes, &all) && all <= k->max_bytes;
    if (ok) {
        k->promised_files += files;
        k->promised_bytes += bytes;
    }
    pthread_mutex_unlock(&k->lock);
    return ok;
}

void keep_release(struct keep *k, size_t files, size_t bytes)
{
    pthread_mutex_lock(&k->lock);
    k->promised_files -= files;
    k->promised_bytes -= bytes;
    pthread_mutex_unlock(&k->lock);
}

void keep_put(struct keep *k, const char *type, void *data, size_t len, char ret_id[KEEP_ID])
{
    struct file *f = mem_new(sizeof *f);
    snprintf(f->id, sizeof f->id, "%016llx%016llx%08x", (unsigned long long)rng_os(), (unsigned long long)rng_os(),
             (unsigned)rng_os());
    f->type = type;
    f->data = data;
    f->len = len;
    f->until_ns = clock_ns() + k->ttl_s * 1000000000LL;
    memcpy(ret_id, f->id, KEEP_ID);
    pthread_mutex_lock(&k->lock);
    f->next = k->first;
    k->first = f;
    k->files++;
    k->bytes += len;
    pthread_mutex_unlock(&k->lock);
}

bool keep_find(struct keep *k, const char *id, const char **ret_type, void **ret_data, size_t *ret_len)
{
    bool found = false;
    pthread_mutex_lock(&k->lock);
    drop_old(k);
    struct file *f = k->first;
    while (f && strcmp(f->id, id))
        f = f->next;
    void *copy = f ? mem_try(f->len + 1) : NULL;
    if (copy) {
        memcpy(copy, f->data, f->len);
        *ret_type = f->type;
        *ret_data = copy;
        *ret_len = f->len;
        found = true;
    }
    pthread_mutex_unlock(&k->lock);
    return found;
}
