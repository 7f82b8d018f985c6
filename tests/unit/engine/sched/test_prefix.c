// The tree and the page accounts: random sequences over few stems in a small pool, checked after every operation.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/sched/prefix.h"

enum { MAX_TOKENS = 600, SEQS = 6 };

static struct kv_pool *open_pool(int pages)
{
    struct kv_layout l = {.type = KV_F32, .ngroups = 1, .groups = {{1, 1, 1, 0}}};
    struct kv_pool *p;
    err e = {0};
    assert_int_equal(kv_pool_open(&l, (size_t)pages * kv_page_bytes(&l), &p, &e), ERR_OK);
    return p;
}

// Every position's "key" is its token, so an adopted page can be verified.
static void write_rows(struct prefix_seq *s, const int32_t *ids, int rows)
{
    const struct kv_layout *l = kv_pool_layout(s->kv.pool);
    for (int i = s->kv.len; i < s->kv.len + rows; i++) {
        char *page = s->kv.pages[i / KV_PAGE_TOKENS];
        ((int32_t *)(void *)(page + kv_k_offset(l, 0, 0, 0)))[i % KV_PAGE_TOKENS] = ids[i];
    }
}

static void assert_rows(const struct prefix_seq *s, const int32_t *ids)
{
    const struct kv_layout *l = kv_pool_layout(s->kv.pool);
    for (int i = 0; i < s->kv.len; i++) {
        const char *page = s->kv.pages[i / KV_PAGE_TOKENS];
        assert_int_equal(((const int32_t *)(const void *)(page + kv_k_offset(l, 0, 0, 0)))[i % KV_PAGE_TOKENS], ids[i]);
    }
}

static void extend(struct prefix *p, struct prefix_seq *s, const int32_t *ids, int rows)
{
    assert_true(prefix_seq_reserve(p, s, s->kv.len + rows));
    write_rows(s, ids, rows);
    prefix_seq_commit(p, s, ids, rows);
}

static void test_reuse(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(10);
    struct prefix *p = prefix_open(pool, true);
    int32_t ids[300];
    for (int i = 0; i < 300; i++)
        ids[i] = i * 3;
    struct prefix_seq a, b;
    prefix_seq_init(p, &a, NULL, false);
    assert_int_equal(prefix_seq_match(p, &a, ids, 299), 0);
    assert_true(prefix_seq_promise(p, &a, 4, 0));
    assert_int_equal(prefix_unclaimed(p), 6);
    extend(p, &a, ids, 200);
    assert_int_equal(prefix_cached(p), 3);  // while it still runs
    assert_int_equal(a.promised, 0);

    prefix_seq_init(p, &b, NULL, false);
    assert_int_equal(prefix_seq_match(p, &b, ids, 191), 128);
    assert_int_equal(prefix_seq_match(p, &b, ids, 192), 192);
    assert_ptr_equal(a.kv.pages[2], b.kv.pages[2]);
    prefix_seq_done(p, &b);
    prefix_seq_init(p, &b, "other", false);
    assert_int_equal(prefix_seq_match(p, &b, ids, 192), 0);
    prefix_seq_done(p, &b);
    ids[130]++;  // differs in the third page
    prefix_seq_init(p, &b, NULL, false);
    assert_int_equal(prefix_seq_match(p, &b, ids, 299), 128);
    prefix_seq_done(p, &b);
    prefix_seq_done(p, &a);
    assert_int_equal(prefix_evictable(p), 3);
    assert_int_equal(prefix_unclaimed(p), 10);
    assert_true(prefix_check(p));
    prefix_flush(p);
    assert_int_equal(kv_pool_free_pages(pool), 10);
    prefix_close(p);
    kv_pool_close(pool);
}

// Two sequences compute the same page side by side: one copy stays.
static void test_same_page_twice(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(10);
    struct prefix *p = prefix_open(pool, true);
    int32_t ids[200] = {7};
    struct prefix_seq s[2];
    for (int i = 0; i < 2; i++)
        prefix_seq_init(p, &s[i], "x", false);
    for (int i = 0; i < 2; i++)
        extend(p, &s[i], ids, 130);
    assert_ptr_equal(s[0].kv.pages[0], s[1].kv.pages[0]);
    assert_ptr_equal(s[0].kv.pages[1], s[1].kv.pages[1]);
    assert_ptr_not_equal(s[0].kv.pages[2], s[1].kv.pages[2]);
    assert_int_equal(kv_pool_free_pages(pool), 6);
    assert_true(prefix_check(p));
    for (int i = 0; i < 2; i++)
        prefix_seq_done(p, &s[i]);
    prefix_close(p);
    assert_int_equal(kv_pool_free_pages(pool), 10);
    kv_pool_close(pool);
}

static void test_promises_hold(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(4);
    struct prefix *p = prefix_open(pool, true);
    int32_t ids[256] = {0};
    struct prefix_seq a, b;
    prefix_seq_init(p, &a, NULL, false);
    prefix_seq_init(p, &b, NULL, false);
    assert_true(prefix_seq_promise(p, &a, 3, 0));
    assert_false(prefix_seq_promise(p, &b, 2, 0));
    assert_false(prefix_seq_promise(p, &b, 1, 1));
    assert_true(prefix_seq_promise(p, &b, 1, 0));
    assert_false(prefix_seq_reserve(p, &b, 65));  // beyond its promise, and all is claimed
    extend(p, &b, ids, 10);
    ids[0] = 1;
    extend(p, &a, ids, 192);
    prefix_seq_done(p, &a);
    // Its pages are cached; they are given up for a promise.
    assert_true(prefix_seq_promise(p, &b, 3, 0));
    ids[0] = 0;
    extend(p, &b, ids, 200);
    assert_int_equal(prefix_cached(p), 3);
    assert_true(prefix_check(p));
    prefix_seq_done(p, &b);
    prefix_close(p);
    kv_pool_close(pool);
}

// Least recently used leaves go first, and never a parent before its child.
static void test_eviction_order(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(6);
    struct prefix *p = prefix_open(pool, true);
    int32_t old[128], young[128], big[256];
    for (int i = 0; i < 256; i++) {
        big[i] = 1000 + i;
        if (i < 128)
            old[i] = i, young[i] = 500 + i;
    }
    struct prefix_seq s;
    for (int i = 0; i < 2; i++) {
        prefix_seq_init(p, &s, NULL, false);
        extend(p, &s, i ? young : old, 128);
        prefix_seq_done(p, &s);
    }
    prefix_seq_init(p, &s, NULL, false);
    assert_true(prefix_seq_promise(p, &s, 4, 0));
    extend(p, &s, big, 129);  // three pages: two were free, the old leaf goes
    struct prefix_seq t;
    prefix_seq_init(p, &t, NULL, false);
    assert_int_equal(prefix_seq_match(p, &t, young, 128), 128);
    prefix_seq_done(p, &t);
    prefix_seq_init(p, &t, NULL, false);
    assert_int_equal(prefix_seq_match(p, &t, old, 128), 64);
    prefix_seq_done(p, &t);
    assert_true(prefix_check(p));
    prefix_seq_done(p, &s);
    prefix_close(p);
    kv_pool_close(pool);
}

struct run {
    struct prefix_seq s;
    int32_t ids[MAX_TOKENS];
    int n;
    bool active;
};

static void begin(struct prefix *p, struct run *r, uint64_t x)
{
    r->n = 65 + (int)(x % (MAX_TOKENS - 65));
    int stem = (int)(x >> 16 & 3), same = (int)((x >> 20) % MAX_TOKENS);
    for (int i = 0; i < r->n; i++)
        r->ids[i] = i < same ? stem * 1000 + i : (int32_t)(rng_u64(x, (uint64_t)i, 0) & 0xffff);
    prefix_seq_init(p, &r->s, x >> 32 & 1 ? "salt" : NULL, false);
    prefix_seq_match(p, &r->s, r->ids, r->n - 1);
    assert_rows(&r->s, r->ids);
    r->active = prefix_seq_promise(p, &r->s, prefix_pages(r->n) - r->s.kv.npages, 0);
    if (!r->active)
        prefix_seq_done(p, &r->s);
}

static void test_random(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(30);
    struct prefix *p = prefix_open(pool, true);
    struct run *runs = calloc(SEQS, sizeof *runs);
    int begun = 0, refused = 0, forked = 0;
    for (uint64_t op = 0; op < 20000; op++) {
        uint64_t x = rng_u64(5, op, 0);
        struct run *r = &runs[x % SEQS], *o = &runs[(x >> 8) % SEQS];
        int left = r->active ? r->n - r->s.kv.len : 0;
        if (!r->active) {
            begin(p, r, x >> 16);
            begun += r->active;
            refused += !r->active;
        } else if (left == 0 || (x >> 24) % 16 == 0) {
            assert_rows(&r->s, r->ids);
            prefix_seq_done(p, &r->s);
            r->active = false;
        } else if (!o->active && (x >> 24) % 16 == 1) {
            *o = (struct run){.n = r->s.kv.len};
            memcpy(o->ids, r->ids, sizeof o->ids);
            o->active = prefix_seq_fork(p, &r->s, &o->s);
            forked += o->active;
        } else {
            int rows = 1 + (int)((x >> 24) % 100);
            extend(p, &r->s, r->ids, rows < left ? rows : left);
        }
        assert_true(prefix_check(p));
    }
    assert_true(begun > 100 && refused > 100 && forked > 100);
    for (int i = 0; i < SEQS; i++)
        prefix_seq_done(p, &runs[i].s);
    assert_true(prefix_check(p));
    prefix_flush(p);
    assert_int_equal(kv_pool_free_pages(pool), 30);
    free(runs);
    prefix_close(p);
    kv_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_same_page_twice),
        cmocka_unit_test(test_promises_hold),
        cmocka_unit_test(test_eviction_order),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
