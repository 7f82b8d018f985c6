// kv.c - the page pool and the page tables of sequences.
//
// All pages lie in one mapping, so a page's number is its distance from the start and its reference count is found
// without a header inside the page (headers would spoil its alignment). Free pages are a stack: the page freed last is
// taken first, while it is still in the cache. The scheduler thread owns everything here; lanes only read page tables.
#include "engine/sched/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

enum { PAGE_ALIGN = 64 };

struct kv_pool {
    struct kv_layout layout;
    size_t page_bytes, map_bytes;
    uint8_t *map;
    int pages, nfree;
    int *free;  // [pages] numbers of free pages; the first nfree count
    int *refs;  // [pages]
    int used;     // pages below were used
    size_t warm;  // bytes of map that were written to
};

static size_t head_bytes(const struct kv_layout *l, int group)
{
    return KV_PAGE_TOKENS * kv_row_bytes(l->type, l->groups[group].head_dim);
}

static size_t group_bytes(const struct kv_layout *l, int group)
{
    const struct kv_group *g = &l->groups[group];
    return 2 * (size_t)g->layers * (size_t)g->heads * head_bytes(l, group);
}

size_t kv_page_bytes(const struct kv_layout *l)
{
    size_t n = 0;
    for (int i = 0; i < l->ngroups; i++)
        n += group_bytes(l, i);
    return (n + PAGE_ALIGN - 1) & ~(size_t)(PAGE_ALIGN - 1);
}

size_t kv_token_bytes(const struct kv_layout *l)
{
    return kv_page_bytes(l) / KV_PAGE_TOKENS;
}

int kv_window(const struct kv_layout *l)
{
    int window = 0;
    for (int i = 0; i < l->ngroups; i++) {
        if (l->groups[i].window == 0)
            return 0;
        window = l->groups[i].window > window ? l->groups[i].window : window;
    }
    return window;
}

size_t kv_k_offset(const struct kv_layout *l, int group, int layer, int head)
{
    size_t at = 0;
    for (int i = 0; i < group; i++)
        at += group_bytes(l, i);
    return at + 2 * ((size_t)layer * (size_t)l->groups[group].heads + (size_t)head) * head_bytes(l, group);
}

size_t kv_v_offset(const struct kv_layout *l, int group, int layer, int head)
{
    return kv_k_offset(l, group, layer, head) + head_bytes(l, group);
}

static err_code check_layout(const struct kv_layout *l, err *e)
{
    if (l->ngroups < 1 || l->ngroups > KV_MAX_GROUPS)
        return err_set(e, ERR_INVALID, "KV layout has %d groups, expected 1 to %d", l->ngroups, KV_MAX_GROUPS);
    for (int i = 0; i < l->ngroups; i++) {
        const struct kv_group *g = &l->groups[i];
        if (g->layers < 1 || g->layers > 4096 || g->heads < 1 || g->heads > 4096 || g->head_dim < 1 ||
            g->head_dim > 4096 || g->window < 0)
            return err_set(e, ERR_INVALID, "KV group %d has %d layers of %d heads of %d, window %d", i, g->layers,
                           g->heads, g->head_dim, g->window);
    }
    return ERR_OK;
}

err_code kv_pool_open(const struct kv_layout *l, size_t bytes, struct kv_pool **ret_pool, err *e)
{
    if (check_layout(l, e))
        return e ? e->code : ERR_INVALID;
    char all[BYTES_TEXT], one[BYTES_TEXT];
    size_t page = kv_page_bytes(l), n = bytes / page;
    if (n < 1 || n > INT32_MAX)
        return err_set(e, ERR_MEMORY, "the KV cache may take %s, one page of %d tokens takes %s", bytes_text(bytes, all), KV_PAGE_TOKENS,
                       bytes_text(page, one));
    struct kv_pool *p = mem_new(sizeof *p);
    *p = (struct kv_pool){.layout = *l, .page_bytes = page, .map_bytes = n * page, .pages = (int)n, .nfree = (int)n};
    p->map = mem_try_pages(p->map_bytes);
    p->free = mem_try(n * sizeof *p->free);
    p->refs = mem_try(n * sizeof *p->refs);
    if (!p->map || !p->free || !p->refs) {
        kv_pool_close(p);
        return err_set(e, ERR_MEMORY, "no memory for a KV cache of %s", bytes_text(n * page, all));
    }
    for (int i = 0; i < p->pages; i++)
        p->free[i] = p->pages - 1 - i;
    *ret_pool = p;
    return ERR_OK;
}

void kv_pool_close(struct kv_pool *p)
{
    if (!p)
        return;
    mem_free_pages(p->map, p->map_bytes);
    free(p->free);
    free(p->refs);
    free(p);
}

const struct kv_layout *kv_pool_layout(const struct kv_pool *p)
{
    return &p->layout;
}

int kv_pool_pages(const struct kv_pool *p)
{
    return p->pages;
}

int kv_pool_free_pages(const struct kv_pool *p)
{
    return p->nfree;
}

static int number(const struct kv_pool *p, const void *page)
{
    return (int)((size_t)((const uint8_t *)page - p->map) / p->page_bytes);
}

// Fresh pages are taken in their order, so what lies behind the last one was never used.
bool kv_pool_warm(struct kv_pool *p)
{
    enum { SOME = 2 << 20, SMALLEST_PAGE = 4096 };
    size_t used = (size_t)p->used * p->page_bytes, ahead = KV_WARM_PAGES * p->page_bytes;
    size_t end = used + (ahead < KV_WARM_BYTES ? ahead : KV_WARM_BYTES);
    end = end < p->map_bytes ? end : p->map_bytes;
    if (p->warm < used)
        p->warm = used;
    if (p->warm >= end)
        return false;
    end = end - p->warm > SOME ? p->warm + SOME : end;
    for (volatile uint8_t *at = p->map + p->warm; at < p->map + end; at += SMALLEST_PAGE)
        *at = 0;
    p->warm = end;
    return true;
}

void *kv_page_alloc(struct kv_pool *p)
{
    if (!p->nfree)
        return NULL;
    int i = p->free[--p->nfree];
    p->used = i >= p->used ? i + 1 : p->used;
    p->refs[i] = 1;
    return p->map + (size_t)i * p->page_bytes;
}

void kv_page_ref(struct kv_pool *p, void *page)
{
    p->refs[number(p, page)]++;
}

void kv_page_unref(struct kv_pool *p, void *page)
{
    int i = number(p, page);
    if (--p->refs[i] == 0)
        p->free[p->nfree++] = i;
}

void kv_page_copy(struct kv_pool *p, void *to, const void *from)
{
    memcpy(to, from, p->page_bytes);
}

int kv_page_refs(const struct kv_pool *p, const void *page)
{
    return p->refs[number(p, page)];
}

void kv_seq_init(struct kv_seq *s, struct kv_pool *p)
{
    *s = (struct kv_seq){.pool = p};
}

static void add_page(struct kv_seq *s, void *page)
{
    if (s->npages == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 8;
        s->pages = mem_resize(s->pages, (size_t)s->cap * sizeof *s->pages);
    }
    s->pages[s->npages++] = page;
}

// The recurrent state is made with the first reservation, which can fail; kv_seq_init cannot.
static bool have_state(struct kv_seq *s)
{
    size_t n = s->pool->layout.state_bytes;
    if (n && !s->state)
        s->state = mem_try(n);
    return !n || s->state;
}

bool kv_seq_reserve(struct kv_seq *s, int positions)
{
    int want = (positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    if (want - s->npages > s->pool->nfree || !have_state(s))
        return false;
    while (s->npages < want)
        add_page(s, kv_page_alloc(s->pool));
    return true;
}

void kv_seq_adopt(struct kv_seq *s, void *page)
{
    if (page)
        kv_page_ref(s->pool, page);
    add_page(s, page);
    s->len += KV_PAGE_TOKENS;
}

void kv_seq_drop(struct kv_seq *s, int i)
{
    kv_page_unref(s->pool, s->pages[i]);
    s->pages[i] = NULL;
}

void kv_seq_commit(struct kv_seq *s, int rows)
{
    s->len += rows;
}

bool kv_seq_fork(const struct kv_seq *s, struct kv_seq *ret_seq)
{
    int full = s->len / KV_PAGE_TOKENS, tail = s->len % KV_PAGE_TOKENS;
    struct kv_seq f;
    kv_seq_init(&f, s->pool);
    if (!have_state(&f) || (tail && !s->pool->nfree)) {
        kv_seq_done(&f);
        return false;
    }
    for (int i = 0; i < full; i++)
        kv_seq_adopt(&f, s->pages[i]);
    if (tail) {
        add_page(&f, kv_page_alloc(s->pool));
        kv_page_copy(s->pool, f.pages[full], s->pages[full]);
    }
    f.len = s->len;
    if (f.state && s->state)
        memcpy(f.state, s->state, s->pool->layout.state_bytes);
    *ret_seq = f;
    return true;
}

bool kv_seq_set_state(struct kv_seq *s, const void *state)
{
    if (!have_state(s))
        return false;
    memcpy(s->state, state, s->pool->layout.state_bytes);
    return true;
}

void *kv_seq_take_state(struct kv_seq *s)
{
    void *state = s->state;
    s->state = NULL;
    return state;
}

void kv_seq_done(struct kv_seq *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->npages; i++)
        if (s->pages[i])
            kv_page_unref(s->pool, s->pages[i]);
    free(s->pages);
    free(s->state);
    *s = (struct kv_seq){.pool = s->pool};
}
