// modelstore.h - the folder in which pulled models lie.
//
//     STORE/
//       owner--name+Q4_K_M/            a model: its files under the hub's names, and MANIFEST_FILE
//       .pull-owner--name+Q4_K_M/      what has arrived of one: parts/DIGEST, whole and checked; parts/DIGEST.part, not
//       yet .lock-owner--name+Q4_K_M       held (flock) by who changes either .gone-...                      a removed
//       model whose files are being deleted
//
// A model appears and is replaced by one rename, after its files and folders are on the disk. No symbolic link inside
// the store is ever followed, and names come from modelref.h. Every call may wait for the disk; one thread at a time;
// other processes may do the same meanwhile.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "server/hub/manifest.h"
#include "server/hub/modelref.h"

struct modelstore;

// dir: "" takes $STATE_DIRECTORY/models, else $XDG_DATA_HOME/oxinferd/models, else ~/.local/share/oxinferd/models.
// create: makes the folder when there is none, else ERR_NOT_FOUND.
MUST_CHECK err_code modelstore_open(const char *dir, bool create, struct modelstore **ret_store, err *e);
void modelstore_close(struct modelstore *s);  // accepts NULL
const char *modelstore_path(const struct modelstore *s);

// The model of just this reference. ERR_NOT_FOUND; ERR_CORRUPT: its manifest.
MUST_CHECK err_code modelstore_get(struct modelstore *s, const struct modelref *r, struct manifest *ret_manifest,
                                   err *e);
// The one that somebody means by a reference. Without :QUANT it is the one there is of that repository, or among
// several Q4_K_M, else Q4_0. exact: several are ERR_INVALID. ERR_NOT_FOUND.
MUST_CHECK err_code modelstore_find(struct modelstore *s, const struct modelref *r, bool exact,
                                    struct manifest *ret_manifest, err *e);
// It is opened to be run: its manifest's time is now. A store that may only be read stays as it is.
void modelstore_used(struct modelstore *s, const struct manifest *m);
// The absolute path to serve it from, freed by free().
char *modelstore_serve_path(const struct modelstore *s, const struct manifest *m);
// ERR_CORRUPT names the first file that is missing or has another size. file: only m->files[file], or -1 for all. hash:
// or another digest; stop as in digest.h.
MUST_CHECK err_code modelstore_check(struct modelstore *s, const struct manifest *m, int file, bool hash,
                                     bool (*stop)(void *ud), void *ud, err *e);

struct modelstore_list {
    struct manifest *models;    // by name
    int nmodels;
    struct modelstore_partial {
        char name[MODELREF_TEXT];
        uint64_t bytes;
    } *partial;                 // pulls that were not finished, and that go on at the next pull
    int npartial;
    int ndamaged;               // manifests that are none; why the first is not
    err damage;
};
MUST_CHECK err_code modelstore_list(struct modelstore *s, struct modelstore_list *ret_list, err *e);
void modelstore_list_done(struct modelstore_list *l);

// Removes a model, and what has arrived of a pull of it. ERR_NOT_FOUND: neither is there; ERR_BUSY: it is being pulled.
MUST_CHECK err_code modelstore_remove(struct modelstore *s, const struct modelref *r, err *e);

// The lock of a model's folder (modelref_folder). w: NULL for one try, ERR_BUSY when another process holds it; else
// waiting(ud) is told once, and stop ends the wait (ERR_CANCELLED).
struct modelstore_wait {
    void (*waiting)(void *ud);
    bool (*stop)(void *ud);
    void *ud;
};
MUST_CHECK err_code modelstore_lock(struct modelstore *s, const char *folder, const struct modelstore_wait *w,
                                    int *ret_fd, err *e);
void modelstore_unlock(struct modelstore *s, const char *folder, int fd);

int modelstore_fd(const struct modelstore *s);  // of the folder, the store's
