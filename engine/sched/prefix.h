// prefix.h - a model's KV pages: who gets them, and which are kept to be used again.
//
//     struct prefix_seq s;
//     prefix_seq_init(p, &s, salt, false);
//     prefix_seq_match(p, &s, ids, nids - 1);          // adopts cached pages
//     if (!prefix_seq_promise(p, &s, pages, 0)) ...    // not now: prefix_seq_done and wait
//     prefix_seq_reserve(p, &s, s.kv.len + rows);      // within the promise it cannot fail
//     ... forward ...
//     prefix_seq_commit(p, &s, ids, rows);             // full pages enter the tree at once
//     prefix_seq_done(p, &s);                          // they stay there until somebody needs the memory
//
// The tree: a node is one full page, known by its parent and its 64 token ids, which are compared (a hash only finds the
// candidates). The root of a path is the cache salt and the adapter, so tasks with different ones never meet. A page that two sequences
// computed is kept once: the second one changes over to the first's, which holds the same bits (ARCHITECTURE §3).
//
// Pages: every page is free, in the tree only (evictable: nobody uses it), or used by sequences. A promise is a claim on
// pages not taken yet; the sum of promises never exceeds free + evictable, so a sequence that stays within its promise
// always finds a page. Eviction takes the least recently used leaf. This file is the only place that allocates.
//
// A model with recurrent state is not matched (state cannot be cut at a page); its tree stays empty.
// Owned by the scheduler thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/kv.h"

struct prefix;
struct prefix_node;

struct prefix_seq {
    struct kv_seq kv;
    struct prefix_node *node;  // deepest node whose page this sequence holds; the salt's root at first; NULL: not in use
    int published;             // pages that are in the tree, counted from the start
    int promised;
};

// Does not own the pool. caching = false: nothing enters the tree.
struct prefix *prefix_open(struct kv_pool *pool, bool caching);
void prefix_close(struct prefix *p);  // no sequence may be left

static inline int prefix_pages(int positions)
{
    return (positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

// salt NULL: the common one. adapter: what is computed with the adapter on, which is another tree than without.
void prefix_seq_init(struct prefix *p, struct prefix_seq *s, const char *salt, bool adapter);
// Adopts cached pages after the ones it has, as long as they end at or before position limit. Only while s holds full
// pages alone. Each adopted page uses up one promised page. Returns s->kv.len.
int prefix_seq_match(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit);
// Claims so many pages more, if spare pages stay unclaimed.
bool prefix_seq_promise(struct prefix *p, struct prefix_seq *s, int pages, int spare);
// Pages for positions 0 .. positions-1; beyond the promise only if unclaimed pages are left.
bool prefix_seq_reserve(struct prefix *p, struct prefix_seq *s, int positions);
// The forward pass wrote `rows` more positions; ids are the tokens from position 0.
void prefix_seq_commit(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int rows);
// to: promised, else empty; becomes a second sequence with the same positions. A tail page comes out of its promise.
bool prefix_seq_fork(struct prefix *p, const struct prefix_seq *from, struct prefix_seq *to);
void prefix_seq_done(struct prefix *p, struct prefix_seq *s);  // a zeroed one may be given

int prefix_unclaimed(const struct prefix *p);  // pages that can be promised
int prefix_cached(const struct prefix *p);     // pages in the tree
int prefix_evictable(const struct prefix *p);  // of these, used by nobody
void prefix_flush(struct prefix *p);           // drops all evictable pages

// Walks everything and compares with the counters; false: the accounts are wrong. For tests.
bool prefix_check(const struct prefix *p);
