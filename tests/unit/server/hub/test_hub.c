// Listings of a hub, and the URLs of its files.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "server/hub/hub.h"

#define COMMIT "0123456789012345678901234567890123456789"
#define SHA "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define LISTING(files) "{\"sha\": \"" COMMIT "\", \"siblings\": [" files "]}"
#define LFS(sha) LISTING("{\"rfilename\": \"a\", \"size\": 3, \"lfs\": {\"sha256\": \"" sha "\", \"size\": 3}}")

static void test_listing(void **state)
{
    (void)state;
    const char *json = LISTING("{\"rfilename\": \"w.gguf\", \"size\": 130, \"blobId\": \"" COMMIT "\", "
                               "\"lfs\": {\"sha256\": \"" SHA "\", \"size\": 5000000000}}, "
                               "{\"rfilename\": \"c/config.json\", \"size\": 2, \"blobId\": \"" COMMIT "\"}, "
                               "{\"rfilename\": \"a\"}, {\"rfilename\": \"b\", \"size\": null, \"lfs\": null}");
    struct hub_listing l;
    err e = {0};
    assert_int_equal(hub_parse(json, strlen(json), &l, &e), ERR_OK);
    assert_string_equal(l.commit, COMMIT);
    assert_false(l.gated);
    assert_int_equal(l.nfiles, 4);
    assert_string_equal(l.files[0].path, "a");
    assert_true(l.files[0].size == HUB_SIZE_UNKNOWN && l.files[1].size == HUB_SIZE_UNKNOWN);
    assert_string_equal(l.files[2].path, "c/config.json");
    assert_string_equal(l.files[2].blob, COMMIT);
    assert_string_equal(l.files[2].sha256, "");
    assert_true(l.files[3].size == 5000000000);
    assert_string_equal(l.files[3].sha256, SHA);
    assert_string_equal(l.files[3].blob, "");
    hub_listing_done(&l);
    json = "{\"sha\": \"" COMMIT "\", \"gated\": \"manual\", \"siblings\": []}";
    assert_int_equal(hub_parse(json, strlen(json), &l, &e), ERR_OK);
    assert_true(l.gated);
    assert_int_equal(l.nfiles, 0);
    hub_listing_done(&l);
}

static void test_damaged(void **state)
{
    static const char *const wrong[] = {
        "", "null", "[]", "{}", "{\"siblings\": []}", "{\"sha\": \"main\", \"siblings\": []}",
        "{\"sha\": \"" COMMIT "\"}",
        "{\"sha\": \"" COMMIT "\", \"siblings\": {}}", LISTING("{}"), LISTING("1"), LISTING("{\"rfilename\": 1}"),
        LISTING("{\"rfilename\": \"../a\"}"), LISTING("{\"rfilename\": \"a\\u0000.gguf\"}"),
        LISTING("{\"rfilename\": \"a\"}, {\"rfilename\": \"a\"}"), LISTING("{\"rfilename\": \"a\", \"size\": -1}"),
        LISTING("{\"rfilename\": \"a\", \"size\": \"3\"}"), LISTING("{\"rfilename\": \"a\", \"size\": 1e30}"),
        LISTING("{\"rfilename\": \"a\", \"blobId\": \"../../x\"}"),
        LISTING("{\"rfilename\": \"a\", \"blobId\": \"" SHA "\"}"),
        // SEC-01
        LFS("../../../../tmp/x"), LFS("sha256:" SHA), LFS("sha512:" SHA), LFS(SHA "0"), LFS("BA" SHA), LFS(COMMIT),
        LFS("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        LFS("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a"),
        LFS("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a\\u0000"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct hub_listing l;
        err e = {0};
        if (!hub_parse(wrong[i], strlen(wrong[i]), &l, &e))
            fail_msg("taken: %s", wrong[i]);
        assert_true(strstr(e.text, "listing is refused") != NULL);
    }
}

static void test_urls(void **state)
{
    (void)state;
    struct modelref r = {.repo = "a/b"};
    char *url = hub_file_url("https://h:1/x/", &r, "c/d", "e f/g?h#i%j\xc3\xa4.gguf");
    assert_string_equal(url, "https://h:1/x/a/b/resolve/c%2Fd/e%20f/g%3Fh%23i%25j%C3%A4.gguf");
    free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
