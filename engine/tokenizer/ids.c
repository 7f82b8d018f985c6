// ids.c - the growing list of token ids that callers own and free.

#include "engine/tokenizer/tokenizer.h"

#include "base/mem.h"

void ids_add(struct ids *v, int32_t id)
{
    if (v->len == v->cap) {
        v->cap = v->cap ? v->cap + v->cap / 2 : 64;
        v->data = mem_resize(v->data, v->cap * sizeof *v->data);
    }
    v->data[v->len++] = id;
}
