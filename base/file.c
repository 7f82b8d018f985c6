#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static err_code open_regular(const char *path, int *ret_fd, size_t *ret_size, err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO, "cannot open '%s': %s", path,
                       strerror(errno));
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(e, ERR_INVALID, "'%s' is not a regular file", path);
    }
    *ret_fd = fd;
    *ret_size = (size_t)st.st_size;
    return ERR_OK;
}

err_code file_map_open(const char *path, struct file_map *ret_map, err *e)
{
    int fd;
    size_t size;
    err_code rc = open_regular(path, &fd, &size, e);
    if (rc)
        return rc;
    void *p = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (p == MAP_FAILED) {
        rc = err_set(e, ERR_IO, "cannot map '%s' (%zu bytes): %s", path, size, strerror(errno));
        close(fd);
        return rc;
    }
    *ret_map = (struct file_map){p, size, fd};
    return ERR_OK;
}

void file_map_close(struct file_map *m)
{
    if (m->data)
        munmap((void *)m->data, m->size);
    if (m->fd > 0)
        close(m->fd);
    *m = (struct file_map){0};
}

err_code file_read(const char *path, size_t max, char **ret_text, size_t *ret_len, err *e)
{
    int fd;
    size_t size;
    err_code rc = open_regular(path, &fd, &size, e);
    if (rc)
        return rc;
    if (size > max) {
        close(fd);
        return err_set(e, ERR_TOO_LARGE, "'%s' has %zu bytes, at most %zu are read", path, size, max);
    }
    char *text = mem_try(size + 1);
    size_t got = 0;
    ssize_t n = 0;
    while (text && got < size && (n = read(fd, text + got, size - got)) > 0)
        got += (size_t)n;
    int no = errno;
    close(fd);
    if (!text)
        return err_set(e, ERR_MEMORY, "no memory to read '%s' (%zu bytes)", path, size);
    if (n < 0) {
        free(text);
        return err_set(e, ERR_IO, "cannot read '%s': %s", path, strerror(no));
    }
    *ret_text = text;
    *ret_len = got;
    return ERR_OK;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
