// prefix.c - the prefix tree and the page accounts of one model. Scheduler thread only.
#include "engine/sched/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"

struct prefix_node {
    struct prefix_node *parent;                   // NULL: a root
    struct prefix_node *chain;                    // of the hash table
    struct prefix_node *lru_before, *lru_after;   // evictable leaves, least recently used first
    void *page;                                   // NULL in a root
    uint64_t hash, last_use;
    int users, children;
    bool listed;
    size_t key_bytes;
    char key[];                                   // a root's salt, or 64 token ids
};

struct prefix {
    struct kv_pool *pool;
    bool caching;
    struct prefix_node **table;
    size_t buckets, count;  // count includes roots
    int cached, evictable, promised;
    uint64_t clock;
    struct prefix_node lru;  // list head
};

enum { KEY_BYTES = KV_PAGE_TOKENS * (int)sizeof(int32_t), FIRST_BUCKETS = 256 };

struct prefix *prefix_open(struct kv_pool *pool, bool caching)
{
    struct prefix *p = mem_new(sizeof *p);
    p->pool = pool;
    p->caching = caching && kv_pool_layout(pool)->state_bytes == 0;
    p->buckets = FIRST_BUCKETS;
    p->table = mem_new(p->buckets * sizeof *p->table);
    p->lru.lru_before = p->lru.lru_after = &p->lru;
    return p;
}

void prefix_close(struct prefix *p)
{
    if (!p)
        return;
    prefix_flush(p);
    for (size_t b = 0; b < p->buckets; b++)
        while (p->table[b]) {
            struct prefix_node *n = p->table[b];
            p->table[b] = n->chain;
            free(n);
        }
    free(p->table);
    free(p);
}

// ---- hash table

static uint64_t node_hash(const struct prefix_node *parent, const void *key, size_t bytes)
{
    return rng_mix(map_hash(key, bytes) ^ (uint64_t)(uintptr_t)parent);
}

static struct prefix_node *find(const struct prefix *p, const struct prefix_node *parent, const void *key, size_t bytes)
{
    uint64_t h = node_hash(parent, key, bytes);
    for (struct prefix_node *n = p->table[h & (p->buckets - 1)]; n; n = n->chain)
        if (n->hash == h && n->parent == parent && n->key_bytes == bytes && memcmp(n->key, key, bytes) == 0)
            return n;
    return NULL;
}

static void rehash(struct prefix *p)
{
    size_t buckets = p->buckets * 2;
    struct prefix_node **table = mem_new(buckets * sizeof *table);
    for (size_t b = 0; b < p->buckets; b++)
        while (p->table[b]) {
            struct prefix_node *n = p->table[b];
            p->table[b] = n->chain;
            n->chain = table[n->hash & (buckets - 1)];
            table[n->hash & (buckets - 1)] = n;
        }
    free(p->table);
    p->table = table;
    p->buckets = buckets;
}

static struct prefix_node *insert(struct prefix *p, struct prefix_node *parent, const void *key, size_t bytes)
{
    if (p->count >= p->buckets)
        rehash(p);
    struct prefix_node *n = mem_new(sizeof *n + bytes);
    n->parent = parent;
    n->hash = node_hash(parent, key, bytes);
    n->key_bytes = bytes;
    if (bytes > 0)
        memcpy(n->key, key, bytes);
    n->chain = p->table[n->hash & (p->buckets - 1)];
    p->table[n->hash & (p->buckets - 1)] = n;
    p->count++;
    if (parent)
        parent->children++;
    return n;
}

// ---- the list of evictable leaves

static void unlist(struct prefix_node *n)
{
    if (!n->listed)
        return;
    n->lru_before->lru_after = n->lru_after;
    n->lru_after->lru_before = n->lru_before;
    n->listed = false;
}

// Sorted by last use. Almost always the newest; a parent whose last child went may be older.
static void enlist(struct prefix *p, struct prefix_node *n)
{
    if (n->listed || !n->page || n->users > 0 || n->children > 0)
        return;
    struct prefix_node *after = p->lru.lru_before;
    while (after != &p->lru && after->last_use > n->last_use)
        after = after->lru_before;
    n->lru_before = after;
    n->lru_after = after->lru_after;
    after->lru_after->lru_before = n;
    after->lru_after = n;
    n->listed = true;
}

// Takes a node that nobody uses and that has no children out of the tree.
static void drop_node(struct prefix *p, struct prefix_node *n)
{
    struct prefix_node *parent = n->parent;
    struct prefix_node **link = &p->table[n->hash & (p->buckets - 1)];
    while (*link != n)
        link = &(*link)->chain;
    *link = n->chain;
    p->count--;
    unlist(n);
    if (n->page) {
        kv_page_unref(p->pool, n->page);
        p->cached--;
        p->evictable--;
    }
    free(n);
    if (!parent)
        return;
    parent->children--;
    enlist(p, parent);
}

static void drop_root_if_empty(struct prefix *p, struct prefix_node *root)
{
    if (root->users == 0 && root->children == 0)
        drop_node(p, root);
}

static void evict_leaf(struct prefix *p)
{
    struct prefix_node *n = p->lru.lru_after, *parent = n->parent;
    drop_node(p, n);
    if (!parent->page)
        drop_root_if_empty(p, parent);
}

void prefix_flush(struct prefix *p)
{
    while (p->lru.lru_after != &p->lru)
        evict_leaf(p);
}

// A free page exists afterwards, if one can be had.
static bool make_free(struct prefix *p, int pages)
{
    while (kv_pool_free_pages(p->pool) < pages) {
        if (p->lru.lru_after == &p->lru)
            return false;
        evict_leaf(p);
    }
    return true;
}

// ---- users of nodes

static void use(struct prefix *p, struct prefix_node *n)
{
    if (n->users++ == 0 && n->page)
        p->evictable--;
    unlist(n);
}

// One user fewer on the whole path; the path becomes the most recently used, parents never older than children.
static void unuse_path(struct prefix *p, struct prefix_node *n)
{
    uint64_t now = ++p->clock;
    struct prefix_node *root = n;
    for (; n; n = n->parent) {
        n->last_use = now;
        if (--n->users == 0 && n->page) {
            p->evictable++;
            enlist(p, n);
        }
        root = n;
    }
    drop_root_if_empty(p, root);
}

static void use_path(struct prefix *p, struct prefix_node *n)
{
    for (; n; n = n->parent)
        use(p, n);
}

// ---- sequences

static void claim(struct prefix *p, struct prefix_seq *s, int pages)
{
    s->promised += pages;
    p->promised += pages;
}

static void spend(struct prefix *p, struct prefix_seq *s, int pages)
{
    int n = pages < s->promised ? pages : s->promised;
    claim(p, s, -n);
}

int prefix_unclaimed(const struct prefix *p)
{
    return kv_pool_free_pages(p->pool) + p->evictable - p->promised;
}

void prefix_seq_init(struct prefix *p, struct prefix_seq *s, const char *salt, bool adapter)
{
    *s = (struct prefix_seq){0};
    kv_seq_init(&s->kv, p->pool);
    // With the adapter the root's key ends with a zero byte, which no salt has.
    const char *key = salt ? salt : "";
    size_t bytes = strlen(key) + adapter;
    s->node = find(p, NULL, key, bytes);
    if (!s->node)
        s->node = insert(p, NULL, key, bytes);
    use(p, s->node);
}

int prefix_seq_match(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit)
{
    while (p->caching && s->kv.len + KV_PAGE_TOKENS <= limit && s->kv.len == s->published * KV_PAGE_TOKENS) {
        struct prefix_node *n = find(p, s->node, ids + s->kv.len, KEY_BYTES);
        if (!n)
            break;
        kv_seq_adopt(&s->kv, n->page);
        use(p, n);
        spend(p, s, 1);
        s->node = n;
        s->published++;
    }
    return s->kv.len;
}

bool prefix_seq_promise(struct prefix *p, struct prefix_seq *s, int pages, int spare)
{
    if (pages > 0 && prefix_unclaimed(p) < pages + spare)
        return false;
    if (pages > 0)
        claim(p, s, pages);
    return true;
}

bool prefix_seq_reserve(struct prefix *p, struct prefix_seq *s, int positions)
{
    int pages = prefix_pages(positions) - s->kv.npages;
    if (pages <= 0)
        return true;
    int beyond = pages - s->promised;
    if (beyond > 0 && prefix_unclaimed(p) < beyond)
        return false;
    if (!make_free(p, pages) || !kv_seq_reserve(&s->kv, positions))
        return false;
    spend(p, s, pages);
    return true;
}

// Puts page number s->published of the sequence into the tree, or changes over to the one that is there.
static void publish(struct prefix *p, struct prefix_seq *s, const int32_t *ids)
{
    int i = s->published;
    const int32_t *key = ids + (size_t)i * KV_PAGE_TOKENS;
    struct prefix_node *n = find(p, s->node, key, KEY_BYTES);
    if (n) {
        kv_page_ref(p->pool, n->page);
        kv_page_unref(p->pool, s->kv.pages[i]);
        s->kv.pages[i] = n->page;
        use(p, n);
    } else {
        n = insert(p, s->node, key, KEY_BYTES);
        n->page = s->kv.pages[i];
        n->users = 1;
        kv_page_ref(p->pool, n->page);
        p->cached++;
    }
    n->last_use = ++p->clock;
    for (struct prefix_node *up = n->parent; up; up = up->parent)
        up->last_use = p->clock;
    s->node = n;
    s->published++;
}

void prefix_seq_commit(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int rows)
{
    kv_seq_commit(&s->kv, rows);
    while (p->caching && (s->published + 1) * KV_PAGE_TOKENS <= s->kv.len)
        publish(p, s, ids);
}

bool prefix_seq_fork(struct prefix *p, const struct prefix_seq *from, struct prefix_seq *to)
{
    int tail = from->kv.len % KV_PAGE_TOKENS != 0;
    if (tail > to->promised && prefix_unclaimed(p) < tail)
        return false;
    struct kv_seq kv;
    if (!make_free(p, tail) || !kv_seq_fork(&from->kv, &kv))
        return false;
    spend(p, to, tail);
    to->kv = kv;
    to->node = from->node;
    to->published = from->published;
    use_path(p, to->node);
    return true;
}

void prefix_seq_done(struct prefix *p, struct prefix_seq *s)
{
    claim(p, s, -s->promised);
    if (s->node) {
        kv_seq_done(&s->kv);
        unuse_path(p, s->node);
    }
    *s = (struct prefix_seq){0};
}

int prefix_cached(const struct prefix *p)
{
    return p->cached;
}

int prefix_evictable(const struct prefix *p)
{
    return p->evictable;
}

// ---- checking

static bool node_is_sound(const struct prefix *p, const struct prefix_node *n)
{
    if (!n->page)
        return !n->parent && (n->users > 0 || n->children > 0);
    const struct prefix_node *up = n->parent;
    return up && up->users >= n->users && up->last_use >= n->last_use && up->children > 0 &&
           kv_page_refs(p->pool, n->page) == 1 + n->users && n->listed == (n->users == 0 && n->children == 0);
}

bool prefix_check(const struct prefix *p)
{
    int cached = 0, evictable = 0;
    size_t count = 0, listed = 0, on_list = 0;
    for (size_t b = 0; b < p->buckets; b++)
        for (const struct prefix_node *n = p->table[b]; n; n = n->chain) {
            if (!node_is_sound(p, n))
                return false;
            count++;
            cached += n->page != NULL;
            evictable += n->page && n->users == 0;
            listed += n->listed;
        }
    for (const struct prefix_node *n = p->lru.lru_after; n != &p->lru; n = n->lru_after) {
        on_list++;
        if (n->lru_after != &p->lru && n->lru_after->last_use < n->last_use)
            return false;
    }
    return count == p->count && cached == p->cached && evictable == p->evictable && listed == on_list &&
           p->promised >= 0 && prefix_unclaimed(p) >= 0;
}
