// auth.h - who may ask: API keys, names the server answers to, web origins.
//
// The keys are an immutable table, made from the settings, the key file and the store, and swapped whole when they are
// read again (auth_reload); a request holds the table it was judged by.
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "server/apikey.h"

enum { AUTH_KEYS_MAX = 10000, AUTH_SALTS_MAX = 16 };

struct auth_sources {
    const char *const *keys;  // plain ones
    int nkeys;
    const char *file, *store; // NULL: none
};

// Keys, ordered by salt. Plain keys are called key1, key2 ... in the order of the settings, then the file's lines.
struct auth_table {
    atomic_int refs;
    struct apikey *keys;
    int nkeys;
    unsigned char (*digests)[APIKEY_DIGEST];  // of the keys once more, close together
    int first[AUTH_SALTS_MAX + 1], nsalts;    // first[i] .. first[i + 1]: the keys of salt i
};

// Reads everything. Errors: ERR_INVALID (an empty key, a line of the file, a name twice), ERR_NOT_FOUND, ERR_IO and the
// store's. Any thread, but not the loop's: it waits for the disk.
MUST_CHECK err_code auth_read(const struct auth_sources *from, struct auth_table **ret_table, err *e);
void auth_unref(struct auth_table *t);  // accepts NULL

// The key that was given; NULL: none is equal. One hash for each salt, then the digests of all keys, in constant time.
const struct apikey *auth_find_key(const struct auth_table *t, const char *given);

struct auth {
    struct auth_sources sources;
    const char *const *origins;
    int norigins;
    const char *const *hosts;
    int nhosts;
    pthread_mutex_t lock;       // guards what follows
    struct auth_table *table;
    bool required;              // keys are needed: stays so when the last one has been taken away
};

// a's sources, origins and hosts are set; the strings must outlive it.
MUST_CHECK err_code auth_open(struct auth *a, err *e);
void auth_close(struct auth *a);
// Reads the sources again; what fails leaves the table that is there. Requests that run keep theirs. Any thread, but not
// the loop's.
MUST_CHECK err_code auth_reload(struct auth *a, err *e);
// The table of now, referenced; NULL: no key is needed.
struct auth_table *auth_take(struct auth *a);
bool auth_required(struct auth *a);

// "Bearer KEY" -> KEY; NULL: another scheme.
const char *auth_bearer(const char *authorization);

// True for loopback names and addresses, with or without a port, and the configured names: what a page that made its
// own name point at 127.0.0.1 (DNS rebinding) cannot send.
bool auth_host_ok(const struct auth *a, const char *host);
bool auth_origin_ok(const struct auth *a, const char *origin);
