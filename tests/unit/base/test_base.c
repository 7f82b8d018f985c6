// The base layer: UTF-8, errors, arenas, buffers, maps, queues, files.

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/utf8.h"

static void utf8_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x110010; cp++) {
        char s[4];
        uint32_t back = 0;
        int n = utf8_encode(cp, s);
        bool legal = cp <= 0x10FFFF && !(cp >= 0xD800 && cp < 0xE000);
        assert_int_equal(utf8_decode(s, (size_t)n, &back), n);
        assert_int_equal(back, legal ? cp : 0xFFFD);
        for (int cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_decode(s, (size_t)cut, &back), 0);
            assert_int_equal(utf8_complete(s, (size_t)cut), 0);
        }
        assert_int_equal(utf8_complete(s, (size_t)n), n);
    }
}

static void utf8_bad_bytes(void **state)
{
    (void)state;
    // Overlong, surrogate, past the end, lone continuation, bad lead: none is a character or may wait for more bytes.
    static const char *const bad[] = {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xFF", "\xF8\x88"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t cp;
        assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
        assert_int_equal(utf8_bad_length(bad[i], strlen(bad[i])), 1);
        assert_int_equal(utf8_complete(bad[i], strlen(bad[i])), strlen(bad[i]));
    }
    assert_int_equal(utf8_bad_length("\xF0\x9F\xA6x", 4), 3);  // the maximal subpart is one replacement
    assert_int_equal(utf8_complete("ab\xE2\x82", 4), 2);
    assert_int_equal(utf8_complete("ab\xE2\x82\xE2", 5), 4);
    assert_false(utf8_valid("a\xC3", 2));
    assert_true(utf8_valid("a\0b", 3));
}

static void errors(void **state)
{
    (void)state;
    err e = {0};
    assert_int_equal(err_set_param(&e, ERR_CORRUPT, "blk.0.w", "found %d, expected %d", 1, 2), ERR_CORRUPT);
    assert_string_equal(e.param, "blk.0.w");
    assert_int_equal(err_wrap(&e, "model '%s'", "x"), ERR_CORRUPT);
    assert_string_equal(e.text, "model 'x': found 1, expected 2");
    char big[2000];
    for (size_t i = 0; i + 2 < sizeof big; i += 2)
        memcpy(big + i, "\xC3\xA9", 3);
    err_set(&e, ERR_INVALID, "x%s", big);
    assert_true(utf8_valid(e.text, strlen(e.text)));
    err_wrap(&e, "y%s", big);
    assert_true(utf8_valid(e.text, strlen(e.text)));
    assert_int_equal(err_set(NULL, ERR_BUSY, "nobody reads this"), ERR_BUSY);
    assert_string_equal(err_name(ERR_BUSY), "server is full");
    assert_string_equal(err_name((err_code)999), "unknown error");
}

static void count(void *p)
{
    int *n = p;
    *n = *n * 10 + 1;
}

static void count_two(void *p)
{
    int *n = p;
    *n = *n * 10 + 2;
}

static void arenas(void **state)
{
    (void)state;
    struct arena a = {0};
    int order = 0;
    arena_defer(&a, count, &order);
    arena_defer(&a, count_two, &order);
    for (size_t n = 0; n < 40000; n = n * 2 + 1) {
        unsigned char *p = arena_alloc(&a, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAA, n);
    }
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
    assert_string_equal(arena_strndup(&a, "hello", 2), "he");
    arena_done(&a);
    assert_int_equal(order, 21);  // last deferred, first released
    assert_string_equal(arena_strdup(&a, "again"), "again");
    arena_done(&a);
}

static void buffers(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    assert_true(buf_add_str(&b, "12345"));
    assert_true(buf_printf(&b, "%d", 678));
    assert_false(buf_add_str(&b, "abc"));
    assert_true(b.over);
    assert_string_equal(b.data, "12345678");
    assert_false(buf_add_char(&b, 'x'));  // refused from then on
    buf_clear(&b);
    assert_true(buf_add(&b, "a\0b", 3));
    assert_int_equal(b.len, 3);
    char *p = buf_take(&b);
    assert_memory_equal(p, "a\0b", 4);
    free(p);
    p = buf_take(&b);
    assert_string_equal(p, "");
    free(p);
    buf_done(&b);
}

static void maps(void **state)
{
    (void)state;
    struct map *m = map_new(3);
    char key[32];
    for (uint32_t i = 0; i < 20000; i++) {
        int n = snprintf(key, sizeof key, "key %u", i);
        assert_true(map_put(m, key, (size_t)n, i));
    }
    assert_false(map_put(m, "key 7", 5, 70));
    assert_true(map_put(m, "", 0, 5));
    assert_true(map_put(m, "a\0b", 3, 6));
    uint32_t v = 0;
    assert_true(map_get(m, "key 7", 5, &v));
    assert_int_equal(v, 70);
    assert_true(map_get(m, "key 19999", 9, &v));
    assert_int_equal(v, 19999);
    assert_true(map_get(m, "", 0, &v));
    assert_int_equal(v, 5);
    assert_false(map_get(m, "a", 1, &v));
    assert_int_equal(v, 5);
    map_free(m);
    map_free(NULL);
}

enum { ITEMS = 20000 };

static void *producer(void *arg)
{
    struct queue *q = arg;
    for (uintptr_t i = 1; i <= ITEMS; i++)
        while (!queue_push(q, (void *)i))
            sched_yield();
    queue_close(q);
    return NULL;
}

static void queues(void **state)
{
    (void)state;
    struct queue *q = queue_new(7);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, producer, q), 0);
    for (uintptr_t want = 1; want <= ITEMS; want++)
        assert_int_equal((uintptr_t)queue_pop(q), want);
    assert_null(queue_pop(q));
    assert_false(queue_push(q, q));  // closed
    pthread_join(t, NULL);
    queue_free(q);
    q = queue_new(2);
    assert_true(queue_push(q, q) && queue_push(q, q));
    assert_false(queue_push(q, q));
    queue_close(q);
    assert_ptr_equal(queue_pop(q), q);
    assert_ptr_equal(queue_pop(q), q);
    assert_null(queue_pop(q));
    queue_free(q);
}

static void hidden_paths(void **state)
{
    (void)state;
    err e;
    err_set(&e, ERR_CORRUPT, "/srv/m/vocab.txt is not UTF-8; expected '/srv/m' to be");
    err_hide_path(&e, "/srv/m", "tiny");
    assert_string_equal(e.text, "tiny/vocab.txt is not UTF-8; expected 'tiny' to be");
    err_hide_path(&e, "UTF", "x");  // no path
    err_hide_path(&e, NULL, "x");
    assert_string_equal(e.text, "tiny/vocab.txt is not UTF-8; expected 'tiny' to be");
    // A name longer than the path: the text is cut, at a character border.
    err_set(&e, ERR_CORRUPT, "%0100d/a/%0300d/a/\xc3\xa9", 1, 2);
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    err_hide_path(&e, "/a/", name);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_null(strstr(e.text, "/a/"));
    for (int i = 0; i < 8; i++) {  // a name that holds the path ends all the same
        err_set(&e, ERR_CORRUPT, "%0500d/a/\xc3\xa9%.*s", 1, i, "zzzzzzzz");
        err_hide_path(&e, "/a/", "/a/b\xc3\xa9");
        assert_true(strlen(e.text) < sizeof e.text);
        assert_int_equal(utf8_complete(e.text, strlen(e.text)), strlen(e.text));
    }
}

static void sizes_and_files(void **state)
{
    (void)state;
    size_t r = 7;
    assert_false(size_mul(SIZE_MAX / 2, 3, &r));
    assert_false(size_add(SIZE_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_null(mem_try_pages(SIZE_MAX - 5));
    unsigned char *p = mem_try_pages(5 << 20);
    assert_non_null(p);
    assert_int_equal(p[(5 << 20) - 1], 0);
    mem_free_pages(p, 5 << 20);
    err e = {0};
    char *text;
    size_t len;
    assert_int_equal(file_read("Makefile", 10, &text, &len, &e), ERR_TOO_LARGE);
    assert_int_equal(file_read("base", 10, &text, &len, &e), ERR_INVALID);
    assert_int_equal(file_read("no/such", 10, &text, &len, &e), ERR_NOT_FOUND);
    struct file_map m;
    assert_int_equal(file_map_open("Makefile", &m, &e), ERR_OK);
    assert_true(m.size > 100 && m.data[0] == '#');
    file_map_close(&m);
    assert_int_equal(rng_u64(1, 2, 3), rng_u64(1, 2, 3));
    assert_int_not_equal(rng_u64(1, 2, 3), rng_u64(1, 3, 2));
    assert_true(rng_unit(9, 9, 9) >= 0 && rng_unit(9, 9, 9) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_every_code_point), cmocka_unit_test(utf8_bad_bytes), cmocka_unit_test(errors),
        cmocka_unit_test(arenas),                cmocka_unit_test(buffers),        cmocka_unit_test(maps),
        cmocka_unit_test(queues),                cmocka_unit_test(sizes_and_files),
        cmocka_unit_test(hidden_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
