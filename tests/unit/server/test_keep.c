// Files kept for a while, and the pool of threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/keep.h"
#include "server/pool.h"

static void files_can_be_fetched(void **state)
{
    (void)state;
    struct keep *k = keep_open(3600, 4, 100);
    char a[KEEP_ID], b[KEEP_ID];
    const char *type;
    void *data;
    size_t len;
    assert_true(keep_reserve(k, 2, 50));
    keep_put(k, "image/png", mem_strdup("first"), 5, a);
    keep_put(k, "image/webp", mem_strdup("second"), 6, b);
    keep_release(k, 2, 50);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 40);
    assert_true(keep_find(k, b, &type, &data, &len));
    assert_string_equal(type, "image/webp");
    assert_int_equal(len, 6);
    assert_memory_equal(data, "second", 6);
    free(data);
    assert_false(keep_find(k, "", &type, &data, &len));
    a[0] = a[0] == 'f' ? '0' : 'f';
    assert_false(keep_find(k, a, &type, &data, &len));
    keep_unref(k);
    keep_unref(NULL);
}

static void room_is_promised_once(void **state)
{
    (void)state;
    struct keep *k = keep_open(3600, 3, 100);
    char id[KEEP_ID];
    assert_false(keep_reserve(k, 1, 101));
    assert_false(keep_reserve(k, 1, SIZE_MAX));
    assert_false(keep_reserve(k, 4, 4));
    assert_true(keep_reserve(k, 2, 60));
    assert_false(keep_reserve(k, 2, 10));  // files
    assert_false(keep_reserve(k, 1, 41));  // bytes
    keep_put(k, "x", mem_strdup("12345"), 5, id);
    keep_release(k, 2, 60);
    assert_true(keep_reserve(k, 2, 95));
    assert_false(keep_reserve(k, 1, 0));
    keep_release(k, 2, 95);
    keep_unref(k);
}

static void files_end(void **state)
{
    (void)state;
    struct keep *k = keep_open(1, 1, 100), *other = keep_ref(k);
    char id[KEEP_ID];
    const char *type;
    void *data;
    size_t len;
    keep_put(k, "x", mem_strdup("12345"), 5, id);
    assert_false(keep_reserve(k, 1, 1));
    for (int i = 0; i < 400 && !keep_reserve(k, 1, 1); i++)
        usleep(10000);
    assert_false(keep_find(k, id, &type, &data, &len));
    keep_unref(k);
    keep_put(other, "x", mem_strdup("12345"), 5, id);
    keep_unref(other);
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void pool_runs_everything(void **state)
{
    (void)state;
    atomic_int n = 0;
    struct pool *p = pool_open(3), *other = pool_ref(p);
    int posted = 0;
    for (int i = 0; i < 500; i++)
        posted += pool_post(p, count, &n);
    pool_close(p);
    assert_int_equal(posted, 500);
    assert_int_equal(atomic_load(&n), 500);
    pool_unref(p);
    assert_false(pool_post(other, count, &n));  // closed
    pool_unref(other);
    assert_false(pool_post(NULL, count, &n));
    pool_close(NULL);
    pool_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_can_be_fetched),
        cmocka_unit_test(room_is_promised_once),
        cmocka_unit_test(files_end),
        cmocka_unit_test(pool_runs_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
