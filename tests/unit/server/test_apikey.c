// Keys as lines: written, read again, and every kind of wrong line.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "server/apikey.h"

static void digests(void **state)
{
    (void)state;
    // RFC 4231, test case 2, and case 1 (its key is 20 bytes of 0x0b).
    char hex[2 * APIKEY_DIGEST + 1];
    apikey_hmac_hex("Jefe", 4, "what do ya want for nothing?", 28, hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    unsigned char secret[20];
    memset(secret, 0x0b, sizeof secret);
    apikey_hmac_hex(secret, sizeof secret, "Hi There", 8, hex);
    assert_string_equal(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

static void made_keys_differ(void **state)
{
    (void)state;
    char a[APIKEY_TEXT], b[APIKEY_TEXT];
    apikey_make(a);
    apikey_make(b);
    assert_int_equal(strlen(a), APIKEY_TEXT - 1);
    assert_int_equal(strncmp(a, "sk-ox-", 6), 0);
    assert_string_not_equal(a, b);
}

static void lines_come_back(void **state)
{
    (void)state;
    static const char *const options[] = {
        "", " weight=2.5", " class=batch rpm=3 tpm=1000 concurrent=2 expires=1900000000 models=a,org/b group=team-1 admin",
        " class=interactive"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct apikey k, again;
        struct buf out;
        err e = {0};
        char *plain = "";
        apikey_init(&k);
        apikey_init(&again);
        buf_init(&out, 10000);
        assert_int_equal(apikey_set_name(&k, "box.1_a-b", &e), ERR_OK);
        apikey_random(k.salt, sizeof k.salt);
        apikey_digest(k.salt, "secret", k.digest);
        assert_int_equal(apikey_set_all(&k, options[i], &e), ERR_OK);
        apikey_write_line(&k, &out);
        out.data[out.len - 1] = 0;
        assert_non_null(strstr(out.data, options[i]));
        assert_null(strstr(out.data, "secret"));
        assert_int_equal(apikey_read_line(&again, out.data, &plain, &e), ERR_OK);
        assert_null(plain);
        assert_string_equal(again.name, k.name);
        assert_memory_equal(again.salt, k.salt, APIKEY_SALT);
        assert_memory_equal(again.digest, k.digest, APIKEY_DIGEST);
        assert_true(again.rpm == k.rpm && again.tpm == k.tpm && again.concurrent == k.concurrent &&
                    again.best == k.best && again.admin == k.admin && again.expires_unix_s == k.expires_unix_s);
        assert_string_equal(again.group, k.group);
        buf_done(&out);
        apikey_done(&k);
        apikey_done(&again);
    }
}

#define SALT "000102030405060708090a0b0c0d0e0f"
#define DIGEST "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f"

static void wrong_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "name key", "name sha256:00:00", "name sha256:" SALT ":" DIGEST "0", "name md5:" SALT ":" DIGEST,
        "name sha256:" SALT "-" DIGEST, "name sha256:G00102030405060708090a0b0c0d0e0f:" DIGEST,
        "na/me sha256:" SALT ":" DIGEST, "name sha256:" SALT ":" DIGEST " rpm", "name sha256:" SALT ":" DIGEST " rpm=0",
        "name sha256:" SALT ":" DIGEST " rpm=-1", "name sha256:" SALT ":" DIGEST " rpm=1x",
        "name sha256:" SALT ":" DIGEST " weight=0", "name sha256:" SALT ":" DIGEST " weight=nan",
        "name sha256:" SALT ":" DIGEST " class=best", "name sha256:" SALT ":" DIGEST " admin=1",
        "name sha256:" SALT ":" DIGEST " models=", "name sha256:" SALT ":" DIGEST " group=a/b",
        "name sha256:" SALT ":" DIGEST " tpm=99999999999999999999", "name sha256:" SALT ":" DIGEST " colour=red"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct apikey k;
        err e = {0};
        char line[300], *plain;
        apikey_init(&k);
        strcpy(line, lines[i]);
        if (apikey_read_line(&k, line, &plain, &e) != ERR_INVALID || !e.text[0])
            fail_msg("accepted: %s", lines[i]);
        apikey_done(&k);
    }
}

static void models_and_time(void **state)
{
    (void)state;
    struct apikey k;
    err e = {0};
    apikey_init(&k);
    assert_true(apikey_may_use(NULL, "a") && apikey_may_use(&k, "a"));
    assert_int_equal(apikey_set(&k, "models", "ab,org/c", &e), ERR_OK);
    assert_true(apikey_may_use(&k, "ab") && apikey_may_use(&k, "org/c"));
    assert_false(apikey_may_use(&k, "a") || apikey_may_use(&k, "abc") || apikey_may_use(&k, "c") || apikey_may_use(&k, ""));
    assert_false(apikey_expired(&k, INT64_MAX));
    assert_int_equal(apikey_set(&k, "expires", "1000", &e), ERR_OK);
    assert_true(apikey_expired(&k, 1000));
    assert_false(apikey_expired(&k, 999));
    apikey_done(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests), cmocka_unit_test(made_keys_differ), cmocka_unit_test(lines_come_back),
        cmocka_unit_test(wrong_lines), cmocka_unit_test(models_and_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
