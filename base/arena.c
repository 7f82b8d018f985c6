#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { BLOCK = 16 << 10, ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(ALIGN) char data[];
};

struct arena_deferred {
    struct arena_deferred *next;
    arena_release *release;
    void *object;
};

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t n = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct arena_block *b = a->block;
    if (!b || b->size - b->used < n) {
        size_t size = n > BLOCK / 4 ? n : BLOCK;
        struct arena_block *fresh = mem_new(sizeof *fresh + size);
        fresh->size = size;
        if (b && size == n) {  // a big one: keep filling the old block
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->block = fresh;
        }
        b = fresh;
    }
    void *p = b->data + b->used;
    b->used += n;
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = arena_alloc(a, n + 1);
    memcpy(copy, s, n);
    return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = arena_alloc(a, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0)
        vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

void arena_defer(struct arena *a, arena_release *release, void *object)
{
    struct arena_deferred *d = arena_alloc(a, sizeof *d);
    *d = (struct arena_deferred){a->deferred, release, object};
    a->deferred = d;
}

void arena_done(struct arena *a)
{
    for (struct arena_deferred *d = a->deferred; d; d = d->next)
        d->release(d->object);
    for (struct arena_block *b = a->block, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){0};
}
