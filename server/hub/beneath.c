// See the header. Paths are walked a part at a time with openat, each relative to the folder before.
#include "server/hub/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 64 };

static int close_keep(int fd)
{
    int no = errno;
    close(fd);
    errno = no;
    return -1;
}

int beneath_folder(int folder, const char *name)
{
    if (mkdirat(folder, name, 0777) && errno != EEXIST)
        return -1;
    return openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// The folder that holds the last part of path, which *ret_name is set to.
static int walk(int folder, const char *path, bool make, const char **ret_name)
{
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    for (const char *slash; at >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        char part[256];
        size_t n = (size_t)(slash - path);
        if (n >= sizeof part) {
            errno = ENAMETOOLONG;
            return close_keep(at);
        }
        memcpy(part, path, n);
        part[n] = 0;
        int next = make ? beneath_folder(at, part) : openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close_keep(at);
        at = next;
    }
    *ret_name = path;
    return at;
}

int beneath_open(int folder, const char *path, int flags, bool make_folders)
{
    const char *name;
    int at = walk(folder, path, make_folders, &name);
    if (at < 0)
        return -1;
    int fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    close_keep(at);
    return fd;
}

int64_t beneath_size(int folder, const char *path)
{
    const char *name;
    struct stat st;
    int at = walk(folder, path, false, &name);
    if (at < 0)
        return -1;
    int bad = fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW);
    close_keep(at);
    if (!bad && !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        bad = -1;
    }
    return bad ? -1 : (int64_t)st.st_size;
}

int beneath_link(int from, const char *name, int folder, const char *path)
{
    const char *last;
    int at = walk(folder, path, true, &last);
    if (at < 0)
        return -1;
    if (linkat(from, name, at, last, 0) || fsync(at))
        return close_keep(at);
    close(at);
    return 0;
}

static int remove_all(int folder, const char *name, int depth)
{
    if (!unlinkat(folder, name, 0) || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 && depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close_keep(fd);
        return errno == ENOENT ? 0 : -1;
    }
    int bad = 0;
    for (struct dirent *it; !bad && (it = readdir(d));)
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
            bad = remove_all(fd, it->d_name, depth + 1);
    int no = errno;
    closedir(d);
    errno = no;
    return bad || (unlinkat(folder, name, AT_REMOVEDIR) && errno != ENOENT) ? -1 : 0;
}

int beneath_remove(int folder, const char *name)
{
    return remove_all(folder, name, 0);
}
