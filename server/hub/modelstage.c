// See the header.
#include "server/hub/modelstage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "server/hub/beneath.h"

enum { NAME = 96, EXCHANGE = 2 };  // RENAME_EXCHANGE

struct modelstage {
    struct modelstore *store;
    char folder[MODELREF_FOLDER], stage[MODELREF_FOLDER + 8];
    int lock, fd, parts;
};

static err_code failed(const struct modelstage *st, const char *what, err *e)
{
    const char *hint =
        errno == ENOSPC || errno == EDQUOT ? "; nothing is lost, the pull goes on when there is room" : "";
    return err_set(e, ERR_IO, "%s in '%s/%s': %s%s", what, modelstore_path(st->store), st->stage, strerror(errno),
                   hint);
}

static err_code write_text(int folder, const char *name, const char *text, size_t n, bool durable)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return ERR_IO;
    bool ok = write(fd, text, n) == (ssize_t)n && (!durable || !fsync(fd));
    int no = ok ? 0 : errno ? errno : ENOSPC;
    if (close(fd) && ok)
        return ERR_IO;
    errno = no;
    return ok ? ERR_OK : ERR_IO;
}

err_code modelstage_open(struct modelstore *s, const struct modelref *r, const struct modelstore_wait *w,
                         struct modelstage **ret_stage, err *e)
{
    struct modelstage *st = mem_new(sizeof *st);
    char text[MODELREF_TEXT];
    *st = (struct modelstage){.store = s, .lock = -1, .fd = -1, .parts = -1};
    err_code rc = modelref_folder(r, st->folder, e);
    if (!rc)
        rc = modelstore_lock(s, st->folder, w, &st->lock, e);
    if (!rc) {
        snprintf(st->stage, sizeof st->stage, ".pull-%s", st->folder);
        st->fd = beneath_folder(modelstore_fd(s), st->stage);
        st->parts = st->fd < 0 ? -1 : beneath_folder(st->fd, "parts");
        modelref_text(r, text);
        if (st->parts < 0 || write_text(st->fd, "name", text, strlen(text), false))
            rc = failed(st, "cannot write", e);
    }
    if (rc)
        modelstage_close(st);
    else
        *ret_stage = st;
    return rc;
}

void modelstage_close(struct modelstage *st)
{
    if (!st)
        return;
    if (st->parts >= 0)
        close(st->parts);
    if (st->fd >= 0 && !unlinkat(st->fd, "parts", AT_REMOVEDIR))  // it was empty
        modelstage_drop(st);
    if (st->fd >= 0)
        close(st->fd);
    if (st->lock >= 0)
        modelstore_unlock(st->store, st->folder, st->lock);
    free(st);
}

void modelstage_drop(struct modelstage *st)
{
    (void)beneath_remove(modelstore_fd(st->store), st->stage);
}

// ---- parts

static const char *part_name(const char *key, const char *kind, char out[NAME])
{
    snprintf(out, NAME, "%.80s%s", key, kind);
    return out;
}

bool modelstage_has(struct modelstage *st, const char *key, uint64_t *size)
{
    int64_t have = beneath_size(st->parts, key);
    if (have >= 0 && *size == UINT64_MAX)
        *size = (uint64_t)have;
    return have >= 0 && (uint64_t)have == *size;
}

uint64_t modelstage_part_size(struct modelstage *st, const char *key)
{
    char name[NAME];
    int64_t n = beneath_size(st->parts, part_name(key, ".part", name));
    return n < 0 ? 0 : (uint64_t)n;
}

err_code modelstage_open_part(struct modelstage *st, const char *key, int *ret_fd, err *e)
{
    char name[NAME];
    int fd = beneath_open(st->parts, part_name(key, ".part", name), O_RDWR | O_CREAT, false);
    if (fd < 0)
        return failed(st, "cannot write", e);
    *ret_fd = fd;
    return ERR_OK;
}

err_code modelstage_open_whole(struct modelstage *st, const char *key, int *ret_fd, err *e)
{
    int fd = beneath_open(st->parts, key, O_RDONLY, false);
    if (fd < 0)
        return failed(st, "cannot read", e);
    *ret_fd = fd;
    return ERR_OK;
}

void modelstage_etag(struct modelstage *st, const char *key, char *out, size_t size)
{
    char name[NAME];
    int fd = beneath_open(st->parts, part_name(key, ".etag", name), O_RDONLY, false);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
}

err_code modelstage_set_etag(struct modelstage *st, const char *key, const char *etag, err *e)
{
    char name[NAME];
    part_name(key, ".etag", name);
    if (!*etag)
        return unlinkat(st->parts, name, 0) && errno != ENOENT ? failed(st, "cannot write", e) : ERR_OK;
    return write_text(st->parts, name, etag, strlen(etag), false) ? failed(st, "cannot write", e) : ERR_OK;
}

err_code modelstage_finish_part(struct modelstage *st, const char *key, int fd, err *e)
{
    char name[NAME];
    if (fsync(fd) || renameat(st->parts, part_name(key, ".part", name), st->parts, key) || fsync(st->parts))
        return failed(st, "cannot write", e);
    unlinkat(st->parts, part_name(key, ".etag", name), 0);
    return ERR_OK;
}

void modelstage_drop_part(struct modelstage *st, const char *key)
{
    char name[NAME];
    unlinkat(st->parts, part_name(key, ".part", name), 0);
    unlinkat(st->parts, part_name(key, ".etag", name), 0);
}

bool modelstage_reuse(struct modelstage *st, const char *path, const char *key)
{
    const char *slash = strrchr(path, '/');
    char way[MODELREF_FOLDER + MODELREF_PATH + 2];
    int n = snprintf(way, sizeof way, "%s/%s", st->folder, path);
    int fd = n < 0 || (size_t)n >= sizeof way ? -1 : beneath_open(modelstore_fd(st->store), way, O_RDONLY, false);
    if (fd < 0)
        return false;
    close(fd);  // it is a file, reached over no link
    way[strlen(way) - strlen(slash ? slash + 1 : path) - 1] = 0;
    int at = beneath_open(modelstore_fd(st->store), way, O_RDONLY | O_DIRECTORY, false);
    bool ok = at >= 0 && !linkat(at, slash ? slash + 1 : path, st->parts, key, 0);
    if (at >= 0)
        close(at);
    return ok;
}

uint64_t modelstage_free_bytes(const struct modelstage *st)
{
    struct statvfs v;
    return fstatvfs(st->fd, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

// ---- a model of them

static bool needed_later(const struct manifest *m, const char *const *keys, int i)
{
    for (int k = i + 1; k < m->nfiles; k++)
        if (strcmp(keys[k], keys[i]) == 0)
            return true;
    return false;
}

static int copy_file(int from, const char *name, int folder, const char *path)
{
    static const size_t piece = 1 << 18;
    char *bytes = mem_new(piece);
    ssize_t n = -1;
    int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int out = in < 0 ? -1 : beneath_open(folder, path, O_WRONLY | O_CREAT | O_TRUNC, true);
    while (out >= 0 && (n = read(in, bytes, piece)) > 0)
        if (write(out, bytes, (size_t)n) != n) {
            errno = ENOSPC;
            n = -1;
            break;
        }
    int bad = n < 0 || fsync(out);
    if (in >= 0)
        close(in);
    if (out >= 0 && close(out))
        bad = 1;
    free(bytes);
    return bad ? -1 : 0;
}

// Where the file system has no second names for a file, it is moved, or copied while another needs it.
static int place(struct modelstage *st, int tree, const char *key, const char *path, bool again)
{
    if (!beneath_link(st->parts, key, tree, path))
        return 0;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK && errno != ENOSYS)
        return -1;
    if (again)
        return copy_file(st->parts, key, tree, path);
    int fd = beneath_open(tree, path, O_WRONLY | O_CREAT, true);  // its folders
    if (fd < 0)
        return -1;
    close(fd);
    return renameat(st->parts, key, tree, path) || fsync(tree) ? -1 : 0;
}

static err_code build_tree(struct modelstage *st, int tree, const struct manifest *m, const char *const *keys, err *e)
{
    struct buf text;
    for (int i = 0; i < m->nfiles; i++)
        if (place(st, tree, keys[i], m->files[i].path, needed_later(m, keys, i)))
            return failed(st, "cannot put the files in place", e);
    buf_init(&text, MANIFEST_MAX_BYTES);
    manifest_write(m, &text);
    err_code rc = text.over ? err_set(e, ERR_TOO_LARGE, "the model has too many files") : ERR_OK;
    if (!rc && (write_text(tree, MANIFEST_FILE, text.data, text.len, true) || fsync(tree) || fsync(st->fd)))
        rc = failed(st, "cannot write", e);
    buf_done(&text);
    return rc;
}

// The one rename. A model that was there before moves to where the new one was, in the same step where the kernel can.
static err_code swap_in(struct modelstage *st, err *e)
{
    int store = modelstore_fd(st->store);
    struct stat there;
    bool replace = !fstatat(store, st->folder, &there, AT_SYMLINK_NOFOLLOW);
    if (replace && syscall(SYS_renameat2, st->fd, "tree", store, st->folder, EXCHANGE)) {
        (void)beneath_remove(st->fd, "old");
        if (renameat(store, st->folder, st->fd, "old"))
            return failed(st, "cannot replace the model", e);
        replace = false;
    }
    if (!replace && renameat(st->fd, "tree", store, st->folder))
        return failed(st, "cannot put the model in place", e);
    return fsync(store) ? failed(st, "cannot write", e) : ERR_OK;
}

err_code modelstage_publish(struct modelstage *st, const struct manifest *m, const char *const *keys, err *e)
{
    if (beneath_remove(st->fd, "tree"))
        return failed(st, "cannot remove what an earlier pull left", e);
    int tree = beneath_folder(st->fd, "tree");
    if (tree < 0)
        return failed(st, "cannot write", e);
    err_code rc = build_tree(st, tree, m, keys, e);
    close(tree);
    if (!rc)
        rc = swap_in(st, e);
    if (!rc)
        modelstage_drop(st);  // a leftover costs room only, and goes with the next pull or rm
    return rc;
}
