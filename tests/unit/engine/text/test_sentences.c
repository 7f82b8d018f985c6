// Cutting texts: at the borders a reader would choose, never losing, repeating or reordering a byte (TTS-02).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/text/sentences.h"

// The pieces of text, separated by '|'.
static void check(const char *text, size_t max, const char *want)
{
    char got[2048];
    size_t len = strlen(text), at = 0, out = 0;
    while (at < len) {
        size_t n = sentences_next(text + at, len - at, max);
        assert_true(n > 0 && at + n <= len);
        if (at)
            got[out++] = '|';
        memcpy(got + out, text + at, n);
        out += n;
        at += n;
    }
    got[out] = 0;
    assert_string_equal(got, want);
}

static void test_borders(void **state)
{
    (void)state;
    check("Short.", 20, "Short.");
    check("One is here. Two is there. Three.", 19, "One is here. |Two is there. |Three.");
    check("One is here. Two is there. Three.", 28, "One is here. Two is there. |Three.");
    check("No end in sight, but a comma helps", 24, "No end in sight, |but a comma helps");
    check("no punctuation at all in this", 16, "no punctuation |at all in this");
    check("line one\nline two\nline three", 12, "line one\n|line two\n|line three");
    check("\"Stop!\" he said. \"Why?\" she asked.", 22, "\"Stop!\" he said. |\"Why?\" she asked.");
    check("Wait... what? Yes.", 14, "Wait... what? |Yes.");
    check("abcdefghijklmnop", 5, "abcde|fghij|klmno|p");
}

static void test_abbreviations(void **state)
{
    (void)state;
    check("It was Dr. Smith who came. He sat.", 30, "It was Dr. Smith who came. |He sat.");
    check("We met Mr. Brown and Mrs. Green today", 26, "We met Mr. Brown and Mrs. |Green today");
    check("Ask J. R. Tolkien. He knows.", 20, "Ask J. R. Tolkien. |He knows.");
    check("Pi is 3.14159 about. Fine.", 22, "Pi is 3.14159 about. |Fine.");
    check("Tools, e.g. hammers, work. Good.", 28, "Tools, e.g. hammers, work. |Good.");
    check("See No. 5 there. Then go on now.", 20, "See No. 5 there. |Then go on now.");
    check("I said no. Then I left it be.", 16, "I said no. |Then I left it |be.");
    check("So did I. But then we went on.", 14, "So did I. |But then we |went on.");
}

static void test_other_scripts(void **state)
{
    (void)state;
    check("今天天气很好。我们去公园。好吗？", 24, "今天天气很好。|我们去公园。|好吗？");
    check("他说：「走吧。」然后走了。", 30, "他说：「走吧。」|然后走了。");
    check("没有标点的长句子也要切开", 12, "没有标点|的长句子|也要切开");
    check("यह एक वाक्य है। यह दूसरा है।", 60, "यह एक वाक्य है। |यह दूसरा है।");
    check("Привет мир. Как дела?", 24, "Привет мир. |Как дела?");
    check("e\xCC\x81" "e\xCC\x81" "e\xCC\x81", 4, "e\xCC\x81|e\xCC\x81|e\xCC\x81");
}

// Any bytes: pieces are not empty, hold at most max bytes, and begin at characters when the text is UTF-8.
static void test_anything(void **state)
{
    (void)state;
    static const char *const parts[] = {" ", ".", "a", "Dr", "\n", "。", "é", "\xCC\x81", "你", ",", "\"", "\xFF", "\xE4\xBD", "<laugh>",
                                        "\xF0\x9F\x98\x80", "\xE2\x80\x8D", "  ", "?!"};
    for (uint64_t t = 0; t < 3000; t++) {
        char text[600];
        size_t len = 0, max = 4 + rng_u64(1, t, 0) % 40;
        bool valid = t % 2;
        for (uint64_t i = 0; len < 300; i++) {
            const char *p = parts[rng_u64(2, t, i) % (sizeof parts / sizeof *parts)];
            if (valid && !utf8_valid(p, strlen(p)))
                continue;
            memcpy(text + len, p, strlen(p));
            len += strlen(p);
            if (rng_u64(3, t, i) % 50 == 0)
                break;
        }
        char *exact = mem_strndup(text, len);
        for (size_t at = 0, n; at < len; at += n) {
            n = sentences_next(exact + at, len - at, max);
            assert_true(n > 0 && n <= max && at + n <= len);
            assert_true(!valid || utf8_valid(exact + at, n));
        }
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_borders), cmocka_unit_test(test_abbreviations),
                                       cmocka_unit_test(test_other_scripts), cmocka_unit_test(test_anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
