// jsonfile.h - JSON from files that others wrote: size, depth and number of values are bounded before a tree is built.
//
//     json_t *j;
//     if (jsonfile_read("/models/x/config.json", JSONFILE_LENIENT, &j, &e)) ...
//
// Errors name the file: ERR_TOO_LARGE past a bound, ERR_CORRUPT for what is not JSON.
#pragma once

#include <stddef.h>

#include "base/err.h"

struct json_t;

enum {
    JSONFILE_HEADER = 100000000, // most bytes of a safetensors header, as the format's own library allows
    JSONFILE_SIDE = 128 << 20,   // of a side file (tokenizer.json)
    JSONFILE_VALUES = 1 << 23,   // most values in one file
    JSONFILE_DEPTH = 64,         // most nested arrays and objects
};

// The file is an object, with JSONFILE_ANY also an array. A key that appears twice is an error when strict (safetensors
// forbids it); else the last one counts, as in Python, and Python's numbers are read: integers of any length (as
// reals), Infinity, -Infinity (the largest reals) and NaN (null).
enum jsonfile_mode { JSONFILE_ANY, JSONFILE_LENIENT, JSONFILE_STRICT };

MUST_CHECK err_code jsonfile_parse(const char *file, const char *text, size_t len, enum jsonfile_mode mode,
                                   struct json_t **ret_json, err *e);
MUST_CHECK err_code jsonfile_read(const char *path, enum jsonfile_mode mode, struct json_t **ret_json, err *e);
