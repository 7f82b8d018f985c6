// routes.h - which handler answers which path. One line a route in routes.def (endpoints.c makes the table).
#pragma once

#include <stdbool.h>

struct request;

enum route_auth {
    ROUTE_OPEN,     // answered without a key, on every listener (probes)
    ROUTE_METRICS,  // without a key, on the admin listener if there is one
    ROUTE_ADMIN,    // with the admin key (server.h)
    ROUTE_CHANGE,   // changes the server for everybody: with the admin key where there are keys; on every listener
    ROUTE_KEY,
};
enum route_body {
    ROUTE_NO_BODY,
    ROUTE_JSON,       // parsed before the handler runs, off the loop when it is big
    ROUTE_UPLOAD,     // multipart/form-data, taken apart as it arrives (upload.h)
    ROUTE_NOT_BUILT,  // a known address that this build does not serve: 501 at once; the handler is NULL
};

struct route {
    const char *method;  // "*": any
    const char *path;  // "/v1/models/*" matches the rest (at least one character), slashes included
    enum route_auth auth;
    enum route_body body;
    void (*handler)(struct request *r);
};

// Looks in a table that ends with a NULL path. HEAD finds GET. NULL: no such path (*ret_allow is 0) or a path without
// this method (*ret_allow has a bit for each method it has).
const struct route *routes_find(const struct route *table, const char *method, const char *path, const char **ret_tail,
                                unsigned *ret_allow);

// For an address of llama-server, vLLM, Ollama or Anthropic the one that is nearest to it here; NULL: none is known.
const char *routes_namesake(const char *path);

// "GET, HEAD, OPTIONS" from the bits; out has room for ROUTES_ALLOW_MAX bytes.
enum { ROUTES_ALLOW_MAX = 64 };
void routes_allow_text(unsigned allow, char *out);
bool routes_method_known(const char *method);
