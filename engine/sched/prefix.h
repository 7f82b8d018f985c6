// prefix.h - a model's KV pages: who gets them, and which are kept to be used again.
//
//     struct prefix_seq s;
//     prefix_seq_init(p, &s, salt, false);
//     prefix_seq_match(p, &s, ids, nids - 1);          // adopts cached pages
//     if (!prefix_seq_promise(p, &s, pages, 0)) ...    // not now: prefix_seq_done and wait
//     prefix_seq_match_part(p, &s, ids, nids - 1);     // when its first chunk is planned: copies part of a page
//     prefix_seq_reserve(p, &s, s.kv.len + rows);      // within the promise it cannot fail
//     ... forward ...
//     prefix_seq_commit(p, &s, ids, rows);             // full pages enter the tree at once
//     prefix_seq_leave(p, &s, ids);                    // they stay there until somebody needs the memory, the tail too
//
// The tree: a node is one full page, known by its parent and its 64 token ids, which are compared (a hash only finds the
// candidates), or the partly filled last page of a sequence that ended: a tail, which is never shared, only copied from.
// The root of a path is the cache salt and the adapter, so tasks with different ones never meet. A page that two sequences
// computed is kept once: the second one changes over to the first's, which holds the same bits.
//
// Pages: every page is free, in the tree only (evictable: nobody uses it), or used by sequences. A promise is a claim on
// pages not taken yet; the sum of promises never exceeds free + evictable, so a sequence that stays within its promise
// always finds a page. Eviction takes the least recently used leaf, of an account that has more than its share of the pool
// first: who fills the cache flushes his own, not that of others. This file is the only place that allocates.
//
// A recurrent state cannot be cut at a page, so it is kept whole at some positions (checkpoints): every
// PREFIX_CHECKPOINT_TOKENS, at the last page border of a prompt (of what the next turn will have of it), where a prompt leaves a known path (so that the third with
// a common beginning finds it), and with the tail or wherever a sequence ends. A sequence goes on exactly there, from
// a copy. prefix_seq_stop says where a chunk has to end for that. Checkpoints have bytes of their own; beyond them the least
// recently used goes, of one path the one that is closest to another, measured by how far back it is.
//
// With a window that all layers have, a sequence drops what no later position reads. The tree may keep such pages; a path
// with a gap is matched to where the window before has none.
// Owned by the scheduler thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/sched/kv.h"

struct metrics;
struct prefix;
struct prefix_node;

enum { PREFIX_CHECKPOINT_TOKENS = 1024 };

struct prefix_seq {
    struct kv_seq kv;
    struct prefix_node *node;  // deepest node whose page this sequence holds; the salt's root at first; NULL: not in use
    struct prefix_node *restore;  // whose state it begins with; copied with the next reservation
    int published;             // pages that are in the tree, counted from the start
    int first;                 // pages before the window
    int promised;
    int settled;               // set by the caller: how far the next turn will have the prompt; 0: all of it
    int mark, branch;          // where checkpoints are wanted: the last page border of that; where it left a known path
};

// Does not own the pool. caching = false: nothing enters the tree.
struct prefix *prefix_open(struct kv_pool *pool, bool caching);
void prefix_close(struct prefix *p);  // no sequence may be left
void prefix_count_to(struct prefix *p, struct metrics *m);       // evictions and copies
void prefix_set_checkpoints(struct prefix *p, size_t bytes);     // at most; 0 at first: a recurrent model is not matched

static inline int prefix_pages(int positions)
{
    return (positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

// salt NULL: the common one. adapter: what is computed with the adapter on, which is another tree than without.
void prefix_seq_init(struct prefix *p, struct prefix_seq *s, const char *salt, bool adapter);
// Whose share of the cache the root's pages count to: of who was the first to have some there. NULL: the salt's own.
void prefix_seq_charge(struct prefix *p, const struct prefix_seq *s, const char *account);
// Adopts cached pages after the ones it has, as long as they end at or before position limit. Only while s holds full
// pages alone. Each adopted page uses up one promised page. Returns s->kv.len.
int prefix_seq_match(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit);
// After prefix_seq_match: what a page of the tree or a tail has in common with the ids that follow is copied into a page of
// its own. Returns s->kv.len.
int prefix_seq_match_part(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int limit);
// Claims so many pages more, if spare pages stay unclaimed.
bool prefix_seq_promise(struct prefix *p, struct prefix_seq *s, int pages, int spare);
// Pages for positions 0 .. positions-1; beyond the promise only if unclaimed pages are left.
bool prefix_seq_reserve(struct prefix *p, struct prefix_seq *s, int positions);
int prefix_seq_stop(const struct prefix *p, const struct prefix_seq *s);  // the next chunk must not go beyond; or INT_MAX
int prefix_seq_next(const struct prefix *p, const struct prefix_seq *s);  // what it computes can be adopted from there on; or INT_MAX
bool prefix_seq_related(const struct prefix_seq *a, const struct prefix_seq *b);  // the same root
// Most pages it holds at a time, when it computes `rows` positions in a step; INT_MAX: as many as it has positions.
int prefix_most_pages(const struct prefix *p, int rows);
// The forward pass wrote `rows` more positions; ids are the tokens from position 0.
void prefix_seq_commit(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int rows);
// to: promised, else empty; becomes a second sequence with the same positions. A tail page comes out of its promise.
bool prefix_seq_fork(struct prefix *p, const struct prefix_seq *from, struct prefix_seq *to);
void prefix_seq_leave(struct prefix *p, struct prefix_seq *s, const int32_t *ids);  // its tail stays, then as done
void prefix_seq_done(struct prefix *p, struct prefix_seq *s);  // a zeroed one may be given

int prefix_unclaimed(const struct prefix *p);  // pages that can be promised
int prefix_cached(const struct prefix *p);     // pages in the tree
int prefix_evictable(const struct prefix *p);  // of these, used by nobody
size_t prefix_checkpoint_bytes(const struct prefix *p);
void prefix_flush(struct prefix *p);           // drops all evictable pages

// Walks everything and compares with the counters; false: the accounts are wrong. For tests.
bool prefix_check(const struct prefix *p);
