// Sizes in text, both ways.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bytes.h"

static void parsed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0}, {"512", 512}, {"512B", 512}, {"-1", -1}, {"1k", 1024}, {"1K", 1024}, {"1kB", 1024}, {"1KiB", 1024}, {"1Ki", 1024},
        {"512MB", 512 << 20}, {"512mb", 512 << 20}, {"512 MiB", 512 << 20}, {"4GB", (int64_t)4 << 30}, {"4GiB", (int64_t)4 << 30},
        {"4Gi", (int64_t)4 << 30}, {"4g", (int64_t)4 << 30}, {"2TB", (int64_t)2 << 40}, {"1.5G", (int64_t)3 << 29},
        {"0.25 kb", 256}, {"8388607T", (int64_t)8388607 << 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = -7;
        if (!bytes_parse(cases[i].text, &n) || n != cases[i].bytes)
            fail_msg("%s: %lld", cases[i].text, (long long)n);
    }
    static const char *const bad[] = {"", "G", "4X", "4GBs", "4GiBB", "4iB", "4KK", "4  GB", "1.5", "1.5B", "1.G", ".5G", "-1.5G", "4,5G",
                                      "4 ", "8388608T", "99999999999999999999", "9007199254740992K", "90%", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t n = -7;
        if (bytes_parse(bad[i], &n) || n != -7)
            fail_msg("%s: %lld", bad[i], (long long)n);
    }
}

static void shown(void **state)
{
    (void)state;
    char text[BYTES_TEXT];
    assert_string_equal(bytes_text(0, text), "0 bytes");
    assert_string_equal(bytes_text(1023, text), "1023 bytes");
    assert_string_equal(bytes_text(1024, text), "1.00 KiB (1024 bytes)");
    assert_string_equal(bytes_text(4509715660, text), "4.20 GiB (4509715660 bytes)");
    assert_string_equal(bytes_text(SIZE_MAX, text), "16777216.00 TiB (18446744073709551615 bytes)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parsed), cmocka_unit_test(shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
