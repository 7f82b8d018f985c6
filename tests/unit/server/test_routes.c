// Matching, and the order of the daemon's own table.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "server/routes.h"

static void handler(struct request *r)
{
    (void)r;
}

static const struct route table[] = {
    {"GET", "/a", ROUTE_OPEN, ROUTE_NO_BODY, handler},
    {"POST", "/a", ROUTE_KEY, ROUTE_JSON, handler},
    {"GET", "/a/*", ROUTE_KEY, ROUTE_NO_BODY, handler},
    {"DELETE", "/a/*", ROUTE_KEY, ROUTE_NO_BODY, handler},
    {"GET", "/a/b/*", ROUTE_KEY, ROUTE_NO_BODY, handler},
    {"*", "/z/*", ROUTE_KEY, ROUTE_NOT_BUILT, NULL},
    {NULL, NULL, ROUTE_OPEN, ROUTE_NO_BODY, NULL},
};

static const struct route *find(const char *method, const char *path, const char *want_tail, const char *want_allow)
{
    const char *tail = "";
    unsigned allow;
    char text[ROUTES_ALLOW_MAX];
    const struct route *r = routes_find(table, method, path, &tail, &allow);
    if (want_tail)
        assert_string_equal(tail, want_tail);
    if (want_allow) {
        routes_allow_text(allow, text);
        assert_string_equal(text, want_allow);
    }
    return r;
}

static void test_find(void **state)
{
    (void)state;
    assert_ptr_equal(find("GET", "/a", "", "GET, HEAD, POST, OPTIONS"), &table[0]);
    assert_ptr_equal(find("HEAD", "/a", "", NULL), &table[0]);
    assert_ptr_equal(find("POST", "/a", "", NULL), &table[1]);
    assert_ptr_equal(find("GET", "/a/x/y", "x/y", "GET, HEAD, DELETE, OPTIONS"), &table[2]);
    assert_ptr_equal(find("DELETE", "/a/x", "x", NULL), &table[3]);
    assert_ptr_equal(find("GET", "/a/b/x", "x", NULL), &table[4]);
    assert_ptr_equal(find("GET", "/a/b/", "b/", NULL), &table[2]);
    assert_ptr_equal(find("PATCH", "/z/q", "q", NULL), &table[5]);
}

static void test_not_found(void **state)
{
    (void)state;
    assert_null(find("GET", "/", NULL, ""));
    assert_null(find("GET", "/a/", NULL, ""));
    assert_null(find("GET", "/ab", NULL, ""));
    assert_null(find("GET", "/A", NULL, ""));
    assert_null(find("GET", "*", NULL, ""));
    assert_null(find("PUT", "/a", NULL, "GET, HEAD, POST, OPTIONS"));
    assert_null(find("DELETE", "/a/b/x", NULL, "GET, HEAD, OPTIONS"));
    assert_null(find("get", "/a", NULL, "GET, HEAD, POST, OPTIONS"));
}

static void test_methods(void **state)
{
    (void)state;
    assert_true(routes_method_known("PATCH"));
    assert_false(routes_method_known("get"));
    assert_false(routes_method_known("BREW"));
}

// routes.def is kept sorted by path then method, so that a reader finds a line and a merge keeps both.
static void test_table_is_sorted(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
#define ROUTE(method, path, auth, body, handler) {path, method},
#define MISSING(path) {path, "*"},
#include "server/routes.def"
    };
    for (size_t i = 1; i < sizeof lines / sizeof *lines; i++) {
        int order = strcmp(lines[i - 1][0], lines[i][0]);
        if (order > 0 || (order == 0 && strcmp(lines[i - 1][1], lines[i][1]) >= 0))
            fail_msg("%s %s is out of order", lines[i][1], lines[i][0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_table_is_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
