// Request targets, queries, Host values and header lines, as any client may send them.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "server/auth.h"
#include "server/guard.h"
#include "server/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const char *text)
{
    struct arena a = {0};
    struct uri u;
    err e = {0};
    if (!uri_parse(&a, text, &u, &e)) {
        if (!utf8_valid(u.path, strlen(u.path)) || (u.path[0] != '/' && u.path[0] != '*'))
            abort();
        for (const char *p = u.path; *p; p++)
            if ((unsigned char)*p < 0x20)
                abort();
        (void)uri_query(&a, u.query, "stream");
    }
    arena_done(&a);
}

// The text's lines as headers, split at the first ':'.
static void check_headers(char *text)
{
    struct header h[64];
    int n = 0;
    for (char *line = text; line && n < 64;) {
        char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        if (end)
            *end = 0;
        if (colon && (!end || colon < end)) {
            *colon = 0;
            h[n++] = (struct header){line, colon + 1, strlen(line), strlen(colon + 1)};
        }
        line = end ? end + 1 : NULL;
    }
    err e = {0};
    int status = guard_headers(h, n, true, 4096, &e);
    const char *length = guard_find(h, n, "content-length");
    if (!status && length && guard_find(h, n, "transfer-encoding"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"box.local"};
    static const struct auth auth = {.hosts = names, .nhosts = 1};
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    check_target(text);
    (void)auth_host_ok(&auth, text);
    (void)guard_is_json(text);
    (void)auth_bearer(text);
    check_headers(text);
    free(text);
    return 0;
}
