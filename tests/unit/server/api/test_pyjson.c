// JSON as Python writes it, against what Python wrote (tests/reference/make_decide.py).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "server/api/pyjson.h"

static json_t *expected;

static const char *item(const json_t *pair, size_t i)
{
    return json_string_value(json_array_get(pair, i));
}

static void test_floats(void **state)
{
    (void)state;
    const json_t *list = json_object_get(expected, "floats");
    assert_true(json_array_size(list) > 10);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct buf b;
        buf_init(&b, 100);
        api_pyjson_float(&b, strtod(item(json_array_get(list, i), 1), NULL));
        assert_string_equal(b.data, item(json_array_get(list, i), 0));
        buf_done(&b);
    }
}

static void test_values(void **state)
{
    (void)state;
    const json_t *list = json_object_get(expected, "json");
    assert_true(json_array_size(list) > 5);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_error_t why;
        struct buf b;
        buf_init(&b, 1000);
        json_t *v = json_loads(item(json_array_get(list, i), 0), JSON_DECODE_ANY, &why);
        assert_non_null(v);
        api_pyjson_dump(&b, v);
        assert_string_equal(b.data, item(json_array_get(list, i), 1));
        json_decref(v);
        buf_done(&b);
    }
}

// 1E5 is a float, 1 is not; nothing is escaped that need not be.
static void test_spellings(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"[1E5, 1, -0, -0.0, 1e-7]", "[100000.0, 1, 0, -0.0, 1e-07]"},
        {"{\"b\":1,\"a\":\"x\"}", "{\"b\": 1, \"a\": \"x\"}"},
        {"\"\\u00e9\\/\\u007f\\u001f\"", "\"\xC3\xA9/\x7F\\u001f\""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        json_error_t why;
        struct buf b;
        buf_init(&b, 1000);
        json_t *v = json_loads(pairs[i][0], JSON_DECODE_ANY, &why);
        api_pyjson_dump(&b, v);
        assert_string_equal(b.data, pairs[i][1]);
        json_decref(v);
        buf_done(&b);
    }
}

static void test_not_finite(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    api_pyjson_float(&b, NAN);
    api_pyjson_float(&b, INFINITY);
    api_pyjson_float(&b, -INFINITY);
    assert_string_equal(b.data, "NaNInfinity-Infinity");
    buf_done(&b);
}

int main(void)
{
    json_error_t why;
    json_t *all = json_load_file("tests/fixtures/decide/expected.json", 0, &why);
    expected = json_object_get(all, "renderings");
    if (!expected)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_spellings), cmocka_unit_test(test_not_finite)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(all);
    return failed;
}
