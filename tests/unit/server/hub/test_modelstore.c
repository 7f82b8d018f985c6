// Digests, the store's manifests, and the store without a hub.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "server/hub/beneath.h"
#include "server/hub/digest.h"
#include "server/hub/manifest.h"
#include "server/hub/modelstage.h"
#include "server/hub/modelstore.h"

// Of "abc" as sha256sum and git hash-object say it.
#define SHA "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define BLOB "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"

static char folder[] = "/tmp/oxinferd-store-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return beneath_remove(AT_FDCWD, folder);
}

static void test_digests(void **state)
{
    (void)state;
    char sha256[DIGEST_SHA256], blob[DIGEST_BLOB];
    err e = {0};
    struct digest *d = digest_new(true, 3);
    digest_add(d, "xyz", 3);
    digest_restart(d);
    digest_add(d, "a", 1);
    digest_take(d, sha256, blob);
    assert_string_not_equal(sha256, SHA);
    digest_add(d, "bc", 2);
    digest_take(d, sha256, blob);
    assert_string_equal(sha256, SHA);
    assert_string_equal(blob, BLOB);
    digest_free(d);
    FILE *f = tmpfile();
    fputs("abcdef", f);
    fflush(f);
    d = digest_new(false, 0);
    assert_int_equal(digest_add_file(d, fileno(f), 3, NULL, NULL, &e), ERR_OK);
    assert_int_equal(lseek(fileno(f), 0, SEEK_CUR), 3);
    digest_take(d, sha256, blob);
    assert_string_equal(sha256, SHA);
    assert_string_equal(blob, "");
    assert_int_equal(digest_add_file(d, fileno(f), 7, NULL, NULL, &e), ERR_IO);
    digest_free(d);
    fclose(f);
    digest_text("abc", sha256);
    assert_string_equal(sha256, SHA);
    assert_true(digest_is_hex(SHA, 64));
    assert_false(digest_is_hex(SHA "0", 64));
    assert_false(digest_is_hex("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 64));
    assert_false(digest_is_hex("../../../../../../../../../../../../../../../../../../etc/passwd", 64));
    assert_false(digest_is_hex(NULL, 64));
}

#define FILES(path, size, sha)                                                                                         \
    "\"files\": [{\"path\": \"" path "\", \"size\": " size ", \"sha256\": \"" sha "\", \"blob\": \"\"}]"

static void test_manifests(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"format\": 2, \"name\": \"a/b\", " FILES("x", "3", SHA) "}",
        "{\"format\": 1, \"name\": \"../b\", " FILES("x", "3", SHA) "}",
        "{\"format\": 1, \"name\": \"a/b\", \"files\": []}",
        "{\"format\": 1, \"name\": \"a/b\", " FILES("../x", "3", SHA) "}",
        "{\"format\": 1, \"name\": \"a/b\", " FILES("x", "-1", SHA) "}",
        "{\"format\": 1, \"name\": \"a/b\", " FILES("x", "3", "ab") "}",
        "{\"format\": 1, \"name\": \"a/b\", \"serve\": \"/etc\", " FILES("x", "3", SHA) "}",
    };
    (void)state;
    struct manifest m;
    err e = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (manifest_read(wrong[i], strlen(wrong[i]), &m, &e) != ERR_CORRUPT)
            fail_msg("taken: %s", wrong[i]);
    const char *right =
        "{\"format\": 1, \"name\": \"a/b:q4_0\", \"serve\": \"x\", \"pulled\": 5, " FILES("x", "3", SHA) "}";
    assert_int_equal(manifest_read(right, strlen(right), &m, &e), ERR_OK);
    struct buf b;
    buf_init(&b, MANIFEST_MAX_BYTES);
    manifest_write(&m, &b);
    manifest_done(&m);
    assert_int_equal(manifest_read(b.data, b.len, &m, &e), ERR_OK);
    assert_string_equal(m.ref.quant, "Q4_0");
    assert_int_equal(manifest_bytes(&m), 3);
    assert_int_equal(m.pulled_unix_s, 5);
    manifest_done(&m);
    buf_done(&b);
}

// A model of the one file "sub/x" with these bytes.
static void put(struct modelstore *s, const struct modelref *r, const char *bytes, const char *sha)
{
    struct modelstage *st;
    struct manifest_file file = {.path = "sub/x", .size = strlen(bytes)};
    struct manifest m = {.ref = *r, .hub = "h", .commit = "c", .type = "t", .serve = "", .files = &file, .nfiles = 1};
    err e = {0};
    int fd;
    uint64_t size = UINT64_MAX;
    strcpy(file.sha256, sha);
    assert_int_equal(modelstage_open(s, r, NULL, &st, &e), ERR_OK);
    struct modelstage *other;
    assert_int_equal(modelstage_open(s, r, NULL, &other, &e), ERR_BUSY);
    assert_int_equal(modelstage_open_part(st, sha, &fd, &e), ERR_OK);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    assert_false(modelstage_has(st, sha, &size));
    assert_int_equal(modelstage_part_size(st, sha), strlen(bytes));
    assert_int_equal(modelstage_finish_part(st, sha, fd, &e), ERR_OK);
    close(fd);
    assert_true(modelstage_has(st, sha, &size));
    assert_int_equal(size, strlen(bytes));
    const char *keys[] = {sha};
    assert_int_equal(modelstage_publish(st, &m, keys, &e), ERR_OK);
    modelstage_close(st);
}

static void test_store(void **state)
{
    (void)state;
    struct modelstore *s;
    struct manifest m;
    struct modelref r = {.repo = "a/b", .quant = "Q8_0"}, any = {.repo = "a/b"}, k = {.repo = "a/b", .quant = "Q4_K_M"};
    err e = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/deep/store", folder);
    assert_int_equal(modelstore_open(path, false, &s, &e), ERR_NOT_FOUND);
    assert_int_equal(modelstore_open(path, true, &s, &e), ERR_OK);
    assert_int_equal(modelstore_find(s, &any, false, &m, &e), ERR_NOT_FOUND);
    put(s, &r, "ab", "1111111111111111111111111111111111111111111111111111111111111111");
    put(s, &r, "abc", SHA);  // in its place
    assert_int_equal(modelstore_find(s, &any, true, &m, &e), ERR_OK);
    assert_int_equal(modelstore_check(s, &m, -1, true, NULL, NULL, &e), ERR_OK);
    char *at = modelstore_serve_path(s, &m);
    assert_true(file_is_dir(at));
    free(at);
    manifest_done(&m);
    put(s, &k, "abc", SHA);
    assert_int_equal(modelstore_find(s, &any, true, &m, &e), ERR_INVALID);
    assert_int_equal(modelstore_find(s, &any, false, &m, &e), ERR_OK);
    assert_string_equal(m.ref.quant, "Q4_K_M");
    snprintf(path, sizeof path, "%s/deep/store/a--b+Q4_K_M/sub/x", folder);
    assert_int_equal(chmod(path, 0600), 0);
    int fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(modelstore_check(s, &m, -1, false, NULL, NULL, &e), ERR_OK);
    assert_int_equal(modelstore_check(s, &m, 0, true, NULL, NULL, &e), ERR_CORRUPT);
    assert_int_equal(truncate(path, 2), 0);
    assert_int_equal(modelstore_check(s, &m, 0, false, NULL, NULL, &e), ERR_CORRUPT);
    manifest_done(&m);
    struct modelstore_list l;
    snprintf(path, sizeof path, "%s/deep/store/a--b+Q4_K_M/" MANIFEST_FILE, folder);
    static const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    for (int64_t used = 1000; used; used = used == 1000 ? time(NULL) : 0) {
        assert_int_equal(modelstore_get(s, &k, &m, &e), ERR_OK);
        assert_in_range(m.used_unix_s, used, used == 1000 ? used : used + 60);
        modelstore_used(s, &m);
        manifest_done(&m);
    }
    assert_int_equal(modelstore_list(s, &l, &e), ERR_OK);
    assert_int_equal(l.nmodels, 2);
    assert_int_equal(l.npartial, 0);
    modelstore_list_done(&l);
    snprintf(path, sizeof path, "%s/deep/store/.gone-%ld-a--b+Q8_0", folder, (long)getpid());  // of another one of this number
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/x");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(modelstore_remove(s, &r, &e), ERR_OK);
    assert_int_equal(modelstore_remove(s, &r, &e), ERR_NOT_FOUND);
    assert_int_equal(modelstore_remove(s, &k, &e), ERR_OK);
    assert_int_equal(modelstore_list(s, &l, &e), ERR_OK);
    assert_int_equal(l.nmodels, 0);
    modelstore_list_done(&l);
    modelstore_close(s);
    snprintf(path, sizeof path, "%s/deep/store", folder);
    assert_int_equal(rmdir(path), 0);  // no lock, stage or removed model is left
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test_setup_teardown(test_store, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
