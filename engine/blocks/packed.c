// packed.c - what a model's loader made and the model keeps. Written by the loading thread, read by any thread
// afterwards.
#include "engine/blocks/packed.h"

#include <stdlib.h>

#include "base/mem.h"

struct packed *packed_new(void)
{
    return mem_new(sizeof(struct packed));
}

void packed_free(struct packed *p)
{
    if (!p)
        return;
    mem_free_pages(p->map, p->bytes);
    arena_done(&p->vectors);
    free(p->used);
    free(p);
}

size_t packed_bytes(const struct packed *p)
{
    return p->bytes;
}

void packed_use(struct packed *p, const struct tensor *t)
{
    if (p->nused == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->used = mem_resize(p->used, p->cap * sizeof *p->used);
    }
    p->used[p->nused++] = t;
}

bool packed_uses(const struct packed *p, const struct tensor *t)
{
    for (size_t i = 0; i < p->nused; i++) {
        if (p->used[i] == t)
            return true;
    }
    return false;
}
