// store.h - the daemon's SQLite file: API keys, hashed.
//
//     store_open(path, STORE_READ, &s, &e);   // ... store_keys / store_add_key / store_remove_key ...   store_close(s);
//
// Every call may wait for the disk and for other processes (two seconds at most): never on the loop thread. One thread at
// a time. A process that is killed at any point leaves the file whole: each change is one transaction (a journal beside it, synchronous).
// Who only reads it needs to read this one file, and no right to its folder; so it is not in WAL mode.
// Errors: ERR_NOT_FOUND (no file, no such key), ERR_CORRUPT (damaged, or not such a file), ERR_UNSUPPORTED (made by a newer
// version), ERR_IO (disk full, not permitted, locked).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "server/apikey.h"

struct store;

enum store_use { STORE_READ, STORE_CHANGE, STORE_CREATE };  // the last makes the file, readable by its owner only, when there is none

MUST_CHECK err_code store_open(const char *path, enum store_use use, struct store **ret_store, err *e);
void store_close(struct store *s);  // accepts NULL

struct store_keys {
    struct apikey *items;
    int64_t *created_unix_s;
    int len, cap;
};
// All keys, ordered by name. ret_keys is zeroed by the caller, and freed by store_keys_done also after a failure.
MUST_CHECK err_code store_keys(struct store *s, struct store_keys *ret_keys, err *e);
void store_keys_done(struct store_keys *k);
MUST_CHECK err_code store_add_key(struct store *s, const struct apikey *k, int64_t now_unix_s, err *e);  // ERR_INVALID: the name is taken
MUST_CHECK err_code store_remove_key(struct store *s, const char *name, err *e);
