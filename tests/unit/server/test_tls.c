// Certificates: what is refused at the start and why; and a server on TLS whose certificate is replaced under open
// connections, and that notices clients that leave.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/clock.h"
#include "base/file.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/tls.h"

#define FILES "tests/fixtures/door/"

// ---- files

static void good_and_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *key;
        err_code code;
        const char *param, *says;
    } cases[] = {
        {FILES "one.cert.pem", FILES "one.key.pem", ERR_OK, "", ""},
        {FILES "expired.cert.pem", FILES "one.key.pem", ERR_OK, "", ""},
        {NULL, FILES "one.key.pem", ERR_INVALID, "tls_cert", "belong together"},
        {FILES "one.cert.pem", NULL, ERR_INVALID, "tls_key", "belong together"},
        {FILES "none.pem", FILES "one.key.pem", ERR_NOT_FOUND, "tls_cert", "none.pem"},
        {FILES "one.cert.pem", FILES "none.pem", ERR_NOT_FOUND, "tls_key", "none.pem"},
        {FILES "one.cert.pem", FILES "two.key.pem", ERR_INVALID, "tls_key", "does not belong"},
        {FILES "one.key.pem", FILES "one.key.pem", ERR_INVALID, "tls_cert", "not a PEM certificate"},
        {FILES "one.cert.pem", FILES "one.cert.pem", ERR_INVALID, "tls_key", "not a PEM private key"},
        {"README.md", FILES "one.key.pem", ERR_INVALID, "tls_cert", "not a PEM certificate"},
        {FILES "one.cert.pem", FILES "locked.key.pem", ERR_INVALID, "tls_key", "encrypted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        struct tls *t = NULL;
        err_code rc = tls_open(cases[i].cert, cases[i].key, &t, &e);
        if (rc != cases[i].code || strcmp(e.param, cases[i].param) || !strstr(e.text, cases[i].says))
            fail_msg("case %zu: %d, '%s': %s", i, rc, e.param, e.text);
        tls_close(t);
    }
    struct tls *none = (struct tls *)&cases;
    assert_int_equal(tls_open(NULL, NULL, &none, NULL), ERR_OK);
    assert_null(none);
}

static void warnings(void **state)
{
    (void)state;
    struct tls *t;
    char text[300];
    assert_int_equal(tls_open(FILES "one.cert.pem", FILES "one.key.pem", &t, NULL), ERR_OK);
    tls_warning(t, text, sizeof text);
    assert_string_equal(text, "");
    tls_close(t);
    assert_int_equal(tls_open(FILES "expired.cert.pem", FILES "one.key.pem", &t, NULL), ERR_OK);
    tls_warning(t, text, sizeof text);
    assert_non_null(strstr(text, "expired on 2021-01-01"));
    tls_close(t);
}

// ---- a server

static char cert_path[] = "/tmp/oxinferd-cert-XXXXXX", key_path[] = "/tmp/oxinferd-key-XXXXXX";
static atomic_int gone, kept;

static void get(struct request *r)
{
    reply_text(r, 200, "text/plain", r->secure ? "secure" : "plain", 6 - !r->secure);
}

static void on_gone(struct request *r)
{
    atomic_fetch_add(&gone, 1);
    reply_text(r, 200, "text/plain", "late", 4);
}

static void keep(struct request *r)
{
    r->on_gone = on_gone;
    atomic_fetch_add(&kept, 1);
}

static struct sse *stream;

static void stream_gone(struct request *r)
{
    (void)r;
    atomic_fetch_add(&gone, 1);
    sse_end(stream, false);
}

static void events(struct request *r)
{
    r->on_gone = stream_gone;
    stream = reply_sse(r);
    sse_send(stream, "{}", 2);
    atomic_fetch_add(&kept, 1);
}

static const struct route routes[] = {
    {"GET", "/", ROUTE_OPEN, ROUTE_NO_BODY, get},
    {"GET", "/keep", ROUTE_OPEN, ROUTE_NO_BODY, keep},
    {"GET", "/events", ROUTE_OPEN, ROUTE_NO_BODY, events},
    {0},
};

static void copy(const char *from, const char *to)
{
    char *text;
    size_t len;
    err e = {0};
    assert_int_equal(file_read(from, 1 << 20, &text, &len, &e), ERR_OK);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    free(text);
}

static void install(const char *name)
{
    char from[100];
    snprintf(from, sizeof from, FILES "%s.cert.pem", name);
    copy(from, cert_path);
    snprintf(from, sizeof from, FILES "%s.key.pem", name);
    copy(from, key_path);
}

static void *run(void *server)
{
    server_run(server);
    return NULL;
}

// ---- a client

struct client {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t trust;
    char name[64];  // of the server's certificate
};

static int dial(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 30};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static int shake(struct client *c, int port, const char *priorities)
{
    int rc;
    *c = (struct client){.fd = dial(port)};
    gnutls_certificate_allocate_credentials(&c->trust);
    gnutls_init(&c->session, GNUTLS_CLIENT);
    gnutls_priority_set_direct(c->session, priorities, NULL);
    gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, c->trust);
    gnutls_transport_set_int(c->session, c->fd);
    do
        rc = gnutls_handshake(c->session);
    while (rc < 0 && !gnutls_error_is_fatal(rc));
    return rc;
}

static void open_client(struct client *c, int port)
{
    assert_int_equal(shake(c, port, "NORMAL"), 0);
    unsigned n;
    size_t size = sizeof c->name;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(c->session, &n);
    gnutls_x509_crt_t crt;
    gnutls_x509_crt_init(&crt);
    gnutls_x509_crt_import(crt, chain, GNUTLS_X509_FMT_DER);
    gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, c->name, &size);
    gnutls_x509_crt_deinit(crt);
}

static void close_client(struct client *c)
{
    close(c->fd);
    gnutls_deinit(c->session);
    gnutls_certificate_free_credentials(c->trust);
}

static void ask(struct client *c, const char *path)
{
    char text[200];
    int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    assert_int_equal(gnutls_record_send(c->session, text, (size_t)n), n);
}

static void expect(struct client *c, const char *what)
{
    char text[4096];
    size_t n = 0;
    while (n < sizeof text - 1) {
        ssize_t got = gnutls_record_recv(c->session, text + n, sizeof text - 1 - n);
        if (got <= 0)
            fail_msg("%s did not come: %s", what, gnutls_strerror((int)got));
        n += (size_t)got;
        text[n] = 0;
        if (strstr(text, what))
            return;
    }
    fail_msg("%s is not in %s", what, text);
}

static void until(atomic_int *counter, int value)
{
    for (int i = 0; i < 6000 && atomic_load(counter) < value; i++)
        usleep(5000);
    assert_int_equal(atomic_load(counter), value);
}

static void replaced(struct server *s, int port)
{
    struct client a, b, c;
    err e = {0};
    open_client(&a, port);
    assert_string_equal(a.name, "one.example");
    ask(&a, "/");
    expect(&a, "secure");
    int waiting = dial(port);  // its handshake is still to come
    install("two");
    assert_int_equal(server_reread(s, &e), ERR_OK);
    open_client(&b, port);
    assert_string_equal(b.name, "two.example");
    ask(&b, "/");
    expect(&b, "secure");
    ask(&a, "/");  // an open connection goes on
    expect(&a, "secure");
    copy(FILES "one.cert.pem", cert_path);  // the key is the other's
    assert_int_equal(server_reread(s, &e), ERR_INVALID);
    open_client(&c, port);
    assert_string_equal(c.name, "two.example");
    close(waiting);
    close_client(&a);
    close_client(&b);
    close_client(&c);
}

static void leaving(int port)
{
    static const char *const paths[] = {"/keep", "/events"};
    for (int i = 0; i < 4; i++) {  // each with FIN and RST
        struct client c;
        int before = atomic_load(&gone);
        open_client(&c, port);
        ask(&c, paths[i / 2]);
        if (i / 2)
            expect(&c, "data: {}");
        until(&kept, i + 1);
        struct linger now = {.l_onoff = 1};
        if (i % 2)
            setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close_client(&c);
        until(&gone, before + 1);
    }
}

static void old_versions(int port)
{
    struct client c;
    assert_true(shake(&c, port, "NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT") < 0);
    close_client(&c);
    assert_int_equal(shake(&c, port, "NORMAL:-VERS-ALL:+VERS-TLS1.2"), 0);
    close_client(&c);
}

// A request head that does not end gets its 408 through the session; a handshake that does not end is closed; clear text
// is no request.
static void slow_and_clear(int port)
{
    struct client c;
    char byte;
    open_client(&c, port);
    gnutls_record_send(c.session, "GET / HTTP/1.1\r\n", 16);
    int silent = dial(port), clear = dial(port);
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_true(send(clear, request, strlen(request), MSG_NOSIGNAL) > 0);
    expect(&c, "request_timeout");
    assert_true(recv(silent, &byte, 1, 0) <= 0);
    char answer[64] = "";
    ssize_t n = recv(clear, answer, sizeof answer - 1, 0);
    assert_true(n <= 0 || !strstr(answer, "200"));
    close(silent);
    close(clear);
    close_client(&c);
}

static void serving(void **state)
{
    (void)state;
    err e = {0};
    const char *address = "127.0.0.1:0";
    struct server *s;
    pthread_t thread;
    install("one");
    struct server_config config = {.routes = routes, .listen = &address, .nlisten = 1, .tls_cert = cert_path,
                                   .tls_key = key_path, .header_timeout_s = 4};
    assert_int_equal(server_open(&config, NULL, &s, &e), ERR_OK);
    char url[100];
    assert_true(server_address(s, 0, url, sizeof url));
    assert_int_equal(strncmp(url, "https://127.0.0.1:", 18), 0);
    assert_int_equal(pthread_create(&thread, NULL, run, s), 0);
    int port = server_port(s);
    replaced(s, port);
    leaving(port);
    old_versions(port);
    slow_and_clear(port);
    kill(getpid(), SIGTERM);
    pthread_join(thread, NULL);
    server_close(s);
}

int main(void)
{
    int cert = mkstemp(cert_path), key = mkstemp(key_path);
    if (cert < 0 || key < 0)
        return 1;
    close(cert);
    close(key);
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_and_bad_files), cmocka_unit_test(warnings), cmocka_unit_test(serving)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(cert_path);
    unlink(key_path);
    return failed;
}
