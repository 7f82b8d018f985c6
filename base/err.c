#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const names[] = {
#define X(code, text) [code] = text,
    ERR_MAP(X)
#undef X
};

const char *err_name(err_code code)
{
    return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown error";
}

// Cuts an incomplete character that snprintf may have left at the end.
static void trim_tail(char *text)
{
    size_t n = strlen(text);
    text[utf8_complete(text, n)] = 0;
}

void err_fill(err *e, err_code code, const char *param, const char *fmt, ...)
{
    if (!e)
        return;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    e->retry_ms = 0;
    snprintf(e->param, sizeof e->param, "%s", param);
    trim_tail(e->param);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    trim_tail(e->text);
    va_end(ap);
}

void err_fill_retry(err *e, int ms)
{
    if (e)
        e->retry_ms = ms;
}

err_code err_wrap(err *e, const char *fmt, ...)
{
    if (!e)
        return ERR_INTERNAL;
    char old[sizeof e->text], head[256];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    int room = (int)sizeof e->text - (int)strlen(head) - 3;
    snprintf(e->text, sizeof e->text, "%s: %.*s", head, room, old);
    trim_tail(e->text);
    return e->code;
}

void err_hide_path(err *e, const char *path, const char *instead)
{
    size_t n = path ? strlen(path) : 0;
    char *at = e->text;
    if (n < 2 || !strchr(path, '/'))
        return;
    while ((at = strstr(at, path))) {
        char rest[sizeof e->text];
        strcpy(rest, at + n);
        size_t room = sizeof e->text - (size_t)(at - e->text);
        snprintf(at, room, "%s%s", instead, rest);
        at += strnlen(instead, room - 1);
    }
    trim_tail(e->text);
}
