// small_disk.h - a test on a disk that is soon full: a file system of its own, seen by a child alone.
//
//     static int fill(void) { if (!small_disk_mount(folder, "size=128k")) return SMALL_DISK_NONE; ... return right ? 0 : 1; }
//     static void disk_full(void **state) { small_disk_test(fill); }        // skipped by name where none can be mounted
#pragma once

#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SMALL_DISK_NONE = 2 };  // of what the child returns; 0: right

static inline bool small_disk_mount(const char *folder, const char *size)
{
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return false;
    (void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return mount("none", folder, "tmpfs", 0, size) == 0;
}

static inline void small_disk_test(int (*in_child)(void))
{
    pid_t child = fork();
    if (!child)
        _exit(in_child());
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SMALL_DISK_NONE) {
        print_message("SKIPPED: no private file system can be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}
