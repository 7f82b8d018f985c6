// The daemon's life: open, serve, close; drain.c ends it.
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/drain.h"
#include "server/keep.h"
#include "server/listen.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/notify.h"
#include "server/pool.h"
#include "server/reload.h"
#include "server/responses.h"
#include "server/state.h"

enum { DEFAULT_CONNECTIONS = 1024, DEFAULT_BODY = 32 << 20, DEFAULT_UPLOAD = 25 << 20, DEFAULT_AUDIO_S = 7200 };
enum { POOL_THREADS = 2, KEEP_FILES = 256, KEEP_BYTES = 256 << 20 };

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
}

// What is read from where, and for whom; the loop thread's, but for the sources of keys.
static void fill_auth(struct server *s, const struct server_config *c)
{
    s->auth.origins = c->cors_origins;
    s->auth.norigins = c->ncors;
    s->auth.hosts = c->hosts;
    s->auth.nhosts = c->nhosts;
}

static void fill_sources(struct server *s, const struct server_config *c)
{
    s->auth.sources = (struct auth_sources){c->api_keys, c->nkeys, c->api_key_file, c->store};
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

static void warn_of_certificate(struct server *s)
{
    char warning[512];
    tls_warning(s->tls, warning, sizeof warning);
    if (*warning)
        log_warn("%s", warning);
}

static err_code open_tls(struct server *s, err *e)
{
    if (tls_open(s->config.tls_cert, s->config.tls_key, &s->tls, e))
        return e->code;
    if (s->tls)
        warn_of_certificate(s);
    return ERR_OK;
}

void server_change_sources(struct server *s, const struct server_config *c)
{
    fill_sources(s, c);
}

err_code server_reread(struct server *s, err *e)
{
    err keys = {0}, certificate = {0};
    (void)!auth_reload(&s->auth, &keys);
    if (s->tls && !tls_reload(s->tls, &certificate))
        warn_of_certificate(s);
    if (e && (keys.code || certificate.code))
        *e = keys.code ? keys : certificate;
    return keys.code ? keys.code : certificate.code;
}

// Nobody but this machine reaches it, or a key is asked for.
static err_code check_admin(struct server *s, struct listener *l, err *e)
{
    l->admin = s->has_admin = true;
    if (l->port && !l->loopback && !s->config.admin_key)
        return err_set_param(e, ERR_INVALID, "admin_listen",
                             "%s can be reached from other machines, but no admin_key is set. Set one, or use 127.0.0.1 or "
                             "a unix: socket.", l->text);
    return ERR_OK;
}

static err_code open_listener(struct server *s, const char *text, bool admin, err *e)
{
    struct listener *l = &s->listeners[s->nlisteners++];
    l->fd = -1;
    if (text ? listen_open(text, l, e) : listen_adopt((int)(l - s->listeners), l, e))
        return e->code;
    l->tls = l->port && !(admin && l->loopback) ? s->tls : NULL;  // a Unix socket stays plain
    if (admin ? check_admin(s, l, e) : listen_check_public(l, s->auth.required || s->config.allow_public, e))
        return e->code;
    return loop_add(s, l, e);
}

static err_code open_listeners(struct server *s, err *e)
{
    uint64_t admin;
    int inherited = listen_inherited(&admin), n = inherited ? inherited : s->config.nlisten;
    if (n < 1)
        return err_set_param(e, ERR_INVALID, "listen", "no address to listen on");
    s->listeners = mem_new((size_t)(n + 1) * sizeof *s->listeners);
    for (int i = 0; i < n; i++)
        if (open_listener(s, inherited ? NULL : s->config.listen[i], inherited && admin >> i & 1, e))
            return e->code;
    if (s->config.admin_listen && !s->has_admin)
        return open_listener(s, s->config.admin_listen, true, e);
    return ERR_OK;
}

// ---- signals

static void on_end(uv_signal_t *h, int number)
{
    drain_signal(h->data, number == SIGTERM);
}

static void on_hangup(uv_signal_t *h, int number)
{
    (void)number;
    reload_start(h->data);
}

// A terminal's hangup means that it has gone, which ends the server; nohup asks for it to be ignored. To a server
// without a terminal the signal says that its settings have changed.
static err_code watch_hangups(struct server *s, err *e)
{
    struct sigaction a;
    bool ignored = !sigaction(SIGHUP, NULL, &a) && a.sa_handler == SIG_IGN, terminal = isatty(STDERR_FILENO);
    if (ignored && terminal)
        return ERR_OK;
    if (uv_signal_start(&s->sighup, terminal ? on_end : on_hangup, SIGHUP))
        return err_set(e, ERR_IO, "signals cannot be handled");
    return ERR_OK;
}

static err_code open_responses(struct server *s, err *e)
{
    const struct server_config *c = &s->config;
    struct responses_limits limits = {c->max_responses, c->responses_ttl_s, c->max_responses_bytes};
    return responses_open(c->responses_db, &limits, &s->responses, e);
}

static err_code open_all(struct server *s, err *e)
{
    if (!s->config.routes)
        return err_set(e, ERR_INVALID, "no routes to serve");
    if (open_responses(s, e))
        return e->code;
    if (auth_open(&s->auth, e) || open_tls(s, e) || loop_open(s, e) || open_listeners(s, e))
        return e->code;
    // From here on, so that a signal during start-up is not lost; it is acted upon once the loop runs.
    if (uv_signal_start(&s->sigterm, on_end, SIGTERM) || uv_signal_start(&s->sigint, on_end, SIGINT))
        return err_set(e, ERR_IO, "signals cannot be handled");
    if (watch_hangups(s, e))
        return e->code;
    return s->config.port_file ? listen_write_port(s->config.port_file, server_port(s), e) : ERR_OK;
}

err_code server_open(const struct server_config *c, struct engine *en, struct server **ret_server, err *e)
{
    err local = {0};
    struct server *s = mem_new(sizeof *s);
    s->engine = en;
    fill_config(s, c);
    fill_auth(s, c);
    fill_sources(s, c);
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

// The service manager restarts the server when it hears nothing for as long as it said: only a scheduler that goes round
// lets it hear something.
static void on_watchdog(uv_timer_t *h)
{
    struct server *s = h->data;
    int64_t beat = s->engine ? engine_heartbeat_ns(s->engine) : clock_ns();
    char text[128];
    if (beat == s->last_beat_ns)
        return;
    s->last_beat_ns = beat;
    snprintf(text, sizeof text, "WATCHDOG=1\nSTATUS=%s: %lld requests run, %lld wait", drain_state(s),
             (long long)metrics_running(s->exposition), (long long)metrics_waiting(s->exposition));
    notify_send(text);
}

static void start_watchdog(struct server *s)
{
    uint64_t third_ms = (uint64_t)notify_watchdog_us() / 3000;
    if (third_ms)
        uv_timer_start(&s->watchdog, on_watchdog, 0, third_ms);
}

int server_run(struct server *s)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a file may grow no further: its writer is told so like that the disk is full
    metrics_find_models(s);
    start_watchdog(s);
    notify_send("READY=1\nSTATUS=Serving");
    thread_answers();
    uv_run(&s->loop, UV_RUN_DEFAULT);
    return 0;
}

void server_close(struct server *s)
{
    if (!s)
        return;
    atomic_store(&s->draining, true);
    drain_stop_listening(s, true);
    if (s->nconns) {
        drain_force(s);
        for (int i = 0; i < 10 && s->nconns; i++)
            uv_run(&s->loop, UV_RUN_NOWAIT);
    }
    loop_close(s);
    if (s->stage != STAGE_SERVING) {  // a second signal must not turn a clean exit into a failure
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
    responses_close(s->responses);
    responses_unref(s->responses);
    metrics_close(s->exposition);
    auth_close(&s->auth);
    quota_free(s->quota);
    tls_close(s->tls);
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

void server_change(struct server *s, const struct server_config *c)
{
    struct server_config now = s->config;
    fill_config(s, c);
    now.header_timeout_s = s->config.header_timeout_s;
    now.idle_timeout_s = s->config.idle_timeout_s;
    now.drain_timeout_s = s->config.drain_timeout_s;
    now.drain_grace_s = s->config.drain_grace_s;
    now.keepalive_s = s->config.keepalive_s;
    now.access_log = s->config.access_log;
    now.health_is_live = s->config.health_is_live;
    now.admin_key = s->config.admin_key;
    now.default_rpm = s->config.default_rpm;
    now.default_tpm = s->config.default_tpm;
    now.default_concurrent = s->config.default_concurrent;
    s->config = now;
    fill_auth(s, c);
}

struct responses *server_responses(struct server *s)
{
    return s->responses;
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
        snprintf(ret_url, size, "%s://%.*s:%d", l->tls ? "https" : "http", (int)(colon - l->text), l->text, l->port);
    return true;
}

int server_port(const struct server *s)
{
    for (int i = 0; i < s->nlisteners; i++)
        if (s->listeners[i].port && !s->listeners[i].admin)
            return s->listeners[i].port;
    return 0;
}
