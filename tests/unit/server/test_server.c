// The server as a process: what server_open refuses, and with "serve KEY=VALUE..." a daemon with scripted handlers that
// tests/api/test_http drives over raw sockets.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/admin.h"
#include "server/health.h"
#include "server/metrics.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/upload.h"

// ---- scripted handlers

static atomic_int live, gone_calls, answered, refused_events;

struct job {
    struct request *r;
    struct sse *stream;
    int n, ms, bytes, fail_at;
    atomic_bool stop;
};

static int number(struct request *r, const char *name, int fallback)
{
    const char *v = request_query(r, name);
    return v ? atoi(v) : fallback;
}

static void nap(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static void on_gone(struct request *r)
{
    struct job *j = r->ud;
    atomic_fetch_add(&gone_calls, 1);
    atomic_store(&j->stop, true);
}

static void start(struct request *r, void *(*run)(void *))
{
    struct job *j = mem_new(sizeof *j);
    *j = (struct job){.r = r, .n = number(r, "n", 5), .ms = number(r, "ms", 5), .bytes = number(r, "bytes", 0),
                      .fail_at = number(r, "fail", -1)};
    r->ud = j;
    r->on_gone = on_gone;
    atomic_fetch_add(&live, 1);
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 256 << 10);
    if (pthread_create(&t, &attr, run, j))
        abort();
    pthread_attr_destroy(&attr);
}

static void finish(struct job *j)
{
    free(j);
    atomic_fetch_add(&answered, 1);
    atomic_fetch_sub(&live, 1);
}

static void handle_hello(struct request *r)
{
    reply_json(r, 200, json_pack("{s:s,s:s,s:s,s:s}", "path", r->path, "tail", r->tail, "id", r->id, "key", r->key_id));
}

static void handle_echo(struct request *r)
{
    reply_json(r, 200, json_incref(r->json));
}

static void *run_later(void *arg)
{
    struct job *j = arg;
    for (int t = 0; t < j->ms && !atomic_load(&j->stop); t += 5)
        nap(5);
    reply_text(j->r, 200, "text/plain; charset=utf-8", "later", 5);
    finish(j);
    return NULL;
}

static void handle_later(struct request *r)
{
    start(r, run_later);
}

static void *run_stream(void *arg)
{
    struct job *j = arg;
    char *pad = mem_new((size_t)j->bytes + 1);
    memset(pad, 'x', (size_t)j->bytes);
    struct sse *s = reply_sse(j->r);
    bool failed = false;
    for (int i = 0; i < j->n && !failed; i++) {
        nap(j->ms);
        failed = i == j->fail_at;
        json_t *event;
        if (failed) {
            err e = {0};
            err_set(&e, ERR_INTERNAL, "scripted failure");
            event = reply_error_json(&e);
        } else {
            event = json_pack("{s:i,s:s}", "i", i, "pad", pad);
        }
        if (!sse_send_json(s, event)) {
            atomic_fetch_add(&refused_events, 1);
            break;
        }
    }
    sse_end(s, !failed);
    free(pad);
    finish(j);
    return NULL;
}

static void handle_stream(struct request *r)
{
    start(r, run_stream);
}

// Answers inside the handler, as a cached stream would.
static void handle_quick_stream(struct request *r)
{
    struct sse *s = reply_sse(r);
    sse_send(s, "{}", 2);
    sse_end(s, true);
}

static int count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 3;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * 4;
}

static void handle_counts(struct request *r)
{
    reply_json(r, 200,
               json_pack("{s:i,s:i,s:i,s:i,s:i,s:f,s:i}", "live", atomic_load(&live), "gone", atomic_load(&gone_calls),
                         "answered", atomic_load(&answered), "refused", atomic_load(&refused_events), "fds",
                         count_descriptors(), "cpu", cpu_seconds(), "rss_kb", (int)resident_kb()));
}

static void handle_error(struct request *r)
{
    err e = {0};
    err_set_param(&e, (err_code)number(r, "code", ERR_INTERNAL), "field", "scripted \xff error");
    reply_error(r, &e);
}

// n pieces of known bytes; fail=I breaks off before piece I.
static void *run_bytes(void *arg)
{
    struct job *j = arg;
    char *piece = mem_new((size_t)j->bytes + 1);
    struct stream *s = reply_stream(j->r, "audio/pcm");
    bool ok = true;
    for (int i = 0; i < j->n && ok; i++) {
        nap(j->ms);
        memset(piece, i, (size_t)j->bytes);
        ok = i != j->fail_at && stream_send(s, piece, (size_t)j->bytes);
    }
    if (!ok)
        atomic_fetch_add(&refused_events, 1);
    stream_end(s, ok);
    free(piece);
    finish(j);
    return NULL;
}

static void handle_bytes(struct request *r)
{
    start(r, run_bytes);
}

// What came, and a sum over the bytes of the file that depends on their order.
static void handle_upload(struct request *r)
{
    const struct upload_file *f = NULL;
    json_t *fields = json_array();
    for (int i = 0; i < r->upload->nfields; i++)
        json_array_append_new(fields, json_pack("[s,s]", r->upload->fields[i].name, r->upload->fields[i].value));
    int n = upload_find(r->upload, "file", &f);
    uint32_t sum = 0;
    unsigned char block[4096];
    int64_t got;
    for (int64_t at = 0; f && (got = upload_read(r->upload, f, at, block, sizeof block)) > 0; at += got)
        for (int64_t i = 0; i < got; i++)
            sum = sum * 31 + block[i];
    reply_json(r, 200, json_pack("{s:o,s:i,s:i,s:s,s:I,s:b}", "fields", fields, "files", n, "size", f ? (int)f->size : -1,
                                 "filename", f ? f->filename : "", "sum", (json_int_t)sum, "on_disk", r->upload->fd >= 0));
}

static const struct route routes[] = {
    {"GET", "/bytes", ROUTE_KEY, ROUTE_NO_BODY, handle_bytes},
    {"GET", "/counts", ROUTE_OPEN, ROUTE_NO_BODY, handle_counts},
    {"POST", "/echo", ROUTE_KEY, ROUTE_JSON, handle_echo},
    {"GET", "/error", ROUTE_KEY, ROUTE_NO_BODY, handle_error},
    {"GET", "/health", ROUTE_OPEN, ROUTE_NO_BODY, health_status},
    {"GET", "/hello", ROUTE_KEY, ROUTE_NO_BODY, handle_hello},
    {"GET", "/later", ROUTE_KEY, ROUTE_NO_BODY, handle_later},
    {"POST", "/later", ROUTE_KEY, ROUTE_JSON, handle_later},
    {"GET", "/livez", ROUTE_OPEN, ROUTE_NO_BODY, health_live},
    {"*", "/missing/*", ROUTE_KEY, ROUTE_NOT_BUILT, NULL},
    {"GET", "/models/*", ROUTE_KEY, ROUTE_NO_BODY, handle_hello},
    {"GET", "/open", ROUTE_OPEN, ROUTE_NO_BODY, handle_hello},
    {"GET", "/quick", ROUTE_KEY, ROUTE_NO_BODY, handle_quick_stream},
    {"GET", "/readyz", ROUTE_OPEN, ROUTE_NO_BODY, health_ready},
    {"GET", "/stream", ROUTE_KEY, ROUTE_NO_BODY, handle_stream},
    {"POST", "/stream", ROUTE_KEY, ROUTE_JSON, handle_stream},
    {"POST", "/upload", ROUTE_KEY, ROUTE_UPLOAD, handle_upload},
    {"GET", "/version", ROUTE_OPEN, ROUTE_NO_BODY, health_version},
    {"GET", "/metrics", ROUTE_METRICS, ROUTE_NO_BODY, metrics_get},
    {"GET", "/admin/status", ROUTE_ADMIN, ROUTE_NO_BODY, admin_status},
    {"POST", "/admin/drain", ROUTE_ADMIN, ROUTE_NO_BODY, admin_drain},
    {"POST", "/admin/undrain", ROUTE_ADMIN, ROUTE_NO_BODY, admin_undrain},
    {"POST", "/admin/reload", ROUTE_ADMIN, ROUTE_NO_BODY, admin_reload},
    {NULL, NULL, ROUTE_OPEN, ROUTE_NO_BODY, NULL},
};

// ---- serve

enum { LIST_MAX = 8 };

struct lists {
    const char *listen[LIST_MAX], *keys[LIST_MAX], *origins[LIST_MAX], *hosts[LIST_MAX];
};

static bool take_list(const char *arg, const char *name, const char **list, int *n)
{
    size_t len = strlen(name);
    if (strncmp(arg, name, len) || arg[len] != '=' || *n == LIST_MAX)
        return false;
    list[(*n)++] = arg + len + 1;
    return true;
}

static bool take_int(const char *arg, const char *name, int *value)
{
    size_t len = strlen(name);
    if (strncmp(arg, name, len) || arg[len] != '=')
        return false;
    *value = atoi(arg + len + 1);
    return true;
}

static void take_argument(const char *arg, struct server_config *c, struct lists *l)
{
    int value = 0;
    if (take_list(arg, "listen", l->listen, &c->nlisten) || take_list(arg, "key", l->keys, &c->nkeys) ||
        take_list(arg, "origin", l->origins, &c->ncors) || take_list(arg, "host", l->hosts, &c->nhosts) ||
        take_int(arg, "header", &c->header_timeout_s) || take_int(arg, "idle", &c->idle_timeout_s) ||
        take_int(arg, "drain", &c->drain_timeout_s) || take_int(arg, "keepalive", &c->keepalive_s) ||
        take_int(arg, "grace", &c->drain_grace_s) ||
        take_int(arg, "connections", &c->max_connections) || take_int(arg, "each", &c->max_connections_per_address))
        return;
    if (take_int(arg, "body", &value))
        c->max_body = (size_t)value;
    else if (take_int(arg, "upload", &value))
        c->max_upload = (size_t)value;
    else if (take_int(arg, "public", &value))
        c->allow_public = value;
    else if (take_int(arg, "live", &value))
        c->health_is_live = value;
    else if (!strncmp(arg, "port_file=", 10))
        c->port_file = arg + 10;
    else if (!strncmp(arg, "admin=", 6))
        c->admin_listen = arg + 6;
    else if (!strncmp(arg, "admin_key=", 10))
        c->admin_key = arg + 10;
    else
        fprintf(stderr, "what is %s?\n", arg);
}

static int serve(int argc, char **argv)
{
    struct lists l = {0};
    struct server_config c = {.routes = routes, .listen = l.listen, .api_keys = l.keys, .cors_origins = l.origins,
                              .hosts = l.hosts, .access_log = true};
    for (int i = 2; i < argc; i++)
        take_argument(argv[i], &c, &l);
    struct server *s;
    err e = {0};
    if (server_open(&c, NULL, &s, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("port %d\n", server_port(s));
    fflush(stdout);
    int status = server_run(s);
    server_close(s);
    for (int i = 0; i < 1000 && atomic_load(&live); i++)
        nap(5);
    printf("gone %d answered %d live %d\n", atomic_load(&gone_calls), atomic_load(&answered), atomic_load(&live));
    return atomic_load(&live) ? 3 : status;
}

// ---- tests

static err_code try_open(const char *address, const char *key, bool allow_public, err *e)
{
    struct server_config c = {.routes = routes, .listen = &address, .nlisten = 1, .api_keys = &key,
                              .nkeys = key != NULL, .allow_public = allow_public};
    struct server *s = NULL;
    *e = (err){0};
    err_code code = server_open(&c, NULL, &s, e);
    if (code)
        assert_null(s);
    server_close(s);
    return code;
}

static void test_open_and_close(void **state)
{
    (void)state;
    err e;
    assert_int_equal(try_open("127.0.0.1:0", NULL, false, &e), ERR_OK);
    char text[64];
    snprintf(text, sizeof text, "unix:/tmp/oxinferd-test-%d.sock", (int)getpid());
    assert_int_equal(try_open(text, NULL, false, &e), ERR_OK);
    assert_int_not_equal(access(text + 5, F_OK), 0);
}

static void test_public_needs_key(void **state)
{
    (void)state;
    err e;
    assert_int_equal(try_open("0.0.0.0:0", NULL, false, &e), ERR_INVALID);
    assert_string_equal(e.param, "listen");
    assert_non_null(strstr(e.text, "api_key"));
    assert_int_equal(try_open(":0", NULL, false, &e), ERR_INVALID);
    assert_int_equal(try_open("0.0.0.0:0", "secret", false, &e), ERR_OK);
    assert_int_equal(try_open("0.0.0.0:0", NULL, true, &e), ERR_OK);
}

static void test_bad_settings(void **state)
{
    (void)state;
    err e;
    assert_int_equal(try_open("127.0.0.1", NULL, false, &e), ERR_INVALID);
    assert_int_equal(try_open("127.0.0.1:99999", NULL, false, &e), ERR_INVALID);
    assert_int_equal(try_open("::1:80", NULL, false, &e), ERR_INVALID);
    assert_int_equal(try_open("unix:", NULL, false, &e), ERR_INVALID);
    assert_int_equal(try_open("127.0.0.1:0", "", false, &e), ERR_INVALID);
    assert_string_equal(e.param, "api_key");
}

static void test_port_in_use(void **state)
{
    (void)state;
    const char *address = "127.0.0.1:0";
    struct server_config c = {.routes = routes, .listen = &address, .nlisten = 1};
    struct server *s;
    err e = {0};
    assert_int_equal(server_open(&c, NULL, &s, &e), ERR_OK);
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", server_port(s));
    assert_int_equal(try_open(taken, NULL, false, &e), ERR_IO);
    assert_non_null(strstr(e.text, "in use"));
    server_close(s);
    assert_int_equal(try_open(taken, NULL, false, &e), ERR_OK);
}

static void test_port_file(void **state)
{
    (void)state;
    const char *address = "127.0.0.1:0";
    char path[64];
    snprintf(path, sizeof path, "/tmp/oxinferd-test-%d.port", (int)getpid());
    struct server_config c = {.routes = routes, .listen = &address, .nlisten = 1, .port_file = path};
    struct server *s;
    err e = {0};
    assert_int_equal(server_open(&c, NULL, &s, &e), ERR_OK);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int port = 0;
    assert_int_equal(fscanf(f, "%d", &port), 1);
    fclose(f);
    unlink(path);
    assert_int_equal(port, server_port(s));
    server_close(s);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "serve"))
        return serve(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_and_close), cmocka_unit_test(test_public_needs_key),
        cmocka_unit_test(test_bad_settings),   cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_port_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
