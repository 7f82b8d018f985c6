// multipart/form-data: what is found in a body, the same wherever it is cut, and what is refused.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/multipart.h"

// A transcript of what the sink was told: [name|filename|type]content;
static err_code on_part(void *ud, const struct multipart_part *p, err *e)
{
    (void)e;
    buf_printf(ud, "[%s|%s|%s]", p->name, p->filename ? p->filename : "-", p->content_type);
    return ERR_OK;
}

static err_code on_data(void *ud, const char *data, size_t n, err *e)
{
    (void)e;
    assert_true(n > 0);
    buf_add(ud, data, n);
    return ERR_OK;
}

static err_code on_end(void *ud, err *e)
{
    (void)e;
    buf_add_char(ud, ';');
    return ERR_OK;
}

static const struct multipart_sink sink = {on_part, on_data, on_end};

static err_code run(const char *boundary, const char *body, size_t n, size_t cut, size_t step, char **ret_text, err *e)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    struct multipart *m = multipart_new(boundary, &sink, &b);
    err_code rc = cut ? multipart_feed(m, body, cut, e) : ERR_OK;
    for (size_t at = cut; at < n && !rc; at += step)
        rc = multipart_feed(m, body + at, n - at < step ? n - at : step, e);
    if (!rc)
        rc = multipart_finish(m, e);
    multipart_free(m);
    *ret_text = buf_take(&b);
    return rc;
}

// The same result in one piece, cut at every byte, and byte by byte.
static void same_n(const char *body, size_t n, const char *want)
{
    for (size_t cut = 0; cut <= n + 1; cut++) {
        char *got;
        err e = {0};
        err_code rc = cut <= n ? run("XbX", body, n, cut, n, &got, &e) : run("XbX", body, n, 0, 1, &got, &e);
        if (rc)
            fail_msg("cut at %zu: %s", cut, e.text);
        assert_string_equal(got, want);
        free(got);
    }
}

static void same(const char *body, const char *want)
{
    same_n(body, strlen(body), want);
}

#define PART(disposition, content) "--XbX\r\nContent-Disposition: form-data" disposition "\r\n\r\n" content "\r\n"
#define END "--XbX--\r\n"

static void test_ordinary(void **state)
{
    (void)state;
    same(PART("; name=\"model\"", "tiny") PART("; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav", "RI\r\nFF") END,
         "[model|-|]tiny;[file|a.wav|audio/wav]RI\r\nFF;");
    same(PART("; name=a", "") END, "[a|-|];");
    same("--XbX--", "");
}

static void test_surroundings(void **state)
{
    (void)state;
    same("a preamble\r\n--Xb\r\n" PART("; name=a", "1") "--XbX-- an epilogue\r\n--XbX\r\n", "[a|-|]1;");
    same("\r\n" PART("; name=a", "1") "--XbX--", "[a|-|]1;");
    same("--XbX \t\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--XbX--", "[a|-|]1;");
    same("--XbX\r\n\r\nno headers\r\n--XbX--", "[|-|]no headers;");
}

static void test_content_like_a_boundary(void **state)
{
    (void)state;
    same(PART("; name=a", "\r\n--Xb\r\n--XbY\r\n--XbX-\r\n--XbXX\r\n-\r\r\n--XbX \r\r\n-") END,
         "[a|-|]\r\n--Xb\r\n--XbY\r\n--XbX-\r\n--XbXX\r\n-\r\r\n--XbX \r\r\n-;");
    same(PART("; name=a", "\r\r\n--XbX -\r") END, "[a|-|]\r\r\n--XbX -\r;");
    // A CR behind a boundary that is none may itself begin one.
    same(PART("; name=a", "x\r\n--XbX \r") END, "[a|-|]x\r\n--XbX \r;");
    static const char nul[] = PART("; name=a; filename=b", "a\0b") END;
    struct buf want;
    buf_init(&want, 100);
    err e = {0};
    struct multipart *m = multipart_new("XbX", &sink, &want);
    assert_int_equal(multipart_feed(m, nul, sizeof nul - 1, &e), ERR_OK);
    assert_int_equal(multipart_finish(m, &e), ERR_OK);
    assert_int_equal(want.len, 6 + 3 + 1);
    assert_memory_equal(want.data, "[a|b|]a\0b;", want.len);
    buf_done(&want);
    multipart_free(m);
}

static void test_names(void **state)
{
    (void)state;
    same(PART("; filename=\"x\"; name=\"file\"", "1") END, "[file|x|]1;");
    same(PART("; name=\"a\\\"b\"; filename=\"C:\\dir\\x\\\\y.wav\"", "1") END, "[a\"b|C:\\dir\\x\\y.wav|]1;");
    same(PART("; name=\"f\"; filename=\"plain\"; filename*=UTF-8''%e2%82%ac%20x", "1") END, "[f|\xe2\x82\xac x|]1;");
    same(PART("; name=\"f\"; filename*=utf-8'en'a%00b%zz%4", "1") END, "[f|a%00b%zz%4|]1;");
    same(PART("; name=\"f\"; filename=\"\"", "1") END, "[f||]1;");
    same(PART("; name=\"f;o=o\"; x=\"; name=no\"; filename=\"\xc3\xa9\xf0\x9f\x8e\xb5\"", "1") END, "[f;o=o|\xc3\xa9\xf0\x9f\x8e\xb5|]1;");
    same(PART(" ;\tNAME = a ; FileName=b", "1") END, "[a|b|]1;");
    same(PART(";\r\n name=a;\r\n\tfilename=b", "1") END, "[a|b|]1;");
    same(PART("; name=\"never ends", "1") END, "[|-|]1;");
    same("--XbX\r\nX-Other: 1\r\ncontent-TYPE:text/plain\r\nCONTENT-DISPOSITION:form-data; name=a\r\n"
         "Content-Transfer-Encoding: binary\r\n\r\n1\r\n" END, "[a|-|text/plain]1;");
}

static void refused(const char *body, const char *why)
{
    for (size_t step = 1; step < 4000; step += 3998) {
        char *got;
        err e = {0};
        assert_int_equal(run("XbX", body, strlen(body), 0, step, &got, &e), ERR_INVALID);
        if (!strstr(e.text, why))
            fail_msg("%s, not %s", e.text, why);
        free(got);
    }
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "no part of a form");
    refused("{\"model\": 1}", "boundary of the content type was not found");
    refused("--XbX", "no part");
    refused(PART("; name=a", "1"), "before its last boundary");
    refused(PART("; name=a", "1") "--XbX", "before its last boundary");
    refused("--XbX\r\nContent-Disposition: form-data; name=a\n\n1\r\n" END, "CR LF");
    refused("--XbX\r\nno colon here\r\n\r\n1\r\n" END, "no colon");
    refused("--XbX\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n" END, "attachment");
    refused("--XbX\r\nContent-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64\r\n\r\n1\r\n" END, "base64");
}

static void test_bounds(void **state)
{
    (void)state;
    char *body = malloc(MULTIPART_HEADER_MAX + 100), *got;
    strcpy(body, "--XbX\r\nX: ");
    memset(body + 10, 'x', MULTIPART_HEADER_MAX);
    body[10 + MULTIPART_HEADER_MAX] = 0;
    refused(body, "larger than");
    free(body);
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int i = 0; i <= MULTIPART_PARTS_MAX; i++)
        buf_add_str(&b, PART("; name=a", "1"));
    err e = {0};
    assert_int_equal(run("XbX", b.data, b.len, 0, b.len, &got, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "more than 256 parts"));
    free(got);
    buf_done(&b);
}

static void boundary_is(const char *type, const char *want)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    err e = {0};
    if (!want) {
        assert_int_equal(multipart_boundary(type, boundary, &e), ERR_INVALID);
        assert_true(*e.text);
    } else {
        assert_int_equal(multipart_boundary(type, boundary, &e), ERR_OK);
        assert_string_equal(boundary, want);
    }
}

static void test_boundary(void **state)
{
    (void)state;
    boundary_is("multipart/form-data; boundary=abc", "abc");
    boundary_is("Multipart/Form-Data ;charset=utf-8; Boundary=\"a b'()+_,-./:=?\"", "a b'()+_,-./:=?");
    boundary_is("multipart/form-data; boundary=----WebKitFormBoundaryX1; x=y", "----WebKitFormBoundaryX1");
    boundary_is("multipart/form-data", NULL);
    boundary_is("multipart/form-data; boundary=", NULL);
    boundary_is("multipart/form-data; boundary=\"abc", NULL);
    boundary_is("multipart/form-data; boundary=\"a\"; boundary=b", "a");
    boundary_is("multipart/form-data; boundary=\"a\\\"b\"", NULL);
    boundary_is("multipart/form-data; boundary=aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg");
    boundary_is("multipart/form-data; boundary=aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggggggggggh", NULL);
    boundary_is("multipart/form-dat; boundary=abc", NULL);
    boundary_is("application/json", NULL);
    boundary_is("", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary),
        cmocka_unit_test(test_surroundings),
        cmocka_unit_test(test_content_like_a_boundary),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
