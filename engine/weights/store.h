// store.h - the inside of struct weights, for the files of this folder.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/file.h"
#include "engine/weights/directory.h"
#include "engine/weights/meta.h"
#include "engine/weights/weights.h"

enum { STORE_SHARDS = 1024, STORE_SIDES = 32 }; // most files of a model, most JSON side files

#define STORE_KEYS "metadata.gguf" // beside safetensors made of a GGUF: its keys, without tensors

struct store_shard {
    struct file_map map;
    bool mapped; // else the memory is the caller's
};

struct store_side {
    const char *file;
    struct json_t *json;
};

struct weights {
    struct arena arena;
    const char *path, *folder, *arch;
    enum weights_container container;
    struct store_shard shards[STORE_SHARDS];
    const char *names[STORE_SHARDS]; // the shards' file names, for messages
    int shard_count;
    struct directory directory;
    struct meta meta;
    struct store_side sides[STORE_SIDES];
    int side_count;
    bool survey;
};
