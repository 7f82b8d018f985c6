// shard.h - writes one safetensors file, front to back, so that a crash or a full disk cannot be taken for a whole one.
//
//     struct shard s;
//     if (shard_open(&s, path, metadata, tensors, n, &e)) ...   // the header is in the file, filled with spaces to a whole page
//     shard_write(&s, bytes, len, &e);                          // all tensors' bytes, in the list's order
//     shard_close(&s, &e);                                      // checks that they are all there; on disk when it returns
//     shard_abandon(&s);                                        // instead: closes it as it is
//
// The first tensor's bytes begin at a multiple of OWN_PAGE. One thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/weights/weights.h"

struct json_t;

struct shard_tensor {
    const char *name, *dtype;
    int64_t shape[TENSOR_DIMS];
    int ndim;
    size_t bytes;
};

struct shard {
    int fd;
    const char *path;  // borrowed
    size_t left;       // bytes of tensors not written yet
};

// metadata: an object of texts. ERR_IO, ERR_TOO_LARGE. The file must not exist.
MUST_CHECK err_code shard_open(struct shard *s, const char *path, struct json_t *metadata, const struct shard_tensor *tensors,
                               size_t n, err *e);
MUST_CHECK err_code shard_write(struct shard *s, const void *p, size_t n, err *e);
MUST_CHECK err_code shard_close(struct shard *s, err *e);
void shard_abandon(struct shard *s);

// A small file of its own, likewise on disk when it returns; it must not exist.
MUST_CHECK err_code shard_write_file(const char *path, const void *p, size_t n, err *e);
