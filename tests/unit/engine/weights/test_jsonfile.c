// test_jsonfile.c - what Python writes into JSON files and the standard does not have.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <float.h>
#include <jansson.h>
#include <string.h>

#include "engine/weights/jsonfile.h"

static err_code parse(const char *text, enum jsonfile_mode mode, json_t **ret_json)
{
    err e = {0};
    *ret_json = NULL;
    return jsonfile_parse("x.json", text, strlen(text), mode, ret_json, &e);
}

static void test_numbers_of_python(void **state)
{
    (void)state;
    json_t *j;
    const char *text = "{\"max\": 1000000000000000019884624838656, \"low\": -12345678901234567890, \"s\": \"\\\" NaN "
                       "12345678901234567890\", \"list\": [1, NaN, Infinity, -Infinity, 9223372036854775807, 1e-5, "
                       "1000000000000000019884624838656]}";
    assert_int_equal(parse(text, JSONFILE_LENIENT, &j), ERR_OK);
    assert_true(json_number_value(json_object_get(j, "max")) == 1e30);
    assert_true(json_number_value(json_object_get(j, "low")) == -12345678901234567890.0);
    assert_string_equal(json_string_value(json_object_get(j, "s")), "\" NaN 12345678901234567890");
    const json_t *list = json_object_get(j, "list");
    assert_int_equal(json_array_size(list), 7);
    assert_true(json_is_integer(json_array_get(list, 0)));
    assert_true(json_is_null(json_array_get(list, 1)));
    assert_true(json_number_value(json_array_get(list, 2)) == DBL_MAX);
    assert_true(json_number_value(json_array_get(list, 3)) == -DBL_MAX);
    assert_true(json_number_value(json_array_get(list, 5)) == 1e-5);
    json_decref(j);
}

static void test_faults_stay_faults(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"a\": 1NaN}", "{\"a\": Inf}", "{\"a\": NaN", "{\"a\": \"NaN}", "NaN",
                                        "{\"a\": \\", "{\"a\": --12345678901234567890}"};
    json_t *j;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(parse(texts[i], JSONFILE_LENIENT, &j), ERR_CORRUPT);
        assert_null(j);
    }
    assert_int_equal(parse("{\"a\": NaN}", JSONFILE_STRICT, &j), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_of_python),
        cmocka_unit_test(test_faults_stay_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
