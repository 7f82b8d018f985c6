// Strings and numbers as JSON, and messages kept clear of words that clients take for another error.
#include <math.h>

#include "server/api/fields.h"
#include "server/api/jsonout.h"
#include "tests/unit/server/api/drive.h"

static void writes(const char *s, size_t n, const char *want)
{
    struct buf b;
    buf_init(&b, 1000);
    api_jsonout_string(&b, s, n);
    assert_string_equal(b.data, want);
    buf_done(&b);
}

static void test_strings(void **state)
{
    (void)state;
    writes("", 0, "\"\"");
    writes("a\"\\\b\f\n\r\t\0\x1f/\x7f", 12, "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f/\x7f\"");
    writes("\xC3\xA9\xF0\x9F\xA6\x99", 6, "\"\xC3\xA9\xF0\x9F\xA6\x99\"");
    writes("\xE2\x80\xA8" "a\xC2\x85", 6, "\"\\u2028a\\u0085\"");
    writes("a\xFF" "b\xE2\x82", 5, "\"a\xEF\xBF\xBD" "b\xEF\xBF\xBD\"");
    writes("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

static void prints(float v, const char *want)
{
    struct buf b;
    buf_init(&b, 100);
    api_jsonout_float(&b, v);
    assert_string_equal(b.data, want);
    buf_done(&b);
}

static void test_floats(void **state)
{
    (void)state;
    prints(0, "0.0");
    prints(-0.1f, "-0.1");
    prints(-1, "-1.0");
    prints(-INFINITY, "-9999.0");
    prints(NAN, "null");
    prints(-1.0f / 3, "-0.33333334");
    prints(-1e-10f, "-1e-10");
}

// The array of many numbers: every one reads back as the same float.
static void test_many_floats(void **state)
{
    (void)state;
    static float v[20000];
    static const float odd[] = {0, -0.0f, 1, -1, 0.1f, 0.5f, 123456, 999998.94f, 999999.5f, 1e6f, 1e-5f, 9.9999997e-6f, 1e-30f, 3.4e38f,
                                -1e-45f, 0.99999994f, 9.9999995f, 0.001f, 12.5f};
    size_t n = sizeof v / sizeof *v, k = sizeof odd / sizeof *odd;
    memcpy(v, odd, sizeof odd);
    for (size_t i = k; i < n; i++)
        v[i] = (float)((double)(i * 2654435761U % 1000003) / 1000003 - 0.5) * powf(10, (float)(i % 9) - 5);
    struct buf b;
    buf_init(&b, 1 << 20);
    api_jsonout_floats(&b, v, n);
    assert_false(b.over);
    assert_memory_equal(b.data, "[0.0,0.0,1.0,-1.0,0.100000001,0.5,123456.0,", 43);
    json_t *list = json_loads(b.data, 0, NULL);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        float got = (float)json_number_value(json_array_get(list, i));
        if (got != v[i])
            fail_msg("number %zu: %.9g came back as %.9g", i, (double)v[i], (double)got);
    }
    json_decref(list);
    buf_clear(&b);
    api_jsonout_floats(&b, v, 0);
    assert_string_equal(b.data, "[]");
    buf_done(&b);
}

static void test_clean(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Expected a value <= 2, but got 4290 instead.", "Expected a value <= 2."},
        {"length is 8192 tokens; the request needs 14293.", "length is 8192 tokens."},
        {"Invalid value: 'Rate Limit'.", "Invalid value."},
        {"nothing wrong: 428", "nothing wrong: 428"},
        {"429", "Invalid value."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text_of[512];
        snprintf(text_of, sizeof text_of, "%s", cases[i][0]);
        api_fields_clean(text_of);
        assert_string_equal(text_of, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_many_floats),
        cmocka_unit_test_setup(test_clean, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
