// The table of routes.def.
#include "server/endpoints.h"

#include <stddef.h>

#define ROUTE(method, path, auth, body, handler) void handler(struct request *r);
#define MISSING(path)
#include "server/routes.def"
#undef ROUTE
#undef MISSING

const struct route endpoints[] = {
#define ROUTE(method, path, auth, body, handler) {method, path, ROUTE_##auth, ROUTE_##body, handler},
#define MISSING(path) {"*", path, ROUTE_KEY, ROUTE_NOT_BUILT, NULL},
#include "server/routes.def"
    {NULL, NULL, ROUTE_OPEN, ROUTE_NO_BODY, NULL},
};
