// Preflight answers echo the headers a browser asks about: SDKs send many of their own (x-stainless-*).
#include "server/cors.h"

#include <string.h>

#include "server/state.h"

bool cors_allowed(const struct exchange *x)
{
    const char *origin = guard_find(x->headers, x->nheaders, "Origin");
    return origin && auth_origin_ok(&x->r.server->auth, origin);
}

static bool is_header_list(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ");
    return *s && !s[n] && n <= 4096;
}

void cors_preflight(struct exchange *x, unsigned allow)
{
    struct request *r = &x->r;
    char methods[ROUTES_ALLOW_MAX] = "GET, HEAD, POST, OPTIONS";
    if (allow)
        routes_allow_text(allow, methods);
    request_set_header(r, "allow", methods);
    if (x->cors) {
        const char *wanted = request_header(r, "Access-Control-Request-Headers");
        request_set_header(r, "access-control-allow-methods", methods);
        request_set_header(r, "access-control-allow-headers",
                           wanted && is_header_list(wanted) ? wanted : "authorization, content-type");
        request_set_header(r, "access-control-max-age", "600");
        if (request_header(r, "Access-Control-Request-Private-Network"))
            request_set_header(r, "access-control-allow-private-network", "true");
    }
    reply_text(r, 204, "", "", 0);
}
