// catalog_memory.c - one budget for all models: what each is charged, how the pools share it, who goes to make room.
#include "engine/catalog_int.h"

#include <dirent.h>
#include <stdio.h>

#include "base/file.h"
#include "engine/weights/weights.h"

size_t catalog_memory_charged(const struct entry *n)
{
    size_t sum = 0;
    for (int i = 0; i < MEMORY_ACCOUNTS; i++)
        sum += n->charged[i];
    return sum;
}

static void give_account(struct entry *n, enum memory_account a)
{
    memory_give(n->catalog->config.memory, a, n->charged[a]);
    n->charged[a] = 0;
}

// All but the weights.
void catalog_memory_give_rest(struct entry *n)
{
    for (int i = 0; i < MEMORY_ACCOUNTS; i++)
        if (i != MEMORY_WEIGHTS)
            give_account(n, i);
}

void catalog_memory_give_back(struct entry *n)
{
    catalog_memory_give_rest(n);
    give_account(n, MEMORY_WEIGHTS);
    n->info.resident_bytes = n->info.kv_bytes = 0;
    metrics_set(&n->metrics.memory_bytes, 0);
}

bool catalog_memory_take(struct entry *n, enum memory_account a, size_t bytes)
{
    bool ok = memory_take(n->catalog->config.memory, a, bytes);
    n->charged[a] += ok ? bytes : 0;
    return ok;
}

// Packed or used as they lie, weights take what the tensors of their files add up to, nearly.
size_t catalog_memory_weights(const char *path, int depth)
{
    struct weights *w;
    err e = {0};
    if (!path || weights_open(path, &w, &e))
        return 0;
    size_t bytes = weights_bytes(w);
    weights_close(w);
    if (bytes)
        return bytes + bytes / 64 + (64 << 10);
    DIR *d = depth ? opendir(path) : NULL;  // a pipeline: its parts are folders
    struct dirent *item;
    while (d && (item = readdir(d))) {
        char part[1024];
        int len = snprintf(part, sizeof part, "%s/%s", path, item->d_name);
        if (item->d_name[0] != '.' && len < (int)sizeof part && file_is_dir(part))
            bytes += catalog_memory_weights(part, depth - 1);
    }
    if (d)
        closedir(d);
    return bytes;
}

// What the pools of all models may have together.
static size_t kv_total(struct catalog *c)
{
    size_t total = memory_total(c->config.memory), weights = 0;
    if (c->config.kv_bytes)
        return c->config.kv_bytes;
    for (int i = 0; i < c->nentries; i++)
        weights += c->entries[i]->weights_need;
    size_t rest = weights < total ? (total - weights) / 2 : 0;
    return rest > total / 4 ? rest : total / 4;
}

// Models that have no pool yet share what is left equally; those that failed get none.
size_t catalog_memory_kv_share(struct catalog *c, const struct entry *n)
{
    size_t total = kv_total(c), held = 0, sharers = 1;
    for (int i = 0; i < c->nentries; i++) {
        const struct entry *o = c->entries[i];
        held += o->charged[MEMORY_KV];
        sharers += o != n && !catalog_memory_loaded(o) && o->info.state != MODEL_FAILED;
    }
    return held < total ? (total - held) / sharers : 0;
}

// Taking everything that may go out of service would leave so much.
size_t catalog_memory_most_left(struct catalog *c)
{
    size_t left = memory_left(c->config.memory);
    for (int i = 0; i < c->nentries; i++) {
        const struct entry *n = c->entries[i];
        if (n->info.state == MODEL_UNLOADING || (n->info.state == MODEL_READY && !catalog_fixed(n)))
            left += catalog_memory_charged(n);
    }
    return left;
}

static struct entry *next_victim(struct catalog *c)
{
    struct entry *best = NULL;
    for (int i = 0; i < c->nentries; i++) {
        struct entry *n = c->entries[i];
        if (n->info.state != MODEL_READY || catalog_fixed(n))
            continue;
        bool idle = n->users == 0, best_idle = best && best->users == 0;
        if (!best || (idle != best_idle ? idle : n->last_use_ns < best->last_use_ns))
            best = n;
    }
    return best;
}

bool catalog_memory_make_room(const struct entry *n, size_t need)
{
    struct catalog *c = n->catalog;
    size_t left = memory_left(c->config.memory);
    bool any = false;
    for (int i = 0; i < c->nentries; i++)
        if (c->entries[i]->info.state == MODEL_UNLOADING)
            left += catalog_memory_charged(c->entries[i]);
    while (left < need) {
        struct entry *victim = next_victim(c);
        if (!victim)
            break;
        left += catalog_memory_charged(victim);
        catalog_begin_unload(victim, FOR_ROOM, n);
        any = true;
    }
    return any;
}
