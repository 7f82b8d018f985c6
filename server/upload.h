// upload.h - a multipart/form-data body: its text fields in memory, its files in memory while they are small and in an
// unlinked temporary file beyond that. Filled on the loop thread while the body arrives (body.c); read by the handler,
// which finds it as r->upload, and by work it gives to the thread pool. Freed with the request.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    UPLOAD_FIELDS_MAX = 128,
    UPLOAD_TEXT_MAX = 1 << 20,     // bytes of all text fields together
    UPLOAD_FILES_MAX = 16,
    UPLOAD_MEMORY_MAX = 256 << 10, // bytes of files kept in memory
};

struct upload_field {
    const char *name, *value;  // value is NUL-terminated and holds no NUL
    size_t len;
};

struct upload_file {
    const char *name, *filename, *content_type;  // as the client wrote them; filename is never used as a path
    int64_t offset;  // in data or in fd
    size_t size;
};

struct upload {
    struct upload_field fields[UPLOAD_FIELDS_MAX];
    int nfields;
    struct upload_file files[UPLOAD_FILES_MAX];
    int nfiles;
    const char *data;  // the files' bytes when fd is -1
    int fd;            // else where they are: read with pread
    size_t file_bytes; // of all files
};

struct upload_limits {
    size_t max_bytes;     // of all files together
    const char *folder;   // for the temporary file; NULL: $TMPDIR or /tmp
};

// Memory that belongs to the upload hangs on the arena, and so does its end.
MUST_CHECK err_code upload_new(struct arena *a, const char *content_type, const struct upload_limits *limits,
                               struct upload **ret_upload, err *e);
// ERR_INVALID (no proper form), ERR_TOO_LARGE (the files), ERR_IO, ERR_MEMORY.
MUST_CHECK err_code upload_add(struct upload *u, const char *data, size_t n, err *e);
MUST_CHECK err_code upload_finish(struct upload *u, err *e);

// All values of an array: fields "name", "name[]" and "name[0]" in the order they came, a value that is a JSON list or
// has commas left as it is. Returns how many there are; at most max are written.
int upload_list(const struct upload *u, const char *name, const char **ret_values, int max);
// How many files have this name; *ret_file is the first.
int upload_find(const struct upload *u, const char *name, const struct upload_file **ret_file);
// Reads size bytes of a file from offset at; short at its end. -1: an input error.
int64_t upload_read(const struct upload *u, const struct upload_file *f, int64_t at, void *out, size_t size);
// Can a temporary file be made there?
MUST_CHECK err_code upload_check_folder(const char *folder, err *e);
