// responses.c - see the header.
//
// Two places: a list of what waits to be written, under `lock`, and the database, under `db_lock` (one connection). Who
// needs both takes db_lock first. The writer takes a batch off the list only when it has been committed, and holds
// db_lock meanwhile: so whoever looks at the list and then at the database finds everything, and a deletion finds it in
// one of them. Without a file the database is SQLite's in memory.
#include "server/responses.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    VERSION = 1,
    BATCH = 64,                  // answers a transaction
    WAITING_BYTES = 64 << 20,    // not yet written
    SWEEP_S = 30,                // how often what is too old is looked for, and a disk that refused is tried again
    TOUCH_S = 60,                // a use is noted only so often
    DROP_AT_ONCE = 64,           // rows one statement deletes
    ROW_BYTES = 256,             // what a row costs beside its texts
    WAIT_MS = 2000,
    MAX_ITEMS = 1 << 16,
    CHECKED_BYTES = 64 << 20,    // of a file: reading more of it would delay the start
};

static const char schema[] =
    "PRAGMA auto_vacuum = INCREMENTAL;"
    "BEGIN IMMEDIATE;"
    "CREATE TABLE secret (value BLOB NOT NULL CHECK (length(value) = 32)) STRICT;"
    "INSERT INTO secret VALUES (randomblob(32));"
    "CREATE TABLE response ("
    " number INTEGER PRIMARY KEY,"
    " owner TEXT NOT NULL,"
    " id TEXT NOT NULL,"
    " previous TEXT,"
    " object TEXT NOT NULL,"
    " input TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " created_unix_s INTEGER NOT NULL,"
    " used_unix_s INTEGER NOT NULL,"
    " UNIQUE (owner, id)) STRICT;"
    "CREATE INDEX response_used ON response (used_unix_s, number, bytes);"  // all that their ends need
    "CREATE TABLE item ("
    " owner TEXT NOT NULL,"
    " id TEXT NOT NULL,"
    " response INTEGER NOT NULL REFERENCES response (number) ON DELETE CASCADE,"
    " PRIMARY KEY (owner, id)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX item_response ON item (response);"
    "PRAGMA user_version = 1;"
    "COMMIT;";

// What each owner has, kept by SQLite itself within the same transactions; of this connection only. The index is what finding an
// owner's oldest needs; files of before it get it when they are opened.
static const char holdings[] =
    "CREATE INDEX IF NOT EXISTS response_owner_used ON response (owner, used_unix_s, number);"
    "PRAGMA temp_store = MEMORY;"
    "CREATE TEMP TABLE holding (owner TEXT PRIMARY KEY, rows INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "INSERT INTO holding SELECT owner, count(*), sum(bytes) FROM response GROUP BY owner;"
    "CREATE TEMP TRIGGER taken AFTER INSERT ON main.response BEGIN"
    " INSERT INTO holding VALUES (new.owner, 1, new.bytes)"
    " ON CONFLICT (owner) DO UPDATE SET rows = rows + 1, bytes = bytes + excluded.bytes;"
    " END;"
    "CREATE TEMP TRIGGER given AFTER DELETE ON main.response BEGIN"
    " UPDATE holding SET rows = rows - 1, bytes = bytes - old.bytes WHERE owner = old.owner;"
    " DELETE FROM holding WHERE owner = old.owner AND rows = 0;"
    " END;";

struct waiting {
    struct waiting *next;
    char *owner, *id, *previous, *object, *input, **items;
    size_t nitems, bytes;
    int64_t created_unix_s;
};

enum statement { ADD, ADD_ITEM, GET, FIND, TOUCH, DELETE, DROP_OLD, DROP_FIRST, STATEMENTS };
static const char *const sql[STATEMENTS] = {
    [ADD] = "INSERT INTO response (owner, id, previous, object, input, bytes, created_unix_s, used_unix_s)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    [ADD_ITEM] = "INSERT OR IGNORE INTO item VALUES (?, ?, ?)",  // an id stays with the response that had it first
    [GET] = "SELECT number, id, previous, object, input, used_unix_s FROM response WHERE owner = ? AND id = ?"
            " AND used_unix_s > ?",
    [FIND] = "SELECT number, r.id, previous, object, input, used_unix_s FROM item i JOIN response r ON r.number = i.response"
             " WHERE i.owner = ? AND i.id = ? AND used_unix_s > ?",
    [TOUCH] = "UPDATE response SET used_unix_s = ? WHERE number = ?",
    [DELETE] = "DELETE FROM response WHERE owner = ? AND id = ? RETURNING bytes",
    [DROP_OLD] = "DELETE FROM response WHERE number IN (SELECT number FROM response WHERE used_unix_s <= ? LIMIT ?)"
                 " RETURNING bytes",
    // Of whoever has most: of responses (1) or of bytes (0), whichever are too many.
    [DROP_FIRST] = "DELETE FROM response WHERE number = (SELECT number FROM response WHERE owner ="
                   " (SELECT owner FROM holding ORDER BY iif(?, rows, bytes) DESC, owner LIMIT 1)"
                   " ORDER BY used_unix_s, number LIMIT 1) RETURNING bytes",
};

struct responses {
    atomic_int refs;
    char *path;  // NULL: in memory
    struct responses_limits limits;
    bool serving;  // opened; set before there is another thread
    unsigned char secret[RESPONSES_SECRET];

    pthread_mutex_t db_lock;
    sqlite3 *db;  // NULL once closed
    sqlite3_stmt *statements[STATEMENTS];
    int64_t count, bytes;

    pthread_mutex_t lock;
    pthread_cond_t wake, settled;
    struct waiting *first, *last;
    size_t waiting_bytes;
    bool closing, has_thread, failing;
    int busy;  // rounds of the writer that have begun or are asked for
    pthread_t thread;
};

// ---- SQLite

static const char *name_of(const struct responses *s)
{
    return s->path ? s->path : "memory";
}

// At the start the text names the file; later it goes to clients, who are not to know it.
static err_code failed(const struct responses *s, int rc, err *e)
{
    const char *why = sqlite3_errmsg(s->db), *param = s->serving ? "" : "responses_db";
    char name[300];
    if (s->serving)
        snprintf(name, sizeof name, "the store of responses");
    else
        snprintf(name, sizeof name, "responses_db '%.280s'", name_of(s));
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return err_set_param(e, ERR_IO, param, "%s: the disk is full", name);
    case SQLITE_CORRUPT:
        return err_set_param(e, ERR_CORRUPT, param, "%s is damaged: %s", name, why);
    case SQLITE_NOTADB:
        return err_set_param(e, ERR_CORRUPT, param, "%s is not a SQLite file", name);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set_param(e, ERR_IO, param, "%s is in use by another process", name);
    default:
        return err_set_param(e, ERR_IO, param, "%s: %s", name, why);
    }
}

static err_code exec(struct responses *s, const char *text, err *e)
{
    int rc = sqlite3_exec(s->db, text, NULL, NULL, NULL);
    return rc ? failed(s, rc, e) : ERR_OK;
}

// The statement, ready to be bound; prepared at its first use. NULL: e says why.
static sqlite3_stmt *take(struct responses *s, enum statement which, err *e)
{
    int rc = SQLITE_OK;
    if (!s->statements[which])
        rc = sqlite3_prepare_v3(s->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, &s->statements[which], NULL);
    if (rc)
        failed(s, rc, e);
    return s->statements[which];
}

static void give_back(sqlite3_stmt *q)
{
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
}

static void bind(sqlite3_stmt *q, int at, const char *text)
{
    if (text)
        sqlite3_bind_text(q, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(q, at);
}

// A number of a statement that gives one row.
static err_code ask(struct responses *s, const char *text, int64_t *ret_number, err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, text, -1, &q, NULL);
    if (!rc && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        *ret_number = sqlite3_column_int64(q, 0);
        rc = SQLITE_OK;
    }
    err_code code = rc ? failed(s, rc, e) : ERR_OK;
    sqlite3_finalize(q);
    return code;
}

// ---- opening

static err_code read_secret(struct responses *s, err *e)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, "SELECT value FROM secret", -1, &q, NULL);
    bool found = false;
    if (!rc && (rc = sqlite3_step(q)) == SQLITE_ROW && sqlite3_column_bytes(q, 0) == RESPONSES_SECRET) {
        memcpy(s->secret, sqlite3_column_blob(q, 0), RESPONSES_SECRET);
        found = true;
    }
    err_code code = ERR_OK;
    if (!found)
        code = rc == SQLITE_ROW || rc == SQLITE_DONE
                   ? err_set_param(e, ERR_CORRUPT, "responses_db", "responses_db '%s' is damaged: it has no secret", name_of(s))
                   : failed(s, rc, e);
    sqlite3_finalize(q);
    return code;
}

static err_code check(struct responses *s, err *e)
{
    sqlite3_stmt *q = NULL;
    int64_t pages = 0, page_bytes = 0;
    if (ask(s, "PRAGMA page_count", &pages, e) || ask(s, "PRAGMA page_size", &page_bytes, e))
        return e->code;
    if (pages * page_bytes > CHECKED_BYTES)
        return ERR_OK;  // what is damaged there is said when it is read
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &q, NULL);
    if (!rc)
        rc = sqlite3_step(q);
    err_code code = ERR_OK;
    if (rc != SQLITE_ROW)
        code = failed(s, rc, e);
    else if (strcmp((const char *)sqlite3_column_text(q, 0), "ok") != 0)
        code = err_set_param(e, ERR_CORRUPT, "responses_db", "responses_db '%s' is damaged", name_of(s));
    sqlite3_finalize(q);
    return code;
}

static err_code prepare(struct responses *s, err *e)
{
    int64_t version = 0, tables = 0;
    if (ask(s, "PRAGMA user_version", &version, e) || ask(s, "SELECT count(*) FROM sqlite_schema", &tables, e))
        return e->code;
    if (version > VERSION)
        return err_set_param(e, ERR_UNSUPPORTED, "responses_db", "responses_db '%s' has version %lld; this program knows %d",
                             name_of(s), (long long)version, VERSION);
    if (version < VERSION && tables)
        return err_set_param(e, ERR_CORRUPT, "responses_db", "responses_db '%s' is a SQLite file, but not one of this setting",
                             name_of(s));
    if (version < VERSION ? exec(s, schema, e) : check(s, e))
        return e->code;
    if (exec(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
                "PRAGMA trusted_schema = OFF;", e))
        return e->code;
    return exec(s, holdings, e);
}

// For its owner only: SQLite would make it with the usual rights.
static err_code make_file(const char *path, err *e)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return err_set_param(e, ERR_IO, "responses_db", "responses_db '%s' cannot be made: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return ERR_OK;
}

static err_code open_db(struct responses *s, err *e)
{
    if (s->path && make_file(s->path, e))
        return e->code;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int rc = sqlite3_open_v2(s->path ? s->path : ":memory:", &s->db, flags, NULL);
    if (rc)
        return failed(s, rc, e);
    sqlite3_busy_timeout(s->db, WAIT_MS);
    if (prepare(s, e) || read_secret(s, e))
        return e->code;
    if (ask(s, "SELECT count(*) FROM response", &s->count, e) ||
        ask(s, "SELECT coalesce(sum(bytes), 0) FROM response", &s->bytes, e))
        return e->code;
    return ERR_OK;
}

static void close_db(struct responses *s)
{
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(s->statements[i]);
    memset(s->statements, 0, sizeof s->statements);
    sqlite3_close(s->db);
    s->db = NULL;
}

// ---- what waits

static void free_waiting(struct waiting *w)
{
    for (size_t i = 0; i < w->nitems; i++)
        free(w->items[i]);
    free(w->items);
    free(w->owner);
    free(w->id);
    free(w->previous);
    free(w->object);
    free(w->input);
    free(w);
}

// Off the list; the caller frees it.
static void unlink_waiting(struct responses *s, struct waiting *w)
{
    struct waiting **at = &s->first, *before = NULL;
    while (*at != w) {
        before = *at;
        at = &before->next;
    }
    *at = w->next;
    if (s->last == w)
        s->last = before;
    s->waiting_bytes -= w->bytes;
}

static char *copy_of(const char *text)
{
    size_t n = strlen(text);
    char *copy = mem_try(n + 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

static struct waiting *make_waiting(const struct responses_kept *k, size_t bytes)
{
    struct waiting *w = mem_new(sizeof *w);
    w->owner = mem_strdup(k->owner);
    w->id = mem_strdup(k->id);
    w->previous = k->previous ? mem_strdup(k->previous) : NULL;
    w->object = copy_of(k->object);
    w->input = copy_of(k->input);
    w->created_unix_s = k->created_unix_s;
    w->bytes = bytes;
    w->items = mem_new((k->nitems + 1) * sizeof *w->items);
    for (; w->nitems < k->nitems && w->nitems < MAX_ITEMS; w->nitems++)
        w->items[w->nitems] = mem_strdup(k->items[w->nitems]);
    if (w->object && w->input)
        return w;
    free_waiting(w);
    return NULL;
}

static size_t bytes_of(const struct responses_kept *k)
{
    size_t n = ROW_BYTES + strlen(k->object) + strlen(k->input);
    for (size_t i = 0; i < k->nitems; i++)
        n += ROW_BYTES + strlen(k->items[i]);
    return n;
}

bool responses_put(struct responses *s, const struct responses_kept *k)
{
    size_t bytes = s ? bytes_of(k) : 0;
    if (!s || !s->limits.max_count || bytes > s->limits.max_bytes || bytes > WAITING_BYTES)
        return false;
    struct waiting *w = make_waiting(k, bytes);
    if (!w)
        return false;
    pthread_mutex_lock(&s->lock);
    bool room = !s->closing && s->waiting_bytes + bytes <= WAITING_BYTES;
    if (room) {
        *(s->last ? &s->last->next : &s->first) = w;
        s->last = w;
        s->waiting_bytes += bytes;
        s->busy++;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (!room)
        free_waiting(w);
    return room;
}

static bool has_item(const struct waiting *w, const char *item)
{
    for (size_t i = 0; i < w->nitems; i++)
        if (!strcmp(w->items[i], item))
            return true;
    return false;
}

static struct waiting *find_waiting(struct responses *s, const char *owner, const char *id, bool is_item)
{
    for (struct waiting *w = s->first; w; w = w->next)
        if (!strcmp(w->owner, owner) && (is_item ? has_item(w, id) : !strcmp(w->id, id)))
            return w;
    return NULL;
}

// ---- writing; under db_lock

static err_code add_items(struct responses *s, const struct waiting *w, int64_t number, err *e)
{
    sqlite3_stmt *q = take(s, ADD_ITEM, e);
    if (!q)
        return e->code;
    int rc = SQLITE_DONE;
    for (size_t i = 0; i < w->nitems && rc == SQLITE_DONE; i++) {
        bind(q, 1, w->owner);
        bind(q, 2, w->items[i]);
        sqlite3_bind_int64(q, 3, number);
        rc = sqlite3_step(q);
        if (rc != SQLITE_DONE)
            failed(s, rc, e);
        sqlite3_reset(q);
    }
    give_back(q);
    return rc == SQLITE_DONE ? ERR_OK : e->code;
}

static err_code add(struct responses *s, const struct waiting *w, err *e)
{
    sqlite3_stmt *q = take(s, ADD, e);
    if (!q)
        return e->code;
    bind(q, 1, w->owner);
    bind(q, 2, w->id);
    bind(q, 3, w->previous);
    bind(q, 4, w->object);
    bind(q, 5, w->input);
    sqlite3_bind_int64(q, 6, (int64_t)w->bytes);
    sqlite3_bind_int64(q, 7, w->created_unix_s);
    sqlite3_bind_int64(q, 8, clock_unix_s());
    int rc = sqlite3_step(q);
    if (rc != SQLITE_DONE)
        failed(s, rc, e);
    give_back(q);
    return rc == SQLITE_DONE ? add_items(s, w, sqlite3_last_insert_rowid(s->db), e) : e->code;
}

// Runs a deletion whose bindings are set and that returns the bytes of each row.
static err_code drop(struct responses *s, sqlite3_stmt *q, int64_t *ret_rows, err *e)
{
    int rc;
    int64_t rows = 0;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        s->bytes -= sqlite3_column_int64(q, 0);
        rows++;
    }
    err_code code = rc == SQLITE_DONE ? ERR_OK : failed(s, rc, e);
    give_back(q);
    s->count -= rows;
    *ret_rows = rows;
    return code;
}

static int64_t too_old(const struct responses *s)
{
    return clock_unix_s() - s->limits.ttl_s;
}

static err_code drop_old(struct responses *s, err *e)
{
    int64_t rows = DROP_AT_ONCE;
    while (rows == DROP_AT_ONCE) {
        sqlite3_stmt *q = take(s, DROP_OLD, e);
        if (!q)
            return e->code;
        sqlite3_bind_int64(q, 1, too_old(s));
        sqlite3_bind_int64(q, 2, DROP_AT_ONCE);
        if (drop(s, q, &rows, e))
            return e->code;
    }
    return ERR_OK;
}

static err_code drop_first(struct responses *s, err *e)
{
    int64_t rows = 1;
    while (rows && (s->count > s->limits.max_count || s->bytes > (int64_t)s->limits.max_bytes)) {
        sqlite3_stmt *q = take(s, DROP_FIRST, e);
        if (!q)
            return e->code;
        sqlite3_bind_int(q, 1, s->count > s->limits.max_count);
        if (drop(s, q, &rows, e))
            return e->code;
    }
    return ERR_OK;
}

// A transaction: all n of the list, or none.
static err_code write_batch(struct responses *s, struct waiting *const *list, int n, err *e)
{
    int64_t count = s->count, bytes = s->bytes;
    if (exec(s, "BEGIN IMMEDIATE", e))
        return e->code;
    err_code code = ERR_OK;
    for (int i = 0; i < n && !code; i++) {
        code = add(s, list[i], e);
        s->count++;
        s->bytes += (int64_t)list[i]->bytes;
    }
    if (!code)
        code = drop_old(s, e) || drop_first(s, e) ? e->code : ERR_OK;
    if (!code)
        code = exec(s, "COMMIT", e);
    if (code) {
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        s->count = count;
        s->bytes = bytes;
    }
    return code;
}

static void say(struct responses *s, const err *e)
{
    pthread_mutex_lock(&s->lock);
    bool was = s->failing;
    s->failing = e->code != ERR_OK;
    pthread_mutex_unlock(&s->lock);
    if (e->code && !was)
        log_warn("%s ('%s'): responses are kept in memory until it can be written", e->text, name_of(s));
    else if (!e->code && was)
        log_info("the store of responses ('%s') can be written again", name_of(s));
}

// How many were written; 0: none waited, or the disk refused.
static int write_some(struct responses *s)
{
    err e = {0};
    struct waiting *list[BATCH];
    int n = 0;
    pthread_mutex_lock(&s->db_lock);
    pthread_mutex_lock(&s->lock);
    for (struct waiting *w = s->first; w && n < BATCH; w = w->next)  // these do not go away: deletions need db_lock
        list[n++] = w;
    pthread_mutex_unlock(&s->lock);
    if (!write_batch(s, list, n, &e))
        (void)sqlite3_exec(s->db, "PRAGMA incremental_vacuum(256)", NULL, NULL, NULL);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n && !e.code; i++) {
        unlink_waiting(s, list[i]);
        free_waiting(list[i]);
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->db_lock);
    say(s, &e);
    return e.code ? 0 : n;
}

static void wait_a_while(struct responses *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SWEEP_S;
    pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

static void *writer(void *arg)
{
    struct responses *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        if (!s->busy)
            wait_a_while(s);
        int round = s->busy;
        pthread_mutex_unlock(&s->lock);
        while (write_some(s))
            ;
        pthread_mutex_lock(&s->lock);
        s->busy -= round;
        if (!s->busy)
            pthread_cond_broadcast(&s->settled);
    }
    pthread_mutex_unlock(&s->lock);
    while (write_some(s))
        ;
    return NULL;
}

// ---- reading; under db_lock

static char *column(sqlite3_stmt *q, int at)
{
    const char *text = (const char *)sqlite3_column_text(q, at);
    return text ? copy_of(text) : NULL;
}

static err_code fill(struct responses_row *row, const char *previous, err *e)
{
    if (row->id && row->object && row->input && (row->previous || !previous))
        return ERR_OK;
    responses_row_done(row);
    return err_set(e, ERR_MEMORY, "no memory for what is kept of a response");
}

// A failure to note the use is none of the reader's.
static void touch(struct responses *s, int64_t number, int64_t used)
{
    err ignored = {0};
    int64_t now = clock_unix_s();
    sqlite3_stmt *q = now - used < TOUCH_S ? NULL : take(s, TOUCH, &ignored);
    if (!q)
        return;
    sqlite3_bind_int64(q, 1, now);
    sqlite3_bind_int64(q, 2, number);
    (void)sqlite3_step(q);
    give_back(q);
}

static err_code read_row(struct responses *s, enum statement which, const char *owner, const char *id,
                         struct responses_row *ret_row, err *e)
{
    sqlite3_stmt *q = take(s, which, e);
    if (!q)
        return e->code;
    bind(q, 1, owner);
    bind(q, 2, id);
    sqlite3_bind_int64(q, 3, too_old(s));
    int rc = sqlite3_step(q);
    int64_t number = 0, used = 0;
    err_code code;
    if (rc == SQLITE_ROW) {
        *ret_row = (struct responses_row){column(q, 1), column(q, 2), column(q, 3), column(q, 4)};
        code = fill(ret_row, (const char *)sqlite3_column_text(q, 2), e);
        number = sqlite3_column_int64(q, 0);
        used = sqlite3_column_int64(q, 5);
    } else {
        code = rc == SQLITE_DONE ? err_set(e, ERR_NOT_FOUND, "there is no '%.80s'", id) : failed(s, rc, e);
    }
    give_back(q);
    if (!code)
        touch(s, number, used);
    return code;
}

static err_code look(struct responses *s, const char *owner, const char *id, bool is_item, struct responses_row *ret_row, err *e)
{
    if (!s)
        return err_set(e, ERR_NOT_FOUND, "there is no '%.80s'", id);
    pthread_mutex_lock(&s->lock);
    const struct waiting *w = find_waiting(s, owner, id, is_item);
    err_code code = ERR_OK;
    if (w) {
        *ret_row = (struct responses_row){copy_of(w->id), w->previous ? copy_of(w->previous) : NULL, copy_of(w->object),
                                          copy_of(w->input)};
        code = fill(ret_row, w->previous, e);
    }
    pthread_mutex_unlock(&s->lock);
    if (w)
        return code;
    pthread_mutex_lock(&s->db_lock);
    code = s->db ? read_row(s, is_item ? FIND : GET, owner, id, ret_row, e)
                 : err_set(e, ERR_DRAINING, "The server is shutting down.");
    pthread_mutex_unlock(&s->db_lock);
    return code;
}

err_code responses_get(struct responses *s, const char *owner, const char *id, struct responses_row *ret_row, err *e)
{
    return look(s, owner, id, false, ret_row, e);
}

err_code responses_find(struct responses *s, const char *owner, const char *item, struct responses_row *ret_row, err *e)
{
    return look(s, owner, item, true, ret_row, e);
}

void responses_row_done(struct responses_row *row)
{
    free(row->id);
    free(row->previous);
    free(row->object);
    free(row->input);
    *row = (struct responses_row){0};
}

static err_code delete_written(struct responses *s, const char *owner, const char *id, int64_t *ret_rows, err *e)
{
    if (!s->db)
        return err_set(e, ERR_DRAINING, "The server is shutting down.");
    sqlite3_stmt *q = take(s, DELETE, e);
    if (!q)
        return e->code;
    bind(q, 1, owner);
    bind(q, 2, id);
    return drop(s, q, ret_rows, e);
}

err_code responses_delete(struct responses *s, const char *owner, const char *id, err *e)
{
    if (!s)
        return err_set(e, ERR_NOT_FOUND, "there is no '%.80s'", id);
    int64_t rows = 0;
    pthread_mutex_lock(&s->db_lock);
    pthread_mutex_lock(&s->lock);
    struct waiting *w = find_waiting(s, owner, id, false);
    if (w)
        unlink_waiting(s, w);
    pthread_mutex_unlock(&s->lock);
    err_code code = w ? ERR_OK : delete_written(s, owner, id, &rows, e);
    pthread_mutex_unlock(&s->db_lock);
    if (!code && !w && !rows)
        code = err_set(e, ERR_NOT_FOUND, "there is no '%.80s'", id);
    if (w)
        free_waiting(w);
    return code;
}

// ---- life

err_code responses_open(const char *path, const struct responses_limits *limits, struct responses **ret_store, err *e)
{
    err local = {0};
    struct responses *s = mem_new(sizeof *s);
    atomic_init(&s->refs, 1);
    s->path = path ? mem_strdup(path) : NULL;
    s->limits = *limits;
    pthread_mutex_init(&s->db_lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->settled, NULL);
    if (!open_db(s, &local)) {
        s->serving = true;
        s->has_thread = !pthread_create(&s->thread, NULL, writer, s);
        if (!s->has_thread)
            err_set(&local, ERR_INTERNAL, "cannot start a thread");
    }
    if (local.code) {
        responses_close(s);
        responses_unref(s);
        if (e)
            *e = local;
        return local.code;
    }
    *ret_store = s;
    return ERR_OK;
}

void responses_close(struct responses *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    s->has_thread = false;
    pthread_mutex_lock(&s->db_lock);
    close_db(s);
    pthread_mutex_unlock(&s->db_lock);
}

struct responses *responses_ref(struct responses *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void responses_unref(struct responses *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
        return;
    for (struct waiting *w = s->first, *next; w; w = next) {
        next = w->next;
        free_waiting(w);
    }
    pthread_mutex_destroy(&s->db_lock);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->settled);
    free(s->path);
    free(s);
}

const unsigned char *responses_secret(const struct responses *s)
{
    return s->secret;
}

bool responses_failing(struct responses *s)
{
    pthread_mutex_lock(&s->lock);
    bool yes = s->failing;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

void responses_settle(struct responses *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->settled, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

int64_t responses_count(struct responses *s)
{
    pthread_mutex_lock(&s->db_lock);
    int64_t n = s->count;
    pthread_mutex_unlock(&s->db_lock);
    return n;
}
