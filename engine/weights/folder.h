// folder.h - which files make up the model at a path.
//
//     struct folder_plan plan = {0};
//     if (folder_resolve(path, &arena, &plan, &e)) ...
//
// Runs on the thread that opens a model; all strings belong to the arena.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"

struct folder_plan {
    const char *folder; // where side files lie
    const char *config; // a pipeline's model_index.json, whose weights lie in folders of its own; NULL: a model
    const char *index;  // path of an index of safetensors shards; NULL: files are known
    const char **files; // paths, in shard order
    int count;
};

// ERR_NOT_FOUND, ERR_INVALID (several models), ERR_UNSUPPORTED (only pickles); texts name what was found.
MUST_CHECK err_code folder_resolve(const char *path, struct arena *a, struct folder_plan *ret_plan, err *e);

// Path of the JSON file that describes a safetensors file, by its name; NULL when that kind has none.
const char *folder_config(const char *folder, const char *file, struct arena *a);

const char *folder_join(const char *folder, const char *file, struct arena *a);
const char *folder_base(const char *path); // the last part of a path

// A shard's name from an index: a plain file name ending in .safetensors.
bool folder_plain_name(const char *name);
