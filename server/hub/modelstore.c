// See the header. Finding, listing, checking and removing; what is being pulled is modelstage.c's.
#include "server/hub/modelstore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/hub/beneath.h"

enum { MODELS_MAX = 4096, LOCK_POLL_US = 100000 };

struct modelstore {
    int fd;
    char *path;
};

// ---- the folder

// Where it is when no setting says so: NULL when the environment has no such place.
static char *default_path(void)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"STATE_DIRECTORY", "models"}, {"XDG_DATA_HOME", "oxinferd/models"}, {"HOME", ".local/share/oxinferd/models"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *at = getenv(places[i].variable);
        if (!at || at[0] != '/')
            continue;
        size_t n = strcspn(at, ":");  // of several state directories the first
        n = i == 0 ? n : strlen(at);
        char *path = mem_new(n + strlen(places[i].below) + 2);
        sprintf(path, "%.*s/%s", (int)n, at, places[i].below);
        return path;
    }
    return NULL;
}

static bool make_folders(char *path)
{
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            bool bad = mkdir(path, 0777) && errno != EEXIST;
            *p = '/';
            if (bad)
                return false;
        }
    return !mkdir(path, 0777) || errno == EEXIST;
}

err_code modelstore_open(const char *dir, bool create, struct modelstore **ret_store, err *e)
{
    char *path = dir && *dir ? mem_strdup(dir) : default_path();
    if (!path)
        return err_set_param(e, ERR_INVALID, "store_dir",
                             "there is no place for models: set store_dir, XDG_DATA_HOME or HOME");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && create && make_folders(path))
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *whole = fd >= 0 ? realpath(path, NULL) : NULL;
    if (!whole) {
        if (errno == ENOENT && !create)
            err_set_param(e, ERR_NOT_FOUND, "store_dir", "there is no model store '%s' yet; oxinferd pull OWNER/NAME makes it", path);
        else
            err_set_param(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "store_dir", "the model store '%s': %s", path,
                          strerror(errno));
        if (fd >= 0)
            close(fd);
        free(path);
        return e ? e->code : ERR_IO;
    }
    free(path);
    struct modelstore *s = mem_new(sizeof *s);
    *s = (struct modelstore){fd, whole};
    *ret_store = s;
    return ERR_OK;
}

void modelstore_close(struct modelstore *s)
{
    if (!s)
        return;
    close(s->fd);
    free(s->path);
    free(s);
}

const char *modelstore_path(const struct modelstore *s)
{
    return s->path;
}

int modelstore_fd(const struct modelstore *s)
{
    return s->fd;
}

// ---- manifests

static int open_model(const struct modelstore *s, const char *folder)
{
    return openat(s->fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static err_code read_whole(int fd, struct buf *out, err *e)
{
    char piece[16384];
    ssize_t n;
    while ((n = read(fd, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && !buf_add(out, piece, (size_t)n))
            return err_set(e, ERR_CORRUPT, "more than %d bytes", MANIFEST_MAX_BYTES);
    return n < 0 ? err_set(e, ERR_IO, "%s", strerror(errno)) : ERR_OK;
}

static err_code read_manifest(const struct modelstore *s, const char *folder, struct manifest *ret_manifest, err *e)
{
    struct buf text;
    char expected[MODELREF_FOLDER];
    buf_init(&text, MANIFEST_MAX_BYTES);
    int at = open_model(s, folder),
        fd = at < 0 ? -1 : openat(at, MANIFEST_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    err_code rc = ERR_OK;
    if (fd < 0)
        rc = err_set(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_CORRUPT, "%s", strerror(errno));
    if (!rc)
        rc = read_whole(fd, &text, e);
    if (!rc)
        rc = manifest_read(text.data ? text.data : "", text.len, ret_manifest, e);
    struct stat st;
    if (!rc && !fstat(fd, &st))
        ret_manifest->used_unix_s = (int64_t)st.st_mtim.tv_sec;
    if (!rc && (modelref_folder(&ret_manifest->ref, expected, e) || strcmp(expected, folder) != 0)) {
        rc = err_set(e, ERR_CORRUPT, "it is of '%s'", ret_manifest->ref.repo);
        manifest_done(ret_manifest);
    }
    if (rc)
        err_wrap(e, "'%s/%s/" MANIFEST_FILE "'", s->path, folder);
    if (fd >= 0)
        close(fd);
    if (at >= 0)
        close(at);
    buf_done(&text);
    return rc;
}

// ---- all of them

static int by_folder(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static err_code folders(const struct modelstore *s, char ***ret_names, int *ret_count, err *e)
{
    int fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_IO, "cannot list '%s': %s", s->path, strerror(errno));
    }
    char **names = mem_new(MODELS_MAX * sizeof *names);
    int n = 0;
    for (struct dirent *it; (it = readdir(d)) && n < MODELS_MAX;)
        names[n++] = mem_strdup(it->d_name);
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_folder);
    *ret_names = names;
    *ret_count = n;
    return ERR_OK;
}

static void free_names(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

// The reference a pull was of, as it wrote it down; "" when it did not come that far.
static void staged_name(const struct modelstore *s, const char *folder, char out[MODELREF_TEXT])
{
    struct modelref r;
    err ignored;
    int at = open_model(s, folder),
        fd = at < 0 ? -1 : openat(at, "name", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, out, MODELREF_TEXT - 1);
    out[n > 0 ? n : 0] = 0;
    if (modelref_parse(out, &r, &ignored))
        out[0] = 0;
    if (fd >= 0)
        close(fd);
    if (at >= 0)
        close(at);
}

static uint64_t staged_bytes(const struct modelstore *s, const char *folder)
{
    uint64_t sum = 0;
    int at = open_model(s, folder),
        fd = at < 0 ? -1 : openat(at, "parts", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *it; d && (it = readdir(d));) {
        struct stat st;
        if (!fstatat(fd, it->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    if (at >= 0)
        close(at);
    return sum;
}

err_code modelstore_list(struct modelstore *s, struct modelstore_list *ret_list, err *e)
{
    struct modelstore_list l = {0};
    char **names;
    int n;
    if (folders(s, &names, &n, e))
        return e->code;
    l.models = mem_new((size_t)n * sizeof *l.models + 1);
    l.partial = mem_new((size_t)n * sizeof *l.partial + 1);
    for (int i = 0; i < n; i++) {
        err ignored = {0};
        if (!strncmp(names[i], ".pull-", 6) && strlen(names[i] + 6) < MODELREF_FOLDER) {
            struct modelstore_partial *p = &l.partial[l.npartial++];
            p->bytes = staged_bytes(s, names[i]);
            staged_name(s, names[i], p->name);
        } else if (names[i][0] != '.') {
            err_code rc = read_manifest(s, names[i], &l.models[l.nmodels], l.ndamaged ? &ignored : &l.damage);
            l.nmodels += !rc;
            l.ndamaged += rc && rc != ERR_NOT_FOUND;  // what has no manifest is no model
        }
    }
    free_names(names, n);
    *ret_list = l;
    return ERR_OK;
}

void modelstore_list_done(struct modelstore_list *l)
{
    for (int i = 0; i < l->nmodels; i++)
        manifest_done(&l->models[i]);
    free(l->models);
    free(l->partial);
    *l = (struct modelstore_list){0};
}

// ---- one of them

static bool matches(const struct modelref *want, const struct modelref *have)
{
    return !strcasecmp(want->repo, have->repo) && !strcmp(want->subdir, have->subdir) &&
           !strcmp(want->revision, have->revision) && (!*want->quant || !strcasecmp(want->quant, have->quant));
}

// Of several the one that a pull without :QUANT would choose; -1: no such.
static int preferred(const struct modelstore_list *l, const struct modelref *r)
{
    static const char *const quants[] = {"", "Q4_K_M", "Q4_0"};
    for (size_t q = 0; q < sizeof quants / sizeof *quants; q++)
        for (int i = 0; i < l->nmodels; i++)
            if (matches(r, &l->models[i].ref) && !strcasecmp(l->models[i].ref.quant, quants[q]))
                return i;
    return -1;
}

static err_code several(const struct modelstore_list *l, const struct modelref *r, err *e)
{
    struct buf names;
    char text[MODELREF_TEXT];
    buf_init(&names, 400);
    for (int i = 0; i < l->nmodels; i++)
        if (matches(r, &l->models[i].ref))
            buf_printf(&names, "%s%s", names.len ? ", " : "", modelref_text(&l->models[i].ref, text));
    err_code rc = err_set(e, ERR_INVALID, "the store has several models of %s, name one: %s", modelref_text(r, text),
                          names.data ? names.data : "");
    buf_done(&names);
    return rc;
}

err_code modelstore_get(struct modelstore *s, const struct modelref *r, struct manifest *ret_manifest, err *e)
{
    char folder[MODELREF_FOLDER];
    err_code rc = modelref_folder(r, folder, e);
    return rc ? rc : read_manifest(s, folder, ret_manifest, e);
}

err_code modelstore_find(struct modelstore *s, const struct modelref *r, bool exact, struct manifest *ret_manifest,
                         err *e)
{
    struct modelstore_list l;
    char text[MODELREF_TEXT], folder[MODELREF_FOLDER];
    int found = -1, n = 0;
    if (modelref_folder(r, folder, e))
        return e->code;
    err_code rc = read_manifest(s, folder, ret_manifest, e);
    if (rc != ERR_NOT_FOUND)
        return rc;
    if (modelstore_list(s, &l, e))
        return e->code;
    for (int i = 0; i < l.nmodels; i++)
        if (matches(r, &l.models[i].ref)) {
            found = i;
            n++;
        }
    if (n > 1)
        found = exact ? -1 : preferred(&l, r);
    rc = ERR_OK;
    if (found >= 0) {
        *ret_manifest = l.models[found];
        l.models[found] = (struct manifest){0};
    } else {
        rc = n ? several(&l, r, e)
               : err_set(e, ERR_NOT_FOUND, "the store '%s' has no model %s", s->path, modelref_text(r, text));
    }
    modelstore_list_done(&l);
    return rc;
}

void modelstore_used(struct modelstore *s, const struct manifest *m)
{
    char folder[MODELREF_FOLDER];
    err ignored;
    int at = modelref_folder(&m->ref, folder, &ignored) ? -1 : open_model(s, folder);
    if (at < 0)
        return;
    static const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    (void)utimensat(at, MANIFEST_FILE, now, AT_SYMLINK_NOFOLLOW);
    close(at);
}

char *modelstore_serve_path(const struct modelstore *s, const struct manifest *m)
{
    char folder[MODELREF_FOLDER];
    err ignored;
    if (modelref_folder(&m->ref, folder, &ignored))
        return mem_strdup(s->path);
    char *path = mem_new(strlen(s->path) + strlen(folder) + strlen(m->serve) + 3);
    sprintf(path, "%s/%s%s%s", s->path, folder, *m->serve ? "/" : "", m->serve);
    return path;
}

static err_code check_file(int at, const struct manifest_file *f, bool hash, bool (*stop)(void *ud),
                          void *ud, err *e)
{
    char sha256[DIGEST_SHA256], blob[DIGEST_BLOB];
    int64_t size = beneath_size(at, f->path);
    if (size < 0)
        return err_set(e, ERR_CORRUPT, "'%s': %s", f->path, strerror(errno));
    if ((uint64_t)size != f->size)
        return err_set(e, ERR_CORRUPT, "'%s' has %lld bytes, expected %llu", f->path, (long long)size,
                       (unsigned long long)f->size);
    if (!hash)
        return ERR_OK;
    int fd = beneath_open(at, f->path, O_RDONLY, false);
    if (fd < 0)
        return err_set(e, ERR_IO, "'%s': %s", f->path, strerror(errno));
    struct digest *d = digest_new(false, 0);
    err_code rc = digest_add_file(d, fd, f->size, stop, ud, e);
    digest_take(d, sha256, blob);
    digest_free(d);
    close(fd);
    if (!rc && strcmp(sha256, f->sha256) != 0)
        rc = err_set(e, ERR_CORRUPT, "'%s' has another digest than when it was pulled", f->path);
    return rc;
}

err_code modelstore_check(struct modelstore *s, const struct manifest *m, int file, bool hash, bool (*stop)(void *ud),
                          void *ud, err *e)
{
    char folder[MODELREF_FOLDER];
    if (modelref_folder(&m->ref, folder, e))
        return e->code;
    int at = open_model(s, folder);
    err_code rc = at < 0 ? err_set(e, ERR_CORRUPT, "'%s/%s': %s", s->path, folder, strerror(errno)) : ERR_OK;
    for (int i = 0; i < m->nfiles && !rc; i++)
        if (file < 0 || file == i)
            rc = check_file(at, &m->files[i], hash, stop, ud, e);
    if (at >= 0)
        close(at);
    return rc;
}

// ---- locks

// One try. The file may have been taken away by its last holder between its opening and its locking.
static err_code try_lock(struct modelstore *s, const char *name, int *ret_fd, err *e)
{
    struct stat mine, there;
    int fd = openat(s->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set(e, ERR_IO, "'%s/%s': %s", s->path, name, strerror(errno));
    if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &mine) && !fstatat(s->fd, name, &there, AT_SYMLINK_NOFOLLOW) &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
        *ret_fd = fd;
        return ERR_OK;
    }
    close(fd);
    return err_set(e, ERR_BUSY, "another process changes it");
}

err_code modelstore_lock(struct modelstore *s, const char *folder, const struct modelstore_wait *w, int *ret_fd, err *e)
{
    char name[MODELREF_FOLDER + 8];
    bool said = false;
    snprintf(name, sizeof name, ".lock-%s", folder);
    for (;;) {
        err_code rc = try_lock(s, name, ret_fd, e);
        if (rc != ERR_BUSY || !w)
            return rc;
        if (!said && w->waiting)
            w->waiting(w->ud);
        said = true;
        if (w->stop && w->stop(w->ud))
            return err_set(e, ERR_CANCELLED, "interrupted");
        usleep(LOCK_POLL_US);
    }
}

void modelstore_unlock(struct modelstore *s, const char *folder, int fd)
{
    char name[MODELREF_FOLDER + 8];
    snprintf(name, sizeof name, ".lock-%s", folder);
    unlinkat(s->fd, name, 0);
    close(fd);
}

// ---- removal

static err_code failed(const struct modelstore *s, const char *name, err *e)
{
    return err_set(e, ERR_IO, "'%s/%s': %s", s->path, name, strerror(errno));
}

// Out of sight with one rename, then deleted; one that was interrupted earlier goes too.
static err_code remove_folder(struct modelstore *s, const char *name, bool *ret_found, err *e)
{
    char gone[MODELREF_FOLDER + 32];
    snprintf(gone, sizeof gone, ".gone-%ld-%.230s", (long)getpid(), name);
    if (beneath_remove(s->fd, gone))  // in a container each process may have the same number
        return failed(s, gone, e);
    if (renameat(s->fd, name, s->fd, gone))
        return errno == ENOENT ? ERR_OK : failed(s, name, e);
    *ret_found = true;
    return fsync(s->fd) || beneath_remove(s->fd, gone) ? failed(s, gone, e) : ERR_OK;
}

static void remove_leftovers(struct modelstore *s)
{
    char **names;
    int n;
    err ignored = {0};
    if (folders(s, &names, &n, &ignored))
        return;
    for (int i = 0; i < n; i++)
        if (!strncmp(names[i], ".gone-", 6))
            (void)beneath_remove(s->fd, names[i]);
    free_names(names, n);
}

err_code modelstore_remove(struct modelstore *s, const struct modelref *r, err *e)
{
    char folder[MODELREF_FOLDER], name[MODELREF_FOLDER + 8], text[MODELREF_TEXT];
    bool found = false;
    if (modelref_folder(r, folder, e))
        return e->code;
    int lock;
    if (modelstore_lock(s, folder, NULL, &lock, e))
        return e->code == ERR_BUSY ? err_set(e, ERR_BUSY, "%s is being pulled", modelref_text(r, text)) : e->code;
    err_code rc = remove_folder(s, folder, &found, e);
    snprintf(name, sizeof name, ".pull-%s", folder);
    if (!rc)
        rc = remove_folder(s, name, &found, e);
    remove_leftovers(s);
    modelstore_unlock(s, folder, lock);
    if (!rc && !found)
        rc = err_set(e, ERR_NOT_FOUND, "the store '%s' has no model %s", s->path, modelref_text(r, text));
    return rc;
}
