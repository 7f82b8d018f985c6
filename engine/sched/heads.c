// heads.c - see the header.
#include "engine/sched/heads.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/mat.h"

// Groups that lie apart cost about three times what they cost in a row: those of SmolLM2 and Qwen3-0.6B take as long as the whole
// head when they are 30 (AVX2) to 40 (AVX-512) in a hundred.
enum { MOST_PERCENT = 30 };

static size_t words(int n)
{
    return ((size_t)n + 63) / 64;
}

void heads_init(struct heads *h, int vocab)
{
    *h = (struct heads){.ntokens = vocab, .ngroups = (vocab + MAT_GROUP - 1) / MAT_GROUP};
    h->groups = mem_new((words(h->ngroups) + 1) * sizeof *h->groups);
}

void heads_done(struct heads *h)
{
    free(h->groups);
    *h = (struct heads){0};
}

void heads_clear(struct heads *h)
{
    h->all = false;
    h->count = 0;
    memset(h->groups, 0, words(h->ngroups) * sizeof *h->groups);
}

void heads_add_all(struct heads *h)
{
    h->all = true;
}

// Bit k: byte k has any. A byte of a mask is a group.
static uint64_t bytes_with_any(uint64_t x)
{
    _Static_assert(MAT_GROUP == 8, "a group is a byte");
    x |= x >> 4;
    x |= x >> 2;
    x |= x >> 1;
    return (x & 0x0101010101010101u) * 0x0102040810204080u >> 56;
}

void heads_add(struct heads *h, const uint64_t *mask)
{
    for (size_t i = 0; i < words(h->ntokens) && !h->all; i++) {
        if (!mask[i])
            continue;
        uint64_t *w = &h->groups[i / 8], before = *w;
        *w |= bytes_with_any(mask[i]) << i % 8 * 8;
        h->count += __builtin_popcountll(*w ^ before);
        h->all = 100 * (int64_t)h->count > MOST_PERCENT * (int64_t)h->ngroups;
    }
}

const uint64_t *heads_groups(const struct heads *h)
{
    return h->all ? NULL : h->groups;
}

double heads_share(const struct heads *h)
{
    return h->all ? 1 : (double)h->count / h->ngroups;
}
