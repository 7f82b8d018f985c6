// memory.h - the one budget that everything large is charged to before it is allocated.
//
//     struct memory m;
//     memory_init(&m, memory_budget(c->memory));
//     if (memory_charge(&m, MEMORY_KV, bytes, "keys and values", &e)) ...   // refused: nothing was charged
//     if (memory_take(&m, MEMORY_WORKS, bytes)) ...                         // the same, for who then waits
//     memory_give(&m, MEMORY_KV, bytes);
//     memory_done(&m);
//
// Linux says yes to nearly every allocation and kills later, so the count is what keeps the promise. Any thread.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum memory_account {
    MEMORY_WEIGHTS,  // packed, and what is used of the mapped files
    MEMORY_KV,       // pools of keys and values
    MEMORY_STEP,     // scratch and logits of a step, and the scratch of works
    MEMORY_WORKS,    // what running works and recurrent states hold
    MEMORY_ACCOUNTS
};

struct memory {
    pthread_mutex_t lock;
    size_t total, used[MEMORY_ACCOUNTS];
};

// What models may take: the setting, or when that is 0 the machine's memory or the cgroup's limit, whichever is smaller,
// less 64 MB for the daemon itself and a reserve of 5 %, at least 256 MB.
size_t memory_budget(size_t setting);
// The same of a machine with that much memory.
size_t memory_budget_of(size_t machine);
// Percent of the machine's memory or the cgroup's limit, without a reserve.
size_t memory_share(int percent);

void memory_init(struct memory *m, size_t total);
void memory_done(struct memory *m);

MUST_CHECK bool memory_take(struct memory *m, enum memory_account a, size_t bytes);
// ERR_MEMORY, naming what was needed for what, what is left, and the setting.
MUST_CHECK err_code memory_charge(struct memory *m, enum memory_account a, size_t bytes, const char *what, err *e);
void memory_give(struct memory *m, enum memory_account a, size_t bytes);

size_t memory_left(struct memory *m);
size_t memory_total(const struct memory *m);
size_t memory_used(struct memory *m, enum memory_account a);
