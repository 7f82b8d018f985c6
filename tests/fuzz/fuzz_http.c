// Any bytes as a request target, headers and a Host: lines as HTTP/1 has them, without MHD before them. What is accepted
// must be what the rest of the server relies on: paths without control characters, one length at most.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "server/auth.h"
#include "server/guard.h"
#include "server/uri.h"

enum { MAX_HEADERS = 64 };

static void check_target(struct arena *a, const char *target)
{
    struct uri u;
    err e = {0};
    if (uri_parse(a, target, &u, &e)) {
        if (!*e.text)
            abort();
        return;
    }
    for (const char *p = u.path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            abort();
    if ((*u.path != '/' && strcmp(u.path, "*")) || !utf8_valid(u.path, strlen(u.path)))
        abort();
    const char *value = uri_query(a, u.query, "key");
    if (value && !utf8_valid(value, strlen(value)))
        abort();
}

static void check_headers(const struct header *h, int n)
{
    err e = {0};
    int status = guard_headers(h, n, true, 4096, &e);
    if (status ? !*e.text : guard_find(h, n, "Content-Length") && guard_find(h, n, "Transfer-Encoding"))
        abort();
    const char *type = guard_find(h, n, "Content-Type"), *key = guard_find(h, n, "Authorization");
    const char *host = guard_find(h, n, "Host");
    static const char *const keys[] = {"secret"}, *const hosts[] = {"models.example"};
    const struct auth auth = {.hosts = hosts, .nhosts = 1};
    static struct auth_table *table;
    if (!table && auth_read(&(struct auth_sources){.keys = keys, .nkeys = 1}, &table, &e))
        abort();
    if (type)
        (void)guard_is_json(type);
    key = key ? auth_bearer(key) : NULL;
    if (key && !auth_find_key(table, key) != !!strcmp(key, "secret"))
        abort();
    if (host && auth_host_ok(&auth, host) && strchr(host, '@'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = {0};
    char *text = arena_strndup(&a, (const char *)data, size), *save = NULL;
    struct header headers[MAX_HEADERS];
    int n = 0;
    for (size_t i = 0; i < size; i++)
        text[i] = text[i] ? text[i] : '\n';
    char *line = strtok_r(text, "\n", &save);
    if (line)
        check_target(&a, line);
    while (n < MAX_HEADERS && (line = strtok_r(NULL, "\n", &save))) {
        char *colon = strchr(line, ':');
        if (colon)
            *colon = 0;
        const char *value = colon ? colon + 1 + strspn(colon + 1, " ") : NULL;
        headers[n++] = (struct header){line, value, strlen(line), value ? strlen(value) : 0};
    }
    check_headers(headers, n);
    arena_done(&a);
    return 0;
}
