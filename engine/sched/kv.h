// kv.h - paged key/value memory with reference counts.
//
//     struct kv_pool *pool;
//     kv_pool_open(&layout, bytes, &pool, &e);
//     struct kv_seq s;
//     kv_seq_init(&s, pool);
//     if (!kv_seq_reserve(&s, n)) ...            // pages for n positions; false: the pool is empty
//     ... forward writes rows at positions s.len .. ; then
//     kv_seq_commit(&s, n);
//     kv_seq_done(&s);                           // drops its references
//
// A page holds KV_PAGE_TOKENS positions of every layer: for each layer, for each KV head, first K [64, head_dim] and then
// V [64, head_dim]. A full page is immutable and may be in several sequences and in the prefix tree; a partly filled one
// belongs to one sequence (fork copies it). Owned by the scheduler thread; lanes read tables and write rows past `len`.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cpu.h"

enum { KV_PAGE_TOKENS = 64, KV_MAX_GROUPS = 4 };

// Layers of one shape. A model has one group, or several (local and global layers of Gemma).
struct kv_group {
    int layers, heads, head_dim;
    int window;  // 0: all positions are kept
};

struct kv_layout {
    enum kv_type type;
    int ngroups;
    struct kv_group groups[KV_MAX_GROUPS];
    size_t state_bytes;  // recurrent state of a sequence; 0: none
};

struct kv_pool;

struct kv_seq {
    struct kv_pool *pool;
    void **pages;      // page of position p is pages[p / KV_PAGE_TOKENS]; NULL: before the window
    int npages, cap;
    int len;           // committed positions
    void *state;       // state_bytes, NULL when there is none
};

size_t kv_page_bytes(const struct kv_layout *l);
size_t kv_token_bytes(const struct kv_layout *l);
// Positions before the current one that any layer reads, the current one included; 0: some layer reads all.
int kv_window(const struct kv_layout *l);
// Offsets inside a page of head `head` of layer `layer` (counted within the group).
size_t kv_k_offset(const struct kv_layout *l, int group, int layer, int head);
size_t kv_v_offset(const struct kv_layout *l, int group, int layer, int head);

MUST_CHECK err_code kv_pool_open(const struct kv_layout *l, size_t bytes, struct kv_pool **ret_pool, err *e);
void kv_pool_close(struct kv_pool *p);
const struct kv_layout *kv_pool_layout(const struct kv_pool *p);
int kv_pool_pages(const struct kv_pool *p);
int kv_pool_free_pages(const struct kv_pool *p);
// Memory that was never used costs the kernel's time when it is first written, in the middle of a step. This writes to some
// of what will be used next, KV_WARM_PAGES and KV_WARM_BYTES ahead at most; for idle moments, a few milliseconds. False: there is
// nothing to do.
enum { KV_WARM_PAGES = 32, KV_WARM_BYTES = 256 << 20 };
bool kv_pool_warm(struct kv_pool *p);

// Pages are counted: alloc gives one reference (NULL: none free), the last unref frees.
void *kv_page_alloc(struct kv_pool *p);
void kv_page_ref(struct kv_pool *p, void *page);
void kv_page_unref(struct kv_pool *p, void *page);
void kv_page_copy(struct kv_pool *p, void *to, const void *from);
int kv_page_refs(const struct kv_pool *p, const void *page);

void kv_seq_init(struct kv_seq *s, struct kv_pool *p);
bool kv_seq_reserve(struct kv_seq *s, int positions);  // pages for positions 0 .. positions-1; all or nothing
// Appends a full page (takes a new reference); len grows by a page. NULL: one before the window, which nobody reads.
void kv_seq_adopt(struct kv_seq *s, void *page);
void kv_seq_drop(struct kv_seq *s, int i);             // page i is before the window: its entry becomes NULL
void kv_seq_commit(struct kv_seq *s, int rows);
// A second sequence with the same committed positions: full pages shared, the tail's rows copied. False: no page free.
bool kv_seq_fork(const struct kv_seq *s, struct kv_seq *ret_seq);
bool kv_seq_set_state(struct kv_seq *s, const void *state);  // a copy; false: no memory
void *kv_seq_take_state(struct kv_seq *s);                   // now the caller's, who frees it
void kv_seq_done(struct kv_seq *s);
