// See the header. The key file is changed under a lock and replaced whole, so that a reader never sees half of it and
// two commands at once lose nothing.
#include "server/keycommand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/config.h"
#include "server/apikey.h"
#include "server/store.h"

enum { FILE_MAX = 8 << 20, MAX_ARGS = 256 };

struct command {
    const char *action, *name;
    struct apikey key;
    struct config config;
    const char *store, *file;  // one of them
    bool misused;  // it failed before anything was done
    bool says_store, says_file;  // among the options, not only in the settings of elsewhere
    bool found;                // rm: the key was there
    int plain;                 // list: plain keys so far
};

// ---- the key file

static err_code io_failed(const char *path, err *e)
{
    return err_set_param(e, ERR_IO, "api_key_file", "'%s': %s", path, strerror(errno));
}

// An exclusive lock on the file of that name; opened again when another command has replaced it meanwhile.
static err_code lock_file(const char *path, bool create, int *ret_fd, err *e)
{
    for (;;) {
        struct stat mine, there;
        int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
        if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &mine)) {
            err_code rc = io_failed(path, e);
            if (fd >= 0)
                close(fd);
            return rc;
        }
        if (!stat(path, &there) && there.st_ino == mine.st_ino && there.st_dev == mine.st_dev) {
            *ret_fd = fd;
            return ERR_OK;
        }
        close(fd);
    }
}

static err_code replace_file(const char *path, int fd, const struct buf *text, err *e)
{
    struct stat st;
    char *temporary = mem_new(strlen(path) + 8);
    sprintf(temporary, "%s.XXXXXX", path);
    int out = mkstemp(temporary);
    bool ok = out >= 0 && !fstat(fd, &st) && !fchmod(out, st.st_mode & 0777);
    for (size_t at = 0; ok && at < text->len;) {
        ssize_t n = write(out, text->data + at, text->len - at);
        ok = n > 0 || (n < 0 && errno == EINTR);
        at += n > 0 ? (size_t)n : 0;
    }
    struct stat made;
    ok = ok && !fstat(out, &made);
    if (ok && (st.st_uid != made.st_uid || st.st_gid != made.st_gid))  // the daemon may read it as their member
        ok = !fchown(out, st.st_uid, st.st_gid);
    ok = ok && !fsync(out);
    if (out >= 0 && close(out))
        ok = false;
    err_code code = ok && !rename(temporary, path) ? ERR_OK : io_failed(path, e);
    if (code && out >= 0)
        unlink(temporary);
    free(temporary);
    return code;
}

typedef err_code line_fn(struct command *c, const char *line, const struct apikey *k, const char *plain, struct buf *out, err *e);

// Calls fn with each line: k for a hashed key, plain for a plain one, neither for the rest.
static err_code each_line(struct command *c, const char *path, line_fn *fn, struct buf *out, err *e)
{
    char *text;
    size_t len;
    if (file_read(path, FILE_MAX, &text, &len, e))
        return e->code;
    err_code rc = ERR_OK;
    for (char *line = text, *end; line && *line && !rc; line = end) {
        struct apikey k;
        char *plain = NULL;
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        line[strcspn(line, "\r")] = 0;
        char *copy = mem_strdup(line + strspn(line, " \t"));
        bool is_key = *copy && *copy != '#';
        apikey_init(&k);
        if (is_key)
            rc = apikey_read_line(&k, copy, &plain, e);
        if (!rc)
            rc = fn(c, line, is_key && !plain ? &k : NULL, plain, out, e);
        apikey_done(&k);
        free(copy);
    }
    free(text);
    return rc;
}

// Copies lines; the new key takes over the others' salt.
static err_code copy_line(struct command *c, const char *line, const struct apikey *k, const char *plain, struct buf *out,
                          err *e)
{
    (void)plain;
    if (k && !strcmp(k->name, c->name))
        return err_set(e, ERR_INVALID, "there is a key named '%s' already", c->name);
    if (k)
        memcpy(c->key.salt, k->salt, APIKEY_SALT);
    return buf_printf(out, "%s\n", line) ? ERR_OK : err_set(e, ERR_TOO_LARGE, "the key file is too large");
}

static err_code drop_line(struct command *c, const char *line, const struct apikey *k, const char *plain, struct buf *out,
                          err *e)
{
    (void)plain;
    (void)e;
    if (k && !strcmp(k->name, c->name))
        c->found = true;
    else
        buf_printf(out, "%s\n", line);
    return ERR_OK;
}

static err_code add_to_file(struct command *c, const char *text, err *e)
{
    int fd;
    struct buf out;
    if (lock_file(c->file, true, &fd, e))
        return e->code;
    buf_init(&out, FILE_MAX);
    if (!each_line(c, c->file, copy_line, &out, e)) {
        apikey_digest(c->key.salt, text, c->key.digest);
        apikey_write_line(&c->key, &out);
        (void)!replace_file(c->file, fd, &out, e);
    }
    buf_done(&out);
    close(fd);
    return e->code;
}

static err_code remove_from_file(struct command *c, err *e)
{
    int fd;
    struct buf out;
    if (lock_file(c->file, false, &fd, e))
        return e->code;
    buf_init(&out, FILE_MAX);
    if (!each_line(c, c->file, drop_line, &out, e)) {
        if (c->found)
            (void)!replace_file(c->file, fd, &out, e);
        else
            err_set(e, ERR_NOT_FOUND, "'%s' has no key named '%s'", c->file, c->name);
    }
    buf_done(&out);
    close(fd);
    return e->code;
}

// ---- the store

static err_code add_to_store(struct command *c, const char *text, err *e)
{
    struct store *s;
    struct store_keys found = {0};
    if (store_open(c->store, STORE_CREATE, &s, e))
        return e->code;
    if (!store_keys(s, &found, e)) {
        if (found.len)
            memcpy(c->key.salt, found.items[0].salt, APIKEY_SALT);
        apikey_digest(c->key.salt, text, c->key.digest);
        (void)!store_add_key(s, &c->key, clock_unix_s(), e);
    }
    store_keys_done(&found);
    store_close(s);
    return e->code;
}

static err_code remove_from_store(const struct command *c, err *e)
{
    struct store *s;
    if (store_open(c->store, STORE_CHANGE, &s, e))
        return e->code;
    err_code rc = store_remove_key(s, c->name, e);
    store_close(s);
    return rc;
}

// ---- the actions

static void print_key(const struct apikey *k)
{
    struct buf options;
    buf_init(&options, 16 << 10);
    apikey_options(k, &options);
    bool expired = apikey_expired(k, clock_unix_s());
    time_t when = (time_t)k->expires_unix_s;
    struct tm tm;
    char day[32] = "";
    if (when && gmtime_r(&when, &tm))
        strftime(day, sizeof day, "%Y-%m-%d %H:%M UTC", &tm);
    printf("%s%s", k->name, options.data ? options.data : "");
    if (*day)
        printf(" (%s %s)", expired ? "expired" : "until", day);
    putchar('\n');
    buf_done(&options);
}

static err_code print_line(struct command *c, const char *line, const struct apikey *k, const char *plain, struct buf *out,
                           err *e)
{
    (void)line;
    (void)out;
    (void)e;
    if (k)
        print_key(k);
    else if (plain)
        printf("key%d (plain)\n", ++c->plain);
    return ERR_OK;
}

static err_code run_list(struct command *c, err *e)
{
    struct store *s;
    struct store_keys found = {0};
    if (!c->store) {
        c->plain = c->config.api_key.len;  // counts plain keys, as the daemon does
        return each_line(c, c->file, print_line, NULL, e);
    }
    if (store_open(c->store, STORE_READ, &s, e))
        return e->code;
    err_code rc = store_keys(s, &found, e);
    for (int i = 0; i < found.len && !rc; i++)
        print_key(&found.items[i]);
    store_keys_done(&found);
    store_close(s);
    return rc;
}

static err_code run_add(struct command *c, err *e)
{
    char text[APIKEY_TEXT];
    apikey_make(text);
    apikey_random(c->key.salt, sizeof c->key.salt);
    if (c->store ? add_to_store(c, text, e) : add_to_file(c, text, e))
        return e->code;
    printf("%s\n", text);
    fprintf(stderr, "This is the only time that the key '%s' is shown; what is kept is its hash. A running daemon takes it over "
                    "with SIGHUP.%s\n", c->name, apikey_expired(&c->key, clock_unix_s()) ? " Its day is past: nobody gets in with it." : "");
    return ERR_OK;
}

// "2030-01-31" (its first moment, UTC), "30d" from now, or seconds since 1970.
static err_code read_expiry(struct apikey *k, const char *value, err *e)
{
    int year, month, day;
    char rest, more, seconds[24];
    if (sscanf(value, "%4d-%2d-%2d%c", &year, &month, &day, &rest) == 3) {
        struct tm t = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
        time_t at = timegm(&t);
        if (t.tm_year != year - 1900 || t.tm_mon != month - 1 || t.tm_mday != day)
            return err_set_param(e, ERR_INVALID, "expires", "expires=%.40s: there is no such day", value);
        snprintf(seconds, sizeof seconds, "%lld", (long long)at);
        value = seconds;
    } else if (sscanf(value, "%5d%c%c", &day, &rest, &more) == 2 && rest == 'd' && day > 0) {
        snprintf(seconds, sizeof seconds, "%lld", (long long)(clock_unix_s() + day * 86400LL));
        value = seconds;
    } else if (!*value || value[strspn(value, "0123456789")]) {
        return err_set_param(e, ERR_INVALID, "expires", "expires=%.40s: expected a day such as 2030-01-31, or days from now such as 30d",
                             value);
    }
    return apikey_set(k, "expires", value, e);
}

static bool is_key_option(const char *name, size_t n)
{
    static const char *const names[] = {"weight", "class", "rpm", "tpm", "concurrent", "models", "group", "expires"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && !strncmp(names[i], name, n))
            return true;
    return false;
}

static bool is_option(const char *arg, const char *name, const char *other)
{
    size_t n = strcspn(arg, "=");
    return (strlen(name) == n && !strncmp(arg, name, n)) || (strlen(other) == n && !strncmp(arg, other, n));
}

// A server reads both; a command changes one, which must be clear. An option decides against what a file or the environment says.
static err_code choose(struct command *c, err *e)
{
    bool either = c->says_store != c->says_file;
    c->store = *c->config.store && (!either || c->says_store) ? c->config.store : NULL;
    c->file = *c->config.api_key_file && (!either || c->says_file) ? c->config.api_key_file : NULL;
    if (!c->store && !c->file)
        return err_set(e, ERR_INVALID, "where are the keys? Set store or api_key_file: --store PATH, --api-key-file PATH or --config FILE");
    if (c->store && c->file)
        return err_set(e, ERR_INVALID, "both the store '%s' and the api_key_file '%s' are set; give one of --store and --api-key-file to say "
                       "which is meant", c->store, c->file);
    return ERR_OK;
}

// Takes the key's own options out of args; what is left is settings.
static err_code read_args(struct command *c, int nargs, char **args, err *e)
{
    char *settings[MAX_ARGS];
    int n = 0;
    for (int i = 0; i < nargs; i++) {
        char *arg = args[i], *equals = strchr(arg, '=');
        size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
        if (!strcmp(arg, "--admin") && !strcmp(c->action, "add")) {
            c->key.admin = true;
        } else if (len > 2 && !strncmp(arg, "--", 2) && !strcmp(c->action, "add") && is_key_option(arg + 2, len - 2)) {
            char name[16];
            snprintf(name, sizeof name, "%.*s", (int)(len - 2), arg + 2);
            const char *value = equals ? equals + 1 : i + 1 < nargs ? args[++i] : NULL;
            if (!value)
                return err_set(e, ERR_INVALID, "option '%s' needs a value", arg);
            if (strcmp(name, "expires") ? apikey_set(&c->key, name, value, e) : read_expiry(&c->key, value, e))
                return e->code;
        } else if (n == MAX_ARGS) {
            return err_set(e, ERR_INVALID, "too many options");
        } else {
            settings[n++] = arg;
            c->says_store |= is_option(arg, "--store", "--store");
            c->says_file |= is_option(arg, "--api-key-file", "--api_key_file");
        }
    }
    return config_load(&c->config, settings, n, e);
}

static err_code run(struct command *c, int nargs, char **args, err *e)
{
    c->misused = true;
    if (c->name && apikey_set_name(&c->key, c->name, e))
        return e->code;
    if (read_args(c, nargs, args, e))
        return e->code;
    if (choose(c, e)) {
        config_done(&c->config);
        return e->code;
    }
    c->misused = false;
    if (!strcmp(c->action, "add"))
        (void)!run_add(c, e);
    else if (!strcmp(c->action, "rm"))
        (void)!(c->store ? remove_from_store(c, e) : remove_from_file(c, e));
    else
        (void)!run_list(c, e);
    config_done(&c->config);
    return e->code;
}

int keycommand_run(int nargs, char **args)
{
    struct command c = {.action = nargs ? args[0] : ""};
    bool named = !strcmp(c.action, "add") || !strcmp(c.action, "rm");
    if ((!named && strcmp(c.action, "list") != 0) || (named && (nargs < 2 || args[1][0] == '-'))) {
        fputs("oxinferd: expected key add NAME, key list or key rm NAME; see oxinferd --help\n", stderr);
        return 2;
    }
    c.name = named ? args[1] : NULL;
    apikey_init(&c.key);
    err e = {0};
    err_code rc = run(&c, nargs - 1 - named, args + 1 + named, &e);
    apikey_done(&c.key);
    if (rc)
        fprintf(stderr, "oxinferd: %s\n", e.text);
    return !rc ? 0 : c.misused && rc == ERR_INVALID ? 2 : 1;
}
