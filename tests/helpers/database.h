// database.h - a SQLite file of a test's own in a folder of its own, and what may happen to it.
//
//     static void some_test(void **state) { ... open(database_path) ... }
//     cmocka_unit_test_setup_teardown(some_test, database_begin, database_end)
//     int main(void) { ... return database_run(tests); }
#pragma once

#include <stddef.h>

#include "tests/helpers/small_disk.h"

extern char database_folder[64], database_path[80];

// Around each test: none has the file of another.
int database_begin(void **state);
int database_end(void **state);

// Around all of them: the folder.
#define database_run(tests) cmocka_run_group_tests(tests, database_make_folder, database_remove_folder)
int database_make_folder(void **state);
int database_remove_folder(void **state);

void database_exec(const char *sql);
// Bytes into the file as it lies there; at 0: the file is made anew.
void database_write(const char *bytes, size_t n, long at);
// Runs writer in a child, which writes a byte to fd for each thing it has done and never ends, until it is killed with
// SIGKILL after `least` of them. Returns how many it said.
int database_killed(void (*writer)(int fd), int least);
