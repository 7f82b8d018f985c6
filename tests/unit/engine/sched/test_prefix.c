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

struct kind {
    int window;
    bool recurrent;
};

// Of a recurrent sequence: a hash of its tokens, which only their number and order can bring about.
struct state {
    int64_t len;
    uint64_t hash;
};

static struct kv_pool *open_kind(int pages, struct kind kind)
{
    struct kv_layout l = {.type = KV_F32, .ngroups = 1, .groups = {{1, 1, 1, kind.window}},
                          .state_bytes = kind.recurrent ? sizeof(struct state) : 0};
    struct kv_pool *p;
    err e = {0};
    assert_int_equal(kv_pool_open(&l, (size_t)pages * kv_page_bytes(&l), &p, &e), ERR_OK);
    return p;
}

static struct kv_pool *open_pool(int pages)
{
    return open_kind(pages, (struct kind){0});
}

static int32_t *row_at(const struct prefix_seq *s, int i)
{
    char *page = s->kv.pages[i / KV_PAGE_TOKENS];
    assert_non_null(page);
    return (int32_t *)(void *)(page + kv_k_offset(kv_pool_layout(s->kv.pool), 0, 0, 0)) + i % KV_PAGE_TOKENS;
}

// Every position's "key" is its token, so an adopted page can be verified.
static void write_rows(struct prefix_seq *s, const int32_t *ids, int rows)
{
    struct state *st = s->kv.state;
    for (int i = s->kv.len; i < s->kv.len + rows; i++) {
        *row_at(s, i) = ids[i];
        if (!st)
            continue;
        assert_int_equal(st->len++, i);
        st->hash = rng_u64(st->hash, (uint64_t)ids[i], 0);
    }
}

// What the next position reads is there.
static void assert_rows(const struct prefix_seq *s, const int32_t *ids)
{
    int window = kv_window(kv_pool_layout(s->kv.pool));
    for (int i = window && s->kv.len >= window ? s->kv.len - window + 1 : 0; i < s->kv.len; i++)
        assert_int_equal(*row_at(s, i), ids[i]);
    const struct state *st = s->kv.state;
    if (!st || s->restore)
        return;
    uint64_t hash = 0;
    for (int i = 0; i < s->kv.len; i++)
        hash = rng_u64(hash, (uint64_t)ids[i], 0);
    assert_true(st->len == s->kv.len && st->hash == hash);
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
    assert_int_equal(prefix_seq_match_part(p, &b, ids, 299), 130);  // two rows of it are copied
    assert_rows(&b, ids);
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

// The last page of a sequence that ended stays to be copied from; what has nothing of its own does not.
static void test_tails(void **state)
{
    (void)state;
    struct kv_pool *pool = open_pool(10);
    struct prefix *p = prefix_open(pool, true);
    int32_t ids[200];
    for (int i = 0; i < 200; i++)
        ids[i] = i;
    static const struct { int n, hit, cached; } runs[] = {{100, 0, 2}, {110, 100, 2}, {90, 89, 2}, {128, 110, 2},
                                                          {130, 128, 3}, {70, 69, 3}, {30, 29, 3}, {1, 0, 3}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct prefix_seq s;
        int n = runs[i].n;
        prefix_seq_init(p, &s, NULL, false);
        prefix_seq_match(p, &s, ids, n - 1);
        int have = prefix_seq_match_part(p, &s, ids, n - 1);
        assert_int_equal(have, runs[i].hit);
        assert_rows(&s, ids);
        extend(p, &s, ids, n - have);
        prefix_seq_leave(p, &s, ids);
        assert_int_equal(prefix_cached(p), runs[i].cached);
        assert_true(prefix_check(p));
    }
    // With no page but the one to copy from, it is computed instead.
    struct prefix_seq a, b;
    prefix_flush(p);
    prefix_seq_init(p, &a, NULL, false);
    extend(p, &a, ids, 20);
    prefix_seq_leave(p, &a, ids);
    prefix_seq_init(p, &a, "x", false);
    extend(p, &a, ids, 200);
    extend(p, &a, (int32_t[640]){0}, 376);
    prefix_seq_init(p, &b, NULL, false);
    assert_int_equal(prefix_seq_match_part(p, &b, ids, 19), 0);
    assert_int_equal(prefix_cached(p), 10);
    extend(p, &b, ids, 20);
    assert_true(prefix_check(p));
    prefix_seq_done(p, &a);
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

static int copied, matched;  // tokens, of all runs

static void begin(struct prefix *p, struct run *r, uint64_t x)
{
    r->n = 65 + (int)(x % (MAX_TOKENS - 65));
    int stem = (int)(x >> 16 & 3), same = (int)((x >> 20) % MAX_TOKENS);
    for (int i = 0; i < r->n; i++)
        r->ids[i] = i < same ? stem * 1000 + i : (int32_t)(rng_u64(x, (uint64_t)i, 0) & 0xffff);
    prefix_seq_init(p, &r->s, x >> 32 & 1 ? "salt" : NULL, false);
    prefix_seq_match(p, &r->s, r->ids, r->n - 1);
    int pages = prefix_pages(r->n) - r->s.kv.npages, most = prefix_most_pages(p, 100);
    r->active = prefix_seq_promise(p, &r->s, pages < most ? pages : most, 0);
    int len = r->s.kv.len;
    if (r->active && x >> 33 & 1) {
        copied += prefix_seq_match_part(p, &r->s, r->ids, r->n - 1) - len;
        assert_true(r->s.kv.len < r->n);
    }
    assert_rows(&r->s, r->ids);
    matched += r->s.kv.len;
    if (!r->active)
        prefix_seq_done(p, &r->s);
}

static void random_run(struct kind kind, uint64_t seed)
{
    int pages = kind.window ? 14 : 30;
    struct kv_pool *pool = open_kind(pages, kind);
    struct prefix *p = prefix_open(pool, true);
    prefix_set_checkpoints(p, 7 * sizeof(struct state));
    struct run *runs = calloc(SEQS, sizeof *runs);
    int begun = 0, refused = 0, forked = 0;
    copied = matched = 0;
    for (uint64_t op = 0; op < 20000; op++) {
        uint64_t x = rng_u64(seed, op, 0);
        struct run *r = &runs[x % SEQS], *o = &runs[(x >> 8) % SEQS];
        int left = r->active ? r->n - r->s.kv.len : 0;
        if (!r->active) {
            begin(p, r, x >> 16);
            begun += r->active;
            refused += !r->active;
        } else if (left == 0 || (x >> 24) % 16 == 0) {
            assert_rows(&r->s, r->ids);
            if (x >> 40 & 1)
                prefix_seq_leave(p, &r->s, r->ids);
            else
                prefix_seq_done(p, &r->s);
            r->active = false;
        } else if (!o->active && !r->s.restore && (x >> 24) % 16 == 1) {
            *o = (struct run){.n = r->s.kv.len};
            memcpy(o->ids, r->ids, sizeof o->ids);
            o->active = prefix_seq_fork(p, &r->s, &o->s);
            forked += o->active;
        } else {
            int rows = 1 + (int)((x >> 24) % 100), stop = prefix_seq_stop(p, &r->s) - r->s.kv.len;
            rows = rows < left ? rows : left;
            if (kind.window && !prefix_seq_reserve(p, &r->s, r->s.kv.len + rows))
                continue;  // somebody took over its pages before they left the window
            extend(p, &r->s, r->ids, rows < stop ? rows : stop);
        }
        assert_true(prefix_check(p));
    }
    assert_true(begun > 100 && refused > 100 && forked > 100 && copied > 1000 && matched > 10000);
    for (int i = 0; i < SEQS; i++)
        prefix_seq_done(p, &runs[i].s);
    assert_true(prefix_check(p));
    prefix_flush(p);
    assert_int_equal(kv_pool_free_pages(pool), pages);
    assert_int_equal(prefix_checkpoint_bytes(p), 0);
    free(runs);
    prefix_close(p);
    kv_pool_close(pool);
}

static void test_random(void **state)
{
    (void)state;
    random_run((struct kind){0}, 5);
}

static void test_random_recurrent(void **state)
{
    (void)state;
    random_run((struct kind){.recurrent = true}, 6);
}

static void test_random_window(void **state)
{
    (void)state;
    static const int windows[] = {1, 2, 63, 64, 65, 127, 128, 129, 200};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        random_run((struct kind){.window = windows[i]}, 7 + i);
}

// ---- every order of a few operations

// Two sequences over two texts with a common page and a half, three pages and a half long, in five pages.
enum { DEPTH = 6, UNIT = KV_PAGE_TOKENS / 2, TEXT = 7 * UNIT };

enum op { BEGIN_A, BEGIN_B, EXTEND, EXTEND_FAR, LEAVE, FORK, OPS };

struct scope {
    struct prefix *p;
    int32_t texts[2][TEXT];
    struct prefix_seq s[2];
    const int32_t *ids[2];  // NULL: not begun
};

static bool do_begin(struct scope *sc, int i, const int32_t *ids)
{
    if (sc->ids[i])
        return false;
    prefix_seq_init(sc->p, &sc->s[i], NULL, false);
    prefix_seq_match(sc->p, &sc->s[i], ids, TEXT - 1);
    prefix_seq_match_part(sc->p, &sc->s[i], ids, TEXT - 1);
    sc->ids[i] = ids;
    return true;
}

static bool do_extend(struct scope *sc, int i, int rows)
{
    struct prefix_seq *s = &sc->s[i];
    int stop = sc->ids[i] ? prefix_seq_stop(sc->p, s) - s->kv.len : 0;
    rows = rows < stop ? rows : stop;
    if (!sc->ids[i] || s->kv.len + rows > TEXT || !prefix_seq_reserve(sc->p, s, s->kv.len + rows))
        return false;
    extend(sc->p, s, sc->ids[i], rows);
    return true;
}

static bool do_leave(struct scope *sc, int i)
{
    if (!sc->ids[i])
        return false;
    prefix_seq_leave(sc->p, &sc->s[i], sc->ids[i]);
    sc->ids[i] = NULL;
    return true;
}

static bool do_fork(struct scope *sc, int i)
{
    int o = 1 - i;
    if (!sc->ids[i] || sc->ids[o] || sc->s[i].restore || sc->s[i].kv.len == 0)
        return false;
    if (!prefix_seq_fork(sc->p, &sc->s[i], &sc->s[o]))
        return false;
    sc->ids[o] = sc->ids[i];
    return true;
}

// False: it cannot be done there, or would change nothing.
static bool do_op(struct scope *sc, int code)
{
    int i = code / OPS;
    switch ((enum op)(code % OPS)) {
    case BEGIN_A:
        return do_begin(sc, i, sc->texts[0]);
    case BEGIN_B:
        return do_begin(sc, i, sc->texts[1]);
    case EXTEND:
        return do_extend(sc, i, UNIT);
    case EXTEND_FAR:
        return do_extend(sc, i, 3 * UNIT + 5);
    case LEAVE:
        return do_leave(sc, i);
    default:
        return do_fork(sc, i);
    }
}

static bool replay(struct kind kind, const int *codes, int n)
{
    struct kv_pool *pool = open_kind(5, kind);
    struct scope sc = {.p = prefix_open(pool, true)};
    prefix_set_checkpoints(sc.p, 2 * sizeof(struct state));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < TEXT; i++)
            sc.texts[k][i] = i < 3 * UNIT ? i : 1000 * k + i;
    bool done = true;
    for (int i = 0; i < n; i++)
        done = do_op(&sc, codes[i]);
    assert_true(prefix_check(sc.p));
    for (int i = 0; i < 2; i++) {
        if (sc.ids[i])
            assert_rows(&sc.s[i], sc.ids[i]);
        prefix_seq_done(sc.p, &sc.s[i]);
    }
    prefix_flush(sc.p);
    assert_int_equal(kv_pool_free_pages(pool), 5);
    prefix_close(sc.p);
    kv_pool_close(pool);
    return done;
}

static long every_order(struct kind kind, const int *codes, int n)
{
    long count = 0;
    int next[DEPTH] = {0};
    if (n > 0)
        memcpy(next, codes, (size_t)n * sizeof *codes);
    // The sequences are alike: the first to begin is number 0.
    for (next[n] = 0; next[n] < (n ? 2 * OPS : OPS); next[n]++)
        if (replay(kind, next, n + 1))
            count += 1 + (n + 1 < DEPTH ? every_order(kind, next, n + 1) : 0);
    return count;
}

static void test_every_order(void **state)
{
    (void)state;
    static const struct kind kinds[] = {{0, false}, {0, true}, {40, false}, {70, true}};
    for (size_t i = 0; i < 4; i++)
        assert_true(every_order(kinds[i], NULL, 0) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_same_page_twice),
        cmocka_unit_test(test_promises_hold),
        cmocka_unit_test(test_eviction_order),
        cmocka_unit_test(test_tails),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_recurrent),
        cmocka_unit_test(test_random_window),
        cmocka_unit_test(test_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
