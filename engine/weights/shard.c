// shard.c - writing safetensors. One thread; every write is checked, and the file is on disk before it is called closed.
#include "engine/weights/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/weights/jsonfile.h"
#include "engine/weights/own.h"

static err_code failed(const char *path, err *e)
{
    return err_set(e, ERR_IO, "cannot write '%s': %s", path, strerror(errno));
}

static err_code create(const char *path, int *ret_fd, err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return failed(path, e);
    *ret_fd = fd;
    return ERR_OK;
}

static err_code write_all(int fd, const char *path, const void *p, size_t n, err *e)
{
    for (const char *at = p; n;) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return failed(path, e);
        at += done;
        n -= (size_t)done;
    }
    return ERR_OK;
}

static err_code finish(int fd, const char *path, err *e)
{
    err_code rc = fsync(fd) ? failed(path, e) : ERR_OK;
    if (close(fd) && !rc)  // network file systems report a full disk here
        rc = failed(path, e);
    return rc;
}

static json_t *describe(const struct shard_tensor *t, size_t at)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets", (json_int_t)at,
                     (json_int_t)(at + t->bytes));
}

static char *header_text(json_t *metadata, const struct shard_tensor *tensors, size_t n, size_t *ret_bytes)
{
    json_t *header = json_object();
    size_t at = 0;
    json_object_set(header, "__metadata__", metadata);
    for (size_t i = 0; i < n; i++) {
        json_object_set_new(header, tensors[i].name, describe(&tensors[i], at));
        at += tensors[i].bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    *ret_bytes = at;
    return text;
}

err_code shard_open(struct shard *s, const char *path, json_t *metadata, const struct shard_tensor *tensors, size_t n, err *e)
{
    size_t bytes;
    char *text = header_text(metadata, tensors, n, &bytes);
    size_t len = text ? strlen(text) : 0, whole = (8 + len + OWN_PAGE - 1) & ~(size_t)(OWN_PAGE - 1);
    *s = (struct shard){.fd = -1, .path = path, .left = bytes};
    if (!text || whole - 8 > JSONFILE_HEADER) {
        free(text);
        return err_set(e, ERR_TOO_LARGE, "'%s': a header of %zu bytes, at most %d are possible", path, len, JSONFILE_HEADER);
    }
    char *head = mem_new(whole);
    uint64_t n64 = whole - 8;
    memset(head, ' ', whole);
    memcpy(head, &n64, 8);
    memcpy(head + 8, text, len);
    free(text);
    err_code rc = create(path, &s->fd, e);
    if (!rc)
        rc = write_all(s->fd, path, head, whole, e);
    free(head);
    return rc;
}

err_code shard_write(struct shard *s, const void *p, size_t n, err *e)
{
    if (n > s->left)
        return err_set(e, ERR_INTERNAL, "'%s': %zu bytes more than its header tells", s->path, n - s->left);
    s->left -= n;
    return write_all(s->fd, s->path, p, n, e);
}

err_code shard_close(struct shard *s, err *e)
{
    int fd = s->fd;
    s->fd = -1;
    err_code rc = finish(fd, s->path, e);
    if (!rc && s->left)
        rc = err_set(e, ERR_INTERNAL, "'%s': %zu bytes are missing", s->path, s->left);
    return rc;
}

void shard_abandon(struct shard *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

err_code shard_write_file(const char *path, const void *p, size_t n, err *e)
{
    int fd = -1;
    err_code rc = create(path, &fd, e);
    if (rc)
        return rc;
    rc = write_all(fd, path, p, n, e);
    if (!rc)
        return finish(fd, path, e);
    close(fd);
    return rc;
}
