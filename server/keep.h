// keep.h - files in memory that can be fetched for a while under a name nobody can guess: pictures asked for as a URL.
//
//     if (!keep_reserve(k, 4, 4 * bytes)) ... ERR_BUSY        // before the work: room for what it will make
//     keep_put(k, "image/png", data, len, id);                // takes data, which free() frees
//     keep_release(k, 4, 4 * bytes);                          // when the work is over, however it ended
//     ... keep_find(k, id, &type, &data, &len)                // a copy, until ttl_s have passed
//
// Nothing is dropped before its time: when there is no room, reserving is refused. Any thread. Reference counted, as the
// pool is.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct keep;

enum { KEEP_ID = 44 };  // letters of an id with its end: 160 random bits

struct keep *keep_open(int ttl_s, size_t max_files, size_t max_bytes);
struct keep *keep_ref(struct keep *k);
void keep_unref(struct keep *k);  // accepts NULL
int keep_ttl_s(const struct keep *k);

bool keep_reserve(struct keep *k, size_t files, size_t bytes);
void keep_release(struct keep *k, size_t files, size_t bytes);
// type must live forever.
void keep_put(struct keep *k, const char *type, void *data, size_t len, char ret_id[KEEP_ID]);
bool keep_find(struct keep *k, const char *id, const char **ret_type, void **ret_data, size_t *ret_len);
