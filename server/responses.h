// responses.h - answers of /v1/responses that were asked to be kept, with their input items, for a while.
//
//     responses_open(path, &limits, &s, &e)          // path NULL: in memory, gone with the process
//     responses_put(s, &kept)                        // any thread, does not wait: a thread of its own writes
//     responses_get(s, owner, id, &row, &e)          // what was put is found at once, written or not
//     responses_close(s)                             // writes what waits; later calls find nothing and keep nothing
//     responses_unref(s)
//
// Everything belongs to an owner, and nobody finds what another owner has. When there are more than max_count or max_bytes,
// the owner who has most of them loses what it used least recently; what nobody used for ttl_s is gone.
//
// The file is SQLite's (WAL, synchronous = NORMAL): a process that is killed leaves it whole, and loses what was not yet
// written. While the disk refuses (full, gone) what is put waits in memory and is found all the same; the log says so once,
// responses_failing says so meanwhile, and when WAITING_BYTES wait responses_put refuses.
//
// get, find and delete may wait for the disk: not on the loop thread. Reference counted, as the pool is (pool.h), because
// requests may outlive the server.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { RESPONSES_SECRET = 32 };

struct responses;

struct responses_limits {
    int64_t max_count, ttl_s;
    size_t max_bytes;
};

// Errors: ERR_CORRUPT, ERR_IO, ERR_UNSUPPORTED (made by a newer version).
MUST_CHECK err_code responses_open(const char *path, const struct responses_limits *limits, struct responses **ret_store,
                                   err *e);
void responses_close(struct responses *s);  // once, by whoever opened it; accepts NULL
struct responses *responses_ref(struct responses *s);  // accepts NULL
void responses_unref(struct responses *s);  // accepts NULL

// Random, the same for as long as what is kept: owners are named by an HMAC with it, so that no key lies in the file.
const unsigned char *responses_secret(const struct responses *s);
bool responses_failing(struct responses *s);  // the last write did not succeed

struct responses_kept {
    const char *owner, *id;
    const char *previous;      // the response it continues; NULL: none
    const char *object;        // JSON of the response
    const char *input;         // JSON array of its own input items
    const char *const *items;  // ids of its items, those of the output first
    size_t nitems;
    int64_t created_unix_s;
};
// Copies. False: it cannot be kept (larger than all that may be, too much waits, s is closed or NULL).
bool responses_put(struct responses *s, const struct responses_kept *k);

struct responses_row {  // zeroed by the caller; responses_row_done
    char *id, *previous, *object, *input;
};
// ERR_NOT_FOUND; ERR_IO, ERR_CORRUPT. What is found counts as used.
MUST_CHECK err_code responses_get(struct responses *s, const char *owner, const char *id, struct responses_row *ret_row, err *e);
// The response that has this item.
MUST_CHECK err_code responses_find(struct responses *s, const char *owner, const char *item, struct responses_row *ret_row,
                                   err *e);
MUST_CHECK err_code responses_delete(struct responses *s, const char *owner, const char *id, err *e);
void responses_row_done(struct responses_row *row);

// For checks: waits until everything that was put is written or was refused by the disk.
void responses_settle(struct responses *s);
int64_t responses_count(struct responses *s);  // written ones
