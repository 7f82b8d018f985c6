#include "base/map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

struct slot {
    uint64_t hash;
    uint32_t value;
    uint32_t len;
    const char *key;  // NULL: empty
};

struct map {
    struct slot *slots;
    size_t cap, size;  // cap is a power of two, at most 3/4 full
    char *chunk;       // key bytes, chunk[0..8) links to the previous one
    size_t used, room;
};

static uint64_t hash_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_key(void)
{
    hash_key = rng_os();
}

// Multiply-and-fold over 8-byte words with a secret start (the construction of wyhash, public domain).
static uint64_t fold(uint64_t a, uint64_t b)
{
    __uint128_t r = (__uint128_t)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

uint64_t map_hash(const void *key, size_t len)
{
    pthread_once(&once, init_key);
    const char *p = key;
    uint64_t h = hash_key ^ len, w;
    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&w, p, 8);
        h = fold(h ^ w ^ 0xA0761D6478BD642Fu, hash_key | 1);
        h = h << 29 | h >> 35;
    }
    w = 0;
    memcpy(&w, p, len);
    return rng_mix(h ^ fold(w ^ 0xE7037ED1A0B428DBu, hash_key | 1));
}

struct map *map_new(size_t expected)
{
    struct map *m = mem_new(sizeof *m);
    m->cap = 16;
    while (m->cap * 3 / 4 < expected)
        m->cap *= 2;
    m->slots = mem_new(m->cap * sizeof *m->slots);
    return m;
}

void map_free(struct map *m)
{
    if (!m)
        return;
    for (char *c = m->chunk, *next; c; c = next) {
        memcpy(&next, c, sizeof next);
        free(c);
    }
    free(m->slots);
    free(m);
}

static struct slot *find(struct slot *slots, size_t cap, uint64_t h, const char *key, size_t len)
{
    size_t i = h & (cap - 1);
    while (slots[i].key &&
           !(slots[i].hash == h && slots[i].len == len && memcmp(slots[i].key, key, len) == 0))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static void grow(struct map *m)
{
    size_t cap = m->cap * 2;
    struct slot *slots = mem_new(cap * sizeof *slots);
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key)
            *find(slots, cap, m->slots[i].hash, m->slots[i].key, m->slots[i].len) = m->slots[i];
    free(m->slots);
    m->slots = slots;
    m->cap = cap;
}

static const char *keep(struct map *m, const char *key, size_t len)
{
    if (len + 1 > m->room - m->used || !m->chunk) {
        size_t size = len + 1 > 1 << 16 ? len + 1 : 1 << 16;
        char *c = mem_new(size + sizeof c);
        memcpy(c, &m->chunk, sizeof m->chunk);
        m->chunk = c;
        m->used = sizeof c;
        m->room = size + sizeof c;
    }
    char *p = m->chunk + m->used;
    memcpy(p, key, len);
    m->used += len + 1;
    return p;
}

bool map_put(struct map *m, const char *key, size_t len, uint32_t value)
{
    if (m->size + 1 > m->cap * 3 / 4)
        grow(m);
    uint64_t h = map_hash(key, len);
    struct slot *s = find(m->slots, m->cap, h, key, len);
    bool fresh = !s->key;
    if (fresh) {
        *s = (struct slot){h, value, (uint32_t)len, keep(m, key, len)};
        m->size++;
    }
    s->value = value;
    return fresh;
}

bool map_get(const struct map *m, const char *key, size_t len, uint32_t *ret_value)
{
    const struct slot *s = find(m->slots, m->cap, map_hash(key, len), key, len);
    if (!s->key)
        return false;
    *ret_value = s->value;
    return true;
}
