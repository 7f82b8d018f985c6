// One request, from MHD's callbacks to its answer (state.h draws the phases).
//
// MHD calls http_handle first with the head, then with pieces of the body, then once more with nothing, and again after
// each resume. An answer queued in the first call closes the connection (MHD cannot know where the body ends), so a
// refusal waits for the second call when the body is absent or small, and comes at once when it is not. In the middle
// of a body MHD takes no answer at all: that refusal is written to the socket past it (conn_send_error).
#include "server/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/access.h"
#include "server/admin.h"
#include "server/body.h"
#include "server/conn.h"
#include "server/cors.h"
#include "server/exchange.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/refusal.h"
#include "server/reply.h"
#include "server/state.h"
#include "server/upload.h"

static const char invalid_request[] = "invalid_request_error";

// ---- connections

void http_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
                     enum MHD_ConnectionNotificationCode code)
{
    struct listener *l = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = conn_open(l, mhd);
        return;
    }
    if (*socket_context)
        conn_close(*socket_context);
    *socket_context = NULL;
    l->rerun = true;
}

static struct conn *conn_of(struct MHD_Connection *mhd)
{
    return MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

void *http_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
    struct listener *l = cls;
    struct server *s = l->server;
    struct conn *c = conn_of(mhd);
    if (!c)
        return NULL;
    struct exchange *x = exchange_new(s, target);
    uint64_t n = s->id_count++;
    x->r.id = arena_printf(&x->r.arena, "req_%016llx%016llx", (unsigned long long)rng_u64(s->id_seed, n, 0),
                           (unsigned long long)rng_u64(s->id_seed, n, 1));
    x->conn = c;
    x->r.secure = l->tls != NULL;
    x->r.peer = arena_strdup(&x->r.arena, c->peer);
    c->x = x;
    c->deadline_ns = x->begun_ns + (int64_t)s->config.header_timeout_s * 1000000000;
    return x;
}

static void count_end(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    err_code why = x->failure;
    pthread_mutex_unlock(&x->lock);
    struct exposition *page = x->r.server->exposition;
    metrics_answered(page, x->route, x->left ? 0 : x->status);
    metrics_refused(page, why);
}

struct drop {
    uv_work_t work;
    struct exchange *x;
};

static void drop_work(uv_work_t *w)
{
    exchange_unref(((struct drop *)w->data)->x);
}

static void drop_done(uv_work_t *w, int status)
{
    (void)status;
    free(w->data);
}

// A big body's JSON takes long enough to free that the pool does it.
static void drop(struct exchange *x)
{
    struct drop *d = x->r.body_len > JSON_INLINE_MAX ? mem_new(sizeof *d) : NULL;
    if (d) {
        d->work.data = d;
        d->x = x;
        if (!uv_queue_work(&x->r.server->loop, &d->work, drop_work, drop_done))
            return;
        free(d);
    }
    exchange_unref(x);
}

void http_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode code)
{
    struct listener *l = cls;
    struct server *s = l->server;
    struct exchange *x = *con_cls;
    (void)mhd;
    if (!x)
        return;
    *con_cls = NULL;
    struct conn *c = x->conn;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        x->left = true;
    exchange_gone(x);
    exchange_fail(x);
    body_release(x);
    if (!x->taken)
        exchange_settle(x);
    count_end(x);
    access_log(x);
    c->x = NULL;
    c->requests++;
    c->deadline_ns = clock_ns() + ((int64_t)s->config.idle_timeout_s + s->config.header_timeout_s) * 1000000000;
    if (server_draining(s) || c->overrun)
        conn_kill(c);
    x->conn = NULL;
    drop(x);
}

// ---- answers

static enum MHD_Result queue_answer(struct exchange *x)
{
    struct conn *c = x->conn;
    x->phase = PHASE_SENT;
    c->deadline_ns = 0;
    struct MHD_Response *m = reply_response(x);
    enum MHD_Result ok = refusal_queue(c->mhd, (unsigned)x->status, m);
    MHD_destroy_response(m);
    if (x->is_stream)
        conn_watch(c);
    return ok;
}

static void refuse(struct exchange *x, int status, const char *code, const err *e)
{
    reply_problem(&x->r, status, status == 503 ? "service_unavailable_error" : invalid_request, code, e);
}

static bool has_answer(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool yes = x->answered;
    pthread_mutex_unlock(&x->lock);
    return yes;
}

static void suspend(struct exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->conn->mhd);
    conn_watch(x->conn);
}

// ---- the head

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                    const char *value, size_t value_len)
{
    (void)kind, (void)name, (void)name_len, (void)value, (void)value_len;
    ++*(int *)cls;
    return MHD_YES;
}

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                   const char *value, size_t value_len)
{
    struct exchange *x = cls;
    (void)kind;
    x->headers[x->nheaders++] = (struct header){
        arena_strndup(&x->r.arena, name ? name : "", name_len),
        arena_strndup(&x->r.arena, value ? value : "", value ? value_len : 0), name_len, value ? value_len : 0};
    return MHD_YES;
}

static void copy_headers(struct exchange *x, struct MHD_Connection *mhd)
{
    int n = 0;
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, count_header, &n);
    x->headers = arena_alloc(&x->r.arena, (size_t)n * sizeof *x->headers);
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, copy_header, x);
}

static const char *header(const struct exchange *x, const char *name)
{
    return guard_find(x->headers, x->nheaders, name);
}

// A caller's own id is kept when it can be logged and echoed as it is.
static void take_request_id(struct exchange *x)
{
    const char *id = header(x, "X-Request-Id");
    size_t n = id ? strlen(id) : 0;
    if (n && n <= 128 && strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") == n)
        x->r.id = id;
}

static void take_trace(struct exchange *x)
{
    struct server *s = x->r.server;
    const char *parent = header(x, "traceparent");
    if (parent)
        (void)trace_parse(parent, rng_u64(s->id_seed, s->id_count++, 2), &x->trace);
}

// Whether the request can be told apart from the next one at all. True: refused, and the connection must close.
static bool refused_head(struct exchange *x, const char *version)
{
    err e = {0};
    int status = guard_headers(x->headers, x->nheaders, !strcmp(version, "HTTP/1.1"), HEADERS_MAX, &e);
    if (status) {
        refuse(x, status, NULL, &e);
        return true;
    }
    if (strlen(x->target) > TARGET_MAX) {
        err_set(&e, ERR_INVALID, "The request target is longer than %d bytes.", TARGET_MAX);
        refuse(x, 414, NULL, &e);
        return true;
    }
    if (x->r.server->nconns > x->r.server->config.max_connections && !x->conn->listener->admin) {
        err_set(&e, ERR_BUSY, "Too many connections; please retry.");
        reply_error(&x->r, &e);
        return true;
    }
    if (!routes_method_known(x->r.method)) {
        err_set(&e, ERR_UNSUPPORTED, "Unknown request method.");
        refuse(x, 501, "method_not_supported", &e);
        return true;
    }
    return false;
}

static bool refused_host(struct exchange *x)
{
    struct server *s = x->r.server;
    const struct listener *l = x->conn->listener;
    const char *host = x->uri.authority ? x->uri.authority : header(x, "Host");
    bool by_key = auth_required(&s->auth) && (!l->admin || s->config.admin_key);
    if (by_key || !l->loopback || !host || auth_host_ok(&s->auth, host))
        return false;
    err e = {0};
    err_set(&e, ERR_INVALID,
            "The Host '%.100s' is not a name of this server. Use localhost, or add the name to the setting 'hosts'.",
            host);
    refuse(x, 403, "host_not_allowed", &e);
    return true;
}

static bool refused_origin(struct exchange *x)
{
    if (!cors_refuses(x))
        return false;
    err e = {0};
    err_set(&e, ERR_INVALID, "A web page of '%.100s' may not ask for this. Add the origin to the setting 'cors_origins'.",
            header(x, "Origin"));
    refuse(x, 403, "origin_not_allowed", &e);
    return true;
}

static void refuse_route(struct exchange *x, unsigned allow)
{
    err e = {0};
    if (!allow) {
        const struct server *s = x->r.server;
        bool admin = !strncmp(x->r.path, "/admin/", 7) && !s->has_admin && !s->config.admin_key;
        const char *here = admin ? NULL : routes_namesake(x->r.path);
        err_set(&e, ERR_NOT_FOUND, "Unknown request URL: %s %.200s. %s%s.", x->r.method, x->r.path,
                admin ? "The admin routes are there when the setting admin_key or admin_listen is set" :
                here ? "The nearest to it here is " : "Please check the URL for typos", here ? here : "");
        refuse(x, 404, "unknown_url", &e);
        return;
    }
    char text[ROUTES_ALLOW_MAX];
    routes_allow_text(allow, text);
    request_set_header(&x->r, "allow", text);
    err_set(&e, ERR_INVALID, "%s is not allowed on %.200s; allowed: %s.", x->r.method, x->r.path, text);
    refuse(x, 405, "method_not_supported", &e);
}

static void refuse_key(struct exchange *x, bool given, bool expired)
{
    err e = {0};
    request_set_header(&x->r, "www-authenticate", "Bearer");
    if (expired)
        err_set(&e, ERR_INVALID, "The API key has expired.");
    else if (given)
        err_set(&e, ERR_INVALID, "Incorrect API key provided.");
    else
        err_set(&e, ERR_INVALID, "No API key was given. Send it in the header 'Authorization: Bearer KEY'.");
    refuse(x, 401, given ? "invalid_api_key" : NULL, &e);
}

// Looks for the key that was given among x->keys.
static bool refused_given(struct exchange *x)
{
    const char *given = request_given_key(&x->r);
    const struct apikey *k = given && *given ? auth_find_key(x->keys, given) : NULL;
    bool expired = k && apikey_expired(k, clock_unix_s());
    if (!k || expired) {
        refuse_key(x, given && *given, expired);
        return true;
    }
    x->r.key = k;
    x->r.key_id = k->name;
    return false;
}

static bool refused_key(struct exchange *x)
{
    if (x->route->auth != ROUTE_KEY || !(x->keys = auth_take(&x->r.server->auth)))
        return false;
    return refused_given(x);
}

static bool has_admin_key(const struct exchange *x)
{
    const char *key = x->r.server->config.admin_key, *given = request_given_key(&x->r);
    return key && given && admin_key_is(given, key);
}

static bool is_admin(struct exchange *x, const char *given)
{
    x->keys = auth_take(&x->r.server->auth);
    const struct apikey *k = x->keys ? auth_find_key(x->keys, given) : NULL;
    return k && k->admin && !apikey_expired(k, clock_unix_s());
}

static void refuse_admin(struct exchange *x)
{
    err e = {0};
    request_set_header(&x->r, "www-authenticate", "Bearer");
    err_set(&e, ERR_INVALID, "This needs the admin key, or an API key with the option admin.");
    refuse(x, 401, "invalid_api_key", &e);
}

static bool refused_admin(struct exchange *x)
{
    if (x->route->auth != ROUTE_ADMIN || !x->r.server->config.admin_key)
        return false;
    const char *given = request_given_key(&x->r);
    if (has_admin_key(x) || (given && is_admin(x, given)))
        return false;
    refuse_admin(x);
    return true;
}

// Without any key everybody may, and on an admin listener that asks for none whoever reaches it.
static bool refused_change(struct exchange *x)
{
    struct server *s = x->r.server;
    if (x->route->auth != ROUTE_CHANGE || has_admin_key(x) || (x->conn->listener->admin && !s->config.admin_key))
        return false;
    x->keys = auth_take(&s->auth);
    if (!x->keys && s->config.admin_key)
        refuse_admin(x);
    if (!x->keys)
        return s->config.admin_key != NULL;
    if (refused_given(x))
        return true;
    if (x->r.key->admin)
        return false;
    err e = {0};
    err_set(&e, ERR_INVALID, "This changes the server for everybody: it needs the key of the setting admin_key, or an API key with "
                             "the option admin. The key '%s' may not.", x->r.key->name);
    refuse(x, 403, "admin_key_required", &e);
    return true;
}

static bool refused_draining(struct exchange *x)
{
    bool work = x->route->auth == ROUTE_KEY || x->route->auth == ROUTE_CHANGE;
    if (!work || !server_draining(x->r.server))
        return false;
    err e = {0};
    err_set(&e, ERR_DRAINING, "The server is shutting down.");
    reply_error(&x->r, &e);
    return true;
}

static bool refused_not_built(struct exchange *x)
{
    if (x->route->body != ROUTE_NOT_BUILT)
        return false;
    err e = {0};
    err_set(&e, ERR_UNSUPPORTED, "%.200s is not built into this server yet.", x->r.path);
    refuse(x, 501, "not_built", &e);
    return true;
}

static bool refused_form(struct exchange *x, const char *type)
{
    const struct server_config *c = &x->r.server->config;
    struct upload_limits limits = {c->max_upload, c->upload_dir};
    err e = {0};
    if (upload_new(&x->r.arena, type ? type : "", &limits, &x->r.upload, &e) == ERR_OK)
        return false;
    refuse(x, 400, "unsupported_content_type", &e);
    return true;
}

// Without a content type curl users are believed; a web page is not, because a form can be sent across sites unasked.
static bool refused_type(struct exchange *x)
{
    if (x->route->body != ROUTE_JSON && x->route->body != ROUTE_UPLOAD)
        return false;
    const char *type = header(x, "Content-Type");
    if (x->route->body == ROUTE_UPLOAD)
        return refused_form(x, type);
    if (type ? guard_is_json(type) : !header(x, "Origin"))
        return false;
    err e = {0};
    err_set(&e, ERR_INVALID, "Unsupported content type '%.100s'; expected 'application/json' (curl: -H 'Content-Type: "
                                "application/json').", type ? type : "");
    refuse(x, 400, "unsupported_content_type", &e);
    return true;
}

static bool refused_size(struct exchange *x, size_t length)
{
    const struct server_config *c = &x->r.server->config;
    bool upload = x->route->body == ROUTE_UPLOAD;
    size_t max = upload ? c->max_upload : x->route->body == ROUTE_JSON ? c->max_body : REFUSED_BODY_MAX;
    if (length <= max || (upload && length - max <= UPLOAD_FORM_MAX))
        return false;
    err e = {0};
    err_set(&e, ERR_TOO_LARGE, "The request body has %zu bytes; the limit is %zu.", length, max);
    reply_error(&x->r, &e);
    return true;
}

static void set_limit_headers(struct exchange *x, const char *kind, const struct quota_state *q)
{
    struct arena *a = &x->r.arena;
    char reset[QUOTA_TIME_MAX];
    if (!q->limit)
        return;
    quota_time_text(q->reset_ms, reset);
    request_set_header(&x->r, arena_printf(a, "x-ratelimit-limit-%s", kind), arena_printf(a, "%lld", (long long)q->limit));
    request_set_header(&x->r, arena_printf(a, "x-ratelimit-remaining-%s", kind),
                       arena_printf(a, "%lld", (long long)q->remaining));
    request_set_header(&x->r, arena_printf(a, "x-ratelimit-reset-%s", kind), reset);
}

// A prompt's tokens before it is read: a quarter of the bytes of a body of text. Its chunks are counted when they are there.
static int64_t estimate_tokens(const struct exchange *x, size_t length)
{
    return x->route->body == ROUTE_JSON && length ? (int64_t)(length / 4 + 1) : 0;
}

static int64_t or_default(int64_t own, int64_t fallback)
{
    return own ? own : fallback;
}

static bool refused_quota(struct exchange *x, size_t length)
{
    const struct server_config *c = &x->r.server->config;
    const struct apikey *k = x->r.key;
    struct quota *q = x->r.server->quota;
    struct quota_limits limits = {c->default_rpm, c->default_tpm, c->default_concurrent};
    if (k)
        limits = (struct quota_limits){or_default(k->rpm, limits.rpm), or_default(k->tpm, limits.tpm),
                                       or_default(k->concurrent, limits.concurrent)};
    if (x->route->body == ROUTE_NO_BODY || !(limits.rpm || limits.tpm || limits.concurrent))
        return false;
    char name[QUOTA_NAME_MAX + APIKEY_NAME_MAX];
    if (k)
        snprintf(name, sizeof name, "%s", k->name);
    else
        quota_address(x->r.peer, name);
    struct quota_account *account = NULL;
    struct quota_state requests, tokens;
    err e = {0};
    int64_t now = clock_ns();
    x->estimate = estimate_tokens(x, length);
    err_code rc = quota_take(q, name, &limits, x->estimate, now, &account, &e);
    atomic_store(&x->quota, account);
    quota_say(q, name, now, &requests, &tokens);
    set_limit_headers(x, "requests", &requests);
    set_limit_headers(x, "tokens", &tokens);
    if (rc)
        reply_error(&x->r, &e);
    return rc != ERR_OK;
}

// Everything that can be said before the body; the order is from who may speak at all to what is said.
static void judge(struct exchange *x, size_t length)
{
    err e = {0};
    if (uri_parse(&x->r.arena, x->target, &x->uri, &e)) {
        refuse(x, 400, NULL, &e);
        return;
    }
    x->r.path = x->uri.path;
    unsigned allow = 0;
    if (refused_host(x))
        return;
    x->route = routes_find(x->r.server->config.routes, x->r.method, x->r.path, &x->r.tail, &allow);
    if (!strcmp(x->r.method, "OPTIONS") && (allow || !strcmp(x->r.path, "*"))) {
        cors_preflight(x, allow);
        return;
    }
    if (admin_hides(x)) {
        x->route = NULL;
        allow = 0;
    }
    if (!x->route) {
        refuse_route(x, allow);
        return;
    }
    if (refused_origin(x) || refused_admin(x) || refused_change(x) || refused_key(x) || refused_draining(x) || refused_not_built(x) ||
        refused_type(x))
        return;
    if (!refused_size(x, length))
        (void)refused_quota(x, length);
}

static size_t content_length(const struct exchange *x)
{
    const char *v = header(x, "Content-Length");
    if (!v)
        return 0;
    return strlen(v) > 18 ? SIZE_MAX : (size_t)strtoull(v, NULL, 10);
}

// As it can be logged: MHD takes any bytes for a method.
static const char *method_text(struct exchange *x, const char *method)
{
    char *text = arena_strndup(&x->r.arena, method, strnlen(method, 32));
    for (char *p = text; *p; p++)
        *p = *p > ' ' && *p < 0x7f ? *p : '?';
    return text;
}

static enum MHD_Result begin(struct exchange *x, struct MHD_Connection *mhd, const char *method, const char *version)
{
    x->r.method = method_text(x, method);
    if (x->conn->overrun)
        return MHD_NO;  // a part of what came was thrown away
    copy_headers(x, mhd);
    take_request_id(x);
    take_trace(x);
    if (refused_head(x, version))
        return queue_answer(x);
    x->cors = cors_allowed(x);
    size_t length = content_length(x);
    judge(x, length);
    bool unread = length > REFUSED_BODY_MAX || header(x, "Transfer-Encoding") || header(x, "Expect");
    if (has_answer(x) && unread)
        return queue_answer(x);
    x->phase = PHASE_BODY;
    return MHD_YES;
}

// ---- the body

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
    struct conn *c = x->conn;
    if (x->overflow) {
        x->overflow += n;
        return x->overflow > OVERFLOW_MAX ? MHD_NO : MHD_YES;
    }
    if (has_answer(x))
        return MHD_YES;  // refused; its body is small
    err e = {0};
    if (x->r.upload ? body_add_upload(x, data, n, &e) : body_add(x, data, n, &e)) {
        bool large = e.code == ERR_TOO_LARGE;
        x->status = large ? 413 : 503;
        conn_send_error(c, x->status, large ? "Content Too Large" : "Service Unavailable",
                        large ? "request_too_large" : "server_is_overloaded", e.text);
        x->overflow = n;
        return MHD_YES;
    }
    c->deadline_ns = x->begun_ns + (int64_t)x->r.server->config.header_timeout_s * 1000000000 +
                     (int64_t)(x->r.body_len / BODY_RATE) * 1000000000;
    return MHD_YES;
}

static enum MHD_Result call_handler(struct exchange *x)
{
    x->phase = PHASE_HANDLER;
    exchange_ref(x);
    x->taken = x->in_handler = true;
    x->route->handler(&x->r);
    x->in_handler = false;
    if (has_answer(x))
        return queue_answer(x);
    suspend(x);
    return MHD_YES;
}

static enum MHD_Result after_parse(struct exchange *x)
{
    if (!x->parse_error.code)
        return call_handler(x);
    reply_error_code(&x->r, &x->parse_error, NULL);
    return queue_answer(x);
}

static void parse_work(uv_work_t *w)
{
    struct exchange *x = w->data;
    body_parse(x);
}

static void parse_done(uv_work_t *w, int status)
{
    struct exchange *x = w->data;
    (void)status;
    x->parsed = true;
    if (x->conn) {
        conn_resume(x->conn);
        loop_drive_wanted(x->r.server);
    }
    exchange_unref(x);
}

static enum MHD_Result body_complete(struct exchange *x)
{
    x->conn->deadline_ns = 0;
    x->r.received_ns = clock_ns();
    if (x->overflow)
        return MHD_NO;
    if (has_answer(x) || refused_draining(x))
        return queue_answer(x);
    struct quota_account *account = atomic_load(&x->quota);
    if (account && !x->estimate && (x->estimate = estimate_tokens(x, x->r.body_len)))
        quota_spend(account, x->estimate);
    if (x->r.upload && !x->parse_error.code)
        (void)!upload_finish(x->r.upload, &x->parse_error);
    if (x->route->body != ROUTE_JSON)
        return after_parse(x);
    x->phase = PHASE_PARSE;
    if (x->r.body_len <= JSON_INLINE_MAX) {
        body_parse(x);
        return after_parse(x);
    }
    x->work.data = exchange_ref(x);
    if (uv_queue_work(&x->r.server->loop, &x->work, parse_work, parse_done)) {
        exchange_unref(x);
        return MHD_NO;
    }
    suspend(x);
    return MHD_YES;
}

// After a resume: a parsed body or an answer.
static enum MHD_Result resumed(struct exchange *x)
{
    if (x->left)
        return MHD_NO;
    if (has_answer(x))
        return queue_answer(x);
    if (x->parsed && x->phase == PHASE_PARSE)
        return after_parse(x);
    suspend(x);
    return MHD_YES;
}

enum MHD_Result http_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                            const char *version, const char *data, size_t *data_size, void **con_cls)
{
    struct exchange *x = *con_cls;
    (void)cls, (void)url;
    if (!x || !x->conn)
        return MHD_NO;
    switch (x->phase) {
    case PHASE_LINE:
        return begin(x, mhd, method, version);
    case PHASE_BODY:
        if (*data_size == 0)
            return body_complete(x);
        size_t n = *data_size;
        *data_size = 0;
        return take_body(x, data, n);
    default:
        return resumed(x);
    }
}
