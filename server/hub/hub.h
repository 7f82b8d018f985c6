// hub.h - what a hub with Hugging Face's HTTP interface says of a repository.
//
//     GET HUB/api/models/OWNER/NAME/revision/REVISION?blobs=true    commit, file names, sizes, digests
//     GET HUB/OWNER/NAME/resolve/COMMIT/PATH                        a file, often by a redirect to a storage host
//
// Pure functions but hub_list; one thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "server/hub/digest.h"
#include "server/hub/modelref.h"

struct fetch;

enum { HUB_LISTING_MAX = 32 << 20, HUB_FILES_MAX = 100000 };
#define HUB_SIZE_UNKNOWN UINT64_MAX

struct hub_file {
    const char *path;             // checked by modelref_check_path
    uint64_t size;                // or HUB_SIZE_UNKNOWN
    char sha256[DIGEST_SHA256];   // of files in Git LFS; "": not said
    char blob[DIGEST_BLOB];       // of the others; "": not said
};

struct hub_listing {
    struct arena arena;           // holds the strings
    const char *commit;
    bool gated;
    struct hub_file *files;       // by path
    int nfiles;
};

// The listing. Errors say what a 401, 403 or 404 means. A name that is no file's, such as "../x", refuses the whole
// listing.
MUST_CHECK err_code hub_list(struct fetch *f, const char *hub_url, const struct modelref *r,
                             struct hub_listing *ret_listing, err *e);
MUST_CHECK err_code hub_parse(const char *json, size_t len, struct hub_listing *ret_listing, err *e);
void hub_listing_done(struct hub_listing *l);

// Says in *e what the hub's refusal of a file or a listing means: a token is needed, or there is no such thing.
err_code hub_explain(const struct fetch *f, const char *hub_url, const struct modelref *r, bool has_token, err *e);

// The URL of a file; freed by free().
char *hub_file_url(const char *hub_url, const struct modelref *r, const char *commit, const char *path);
