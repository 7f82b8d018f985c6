// access.c - see access.h.
#include "server/access.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/health.h"
#include "server/members.h"
#include "server/metrics.h"
#include "server/state.h"

enum { LINE_MAX_BYTES = 16 << 10, PATH_SHOWN = 512, HINT_SHOWN = 128 };

// What is said of the request, copied while its handler may still be at work.
struct facts {
    struct request_facts work;
    char problem[sizeof ((struct exchange *)0)->problem];
    const char *code;
    double ms, ttft_ms;  // ttft_ms 0: no token came
};

static struct facts look(struct exchange *x)
{
    struct facts f = {0};
    pthread_mutex_lock(&x->lock);
    f.work = x->facts;
    memcpy(f.problem, x->problem, sizeof f.problem);
    f.code = x->error_code;
    pthread_mutex_unlock(&x->lock);
    f.ms = (double)(clock_ns() - x->begun_ns) * 1e-6;
    if (f.work.first_ns > x->begun_ns)
        f.ttft_ms = (double)(f.work.first_ns - x->begun_ns) * 1e-6;
    return f;
}

static bool is_probe(const struct route *r)
{
    return r && (r->handler == health_live || r->handler == health_ready || r->handler == health_status ||
                 r->handler == health_version || r->handler == metrics_get);
}

// ---- text

static void write_text(const struct exchange *x, const struct facts *f, enum log_level level)
{
    char status[16] = "left", work[256] = "";
    const char *why = *f->problem ? f->problem : f->code ? f->code : "";  // a refusal's text may quote the request: its code only
    if (x->status)
        snprintf(status, sizeof status, "%d%s", x->status, x->left ? " left" : "");
    if (f->work.model)
        snprintf(work, sizeof work, " %.120s %d+%d tokens, %d cached, first after %.1f ms", f->work.model,
                 f->work.prompt_tokens, f->work.completion_tokens, f->work.cached_tokens, f->ttft_ms);
    log_write(level, "%s %s %.512s %s %.1f ms %llu bytes%s%s%s%s%s", x->r.id, x->r.method, *x->r.path ? x->r.path : "-",
              status, f->ms, (unsigned long long)x->bytes, *x->r.key_id ? " " : "", x->r.key_id, work,
              *why ? ": " : "", why);
}

// ---- JSON

static void add_hint(struct buf *b, const struct exchange *x, const char *name, const char *header, const char *older)
{
    const char *value = guard_find(x->headers, x->nheaders, header);
    if (!value && older)
        value = guard_find(x->headers, x->nheaders, older);
    members_text(b, name, value, HINT_SHOWN);
}

static void add_work(struct buf *b, const struct facts *f)
{
    if (f->ttft_ms > 0)
        members_number(b, "ttft_ms", f->ttft_ms, 1);
    if (!f->work.model)
        return;
    members_text(b, "model", f->work.model, HINT_SHOWN);
    members_int(b, "prompt_tokens", f->work.prompt_tokens);
    members_int(b, "cached_tokens", f->work.cached_tokens);
    members_int(b, "completion_tokens", f->work.completion_tokens);
    members_text(b, "finish", f->work.finish, HINT_SHOWN);
}

static void write_json(const struct exchange *x, const struct facts *f, enum log_level level)
{
    struct buf b;
    buf_init(&b, LINE_MAX_BYTES);
    members_text(&b, "id", x->r.id, HINT_SHOWN);
    members_text(&b, "trace_id", x->trace.trace_id, HINT_SHOWN);
    members_text(&b, "span_id", x->trace.span_id, HINT_SHOWN);
    members_text(&b, "parent_id", x->trace.parent_id, HINT_SHOWN);
    members_text(&b, "method", x->r.method, HINT_SHOWN);
    members_text(&b, "path", x->r.path, PATH_SHOWN);
    if (x->status)
        members_int(&b, "status", x->status);
    members_number(&b, "ms", f->ms, 1);
    add_work(&b, f);
    members_text(&b, "key", x->r.key_id, HINT_SHOWN);
    members_int(&b, "bytes", (long long)x->bytes);
    members_bool(&b, "left", x->left);
    members_text(&b, "code", f->code, HINT_SHOWN);
    members_text(&b, "problem", *f->problem ? f->problem : NULL, PATH_SHOWN);
    add_hint(&b, x, "fairness_id", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id");
    add_hint(&b, x, "objective", "x-llm-d-inference-objective", "x-gateway-inference-objective");
    add_hint(&b, x, "session", "x-session-id", "x-session-affinity");
    add_hint(&b, x, "slo_ttft_ms", "x-llm-d-slo-ttft-ms", NULL);
    add_hint(&b, x, "slo_tpot_ms", "x-llm-d-slo-tpot-ms", NULL);
    add_hint(&b, x, "client_timeout_s", "x-stainless-timeout", "x-stainless-read-timeout");
    if (!b.over)
        log_members(level, b.data, b.len);
    buf_done(&b);
}

void access_log(struct exchange *x)
{
    enum log_level level = is_probe(x->route) ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    if (!x->r.server->config.access_log || level > log_get_level())
        return;
    struct facts f = look(x);
    if (log_is_json())
        write_json(x, &f, level);
    else
        write_text(x, &f, level);
}
