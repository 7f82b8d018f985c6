// Settings read again: which of them need a restart, and that what is wrong changes nothing.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "config/config.h"
#include "server/settings.h"

static char path[64];
static int prepared, used;
static char seen_origin[64];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static char *args[] = {"--config", path};

static void load(struct config *c)
{
    err e = {0};
    if (config_load(c, args, 2, &e))
        fail_msg("%s", e.text);
}

static err_code check(const struct config *c, err *e)
{
    return c->threads == 7 ? err_set(e, ERR_INVALID, "seven") : ERR_OK;
}

static void prepare(const struct config *c, struct server *s)
{
    (void)c, (void)s;
    prepared++;
}

static void use(const struct config *c, struct server *s)
{
    (void)s;
    used++;
    snprintf(seen_origin, sizeof seen_origin, "%s", c->cors_origins.len ? c->cors_origins.items[0] : "");
}

static void test_differences(void **state)
{
    (void)state;
    char out[200];
    struct config a, b;
    write_file("");
    load(&a);
    write_file("kv_memory = 1M\nkv = q8\nlog_level = debug\napi_key = x\npin = false\nlisten = 127.0.0.1:1, 127.0.0.1:2\n");
    load(&b);
    assert_string_equal(settings_differences(&a, &a, out, sizeof out), "");
    assert_string_equal(settings_differences(&a, &b, out, sizeof out), "listen, kv, pin, kv_memory");
    config_done(&b);
    write_file("[model m]\npath = /a\n");
    load(&b);
    assert_string_equal(settings_differences(&a, &b, out, sizeof out), "model");
    config_done(&b);
    config_done(&a);
}

static void test_read_again(void **state)
{
    (void)state;
    struct config c;
    err e = {0};
    write_file("cors_origins = https://one\n");
    load(&c);
    struct settings *s = settings_open(&c, args, 2, check, prepare, use);
    struct server_reload r = settings_reload(s);
    for (int i = 0; i < 3; i++) {
        write_file(i == 1 ? "" : "cors_origins = https://two\n");
        assert_int_equal(r.read(r.ud, NULL, &e), ERR_OK);
        r.use(r.ud, NULL);
        assert_string_equal(seen_origin, i == 1 ? "" : "https://two");
    }
    assert_int_equal(prepared, 3);
    static const char *const bad[] = {"nonsense = 1\n", "threads = 7\n", "threads = many\n", "cors_origins\n"};
    for (int i = 0; i < 4; i++) {
        e = (err){0};
        write_file(bad[i]);
        assert_int_equal(r.read(r.ud, NULL, &e), ERR_INVALID);
        assert_true(*e.text);
    }
    unlink(path);
    e = (err){0};
    assert_int_not_equal(r.read(r.ud, NULL, &e), ERR_OK);
    assert_int_equal(prepared, 3);
    assert_int_equal(used, 3);
    write_file("");
    assert_int_equal(r.read(r.ud, NULL, &e), ERR_OK);  // read, never used
    settings_close(s);
    config_done(&c);
    unlink(path);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/oxinferd-settings-%d.conf", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_read_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
