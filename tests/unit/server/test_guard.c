// Header lines on which two servers could disagree about where a request ends.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "server/guard.h"

#define H(n, v) {n, v, sizeof n - 1, sizeof v - 1}

static int judge(const struct header *h, int n, bool http_1_1)
{
    err e = {0};
    int status = guard_headers(h, n, http_1_1, 1000, &e);
    assert_int_equal(status != 0, e.text[0] != 0);
    return status;
}

#define JUDGE(version, ...) \
    judge((struct header[]){__VA_ARGS__}, (int)(sizeof((struct header[]){__VA_ARGS__}) / sizeof(struct header)), \
          version)

static void test_accepts(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(true, H("Host", "a")), 0);
    assert_int_equal(JUDGE(true, H("host", "a"), H("content-length", "0")), 0);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Transfer-Encoding", "Chunked"), H("Expect", "100-Continue")), 0);
    assert_int_equal(JUDGE(false, H("Accept", "*/*")), 0);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X", "caf\xc3\xa9\ttab")), 0);
    assert_int_equal(judge(NULL, 0, false), 0);
}

static void test_refuses_unclear_lengths(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Content-Length", "2"), H("content-length", "2")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Content-Length", "2"), H("Transfer-Encoding", "chunked")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Transfer-Encoding", "gzip, chunked")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Transfer-Encoding", "identity")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Transfer-Encoding", "")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Transfer-Encoding", "chunked"), H("Transfer-Encoding", "chunked")),
                     400);
    assert_int_equal(JUDGE(false, H("Host", "a"), H("Transfer-Encoding", "chunked")), 400);
    static const char *const lengths[] = {"", "-1", "+1", "1 ", "0x1", "1,1", "1e3"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct header h[] = {H("Host", "a"), {"Content-Length", lengths[i], 14, strlen(lengths[i])}};
        assert_int_equal(judge(h, 2, true), 400);
    }
}

static void test_refuses_hosts_and_expectations(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(true, H("Accept", "a")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("HOST", "a")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Expect", "200-ok")), 417);
}

static void test_refuses_bad_lines(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(true, H("Host", "a"), H("Content-Length ", "2")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("", "2")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X\0Y", "2")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X(Y", "2")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X", "a\0b")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X", "a\rb")), 400);
    assert_int_equal(JUDGE(true, H("Host", "a"), H("X", "a\x7f")), 400);
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = 0;
    struct header h[] = {H("Host", "a"), {"X", text, 1, 1000}};
    assert_int_equal(judge(h, 2, true), 431);
    h[1].value = text + 100;
    h[1].value_len = 900;
    assert_int_equal(judge(h, 2, true), 0);
}

static void test_json_types(void **state)
{
    (void)state;
    assert_true(guard_is_json("application/json"));
    assert_true(guard_is_json("Application/JSON ; charset=utf-8"));
    assert_true(guard_is_json("application/vnd.api+json"));
    assert_false(guard_is_json(""));
    assert_false(guard_is_json("json"));
    assert_false(guard_is_json("+json"));
    assert_false(guard_is_json("application/jsonx"));
    assert_false(guard_is_json("text/plain; application/json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses_unclear_lengths),
        cmocka_unit_test(test_refuses_hosts_and_expectations),
        cmocka_unit_test(test_refuses_bad_lines),
        cmocka_unit_test(test_json_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
