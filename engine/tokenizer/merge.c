// merge.c - the merge loop: a scan over all pairs for short words, a heap for long ones. Both give the same result.
//
// One encode call owns the word and its heap.

#include "engine/tokenizer/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"

enum {
    SHORT_WORD = 24,
    WIDE = 4,  // children of a heap entry: they share a cache line
};

void tokenizer_merge_start(struct merge_word *w, const char *text)
{
    w->text = text;
    w->n = 0;
    w->heap_n = 0;
    w->bytes = 0;
}

void tokenizer_merge_done(struct merge_word *w)
{
    free(w->syms);
    free(w->heap);
    *w = (struct merge_word){0};
}

void tokenizer_merge_add(struct merge_word *w, int32_t id, uint32_t len)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 64;
        struct merge_sym *s = cap > INT32_MAX ? NULL : realloc(w->syms, cap * sizeof *s);
        if (!s) {
            w->failed = true;
            return;
        }
        w->syms = s;
        w->cap = cap;
    }
    int32_t i = (int32_t)w->n++;
    w->syms[i] = (struct merge_sym){id, i - 1, -1, w->bytes, len};
    if (i > 0)
        w->syms[i - 1].next = i;
    w->bytes += len;
}

// ---- words within a text of marked spaces

static const char MARK[] = "\xE2\x96\x81";

static bool marked(const char *p, size_t n)
{
    return n >= 3 && memcmp(p, MARK, 3) == 0;
}

bool tokenizer_merge_crosses(const char *spelling, size_t len)
{
    return tokenizer_merge_word_end(spelling, len) < len;
}

size_t tokenizer_merge_word_end(const char *text, size_t len)
{
    size_t i = 0;
    while (marked(text + i, len - i))
        i += 3;
    for (; i < len; i++) {
        const char *next = memchr(text + i, MARK[0], len - i);
        if (!next)
            return len;
        i = (size_t)(next - text);
        if (marked(next, len - i) && i > 0)
            return i;
    }
    return len;
}

// ---- joining

static void join(struct merge_word *w, int32_t left, int32_t id)
{
    struct merge_sym *l = &w->syms[left], *r = &w->syms[l->next];
    l->len += r->len;
    l->id = id;
    r->len = 0;
    l->next = r->next;
    if (r->next >= 0)
        w->syms[r->next].prev = left;
}

// ---- short words: ranks of all neighbouring pairs, lowest first

static void run_short(struct merge_word *w, merge_pair_fn *pair, const void *model)
{
    uint32_t rank[SHORT_WORD];
    int32_t id[SHORT_WORD];
    bool has[SHORT_WORD] = {false};
    for (size_t i = 0; i + 1 < w->n; i++)
        has[i] = pair(model, w, &w->syms[i], &w->syms[i + 1], &rank[i], &id[i]);
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i >= 0; i = w->syms[i].next)
            if (has[i] && (best < 0 || rank[i] < rank[best]))
                best = i;
        if (best < 0)
            return;
        join(w, best, id[best]);
        struct merge_sym *s = &w->syms[best];
        has[best] = s->next >= 0 && pair(model, w, s, &w->syms[s->next], &rank[best], &id[best]);
        if (s->prev >= 0)
            has[s->prev] = pair(model, w, &w->syms[s->prev], s, &rank[s->prev], &id[s->prev]);
    }
}

// ---- long words: a heap of candidates; one that no longer fits its symbols is dropped when it comes up

static bool before(const struct merge_cand *a, const struct merge_cand *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct merge_word *w, struct merge_cand c)
{
    if (w->heap_n == w->heap_cap) {
        size_t cap = w->heap_cap ? w->heap_cap * 2 : 256;
        struct merge_cand *h = realloc(w->heap, cap * sizeof *h);
        if (!h) {
            w->failed = true;
            return;
        }
        w->heap = h;
        w->heap_cap = cap;
    }
    size_t i = w->heap_n++;
    for (; i > 0 && before(&c, &w->heap[(i - 1) / WIDE]); i = (i - 1) / WIDE)
        w->heap[i] = w->heap[(i - 1) / WIDE];
    w->heap[i] = c;
}

static struct merge_cand heap_pop(struct merge_word *w)
{
    struct merge_cand top = w->heap[0], last = w->heap[--w->heap_n];
    size_t i = 0;
    for (size_t first = 1; first < w->heap_n; first = WIDE * i + 1) {
        size_t end = first + WIDE < w->heap_n ? first + WIDE : w->heap_n, k = first;
        for (size_t j = first + 1; j < end; j++)
            if (before(&w->heap[j], &w->heap[k]))
                k = j;
        if (!before(&w->heap[k], &last))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    w->heap[i] = last;
    return top;
}

static void propose(struct merge_word *w, int32_t left, merge_pair_fn *pair, const void *model)
{
    if (left < 0 || w->syms[left].next < 0)
        return;
    const struct merge_sym *l = &w->syms[left], *r = &w->syms[l->next];
    uint32_t rank;
    int32_t id;
    if (pair(model, w, l, r, &rank, &id))
        heap_push(w, (struct merge_cand){rank, (uint32_t)left, l->len + r->len, id});
}

static void run_long(struct merge_word *w, merge_pair_fn *pair, const void *model)
{
    for (size_t i = 0; i + 1 < w->n && !cancel_due(4); i++)
        propose(w, (int32_t)i, pair, model);
    while (w->heap_n && !w->failed && !cancel_due(8)) {
        struct merge_cand c = heap_pop(w);
        struct merge_sym *l = &w->syms[c.at];
        // Symbols only grow, so equal length from the same start means the pair is still the one that was proposed.
        if (l->len == 0 || l->next < 0 || l->len + w->syms[l->next].len != c.len)
            continue;
        join(w, (int32_t)c.at, c.id);
        propose(w, l->prev, pair, model);
        propose(w, (int32_t)c.at, pair, model);
    }
}

err_code tokenizer_merge_run(struct merge_word *w, merge_pair_fn *pair, const void *model, err *e)
{
    if (!w->failed && w->n <= SHORT_WORD && w->n > 1)
        run_short(w, pair, model);
    else if (!w->failed && w->n > 1)
        run_long(w, pair, model);
    return w->failed ? err_set(e, ERR_MEMORY, "no memory for a word of %u bytes", w->bytes) : cancel_check(w->bytes, e);
}
