// Answers: from any thread into the exchange (under its lock), then on the loop thread into an MHD response. The one
// place that maps err_code to an HTTP status.
#include "server/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/exchange.h"
#include "server/sse.h"
#include "server/state.h"
#include "server/stream.h"

static const char internal_error[] =
    "{\"error\":{\"message\":\"The answer could not be written as JSON.\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":null}}";

enum { RETRY_MS = 1000 };  // when nothing better is known
enum retry { RETRY_UNSAID, RETRY_SOON, RETRY_NEVER };

struct status_row {
    int status;
    const char *type, *code;
    enum retry retry;
};

static const struct status_row rows[] = {
    [ERR_OK] = {500, "server_error", NULL, RETRY_UNSAID},
    [ERR_INVALID] = {400, "invalid_request_error", "invalid_value", RETRY_UNSAID},
    [ERR_NOT_FOUND] = {404, "invalid_request_error", "model_not_found", RETRY_UNSAID},
    [ERR_UNSUPPORTED] = {400, "invalid_request_error", "unsupported_parameter", RETRY_UNSAID},
    [ERR_TOO_LARGE] = {413, "invalid_request_error", "request_too_large", RETRY_NEVER},
    [ERR_CONTEXT] = {400, "invalid_request_error", "context_length_exceeded", RETRY_UNSAID},
    [ERR_CORRUPT] = {500, "server_error", NULL, RETRY_NEVER},
    [ERR_IO] = {500, "server_error", NULL, RETRY_UNSAID},
    [ERR_MEMORY] = {500, "server_error", NULL, RETRY_NEVER},
    [ERR_QUOTA] = {429, "rate_limit_error", "rate_limit_exceeded", RETRY_SOON},
    [ERR_BUSY] = {503, "service_unavailable_error", "server_is_overloaded", RETRY_SOON},
    [ERR_LOADING] = {503, "service_unavailable_error", "server_is_overloaded", RETRY_SOON},
    [ERR_DRAINING] = {503, "service_unavailable_error", "server_is_overloaded", RETRY_SOON},
    [ERR_TIMEOUT] = {504, "server_error", "timeout", RETRY_UNSAID},
    [ERR_LATE] = {503, "service_unavailable_error", "server_is_overloaded", RETRY_SOON},
    [ERR_CANCELLED] = {499, "invalid_request_error", "cancelled", RETRY_NEVER},
    [ERR_INTERNAL] = {500, "server_error", NULL, RETRY_UNSAID},
};

static const struct status_row *row_of(err_code code)
{
    return &rows[(unsigned)code < sizeof rows / sizeof *rows ? code : ERR_INTERNAL];
}

int reply_status_of(err_code code, const char **ret_type, const char **ret_code)
{
    const struct status_row *row = row_of(code);
    *ret_type = row->type;
    *ret_code = row->code;
    return row->status;
}

// A code that names a field is only said when a field is named.
static const char *default_code(const err *e)
{
    if ((e->code == ERR_INVALID || e->code == ERR_UNSUPPORTED) && !e->param[0])
        return NULL;
    return row_of(e->code)->code;
}

// Text that quotes a client or a file may hold bytes that are no UTF-8; jansson refuses those.
static json_t *json_text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    size_t n = strlen(s);
    char *copy = mem_strndup(s, n);
    for (size_t i = 0; i < n; i++)
        if (copy[i] & 0x80)
            copy[i] = '?';
    j = json_string(copy);
    free(copy);
    return j;
}

static json_t *error_object(const err *e, const char *type, const char *code)
{
    json_t *inner = json_object(), *outer = json_object();
    json_object_set_new(inner, "message", json_text(e->text[0] ? e->text : err_name(e->code)));
    json_object_set_new(inner, "type", json_string(type));
    json_object_set_new(inner, "param", e->param[0] ? json_text(e->param) : json_null());
    json_object_set_new(inner, "code", code ? json_string(code) : json_null());
    json_object_set_new(outer, "error", inner);
    return outer;
}

json_t *reply_error_json(const err *e)
{
    return error_object(e, row_of(e->code)->type, default_code(e));
}

static char *dump(json_t *j, size_t *ret_len)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(j);
    if (!text)
        text = mem_strdup(internal_error);
    *ret_len = strlen(text);
    return text;
}

// Stores the answer unless there is one. body is taken.
static void store(struct exchange *x, int status, const char *type, char *body, size_t len)
{
    pthread_mutex_lock(&x->lock);
    if (!x->answered) {
        x->reply_status = status;
        x->reply_type = type;
        x->reply_body = body;
        x->reply_len = len;
        x->answered = true;
        body = NULL;
    }
    pthread_mutex_unlock(&x->lock);
    free(body);
}

// Both the handler's answers and refusals made before a handler was called end here.
static void answer(struct exchange *x, int status, const char *type, char *body, size_t len)
{
    if (!x->taken) {
        store(x, status, type, body, len);
        return;
    }
    if (exchange_end(x)) {
        store(x, status, type, body, len);
        exchange_post(x);
    } else {
        free(body);
    }
    exchange_unref(x);
}

void reply_json(struct request *r, int status, struct json_t *body)
{
    size_t len;
    char *text = dump(body, &len);
    answer(exchange_of(r), text && !strcmp(text, internal_error) ? 500 : status, "application/json", text, len);
}

void reply_text(struct request *r, int status, const char *content_type, const char *text, size_t len)
{
    char *copy = mem_try(len + 1);
    if (!copy) {
        err e = {0};
        err_set(&e, ERR_MEMORY, "No memory for an answer of %zu bytes.", len);
        reply_error(r, &e);
        return;
    }
    memcpy(copy, text, len);
    answer(exchange_of(r), status, arena_strdup(&r->arena, content_type), copy, len);
}

// In whole seconds, rounded up, and exactly.
static void set_retry_after(struct request *r, int ms)
{
    request_set_header(r, "retry-after", arena_printf(&r->arena, "%d", (ms + 999) / 1000));
    request_set_header(r, "retry-after-ms", arena_printf(&r->arena, "%d", ms));
}

static void set_retry_headers(struct request *r, int status, const err *e)
{
    enum retry retry = row_of(e->code)->retry;
    if (retry == RETRY_SOON || status == 429 || status == 503)
        set_retry_after(r, e->retry_ms > 0 ? e->retry_ms : RETRY_MS);
    if (retry == RETRY_NEVER || status == 413 || status == 501)
        request_set_header(r, "x-should-retry", "false");
    if (e->code == ERR_LATE)
        request_set_header(r, "x-llm-d-request-dropped-reason", "deadline");
}

// For the log and the counters; code is a literal or the request's.
static void note_failure(struct exchange *x, const char *code, err_code why)
{
    pthread_mutex_lock(&x->lock);
    x->error_code = code;
    x->failure = why;
    pthread_mutex_unlock(&x->lock);
}

void reply_problem(struct request *r, int status, const char *type, const char *code, const err *e)
{
    set_retry_headers(r, status, e);
    note_failure(exchange_of(r), code ? code : type, e->code);
    if (status >= 500)
        request_problem(r, e);
    reply_json(r, status, error_object(e, type, code));
}

void reply_error_code(struct request *r, const err *e, const char *code)
{
    reply_problem(r, row_of(e->code)->status, row_of(e->code)->type, code, e);
}

void reply_error(struct request *r, const err *e)
{
    reply_error_code(r, e, default_code(e));
}

static void start_stream(struct exchange *x, const char *type, bool is_bytes)
{
    pthread_mutex_lock(&x->lock);
    if (!x->answered) {
        x->answered = x->is_stream = true;
        x->is_bytes = is_bytes;
        x->ring_max = is_bytes ? BYTES_RING_MAX : SSE_RING_MAX;
        x->reply_status = 200;
        x->reply_type = type;
    }
    pthread_mutex_unlock(&x->lock);
    exchange_post(x);
}

struct sse *reply_sse(struct request *r)
{
    start_stream(exchange_of(r), "text/event-stream; charset=utf-8", false);
    return (struct sse *)exchange_of(r);
}

struct stream *reply_stream(struct request *r, const char *content_type)
{
    start_stream(exchange_of(r), arena_strdup(&r->arena, content_type), true);
    return (struct stream *)exchange_of(r);
}

void reply_abort(struct exchange *x, const err *e)
{
    bool said = exchange_ended(x, e);
    exchange_gone(x);
    x->given_up = true;
    size_t len;
    char *text = dump(reply_error_json(e), &len);
    pthread_mutex_lock(&x->lock);
    bool stream = x->is_stream;
    pthread_mutex_unlock(&x->lock);
    if (stream) {
        sse_abort(x, said ? NULL : text, len);
        free(text);
    } else {
        store(x, row_of(e->code)->status, "application/json", text, len);
    }
}

static void add(struct MHD_Response *m, const char *name, const char *value)
{
    (void)MHD_add_response_header(m, name, value);  // refused only when it could split the header block
}

static void add_cors(struct exchange *x, struct MHD_Response *m)
{
    if (x->r.server->auth.norigins)
        add(m, "vary", "Origin");
    if (!x->cors)
        return;
    add(m, "access-control-allow-origin", guard_find(x->headers, x->nheaders, "Origin"));
    add(m, "access-control-expose-headers", "x-request-id, retry-after, retry-after-ms, openai-processing-ms, x-should-retry, x-ignored-fields, "
        "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
        "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
}

struct MHD_Response *reply_response(struct exchange *x)
{
    struct MHD_Response *m;
    x->status = x->reply_status;
    if (x->is_stream) {
        m = stream_response(x);
        add(m, "cache-control", "no-cache");
        add(m, "x-accel-buffering", "no");
    } else {
        x->bytes = x->reply_len;
        m = MHD_create_response_from_buffer(x->reply_len, x->reply_body, MHD_RESPMEM_MUST_FREE);
        x->reply_body = NULL;
    }
    if (x->reply_type)
        add(m, "content-type", x->reply_type);
    add(m, "x-request-id", x->r.id);
    if (*x->trace.trace_id) {
        char text[TRACE_TEXT];
        trace_text(&x->trace, text);
        add(m, "traceresponse", text);
    }
    char ms[32];
    snprintf(ms, sizeof ms, "%lld", (long long)((clock_ns() - x->begun_ns) / 1000000));
    add(m, "openai-processing-ms", ms);
    add_cors(x, m);
    pthread_mutex_lock(&x->lock);
    for (struct out_header *h = x->out_headers; h; h = h->next)
        add(m, h->name, h->value);
    pthread_mutex_unlock(&x->lock);
    if (x->given_up && !x->is_stream) {  // the handler set nothing
        bool soon = x->status == 503;
        add(m, soon ? "retry-after" : "x-should-retry", soon ? "1" : "false");
        if (soon)
            add(m, "retry-after-ms", "1000");
    }
    if (server_draining(x->r.server) || x->conn->overrun)
        add(m, "connection", "close");
    return m;
}
