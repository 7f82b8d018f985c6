// format.h - what a container file in engine/weights/ provides, and how it is found.
//
//     const struct format *f;
//     if (format_of(&file, &f, &e)) ...
//     if (f->read(&file, &directory, &meta, &e)) ...
//
// A reader checks everything it takes from the file against the file's real size, and adds tensors that point into it.
// Errors name the file and, where there is one, the tensor or key, what was found and what was expected.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct directory;
struct meta;

// One file in memory, borrowed.
struct format_file {
    const char *name; // without its folder, for messages
    const uint8_t *data;
    size_t size;
    int shard;
};

struct format {
    const char *name;
    const char *suffix; // files named so are read as this container even when their head is damaged; NULL: none
    bool has_config;    // metadata stands in a config.json beside the file
    bool (*probe)(const struct format_file *f);
    err_code (*read)(const struct format_file *f, struct directory *d, struct meta *m, err *e);
};

// The container of a file, by content first, then by name. ERR_UNSUPPORTED when it is none that is known.
MUST_CHECK err_code format_of(const struct format_file *f, const struct format **ret_format, err *e);
