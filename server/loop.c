// One libuv loop thread drives one MHD daemon per listener through the daemon's epoll descriptor.
//
//     epoll fd, timer, idle, inbox, watcher ──▶ drive(): MHD_run until nothing is due ──▶ idle (again at once) or timer
//
// MHD's own timeouts are honoured by the timer. At the connection limit MHD takes its listening socket out of epoll and
// puts it back only in the MHD_run after a close: "rerun" makes sure there is one.
#include "server/loop.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/conn.h"
#include "server/exchange.h"
#include "server/http.h"
#include "server/state.h"

static void on_idle(uv_idle_t *h);
static void on_timer(uv_timer_t *h);

static void drive(struct listener *l)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    bool have;
    int rounds = 0;
    do {
        l->rerun = l->wanted = false;
        MHD_run(l->daemon);
        have = MHD_get_timeout(l->daemon, &wait_ms) == MHD_YES;
    } while (((have && wait_ms == 0) || l->rerun || l->wanted) && ++rounds < 8);
    if ((have && wait_ms == 0) || l->rerun || l->wanted) {
        uv_idle_start(&l->idle, on_idle);  // at once, but after the other handles had a turn
        return;
    }
    uv_idle_stop(&l->idle);
    if (have)
        uv_timer_start(&l->timer, on_timer, wait_ms, 0);
    else
        uv_timer_stop(&l->timer);
}

static void on_idle(uv_idle_t *h)
{
    drive(h->data);
}

static void on_timer(uv_timer_t *h)
{
    drive(h->data);
}

static void on_epoll(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    drive(h->data);
}

void loop_drive_wanted(struct server *s)
{
    for (int i = 0; i < s->nlisteners; i++)
        if (s->listeners[i].daemon && s->listeners[i].wanted)
            drive(&s->listeners[i]);
}

// What another thread has left for the loop: an answer, events, the end of a stream, or a reader that fell behind.
static void attend(struct exchange *x)
{
    if (!x->conn)
        return;
    pthread_mutex_lock(&x->lock);
    bool failed = x->failed;
    pthread_mutex_unlock(&x->lock);
    if (failed)
        exchange_gone(x);
    if (x->suspended)
        conn_resume(x->conn);
    else if (failed)
        conn_kill(x->conn);  // blocked in a write: the reader will not be asked again
}

static void call_again(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool again = x->again;
    x->again = false;
    pthread_mutex_unlock(&x->lock);
    if (!again)
        return;
    x->r.on_gone = NULL;
    if (!x->gone) {
        x->route->handler(&x->r);
        return;
    }
    err e = {0};
    err_set(&e, ERR_CANCELLED, "The client has gone.");
    reply_error(&x->r, &e);
}

static void on_wake(uv_async_t *h)
{
    struct server *s = h->data;
    for (struct exchange *x; (x = inbox_take(s->inbox));) {
        call_again(x);
        attend(x);
        exchange_unref(x);
    }
    loop_drive_wanted(s);
}

static void on_tick(uv_timer_t *h)
{
    struct server *s = h->data;
    int64_t now = clock_ns();
    for (struct conn *c = s->conns; c; c = c->next)
        conn_tick(c, now);
    loop_drive_wanted(s);
}

void loop_tick_start(struct server *s)
{
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
}

void loop_tick_stop(struct server *s)
{
    uv_timer_stop(&s->tick);
}

static err_code uv_failed(int rc, const char *what, err *e)
{
    return err_set(e, ERR_IO, "%s: %s", what, uv_strerror(rc));
}

err_code loop_open(struct server *s, err *e)
{
    int rc = uv_loop_init(&s->loop);
    if (rc)
        return uv_failed(rc, "event loop", e);
    s->loop_open = true;
    if ((rc = uv_async_init(&s->loop, &s->wake, on_wake)) || (rc = uv_timer_init(&s->loop, &s->tick)) ||
        (rc = uv_timer_init(&s->loop, &s->drain)) || (rc = uv_timer_init(&s->loop, &s->watchdog)) ||
        (rc = uv_signal_init(&s->loop, &s->sigterm)) || (rc = uv_signal_init(&s->loop, &s->sigint)) ||
        (rc = uv_signal_init(&s->loop, &s->sighup)))
        return uv_failed(rc, "event loop", e);
    s->wake.data = s->tick.data = s->drain.data = s->watchdog.data = s->sigterm.data = s->sigint.data = s->sighup.data = s;
    s->inbox = inbox_new(&s->wake);
    return ERR_OK;
}

static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
    struct server *s = cls;
    bool limit = strstr(fmt, "resource limit");
    if (limit && clock_ns() - s->limit_said_ns > 1000000000) {
        s->limit_said_ns = clock_ns();
        log_warn("no descriptor is left for another connection; %d are open", s->nconns);
    }
    if (log_get_level() < LOG_LEVEL_DEBUG)
        return;
    char text[512];
    vsnprintf(text, sizeof text, fmt, ap);
    log_debug("http: %s", text);
}

static void *option(const char *text)
{
    return (void *)(uintptr_t)text;
}

// With TLS the daemon gets the certificate of now for the start only: each connection is given the current one (conn.c).
static struct MHD_Daemon *start_daemon(struct listener *l)
{
    const struct server_config *c = &l->server->config;
    struct tls_credential *credential = l->tls ? tls_take(l->tls) : NULL;
    const char *cert = NULL, *key = NULL;
    if (credential)
        tls_texts(credential, &cert, &key);
    struct MHD_OptionItem more[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, option(cert)}, {MHD_OPTION_HTTPS_MEM_KEY, 0, option(key)},
                                    {MHD_OPTION_HTTPS_PRIORITIES, 0, option(TLS_PRIORITIES)}, {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (l->tls ? MHD_USE_TLS : 0u);
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, http_handle, l, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, l->server, MHD_OPTION_LISTEN_SOCKET, l->fd,
        MHD_OPTION_ARRAY, l->tls ? more : more + 3, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MHD_POOL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)c->max_connections + 64,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)c->max_connections_per_address,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_timeout_s,
        MHD_OPTION_URI_LOG_CALLBACK, http_target, l, MHD_OPTION_NOTIFY_CONNECTION, http_connection, l,
        MHD_OPTION_NOTIFY_COMPLETED, http_completed, l, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    tls_drop(credential);
    return d;
}

err_code loop_add(struct server *s, struct listener *l, err *e)
{
    l->server = s;
    l->daemon = start_daemon(l);
    if (!l->daemon)
        return err_set(e, ERR_IO, "%s: the HTTP library could not be started", l->text);
    int fd = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD)->listen_fd;
    int rc = uv_poll_init(&s->loop, &l->poll, fd);
    if (rc) {
        MHD_stop_daemon(l->daemon);
        l->daemon = NULL;
        return uv_failed(rc, l->text, e);
    }
    uv_timer_init(&s->loop, &l->timer);
    uv_idle_init(&s->loop, &l->idle);
    l->poll.data = l->timer.data = l->idle.data = l;
    uv_poll_start(&l->poll, UV_READABLE, on_epoll);
    return ERR_OK;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

void loop_close(struct server *s)
{
    for (int i = 0; i < s->nlisteners; i++) {
        struct listener *l = &s->listeners[i];
        if (!l->daemon)
            continue;
        uv_poll_stop(&l->poll);  // before MHD closes the descriptor
        MHD_stop_daemon(l->daemon);
        l->daemon = NULL;
    }
    if (!s->loop_open)
        return;
    uv_run(&s->loop, UV_RUN_NOWAIT);  // connections' own close callbacks
    uv_walk(&s->loop, close_handle, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    uv_loop_close(&s->loop);
    s->loop_open = false;
}
