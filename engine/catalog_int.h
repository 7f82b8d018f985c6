// catalog_int.h - what the catalog's own files share.
//
//   catalog.c          names, states, tasks; open and close
//   catalog_keeper.c   the thread that ends parked tasks and unloads what is idle
//   catalog_loader.c   the thread that opens and closes models
//   catalog_memory.c   what a model is charged, and who goes to make room
//
// Everything in struct catalog below `lock` is shared and locked, and so are its entries, except model and served of an
// entry that is READY or has users: those do not change until the last user has left. Functions are called with the lock
// held; where one lets go of it meanwhile it says so.
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "engine/catalog.h"
#include "engine/memory.h"
#include "engine/metrics.h"
#include "engine/model.h"

struct session;

struct entry {
    struct catalog *catalog;
    struct model_info info;
    struct metrics metrics;
    char *path, *chat_template, *vocoder, *decision;
    struct model_options options;
    bool given;        // opened by the caller
    bool wanted;       // loads though nobody waits
    enum model_reason reason;      // LOADING, UNLOADING: why
    const struct entry *room_for;  // UNLOADING to make room: for whom
    int64_t since_ns;              // LOADING, UNLOADING: it was asked for, or told to go
    double idle_s;                 // UNLOADING: it had been then
    bool unload_then;  // told to unload while it was loading
    bool busy;         // the loader is at it, without the lock
    struct model *model;
    struct served *served;
    size_t weights_need;  // by its files, then as it was
    size_t charged[MEMORY_ACCOUNTS];
    int users;            // tasks that have it
    int nparked;
    struct session *parked, **parked_end;
    uint64_t order;       // LOADING: the smallest is first
    int64_t last_use_ns, retry_ns;
    int failures;
};

struct alias {
    char name[ENGINE_NAME_MAX + 1];
    struct entry *of;
};

struct catalog {
    struct catalog_config config;
    pthread_t loader, keeper;
    bool loading, keeping;  // the threads run

    pthread_mutex_t lock;
    pthread_cond_t changed;  // a model's state
    pthread_cond_t work;     // the loader has something to do
    pthread_cond_t tend;     // the keeper has
    bool begun, draining, closing;
    bool short_of_memory;    // the loader waits for tasks to end
    struct entry *entries[ENGINE_MODELS_MAX];
    struct alias aliases[ENGINE_MODELS_MAX];
    int nentries, naliases;
    uint64_t orders;
    atomic_int parked;       // tasks, of all models
};

// ---- catalog.c

static inline bool catalog_fixed(const struct entry *n)
{
    return n->given || n->info.pinned;
}

void catalog_set_state(struct entry *n, enum model_state to);  // the only place that changes it
void catalog_begin_load(struct entry *n, enum model_reason why);
void catalog_begin_unload(struct entry *n, enum model_reason why, const struct entry *room_for);
void catalog_copy_info(const struct entry *n, const char *name, struct model_info *ret_info);  // name: its own, or an alias
err_code catalog_loading_failed(const struct entry *n, err *e);  // why, for a client
struct session *catalog_unpark(struct entry *n);                 // all that are parked
void catalog_end_list(struct session *list, const err *why);     // without the lock; why NULL: each has its own
void catalog_be_ready(struct entry *n);  // and everybody who waited goes on; lets go of the lock

// ---- the threads; arg: the catalog

void *catalog_keeper_run(void *arg);
void *catalog_loader_run(void *arg);

// ---- catalog_memory.c

static inline bool catalog_memory_loaded(const struct entry *n)
{
    return n->served != NULL;
}

// What its weights will take, by its files; 0: they cannot be read, loading will say why. depth: of folders. Without the
// lock.
size_t catalog_memory_weights(const char *path, int depth);
size_t catalog_memory_charged(const struct entry *n);
bool catalog_memory_take(struct entry *n, enum memory_account a, size_t bytes);
void catalog_memory_give_rest(struct entry *n);  // all but the weights
void catalog_memory_give_back(struct entry *n);
size_t catalog_memory_kv_share(struct catalog *c, const struct entry *n);  // its pool may have so much
size_t catalog_memory_most_left(struct catalog *c);  // when all that may go has gone
// Enough of them go for n's `need` to fit once their tasks have ended. True: something changed.
bool catalog_memory_make_room(const struct entry *n, size_t need);
