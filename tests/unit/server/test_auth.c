// Keys, Host names and origins.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/auth.h"

static const char *const keys[] = {"alpha", "beta-long-key"};
static const char *const hosts[] = {"box.local"};
static const char *const origins[] = {"https://app.example"};
static const struct auth with_keys = {.keys = keys, .nkeys = 2, .hosts = hosts, .nhosts = 1,
                                      .origins = origins, .norigins = 1};

static void test_keys(void **state)
{
    (void)state;
    assert_int_equal(auth_find_key(&with_keys, "alpha"), 0);
    assert_int_equal(auth_find_key(&with_keys, "beta-long-key"), 1);
    static const char *const wrong[] = {"", "a", "alph", "alphaa", "Alpha", "alphaalpha", "beta-long-keyy"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(auth_find_key(&with_keys, wrong[i]), -1);
    const char *empty = "";
    struct auth a = {.keys = &empty, .nkeys = 1};
    err e = {0};
    assert_int_equal(auth_check(&a, &e), ERR_INVALID);
    assert_int_equal(auth_check(&with_keys, &e), ERR_OK);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_bearer),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
