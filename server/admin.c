// admin.c - see admin.h. Loop thread.
#include "server/admin.h"

#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "server/drain.h"
#include "server/metrics.h"
#include "server/reload.h"
#include "server/state.h"
#include "server/version.h"

bool admin_hides(const struct exchange *x)
{
    const struct server *s = x->r.server;
    bool here = x->conn->listener->admin, by_name = !strncmp(x->r.path, "/admin/", 7);
    switch (x->route ? x->route->auth : by_name ? ROUTE_ADMIN : here ? ROUTE_KEY : ROUTE_OPEN) {
    case ROUTE_OPEN:
    case ROUTE_CHANGE:
        return false;
    case ROUTE_METRICS:
        return !here && s->has_admin;
    case ROUTE_ADMIN:
        return !here && (s->has_admin || !s->config.admin_key);
    case ROUTE_KEY:
        break;
    }
    return here;
}

bool admin_key_is(const char *given, const char *key)
{
    size_t n = strlen(given), m = strlen(key);
    volatile unsigned char diff = n != m;
    for (size_t i = 0; i < m; i++)
        diff = (unsigned char)(diff | (key[i] ^ (n ? given[i % n] : 1)));
    return diff == 0;
}

static void reply_state(struct request *r)
{
    reply_json(r, 200, json_pack("{s:s}", "status", drain_state(r->server)));
}

static void set_unready(struct request *r, bool unready)
{
    if (drain_set_unready(r->server, unready)) {
        reply_state(r);
        return;
    }
    err e = {0};
    err_set(&e, ERR_DRAINING, "The server is shutting down.");
    reply_problem(r, 409, "invalid_request_error", "shutting_down", &e);
}

void admin_drain(struct request *r)
{
    set_unready(r, true);
}

void admin_undrain(struct request *r)
{
    set_unready(r, false);
}

void admin_reload(struct request *r)
{
    reload_start(r->server);
    reply_json(r, 202, json_pack("{s:s}", "status", "reloading"));
}

static json_int_t count_of(const _Atomic int64_t *gauge)
{
    return (json_int_t)atomic_load_explicit(gauge, memory_order_relaxed);
}

static json_t *model_status(struct engine *en, const struct model_info *info)
{
    static const char *const states[] = {[MODEL_LOADING] = "loading", [MODEL_READY] = "ready", [MODEL_FAILED] = "failed",
                                         [MODEL_UNLOADED] = "unloaded", [MODEL_UNLOADING] = "unloading"};
    const struct metrics *m = engine_metrics(en, info->name);
    json_t *o = json_pack("{s:s%, s:s, s:s}", "id", info->name, strlen(info->name), "family", info->family, "format",
                          info->format);
    if (!o)
        o = json_object();  // a name that is no text
    json_object_set_new(o, "state", json_string(states[info->state]));
    json_object_set_new(o, "context", json_integer(info->context));
    if (!m)
        return o;
    json_object_set_new(o, "running", json_integer(count_of(&m->running)));
    json_object_set_new(o, "waiting", json_integer(count_of(&m->waiting)));
    json_object_set_new(o, "weight_bytes", json_integer(count_of(&m->weight_bytes)));
    json_object_set_new(o, "kv_bytes", json_integer(count_of(&m->kv_bytes)));
    json_object_set_new(o, "kv_pages", json_integer(count_of(&m->kv_pages)));
    json_object_set_new(o, "kv_pages_used", json_integer(count_of(&m->kv_pages_used)));
    json_object_set_new(o, "kv_pages_cached", json_integer(count_of(&m->kv_pages_cached)));
    return o;
}

static json_t *models_status(struct request *r, struct engine *en)
{
    json_t *list = json_array();
    int n = en ? engine_models(en, NULL, 0) : 0;
    struct model_info *infos = arena_alloc(&r->arena, (size_t)(n + 1) * sizeof *infos);
    if (n > 0)
        (void)engine_models(en, infos, n);
    for (int i = 0; i < n; i++)
        if (!infos[i].parent[0])  // an alias would be its model twice
            json_array_append_new(list, model_status(en, &infos[i]));
    return list;
}

static json_t *connections_status(const struct server *s)
{
    int busy = 0, streams = 0, admin = 0;
    for (const struct conn *c = s->conns; c; c = c->next) {
        busy += c->x != NULL;
        streams += c->x && c->x->streaming;
        admin += c->listener->admin;
    }
    return json_pack("{s:i, s:i, s:i, s:i, s:i}", "open", s->nconns, "with_a_request", busy, "streaming", streams, "admin",
                     admin, "limit", s->config.max_connections);
}

void admin_status(struct request *r)
{
    struct server *s = r->server;
    json_t *o = json_pack("{s:s, s:s}", "status", drain_state(s), "version", VERSION);
    json_object_set_new(o, "running", json_integer(metrics_running(s->exposition)));
    json_object_set_new(o, "waiting", json_integer(metrics_waiting(s->exposition)));
    if (s->engine)
        json_object_set_new(o, "heartbeat_age_s",
                            json_real((double)(clock_ns() - engine_heartbeat_ns(s->engine)) * 1e-9));
    json_object_set_new(o, "connections", connections_status(s));
    json_object_set_new(o, "body_bytes", json_integer((json_int_t)(s->body_bytes + s->upload_bytes)));
    json_object_set_new(o, "models", models_status(r, s->engine));
    reply_json(r, 200, o);
}
