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
    free(p->uses);
    free(p->matrices);
    free(p);
}

size_t packed_bytes(const struct packed *p)
{
    return p->bytes + p->mapped;
}

void packed_use(struct packed *p, const struct tensor *t, enum packed_use use)
{
    if (p->nused && p->used[p->nused - 1] == t)
        return;  // the slices of a stack follow each other
    if (p->nused == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->used = mem_resize(p->used, p->cap * sizeof *p->used);
        p->uses = mem_resize(p->uses, p->cap * sizeof *p->uses);
    }
    p->uses[p->nused] = use;
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

void packed_count(struct packed *p, const struct mat *m)
{
    size_t bytes = m->bytes;
    if (!bytes && !quant_bytes(m->type, (size_t)m->rows, (size_t)m->cols, &bytes))
        return;
    if (p->nmatrices == p->matrix_cap) {
        p->matrix_cap = p->matrix_cap ? p->matrix_cap * 2 : 64;
        p->matrices = mem_resize(p->matrices, p->matrix_cap * sizeof *p->matrices);
    }
    p->matrices[p->nmatrices++] = (struct packed_matrix){m->type, m->math, m->rows, m->cols, bytes};
}

size_t packed_read_bytes(const struct packed *p)
{
    size_t total = 0;
    for (size_t i = 0; i < p->nmatrices; i++)
        total += p->matrices[i].bytes;
    return total;
}
