// Checks of header lines (RFC 9110 §5, RFC 9112 §6.3 and §11). Bare LF and folded lines are joined by the parser before
// anyone here can see them; everything that decides where a body ends is checked.
#include "server/guard.h"

#include <string.h>
#include <strings.h>

static bool is_token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool name_ok(const struct header *h)
{
    if (!h->name_len || strlen(h->name) != h->name_len)
        return false;
    for (size_t i = 0; i < h->name_len; i++)
        if (!is_token_char((unsigned char)h->name[i]))
            return false;
    return true;
}

static bool value_ok(const struct header *h)
{
    if (!h->value)
        return true;
    for (size_t i = 0; i < h->value_len; i++) {
        unsigned char c = (unsigned char)h->value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

const char *guard_find(const struct header *h, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcasecmp(h[i].name, name))
            return h[i].value ? h[i].value : "";
    return NULL;
}

static int count(const struct header *h, int n, const char *name)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += !strcasecmp(h[i].name, name);
    return found;
}

static int refuse(err *e, int status, const char *text)
{
    err_set(e, ERR_INVALID, "%s", text);
    return status;
}

static int check_lines(const struct header *h, int n, size_t max, err *e)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        total += h[i].name_len + h[i].value_len + 4;
        if (!name_ok(&h[i]))
            return refuse(e, 400, "A header name contains a character that is not allowed there.");
        if (!value_ok(&h[i]))
            return refuse(e, 400, "A header value contains a control character.");
    }
    if (total > max) {
        err_set(e, ERR_TOO_LARGE, "The request's headers have %zu bytes; at most %zu are accepted.", total, max);
        return 431;
    }
    return 0;
}

int guard_headers(const struct header *h, int n, bool http_1_1, size_t max, err *e)
{
    int status = check_lines(h, n, max, e);
    if (status)
        return status;
    int lengths = count(h, n, "Content-Length"), codings = count(h, n, "Transfer-Encoding");
    int hosts = count(h, n, "Host");
    if (lengths > 1)
        return refuse(e, 400, "More than one Content-Length header.");
    if (lengths && codings)
        return refuse(e, 400, "Both Content-Length and Transfer-Encoding headers.");
    if (codings > 1 || (codings && strcasecmp(guard_find(h, n, "Transfer-Encoding"), "chunked")))
        return refuse(e, 400, "The only Transfer-Encoding accepted is 'chunked'.");
    if (codings && !http_1_1)
        return refuse(e, 400, "Transfer-Encoding needs HTTP/1.1.");
    if (lengths) {
        const char *v = guard_find(h, n, "Content-Length");
        if (!*v || strspn(v, "0123456789") != strlen(v))
            return refuse(e, 400, "Content-Length is not a number.");
    }
    if (hosts > 1)
        return refuse(e, 400, "More than one Host header.");
    if (!hosts && http_1_1)
        return refuse(e, 400, "HTTP/1.1 needs a Host header.");
    const char *expect = guard_find(h, n, "Expect");
    if (expect && strcasecmp(expect, "100-continue"))
        return refuse(e, 417, "The only expectation accepted is '100-continue'.");
    return 0;
}

bool guard_is_json(const char *content_type)
{
    size_t n = strcspn(content_type, ";");
    while (n && (content_type[n - 1] == ' ' || content_type[n - 1] == '\t'))
        n--;
    if (n == 16 && !strncasecmp(content_type, "application/json", n))
        return true;
    return n > 5 && !strncasecmp(content_type + n - 5, "+json", 5) && memchr(content_type, '/', n);
}
