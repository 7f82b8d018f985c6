// test_regex.c - where patterns match; expected: what the `tokenizers` library (Oniguruma) finds for the same pattern and
// text.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "engine/tokenizer/regex.h"

static const struct {
    const char *pattern, *text, *found;  // found: bytes from-to of every match
} cases[] = {
    {"\\w+", "กำ हिन्दी Ⅷ² a_b ¾ ½", "0-6 7-25 26-31 32-35 36-38 39-41"},
    {"\\W", "क्ष.é ²", "9-10 12-13"},
    {"\\bक\\S*", "क्ष अक क", "0-9 17-20"},
    {"[\\w.]+", "v1.²x-ก้.y", "0-3 5-6 7-15"},
    {"\\p{Han}+", "中文。々「你」〇ー", "0-6 9-12 15-18 21-24"},
    {"[\\p{Katakana}]+", "サーバー・ｶﾞ", "0-3 6-9 15-18"},
    {"\\P{Latin}+", "aー·bé中", "1-6 9-12"},
    {"\\p{^Han}", "中。ー", "3-6 6-9"},
    {"\\B²", "a² ² ½²", "1-3 9-11"},
    {"\\b.", "²a ²", "0-2 3-4 4-6"},
    {"[^\\w ]", "²a ².", "0-2 4-6 6-7"},
    {"\\Bb", "ab b कb", "1-2 8-9"},
};

static void check(const char *pattern, const char *text, const char *expected)
{
    struct tokenizer_regex *re = NULL;
    struct tokenizer_regex_match m = {0};
    char got[256] = "";
    err e = {0};
    bool found = false;
    assert_int_equal(tokenizer_regex_open(pattern, strlen(pattern), false, &re, &e), ERR_OK);
    for (size_t from = 0; from < strlen(text); from = m.end) {
        assert_int_equal(tokenizer_regex_next(re, &m, text, strlen(text), from, &found, &e), ERR_OK);
        if (!found)
            break;
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%zu-%zu", n ? " " : "", m.start, m.end);
    }
    if (strcmp(got, expected))
        fail_msg("'%s' in '%s': %s, expected %s", pattern, text, got, expected);
    tokenizer_regex_match_done(&m);
    tokenizer_regex_close(re);
}

static void test_words_and_scripts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(cases[i].pattern, cases[i].text, cases[i].found);
}

static void test_what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {"[\\W]", "\\h", "[a&&b]", "[[:alpha:]]", "[^[a-c]]", "(", ""};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct tokenizer_regex *re = NULL;
        err e = {0};
        if (tokenizer_regex_open(patterns[i], strlen(patterns[i]), false, &re, &e) != ERR_UNSUPPORTED || re)
            fail_msg("'%s' was taken", patterns[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_scripts),
        cmocka_unit_test(test_what_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
