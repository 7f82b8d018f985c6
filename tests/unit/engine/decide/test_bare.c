// The prompt byte by byte, and the labels a tokenizer has, against what the reference made (tests/reference/make_decide.py).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "engine/decide/bare.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

#define FOLDER "tests/fixtures/decide/"

static json_t *expected;

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void check_prompt(const json_t *c, const struct labels *labels)
{
    const char *options[64];
    const json_t *list = json_object_get(c, "options");
    struct decide_question q = {.text = text(c, "question"), .options = options, .noptions = json_array_size(list)};
    for (size_t i = 0; i < q.noptions; i++)
        options[i] = json_string_value(json_array_get(list, i));
    while (strcmp(bare_kind(q.kind), text(c, "kind")))
        q.kind++;
    struct buf b;
    buf_init(&b, 1 << 20);
    bare_text(text(c, "state"), &q, labels, &b);
    assert_string_equal(b.data, text(c, "prompt"));
    buf_done(&b);
}

static void test_prompts(void **state)
{
    (void)state;
    struct labels labels = {0};
    const json_t *names = json_object_get(expected, "labels"), *cases = json_object_get(expected, "judge");
    for (size_t i = 0; i < json_array_size(names); i++)
        strcpy(labels.text[labels.n++], json_string_value(json_array_get(names, i)));
    assert_true(json_array_size(cases) >= 8);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_prompt(json_array_get(cases, i), &labels);
}

static void test_noul(void **state)
{
    (void)state;
    struct decide_question q = {.kind = DECIDE_BOOL, .text = "Close it?"};
    struct buf b;
    buf_init(&b, 1 << 10);
    bare_text("Dialog: Update installed.", &q, NULL, &b);
    assert_string_equal(b.data, "[kind] noul\n[state] Dialog: Update installed.\n[question] Close it?\n[options]\nfalse\ntrue\n"
                                "[decision]:");
    buf_clear(&b);
    bare_text("", &q, NULL, &b);
    assert_non_null(strstr(b.data, "\n[state] \n[question]"));
    buf_done(&b);
}

static void test_message(void **state)
{
    (void)state;
    struct decide_question q = {.kind = DECIDE_INT, .text = "How bad?"};
    struct buf b;
    buf_init(&b, 1 << 10);
    bare_message("s", &q, NULL, &b);
    assert_string_equal(b.data, "[kind] score\n[state] s\n[question] How bad?\n[options]\n0\n1\n2\n3\n4\n5\n"
                                "Answer with one digit, 0 to 5.");
    buf_done(&b);
}

static void test_candidates(void **state)
{
    (void)state;
    static const struct { int i; const char *text; } some[] = {{0, "A"}, {25, "Z"}, {26, "AA"}, {27, "AB"}, {52, "BA"}, {701, "ZZ"}};
    char label[4];
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        assert_true(labels_candidate(some[i].i, label));
        assert_string_equal(label, some[i].text);
    }
    assert_false(labels_candidate(702, label));
}

static void test_labels(void **state)
{
    (void)state;
    struct weights *w;
    struct tokenizer *t;
    struct labels found;
    err e;
    if (weights_open(FOLDER "judge", &w, &e) || tokenizer_open(w, &t, &e))
        fail_msg("%s", e.text);
    labels_find(t, &found);
    const json_t *names = json_object_get(expected, "labels"), *ids = json_object_get(expected, "label_ids");
    assert_int_equal(found.n, json_array_size(names));
    for (int i = 0; i < found.n; i++) {
        assert_string_equal(found.text[i], json_string_value(json_array_get(names, (size_t)i)));
        assert_int_equal(found.ids[i], json_integer_value(json_array_get(ids, (size_t)i)));
    }
    int32_t id, forms[LABELS_FORMS];
    assert_int_equal(labels_forms(t, "A", forms), 2);  // and with a space in front
    assert_true(labels_token(t, "A", &id) && id == forms[0] && forms[1] != id);
    assert_int_equal(labels_forms(t, "false", forms), 1);
    assert_int_equal(labels_forms(t, "AC", forms), 0);
    assert_true(labels_token(t, "false", &id));
    assert_false(labels_token(t, "AC", &id));  // two tokens
    assert_false(labels_token(t, "", &id));
    tokenizer_close(t);
    weights_close(w);
}

int main(void)
{
    json_error_t why;
    expected = json_load_file(FOLDER "expected.json", 0, &why);
    if (!expected)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompts), cmocka_unit_test(test_noul), cmocka_unit_test(test_message),
                                       cmocka_unit_test(test_candidates), cmocka_unit_test(test_labels)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(expected);
    return failed;
}
