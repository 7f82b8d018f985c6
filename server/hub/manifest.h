// manifest.h - what the store knows of one model: where it is from, its files, their sizes and digests. The JSON file
// MANIFEST_FILE of its folder, written last: a folder without one is no model.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "server/hub/digest.h"
#include "server/hub/modelref.h"

#define MANIFEST_FILE ".oxinferd.json"

enum { MANIFEST_MAX_FILES = 4096, MANIFEST_MAX_BYTES = 8 << 20 };

struct manifest_file {
    const char *path;  // in the model's folder, as on the hub
    uint64_t size;
    char sha256[DIGEST_SHA256], blob[DIGEST_BLOB];  // blob: "" of files in Git LFS
};

struct manifest {
    struct arena arena;  // holds the strings
    struct modelref ref;
    const char *hub, *commit;
    const char *type;    // such as "GGUF Q4_K_M", "safetensors bfloat16"
    const char *serve;   // what to open: a path in the folder; "": the folder
    int64_t pulled_unix_s;
    int64_t used_unix_s;  // when it was last opened to be run, by the store (modelstore_used); not in the file
    struct manifest_file *files;
    int nfiles;
};

// Every name is checked again (modelref_check_path). ERR_CORRUPT.
MUST_CHECK err_code manifest_read(const char *json, size_t len, struct manifest *ret_manifest, err *e);
void manifest_write(const struct manifest *m, struct buf *out);  // with a line break at its end
void manifest_done(struct manifest *m);

uint64_t manifest_bytes(const struct manifest *m);
