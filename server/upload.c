// Keeps what a form holds. Every size is bounded: text by UPLOAD_TEXT_MAX, files by the setting max_upload, memory for
// files by UPLOAD_MEMORY_MAX; the rest goes to a temporary file without a name, so that nothing stays behind whatever
// happens. Writes go to the page cache and are made on the loop thread as the bytes come.
#include "server/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/multipart.h"

enum { NAME_MAX_BYTES = 256 };

struct filling {
    struct upload u;  // the public part comes first
    struct arena *arena;
    struct upload_limits limits;
    struct multipart *parser;
    struct buf text, memory;
    size_t text_bytes;
    bool in_file;
    char name[NAME_MAX_BYTES + 1];
};

static const char *folder_of(const char *folder)
{
    const char *env = getenv("TMPDIR");
    return folder && *folder ? folder : env && *env ? env : "/tmp";
}

// A file that has no name, or loses it at once where the file system cannot make one without.
static int open_unnamed(const char *folder)
{
    folder = folder_of(folder);
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/oxinferd-XXXXXX", folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

err_code upload_check_folder(const char *folder, err *e)
{
    int fd = open_unnamed(folder);
    if (fd < 0)
        return err_set_param(e, ERR_IO, "upload_dir", "no temporary file can be made in '%s': %s", folder_of(folder),
                             strerror(errno));
    close(fd);
    return ERR_OK;
}

static err_code write_all(int fd, const char *p, size_t n, err *e)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, ERR_IO, "The upload could not be stored: %s.", strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return ERR_OK;
}

static err_code flush(struct filling *f, err *e)
{
    err_code rc = write_all(f->u.fd, f->memory.data ? f->memory.data : "", f->memory.len, e);
    buf_clear(&f->memory);
    return rc;
}

static err_code spill(struct filling *f, err *e)
{
    f->u.fd = open_unnamed(f->limits.folder);
    if (f->u.fd < 0)
        return err_set(e, ERR_IO, "The upload could not be stored: %s.", strerror(errno));
    return flush(f, e);
}

static err_code add_file_bytes(struct filling *f, const char *data, size_t n, err *e)
{
    struct upload *u = &f->u;
    if (n > f->limits.max_bytes - u->file_bytes)
        return err_set(e, ERR_TOO_LARGE, "The uploaded file is larger than the limit of %zu bytes (the setting max_upload).",
                       f->limits.max_bytes);
    if (u->fd < 0 && u->file_bytes + n > UPLOAD_MEMORY_MAX && spill(f, e))
        return e->code;
    // Content full of what may begin a boundary comes a byte at a time: writes are of whole blocks all the same.
    if (u->fd >= 0 && n > UPLOAD_MEMORY_MAX - f->memory.len && flush(f, e))
        return e->code;
    if (n > UPLOAD_MEMORY_MAX ? write_all(u->fd, data, n, e) : !buf_add(&f->memory, data, n))
        return e->code ? e->code : err_set(e, ERR_MEMORY, "No memory for the upload.");
    u->file_bytes += n;
    u->files[u->nfiles - 1].size += n;
    return ERR_OK;
}

// ---- what the parser reports

static err_code on_part(void *ud, const struct multipart_part *p, err *e)
{
    struct filling *f = ud;
    struct upload *u = &f->u;
    if (strlen(p->name) > NAME_MAX_BYTES)
        return err_set(e, ERR_INVALID, "A field of the form has a name longer than %d bytes.", NAME_MAX_BYTES);
    strcpy(f->name, p->name);
    f->in_file = p->filename != NULL;
    if (!f->in_file)
        return ERR_OK;
    if (u->nfiles == UPLOAD_FILES_MAX)
        return err_set(e, ERR_INVALID, "The form has more than %d files.", UPLOAD_FILES_MAX);
    u->files[u->nfiles++] = (struct upload_file){
        arena_strdup(f->arena, p->name), arena_strdup(f->arena, p->filename), arena_strdup(f->arena, p->content_type),
        (int64_t)u->file_bytes, 0};
    return ERR_OK;
}

static err_code on_data(void *ud, const char *data, size_t n, err *e)
{
    struct filling *f = ud;
    if (f->in_file)
        return add_file_bytes(f, data, n, e);
    f->text_bytes += n;
    if (f->text_bytes > UPLOAD_TEXT_MAX || !buf_add(&f->text, data, n))
        return err_set_param(e, ERR_INVALID, f->name,
                             "The text fields of the form are larger than %d bytes. A file needs a 'filename' in its "
                             "Content-Disposition.", UPLOAD_TEXT_MAX);
    return ERR_OK;
}

static err_code on_end(void *ud, err *e)
{
    struct filling *f = ud;
    struct upload *u = &f->u;
    if (f->in_file)
        return ERR_OK;
    if (!f->name[0]) {
        buf_clear(&f->text);
        return ERR_OK;
    }
    if (u->nfields == UPLOAD_FIELDS_MAX)
        return err_set(e, ERR_INVALID, "The form has more than %d text fields.", UPLOAD_FIELDS_MAX);
    const char *text = f->text.data ? f->text.data : "";
    if (memchr(text, 0, f->text.len))
        return err_set_param(e, ERR_INVALID, f->name, "Invalid '%s': it contains a NUL.", f->name);
    u->fields[u->nfields++] = (struct upload_field){arena_strdup(f->arena, f->name),
                                                    arena_strndup(f->arena, text, f->text.len), f->text.len};
    buf_clear(&f->text);
    return ERR_OK;
}

static const struct multipart_sink sink = {on_part, on_data, on_end};

// ---- the interface

static void release(void *object)
{
    struct filling *f = object;
    multipart_free(f->parser);
    buf_done(&f->text);
    buf_done(&f->memory);
    if (f->u.fd >= 0)
        close(f->u.fd);
    free(f);
}

err_code upload_new(struct arena *a, const char *content_type, const struct upload_limits *limits,
                    struct upload **ret_upload, err *e)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    if (multipart_boundary(content_type, boundary, e))
        return e->code;
    struct filling *f = mem_new(sizeof *f);
    f->u.fd = -1;
    f->arena = a;
    f->limits = *limits;
    f->parser = multipart_new(boundary, &sink, f);
    buf_init(&f->text, UPLOAD_TEXT_MAX);
    buf_init(&f->memory, UPLOAD_MEMORY_MAX);
    arena_defer(a, release, f);
    *ret_upload = &f->u;
    return ERR_OK;
}

static struct filling *filling_of(struct upload *u)
{
    return (struct filling *)u;
}

err_code upload_add(struct upload *u, const char *data, size_t n, err *e)
{
    return multipart_feed(filling_of(u)->parser, data, n, e);
}

err_code upload_finish(struct upload *u, err *e)
{
    struct filling *f = filling_of(u);
    err_code rc = multipart_finish(f->parser, e);
    if (!rc && u->fd >= 0)
        rc = flush(f, e);
    if (u->fd >= 0)
        buf_done(&f->memory);
    u->data = f->memory.data ? f->memory.data : "";
    buf_done(&f->text);
    return rc;
}

static bool is_element(const char *field, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(field, name, n))
        return false;
    field += n;
    if (!*field)
        return true;
    if (*field != '[')
        return false;
    field += 1 + strspn(field + 1, "0123456789");
    return !strcmp(field, "]");
}

int upload_list(const struct upload *u, const char *name, const char **ret_values, int max)
{
    int n = 0;
    for (int i = 0; i < u->nfields; i++) {
        if (!u->fields[i].len || !is_element(u->fields[i].name, name))
            continue;
        if (n < max)
            ret_values[n] = u->fields[i].value;
        n++;
    }
    return n;
}

int upload_find(const struct upload *u, const char *name, const struct upload_file **ret_file)
{
    int n = 0;
    for (int i = 0; i < u->nfiles; i++)
        if (is_element(u->files[i].name, name) && n++ == 0)
            *ret_file = &u->files[i];
    return n;
}

int64_t upload_read(const struct upload *u, const struct upload_file *f, int64_t at, void *out, size_t size)
{
    if (at < 0 || (uint64_t)at >= f->size)
        return 0;
    size_t left = f->size - (size_t)at, n = size < left ? size : left;
    if (u->fd < 0) {
        memcpy(out, u->data + f->offset + at, n);
        return (int64_t)n;
    }
    ssize_t k;
    do
        k = pread(u->fd, out, n, (off_t)(f->offset + at));
    while (k < 0 && errno == EINTR);
    return k;
}
