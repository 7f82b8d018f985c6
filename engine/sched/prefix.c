// prefix.c - the prefix tree and the page accounts of one model. Scheduler thread only.
#include "engine/sched/prefix.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/metrics.h"

// Who has a share of the cache: all roots of one account.
struct domain {
    struct domain *next;
    uint64_t id;
    int roots, cached;  // cached: pages
};

struct prefix_node {
    struct prefix_node *parent, *root;            // parent NULL: a root
    struct prefix_node *chain;                    // of the hash table
    struct prefix_node *child, *before, *after;   // first child; siblings, or other roots
    struct prefix_node *lru_before, *lru_after;   // a root's list of evictable pages, least recently used first; its head
    struct prefix_node *cp_before, *cp_after;     // all checkpoints
    void *page;                                   // NULL in a root, and in a gap (only with a window)
    void *state;                                  // checkpoint at `end`; NULL: none
    uint64_t hash, last_use;
    int users;                                    // sequences whose path this is on
    int holders;                                  // of these, those that hold its page
    int pins;                                     // sequences that will copy its state
    int children, cached;                         // cached: of a root, pages below it
    struct domain *domain;                        // of a root
    int end, reach;                               // positions up to its last token; most there ever were below it
    bool listed;
    size_t key_bytes;
    char key[];                                   // a root's salt, or token ids: 64, or fewer in a tail
};

struct prefix {
    struct kv_pool *pool;
    struct metrics *metrics;
    bool asked, caching;        // asked: unless the model is recurrent and may have no checkpoints
    int window;                 // 0: all pages of a sequence are kept
    size_t state_bytes, checkpoint_bytes, checkpoint_most;
    struct prefix_node **table;
    size_t buckets, count;      // count includes roots
    int cached, evictable, promised;
    int full_domains;           // that have pages
    struct domain *domains;
    uint64_t clock;
    struct prefix_node *roots;
    struct prefix_node cp;      // list head
};

enum { KEY_BYTES = KV_PAGE_TOKENS * (int)sizeof(int32_t), FIRST_BUCKETS = 256 };

struct prefix *prefix_open(struct kv_pool *pool, bool caching)
{
    struct prefix *p = mem_new(sizeof *p);
    p->pool = pool;
    p->asked = caching;
    p->caching = caching && kv_pool_layout(pool)->state_bytes == 0;
    p->window = kv_window(kv_pool_layout(pool));
    p->state_bytes = kv_pool_layout(pool)->state_bytes;
    p->buckets = FIRST_BUCKETS;
    p->table = mem_new(p->buckets * sizeof *p->table);
    p->cp.cp_before = p->cp.cp_after = &p->cp;
    return p;
}

void prefix_set_checkpoints(struct prefix *p, size_t bytes)
{
    p->checkpoint_most = bytes;
    p->caching = p->asked && bytes >= p->state_bytes;
}

void prefix_count_to(struct prefix *p, struct metrics *m)
{
    p->metrics = m;
}

// ---- domains

static void join_domain(struct prefix *p, struct prefix_node *root, uint64_t id)
{
    struct domain *d = p->domains;
    while (d && d->id != id)
        d = d->next;
    if (!d) {
        d = mem_new(sizeof *d);
        *d = (struct domain){.next = p->domains, .id = id};
        p->domains = d;
    }
    d->roots++;
    root->domain = d;
}

// It has no pages any more.
static void leave_domain(struct prefix *p, struct prefix_node *root)
{
    struct domain *d = root->domain, **link = &p->domains;
    root->domain = NULL;
    if (--d->roots > 0)
        return;
    while (*link != d)
        link = &(*link)->next;
    *link = d->next;
    free(d);
}

void prefix_seq_charge(struct prefix *p, const struct prefix_seq *s, const char *account)
{
    struct prefix_node *root = s->node->root;
    if (!account || root->cached > 0)
        return;
    leave_domain(p, root);
    join_domain(p, root, map_hash(account, strlen(account)));
}

static void count_page(struct prefix *p, const struct prefix_node *n, int by)
{
    struct prefix_node *root = n->root;
    struct domain *d = root->domain;
    bool before = d->cached > 0;
    p->cached += by;
    root->cached += by;
    d->cached += by;
    p->full_domains += (d->cached > 0) - before;
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
            if (!n->parent)
                leave_domain(p, n);
            free(n->state);
            free(n);
        }
    free(p->table);
    free(p);
}

static bool is_tail(const struct prefix_node *n)
{
    return n->parent && n->key_bytes < KEY_BYTES;
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

static struct prefix_node **siblings(struct prefix *p, const struct prefix_node *n)
{
    return n->parent ? &n->parent->child : &p->roots;
}

static struct prefix_node *insert(struct prefix *p, struct prefix_node *parent, const void *key, size_t bytes)
{
    if (p->count >= p->buckets)
        rehash(p);
    struct prefix_node *n = mem_new(sizeof *n + bytes);
    n->parent = parent;
    n->root = parent ? parent->root : n;
    n->lru_before = n->lru_after = n;
    n->end = n->reach = parent ? parent->end + (int)(bytes / sizeof(int32_t)) : 0;
    n->hash = node_hash(parent, key, bytes);
    n->key_bytes = bytes;
    if (bytes > 0)
        memcpy(n->key, key, bytes);
    n->chain = p->table[n->hash & (p->buckets - 1)];
    p->table[n->hash & (p->buckets - 1)] = n;
    p->count++;
    struct prefix_node **list = siblings(p, n);
    n->after = *list;
    if (*list)
        (*list)->before = n;
    *list = n;
    if (parent)
        parent->children++;
    return n;
}

// ---- the lists of evictable pages

static void unlist(struct prefix_node *n)
{
    if (!n->listed)
        return;
    n->lru_before->lru_after = n->lru_after;
    n->lru_after->lru_before = n->lru_before;
    n->listed = false;
}

// Sorted by last use. Almost always the newest; a parent whose last child went may be older. Of one path, the deepest page
// goes first, but with a window the one furthest from the end.
static void enlist(struct prefix *p, struct prefix_node *n)
{
    if (n->listed || !n->page || n->holders > 0 || (n->children > 0 && !p->window))
        return;
    struct prefix_node *head = n->root, *after = head->lru_before;
    while (after != head && after->last_use + (p->window > 0) > n->last_use)
        after = after->lru_before;
    n->lru_before = after;
    n->lru_after = after->lru_after;
    after->lru_after->lru_before = n;
    after->lru_after = n;
    n->listed = true;
}

static void drop_state(struct prefix *p, struct prefix_node *n)
{
    if (!n->state)
        return;
    free(n->state);
    n->state = NULL;
    p->checkpoint_bytes -= p->state_bytes;
    n->cp_before->cp_after = n->cp_after;
    n->cp_after->cp_before = n->cp_before;
}

static void add_state(struct prefix *p, struct prefix_node *n, void *state)
{
    n->state = state;
    p->checkpoint_bytes += p->state_bytes;
    n->cp_after = &p->cp;
    n->cp_before = p->cp.cp_before;
    n->cp_before->cp_after = n;
    p->cp.cp_before = n;
}

// A page that somebody holds, for now.
static void set_page(struct prefix *p, struct prefix_node *n, void *page)
{
    n->page = page;
    kv_page_ref(p->pool, page);
    count_page(p, n, 1);
}

static void remove_node(struct prefix *p, struct prefix_node *n)
{
    struct prefix_node **link = &p->table[n->hash & (p->buckets - 1)];
    while (*link != n)
        link = &(*link)->chain;
    *link = n->chain;
    p->count--;
    if (n->before)
        n->before->after = n->after;
    else
        *siblings(p, n) = n->after;
    if (n->after)
        n->after->before = n->before;
    if (n->parent)
        n->parent->children--;
    else
        leave_domain(p, n);
    free(n);
}

// Nodes without page, users and children go, up the path.
static void remove_bare(struct prefix *p, struct prefix_node *n)
{
    while (n && !n->page && n->users == 0 && n->children == 0) {
        struct prefix_node *parent = n->parent;
        remove_node(p, n);
        n = parent;
    }
    if (n)
        enlist(p, n);
}

// Nobody holds it.
static void give_up(struct prefix *p, struct prefix_node *n)
{
    unlist(n);
    drop_state(p, n);
    kv_page_unref(p->pool, n->page);
    n->page = NULL;
    count_page(p, n, -1);
    p->evictable--;
    remove_bare(p, n);
}

// The oldest of a domain that has more than its share, else the oldest of all.
static struct prefix_node *victim(const struct prefix *p)
{
    struct prefix_node *best = NULL;
    bool best_over = false;
    int share = kv_pool_pages(p->pool) / (p->full_domains > 0 ? p->full_domains : 1);
    for (struct prefix_node *r = p->roots; r; r = r->after) {
        struct prefix_node *n = r->lru_after;
        bool over = r->domain->cached > share;
        if (n == r || (best && (over < best_over || (over == best_over && n->last_use > best->last_use))))
            continue;
        best = n;
        best_over = over;
    }
    return best;
}

void prefix_flush(struct prefix *p)
{
    for (struct prefix_node *n; (n = victim(p));)
        give_up(p, n);
}

// So many pages are free afterwards, if they can be had.
static bool make_free(struct prefix *p, int pages)
{
    while (kv_pool_free_pages(p->pool) < pages) {
        struct prefix_node *n = victim(p);
        if (!n)
            return false;
        give_up(p, n);
        if (p->metrics)
            metrics_count(&p->metrics->evictions, 1);
    }
    return true;
}

// ---- users of nodes

static void hold(struct prefix *p, struct prefix_node *n)
{
    if (n->holders++ == 0)
        p->evictable--;
    unlist(n);
}

static void let_go(struct prefix *p, struct prefix_node *n)
{
    if (--n->holders > 0)
        return;
    p->evictable++;
    enlist(p, n);
}

static int page_of(const struct prefix_node *n)
{
    return n->end / KV_PAGE_TOKENS - 1;
}

// The held part of the path becomes the most recently used; parents are never older than children.
static void touch(struct prefix *p, struct prefix_node *n, int first)
{
    uint64_t now = ++p->clock;
    for (; n && (!n->parent || is_tail(n) || page_of(n) >= first); n = n->parent)
        n->last_use = now;
}

static void unuse_path(struct prefix *p, const struct prefix_seq *s)
{
    touch(p, s->node, s->first);
    for (struct prefix_node *n = s->node; n; n = n->parent) {
        n->users--;
        if (n->parent && page_of(n) >= s->first)
            let_go(p, n);
    }
    remove_bare(p, s->node);
}

static void use_path(struct prefix *p, const struct prefix_seq *s)
{
    for (struct prefix_node *n = s->node; n; n = n->parent) {
        n->users++;
        if (n->parent && page_of(n) >= s->first)
            hold(p, n);
    }
}

// ---- promises

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

bool prefix_seq_promise(struct prefix *p, struct prefix_seq *s, int pages, int spare)
{
    if (pages > 0 && prefix_unclaimed(p) < pages + spare)
        return false;
    if (pages > 0)
        claim(p, s, pages);
    return true;
}

static void set_restore(struct prefix_seq *s, struct prefix_node *n)
{
    if (s->restore)
        s->restore->pins--;
    s->restore = n;
    if (n)
        n->pins++;
}

static bool take_pages(struct prefix *p, struct prefix_seq *s, int positions)
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

static bool take_state(struct prefix_seq *s, const struct prefix_node *n)
{
    if (n && !kv_seq_set_state(&s->kv, n->state))
        return false;
    set_restore(s, NULL);
    return true;
}

bool prefix_seq_reserve(struct prefix *p, struct prefix_seq *s, int positions)
{
    return take_state(s, s->restore) && take_pages(p, s, positions);
}

// ---- sequences

void prefix_seq_init(struct prefix *p, struct prefix_seq *s, const char *salt, bool adapter)
{
    *s = (struct prefix_seq){0};
    kv_seq_init(&s->kv, p->pool);
    // With the adapter the root's key ends with a zero byte, which no salt has.
    const char *key = salt ? salt : "";
    size_t bytes = strlen(key) + adapter;
    s->node = find(p, NULL, key, bytes);
    if (!s->node) {
        s->node = insert(p, NULL, key, bytes);
        join_domain(p, s->node, map_hash(key, bytes));
    }
    s->node->users++;
}

// The first page that a position from `len` on reads, and one more: a prompt that differs within the last page hits too.
static int window_first(const struct prefix *p, int len)
{
    int first = (len - p->window + 1) / KV_PAGE_TOKENS - 1;
    return p->window > 0 && first > 0 ? first : 0;
}

// Pages before number `first`, which no later position reads, are given back. One that nobody else holds is promised to
// the sequence again: it has as many as before.
static void slide(struct prefix *p, struct prefix_seq *s, int first)
{
    struct prefix_node *n = s->node;
    if (s->first >= first)
        return;
    while (n->parent && page_of(n) >= first)
        n = n->parent;
    for (int i = first - 1; i >= s->first; i--) {
        int before = prefix_unclaimed(p);
        kv_seq_drop(&s->kv, i);
        if (i < s->published) {
            let_go(p, n);
            n = n->parent;
        }
        claim(p, s, prefix_unclaimed(p) > before);
    }
    s->first = first;
}

// How far the tree has the tokens, to where a sequence can begin. *ret_branch: to where it has their pages.
static struct prefix_node *deepest(const struct prefix *p, const struct prefix_seq *s, const int32_t *ids, int limit,
                                   int *ret_branch)
{
    struct prefix_node *n = s->node, *best = s->node;
    int have = s->published;  // pages from here on are there
    while (n->end + KV_PAGE_TOKENS <= limit && (n = find(p, n, ids + n->end, KEY_BYTES))) {
        if (!n->page)
            have = page_of(n) + 1;
        else
            *ret_branch = n->end;
        int first = window_first(p, n->end);
        bool whole = have <= first || (have <= s->published && s->first <= first);
        if (n->page && whole && (n->state || !p->state_bytes))
            best = n;
    }
    return best;
}

static bool at_page(const struct prefix *p, const struct prefix_seq *s)
{
    return p->caching && s->kv.len == s->published * KV_PAGE_TOKENS && s->kv.npages == s->published;
}

int prefix_seq_match(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit)
{
    if (!at_page(p, s))
        return s->kv.len;
    s->mark = (s->settled && s->settled < limit ? s->settled : limit) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    s->branch = 0;
    struct prefix_node *to = deepest(p, s, ids, limit, &s->branch);
    int first = window_first(p, to->end);
    if (to != s->node && p->state_bytes)
        set_restore(s, to);
    slide(p, s, first < s->published ? first : s->published);
    while (s->node != to) {
        struct prefix_node *n = find(p, s->node, ids + s->kv.len, KEY_BYTES);
        bool read = page_of(n) >= first;
        kv_seq_adopt(&s->kv, read ? n->page : NULL);
        n->users++;
        if (read)
            hold(p, n);
        if (!p->window)  // with one, what it holds is bounded anyway
            spend(p, s, 1);
        s->node = n;
        s->published++;
        if (!read)
            s->first = s->published;
    }
    return s->kv.len;
}

static int common_ids(const struct prefix_node *n, const int32_t *ids, int most)
{
    int len = (int)(n->key_bytes / sizeof *ids), i = 0;
    while (i < len && i < most && memcmp(n->key + (size_t)i * sizeof *ids, ids + i, sizeof *ids) == 0)
        i++;
    return i;
}

// The child that has most of the ids. A state fits only where it was taken: all of a tail.
static struct prefix_node *best_part(const struct prefix *p, const struct prefix_node *parent, const int32_t *ids, int most,
                                     int *ret_common)
{
    struct prefix_node *best = NULL;
    *ret_common = 0;
    for (struct prefix_node *n = parent->child; n; n = n->after) {
        if (!n->page)
            continue;
        int common = common_ids(n, ids, most);
        if (p->state_bytes && (!n->state || !is_tail(n) || common * sizeof *ids < n->key_bytes))
            continue;
        if (common > *ret_common) {
            best = n;
            *ret_common = common;
        }
    }
    return best;
}

static void count_copy(struct prefix *p)
{
    if (p->metrics)
        metrics_count(&p->metrics->cow_copies, 1);
}

int prefix_seq_match_part(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit)
{
    int at = s->kv.len, common;
    if (!at_page(p, s) || at >= limit)
        return at;
    struct prefix_node *n = best_part(p, s->node, ids + at, limit - at, &common);
    if (!n)
        return at;
    hold(p, n);  // so that the copy's page does not come from there
    if (take_pages(p, s, at + common) && (!p->state_bytes || take_state(s, n))) {
        kv_page_copy(p->pool, s->kv.pages[s->published], n->page);
        kv_seq_commit(&s->kv, common);
        touch(p, n, s->first);
        count_copy(p);
    }
    let_go(p, n);
    return s->kv.len;
}

// ---- what is computed enters the tree

// A checkpoint is worth the tokens since the one before on its path, the less the further back it is.
static double worth(const struct prefix_node *n)
{
    const struct prefix_node *up = n->parent;
    while (up->parent && !up->state)
        up = up->parent;
    return (double)(n->end - up->end) / (double)(n->reach - n->end + 1);
}

static struct prefix_node *worst_checkpoint(const struct prefix *p)
{
    struct prefix_node *worst = NULL;
    for (struct prefix_node *n = p->cp.cp_after; n != &p->cp; n = n->cp_after)
        if (!n->pins && (!worst || n->last_use < worst->last_use ||
                         (n->last_use == worst->last_use && worth(n) < worth(worst))))
            worst = n;
    return worst;
}

static bool room_for_state(struct prefix *p)
{
    while (p->checkpoint_bytes + p->state_bytes > p->checkpoint_most) {
        struct prefix_node *n = worst_checkpoint(p);
        if (!n)
            return false;
        if (is_tail(n))
            give_up(p, n);
        else
            drop_state(p, n);
    }
    return true;
}

int prefix_seq_stop(const struct prefix *p, const struct prefix_seq *s)
{
    if (!p->caching || !p->state_bytes)
        return INT_MAX;
    int next = (s->kv.len / PREFIX_CHECKPOINT_TOKENS + 1) * PREFIX_CHECKPOINT_TOKENS;
    next = s->mark > s->kv.len && s->mark < next ? s->mark : next;
    return s->branch > s->kv.len && s->branch < next ? s->branch : next;
}

int prefix_seq_next(const struct prefix *p, const struct prefix_seq *s)
{
    if (!p->caching)
        return INT_MAX;
    return p->state_bytes ? prefix_seq_stop(p, s) : (s->published + 1) * KV_PAGE_TOKENS;
}

bool prefix_seq_related(const struct prefix_seq *a, const struct prefix_seq *b)
{
    return a->node->root == b->node->root;
}

int prefix_most_pages(const struct prefix *p, int rows)
{
    return p->window > 0 ? prefix_pages(p->window + rows) + 2 : INT_MAX;
}

static void keep_state(struct prefix *p, struct prefix_seq *s)
{
    int len = s->kv.len;
    bool wanted = len % PREFIX_CHECKPOINT_TOKENS == 0 || len == s->mark || len == s->branch;
    if (len == 0 || !wanted || s->node->end != len || s->node->state || !room_for_state(p))
        return;
    void *state = mem_try(p->state_bytes);
    if (!state)
        return;
    memcpy(state, s->kv.state, p->state_bytes);
    add_state(p, s->node, state);
}

static bool begins_with(const struct prefix_node *n, const void *ids, size_t bytes)
{
    return n->key_bytes >= bytes && memcmp(n->key, ids, bytes) == 0;
}

// Tails that the ids begin with have nothing of their own any more.
static void drop_tails(struct prefix *p, struct prefix_node *parent, const void *ids, size_t bytes)
{
    for (struct prefix_node *n = parent->child, *after; n; n = after) {
        after = n->after;
        if (is_tail(n) && n->holders == 0 && n->key_bytes <= bytes && memcmp(n->key, ids, n->key_bytes) == 0)
            give_up(p, n);
    }
}

// Puts page number s->published of the sequence into the tree, or changes over to the one that is there.
static void publish(struct prefix *p, struct prefix_seq *s, const int32_t *ids)
{
    int i = s->published;
    const int32_t *key = ids + (size_t)i * KV_PAGE_TOKENS;
    struct prefix_node *n = find(p, s->node, key, KEY_BYTES);
    if (!n)
        n = insert(p, s->node, key, KEY_BYTES);
    if (n->page) {
        kv_page_ref(p->pool, n->page);
        kv_page_unref(p->pool, s->kv.pages[i]);
        s->kv.pages[i] = n->page;
        hold(p, n);
    } else {
        set_page(p, n, s->kv.pages[i]);
        n->holders = 1;
    }
    n->users++;
    touch(p, n, s->first);
    for (struct prefix_node *up = n->parent; up && up->reach < n->end; up = up->parent)
        up->reach = n->end;
    drop_tails(p, s->node, key, KEY_BYTES);
    s->node = n;
    s->published++;
}

void prefix_seq_commit(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int rows)
{
    kv_seq_commit(&s->kv, rows);
    while (p->caching && (s->published + 1) * KV_PAGE_TOKENS <= s->kv.len)
        publish(p, s, ids);
    if (p->caching && p->state_bytes)
        keep_state(p, s);
    slide(p, s, window_first(p, s->kv.len));
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
    if (tail)
        count_copy(p);
    to->kv = kv;
    to->node = from->node;
    to->published = from->published;
    to->first = from->first;
    use_path(p, to);
    return true;
}

// Whether a tail would add something.
static bool wants_tail(const struct prefix *p, const struct prefix_seq *s, const int32_t *ids, size_t bytes)
{
    if (p->state_bytes)
        return s->kv.state && !find(p, s->node, ids, bytes);
    for (const struct prefix_node *n = s->node->child; n; n = n->after)
        if (n->page && begins_with(n, ids, bytes))
            return false;
    return true;
}

// At a page border the state alone is left.
static void leave_state(struct prefix *p, struct prefix_seq *s)
{
    struct prefix_node *n = s->node;
    if (s->kv.state && !s->restore && n->page && n->end == s->kv.len && !n->state && room_for_state(p))
        add_state(p, n, kv_seq_take_state(&s->kv));
}

static void leave_tail(struct prefix *p, struct prefix_seq *s, const int32_t *ids)
{
    int from = s->published * KV_PAGE_TOKENS;
    size_t bytes = (size_t)(s->kv.len - from) * sizeof *ids;
    if (!p->caching || !wants_tail(p, s, ids + from, bytes) || (p->state_bytes && !room_for_state(p)))
        return;
    if (!p->state_bytes)
        drop_tails(p, s->node, ids + from, bytes);
    struct prefix_node *n = insert(p, s->node, ids + from, bytes);
    set_page(p, n, s->kv.pages[s->published]);
    n->holders = 1;
    touch(p, n, s->first);
    for (struct prefix_node *up = n->parent; up && up->reach < n->end; up = up->parent)
        up->reach = n->end;
    if (p->state_bytes)
        add_state(p, n, kv_seq_take_state(&s->kv));
    kv_seq_drop(&s->kv, s->published);
    let_go(p, n);
}

void prefix_seq_leave(struct prefix *p, struct prefix_seq *s, const int32_t *ids)
{
    if (s->node && s->kv.len % KV_PAGE_TOKENS != 0)
        leave_tail(p, s, ids);
    else if (s->node && p->caching)
        leave_state(p, s);
    prefix_seq_done(p, s);
}

void prefix_seq_done(struct prefix *p, struct prefix_seq *s)
{
    claim(p, s, -s->promised);
    set_restore(s, NULL);
    if (s->node) {
        kv_seq_done(&s->kv);
        unuse_path(p, s);
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

size_t prefix_checkpoint_bytes(const struct prefix *p)
{
    return p->checkpoint_bytes;
}

// ---- checking

static bool children_are_sound(const struct prefix_node *n)
{
    int children = 0;
    for (const struct prefix_node *c = n->child; c; c = c->after, children++)
        if (c->parent != n || (c->before ? c->before->after != c : n->child != c))
            return false;
    return children == n->children;
}

static bool list_is_sound(const struct prefix_node *root, size_t *listed)
{
    for (const struct prefix_node *n = root->lru_after; n != root; n = n->lru_after) {
        ++*listed;
        if (!n->listed || n->root != root || (n->lru_after != root && n->lru_after->last_use < n->last_use))
            return false;
    }
    return true;
}

static bool node_is_sound(const struct prefix *p, const struct prefix_node *n)
{
    const struct prefix_node *up = n->parent;
    if (!children_are_sound(n) || (!n->page && n->users == 0 && n->children == 0) || (n->state && !n->page))
        return false;
    if (!up)
        return !n->page;
    if (n->end != up->end + (int)(n->key_bytes / sizeof(int32_t)) || n->root != up->root || up->users < n->users ||
        n->holders > n->users || (is_tail(n) && n->children > 0))
        return false;
    if (!n->page)
        return p->window > 0 && n->holders == 0 && !n->listed;
    if (!p->window && (n->holders != n->users || up->last_use < n->last_use))
        return false;
    return kv_page_refs(p->pool, n->page) == 1 + n->holders &&
           n->listed == (n->holders == 0 && (p->window || n->children == 0));
}

static bool domains_are_sound(const struct prefix *p)
{
    int full = 0, cached = 0;
    for (const struct domain *d = p->domains; d; d = d->next) {
        int roots = 0, pages = 0;
        for (const struct prefix_node *r = p->roots; r; r = r->after) {
            roots += r->domain == d;
            pages += r->domain == d ? r->cached : 0;
        }
        if (roots != d->roots || roots == 0 || pages != d->cached)
            return false;
        full += pages > 0;
        cached += pages;
    }
    return full == p->full_domains && cached == p->cached;
}

bool prefix_check(const struct prefix *p)
{
    int cached = 0, evictable = 0;
    size_t count = 0, listed = 0, on_lists = 0, states = 0, on_states = 0;
    for (size_t b = 0; b < p->buckets; b++)
        for (const struct prefix_node *n = p->table[b]; n; n = n->chain) {
            if (!node_is_sound(p, n) || (!n->parent && !list_is_sound(n, &on_lists)))
                return false;
            count++;
            cached += n->page != NULL;
            evictable += n->page && n->holders == 0;
            listed += n->parent && n->listed;
            states += n->state != NULL;
        }
    for (const struct prefix_node *n = p->cp.cp_after; n != &p->cp; n = n->cp_after)
        on_states += n->state != NULL;
    return count == p->count && cached == p->cached && evictable == p->evictable && listed == on_lists &&
           domains_are_sound(p) && states == on_states &&
           states * p->state_bytes == p->checkpoint_bytes &&
           (p->checkpoint_bytes == 0 || p->checkpoint_bytes <= p->checkpoint_most) && p->promised >= 0 &&
           prefix_unclaimed(p) >= 0;
}
