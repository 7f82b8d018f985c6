// health.h - handlers of the probes. They need no key, wait for nothing and touch nothing that a step of the engine holds.
//
//     /livez             the process answers and its scheduler moves: restart it when this fails
//     /readyz            every model that was to be loaded is, and nobody asked for the requests to go elsewhere
//     /health, aliases   as /readyz, or with health_is_live as /livez
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct model_info;
struct request;

void health_live(struct request *r);
void health_ready(struct request *r);
void health_status(struct request *r);
void health_version(struct request *r);

// ERR_OK, or why no requests should be sent here (ERR_DRAINING, ERR_LOADING).
MUST_CHECK err_code health_readiness(bool draining, const struct model_info *models, int n, err *e);
// True when the scheduler, which goes round twice a second even when it is idle, has not for two minutes.
bool health_stalled(int64_t heartbeat_ns, int64_t now_ns);
