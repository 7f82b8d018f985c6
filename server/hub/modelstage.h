// modelstage.h - what has arrived of a pull, until it becomes a model of the store (modelstore.h has the picture).
//
//     modelstage_open(store, &ref, &wait, &st, &e);        // locks the model
//     ... modelstage_open_part, write, modelstage_finish_part for each file ...
//     modelstage_publish(st, &manifest, keys, &e);
//     modelstage_close(st);
//
// Parts are named by their content (a digest in hexadecimal, called key here), so whatever the hub calls its files, and
// whichever of its versions is pulled, what is there already is used. A process that is killed at any point leaves
// parts of which the whole ones are whole. One thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "server/hub/manifest.h"
#include "server/hub/modelref.h"
#include "server/hub/modelstore.h"

struct modelstage;

MUST_CHECK err_code modelstage_open(struct modelstore *s, const struct modelref *r, const struct modelstore_wait *w,
                                    struct modelstage **ret_stage, err *e);
void modelstage_close(struct modelstage *st);  // keeps what arrived, if anything did; accepts NULL

void modelstage_drop(struct modelstage *st);   // forgets what arrived; only close may follow

// key: hexadecimal digits that stand for the content. Whether it has arrived whole; a size that was not known
// (UINT64_MAX) is then.
bool modelstage_has(struct modelstage *st, const char *key, uint64_t *size);
uint64_t modelstage_part_size(struct modelstage *st, const char *key);  // of what has arrived in part
// Opens the part for reading and writing; made if need be.
MUST_CHECK err_code modelstage_open_part(struct modelstage *st, const char *key, int *ret_fd, err *e);
MUST_CHECK err_code modelstage_open_whole(struct modelstage *st, const char *key, int *ret_fd, err *e);
// The part's ETag, in out[size]; "" when none is known. Setting "" forgets it.
void modelstage_etag(struct modelstage *st, const char *key, char *out, size_t size);
MUST_CHECK err_code modelstage_set_etag(struct modelstage *st, const char *key, const char *etag, err *e);
MUST_CHECK err_code modelstage_finish_part(struct modelstage *st, const char *key, int fd, err *e);  // fsync, rename
void modelstage_drop_part(struct modelstage *st, const char *key);
// Takes over a file of the installed model as whole content, without copying. false: it cannot.
bool modelstage_reuse(struct modelstage *st, const char *path, const char *key);
// Bytes free for the store's owner.
uint64_t modelstage_free_bytes(const struct modelstage *st);
// Puts the files in place under their names, keys[i] for m->files[i], and makes it the model. What was staged is gone
// then.
MUST_CHECK err_code modelstage_publish(struct modelstage *st, const struct manifest *m, const char *const *keys,
                                       err *e);
