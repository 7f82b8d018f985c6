// The store: its keys, and what happens when the process dies, the disk is full or the file is not what it should be.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/store.h"
#include "tests/helpers/database.h"

static struct apikey key(const char *name, const char *options)
{
    struct apikey k;
    err e = {0};
    apikey_init(&k);
    assert_int_equal(apikey_set_name(&k, name, &e), ERR_OK);
    assert_int_equal(apikey_set_all(&k, options, &e), ERR_OK);
    apikey_digest(k.salt, name, k.digest);
    return k;
}

static err_code add(struct store *s, const char *name, const char *options, err *e)
{
    struct apikey k = key(name, options);
    err_code rc = store_add_key(s, &k, 7, e);
    apikey_done(&k);
    return rc;
}

static void keys_come_back(void **state)
{
    (void)state;
    err e = {0};
    struct store *s;
    struct store_keys found = {0};
    assert_int_equal(store_open(database_path, STORE_READ, &s, &e), ERR_NOT_FOUND);
    assert_int_equal(store_open(database_path, STORE_CREATE, &s, &e), ERR_OK);
    assert_int_equal(add(s, "b", "rpm=3 models=x,y admin", &e), ERR_OK);
    assert_int_equal(add(s, "a", "", &e), ERR_OK);
    assert_int_equal(add(s, "a", "", &e), ERR_INVALID);
    assert_int_equal(store_remove_key(s, "nobody", &e), ERR_NOT_FOUND);
    store_close(s);
    struct stat st;
    assert_int_equal(stat(database_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(store_open(database_path, STORE_CREATE, &s, &e), ERR_OK);
    assert_int_equal(store_keys(s, &found, &e), ERR_OK);
    assert_int_equal(found.len, 2);
    struct apikey b = key("b", "");
    assert_string_equal(found.items[0].name, "a");
    assert_memory_equal(found.items[1].digest, b.digest, APIKEY_DIGEST);
    assert_int_equal(found.items[1].rpm, 3);
    assert_string_equal(found.items[1].models, "x,y");
    assert_true(found.items[1].admin);
    assert_int_equal(found.created_unix_s[1], 7);
    store_keys_done(&found);
    assert_int_equal(store_remove_key(s, "b", &e), ERR_OK);
    assert_int_equal(store_keys(s, &found, &e), ERR_OK);
    assert_int_equal(found.len, 1);
    store_keys_done(&found);
    store_close(s);
}

static void add_keys(int fd)
{
    err e = {0};
    struct store *s;
    if (store_open(database_path, STORE_CREATE, &s, &e))
        return;
    for (int i = 0;; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        if (add(s, name, "", &e) || write(fd, "x", 1) != 1)
            return;
    }
}

// Whatever was said is there, and the file is whole.
static void killed(void **state)
{
    (void)state;
    int n = database_killed(add_keys, 20);
    err e = {0};
    struct store *s;
    struct store_keys found = {0};
    assert_int_equal(store_open(database_path, STORE_READ, &s, &e), ERR_OK);
    assert_int_equal(store_keys(s, &found, &e), ERR_OK);
    assert_true(found.len == n || found.len == n + 1);
    store_keys_done(&found);
    store_close(s);
}

// In a child with a file system of its own: 0 right, 1 wrong, 2 not possible here.
static int fill_disk(void)
{
    err e = {0};
    struct store *s = NULL;
    char small[80];
    if (!small_disk_mount(database_folder, "size=128k"))
        return SMALL_DISK_NONE;
    snprintf(small, sizeof small, "%s/full.db", database_folder);
    if (store_open(small, STORE_CREATE, &s, &e))
        return 1;
    int n = 0;
    char name[16];
    err_code rc = ERR_OK;
    for (; n < 10000 && !rc; n++) {
        snprintf(name, sizeof name, "k%d", n);
        rc = add(s, name, "", &e);
    }
    struct store_keys found = {0};
    err why = {0};
    bool right = rc == ERR_IO && (strstr(e.text, "full") || strstr(e.text, "I/O")) && !store_keys(s, &found, &why) &&
                 found.len == n - 1;
    store_keys_done(&found);
    store_close(s);
    return right ? 0 : 1;
}

static void disk_full(void **state)
{
    (void)state;
    small_disk_test(fill_disk);
}

// A user who may read the file, and write neither it nor its folder; 0: right.
static int read_as_other(void)
{
    struct store *s;
    struct store_keys found = {0};
    err e = {0};
    if (geteuid() == 0 && setuid(65534))
        return 1;
    if (store_open(database_path, STORE_READ, &s, &e) || store_keys(s, &found, &e))
        return 2;
    int n = found.len;
    store_keys_done(&found);
    bool refused = add(s, "c", "", &e) == ERR_IO && strstr(e.text, "user ");
    store_close(s);
    return n == 1 && refused ? 0 : 3;
}

static void read_only(void **state)
{
    (void)state;
    struct store *s;
    err e = {0};
    assert_int_equal(store_open(database_path, STORE_CREATE, &s, &e), ERR_OK);
    assert_int_equal(add(s, "a", "", &e), ERR_OK);
    store_close(s);
    assert_int_equal(chmod(database_path, 0444), 0);
    assert_int_equal(chmod(database_folder, 0555), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(read_as_other());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(database_folder, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void expect_refused(err_code code)
{
    err e = {0};
    struct store *s = NULL;
    struct store_keys found = {0};
    err_code rc = store_open(database_path, STORE_READ, &s, &e);
    if (!rc) {
        rc = store_keys(s, &found, &e);
        store_keys_done(&found);
        store_close(s);
    }
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.text, database_path));
}

static void not_a_store(void **state)
{
    (void)state;
    char junk[8192];
    memset(junk, 'j', sizeof junk);
    database_write(junk, sizeof junk, 0);
    expect_refused(ERR_CORRUPT);
    unlink(database_path);
    database_exec("CREATE TABLE other (x)");
    expect_refused(ERR_CORRUPT);
}

static void newer(void **state)
{
    (void)state;
    database_exec("PRAGMA user_version = 2");
    expect_refused(ERR_UNSUPPORTED);
}

// Enough keys for several pages.
static void fill(void)
{
    err e = {0};
    struct store *s;
    assert_int_equal(store_open(database_path, STORE_CREATE, &s, &e), ERR_OK);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(add(s, name, "", &e), ERR_OK);
    }
    store_close(s);
}

static void damaged(void **state)
{
    (void)state;
    fill();
    char junk[4096];
    memset(junk, 0x5a, sizeof junk);
    database_write(junk, sizeof junk, 4096);
    expect_refused(ERR_CORRUPT);
}

static void half_a_file(void **state)
{
    (void)state;
    fill();
    struct stat st;
    assert_int_equal(stat(database_path, &st), 0);
    assert_int_equal(truncate(database_path, st.st_size / 2 / 4096 * 4096), 0);
    expect_refused(ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_come_back, database_begin, database_end),
        cmocka_unit_test_setup_teardown(killed, database_begin, database_end),
        cmocka_unit_test_setup_teardown(disk_full, database_begin, database_end),
        cmocka_unit_test_setup_teardown(read_only, database_begin, database_end),
        cmocka_unit_test_setup_teardown(not_a_store, database_begin, database_end),
        cmocka_unit_test_setup_teardown(newer, database_begin, database_end),
        cmocka_unit_test_setup_teardown(damaged, database_begin, database_end),
        cmocka_unit_test_setup_teardown(half_a_file, database_begin, database_end),
    };
    return database_run(tests);
}
