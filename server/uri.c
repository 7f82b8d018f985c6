// Request targets (RFC 9112 §3.2). Decoding happens once, after the target was split; nothing here resolves "." or
// "..", because paths are only ever compared with the route table.
#include "server/uri.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decodes s[0..n) into out (room for n + 1 bytes). False: a bad escape, a control character or not UTF-8.
static bool decode(const char *s, size_t n, bool plus, char *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)s[i];
        if (c == '%') {
            if (i + 2 >= n || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0)
                return false;
            c = hex(s[i + 1]) << 4 | hex(s[i + 2]);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f)
            return false;
        out[m++] = (char)c;
    }
    out[m] = 0;
    return utf8_valid(out, m);
}

// Length after runs of '/' were made one, in place.
static size_t squeeze(char *s, size_t n)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] != '/' || m == 0 || s[m - 1] != '/')
            s[m++] = s[i];
    s[m] = 0;
    return m;
}

static const char *skip_scheme(const char *target)
{
    if (!strncasecmp(target, "http://", 7))
        return target + 7;
    if (!strncasecmp(target, "https://", 8))
        return target + 8;
    return NULL;
}

err_code uri_parse(struct arena *a, const char *target, struct uri *ret_uri, err *e)
{
    struct uri u = {0};
    const char *host = skip_scheme(target);
    if (host) {
        size_t n = strcspn(host, "/?");
        u.authority = arena_strndup(a, host, n);
        target = host[n] == '/' ? host + n : "/";
    }
    size_t n = strcspn(target, "?#");
    u.query = target[n] == '?' ? arena_strdup(a, target + n + 1) : "";
    if (!strcmp(target, "*")) {
        u.path = "*";
        *ret_uri = u;
        return ERR_OK;
    }
    if (target[0] != '/')
        return err_set(e, ERR_INVALID, "The request target must start with '/'.");
    char *raw = arena_strndup(a, target, n);
    n = squeeze(raw, n);
    char *path = arena_alloc(a, n + 1);
    if (!decode(raw, n, false, path))
        return err_set(e, ERR_INVALID,
                       "The path has a bad percent-escape, a control character or bytes that are not UTF-8.");
    u.path = path;
    *ret_uri = u;
    return ERR_OK;
}

const char *uri_query(struct arena *a, const char *query, const char *name)
{
    size_t want = strlen(name);
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&"), key = strcspn(p, "=&");
        char *text = arena_alloc(a, n + 1);
        if (decode(p, key, true, text) && strlen(text) == want && !memcmp(text, name, want)) {
            const char *value = key < n ? p + key + 1 : "";
            size_t len = key < n ? n - key - 1 : 0;
            return decode(value, len, true, text) ? text : NULL;
        }
        p += n + (p[n] == '&');
    }
    return NULL;
}
