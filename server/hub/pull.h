// pull.h - brings a model of a hub into the store: listing, choice, files, checks, manifest.
//
//     pull_open(&config, &ui, &p, &e);      // hub, token and store as the settings say
//     pull_run(p, &ref, verify, &manifest, &fresh, &e);
//     pull_close(p);
//
// Settings: hub_url, else $HF_ENDPOINT, else https://huggingface.co. The token: hub_token_file, else $HF_TOKEN, else
// for https://huggingface.co alone what its own programs keep in $HF_TOKEN_PATH, $HF_HOME/token or
// ~/.cache/huggingface/token. It is in no error, line or manifest. Blocks for as long as the files take; one thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "server/hub/manifest.h"
#include "server/hub/modelref.h"
#include "server/hub/modelstore.h"

struct config;
struct pull;

struct pull_progress {
    const char *path;          // the file that arrives
    uint64_t have, size;       // of it
    uint64_t all_have, all_size;
};

struct pull_ui {               // any may be NULL
    bool (*stop)(void *ud);    // ends the pull with ERR_CANCELLED; what arrived is kept
    void (*say)(void *ud, const char *text);
    void (*progress)(void *ud, const struct pull_progress *p);  // often
    void (*whole)(void *ud, const struct pull_progress *p);     // a file is there, and checked
    void *ud;
};

MUST_CHECK err_code pull_open(const struct config *c, const struct pull_ui *ui, struct pull **ret_pull, err *e);
void pull_close(struct pull *p);  // accepts NULL
struct modelstore *pull_store(const struct pull *p);

// verify: what is there already is read and compared with its digests. *ret_fresh: something was fetched or replaced.
MUST_CHECK err_code pull_run(struct pull *p, const struct modelref *r, bool verify, struct manifest *ret_manifest,
                             bool *ret_fresh, err *e);
