// file.h - whole files: mapped read-only, or read into memory with a bound.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct file_map {
    const uint8_t *data;  // NULL for an empty file
    size_t size;
    int fd;               // of the same file, for who would rather read it
};

// Maps a regular file read-only. Errors: ERR_NOT_FOUND, ERR_IO, ERR_INVALID (a folder, a device).
MUST_CHECK err_code file_map_open(const char *path, struct file_map *ret_map, err *e);
void file_map_close(struct file_map *m);

// Reads at most max bytes; a longer file is ERR_TOO_LARGE. *ret_text is NUL-terminated and freed by free().
MUST_CHECK err_code file_read(const char *path, size_t max, char **ret_text, size_t *ret_len, err *e);

bool file_exists(const char *path);
bool file_is_dir(const char *path);
