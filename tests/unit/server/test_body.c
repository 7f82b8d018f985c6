// Bodies: what is parsed, what is refused, and what they may cost.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include <jansson.h>

#include "server/body.h"
#include "server/exchange.h"
#include "server/state.h"

static struct server server;

static struct exchange *with_body(const char *text, size_t n)
{
    server = (struct server){.inbox = inbox_new(NULL), .config.max_body = 1000};
    struct exchange *x = exchange_new(&server, "/");
    err e = {0};
    if (n)
        assert_int_equal(body_add(x, text, n, &e), ERR_OK);
    return x;
}

static void done(struct exchange *x)
{
    body_release(x);
    assert_int_equal(server.body_bytes, 0);
    exchange_unref(x);
    inbox_unref(server.inbox);
}

static void test_object(void **state)
{
    (void)state;
    struct exchange *x = with_body("{\"a\": [1, 2.5, null]}", 21);
    assert_true(body_parse(x));
    assert_int_equal(json_array_size(json_object_get(x->r.json, "a")), 3);
    assert_string_equal(x->r.body, "{\"a\": [1, 2.5, null]}");
    done(x);
}

static void test_bad_json(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "[]", "1", "{", "{} x", "{\"a\":1,\"a\":1}", "{\"a\":NaN}", "{\"a\":Infinity}",
                                      "{\"a\":1e999}", "{\"a\":\"\\udc00\"}", "{\"a\":\"\\u0000\"}", "{'a':1}", "{\"a\":01}",
                                      "\xef\xbb\xbf", "nul"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct exchange *x = with_body(bad[i], strlen(bad[i]));
        if (body_parse(x))
            fail_msg("%s was accepted", bad[i]);
        assert_int_equal(x->parse_error.code, ERR_INVALID);
        assert_null(x->r.json);
        done(x);
    }
}

static void test_place_of_an_error(void **state)
{
    (void)state;
    struct exchange *x = with_body("{\n  \"a\": ?}", 11);
    assert_false(body_parse(x));
    assert_non_null(strstr(x->parse_error.text, "line 2"));
    done(x);
}

static void test_limits(void **state)
{
    (void)state;
    char text[1001] = {0};
    struct exchange *x = with_body(text, 1000);
    err e = {0};
    assert_int_equal(body_add(x, text, 1, &e), ERR_TOO_LARGE);
    server.body_bytes = 1000 * BODIES_FACTOR;
    struct exchange *y = exchange_new(&server, "/");
    assert_int_equal(body_add(y, text, 1, &e), ERR_BUSY);
    server.body_bytes = 1000;
    exchange_unref(y);
    done(x);
}

static void test_counting_values(void **state)
{
    (void)state;
    const char *text = "{\"a,b[\\\"{\": [1,2]}";
    assert_true(body_too_many_values(text, strlen(text), 3, 9));
    assert_false(body_too_many_values(text, strlen(text), 4, 9));
    assert_false(body_too_many_values(text, strlen(text), 9, 3));
    assert_true(body_too_many_values(text, strlen(text), 9, 2));
    assert_false(body_too_many_values("\"\\", 2, 0, 0));
    assert_false(body_too_many_values("", 0, 0, 0));
    assert_int_equal(body_members(text, strlen(text)), 3);
    assert_int_equal(body_members("\"{{\"", 4), 0);
}

static void test_field_at(void **state)
{
    (void)state;
    static const struct {
        const char *text, *field;
    } cases[] = {
        {"", ""}, {"{", ""}, {"[1,", ""}, {"{\"a\":1e9", "a"}, {"{\"a\":1,\"b_c\" : {\"d\":[{\"e\":2", "b_c"},
        {"{\"a\":\"x,\\\"\\\\\",\"b\":[1,{\"c\":", "b"}, {"{\"a\":[\"}]{,\",", "a"}, {"{\"A\":1", ""}, {"{\"a\\", ""},
        {"{\"a\":1},\"b\":2", "a"}, {"{\"a\":1,\"\":2", ""}, {"{\"a\":{\"b\":1},", "a"}, {"[{\"a\":1", ""},
    };
    char out[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        body_field_at(cases[i].text, strlen(cases[i].text), out, sizeof out);
        assert_string_equal(out, cases[i].field);
    }
    body_field_at("{\"abcdefghij\":1", 15, out, sizeof out);
    assert_string_equal(out, "abcdefg");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_field_at),
        cmocka_unit_test(test_object),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_place_of_an_error),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_counting_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
