// metrics.h - the engine's and the server's numbers as Prometheus text (format 0.0.4). Loop thread.
//
//     struct exposition *x = metrics_open(routes, max_running);
//     metrics_set_models(x, models, n);               // names and numbers outlive x
//     metrics_answered(x, route, 200);
//     text = metrics_render(x, &now, false);          // a buffer of x's, until the next call
//
// A page costs the same however much was served: it reads each number once, takes only the budget's lock and asks the kernel for two
// things. Routers read it twenty times a second and take the first series of a name only, so their gauges come first and
// are one series each, for all models together; model_name is then "*" unless there is one model.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"

struct exposition;
struct metrics;
struct request;
struct route;
struct server;

struct metrics_model {
    const char *name;
    const struct metrics *numbers;
};

// What a page says of this moment.
struct metrics_now {
    int64_t now_ns, heartbeat_ns;  // heartbeat_ns 0: there is no engine
    int connections;
    bool draining;
    struct engine_memory memory;  // total 0: there is no engine
};

struct exposition *metrics_open(const struct route *routes, int max_running);
void metrics_close(struct exposition *x);
void metrics_set_models(struct exposition *x, const struct metrics_model *models, int n);
void metrics_answered(struct exposition *x, const struct route *route, int status);  // route NULL: none
void metrics_refused(struct exposition *x, err_code why);  // counts refusals for want of room, quota or time
const struct buf *metrics_render(struct exposition *x, const struct metrics_now *now, bool router_only);

// Of all models together.
int64_t metrics_running(const struct exposition *x);
int64_t metrics_waiting(const struct exposition *x);

// The handler of /metrics; "?set=router": the router's gauges only.
void metrics_get(struct request *r);
// The models the engine has now, for s's page.
void metrics_find_models(struct server *s);
