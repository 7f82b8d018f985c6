// database.c - see the header. One file a process; one thread.
#include "tests/helpers/database.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

char database_folder[64], database_path[80];

int database_make_folder(void **state)
{
    (void)state;
    strcpy(database_folder, "/tmp/oxinferd-database-XXXXXX");
    return mkdtemp(database_folder) ? 0 : -1;
}

int database_remove_folder(void **state)
{
    (void)state;
    return rmdir(database_folder);
}

int database_begin(void **state)
{
    (void)state;
    snprintf(database_path, sizeof database_path, "%s/file.db", database_folder);
    return 0;
}

int database_end(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (int i = 0; i < 4; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", database_path, ends[i]);
        unlink(name);
    }
    return 0;
}

void database_exec(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(database_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL))
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

void database_write(const char *bytes, size_t n, long at)
{
    FILE *f = fopen(database_path, at ? "r+" : "w");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

int database_killed(void (*writer)(int fd), int least)
{
    int said[2], status, n = 0;
    char c;
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (!child) {
        writer(said[1]);
        _exit(1);
    }
    close(said[1]);
    while (n < least && read(said[0], &c, 1) == 1)
        n++;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    while (read(said[0], &c, 1) == 1)
        n++;
    close(said[0]);
    return n;
}
