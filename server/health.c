// Probes. Being full does not make the server unready: a router learns that from the metrics and would lose the server
// altogether otherwise.
#include "server/health.h"

#include <jansson.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/engine.h"
#include "server/request.h"
#include "server/server.h"
#include "server/version.h"

enum { STALLED_S = 120 };

static void reply_status(struct request *r, const char *status)
{
    json_t *body = json_object();
    json_object_set_new(body, "status", json_string(status));
    reply_json(r, 200, body);
}

err_code health_readiness(bool draining, const struct model_info *models, int n, err *e)
{
    if (draining)
        return err_set(e, ERR_DRAINING, "The server is draining: it should get no new requests.");
    for (int i = 0; i < n; i++) {
        if (models[i].lazy || engine_model_known(&models[i]))
            continue;  // it was loaded once, or is when it is asked for
        if (models[i].state == MODEL_LOADING)
            return err_set(e, ERR_LOADING, "Loading model '%s'.", models[i].name);
        if (models[i].state == MODEL_FAILED)
            return err_set(e, ERR_LOADING, "Model '%s' could not be loaded: %s", models[i].name, models[i].error.text);
    }
    return ERR_OK;
}

bool health_stalled(int64_t heartbeat_ns, int64_t now_ns)
{
    return now_ns - heartbeat_ns > (int64_t)STALLED_S * 1000000000;
}

static err_code heartbeat(const struct request *r, err *e)
{
    const struct engine *en = server_engine(r->server);
    if (en && health_stalled(engine_heartbeat_ns(en), clock_ns()))
        return err_set(e, ERR_INTERNAL, "The scheduler has not moved for more than %d seconds.", STALLED_S);
    return ERR_OK;
}

static err_code readiness(struct request *r, err *e)
{
    struct engine *en = server_engine(r->server);
    if (heartbeat(r, e))
        return e->code;
    int n = en ? engine_models(en, NULL, 0) : 0;
    struct model_info *models = arena_alloc(&r->arena, (size_t)(n + 1) * sizeof *models);
    if (n > 0)
        (void)engine_models(en, models, n);
    return health_readiness(server_unready(r->server), models, n, e);
}

static void reply_not_ready(struct request *r, const err *e)
{
    json_t *body = reply_error_json(e);
    json_object_set_new(body, "status", json_string(e->code == ERR_DRAINING ? "draining" : "loading"));
    json_object_set_new(body, "reason", json_string(e->text));
    request_set_header(r, "retry-after", "1");
    reply_json(r, 503, body);
}

void health_live(struct request *r)
{
    err e = {0};
    if (heartbeat(r, &e))
        reply_problem(r, 503, "server_error", "stalled", &e);
    else
        reply_status(r, "ok");
}

static void say_readiness(struct request *r, const char *good)
{
    err e = {0};
    err_code code = readiness(r, &e);
    if (code == ERR_INTERNAL)
        reply_problem(r, 503, "server_error", "stalled", &e);
    else if (code)
        reply_not_ready(r, &e);
    else
        reply_status(r, good);
}

void health_ready(struct request *r)
{
    say_readiness(r, "ready");
}

void health_status(struct request *r)
{
    if (server_settings(r->server)->health_is_live)
        health_live(r);
    else
        say_readiness(r, "ok");
}

void health_version(struct request *r)
{
    json_t *body = json_object();
    json_object_set_new(body, "version", json_string(VERSION));
    reply_json(r, 200, body);
}
