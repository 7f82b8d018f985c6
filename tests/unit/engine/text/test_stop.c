// Stop strings: the same cut for any pieces, nothing held back that cannot become one.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "engine/text/stop.h"

// Feeds text in pieces of `piece` bytes; returns what left, with "|" where a stop string ended it.
static void run(const char *const *stops, size_t n, const char *text, size_t piece, char *out)
{
    struct stop *s = stop_new(stops, n, false);
    struct buf b;
    buf_init(&b, 1000);
    bool hit = false;
    size_t len = strlen(text);
    for (size_t i = 0; i < len && !hit; i += piece)
        hit = stop_feed(s, text + i, len - i < piece ? len - i : piece, &b);
    if (!hit)
        stop_flush(s, &b);
    strcpy(out, b.data ? b.data : "");
    if (hit)
        strcat(out, "|");
    buf_done(&b);
    stop_free(s);
}

static void test_cut_does_not_depend_on_pieces(void **state)
{
    (void)state;
    static const struct { const char *stops[3]; size_t n; const char *text, *want; } cases[] = {
        {{"END"}, 1, "hello END more", "hello |"},
        {{"END"}, 1, "hello EN", "hello EN"},
        {{"END"}, 1, "EENENDx", "EEN|"},
        {{"aab"}, 1, "aaaab", "aa|"},
        {{"abab", "b"}, 2, "xabab", "xa|"},
        {{"bcd", "abcd"}, 2, "xabcd", "x|"},      // both end at once: the longest
        {{"abcd", "c"}, 2, "xabcd", "xab|"},      // the one that ends first
        {{"\n\n"}, 1, "a\nb\n\nc", "a\nb|"},
        {{"\xC3\xA9t\xC3\xA9"}, 1, "un \xC3\xA9t\xC3\xA8 \xC3\xA9t\xC3\xA9!", "un \xC3\xA9t\xC3\xA8 |"},
        {{"", "x"}, 2, "abxc", "ab|"},
        {{"abcabd"}, 1, "abcabcabd", "abc|"},
        {{"x"}, 1, "", ""},
        {{"x"}, 1, "x", "|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= 8; piece++) {
            char out[100];
            run(cases[i].stops, cases[i].n, cases[i].text, piece, out);
            assert_string_equal(out, cases[i].want);
        }
}

static void test_holds_back_only_what_may_be_a_stop(void **state)
{
    (void)state;
    const char *stops[] = {"STOP"};
    struct stop *s = stop_new(stops, 1, false);
    struct buf b;
    buf_init(&b, 100);
    assert_false(stop_feed(s, "ab S", 4, &b));
    assert_string_equal(b.data, "ab ");
    assert_false(stop_feed(s, "T", 1, &b));
    assert_string_equal(b.data, "ab ");
    assert_false(stop_feed(s, "S", 1, &b));
    assert_string_equal(b.data, "ab ST");
    stop_flush(s, &b);
    assert_string_equal(b.data, "ab STS");
    buf_done(&b);
    stop_free(s);
}

// The choices of a request share what they look for, and nothing else.
static void test_shared(void **state)
{
    (void)state;
    const char *stops[] = {"ab", "xyz"};
    struct stop *one = stop_new(stops, 2, false), *two = stop_share(one);
    struct buf b, c;
    buf_init(&b, 100);
    buf_init(&c, 100);
    assert_false(stop_feed(one, "1xy", 3, &b));
    assert_false(stop_feed(two, "2a", 2, &c));
    stop_free(one);
    assert_true(stop_feed(two, "b", 1, &c));
    assert_string_equal(b.data, "1");
    assert_string_equal(c.data, "2");
    assert_null(stop_share(NULL));
    buf_done(&b);
    buf_done(&c);
    stop_free(two);
}

static void test_none(void **state)
{
    (void)state;
    const char *stops[] = {"", NULL};
    assert_null(stop_new(stops, 2, false));
    assert_null(stop_new(NULL, 0, false));
    struct buf b;
    buf_init(&b, 100);
    assert_false(stop_feed(NULL, "all", 3, &b));
    stop_flush(NULL, &b);
    assert_string_equal(b.data, "all");
    buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_does_not_depend_on_pieces),
        cmocka_unit_test(test_holds_back_only_what_may_be_a_stop),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
