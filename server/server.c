// The daemon's life: open, serve, drain, close.
//
//     serving ──SIGTERM──▶ draining ──all answered──▶ exit 0
//                             │ second signal, or drain_timeout_s
//                             ▼
//                          aborted: every open request gets an error, then a moment to be read ──▶ forced: exit 0
//
// Draining closes the listening sockets, ends idle connections, refuses new work with 503 and lets what runs finish.
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "server/conn.h"
#include "server/exchange.h"
#include "server/keep.h"
#include "server/listen.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/notify.h"
#include "server/pool.h"
#include "server/reply.h"
#include "server/state.h"

enum { DEFAULT_CONNECTIONS = 1024, DEFAULT_BODY = 32 << 20, DEFAULT_UPLOAD = 25 << 20, DEFAULT_AUDIO_S = 7200, FLUSH_MS = 500, HALF_REQUEST_MS = 5000, DRAIN_POLL_MS = 20 };
enum { POOL_THREADS = 2, KEEP_FILES = 256, KEEP_BYTES = 256 << 20 };
enum { SERVING, DRAINING, ABORTED, FORCED };

static int or_default(int value, int fallback)
{
    return value > 0 ? value : fallback;
}

static void fill_config(struct server *s, const struct server_config *c)
{
    struct server_config *d = &s->config;
    *d = *c;
    d->max_body = c->max_body ? c->max_body : DEFAULT_BODY;
    d->max_upload = c->max_upload ? c->max_upload : DEFAULT_UPLOAD;
    d->max_audio_s = or_default(c->max_audio_s, DEFAULT_AUDIO_S);
    d->header_timeout_s = or_default(c->header_timeout_s, 20);
    d->idle_timeout_s = or_default(c->idle_timeout_s, 75);
    d->drain_timeout_s = c->drain_timeout_s < 0 ? 0 : or_default(c->drain_timeout_s, 30);
    d->keepalive_s = or_default(c->keepalive_s, 5);
    d->max_connections = or_default(c->max_connections, DEFAULT_CONNECTIONS);
    d->max_connections_per_address = or_default(c->max_connections_per_address, 0);
    s->auth = (struct auth){.sources = {c->api_keys, c->nkeys, c->api_key_file, c->store}, .origins = c->cors_origins,
                            .norigins = c->ncors, .hosts = c->hosts, .nhosts = c->nhosts};
}

// Every connection needs a descriptor; the soft limit is often far below what is allowed.
static void raise_descriptor_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

static err_code open_listeners(struct server *s, err *e)
{
    int inherited = listen_inherited();
    int n = inherited ? inherited : s->config.nlisten;
    if (n < 1)
        return err_set_param(e, ERR_INVALID, "listen", "no address to listen on");
    s->listeners = mem_new((size_t)n * sizeof *s->listeners);
    for (int i = 0; i < n; i++) {
        struct listener *l = &s->listeners[i];
        l->fd = -1;
        s->nlisteners = i + 1;
        if (inherited ? listen_adopt(i, l, e) : listen_open(s->config.listen[i], l, e))
            return e->code;
        if (listen_check_public(l, s->auth.required || s->config.allow_public, e) || loop_add(s, l, e))
            return e->code;
    }
    return ERR_OK;
}

// ---- the end

static void set_stage(struct server *s, int stage, int64_t wait_ms)
{
    s->stage = stage;
    s->stage_deadline_ns = clock_ns() + wait_ms * 1000000;
}

static void stop_listening(struct server *s)
{
    for (int i = 0; i < s->nlisteners; i++) {
        struct listener *l = &s->listeners[i];
        if (l->daemon && l->fd >= 0)
            (void)MHD_quiesce_daemon(l->daemon);
        listen_close(l);
    }
}

static void abort_requests(struct server *s)
{
    err e = {0};
    err_set(&e, ERR_DRAINING, "The server was shut down before the answer was complete.");
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->x) {
            reply_abort(c->x, &e);
            conn_resume(c);
        } else {
            conn_kill(c);
        }
    }
    set_stage(s, ABORTED, FLUSH_MS);
    loop_drive_wanted(s);
}

static void force_closed(struct server *s)
{
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->x) {
            c->x->left = true;
            exchange_gone(c->x);
            exchange_fail(c->x);
            conn_resume(c);
        }
        conn_kill(c);
    }
    set_stage(s, FORCED, FLUSH_MS);
    loop_drive_wanted(s);
}

static void on_drain(uv_timer_t *h)
{
    struct server *s = h->data;
    if (s->nconns == 0) {
        uv_stop(&s->loop);
        return;
    }
    if (clock_ns() < s->stage_deadline_ns)
        return;
    if (s->stage == DRAINING) {
        log_warn("%d connections were still busy after %d s; ending them", s->nconns, s->config.drain_timeout_s);
        abort_requests(s);
    } else if (s->stage == ABORTED) {
        force_closed(s);
    } else {
        uv_stop(&s->loop);
    }
}

static void begin_drain(struct server *s)
{
    atomic_store(&s->draining, true);
    notify_send("STOPPING=1");
    log_info("shutting down: %d connections open", s->nconns);
    if (s->engine)
        engine_drain(s->engine);
    stop_listening(s);
    set_stage(s, DRAINING, (int64_t)s->config.drain_timeout_s * 1000);
    int64_t soon_ns = clock_ns() + (int64_t)HALF_REQUEST_MS * 1000000;
    for (struct conn *c = s->conns; c; c = c->next) {
        if (!c->x)
            shutdown(c->fd, SHUT_RD);  // idle: MHD reads the end and closes
        else if (c->deadline_ns > soon_ns)
            c->deadline_ns = soon_ns;  // what it asks for would be refused
    }
    uv_timer_start(&s->drain, on_drain, 0, DRAIN_POLL_MS);
}

static void on_signal(uv_signal_t *h, int number)
{
    struct server *s = h->data;
    (void)number;
    if (s->stage == SERVING)
        begin_drain(s);
    else if (s->stage == DRAINING)
        abort_requests(s);
}

// nohup asks for that. Otherwise the terminal has gone, which ends the server as SIGTERM does.
static bool hangups_are_ignored(void)
{
    struct sigaction a;
    return !sigaction(SIGHUP, NULL, &a) && a.sa_handler == SIG_IGN;
}

static err_code open_all(struct server *s, err *e)
{
    if (!s->config.routes)
        return err_set(e, ERR_INVALID, "no routes to serve");
    if (auth_open(&s->auth, e) || loop_open(s, e) || open_listeners(s, e))
        return e->code;
    // From here on, so that a signal during start-up is not lost; it is acted upon once the loop runs.
    if (uv_signal_start(&s->sigterm, on_signal, SIGTERM) || uv_signal_start(&s->sigint, on_signal, SIGINT) ||
        (!hangups_are_ignored() && uv_signal_start(&s->sighup, on_signal, SIGHUP)))
        return err_set(e, ERR_IO, "signals cannot be handled");
    return s->config.port_file ? listen_write_port(s->config.port_file, server_port(s), e) : ERR_OK;
}

err_code server_open(const struct server_config *c, struct engine *en, struct server **ret_server, err *e)
{
    err local = {0};
    struct server *s = mem_new(sizeof *s);
    s->engine = en;
    fill_config(s, c);
    atomic_init(&s->draining, false);
    atomic_init(&s->unready, false);
    s->id_seed = rng_os();
    s->exposition = metrics_open(c->routes, c->max_running);
    json_object_seed(0);  // jansson seeds lazily otherwise, from several threads at once
    raise_descriptor_limit();
    s->quota = quota_new();
    s->pool = pool_open(POOL_THREADS);
    s->keep = c->image_url_ttl_s > 0 ? keep_open(c->image_url_ttl_s, KEEP_FILES, KEEP_BYTES) : NULL;
    if (open_all(s, &local)) {
        server_close(s);
        if (e)
            *e = local;
        return local.code;
    }
    *ret_server = s;
    return ERR_OK;
}

int server_run(struct server *s)
{
    signal(SIGPIPE, SIG_IGN);
    metrics_find_models(s);
    notify_send("READY=1");
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return 0;
}

void server_close(struct server *s)
{
    if (!s)
        return;
    atomic_store(&s->draining, true);
    stop_listening(s);
    if (s->nconns) {
        force_closed(s);
        for (int i = 0; i < 10 && s->nconns; i++)
            uv_run(&s->loop, UV_RUN_NOWAIT);
    }
    loop_close(s);
    if (s->stage != SERVING) {  // a second signal must not turn a clean exit into a failure
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
    }
    inbox_close(s->inbox);
    inbox_unref(s->inbox);
    for (int i = 0; i < s->nlisteners; i++)
        free(s->listeners[i].text);
    free(s->listeners);
    pool_close(s->pool);
    pool_unref(s->pool);
    keep_unref(s->keep);
    metrics_close(s->exposition);
    auth_close(&s->auth);
    quota_free(s->quota);
    free(s);
}

struct engine *server_engine(struct server *s)
{
    return s->engine;
}

struct pool *server_pool(struct server *s)
{
    return s->pool;
}

struct keep *server_keep(struct server *s)
{
    return s->keep;
}

const struct server_config *server_settings(const struct server *s)
{
    return &s->config;
}

bool server_unready(const struct server *s)
{
    return atomic_load_explicit(&s->unready, memory_order_relaxed) || server_draining(s);
}

bool server_draining(const struct server *s)
{
    return atomic_load_explicit(&s->draining, memory_order_relaxed);
}

bool server_address(const struct server *s, int i, char *ret_url, size_t size)
{
    if (i >= s->nlisteners)
        return false;
    const struct listener *l = &s->listeners[i];
    const char *colon = strrchr(l->text, ':');
    if (l->unix_path || !l->port || !colon)
        snprintf(ret_url, size, "%s", l->text);
    else
        snprintf(ret_url, size, "http://%.*s:%d", (int)(colon - l->text), l->text, l->port);
    return true;
}

int server_port(const struct server *s)
{
    for (int i = 0; i < s->nlisteners; i++)
        if (s->listeners[i].port)
            return s->listeners[i].port;
    return 0;
}
