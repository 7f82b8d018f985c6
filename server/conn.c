// Sockets beside MHD. The file descriptor sits in MHD's epoll set and in libuv's too (UV_DISCONNECT only, so that
// pipelined bytes cause no wake-ups). Half a close (shutdown of the client's writing side) counts as leaving while an
// answer is awaited or streamed; before that it may only mean that the request is complete.
#include "server/conn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/exchange.h"
#include "server/loop.h"
#include "server/sse.h"
#include "server/state.h"

static int64_t seconds(int s)
{
    return (int64_t)s * 1000000000;
}

static void free_conn(uv_handle_t *h)
{
    struct conn *c = h->data;
    tls_drop(c->credential);
    free(c);
}

static void *tls_session(const struct conn *c)
{
    return c->listener->tls ? MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session : NULL;
}

static void name_peer(struct conn *c)
{
    const struct sockaddr *a = MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    const void *address = a && a->sa_family == AF_INET    ? (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
                          : a && a->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr
                                                          : NULL;
    if (!address || !inet_ntop(a->sa_family, address, c->peer, sizeof c->peer))
        strcpy(c->peer, "unix");
}

struct conn *conn_open(struct listener *l, struct MHD_Connection *mhd)
{
    struct server *s = l->server;
    struct conn *c = mem_new(sizeof *c);
    c->listener = l;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->deadline_ns = clock_ns() + seconds(s->config.header_timeout_s);
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)s->config.idle_timeout_s);  // may have changed
    name_peer(c);
    if (uv_poll_init(&s->loop, &c->watcher, c->fd)) {
        free(c);
        return NULL;
    }
    c->watcher.data = c;
    if (l->tls) {
        c->credential = tls_take(l->tls);
        tls_use(c->credential, tls_session(c));
    }
    conn_watch(c);
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    if (s->nconns++ == 0)
        loop_tick_start(s);
    return c;
}

void conn_close(struct conn *c)
{
    struct server *s = c->listener->server;
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (--s->nconns == 0)
        loop_tick_stop(s);
    uv_poll_stop(&c->watcher);
    uv_close((uv_handle_t *)&c->watcher, free_conn);
}

void conn_resume(struct conn *c)
{
    if (!c->x || !c->x->suspended)
        return;
    c->x->suspended = false;
    c->listener->wanted = true;
    MHD_resume_connection(c->mhd);
}

void conn_kill(struct conn *c)
{
    c->listener->wanted = true;
    shutdown(c->fd, SHUT_RDWR);
}

static bool is_awaiting(const struct exchange *x)
{
    return x->phase == PHASE_PARSE || x->phase == PHASE_HANDLER || (x->phase == PHASE_SENT && x->streaming);
}

static uint64_t progress(const struct conn *c)
{
    return (uint64_t)c->requests << 40 ^ (c->x ? 1 + c->x->r.body_len + c->x->overflow : 0);
}

// An RST is reported as status UV_EBADF with no events; any failure means the client has gone.
static void on_disconnect(uv_poll_t *h, int status, int events)
{
    struct conn *c = h->data;
    if (status >= 0 && !(events & UV_DISCONNECT))
        return;
    uv_poll_stop(h);  // level-triggered
    struct exchange *x = c->x;
    if (!x || !is_awaiting(x)) {
        c->half_closed = true;
        c->progress = progress(c);
        return;
    }
    x->left = true;
    exchange_gone(x);
    exchange_fail(x);
    if (x->suspended)
        conn_resume(c);
    else
        conn_kill(c);
    loop_drive_wanted(c->listener->server);
}

void conn_watch(struct conn *c)
{
    if (!uv_is_active((uv_handle_t *)&c->watcher))
        uv_poll_start(&c->watcher, UV_DISCONNECT, on_disconnect);
}

void conn_send_error(struct conn *c, int status, const char *reason, const char *code, const char *message)
{
    char body[512], text[1024];
    int n = snprintf(body, sizeof body,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\",\"param\":null,"
                     "\"code\":%s%s%s}}",
                     message, *code ? "\"" : "", *code ? code : "null", *code ? "\"" : "");
    n = snprintf(text, sizeof text,
                 "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                 "Connection: close\r\nx-should-retry: %s\r\nx-request-id: %s\r\n\r\n%s",
                 status, reason, n, status == 400 || status == 413 ? "false" : "true", c->x ? c->x->r.id : "", body);
    void *session = tls_session(c);
    bool fits = n > 0 && (size_t)n < sizeof text;
    if (fits && session)
        tls_send_last(session, text, (size_t)n);
    else if (fits)
        (void)!send(c->fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(c->fd, SHUT_WR);
}

// The head or the body did not come in time. A connection that had served a request before and idles is closed
// silently.
static void expire(struct conn *c)
{
    c->deadline_ns = 0;
    if (c->x) {
        c->x->left = true;
        c->x->status = 408;
    }
    if (c->x || c->requests == 0)
        conn_send_error(c, 408, "Request Timeout", "request_timeout", "The request did not arrive in time.");
    conn_kill(c);
}

// MHD misses an end that was there when it read the last bytes. Nothing new since the last look: there will be nothing.
static void close_if_stuck(struct conn *c)
{
    uint64_t now = progress(c);
    if ((!c->x || c->x->phase == PHASE_LINE || c->x->phase == PHASE_BODY) && now == c->progress)
        conn_kill(c);
    c->progress = now;
}

// The line before a chunk that fills MHD's buffer is never complete: MHD asks to be run again and again, at once, and reads nothing.
static void end_if_chunk_stuck(struct conn *c)
{
    struct exchange *x = c->x;
    int unread = 0;
    bool chunked = x && x->phase == PHASE_BODY && request_header(&x->r, "Transfer-Encoding");
    uint64_t now = progress(c);
    bool moves = !chunked || now != c->progress || ioctl(c->fd, FIONREAD, &unread) || unread == 0;
    c->progress = now;
    c->ticks_stuck = moves ? 0 : c->ticks_stuck + 1;
    if (c->ticks_stuck < STUCK_TICKS)
        return;
    c->deadline_ns = 0;
    x->left = true;
    x->status = 400;
    conn_send_error(c, 400, "Bad Request", "", "The line before a chunk of the body is longer than is accepted.");
    conn_kill(c);
}

// A client that has sent more than the socket holds behind its request, and leaves, is not seen to: its end comes after
// what nobody reads. So that is read and thrown away, and the connection ends with this answer.
static void discard_behind(struct conn *c)
{
    char bytes[16 << 10];
    int unread = 0;
    if (!c->overrun && (ioctl(c->fd, FIONREAD, &unread) || unread < BEHIND_MAX))
        return;
    c->overrun = true;
    for (int i = 0; i < 64 && recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0; i++)
        continue;
}

void conn_tick(struct conn *c, int64_t now_ns)
{
    if (c->half_closed)
        close_if_stuck(c);
    else
        end_if_chunk_stuck(c);
    if (c->deadline_ns && now_ns > c->deadline_ns)
        expire(c);
    if (c->x && is_awaiting(c->x))
        discard_behind(c);
    int64_t quiet_ns = seconds(c->listener->server->config.keepalive_s);
    if (c->x && c->x->phase == PHASE_HANDLER && now_ns - c->x->r.received_ns >= quiet_ns)
        exchange_quiet(c->x);
    if (c->x && sse_keep_alive(c->x, now_ns, quiet_ns))
        conn_resume(c);
}
