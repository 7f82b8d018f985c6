// Patterns, formats and numbers: which texts they match, as characters and spelt in bytes; what is refused; GBNF and
// choices as texts that are and are not allowed.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "engine/grammar/bytedfa.h"
#include "engine/grammar/format.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/number.h"
#include "engine/grammar/regex.h"

static bool bytes_match(const struct bytedfa *d, const char *text)
{
    uint32_t s = BYTEDFA_START;
    for (; *text && s != BYTEDFA_DEAD; text++)
        s = bytedfa_next(d, s, (uint8_t)*text);
    return d->flags[s] & BYTEDFA_ACCEPT;
}

// texts: separated by '|'; those behind "!" do not match.
static void check(const char *what, const struct chardfa *c, const char *const *texts)
{
    struct bytedfa *d;
    err e;
    assert_int_equal(bytedfa_make(c, false, true, &d, &e), ERR_OK);
    for (; *texts; texts++) {
        bool want = **texts != '!';
        const char *text = *texts + !want;
        if (chardfa_matches(c, text, strlen(text)) != want || bytes_match(d, text) != want)
            fail_msg("%s: '%s'", what, text);
    }
    bytedfa_free(d);
}

static const struct {
    const char *pattern;
    bool search;
    const char *texts[10];
} patterns[] = {
    {"b", true, {"b", "abc", "!ac", "!"}},
    {"^(a|b)$|^c$", true, {"a", "b", "c", "!ab", "!"}},
    {"^$|^\\+?[0-9]+$", true, {"", "+1", "12", "!+", "!a"}},
    {"a^b|c$d", true, {"!ab", "!cd", "!"}},
    {"[a-c]{2,3}", false, {"ab", "abc", "!a", "!abca"}},
    {"(a*)*b", false, {"b", "aab", "!a"}},
    {"\\d\\D\\w\\W\\s\\S", false, {"1a_- x", "!11_- x"}},
    {"[\\d-x]\\-[^\\n]", false, {"1-2", "--3", "x-4", "!y-4"}},
    {"(?i)h\xC3\xA9L", false, {"H\xC3\x89l", "h\xC3\xA9L", "!he"}},
    {".", false, {"\xF0\x9F\x98\x80", "a", "!\n", "!ab", "!"}},
    {"\\u0041\\x42\\u{1F600}\\cJ\\/", false, {"AB\xF0\x9F\x98\x80\n/"}},
    {"\\p{Lu}\\p{L}*", false, {"A", "\xC3\x89\xC3\xA9", "!a"}},
    {"(?:a|(?<n>b))+?c{0}", false, {"a", "ba", "!c"}},
    {"x{,2}", false, {"x{,2}"}},
    {"\\Aab\\z", false, {"ab", "!a"}},
};

static void test_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
        struct chardfa *c;
        err e = {0};
        if (regex_compile(patterns[i].pattern, strlen(patterns[i].pattern), patterns[i].search, &b, &c, &e))
            fail_msg("%s: %s", patterns[i].pattern, e.text);
        check(patterns[i].pattern, c, patterns[i].texts);
        chardfa_free(c);
    }
}

static void test_refused_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        err_code code;
    } bad[] = {{"(?=a)", ERR_UNSUPPORTED}, {"(?<!a)b", ERR_UNSUPPORTED}, {"(a)\\1", ERR_UNSUPPORTED}, {"\\bx", ERR_UNSUPPORTED},
               {"(a", ERR_INVALID}, {"a)", ERR_INVALID}, {"[a", ERR_INVALID}, {"*a", ERR_INVALID}, {"^*a", ERR_INVALID}, {"^{3}q$", ERR_INVALID}, {"a$?", ERR_INVALID}, {"a{3,2}", ERR_INVALID},
               {"[z-a]", ERR_INVALID}, {"\\u12", ERR_INVALID}, {"a\\", ERR_INVALID}, {"\xFF", ERR_INVALID},
               {".*a.{40}", ERR_TOO_LARGE}, {"a{20000}", ERR_TOO_LARGE}, {"((a{1000}){1000}){1000}", ERR_TOO_LARGE},
               {"\\p{Nonsense}", ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
        struct chardfa *c;
        err e = {0};
        if (regex_compile(bad[i].pattern, strlen(bad[i].pattern), false, &b, &c, &e) != bad[i].code)
            fail_msg("%s: %s", bad[i].pattern, e.text);
    }
}

static const struct {
    const char *name;
    const char *texts[14];
} formats[] = {
    {"date", {"2024-02-29", "0001-01-01", "9999-12-31", "2000-02-29", "!1900-02-29", "!2024-02-30", "!2024-13-01", "!0000-01-01",
              "!2024-4-01"}},
    {"time", {"12:00:00Z", "23:59:59.123+01:00", "!24:00:00Z", "!12:00:00", "!12:60:00Z"}},
    {"date-time", {"2024-02-29T00:00:00Z", "!2024-02-29 00:00:00Z", "!2023-02-29T00:00:00Z"}},
    {"uuid", {"123e4567-e89b-12d3-a456-426614174000", "!123e4567e89b12d3a456426614174000", "!g23e4567-e89b-12d3-a456-426614174000"}},
    {"email", {"a@b.c", "first.last+tag@example.com", "!a@", "!@b", "!a..b@c", "!.a@b", "!a@-b"}},
    {"ipv4", {"1.2.3.4", "255.255.255.255", "!256.1.1.1", "!1.2.3", "!01.2.3.4"}},
    {"ipv6", {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1", "!1:2:3", "!1::2::3", "!12345::", "!1:2:3:4:5:6:7:8:9"}},
    {"uri", {"http://a.b/c?d#e", "mailto:x@y", "urn:a:b", "http://[::1]:80/", "!a b:", "!//a/b", "!http://a b", "!"}},
    {"hostname", {"example.com", "a", "!-a", "!a-", "!a..b", "!"}},
    {"duration", {"P1D", "PT5S", "P1Y2M3DT4H5M6S", "P2W", "!P", "!PT", "!P1", "!P1Y1D"}},
    {"json-pointer", {"", "/a/b", "/a~0b~1", "!a", "!/~2"}},
};

static void test_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
        struct chardfa *c;
        err e = {0};
        assert_int_equal(format_find(formats[i].name), FORMAT_ENFORCED);
        if (format_compile(formats[i].name, &b, &c, &e))
            fail_msg("%s: %s", formats[i].name, e.text);
        check(formats[i].name, c, formats[i].texts);
        chardfa_free(c);
    }
    assert_int_equal(format_find("iri"), FORMAT_REFUSED);
    assert_int_equal(format_find("int32"), FORMAT_ANNOTATION);
}

static const struct {
    const char *min, *max;
    bool integer, exclusive;
    uint32_t multiple;
    const char *texts[16];
} numbers[] = {
    {"-5", "120", true, false, 0, {"-5", "0", "120", "7", "99", "!-6", "!121", "!00", "!-0", "!1e2", "!1.0", "!"}},
    {"1.5", "3.5", true, false, 0, {"2", "3", "!1", "!4"}},
    {"1e2", "1e2", true, false, 0, {"100", "!99", "!101"}},
    {NULL, NULL, true, false, 7, {"0", "7", "-14", "700", "!1", "!-1"}},
    {"0", NULL, false, true, 0, {"0.1", "1", "0.00001", "!0", "!0.0", "!-1", "!1e3"}},
    {"1", "5", false, false, 0, {"1", "1.0", "5.0", "3.33", "!0.99", "!5.7", "!5.01", "!10"}},
    {"0", "1", false, true, 0, {"0.5", "0.999", "!0", "!1", "!1.0"}},
    {"-0.5", "0.25", false, false, 0, {"-0.5", "-0.49", "0", "0.25", "!-0.51", "!0.26", "!-0", "!-0.0"}},
    {NULL, "-1000", false, false, 0, {"-1000", "-1000.5", "-20000", "!-999.9", "!0", "!1"}},
    {NULL, NULL, false, false, 0, {"0", "-0.5", "1.5e10", "12E-3", "2e+5", "!-0", "!.5", "!1.", "!01", "!1e", "!1e555"}},
    {"99999999999999999999", NULL, true, false, 0, {"99999999999999999999", "100000000000000000000", "!9999999999999999999"}},
};

static void test_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct decimal min, max;
        struct number_spec s = {.integer = numbers[i].integer, .exclusive_min = numbers[i].exclusive,
                                .exclusive_max = numbers[i].exclusive, .multiple = numbers[i].multiple};
        if (numbers[i].min && decimal_parse(numbers[i].min, &min))
            s.min = &min;
        if (numbers[i].max && decimal_parse(numbers[i].max, &max))
            s.max = &max;
        struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
        struct chardfa *c;
        err e = {0};
        if (number_compile(&s, &b, &c, &e))
            fail_msg("%zu: %s", i, e.text);
        check(numbers[i].min ? numbers[i].min : "number", c, numbers[i].texts);
        chardfa_free(c);
    }
}

static const struct {
    const char *grammar;
    const char *texts[10];
} grammars[] = {
    {"root ::= \"a\" (\"b\" | [0-9]{2,3})* x # end\nx ::= \"(\" x \")\" | \"\"", {"a", "ab12", "a12345", "a(())", "!a1", "!a(", "!b"}},
    {"root ::= (\"\" | \"a\"*)* \"b\"", {"b", "aab", "!a"}},
    {"root ::= item (\",\" item){0,2}\nitem ::= [^,\\n]+", {"a,b", "\xC3\xA9", "a,b,c", "!a,b,c,d", "!,"}},
    {"root ::=\n  \"x\" |\n  \"\\u00e9\\x41\\n\"", {"x", "\xC3\xA9" "A\n", "!y"}},
    {"root ::= . . .", {"abc", "\xF0\x9F\x98\x80" "bc", "!ab"}},
    {"root ::= ([a-z] | \"aa\")+", {"aaa", "z", "!A"}},
};

static void test_gbnf(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        struct nodes g;
        uint32_t root;
        err e = {0};
        nodes_init(&g, NODES_RULE_DEPTH);
        if (gbnf_compile(grammars[i].grammar, strlen(grammars[i].grammar), &g, &root, &e) || nodes_finish(&g, root, &e))
            fail_msg("%s: %s", grammars[i].grammar, e.text);
        for (const char *const *t = grammars[i].texts; *t; t++) {
            struct machine *m = machine_new(&g);
            bool want = **t != '!';
            const char *text = *t + !want;
            bool ok = machine_text(m, text, strlen(text)) && machine_ends(m);
            if (ok != want)
                fail_msg("%s: %s", grammars[i].grammar, text);
            machine_free(m);
        }
        nodes_done(&g);
    }
}

static void test_refused_grammars(void **state)
{
    (void)state;
    static const struct {
        const char *grammar;
        err_code code;
    } bad[] = {{"", ERR_INVALID}, {"x ::= \"a\"", ERR_INVALID}, {"root ::= x", ERR_INVALID}, {"root ::= \"a", ERR_INVALID},
               {"root ::= [a", ERR_INVALID}, {"root ::= (\"a\"", ERR_INVALID}, {"root ::= \"a\")", ERR_INVALID},
               {"root ::= \"a\"{3,2}", ERR_INVALID}, {"root = \"a\"", ERR_INVALID}, {"root ::= root \"a\" | \"b\"", ERR_UNSUPPORTED},
               {"root ::= x\nx ::= y? root", ERR_INVALID}, {"root ::= <think>", ERR_UNSUPPORTED},
               {"root ::= \"a\" root", ERR_INVALID}, {"root ::= \"a\"\nroot ::= \"b\"", ERR_INVALID}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct nodes g;
        uint32_t root = 0;
        err e = {0};
        nodes_init(&g, NODES_RULE_DEPTH);
        err_code code = gbnf_compile(bad[i].grammar, strlen(bad[i].grammar), &g, &root, &e);
        if (!code)
            code = nodes_finish(&g, root, &e);
        if (code != bad[i].code)
            fail_msg("%s: %s", bad[i].grammar, e.text);
        nodes_done(&g);
    }
    // Many parentheses are an error, not a crash.
    char deep[60000];
    struct nodes g;
    uint32_t root;
    err e = {0};
    memset(deep, '(', sizeof deep);
    memcpy(deep, "root ::= ", 9);
    nodes_init(&g, NODES_RULE_DEPTH);
    assert_int_equal(gbnf_compile(deep, sizeof deep, &g, &root, &e), ERR_TOO_LARGE);
    nodes_done(&g);
}

// What is ambiguous without end costs a bounded time and ends in an error, never in free text.
static void test_ambiguous(void **state)
{
    (void)state;
    static const char text[] = "root ::= a a a a a a a a a a a a a a a a a a a a \"x\"\na ::= b? b? b? b? b?\nb ::= \"x\"? \"y\"? \"x\"?";
    struct nodes g;
    uint32_t root;
    err e = {0};
    nodes_init(&g, NODES_RULE_DEPTH);
    assert_int_equal(gbnf_compile(text, sizeof text - 1, &g, &root, &e), ERR_OK);
    assert_int_equal(nodes_finish(&g, root, &e), ERR_OK);
    struct machine *m = machine_new(&g);
    for (int i = 0; i < 20 && machine_text(m, "x", 1); i++) {
    }
    assert_true(machine_broken(m) || machine_goes_on(m) || machine_ends(m));
    assert_int_equal(machine_broken(m) && machine_text(m, "x", 1), 0);
    machine_free(m);
    nodes_done(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),    cmocka_unit_test(test_refused_patterns), cmocka_unit_test(test_formats),
        cmocka_unit_test(test_numbers),     cmocka_unit_test(test_gbnf),             cmocka_unit_test(test_refused_grammars),
        cmocka_unit_test(test_ambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
