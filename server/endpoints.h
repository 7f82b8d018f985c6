// endpoints.h - the daemon's table of routes, made from routes.def. Apart from routes.c, so that a test can serve its
// own.
#pragma once

#include "server/routes.h"

extern const struct route endpoints[];  // ends with a NULL path; what server_config.routes is given
