// Page pool and sequences: counts, sharing, all-or-nothing reservation, offsets.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "engine/sched/kv.h"

static const struct kv_layout two_groups = {
    .type = KV_F16,
    .ngroups = 2,
    .groups = {{.layers = 3, .heads = 2, .head_dim = 16}, {.layers = 1, .heads = 1, .head_dim = 32, .window = 64}},
    .state_bytes = 24,
};

static struct kv_pool *open_pool(const struct kv_layout *l, int pages)
{
    struct kv_pool *p;
    err e;
    assert_int_equal(kv_pool_open(l, kv_page_bytes(l) * (size_t)pages, &p, &e), ERR_OK);
    assert_int_equal(kv_pool_pages(p), pages);
    return p;
}

static void test_offsets_are_disjoint(void **state)
{
    (void)state;
    const struct kv_layout *l = &two_groups;
    size_t head = KV_PAGE_TOKENS * kv_row_bytes(KV_F16, 16), at = 0;
    for (int layer = 0; layer < 3; layer++) {
        for (int h = 0; h < 2; h++) {
            assert_int_equal(kv_k_offset(l, 0, layer, h), at);
            assert_int_equal(kv_v_offset(l, 0, layer, h), at + head);
            at += 2 * head;
        }
    }
    assert_int_equal(kv_k_offset(l, 1, 0, 0), at);
    assert_int_equal(kv_v_offset(l, 1, 0, 0) + KV_PAGE_TOKENS * kv_row_bytes(KV_F16, 32), kv_page_bytes(l));
    assert_int_equal(kv_token_bytes(l), 3 * 2 * 2 * 16 * 2 + 2 * 32 * 2);
}

static void test_reserve_is_all_or_nothing(void **state)
{
    (void)state;
    struct kv_pool *p = open_pool(&two_groups, 4);
    struct kv_seq a, b;
    kv_seq_init(&a, p);
    kv_seq_init(&b, p);
    assert_true(kv_seq_reserve(&a, KV_PAGE_TOKENS * 2 + 1));
    assert_int_equal(a.npages, 3);
    assert_non_null(a.state);
    assert_true(kv_seq_reserve(&a, 1));
    assert_int_equal(a.npages, 3);
    assert_false(kv_seq_reserve(&b, KV_PAGE_TOKENS + 1));
    assert_int_equal(b.npages, 0);
    assert_int_equal(kv_pool_free_pages(p), 1);
    assert_true(kv_seq_reserve(&b, KV_PAGE_TOKENS));
    assert_null(kv_page_alloc(p));
    kv_seq_done(&a);
    kv_seq_done(&b);
    assert_int_equal(kv_pool_free_pages(p), 4);
    kv_pool_close(p);
}

static void test_pages_are_aligned_and_distinct(void **state)
{
    (void)state;
    struct kv_pool *p = open_pool(&two_groups, 5);
    struct kv_seq a;
    kv_seq_init(&a, p);
    assert_true(kv_seq_reserve(&a, KV_PAGE_TOKENS * 5));
    for (int i = 0; i < 5; i++) {
        assert_int_equal((uintptr_t)a.pages[i] % 64, 0);
        memset(a.pages[i], i, kv_page_bytes(&two_groups));
    }
    for (int i = 0; i < 5; i++)
        assert_int_equal(((uint8_t *)a.pages[i])[kv_page_bytes(&two_groups) - 1], i);
    kv_seq_done(&a);
    kv_pool_close(p);
}

static void test_fork_shares_full_pages_and_copies_the_tail(void **state)
{
    (void)state;
    struct kv_pool *p = open_pool(&two_groups, 4);
    struct kv_seq a, b, c;
    kv_seq_init(&a, p);
    assert_true(kv_seq_reserve(&a, KV_PAGE_TOKENS + 2));
    kv_seq_commit(&a, KV_PAGE_TOKENS + 2);
    ((uint8_t *)a.pages[1])[5] = 77;
    ((uint8_t *)a.state)[23] = 9;
    assert_true(kv_seq_fork(&a, &b));
    assert_ptr_equal(a.pages[0], b.pages[0]);
    assert_int_equal(kv_page_refs(p, a.pages[0]), 2);
    assert_ptr_not_equal(a.pages[1], b.pages[1]);
    assert_int_equal(((uint8_t *)b.pages[1])[5], 77);
    assert_int_equal(((uint8_t *)b.state)[23], 9);
    assert_int_equal(b.len, KV_PAGE_TOKENS + 2);
    assert_true(kv_seq_fork(&a, &c));
    assert_int_equal(kv_pool_free_pages(p), 0);
    struct kv_seq d = {0};
    assert_false(kv_seq_fork(&a, &d));
    assert_int_equal(kv_page_refs(p, a.pages[0]), 3);
    kv_seq_done(&a);
    assert_int_equal(kv_page_refs(p, b.pages[0]), 2);
    kv_seq_done(&b);
    kv_seq_done(&c);
    assert_int_equal(kv_pool_free_pages(p), 4);
    kv_pool_close(p);
}

static void test_adopted_pages_outlive_their_first_owner(void **state)
{
    (void)state;
    struct kv_pool *p = open_pool(&two_groups, 2);
    struct kv_seq a, b;
    kv_seq_init(&a, p);
    kv_seq_init(&b, p);
    assert_true(kv_seq_reserve(&a, KV_PAGE_TOKENS));
    kv_seq_commit(&a, KV_PAGE_TOKENS);
    void *page = a.pages[0];
    kv_seq_adopt(&b, page);
    kv_seq_done(&a);
    assert_int_equal(kv_page_refs(p, page), 1);
    assert_int_equal(b.len, KV_PAGE_TOKENS);
    assert_true(kv_seq_reserve(&b, KV_PAGE_TOKENS + 1));
    assert_int_equal(kv_pool_free_pages(p), 0);
    kv_seq_done(&b);
    assert_int_equal(kv_pool_free_pages(p), 2);
    kv_pool_close(p);
}

// What is used is never written to, whatever was taken and given back before.
static void test_warming_leaves_used_pages_alone(void **state)
{
    (void)state;
    struct kv_pool *p;
    err e;
    size_t page = kv_page_bytes(&two_groups);
    int n = KV_WARM_PAGES + 20, rounds = 0;
    void *used[KV_WARM_PAGES + 20] = {0};
    assert_int_equal(kv_pool_open(&two_groups, (size_t)n * page, &p, &e), 0);
    for (int i = 0; i < n; i++) {
        used[i] = kv_page_alloc(p);
        memset(used[i], 1 + i % 250, page);
        if (i % 3 == 0) {
            kv_page_unref(p, used[i]);
            assert_ptr_equal(kv_page_alloc(p), used[i]);
        }
        for (int k = 0; i % 5 == 0 && k < 100000 && kv_pool_warm(p); k++)
            rounds++;
    }
    assert_true(rounds > 1);
    assert_false(kv_pool_warm(p));
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < page; k++)
            assert_int_equal(((uint8_t *)used[i])[k], 1 + i % 250);
        kv_page_unref(p, used[i]);
    }
    kv_pool_close(p);
}

static void test_bad_layouts_and_sizes(void **state)
{
    (void)state;
    struct kv_pool *p = NULL;
    err e;
    struct kv_layout l = two_groups;
    assert_int_equal(kv_pool_open(&l, kv_page_bytes(&l) - 1, &p, &e), ERR_MEMORY);
    l.ngroups = 0;
    assert_int_equal(kv_pool_open(&l, 1 << 20, &p, &e), ERR_INVALID);
    l = two_groups;
    l.groups[1].heads = 0;
    assert_int_equal(kv_pool_open(&l, 1 << 20, &p, &e), ERR_INVALID);
    assert_null(p);
    kv_pool_close(NULL);
    kv_seq_done(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets_are_disjoint),
        cmocka_unit_test(test_reserve_is_all_or_nothing),
        cmocka_unit_test(test_pages_are_aligned_and_distinct),
        cmocka_unit_test(test_fork_shares_full_pages_and_copies_the_tail),
        cmocka_unit_test(test_adopted_pages_outlive_their_first_owner),
        cmocka_unit_test(test_warming_leaves_used_pages_alone),
        cmocka_unit_test(test_bad_layouts_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
