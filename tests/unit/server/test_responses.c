// The store of responses: finding, owners, limits, restarts, and what happens when the process dies, the disk is full or the file is
// not what it should be.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/responses.h"
#include "tests/helpers/database.h"

static const struct responses_limits wide = {1000, 1000000, 64 << 20};

static struct responses *opened(const char *file, const struct responses_limits *limits)
{
    struct responses *s = NULL;
    err e = {0};
    if (responses_open(file, limits, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

static void closed(struct responses *s)
{
    responses_close(s);
    responses_unref(s);
}

static bool put_sized(struct responses *s, const char *owner, const char *id, const char *previous, size_t bytes)
{
    char item[80];
    char *object = mem_new(bytes + 32);
    memset(object, 'x', bytes);
    snprintf(item, sizeof item, "msg_%s", id);
    const char *items[] = {item};
    struct responses_kept k = {.owner = owner, .id = id, .previous = previous, .object = object, .input = "[1]", .items = items,
                               .nitems = 1, .created_unix_s = 5};
    bool kept = responses_put(s, &k);
    free(object);
    return kept;
}

static bool put(struct responses *s, const char *owner, const char *id, const char *previous)
{
    return put_sized(s, owner, id, previous, 10);
}

static bool has(struct responses *s, const char *owner, const char *id)
{
    struct responses_row row = {0};
    err e = {0};
    bool found = !responses_get(s, owner, id, &row, &e);
    if (!found && e.code != ERR_NOT_FOUND)
        fail_msg("%s", e.text);
    responses_row_done(&row);
    return found;
}

static void finds(const char *file)
{
    err e = {0};
    struct responses *s = opened(file, &wide);
    for (int settled = 0; settled < 2; settled++) {  // what waits, and what is written
        char a[16], b[16], item[32];
        snprintf(a, sizeof a, "a%d", settled);
        snprintf(b, sizeof b, "b%d", settled);
        snprintf(item, sizeof item, "msg_%s", b);
        assert_true(put(s, "me", a, NULL) && put(s, "me", b, a));
        if (settled)
            responses_settle(s);
        struct responses_row row = {0};
        assert_int_equal(responses_get(s, "me", b, &row, &e), ERR_OK);
        assert_string_equal(row.id, b);
        assert_string_equal(row.previous, a);
        assert_string_equal(row.object, "xxxxxxxxxx");
        assert_string_equal(row.input, "[1]");
        responses_row_done(&row);
        assert_int_equal(responses_find(s, "me", item, &row, &e), ERR_OK);
        assert_string_equal(row.id, b);
        responses_row_done(&row);
        assert_int_equal(responses_get(s, "me", a, &row, &e), ERR_OK);
        assert_null(row.previous);
        responses_row_done(&row);
        assert_false(has(s, "you", a) || has(s, "", a));
        assert_int_equal(responses_find(s, "you", item, &row, &e), ERR_NOT_FOUND);
        assert_int_equal(responses_delete(s, "you", a, &e), ERR_NOT_FOUND);
        assert_int_equal(responses_delete(s, "me", a, &e), ERR_OK);
        assert_int_equal(responses_delete(s, "me", a, &e), ERR_NOT_FOUND);
        assert_false(has(s, "me", a));
        assert_true(has(s, "me", b));
    }
    responses_settle(s);
    assert_int_equal(responses_count(s), 2);
    assert_false(responses_failing(s));
    closed(s);
}

static void in_memory(void **state)
{
    (void)state;
    finds(NULL);
}

static void in_a_file(void **state)
{
    (void)state;
    finds(database_path);
    struct stat st;
    assert_int_equal(stat(database_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void nothing_is_kept(void **state)
{
    (void)state;
    struct responses_limits none = {0, 100, 1 << 20}, small = {10, 100, 1000};
    struct responses *s = opened(NULL, &none);
    assert_false(put(s, "me", "a", NULL));
    closed(s);
    s = opened(NULL, &small);
    assert_false(put_sized(s, "me", "a", NULL, 2000));
    assert_true(put(s, "me", "b", NULL));
    responses_ref(s);
    responses_close(s);
    assert_false(put(s, "me", "c", NULL));
    struct responses_row row = {0};
    err e = {0};
    assert_int_equal(responses_get(s, "me", "b", &row, &e), ERR_DRAINING);
    assert_int_equal(responses_delete(s, "me", "b", &e), ERR_DRAINING);
    responses_unref(s);
    responses_unref(s);
    assert_false(put(NULL, "me", "a", NULL));
    assert_int_equal(responses_get(NULL, "me", "a", &row, &e), ERR_NOT_FOUND);
}

static void restarts(void **state)
{
    (void)state;
    unsigned char secret[RESPONSES_SECRET];
    struct responses *s = opened(database_path, &wide);
    memcpy(secret, responses_secret(s), sizeof secret);
    for (int i = 0; i < 200; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        assert_true(put(s, "me", id, NULL));
    }
    closed(s);  // writes what waits
    s = opened(database_path, &wide);
    assert_memory_equal(secret, responses_secret(s), sizeof secret);
    assert_int_equal(responses_count(s), 200);
    assert_true(has(s, "me", "r0") && has(s, "me", "r199"));
    closed(s);
}

// The least recently used goes first; a use counts once a minute.
static void limited_by_count(void **state)
{
    (void)state;
    struct responses_limits three = {3, 1000000, 1 << 20};
    struct responses *s = opened(database_path, &three);
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        assert_true(put(s, "me", id, NULL));
        responses_settle(s);
    }
    database_exec("UPDATE response SET used_unix_s = used_unix_s - 1000 + number");  // r0 the longest ago
    assert_true(has(s, "me", "r0"));
    assert_true(put(s, "me", "r3", NULL));
    responses_settle(s);
    assert_int_equal(responses_count(s), 3);
    assert_true(has(s, "me", "r0") && has(s, "me", "r2") && has(s, "me", "r3"));
    assert_false(has(s, "me", "r1"));
    struct responses_row row = {0};
    err e = {0};
    assert_int_equal(responses_find(s, "me", "msg_r1", &row, &e), ERR_NOT_FOUND);
    closed(s);
}

static void limited_by_bytes(void **state)
{
    (void)state;
    struct responses_limits bytes = {1000, 1000000, 40000};
    struct responses *s = opened(NULL, &bytes);
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        assert_true(put_sized(s, "me", id, NULL, 9000));
    }
    responses_settle(s);
    assert_int_equal(responses_count(s), 4);
    assert_true(has(s, "me", "r19") && has(s, "me", "r16"));
    assert_false(has(s, "me", "r15"));
    closed(s);
}

// Who has most loses its oldest; another's, though older, stay. What there was before a restart counts.
static void a_share_for_each_owner(void **state)
{
    (void)state;
    struct responses_limits ten = {10, 1000000, 1 << 20};
    struct responses *s = opened(database_path, &ten);
    char id[16];
    assert_true(put(s, "me", "m0", NULL) && put(s, "me", "m1", NULL) && put(s, "you", "y0", NULL));
    responses_settle(s);
    closed(s);
    s = opened(database_path, &ten);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "g%d", i);
        assert_true(put(s, "greedy", id, NULL));
    }
    responses_settle(s);
    assert_int_equal(responses_count(s), 10);
    assert_true(has(s, "me", "m0") && has(s, "me", "m1") && has(s, "you", "y0"));
    assert_true(has(s, "greedy", "g99") && has(s, "greedy", "g93") && !has(s, "greedy", "g92"));
    for (int i = 1; i < 100; i++) {
        snprintf(id, sizeof id, "y%d", i);
        assert_true(put(s, "you", id, NULL));
    }
    responses_settle(s);
    assert_true(has(s, "me", "m0") && has(s, "me", "m1") && has(s, "you", "y99") && has(s, "you", "y96"));
    int n = 0;
    for (int i = 93; i < 100; i++) {
        snprintf(id, sizeof id, "g%d", i);
        n += has(s, "greedy", id);
    }
    assert_int_equal(n, 4);
    assert_int_equal(responses_count(s), 10);
    closed(s);
}

// By bytes as by count: one large answer is more than many small ones.
static void a_share_of_bytes(void **state)
{
    (void)state;
    struct responses_limits bytes = {1000, 1000000, 40000};
    struct responses *s = opened(NULL, &bytes);
    char id[16];
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "s%d", i);
        assert_true(put(s, "small", id, NULL));
    }
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "l%d", i);
        assert_true(put_sized(s, "large", id, NULL, 9000));
    }
    responses_settle(s);
    assert_true(has(s, "small", "s0") && has(s, "small", "s9") && has(s, "large", "l9") && has(s, "large", "l8"));
    assert_false(has(s, "large", "l5"));
    closed(s);
}

static void limited_by_age(void **state)
{
    (void)state;
    struct responses_limits hour = {1000, 3600, 1 << 20};
    struct responses *s = opened(database_path, &hour);
    assert_true(put(s, "me", "old", NULL) && put(s, "me", "young", NULL));
    responses_settle(s);
    database_exec("UPDATE response SET used_unix_s = used_unix_s - 3601 WHERE id = 'old';"
         "UPDATE response SET used_unix_s = used_unix_s - 3500 WHERE id = 'young'");
    assert_false(has(s, "me", "old"));  // before it is swept out, too
    assert_int_equal(responses_count(s), 2);
    assert_true(has(s, "me", "young"));
    database_exec("UPDATE response SET used_unix_s = used_unix_s - 200 WHERE id = 'young'");
    assert_true(has(s, "me", "young"));  // its use was noted
    assert_true(put(s, "me", "new", NULL));
    responses_settle(s);
    assert_int_equal(responses_count(s), 2);
    closed(s);
}

// An id that comes twice (a client sends an answer's item back with another text) stays with the answer that had it first.
static void first_item_wins(void **state)
{
    (void)state;
    struct responses *s = opened(NULL, &wide);
    const char *items[] = {"msg_1"};
    struct responses_kept first = {.owner = "me", .id = "a", .object = "{}", .input = "[]", .items = items, .nitems = 1};
    struct responses_kept second = first;
    second.id = "b";
    assert_true(responses_put(s, &first) && responses_put(s, &second));
    responses_settle(s);
    struct responses_row row = {0};
    err e = {0};
    assert_int_equal(responses_find(s, "me", "msg_1", &row, &e), ERR_OK);
    assert_string_equal(row.id, "a");
    responses_row_done(&row);
    closed(s);
}

static void keep_answers(int fd)
{
    struct responses *s = opened(database_path, &wide);
    for (int i = 0;; i++) {
        char id[16];
        snprintf(id, sizeof id, "k%d", i);
        if (!put(s, "me", id, NULL) || write(fd, "x", 1) != 1)
            return;
        if (i % 10 == 9)
            responses_settle(s);
    }
}

// The file is whole, and all but the last ones are there.
static void killed(void **state)
{
    (void)state;
    int n = database_killed(keep_answers, 60);
    struct responses *s = opened(database_path, &wide);
    assert_true(responses_count(s) >= n - 11 && responses_count(s) <= n + 1);
    assert_true(has(s, "me", "k0"));
    closed(s);
}

// In a child with a file system of its own: 0 right, otherwise where it went wrong; 2: not possible here.
static int fill_disk(void)
{
    char small[80];
    if (!small_disk_mount(database_folder, "size=512k"))
        return SMALL_DISK_NONE;
    snprintf(small, sizeof small, "%s/full.db", database_folder);
    struct responses *s = opened(small, &wide);
    int n = 0;
    for (; n < 500 && !responses_failing(s); n++) {
        char id[16];
        snprintf(id, sizeof id, "k%d", n);
        if (!put_sized(s, "me", id, NULL, 4000))
            return 3;
        responses_settle(s);
    }
    if (n == 500 || responses_count(s) != n - 1)
        return 4;
    char last[16];
    snprintf(last, sizeof last, "k%d", n - 1);
    if (!has(s, "me", "k0") || !has(s, "me", last))  // the last one waits in memory
        return 5;
    int waiting = 0;
    while (put_sized(s, "me", "more", NULL, 4 << 20) && waiting < 100)
        waiting++;
    if (waiting < 10 || waiting > 16 || !has(s, "me", last))
        return 6;
    err e = {0};
    for (int i = 0; i < n - 1; i++) {
        char id[16];
        snprintf(id, sizeof id, "k%d", i);
        if (i % 2 && responses_delete(s, "me", id, &e) && e.code != ERR_IO)
            return 7;
    }
    closed(s);
    s = opened(small, &wide);
    bool right = has(s, "me", "k0");
    closed(s);
    return right ? 0 : 8;
}

static void disk_full(void **state)
{
    (void)state;
    small_disk_test(fill_disk);
}

static void expect_refused(err_code code, const char *why)
{
    struct responses *s = NULL;
    err e = {0};
    assert_int_equal(responses_open(database_path, &wide, &s, &e), code);
    assert_string_equal(e.param, "responses_db");
    if (!strstr(e.text, why))
        fail_msg("%s", e.text);
    database_end(NULL);
}

static void other_files(void **state)
{
    (void)state;
    static char noise[4096];
    memset(noise, 'x', sizeof noise);
    database_write(noise, sizeof noise, 0);
    expect_refused(ERR_CORRUPT, "not a SQLite file");
    database_exec("CREATE TABLE other (x); PRAGMA user_version = 0");
    expect_refused(ERR_CORRUPT, "not one of this setting");
    database_exec("CREATE TABLE other (x); PRAGMA user_version = 99");
    expect_refused(ERR_UNSUPPORTED, "version 99");
    closed(opened(database_path, &wide));
    database_exec("DELETE FROM secret");
    expect_refused(ERR_CORRUPT, "no secret");
    struct responses *s = opened(database_path, &wide);
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%d", i);
        put_sized(s, "me", id, NULL, 3000);
    }
    closed(s);
    for (long at = 4096; at < 8 * 4096; at += 4096)
        database_write(noise, 1000, at);
    expect_refused(ERR_CORRUPT, "damaged");
    strcpy(database_path, "/proc/nowhere/r.db");
    s = NULL;
    err e = {0};
    assert_int_equal(responses_open(database_path, &wide, &s, &e), ERR_IO);
}

enum { THREADS = 4, EACH = 100 };

static void *use(void *arg)
{
    struct responses *s = arg;
    char owner[32];
    snprintf(owner, sizeof owner, "%p", (void *)&owner);
    for (int i = 0; i < EACH; i++) {
        char id[16], before[16];
        err e = {0};
        snprintf(id, sizeof id, "r%d", i);
        snprintf(before, sizeof before, "r%d", i - 1);
        if (!put(s, owner, id, i ? before : NULL) || !has(s, owner, id) || (i && !has(s, owner, before)))
            return "lost";
        if (i % 3 == 2 && responses_delete(s, owner, id, &e))
            return "not deleted";
        if (i % 3 == 2 && (has(s, owner, id) || !put(s, owner, id, NULL)))
            return "still there";
    }
    return NULL;
}

// What was put is found from then on, whether the writer is before, at or behind it.
static void threads(void **state)
{
    (void)state;
    struct responses *s = opened(database_path, &wide);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, use, s), 0);
    for (int i = 0; i < THREADS; i++) {
        void *why;
        pthread_join(t[i], &why);
        if (why)
            fail_msg("%s", (char *)why);
    }
    responses_settle(s);
    assert_int_equal(responses_count(s), THREADS * EACH);
    closed(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),
        cmocka_unit_test_setup_teardown(in_a_file, database_begin, database_end),
        cmocka_unit_test(nothing_is_kept),
        cmocka_unit_test_setup_teardown(restarts, database_begin, database_end),
        cmocka_unit_test_setup_teardown(limited_by_count, database_begin, database_end),
        cmocka_unit_test(limited_by_bytes),
        cmocka_unit_test_setup_teardown(a_share_for_each_owner, database_begin, database_end),
        cmocka_unit_test(a_share_of_bytes),
        cmocka_unit_test_setup_teardown(limited_by_age, database_begin, database_end),
        cmocka_unit_test(first_item_wins),
        cmocka_unit_test_setup_teardown(killed, database_begin, database_end),
        cmocka_unit_test_setup_teardown(disk_full, database_begin, database_end),
        cmocka_unit_test_setup_teardown(threads, database_begin, database_end),
        cmocka_unit_test_setup_teardown(other_files, database_begin, database_end),
    };
    return database_run(tests);
}
