// Listening sockets. They listen from the moment the server is opened, so a client that comes early waits in the
// backlog.
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/state.h"

enum { BACKLOG = 511, FIRST_INHERITED = 3 };

// Port, and whether it is a loopback address.
static void describe_address(const struct sockaddr *a, struct listener *l)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
        l->port = ntohs(v4->sin_port);
        l->loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
        l->port = ntohs(v6->sin6_port);
        l->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    }
}

// What the kernel bound.
static void describe(struct listener *l)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    if (!getsockname(l->fd, (struct sockaddr *)&a, &n))
        describe_address((const struct sockaddr *)&a, l);
}

static err_code bind_failed(const char *text, int error, err *e)
{
    if (error == EADDRINUSE)
        return err_set_param(e, ERR_IO, "listen", "%s: the address is already in use", text);
    return err_set_param(e, ERR_IO, "listen", "%s: %s", text, strerror(error));
}

// A socket file is in the way: removed when nobody listens on it any more.
static bool remove_stale(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused && !unlink(a->sun_path);
}

static err_code check_path(const char *text, err *e)
{
    size_t n = strlen(text + 5), most = sizeof ((struct sockaddr_un *)0)->sun_path - 1;
    if (n < 1 || n > most)
        return err_set_param(e, ERR_INVALID, "listen", "%s: a socket path has 1 to %zu characters", text, most);
    return ERR_OK;
}

static err_code open_unix(const char *text, const char *path, struct listener *l, err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (check_path(text, e))
        return e->code;
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return bind_failed(text, errno, e);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) &&
        (errno != EADDRINUSE || !remove_stale(&a) || bind(fd, (struct sockaddr *)&a, sizeof a))) {
        int error = errno;
        close(fd);
        return bind_failed(text, error, e);
    }
    if (listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        unlink(path);
        return bind_failed(text, error, e);
    }
    l->fd = fd;
    l->unix_path = mem_strdup(path);
    return ERR_OK;
}

// "HOST:PORT" -> host (without brackets) and port. The last colon splits.
static bool split(const char *text, char *host, size_t cap, char *port, size_t port_cap)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) >= port_cap ||
        atol(colon + 1) > 65535)
        return false;
    size_t n = (size_t)(colon - text);
    if (n >= 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return false;
    }
    if (n >= cap)
        return false;
    memcpy(host, text, n);
    host[n] = 0;
    strcpy(port, colon + 1);
    return true;
}

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len;
};

// Numbers only, and localhost: what a name resolves to may change, and is no business of start-up.
static bool parse_address(const char *host, int port, struct address *ret)
{
    *ret = (struct address){.len = 0};
    if (!*host || !strcmp(host, "*"))
        host = "0.0.0.0";
    else if (!strcasecmp(host, "localhost"))
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &ret->a.v4.sin_addr) == 1) {
        ret->a.v4.sin_family = AF_INET;
        ret->a.v4.sin_port = htons((uint16_t)port);
        ret->len = sizeof ret->a.v4;
    } else if (inet_pton(AF_INET6, host, &ret->a.v6.sin6_addr) == 1) {
        ret->a.v6.sin6_family = AF_INET6;
        ret->a.v6.sin6_port = htons((uint16_t)port);
        ret->len = sizeof ret->a.v6;
    }
    return ret->len > 0;
}

static err_code open_tcp(const char *text, const struct address *a, struct listener *l, err *e)
{
    int on = 1, fd = socket(a->a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return bind_failed(text, errno, e);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a restart must not wait for old connections
    if (a->a.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &a->a.any, a->len) || listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        return bind_failed(text, error, e);
    }
    l->fd = fd;
    describe(l);
    return ERR_OK;
}

static err_code parse_tcp(const char *text, struct address *ret, err *e)
{
    char host[64], port[8];
    if (!split(text, host, sizeof host, port, sizeof port) || !parse_address(host, atoi(port), ret))
        return err_set_param(e, ERR_INVALID, "listen",
                             "%s: expected ADDR:PORT with an IP address or localhost, [IPv6]:PORT or unix:PATH", text);
    return ERR_OK;
}

err_code listen_open(const char *text, struct listener *l, err *e)
{
    struct address a;
    l->fd = -1;
    l->text = mem_strdup(text);
    if (!strncmp(text, "unix:", 5))
        return open_unix(text, text + 5, l, e);
    return parse_tcp(text, &a, e) ? e->code : open_tcp(text, &a, l, e);
}

static err_code refuse_public(const char *text, err *e)
{
    return err_set_param(e, ERR_INVALID, "listen",
                         "%s can be reached from other machines, but no API key is set. Set one (api_key), listen on "
                         "127.0.0.1, or allow it by name (allow_public).", text);
}

err_code listen_check(const char *text, bool public_ok, err *e)
{
    struct address a;
    if (!strncmp(text, "unix:", 5))
        return check_path(text, e);
    if (parse_tcp(text, &a, e))
        return e->code;
    struct listener l = {0};
    describe_address(&a.a.any, &l);
    return !public_ok && !l.loopback ? refuse_public(text, e) : ERR_OK;
}

err_code listen_check_public(const struct listener *l, bool public_ok, err *e)
{
    return l->port && !l->loopback && !public_ok ? refuse_public(l->text, e) : ERR_OK;
}

static uint64_t admin_names(const char *names)
{
    uint64_t found = 0;
    for (int i = 0; names && i < 64; i++) {
        size_t n = strcspn(names, ":");
        if (n == 5 && !memcmp(names, "admin", 5))
            found |= (uint64_t)1 << i;
        names = names[n] ? names + n + 1 : NULL;
    }
    return found;
}

int listen_inherited(uint64_t *ret_admin)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int n = pid && fds && atol(pid) == (long)getpid() ? atoi(fds) : 0;
    *ret_admin = admin_names(getenv("LISTEN_FDNAMES"));
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return n > 0 && n <= 64 ? n : 0;
}

err_code listen_adopt(int i, struct listener *l, err *e)
{
    char text[32];
    snprintf(text, sizeof text, "inherited socket %d", i + 1);
    l->text = mem_strdup(text);
    l->fd = FIRST_INHERITED + i;
    int accepting = 0;
    socklen_t n = sizeof accepting;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &n) || !accepting) {
        l->fd = -1;
        return err_set_param(e, ERR_INVALID, "listen", "%s is not a listening stream socket", text);
    }
    fcntl(l->fd, F_SETFL, fcntl(l->fd, F_GETFL) | O_NONBLOCK);
    fcntl(l->fd, F_SETFD, FD_CLOEXEC);
    describe(l);
    return ERR_OK;
}

void listen_close(struct listener *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    if (l->unix_path)
        unlink(l->unix_path);
    free(l->unix_path);
    l->unix_path = NULL;
}

err_code listen_write_port(const char *path, int port, err *e)
{
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >= (int)sizeof temporary)
        return err_set_param(e, ERR_INVALID, "port_file", "the path of the port file is too long");
    FILE *f = fopen(temporary, "we");
    if (!f)
        return err_set_param(e, ERR_IO, "port_file", "%s: %s", temporary, strerror(errno));
    bool ok = fprintf(f, "%d\n", port) > 0;
    ok = !fclose(f) && ok;
    if (!ok || rename(temporary, path)) {
        int error = errno;
        unlink(temporary);
        return err_set_param(e, ERR_IO, "port_file", "%s: %s", path, strerror(error));
    }
    return ERR_OK;
}
