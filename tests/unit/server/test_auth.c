// Keys, Host names and origins.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/auth.h"
#include "server/store.h"

static const char *const keys[] = {"alpha", "beta-long-key"};
static const char *const hosts[] = {"box.local"};
static const char *const origins[] = {"https://app.example"};
static const struct auth with_keys = {.hosts = hosts, .nhosts = 1, .origins = origins, .norigins = 1};
static char path[] = "/tmp/oxinferd-auth-XXXXXX", store_path[] = "/tmp/oxinferd-auth-store-XXXXXX";

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// One line of a hashed key, whose secret is the name and "-secret".
static void add_line(struct buf *out, const char *name, unsigned char salt, const char *options)
{
    struct apikey k;
    err e = {0};
    char secret[100];
    apikey_init(&k);
    snprintf(secret, sizeof secret, "%s-secret", name);
    assert_int_equal(apikey_set_name(&k, name, &e), ERR_OK);
    assert_int_equal(apikey_set_all(&k, options, &e), ERR_OK);
    memset(k.salt, salt, sizeof k.salt);
    apikey_digest(k.salt, secret, k.digest);
    apikey_write_line(&k, out);
    apikey_done(&k);
}

static const char *name_of(const struct auth_table *t, const char *given)
{
    const struct apikey *k = auth_find_key(t, given);
    return k ? k->name : "";
}

static void test_keys(void **state)
{
    (void)state;
    err e = {0};
    struct auth_table *t;
    assert_int_equal(auth_read(&(struct auth_sources){.keys = keys, .nkeys = 2}, &t, &e), ERR_OK);
    assert_string_equal(name_of(t, "alpha"), "key1");
    assert_string_equal(name_of(t, "beta-long-key"), "key2");
    static const char *const wrong[] = {"", "a", "alph", "alphaa", "Alpha", "alphaalpha", "beta-long-keyy", "key1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_string_equal(name_of(t, wrong[i]), "");
    auth_unref(t);
    const char *empty = "", *same[] = {"x", "x"};
    assert_int_equal(auth_read(&(struct auth_sources){.keys = &empty, .nkeys = 1}, &t, &e), ERR_INVALID);
    assert_int_equal(auth_read(&(struct auth_sources){.keys = same, .nkeys = 2}, &t, &e), ERR_OK);
    assert_string_not_equal(name_of(t, "x"), "");
    auth_unref(t);
    assert_int_equal(auth_read(&(struct auth_sources){0}, &t, &e), ERR_OK);
    assert_null(auth_find_key(t, "x"));
    auth_unref(t);
}

// Settings, a file with both kinds of lines and a store, together; several salts.
static void test_sources(void **state)
{
    (void)state;
    err e = {0};
    struct auth_table *t;
    struct buf text;
    buf_init(&text, 100000);
    buf_add_str(&text, "# keys\r\n\n  sk-plain\r\n");
    add_line(&text, "ada", 1, "rpm=5 class=interactive");
    add_line(&text, "bob", 2, "group=g");
    add_line(&text, "cyd", 1, "");
    write_file(text.data);
    struct store *s;
    struct apikey k;
    apikey_init(&k);
    assert_int_equal(apikey_set_name(&k, "dan", &e), ERR_OK);
    assert_int_equal(apikey_set(&k, "models", "m", &e), ERR_OK);
    apikey_digest(k.salt, "dan-secret", k.digest);
    assert_int_equal(store_open(store_path, STORE_CREATE, &s, &e), ERR_OK);
    assert_int_equal(store_add_key(s, &k, 0, &e), ERR_OK);
    store_close(s);
    apikey_done(&k);
    struct auth_sources from = {.keys = keys, .nkeys = 2, .file = path, .store = store_path};
    assert_int_equal(auth_read(&from, &t, &e), ERR_OK);
    assert_int_equal(t->nkeys, 7);
    static const char *const pairs[][2] = {{"alpha", "key1"}, {"sk-plain", "key3"}, {"ada-secret", "ada"},
        {"bob-secret", "bob"}, {"cyd-secret", "cyd"}, {"dan-secret", "dan"}, {"ada", ""}, {"sk-plain ", ""}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_string_equal(name_of(t, pairs[i][0]), pairs[i][1]);
    assert_int_equal(auth_find_key(t, "ada-secret")->rpm, 5);
    assert_true(apikey_may_use(auth_find_key(t, "dan-secret"), "m"));
    assert_false(apikey_may_use(auth_find_key(t, "dan-secret"), "n"));
    auth_unref(t);

    add_line(&text, "ada", 3, "");
    write_file(text.data);
    assert_int_equal(auth_read(&from, &t, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "'ada'"));
    write_file("good\nname sha256:12\n");
    assert_int_equal(auth_read(&from, &t, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "line 2"));
    write_file("# none\n");
    assert_int_equal(auth_read(&from, &t, &e), ERR_INVALID);
    buf_clear(&text);
    for (int i = 0; i <= AUTH_SALTS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        add_line(&text, name, (unsigned char)(50 + i), "");
    }
    write_file(text.data);
    assert_int_equal(auth_read(&from, &t, &e), ERR_TOO_LARGE);
    buf_done(&text);
    from.file = "/nonexistent/keys";
    assert_int_equal(auth_read(&from, &t, &e), ERR_NOT_FOUND);
    from.file = NULL;
    from.store = "/nonexistent/store";
    assert_int_equal(auth_read(&from, &t, &e), ERR_NOT_FOUND);
}

// A request keeps the table it was judged by; a failed reload changes nothing; taking all keys away opens nothing.
static void test_reload(void **state)
{
    (void)state;
    err e = {0};
    struct auth a = {.sources = {.file = path}};
    write_file("one\n");
    assert_int_equal(auth_open(&a, &e), ERR_OK);
    struct auth_table *old = auth_take(&a);
    write_file("two\n");
    assert_int_equal(auth_reload(&a, &e), ERR_OK);
    struct auth_table *now = auth_take(&a);
    assert_string_equal(name_of(old, "one"), "key1");
    assert_string_equal(name_of(now, "two"), "key1");
    assert_null(auth_find_key(now, "one"));
    auth_unref(old);
    auth_unref(now);
    write_file("x y z\n");
    assert_int_equal(auth_reload(&a, &e), ERR_INVALID);
    now = auth_take(&a);
    assert_string_equal(name_of(now, "two"), "key1");
    auth_unref(now);
    a.sources.file = NULL;
    assert_int_equal(auth_reload(&a, &e), ERR_OK);
    assert_true(auth_required(&a));
    now = auth_take(&a);
    assert_non_null(now);
    assert_null(auth_find_key(now, "two"));
    auth_unref(now);
    auth_close(&a);

    struct auth none = {0};
    assert_int_equal(auth_open(&none, &e), ERR_OK);
    assert_null(auth_take(&none));
    assert_false(auth_required(&none));
    auth_close(&none);
}

// Many keys cost a look-up no more than a hash and a walk over digests.
static void test_many(void **state)
{
    (void)state;
    enum { N = 2000, LOOKUPS = 200 };
    err e = {0};
    struct auth_table *t;
    struct buf text;
    buf_init(&text, 8 << 20);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "k%d", i);
        add_line(&text, name, 9, "");
    }
    write_file(text.data);
    buf_done(&text);
    assert_int_equal(auth_read(&(struct auth_sources){.file = path}, &t, &e), ERR_OK);
    int64_t begin = clock_ns();
    for (int i = 0; i < LOOKUPS; i++)
        assert_string_equal(name_of(t, i % 2 ? "k1999-secret" : "wrong"), i % 2 ? "k1999" : "");
    print_message("a look-up among %d keys: %.1f us\n", N, (double)(clock_ns() - begin) / 1000 / LOOKUPS);
    auth_unref(t);
}

static void test_bearer(void **state)
{
    (void)state;
    assert_string_equal(auth_bearer("Bearer abc"), "abc");
    assert_string_equal(auth_bearer("bearer   abc"), "abc");
    assert_string_equal(auth_bearer("Bearer"), "");
    assert_null(auth_bearer("Bearerabc"));
    assert_null(auth_bearer("Basic abc"));
    assert_null(auth_bearer(""));
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {"localhost", "LocalHost:80", "localhost.", "a.b.localhost:1", "127.0.0.1",
                                       "127.1.2.3:99", "[::1]",
                                       "[::1]:8080", "box.local", "BOX.local:8080"};
    static const char *const bad[] = {"", "evil.example", "127.0.0.1.evil.example", "localhost.evil", "evillocalhost",
                                      "10.0.0.1",
                                      "0.0.0.0", "[::]", "[::1", "[::1]x", "localhost:80x", "localhost:1:2", "box.local.evil",
                                      "127.1", "::1",
                                      "user@localhost", "@.localhost", "a/b.localhost", "a b.localhost"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!auth_host_ok(&with_keys, good[i]))
            fail_msg("%s was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (auth_host_ok(&with_keys, bad[i]))
            fail_msg("%s was accepted", bad[i]);
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(auth_origin_ok(&with_keys, "https://app.example"));
    assert_false(auth_origin_ok(&with_keys, "http://app.example"));
    assert_false(auth_origin_ok(&with_keys, "https://app.example.evil"));
    assert_false(auth_origin_ok(&with_keys, "null"));
    const char *any = "*";
    struct auth a = {.origins = &any, .norigins = 1};
    assert_true(auth_origin_ok(&a, "https://x"));
    assert_false(auth_origin_ok(&(struct auth){0}, "https://x"));
}

int main(void)
{
    int file = mkstemp(path), db = mkstemp(store_path);
    if (file < 0 || db < 0)
        return 1;
    close(file);
    close(db);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys), cmocka_unit_test(test_sources), cmocka_unit_test(test_reload), cmocka_unit_test(test_many),
        cmocka_unit_test(test_bearer),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    unlink(store_path);
    return failed;
}
