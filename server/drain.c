// drain.c - see drain.h.
#include "server/drain.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "server/conn.h"
#include "server/exchange.h"
#include "server/listen.h"
#include "server/loop.h"
#include "server/notify.h"
#include "server/reply.h"
#include "server/state.h"

enum { FLUSH_MS = 500, HALF_REQUEST_MS = 5000, DRAIN_POLL_MS = 20 };

static void set_stage(struct server *s, enum drain_stage stage, int64_t wait_ms)
{
    s->stage = stage;
    s->stage_deadline_ns = clock_ns() + wait_ms * 1000000;
}

void drain_stop_listening(struct server *s, bool admin_too)
{
    for (int i = 0; i < s->nlisteners; i++) {
        struct listener *l = &s->listeners[i];
        if (l->admin && !admin_too)
            continue;
        if (l->daemon && l->fd >= 0)
            (void)MHD_quiesce_daemon(l->daemon);
        listen_close(l);
    }
}

// Connections somebody waits for.
static int busy(const struct server *s)
{
    int n = 0;
    for (const struct conn *c = s->conns; c; c = c->next)
        n += !c->listener->admin;
    return n;
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
    set_stage(s, STAGE_ABORTED, FLUSH_MS);
    loop_drive_wanted(s);
}

void drain_force(struct server *s)
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
    set_stage(s, STAGE_FORCED, FLUSH_MS);
    loop_drive_wanted(s);
}

// From now on nothing new is begun.
static void refuse_new(struct server *s)
{
    atomic_store(&s->draining, true);
    log_info("shutting down: %d connections open", s->nconns);
    if (s->engine)
        engine_drain(s->engine);
    drain_stop_listening(s, false);
    set_stage(s, STAGE_DRAINING, (int64_t)s->config.drain_timeout_s * 1000);
    int64_t soon_ns = clock_ns() + (int64_t)HALF_REQUEST_MS * 1000000;
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->listener->admin)
            continue;
        if (!c->x)
            shutdown(c->fd, SHUT_RD);  // idle: MHD reads the end and closes
        else if (c->deadline_ns > soon_ns)
            c->deadline_ns = soon_ns;  // what it asks for would be refused
    }
}

static void on_drain(uv_timer_t *h)
{
    struct server *s = h->data;
    if (s->stage != STAGE_GRACE && busy(s) == 0) {
        uv_stop(&s->loop);
        return;
    }
    if (clock_ns() < s->stage_deadline_ns)
        return;
    if (s->stage == STAGE_GRACE) {
        refuse_new(s);
    } else if (s->stage == STAGE_DRAINING) {
        log_warn("%d connections were still busy after %d s; ending them", busy(s), s->config.drain_timeout_s);
        abort_requests(s);
    } else if (s->stage == STAGE_ABORTED) {
        drain_force(s);
    } else {
        uv_stop(&s->loop);
    }
}

static void begin(struct server *s, bool with_grace)
{
    atomic_store(&s->unready, true);
    notify_send("STOPPING=1\nSTATUS=Shutting down");
    if (with_grace && s->config.drain_grace_s > 0) {
        log_info("no longer ready; requests are accepted for %d s more", s->config.drain_grace_s);
        set_stage(s, STAGE_GRACE, (int64_t)s->config.drain_grace_s * 1000);
    } else {
        refuse_new(s);
    }
    uv_timer_start(&s->drain, on_drain, 0, DRAIN_POLL_MS);
}

void drain_signal(struct server *s, bool with_grace)
{
    if (s->stage == STAGE_SERVING) {
        begin(s, with_grace);
    } else if (s->stage == STAGE_GRACE || s->stage == STAGE_DRAINING) {
        if (s->stage == STAGE_GRACE)
            refuse_new(s);
        abort_requests(s);
    }
}

bool drain_set_unready(struct server *s, bool unready)
{
    if (s->stage != STAGE_SERVING)
        return false;
    if (atomic_exchange(&s->unready, unready) != unready)
        log_info(unready ? "asked to be unready; requests are served as before" : "ready again");
    return true;
}

const char *drain_state(const struct server *s)
{
    static const char *const names[] = {"serving", "grace", "draining", "aborted", "aborted"};
    return s->stage == STAGE_SERVING && server_unready(s) ? "unready" : names[s->stage];
}
