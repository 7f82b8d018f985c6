// See the header. The schema's version is SQLite's user_version; version 0 with no tables is a new file.
#include "server/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/file.h"
#include "base/mem.h"

enum { VERSION = 1, WAIT_MS = 2000 };

static const char schema[] =
    "CREATE TABLE api_key ("
    " name TEXT PRIMARY KEY NOT NULL,"
    " salt BLOB NOT NULL CHECK (length(salt) = 16),"
    " digest BLOB NOT NULL CHECK (length(digest) = 32),"
    " options TEXT NOT NULL,"
    " created_unix_s INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "PRAGMA user_version = 1;";

struct store {
    sqlite3 *db;
    char *path;
    bool empty;  // a file without a table yet
};

static err_code failed(const struct store *s, int rc, err *e)
{
    const char *why = sqlite3_errmsg(s->db);
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return err_set_param(e, ERR_IO, "store", "store '%s': the disk is full", s->path);
    case SQLITE_CORRUPT:
        return err_set_param(e, ERR_CORRUPT, "store", "store '%s' is damaged: %s", s->path, why);
    case SQLITE_NOTADB:
        return err_set_param(e, ERR_CORRUPT, "store", "'%s' is not a SQLite file", s->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set_param(e, ERR_IO, "store", "store '%s' is in use by another process", s->path);
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
        return err_set_param(e, ERR_IO, "store", "store '%s': %s; user %d needs to read it, and where it is to be changed, was left amid a "
                             "change or is in WAL mode (which any 'oxinferd key add' of its owner ends) to write it and its folder", s->path,
                             why, (int)geteuid());
    default:
        return err_set_param(e, ERR_IO, "store", "store '%s': %s", s->path, why);
    }
}

static err_code exec(const struct store *s, const char *sql, err *e)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc ? failed(s, rc, e) : ERR_OK;
}

// The first column of the first row: a number, or for quick_check whether it says "ok".
static err_code ask(const struct store *s, const char *sql, bool ok_text, int64_t *ret_value, err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &q, NULL);
    if (!rc && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        const char *text = ok_text ? (const char *)sqlite3_column_text(q, 0) : NULL;
        *ret_value = ok_text ? text && !strcmp(text, "ok") : sqlite3_column_int64(q, 0);
        rc = SQLITE_OK;
    }
    err_code code = rc ? failed(s, rc, e) : ERR_OK;
    sqlite3_finalize(q);
    return code;
}

static err_code check(const struct store *s, err *e)
{
    int64_t sound;
    if (ask(s, "PRAGMA quick_check(1)", true, &sound, e))
        return e->code;
    return sound ? ERR_OK : err_set_param(e, ERR_CORRUPT, "store", "store '%s' is damaged", s->path);
}

static err_code prepare(struct store *s, enum store_use use, err *e)
{
    int64_t version, tables;
    if (ask(s, "PRAGMA user_version", false, &version, e) ||
        ask(s, "SELECT count(*) FROM sqlite_schema", false, &tables, e))
        return e->code;
    if (version > VERSION)
        return err_set_param(e, ERR_UNSUPPORTED, "store", "store '%s' has version %lld; this program knows %d", s->path,
                             (long long)version, VERSION);
    if (version == VERSION)
        return check(s, e);
    if (tables)
        return err_set_param(e, ERR_CORRUPT, "store", "'%s' is a SQLite file, but not a store of this program", s->path);
    s->empty = use == STORE_READ;
    if (s->empty)
        return ERR_OK;
    char sql[sizeof schema + 64];
    snprintf(sql, sizeof sql, "BEGIN IMMEDIATE;%sCOMMIT;", schema);
    return exec(s, sql, e);
}

// SQLite would make the file with the usual rights; its companions (-wal, -shm) take over those of the file.
static err_code make_file(const char *path, err *e)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return err_set_param(e, ERR_IO, "store", "store '%s' cannot be made: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ERR_OK;
}

// SQLite reads a file that this user may not write, and puts a change right that a killed process began, where he may.
err_code store_open(const char *path, enum store_use use, struct store **ret_store, err *e)
{
    if (use == STORE_CREATE && make_file(path, e))
        return e->code;
    if (!file_exists(path))
        return err_set_param(e, ERR_NOT_FOUND, "store", "there is no store '%s'; 'oxinferd key add NAME' makes one", path);
    struct store *s = mem_new(sizeof *s);
    s->path = mem_strdup(path);
    err local = {0};
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc)
        failed(s, rc, &local);
    else if (sqlite3_busy_timeout(s->db, WAIT_MS), exec(s, "PRAGMA trusted_schema = OFF;", &local) == ERR_OK &&
             (use == STORE_READ || exec(s, "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;", &local) == ERR_OK))
        (void)!prepare(s, use, &local);
    if (local.code) {
        store_close(s);
        if (e)
            *e = local;
        return local.code;
    }
    *ret_store = s;
    return ERR_OK;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}

static err_code read_row(const struct store *s, sqlite3_stmt *q, struct apikey *k, err *e)
{
    const char *name = (const char *)sqlite3_column_text(q, 0), *options = (const char *)sqlite3_column_text(q, 3);
    const void *salt = sqlite3_column_blob(q, 1), *digest = sqlite3_column_blob(q, 2);
    if (!name || !options || !salt || !digest || sqlite3_column_bytes(q, 1) != APIKEY_SALT ||
        sqlite3_column_bytes(q, 2) != APIKEY_DIGEST)
        return err_set_param(e, ERR_CORRUPT, "store", "store '%s' is damaged: a key without name or digest", s->path);
    memcpy(k->salt, salt, APIKEY_SALT);
    memcpy(k->digest, digest, APIKEY_DIGEST);
    if (apikey_set_name(k, name, e) || apikey_set_all(k, options, e))
        return err_wrap(e, "store '%s', key '%.64s'", s->path, name);
    return ERR_OK;
}

static struct apikey *next_item(struct store_keys *k)
{
    if (k->len == k->cap) {
        k->cap = k->cap ? 2 * k->cap : 16;
        k->items = mem_resize(k->items, (size_t)k->cap * sizeof *k->items);
        k->created_unix_s = mem_resize(k->created_unix_s, (size_t)k->cap * sizeof *k->created_unix_s);
    }
    apikey_init(&k->items[k->len]);
    return &k->items[k->len++];
}

err_code store_keys(struct store *s, struct store_keys *ret_keys, err *e)
{
    sqlite3_stmt *q = NULL;
    err_code code = ERR_OK;
    if (s->empty)
        return ERR_OK;
    int rc = sqlite3_prepare_v2(s->db, "SELECT name, salt, digest, options, created_unix_s FROM api_key ORDER BY name", -1,
                                &q, NULL);
    while (!rc && !code && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        code = read_row(s, q, next_item(ret_keys), e);
        ret_keys->created_unix_s[ret_keys->len - 1] = sqlite3_column_int64(q, 4);
        rc = SQLITE_OK;
    }
    if (!code && rc && rc != SQLITE_DONE)
        code = failed(s, rc, e);
    sqlite3_finalize(q);
    return code;
}

void store_keys_done(struct store_keys *k)
{
    for (int i = 0; i < k->len; i++)
        apikey_done(&k->items[i]);
    free(k->items);
    free(k->created_unix_s);
    *k = (struct store_keys){0};
}

err_code store_add_key(struct store *s, const struct apikey *k, int64_t now_unix_s, err *e)
{
    struct buf options;
    buf_init(&options, 16 << 10);
    apikey_options(k, &options);
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, "INSERT INTO api_key VALUES (?, ?, ?, ?, ?)", -1, &q, NULL);
    if (!rc) {
        sqlite3_bind_text(q, 1, k->name, -1, SQLITE_STATIC);
        sqlite3_bind_blob(q, 2, k->salt, APIKEY_SALT, SQLITE_STATIC);
        sqlite3_bind_blob(q, 3, k->digest, APIKEY_DIGEST, SQLITE_STATIC);
        sqlite3_bind_text(q, 4, options.data ? options.data : "", -1, SQLITE_STATIC);
        sqlite3_bind_int64(q, 5, now_unix_s);
        rc = sqlite3_step(q);
    }
    err_code code = ERR_OK;
    if ((rc & 0xff) == SQLITE_CONSTRAINT)
        code = err_set(e, ERR_INVALID, "there is a key named '%s' already", k->name);
    else if (rc != SQLITE_DONE)
        code = failed(s, rc, e);
    sqlite3_finalize(q);
    buf_done(&options);
    return code;
}

err_code store_remove_key(struct store *s, const char *name, err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, "DELETE FROM api_key WHERE name = ?", -1, &q, NULL);
    if (!rc) {
        sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
        rc = sqlite3_step(q);
    }
    err_code code = ERR_OK;
    if (rc != SQLITE_DONE)
        code = failed(s, rc, e);
    else if (!sqlite3_changes(s->db))
        code = err_set(e, ERR_NOT_FOUND, "there is no key named '%.64s'", name);
    sqlite3_finalize(q);
    return code;
}
