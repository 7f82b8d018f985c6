// A form's fields and files: lookups, bounds, files in memory and in a temporary file, nothing left behind.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/upload.h"

static struct arena arena;

static struct upload *form(size_t max_bytes, const char *folder)
{
    struct upload_limits limits = {max_bytes, folder};
    struct upload *u;
    err e = {0};
    assert_int_equal(upload_new(&arena, "multipart/form-data; boundary=B", &limits, &u, &e), ERR_OK);
    return u;
}

static err_code add(struct upload *u, const char *text, err *e)
{
    return upload_add(u, text, strlen(text), e);
}

#define FIELD(name, value) "--B\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define FILE_HEAD(name) "--B\r\nContent-Disposition: form-data; name=\"" name "\"; filename=\"../x\"\r\n\r\n"

static void test_fields(void **state)
{
    (void)state;
    struct upload *u = form(100, NULL);
    err e = {0};
    assert_int_equal(add(u, FIELD("model", "tiny") FIELD("language", "") FIELD("g[]", "word") FIELD("g[0]", "segment")
                            FIELD("g", "a,b") FIELD("g[x]", "no") FIELD("go", "no") FIELD("", "no") FIELD("model", "two") "--B--", &e), ERR_OK);
    assert_int_equal(upload_finish(u, &e), ERR_OK);
    const char *values[2];
    assert_int_equal(upload_list(u, "model", values, 2), 2);
    assert_string_equal(values[0], "tiny");
    assert_int_equal(upload_list(u, "language", values, 2), 0);  // empty
    assert_int_equal(upload_list(u, "none", values, 2), 0);
    assert_int_equal(upload_list(u, "g", values, 2), 3);
    assert_string_equal(values[0], "word");
    assert_string_equal(values[1], "segment");
    const struct upload_file *f;
    assert_int_equal(upload_find(u, "file", &f), 0);
    arena_done(&arena);
}

static int count_files(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

// Sizes below, at and above the memory limit, in pieces.
static void test_files(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_upload-XXXXXX";
    assert_non_null(mkdtemp(folder));
    static const size_t sizes[] = {0, 1, UPLOAD_MEMORY_MAX, UPLOAD_MEMORY_MAX + 1, 3 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        struct upload *u = form(4 << 20, folder);
        err e = {0};
        unsigned char *content = malloc(n + 1), *got = malloc(n + 1);
        for (size_t i = 0; i < n; i++)
            content[i] = (unsigned char)(i * 2654435761u >> 13);
        assert_int_equal(add(u, FILE_HEAD("other") "abc\r\n" FILE_HEAD("file"), &e), ERR_OK);
        for (size_t at = 0; at < n; at += 10007)
            assert_int_equal(upload_add(u, (char *)content + at, n - at < 10007 ? n - at : 10007, &e), ERR_OK);
        assert_int_equal(add(u, "\r\n" FILE_HEAD("file") "second\r\n" FIELD("m", "1") "--B--\r\n", &e), ERR_OK);
        assert_int_equal(upload_finish(u, &e), ERR_OK);
        const struct upload_file *f;
        assert_int_equal(upload_find(u, "file", &f), 2);
        assert_int_equal(f->size, n);
        assert_string_equal(f->filename, "../x");
        assert_int_equal(u->fd >= 0, n + 9 > UPLOAD_MEMORY_MAX);
        assert_int_equal(upload_read(u, f, 0, got, n + 1), n);
        assert_memory_equal(got, content, n);
        assert_int_equal(upload_read(u, f, (int64_t)n, got, 1), 0);
        assert_int_equal(upload_read(u, f, -1, got, 1), 0);
        if (n > 3)
            assert_int_equal(upload_read(u, f, (int64_t)n - 2, got, 10), 2);
        assert_int_equal(count_files(folder), 0);
        free(content);
        free(got);
        arena_done(&arena);
    }
    assert_int_equal(rmdir(folder), 0);
}

// Calls of write() so far; -1: this kernel does not count them.
static long writes(void)
{
    long n = -1;
    char line[80];
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "syscw: ", 7))
            n = atol(line + 7);
    if (f)
        fclose(f);
    return n;
}

// What may begin a boundary at every byte is stored in blocks as well: otherwise 25 MB of CR hold the loop for 20 s.
static void test_blocks(void **state)
{
    (void)state;
    static const char *const units[] = {"\r", "\r\n--", "\r\n--B\r", "x"};
    long before = writes();
    if (before < 0)
        skip();
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        struct upload *u = form(4 << 20, NULL);
        err e = {0};
        size_t len = strlen(units[k]), n = (3 << 20) / len * len;
        char *content = malloc(n), *got = malloc(n);
        for (size_t i = 0; i < n; i++)
            content[i] = units[k][i % len];
        before = writes();
        assert_int_equal(add(u, FILE_HEAD("file"), &e), ERR_OK);
        for (size_t at = 0; at < n; at += 30011)
            assert_int_equal(upload_add(u, content + at, n - at < 30011 ? n - at : 30011, &e), ERR_OK);
        assert_int_equal(add(u, "\r\n--B--\r\n", &e), ERR_OK);
        assert_int_equal(upload_finish(u, &e), ERR_OK);
        assert_in_range(writes() - before, 1, 24);  // seen: 12 or 13
        const struct upload_file *f;
        assert_int_equal(upload_find(u, "file", &f), 1);
        assert_int_equal(upload_read(u, f, 0, got, n), n);
        assert_memory_equal(got, content, n);
        free(content);
        free(got);
        arena_done(&arena);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    err e = {0};
    struct upload *u = form(10, NULL);
    assert_int_equal(add(u, FILE_HEAD("file") "0123456789", &e), ERR_OK);
    assert_int_equal(add(u, "x", &e), ERR_TOO_LARGE);
    u = form(10, NULL);
    char *text = malloc(UPLOAD_TEXT_MAX + 1);
    memset(text, 'a', UPLOAD_TEXT_MAX + 1);
    assert_int_equal(add(u, "--B\r\nContent-Disposition: form-data; name=prompt\r\n\r\n", &e), ERR_OK);
    assert_int_equal(upload_add(u, text, UPLOAD_TEXT_MAX + 1, &e), ERR_INVALID);
    assert_string_equal(e.param, "prompt");
    u = form(10, NULL);
    for (int i = 0; i < UPLOAD_FIELDS_MAX; i++)
        assert_int_equal(add(u, FIELD("a", "1"), &e), ERR_OK);
    assert_int_equal(add(u, FIELD("a", "1") "--B--", &e), ERR_INVALID);
    u = form(10, NULL);
    for (int i = 0; i < UPLOAD_FILES_MAX; i++)
        assert_int_equal(add(u, FILE_HEAD("a") "\r\n", &e), ERR_OK);
    assert_int_equal(add(u, FILE_HEAD("a"), &e), ERR_INVALID);
    u = form(10, NULL);
    static const char nul[] = FIELD("a", "1\0") "--B--";
    assert_int_equal(upload_add(u, nul, sizeof nul - 1, &e), ERR_INVALID);
    u = form(10, NULL);
    assert_int_equal(add(u, FIELD("a", "1"), &e), ERR_OK);
    assert_int_equal(upload_finish(u, &e), ERR_INVALID);
    free(text);
    arena_done(&arena);
}

static void test_folder(void **state)
{
    (void)state;
    err e = {0};
    assert_int_equal(upload_check_folder("/tmp", &e), ERR_OK);
    assert_int_equal(upload_check_folder("/nonexistent", &e), ERR_IO);
    assert_string_equal(e.param, "upload_dir");
    struct upload *u = form(4 << 20, "/nonexistent");
    char *content = calloc(1, UPLOAD_MEMORY_MAX + 1);
    assert_int_equal(add(u, FILE_HEAD("file"), &e), ERR_OK);
    assert_int_equal(upload_add(u, content, UPLOAD_MEMORY_MAX + 1, &e), ERR_IO);
    free(content);
    arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
