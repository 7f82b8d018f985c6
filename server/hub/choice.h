// choice.h - which files of a repository make a model.
//
// Of GGUF files the one of a quantisation, with all parts of a split one; else the safetensors of the folder by its
// index, with configuration, tokenizer and the folders that model_index.json and modules.json name, and snac/: what the
// loaders look for. Weights in other formats, code and pictures are never chosen. Pure functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "server/hub/hub.h"
#include "server/hub/modelref.h"

enum { CHOICE_MAX = 4096, CHOICE_LABEL = 64, CHOICE_JSON_MAX = 64 << 20 };

// The quantisation that the name of a GGUF file says, in capitals, such as Q4_K_M, UD-Q4_K_XL, BF16; "" when it says
// none.
const char *choice_label(const char *path, char out[CHOICE_LABEL]);

// A choice: files by their place in the listing.
struct choice {
    int files[CHOICE_MAX];
    int nfiles;
    bool gguf;
    char quant[CHOICE_LABEL];     // of a GGUF file; "": its name says none
    char serve[MODELREF_PATH];    // as in manifest.h
};

// Whether the reference is of GGUF files, and if so the whole choice. ret->gguf is false when there are none below its
// folder.
MUST_CHECK err_code choice_gguf(const struct hub_listing *l, const struct modelref *r, struct choice *ret, err *e);

// Of safetensors. read(ud, i, ...) fetches the small file l->files[i]; *ret_text is freed by free().
typedef err_code choice_read(void *ud, int file, char **ret_text, size_t *ret_len, err *e);
MUST_CHECK err_code choice_folder(const struct hub_listing *l, const struct modelref *r, choice_read *read, void *ud,
                                 struct choice *ret, err *e);
