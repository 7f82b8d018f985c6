// health.h - handlers of the probes. They never wait and need no key.
//
//     /livez             the process answers and its scheduler moves: restart it when this fails
//     /readyz, /health   every model is loaded and the server is not shutting down: send it requests
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct engine_stats;
struct model_info;
struct request;

void health_live(struct request *r);
void health_ready(struct request *r);
void health_status(struct request *r);
void health_version(struct request *r);

// ERR_OK, or why no requests should be sent here (ERR_DRAINING, ERR_LOADING).
MUST_CHECK err_code health_readiness(bool draining, const struct model_info *models, int n, err *e);
// True when the scheduler has work and has not gone round for two minutes.
bool health_stalled(const struct engine_stats *stats, int64_t now_ns);
