// token_mask.c - the cache of masks. Scheduler thread.
#include "engine/grammar/token_mask.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "engine/grammar/token_walk.h"

struct mask {
    uint32_t n, nuncertain;
    uint64_t *bits;  // NULL: few are set, ids has them
    int32_t *ids;    // n of them without bits, then the uncertain ones
};

struct token_masks {
    const struct nodes *g;
    const struct token_trie *trie;
    pthread_mutex_t lock;
    struct map *index;  // state to number
    struct mask *masks;
    uint32_t n, cap;
    size_t bytes;
};

// Frames below the top that a key has; a mask is kept under the first that covers what it looked at.
static const uint32_t depths[] = {0, 1, 2, 4, 8, UINT32_MAX};
enum { NDEPTHS = sizeof depths / sizeof *depths, SET_MARGIN = 64, PREPARED = 8 };

struct token_masks *token_mask_open(const struct nodes *g, const struct token_trie *t)
{
    struct token_masks *c = mem_new(sizeof *c);
    c->g = g;
    c->trie = t;
    c->index = map_new(64);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void empty(struct token_masks *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        free(c->masks[i].bits);
        free(c->masks[i].ids);
    }
    c->n = 0;
    c->bytes = 0;
    map_free(c->index);
    c->index = map_new(64);
}

void token_mask_prepare(struct token_masks *c)
{
    uint64_t *bits = mem_new((c->trie->words + 1) * sizeof *bits);
    for (uint32_t i = 0, n = 0; i < c->g->n && n < PREPARED; i++) {
        if (c->g->list[i].kind != NODE_FREE || !c->g->list[i].free->outer)
            continue;
        struct machine *m = machine_at(c->g, i);
        token_mask_fill(c, m, bits, NULL);
        machine_free(m);
        n++;
    }
    free(bits);
}

void token_mask_close(struct token_masks *c)
{
    if (!c)
        return;
    empty(c);
    map_free(c->index);
    free(c->masks);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

// ---- keys

static uint32_t at_most(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

// A count of which only the distance to its bounds matters, and that not when a token cannot get there. It may be `over`
// past them.
static uint32_t far_count(const struct token_masks *c, uint32_t n, uint32_t min, uint32_t max, uint32_t over)
{
    uint32_t far = c->trie->longest + over + 1;
    if (far > INT16_MAX)
        return n;
    min += min ? over : 0;
    return (n < min ? at_most(min - n, far) : 0) << 16 | (max == NODES_NO_LIMIT ? far : at_most(max + over - n, far));
}

// A frame without what cannot matter to a token: counters far from their bounds, texts that must differ.
static struct frame canonical(const struct token_masks *c, const struct machine *m, struct frame f)
{
    const struct node *n = &c->g->list[f.node];
    uint32_t far = c->trie->longest + 1;
    if (n->kind == NODE_STRING) {
        f.c = f.b < n->string->min ? at_most(n->string->min - f.b, far) : 0;
        f.b = n->string->max == NODES_NO_LIMIT ? far : at_most(n->string->max - f.b, far);
    } else if (n->kind == NODE_BYTES) {
        f.c = 0;
    } else if (n->kind == NODE_OBJECT || n->kind == NODE_ARRAY) {
        uint32_t used = f.c ? machine_slot(m, f.c)->b : 0;
        f.c = used > NODES_MAX_UNDECLARED - SET_MARGIN ? used : 0;
    }
    if (n->kind == NODE_ARRAY && f.b >= n->array->nprefix)
        f.b = 1u << 31 | far_count(c, f.b, n->array->min, n->array->max, 0);
    if (n->kind == NODE_FREE && n->free->begun)
        f.b = far_count(c, f.b, n->free->min, n->free->max, n->free->longest);
    if (n->kind == NODE_REPEAT)
        f.a = far_count(c, f.a, n->repeat->min, n->repeat->max, 0);
    f.parent = f.parent != 0;
    return f;
}

static void make_key(const struct token_masks *c, const struct machine *m, uint32_t depth, struct buf *key)
{
    uint32_t n;
    const struct frame *threads = machine_threads(m, &n);
    buf_clear(key);
    buf_add(key, &depth, sizeof depth);
    for (uint32_t i = 0; i < n; i++) {
        struct frame f = threads[i];
        for (uint32_t d = 0;; d++) {
            struct frame k = canonical(c, m, f);
            buf_add(key, &k, sizeof k);
            if (!f.parent || d == depth)
                break;
            f = *machine_slot(m, f.parent);
        }
    }
}

// How many frames below the top were looked at, of the thread where that is most.
static uint32_t looked_at(const struct machine *m)
{
    uint32_t n, most = 0, lowest = machine_lowest(m);
    const struct frame *threads = machine_threads(m, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d = 0;
        for (uint32_t p = threads[i].parent; p && p >= lowest; p = machine_slot(m, p)->parent)
            d++;
        most = d > most ? d : most;
    }
    return most;
}

// Fills bits and says under which depth the mask holds.
static void make(struct token_masks *c, struct token_walk *w, uint32_t *ret_depth)
{
    uint32_t k = 0, node;
    bool near = token_walk_is_near(w, &node);
    if (near) {
        struct machine *start = machine_at(c->g, node);
        token_mask_fill(c, start, w->bits, NULL);
        machine_free(start);
    }
    machine_try(w->m);
    token_walk(w, near);
    uint32_t looked = looked_at(w->m);
    machine_tried(w->m);
    while (depths[k] < looked)
        k++;
    *ret_depth = depths[k];
}

// ---- the cache

static void remember(struct token_masks *c, const struct buf *key, const struct token_walk *w)
{
    size_t words = c->trie->words, few = words / 2, n = w->n;
    struct mask m = {.n = w->n, .nuncertain = w->nuncertain};
    bool sparse = n < few;
    size_t ids = (sparse ? n : 0) + w->nuncertain, at = 0;
    m.ids = mem_new((ids + 1) * sizeof *m.ids);
    for (size_t i = 0; sparse && i < words; i++)
        for (uint64_t x = w->bits[i]; x; x &= x - 1)
            m.ids[at++] = (int32_t)(64 * i) + __builtin_ctzll(x);
    if (w->nuncertain)
        memcpy(m.ids + at, w->uncertain, w->nuncertain * sizeof *m.ids);
    if (!sparse)
        m.bits = memcpy(mem_new(words * sizeof *m.bits), w->bits, words * sizeof *m.bits);
    if (c->bytes > TOKEN_MASK_CACHE_BYTES)
        empty(c);
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 32;
        c->masks = mem_resize(c->masks, c->cap * sizeof *c->masks);
    }
    c->bytes += ids * sizeof *m.ids + (sparse ? 0 : words * sizeof *m.bits) + key->len + 64;
    map_put(c->index, key->data, key->len, c->n);
    c->masks[c->n++] = m;
}

static void copy_out(const struct token_masks *c, const struct mask *k, uint64_t *bits, struct token_walk *w)
{
    if (k->bits)
        memcpy(bits, k->bits, c->trie->words * sizeof *bits);
    else
        memset(bits, 0, c->trie->words * sizeof *bits);
    uint32_t listed = k->bits ? 0 : k->n;
    for (uint32_t i = 0; i < listed; i++)
        token_trie_set(bits, k->ids[i]);
    for (uint32_t i = 0; i < k->nuncertain; i++)
        token_walk_note(w, k->ids[listed + i]);
}

static bool find(struct token_masks *c, const struct machine *m, struct buf *key, uint64_t *bits, struct token_walk *w,
                 uint32_t *ret_n)
{
    uint32_t at;
    bool found = false;
    for (int i = 0; i < NDEPTHS && !found; i++) {
        make_key(c, m, depths[i], key);
        pthread_mutex_lock(&c->lock);
        found = map_get(c->index, key->data, key->len, &at);
        if (found) {
            copy_out(c, &c->masks[at], bits, w);
            *ret_n = c->masks[at].n;
        }
        pthread_mutex_unlock(&c->lock);
    }
    return found;
}

// Looks again at the tokens that depend on earlier texts.
static uint32_t recheck(const struct token_masks *c, struct token_walk *w, uint32_t n)
{
    if (w->nuncertain == 0 || !machine_has_sets(w->m))
        return n;
    for (uint32_t i = 0; i < w->nuncertain; i++) {
        size_t len;
        int32_t id = w->uncertain[i];
        const char *text = token_trie_text(c->trie, id, &len);
        if (machine_allows(w->m, text, len))
            continue;
        w->bits[id / 64] &= ~(1ull << id % 64);
        n--;
    }
    return n;
}

uint32_t token_mask_fill(struct token_masks *c, struct machine *m, uint64_t *bits, bool *made)
{
    struct token_walk w = {.g = c->g, .trie = c->trie, .m = m, .bits = bits};
    struct buf key;
    uint32_t n = 0, depth;
    if (machine_broken(m)) {  // it may have no threads at all
        memset(bits, 0, c->trie->words * sizeof *bits);
        if (made)
            *made = false;
        return 0;
    }
    buf_init(&key, SIZE_MAX);
    bool found = find(c, m, &key, bits, &w, &n);
    if (!found) {
        make(c, &w, &depth);
        n = w.n;
        if (!machine_broken(m)) {
            make_key(c, m, depth, &key);
            pthread_mutex_lock(&c->lock);
            remember(c, &key, &w);
            pthread_mutex_unlock(&c->lock);
        }
    }
    n = recheck(c, &w, n);
    free(w.uncertain);
    buf_done(&key);
    if (made)
        *made = !found;
    return n;
}
