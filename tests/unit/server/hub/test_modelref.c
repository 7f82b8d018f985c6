// References to models, their folders, and names of files.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "server/hub/modelref.h"

static void reads(const char *text, const char *repo, const char *subdir, const char *quant, const char *revision,
                  const char *folder)
{
    struct modelref r;
    char out[MODELREF_FOLDER], again[MODELREF_TEXT];
    err e = {0};
    if (modelref_parse(text, &r, &e))
        fail_msg("%s: %s", text, e.text);
    assert_string_equal(r.repo, repo);
    assert_string_equal(r.subdir, subdir);
    assert_string_equal(r.quant, quant);
    assert_string_equal(r.revision, revision);
    assert_int_equal(modelref_folder(&r, out, &e), ERR_OK);
    assert_string_equal(out, folder);
    struct modelref same;
    assert_int_equal(modelref_parse(modelref_text(&r, again), &same, &e), ERR_OK);
    assert_int_equal(modelref_folder(&same, out, &e), ERR_OK);
    assert_string_equal(out, folder);
}

static void test_references(void **state)
{
    (void)state;
    reads("a/b", "a/b", "", "", "", "a--b");
    reads("Qwen/Qwen3-0.6B-GGUF:q8_0", "Qwen/Qwen3-0.6B-GGUF", "", "q8_0", "", "Qwen--Qwen3-0.6B-GGUF+Q8_0");
    reads("a/b@main", "a/b", "", "", "", "a--b");
    reads("a/b@v1.0:Q4_0", "a/b", "", "Q4_0", "v1.0", "a--b+Q4_0@v1.0");
    reads("a/b:Q4_0@refs/pr/1", "a/b", "", "Q4_0", "refs/pr/1", "a--b+Q4_0@refs--pr--1");
    reads("a/b/c/d", "a/b", "c/d", "", "", "a--b--c--d");
    reads("a/b/c/x.gguf", "a/b", "c/x.gguf", "", "", "a--b--c--x.gguf");
    reads("a/b/c d", "a/b", "c d", "", "", "a--b--c%20d");
    reads("a/b/c--d", "a/b", "c--d", "", "", "a--b--c%2D%2Dd");
    reads("a/b/c-/d", "a/b", "c-/d", "", "", "a--b--c%2D--d");
    reads("a/b/c/-d", "a/b", "c/-d", "", "", "a--b--c--%2Dd");
    reads("a/b/c%2D", "a/b", "c%2D", "", "", "a--b--c%252D");
}

static void test_no_references(void **state)
{
    static const char *const texts[] = {
        "",
        "a",
        "a/",
        "/b",
        "/a/b",
        "./a/b",
        "../a/b",
        "a/..",
        "a/../b",
        "a/b/..",
        "a/b/../c",
        "a/b//c",
        "a/b/",
        "a/b:",
        "a/b@",
        "a/b:Q@",
        "a/b@:Q",
        "a/b:Q:R",
        "a/b@x@y",
        "a/b:Q/x",
        "-a/b",
        "a/b-",
        ".a/b",
        "a/b.",
        "a--b/c",
        "a..b/c",
        "a b/c",
        "a/b\n",
        "a\\b/c",
        "http://h/",
        "https://huggingface.co/a/b",
        "file:///etc",
        "a/b@../x",
        "a/b@/x",
        "a/b@x/",
        "a/b@-x",
        "a/b@x//y",
        "a/b@.x",
        "a/b:Q W",
        "a/b/con",
        "a/b/.oxinferd.json",
        "a/b/c\x01",
        "\xc3\xa4/b",
        "a/b/\xff",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct modelref r;
        err e = {0};
        if (!modelref_parse(texts[i], &r, &e))
            fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(e.code, ERR_INVALID);
    }
    char text[700];
    struct modelref r = {.repo = "a/b"};
    err e = {0};
    memset(text, 'x', sizeof text);
    memcpy(text, "a/", 2);
    text[99] = 0;
    assert_int_equal(modelref_parse(text, &r, &e), ERR_INVALID);
    text[99] = 'x';
    text[699] = 0;
    assert_int_equal(modelref_parse(text, &r, &e), ERR_INVALID);
    memset(r.subdir, '%', sizeof r.subdir - 1);
    char folder[MODELREF_FOLDER];
    assert_int_equal(modelref_folder(&r, folder, &e), ERR_TOO_LARGE);
}

static void test_paths(void **state)
{
    static const char *const good[] = {"a",
                                       "onnx/model.bin",
                                       "x-00001-of-00002.gguf",
                                       ".gitattributes",
                                       "a b",
                                       "\xc3\xa4.json",
                                       "com",
                                       "com10",
                                       "console",
                                       "null.txt",
                                       "a...b",
                                       "aux-1",
                                       "a:b"};
    static const char *const bad[] = {
        "",     "/",    "/a",   "a/",     "a//b",     ".",    "..",  "../a", "a/..",           "./a",        "a/.",
        "a\\b", "a\nb", "a\tb", "a\x7f",  "\xc2\x85", "\xff", "con", "CON",  "con.txt",        "con .txt",   "aux",
        "prn.", "nul",  "com1", "LPT9.x", "com0",     "a.",   "a ",  "a/b.", ".oxinferd.json", "x/.OXINFERD"};
    (void)state;
    err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (modelref_check_path(good[i], &e))
            fail_msg("'%s': %s", good[i], e.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(modelref_check_path(bad[i], &e), ERR_INVALID);
        for (const char *p = e.text; *p; p++)
            assert_true((unsigned char)*p >= ' ' && *p != 127);
    }
    char text[2000];
    memset(text, 'a', sizeof text);
    text[255] = 0;
    assert_int_equal(modelref_check_path(text, &e), ERR_OK);
    text[255] = 'a';
    text[256] = 0;
    assert_int_equal(modelref_check_path(text, &e), ERR_INVALID);
    for (int i = 0; i < 1100; i++)
        text[i] = i % 100 == 99 ? '/' : 'a';
    text[1098] = 0;
    assert_int_equal(modelref_check_path(text, &e), ERR_INVALID);
    text[998] = 0;
    assert_int_equal(modelref_check_path(text, &e), ERR_OK);
    strcpy(text, "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16");
    assert_int_equal(modelref_check_path(text, &e), ERR_OK);
    strcat(text, "/17");
    assert_int_equal(modelref_check_path(text, &e), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_no_references),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
