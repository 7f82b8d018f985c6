// Request targets and queries.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/uri.h"

static void path_is(const char *target, const char *want)
{
    struct arena a = {0};
    struct uri u;
    err e = {0};
    if (want) {
        assert_int_equal(uri_parse(&a, target, &u, &e), ERR_OK);
        assert_string_equal(u.path, want);
    } else {
        assert_int_equal(uri_parse(&a, target, &u, &e), ERR_INVALID);
        assert_true(e.text[0] != 0);
    }
    arena_done(&a);
}

static void test_paths(void **state)
{
    (void)state;
    path_is("/", "/");
    path_is("/v1/models?x=1", "/v1/models");
    path_is("/v1/models#x", "/v1/models");
    path_is("//v1///models//", "/v1/models/");
    path_is("/a%2Fb", "/a/b");
    path_is("/a%2f%2Fb", "/a//b");
    path_is("/a%252e", "/a%2e");
    path_is("/a+b", "/a+b");
    path_is("/%C3%A9", "/\xc3\xa9");
    path_is("/a/../b", "/a/../b");
    path_is("*", "*");
    path_is("http://h:1/x?y", "/x");
    path_is("HTTPS://h", "/");
    path_is("http://h?x=/y", "/");
}

static void test_bad_paths(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "v1", "*x", "/%", "/%4", "/%4g", "/%00", "/%0a", "/%7F", "/%ff", "/%c3",
                                      "/a\x01", "/\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        path_is(bad[i], NULL);
}

static void test_authority(void **state)
{
    (void)state;
    struct arena a = {0};
    struct uri u;
    err e = {0};
    assert_int_equal(uri_parse(&a, "http://evil.example:8/x?q=1", &u, &e), ERR_OK);
    assert_string_equal(u.authority, "evil.example:8");
    assert_string_equal(u.query, "q=1");
    assert_int_equal(uri_parse(&a, "/x", &u, &e), ERR_OK);
    assert_null(u.authority);
    assert_string_equal(u.query, "");
    arena_done(&a);
}

static void test_query(void **state)
{
    (void)state;
    struct arena a = {0};
    const char *q = "a=1&b=x+y%26z&c&d=&%65=six&bad=%zz&a=2";
    assert_string_equal(uri_query(&a, q, "a"), "1");
    assert_string_equal(uri_query(&a, q, "b"), "x y&z");
    assert_string_equal(uri_query(&a, q, "c"), "");
    assert_string_equal(uri_query(&a, q, "d"), "");
    assert_string_equal(uri_query(&a, q, "e"), "six");
    assert_null(uri_query(&a, q, "bad"));
    assert_null(uri_query(&a, q, "zz"));
    assert_null(uri_query(&a, "", "a"));
    assert_null(uri_query(&a, "&&", "a"));
    arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_authority),
        cmocka_unit_test(test_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
