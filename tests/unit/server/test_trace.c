// W3C trace context: which headers count.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "server/trace.h"

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static void test_good(void **state)
{
    (void)state;
    static const char *const good[] = {"00-" TRACE "-" SPAN "-01", "01-" TRACE "-" SPAN "-00", "cc-" TRACE "-" SPAN "-01-more"};
    char text[TRACE_TEXT];
    for (int i = 0; i < 3; i++) {
        struct trace t = {0};
        assert_true(trace_parse(good[i], 0xABC, &t));
        assert_string_equal(t.trace_id, TRACE);
        assert_string_equal(t.parent_id, SPAN);
        assert_string_equal(t.span_id, "0000000000000abc");
        trace_text(&t, text);
        assert_string_equal(text, i == 1 ? "00-" TRACE "-0000000000000abc-00" : "00-" TRACE "-0000000000000abc-01");
    }
    struct trace t;
    assert_true(trace_parse(good[0], 0, &t));
    assert_string_not_equal(t.span_id, "0000000000000000");  // all zeros is no id
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "00", "00-" TRACE "-" SPAN, "00-" TRACE "-" SPAN "-1", "00-" TRACE "-" SPAN "-01-", "00-" TRACE "-" SPAN "-01-more",
        "cc-" TRACE "-" SPAN "-01.more", "ff-" TRACE "-" SPAN "-01", "0-" TRACE "-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01", "00-" TRACE "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01", "00-" TRACE "-b7ad6b716920333g-01", "00 " TRACE "-" SPAN "-01",
        "00-" TRACE "-" SPAN "-0x", "00-0af7651916cd43dd8448eb211c80319-" SPAN "-01 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct trace t = {0};
        assert_false(trace_parse(bad[i], 1, &t));
        assert_int_equal(t.trace_id[0], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
