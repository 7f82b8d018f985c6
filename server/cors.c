// Preflight answers echo the headers a browser asks about: SDKs send many of their own (x-stainless-*).
#include "server/cors.h"

#include <string.h>
#include <strings.h>

#include "server/state.h"

bool cors_allowed(const struct exchange *x)
{
    const char *origin = guard_find(x->headers, x->nheaders, "Origin");
    return origin && auth_origin_ok(&x->r.server->auth, origin);
}

// Whether a page that this server gave out sends it; Sec-Fetch-Site knows better than Host where a proxy stands between.
static bool is_own_page(const struct exchange *x, const char *origin)
{
    const char *site = guard_find(x->headers, x->nheaders, "Sec-Fetch-Site");
    const char *host = guard_find(x->headers, x->nheaders, "Host"), *authority = strstr(origin, "://");
    if (site && !strcasecmp(site, "same-origin"))
        return true;
    return host && *host && authority && !strcasecmp(authority + 3, host);
}

bool cors_refuses(const struct exchange *x)
{
    const char *origin = guard_find(x->headers, x->nheaders, "Origin");
    bool simple = (x->route->body == ROUTE_NO_BODY || x->route->body == ROUTE_UPLOAD) && !request_given_key(&x->r);
    return origin && simple && !strcmp(x->r.method, "POST") && !x->cors && !is_own_page(x, origin);
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
