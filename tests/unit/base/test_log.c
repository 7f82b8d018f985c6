// Lines of the log: one write each, nothing from outside forges a line or breaks the JSON.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static char line[8192];

// What `say` writes to standard error.
static const char *written(void (*say)(void))
{
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    say();
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[1]);
    ssize_t n = read(ends[0], line, sizeof line - 1);
    close(ends[0]);
    line[n > 0 ? n : 0] = 0;
    return line;
}

static void say_two_lines(void)
{
    log_warn("one\ntwo \"%s\" \x01\xff\\", "quoted");
}

static void say_debug(void)
{
    log_debug("not shown");
}

static void say_members(void)
{
    log_members(LOG_LEVEL_ERROR, "\"a\":1", 5);
}

static void say_much(void)
{
    char text[5000];
    memset(text, '"', sizeof text);
    text[sizeof text - 1] = 0;
    log_info("%s", text);
}

static void test_text(void **state)
{
    (void)state;
    unsetenv("JOURNAL_STREAM");
    const char *s = written(say_two_lines);
    assert_string_equal(s + 24, " warn one two \"quoted\"  \xff\\\n");
    assert_string_equal(written(say_debug), "");
    setenv("JOURNAL_STREAM", "1:2", 1);
    assert_memory_equal(written(say_two_lines), "<4>one two", 10);
    unsetenv("JOURNAL_STREAM");
    assert_int_equal(strlen(written(say_much)), 2047);
}

static void test_json(void **state)
{
    (void)state;
    log_set_json(true);
    const char *s = written(say_two_lines);
    assert_memory_equal(s, "{\"time\":\"2", 10);
    assert_string_equal(s + 34, ",\"level\":\"warn\",\"message\":\"one\\u000atwo \\\"quoted\\\" \\u0001?\\\\\"}\n");
    s = written(say_members);
    assert_string_equal(s + 34, ",\"level\":\"error\",\"a\":1}\n");
    s = written(say_much);
    assert_int_equal(s[strlen(s) - 1], '\n');
    assert_string_equal(s + strlen(s) - 5, "\\\"\"}\n");  // cut between characters, and whole
    log_set_json(false);
}

static void test_escape(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(log_escape("caf\xc3\xa9", 100, out, sizeof out), "caf\xc3\xa9");
    assert_string_equal(log_escape("caf\xc3\xa9", 4, out, sizeof out), "caf");  // never half a character
    assert_string_equal(log_escape("a\xc3(", 100, out, sizeof out), "a?(");
    assert_string_equal(log_escape("\t\"", 100, out, sizeof out), "\\u0009\\\"");
    assert_true(strlen(log_escape("\n\n\n\n\n\n\n\n\n\n\n\n\n\n", 100, out, sizeof out)) < sizeof out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_json), cmocka_unit_test(test_escape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
