// Settings: each source, their order, and every kind of wrong value.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "config/config.h"

static char path[] = "/tmp/oxinferd-config-XXXXXX";

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static err_code load(struct config *c, err *e, int n, ...)
{
    char *args[16];
    va_list ap;
    va_start(ap, n);
    for (int i = 0; i < n; i++)
        args[i] = va_arg(ap, char *);
    va_end(ap);
    return config_load(c, args, n, e);
}

static void defaults(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    assert_int_equal(load(&c, &e, 0), ERR_OK);
    assert_int_equal(c.listen.len, 1);
    assert_string_equal(c.listen.items[0], "127.0.0.1:8080");
    assert_int_equal(c.max_body, 32 << 20);
    assert_string_equal(c.activations, "int8");
    assert_int_equal(c.nmodels, 0);
    assert_true(c.pin);
    config_done(&c);
}

static void sizes_and_shares(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("memory = 4GB\nkv_memory = 50%\nmax_body = 2 MiB\n");
    setenv("OXINFERD_MAX_UPLOAD", "12MB", 1);
    assert_int_equal(load(&c, &e, 3, "--config", path, "--max-waiting-bytes=1.5g"), ERR_OK);
    assert_int_equal(c.memory, (int64_t)4 << 30);
    assert_int_equal(c.kv_memory, -50);
    assert_int_equal(c.max_body, 2 << 20);
    assert_int_equal(c.max_upload, 12 << 20);
    assert_int_equal(c.max_waiting_bytes, 3 << 29);
    config_done(&c);
    assert_int_equal(load(&c, &e, 4, "--config", path, "--memory", "100%"), ERR_OK);
    assert_int_equal(c.memory, -100);
    config_done(&c);
    unsetenv("OXINFERD_MAX_UPLOAD");
}

static void set_twice(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("threads = 1\napi_key = a\napi_key = b\n\nthreads = 2\n[model x]\npath = /x\nkv = q8\n[model y]\npath = /y\nkv = q8\n"
               "[model x]\nkv = f32\n");
    assert_int_equal(load(&c, &e, 2, "--config", path), ERR_OK);
    assert_int_equal(c.threads, 2);
    assert_int_equal(c.api_key.len, 2);
    assert_int_equal(c.strays.len, 2);
    assert_non_null(strstr(c.strays.items[0], "line 5 sets threads again, which line 1 has set"));
    assert_non_null(strstr(c.strays.items[1], "line 13 sets kv again, which line 8 has set"));
    config_done(&c);
}

// Words that could be models, where they may be.
static void words(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("model = /m/old.gguf\n");
    char *args[] = {"/m/a.gguf", "--threads", "1", "org/name:Q4_0", "x=/m/b", "--config", path, "c.gguf", "--model", "/m/d"};
    assert_int_equal(config_load_models(&c, args, 10, &e), ERR_OK);
    assert_int_equal(c.nmodels, 5);
    const char *const want[] = {"a", "org/name:Q4_0", "x", "c", "d"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(c.models[i].name, want[i]);
    assert_int_equal(c.threads, 1);
    config_done(&c);
    char *bad[] = {"word"};
    assert_int_equal(config_load_models(&c, bad, 1, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "with --model or by its path or OWNER/NAME"));
}

static void order_of_sources(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("threads = 2\nmax_waiting = 5\nkv = q8\nlisten = 1.1.1.1:1\nlisten = 2.2.2.2:2, [::1]:3\n");
    setenv("OXINFERD_THREADS", "3", 1);
    setenv("OXINFERD_MAX_WAITING", "6", 1);
    assert_int_equal(load(&c, &e, 4, "--config", path, "--threads", "4"), ERR_OK);
    assert_int_equal(c.threads, 4);
    assert_int_equal(c.max_waiting, 6);
    assert_string_equal(c.kv, "q8");
    assert_int_equal(c.listen.len, 3);
    assert_string_equal(c.listen.items[2], "[::1]:3");
    config_done(&c);
    assert_int_equal(load(&c, &e, 5, "--config", path, "--listen=unix:/x", "--listen", "unix:/y"), ERR_OK);
    assert_int_equal(c.listen.len, 2);  // the command line replaces the file's list
    config_done(&c);
    unsetenv("OXINFERD_THREADS");
    unsetenv("OXINFERD_MAX_WAITING");
}

// A misspelt one is told of, what a cluster sets for a service of that name is not.
static void stray_variables(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    static const char *const quiet[][2] = {{"OXINFERD_SERVICE_HOST", "10.0.0.1"}, {"OXINFERD_PORT", "tcp://10.0.0.1:80"},
        {"OXINFERD_PORT_80_TCP_ADDR", "10.0.0.1"}, {"OXINFERD_KV", "q8"}, {"OXINFERD_CONFIG", ""}};
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        setenv(quiet[i][0], quiet[i][1], 1);
    assert_int_equal(load(&c, &e, 0), ERR_OK);
    int before = c.strays.len;
    config_done(&c);
    setenv("OXINFERD_THREDS", "3", 1);
    assert_int_equal(load(&c, &e, 0), ERR_OK);
    assert_int_equal(c.strays.len, before + 1);
    assert_non_null(strstr(c.strays.items[before], "OXINFERD_THREDS in the environment is no setting; the nearest is threads ("));
    config_done(&c);
    setenv("OXINFERD_PORT", "8000", 1);
    assert_int_equal(load(&c, &e, 0), ERR_OK);
    assert_int_equal(c.strays.len, before + 2);
    config_done(&c);
    unsetenv("OXINFERD_THREDS");
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        unsetenv(quiet[i][0]);
}

static void models(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("context = 4096\nmodel = a=/m/a.gguf\n[model b]\npath = /m/b\nkv = q8\ncontext = 512\n");
    assert_int_equal(load(&c, &e, 4, "--config", path, "--model", "c=/m/c"), ERR_OK);
    assert_int_equal(c.nmodels, 2);  // b from its section, c replaces the list that held a
    assert_string_equal(c.models[0].name, "b");
    assert_int_equal(c.models[0].context, 512);
    assert_string_equal(c.models[0].kv, "q8");
    assert_string_equal(c.models[1].path, "/m/c");
    assert_int_equal(c.models[1].context, 4096);
    config_done(&c);
}

// A path alone is a model, too; what begins with / or . is one, whatever is in it. Names may have slashes.
static void models_by_path(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"/m/Qwen3-0.6B-Q4_0.gguf", "Qwen3-0.6B-Q4_0", "/m/Qwen3-0.6B-Q4_0.gguf"}, {"justaname", "justaname", "justaname"},
        {"models/Tiny.GGUF", "Tiny", "models/Tiny.GGUF"}, {"/m/MiniLM-L6//", "MiniLM-L6", "/m/MiniLM-L6//"},
        {"/m/a=b.gguf", "a=b", "/m/a=b.gguf"}, {"./a=b/c.gguf", "c", "./a=b/c.gguf"}, {"a=b.gguf", "a", "b.gguf"},
        {"org/name=/m/x.gguf", "org/name", "/m/x.gguf"}, {"/m/big-00001-of-00003.gguf", "big", "/m/big-00001-of-00003.gguf"},
        {"/m/x.safetensors", "x.safetensors", "/m/x.safetensors"}, {"/m/.gguf", ".gguf", "/m/.gguf"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        struct config c;
        assert_int_equal(load(&c, &e, 2, "--model", cases[i][0]), ERR_OK);
        assert_string_equal(c.models[0].name, cases[i][1]);
        assert_string_equal(c.models[0].path, cases[i][2]);
        config_done(&c);
    }
    err e = {0};
    struct config c;
    char here[4096];
    write_file("model = /m/a.gguf\n[model a]\nkv = q8\n");  // its section is found by that name
    assert_int_equal(load(&c, &e, 2, "--config", path), ERR_OK);
    assert_int_equal(c.nmodels, 1);
    assert_string_equal(c.models[0].kv, "q8");
    config_done(&c);
    assert_int_equal(load(&c, &e, 2, "--model", "."), ERR_OK);  // a folder has a name also here
    assert_non_null(getcwd(here, sizeof here));
    assert_string_equal(c.models[0].name, strrchr(here, '/') + 1);
    config_done(&c);
    assert_int_equal(load(&c, &e, 4, "--model", "/m/a.gguf", "--model", "/n/a.gguf"), ERR_INVALID);
    assert_non_null(strstr(e.text, "model 'a' has two paths, '/m/a.gguf' and '/n/a.gguf'"));
}

// A model of a hub is called as it was written, and by its last part where nobody else is.
static void models_of_a_hub(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"org/foo", "org/foo", "foo"}, {"Org/Foo-GGUF:Q8_0", "Org/Foo-GGUF:Q8_0", "Foo-GGUF:Q8_0"},
        {"org/foo/fp16@v2", "org/foo/fp16@v2", "fp16@v2"}, {"org/foo/a.gguf", "org/foo/a.gguf", "a"},
        {"foo=org/foo", "foo", ""}, {"tests/fixtures", "fixtures", ""}, {"./org/foo", "foo", ""}, {"org/a.gguf", "a", ""}};
    err e = {0};
    struct config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(load(&c, &e, 2, "--model", cases[i][0]), ERR_OK);
        assert_string_equal(c.models[0].name, cases[i][1]);
        assert_string_equal(c.models[0].short_name, cases[i][2]);
        assert_string_equal(c.models[0].path, strchr(cases[i][0], '=') ? "org/foo" : cases[i][0]);
        assert_true(config_is_model(&c.models[0], cases[i][1]) && !config_is_model(&c.models[0], ""));
        assert_int_equal(config_is_model(&c.models[0], cases[i][2]), cases[i][2][0] != 0);
        config_done(&c);
    }
    static const char *const taken[][3] = {{"--model", "them/foo", "them/foo"}, {"--model", "foo=/m/a", "foo"}, {"--alias", "foo=x", "x"},
                                           {"--model", "/m/foo.gguf", "foo"}};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        char list[64];
        bool alias = !strcmp(taken[i][0], "--alias");
        snprintf(list, sizeof list, "org/foo,%s", alias ? "x=/m/x" : taken[i][1]);
        assert_int_equal(load(&c, &e, alias ? 4 : 2, "--model", list, "--alias", taken[i][1]), ERR_OK);
        assert_int_equal(c.nmodels, 2);
        assert_string_equal(c.models[0].name, "org/foo");
        assert_string_equal(c.models[1].name, taken[i][2]);
        assert_true(!*c.models[0].short_name && !*c.models[1].short_name);
        config_done(&c);
    }
    static const char *const sections[] = {"foo", "org/foo"};  // of its settings, and a list's
    for (int i = 0; i < 2; i++) {
        char text[128];
        snprintf(text, sizeof text, "model = org/foo\nvocoder = foo=/m/v, /m/w\n[model %s]\nkv = q8\n", sections[i]);
        write_file(text);
        assert_int_equal(load(&c, &e, 2, "--config", path), ERR_OK);
        assert_int_equal(c.nmodels, 1);
        assert_string_equal(c.models[0].name, "org/foo");
        assert_string_equal(c.models[0].short_name, "foo");
        assert_string_equal(c.models[0].kv, "q8");
        assert_string_equal(c.models[0].vocoder, "/m/v");
        config_done(&c);
    }
    write_file("model = org/foo\n[model foo]\npath = /m/foo\n");  // two models
    assert_int_equal(load(&c, &e, 2, "--config", path), ERR_OK);
    assert_int_equal(c.nmodels, 2);
    assert_string_equal(c.models[0].name, "foo");
    assert_string_equal(c.models[1].short_name, "");
    config_done(&c);
}

// decision and vocoder: a value for all models, or for the one it names; a section wins.
static void values_by_model(void **state)
{
    (void)state;
    err e = {0};
    struct config c;
    write_file("decision = labels, a=/m/jev=9b\nvocoder = b=/m/snac\n[model b]\npath = /m/b\n[model c]\npath = /m/c\ndecision = /m/d\n");
    assert_int_equal(load(&c, &e, 4, "--config", path, "--model", "a=/m/a"), ERR_OK);
    assert_int_equal(c.nmodels, 3);
    for (int i = 0; i < 3; i++) {
        const struct config_model *m = &c.models[i];
        const char *want = m->name[0] == 'a' ? "/m/jev=9b" : m->name[0] == 'b' ? "labels" : "/m/d";
        assert_string_equal(m->decision, want);
        assert_string_equal(m->vocoder, m->name[0] == 'b' ? "/m/snac" : "");
    }
    config_done(&c);
    assert_int_equal(load(&c, &e, 4, "--model", "a=/m/a", "--decision", "/m/x=y"), ERR_OK);  // no model has that name
    assert_string_equal(c.models[0].decision, "/m/x=y");
    config_done(&c);
}

// DEP-06: an impossible setting is refused by name.
static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *file, *arg, *value, *says;
    } cases[] = {
        {NULL, "--threads", "-1", "0 to 1024"},
        {NULL, "--threads", "two", "not a whole number"},
        {NULL, "--context", "1000000000000", "out of range"},
        {NULL, "--max-body", "1X", "not a size"},
        {NULL, "--max-body", "99999999999G", "not a size"},
        {NULL, "--max-body", "1TB", "expected 1.00 KiB (1024 bytes) to 1.00 GiB (1073741824 bytes)"},
        {NULL, "--max-body", "50%", "not a size"},
        {NULL, "--memory", "0%", "or 1% to 100%"},
        {NULL, "--memory", "101%", "or 1% to 100%"},
        {NULL, "--memory", "90%%", "or 1% to 100%"},
        {NULL, "--memory", "-90", "out of range"},
        {NULL, "--kv", "f8", "f16|f32|q8"},
        {NULL, "--nonsense", "1", "unknown option"},
        {NULL, "--port", "1", "unknown option '--port'; the nearest is --listen (where to listen: ADDR:PORT"},
        {NULL, "--max-model-len", "1", "the nearest is --context ("},
        {NULL, "--max_runing", "1", "the nearest is --max-running ("},
        {NULL, "-m", "/x.gguf", "'-m' is not an option; the nearest is --model ("},
        {NULL, "-z", "1", "'-z' is not an option; see"},
        {NULL, "--gpu-memory-utilization", "0.9", "the nearest is --memory ("},
        {NULL, "-ngl", "99", "'-ngl' is not an option; leave it out: it runs on CPUs; see"},
        {NULL, "--tool-call-parser", "hermes", "unknown option '--tool-call-parser'; leave it out: how a model writes calls"},
        {NULL, "/x.gguf", "1", "'/x.gguf' is not an option: a model is given with --model, a configuration file with --config"},
        {NULL, "--pin=maybe", NULL, "neither true nor false"},
        {NULL, "--threads", NULL, "needs a value"},
        {NULL, "--model", "=/m/a", "is neither NAME=PATH, such as"},
        {NULL, "--model", "a=", "is neither NAME=PATH, such as"},
        {NULL, "--model", "///", "the path of a file or folder with a name"},
        {NULL, "--model", "/m/a b.gguf", "space"},
        {NULL, "--model", "a b=/x", "space"},
        {NULL, "--config", NULL, "needs a file"},
        {NULL, "word", NULL, "not an option"},
        {"colour = red\n", NULL, NULL, "line 1: unknown setting 'colour'"},
        {"# words\n\nkv = q8\n; more\nthreads = 9999\nkv = f16\n", NULL, NULL, ": line 5: threads: 9999 is out of range"},
        {"kv = q8\n[model x]\npath = /x\nkv = f8\n", NULL, NULL, ": line 4: model x: kv: 'f8' is not one of"},
        {"kv = q8\n\n[servers]\na = 1\n", NULL, NULL, ": line 4: unknown section"},
        {"kv = q8\nthreads 4\n", NULL, NULL, "line 2 is neither"},
        {"lisen = 1\n", NULL, NULL, "unknown setting 'lisen'; the nearest is listen (where"},
        {"threads = 9999\n", NULL, NULL, "out of range"},
        {"[model x]\nkv = q8\n", NULL, NULL, "no path"},
        {"[model x]\nport = 1\n", NULL, NULL, "unknown setting 'port'"},
        {"[model x]\nlisten = 1\n", NULL, NULL, "'listen' is no setting of one model; it belongs above the first section"},
        {"[model x]\nlazy = true\n", NULL, NULL, "above the first section, as a list of models' names"},
        {"[server]\na = 1\n", NULL, NULL, "unknown section"},
        {"threads 4\n", NULL, NULL, "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        struct config c;
        err_code rc;
        if (cases[i].file) {
            write_file(cases[i].file);
            rc = load(&c, &e, 2, "--config", path);
        } else {
            rc = load(&c, &e, cases[i].value ? 2 : 1, cases[i].arg, cases[i].value);
        }
        assert_int_equal(rc, ERR_INVALID);
        if (!strstr(e.text, cases[i].says))
            fail_msg("case %zu says: %s", i, e.text);
    }
    err e = {0};
    struct config c;
    assert_int_equal(load(&c, &e, 2, "--config", "/nonexistent/x"), ERR_NOT_FOUND);
    char line[400];
    memset(line, 'x', sizeof line);
    memcpy(line, "hosts = ", 8);
    line[398] = '\n';
    line[399] = 0;
    write_file(line);
    assert_int_equal(load(&c, &e, 2, "--config", path), ERR_INVALID);
    assert_non_null(strstr(e.text, "line 1 has 398 bytes"));
}

// The shipped file is what the table says, and reading it changes nothing.
static void shipped_file(void **state)
{
    (void)state;
    char *text, *shipped;
    size_t len, shipped_len;
    err e = {0};
    FILE *f = open_memstream(&text, &len);
    config_sample(f);
    fclose(f);
    assert_int_equal(file_read("config/oxinferd.conf", 1 << 20, &shipped, &shipped_len, &e), ERR_OK);
    assert_string_equal(shipped, text);
    free(text);
    free(shipped);
    struct config c;
    assert_int_equal(load(&c, &e, 2, "--config", "config/oxinferd.conf"), ERR_OK);
    config_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),  cmocka_unit_test(order_of_sources), cmocka_unit_test(sizes_and_shares), cmocka_unit_test(set_twice), cmocka_unit_test(words),
        cmocka_unit_test(stray_variables), cmocka_unit_test(models),
        cmocka_unit_test(models_by_path), cmocka_unit_test(models_of_a_hub), cmocka_unit_test(values_by_model),
        cmocka_unit_test(refusals),         cmocka_unit_test(shipped_file),
    };
    int fd = mkstemp(path);
    close(fd);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return rc;
}
