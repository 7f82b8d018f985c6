// Finding a route: exact paths first, then the longest "/*" prefix. Tables are short; a search by hand is fast enough.
#include "server/routes.h"

#include <string.h>

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"};
enum { NMETHODS = sizeof methods / sizeof *methods, ALLOW_GET = 1, ALLOW_HEAD = 2, ALLOW_OPTIONS = 64 };

static int method_index(const char *method)
{
    for (int i = 0; i < NMETHODS; i++)
        if (!strcmp(method, methods[i]))
            return i;
    return -1;
}

bool routes_method_known(const char *method)
{
    return method_index(method) >= 0;
}

// Length of the pattern that matches path, -1 when it does not.
static int match(const char *pattern, const char *path, const char **ret_tail)
{
    size_t n = strlen(pattern);
    if (n >= 2 && pattern[n - 1] == '*') {
        if (strncmp(pattern, path, n - 1) || !path[n - 1])
            return -1;
        *ret_tail = path + n - 1;
        return (int)n - 1;
    }
    *ret_tail = "";
    return strcmp(pattern, path) ? -1 : 1 << 20;
}

const struct route *routes_find(const struct route *table, const char *method, const char *path, const char **ret_tail,
                                unsigned *ret_allow)
{
    const struct route *found = NULL;
    const char *tail = "";
    int best = -1;
    unsigned allow = 0;
    const char *want = !strcmp(method, "HEAD") ? "GET" : method;
    for (const struct route *r = table; r->path; r++) {
        int length = match(r->path, path, &tail);
        if (length < 0 || length < best)
            continue;
        if (length > best) {
            best = length;
            allow = 0;
            found = NULL;
        }
        *ret_tail = tail;
        allow |= !strcmp(r->method, "*") ? ~0u : 1u << method_index(r->method);
        if (!strcmp(r->method, want) || !strcmp(r->method, "*"))
            found = r;
    }
    if (allow & ALLOW_GET)
        allow |= ALLOW_HEAD;
    *ret_allow = allow ? allow | ALLOW_OPTIONS : 0;
    return found;
}

void routes_allow_text(unsigned allow, char *out)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < NMETHODS; i++)
        if (allow & 1u << i && n + strlen(methods[i]) + 3 < ROUTES_ALLOW_MAX) {
            if (n) {
                memcpy(out + n, ", ", 2);
                n += 2;
            }
            memcpy(out + n, methods[i], strlen(methods[i]) + 1);
            n += strlen(methods[i]);
        }
}

const char *routes_namesake(const char *path)
{
    static const struct {
        const char *path, *here;
    } known[] = {
        {"/api/chat", "/v1/chat/completions"}, {"/api/embed", "/v1/embeddings"},   {"/api/embeddings", "/v1/embeddings"},
        {"/api/generate", "/v1/completions"},  {"/api/tags", "/v1/models"},        {"/api/version", "/version"},
        {"/completion", "/v1/completions"},    {"/embedding", "/v1/embeddings"},   {"/generate", "/v1/completions"},
        {"/props", "/v1/models"},              {"/v1/detokenize", "/detokenize"},  {"/v1/messages", "/v1/chat/completions"},
        {"/v1/tokenize", "/tokenize"},         {"/v1/completion", "/v1/completions"},  {"/slots", "/metrics"},
        {"/docs", "/openapi.json"},            {"/rerank", "/v1/rerank"},         {"/reranking", "/v1/rerank"},
        {"/v2/rerank", "/v1/rerank"},
        // A base URL that ends with /v1 and a client that adds it, too.
        {"/v1/v1/chat/completions", "/v1/chat/completions"}, {"/v1/v1/completions", "/v1/completions"},
        {"/v1/v1/embeddings", "/v1/embeddings"}, {"/v1/v1/models", "/v1/models"}, {"/v1/v1/responses", "/v1/responses"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(path, known[i].path))
            return known[i].here;
    return NULL;
}
