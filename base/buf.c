#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

static bool reserve(struct buf *b, size_t n)
{
    if (b->over || n > b->max - b->len) {
        b->over = true;
        return false;
    }
    if (b->len + n + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < b->len + n + 1)
            cap *= 2;
        b->data = mem_resize(b->data, cap);
        b->cap = cap;
    }
    return true;
}

bool buf_add(struct buf *b, const void *p, size_t n)
{
    if (!reserve(b, n))
        return false;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return true;
}

bool buf_add_str(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

bool buf_add_char(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->over = false;
    if (b->data)
        b->data[0] = 0;
}

char *buf_take(struct buf *b)
{
    char *p = b->data ? b->data : mem_strdup("");
    buf_init(b, b->max);
    return p;
}

void buf_done(struct buf *b)
{
    free(b->data);
    buf_init(b, b->max);
}
