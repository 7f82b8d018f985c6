// beneath.h - files under an open folder, by relative paths of which no part is ever a symbolic link: the call fails
// with ELOOP or ENOTDIR where one stands. Paths went through modelref_check_path. Failures are -1 and errno.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// open() with O_CLOEXEC and O_NOFOLLOW. make_folders: those on the way that are missing.
int beneath_open(int folder, const char *path, int flags, bool make_folders);
// The size of a regular file, or -1 (ENOENT; EINVAL when it is something else).
int64_t beneath_size(int folder, const char *path);
// An existing file gets a second name there; folders are made, and what they now hold is on the disk afterwards.
int beneath_link(int from, const char *name, int folder, const char *path);
// Makes a folder if need be and opens it.
int beneath_folder(int folder, const char *name);
// Deletes a file, a link, or a folder with all in it (the links themselves, nothing they lead to). 0, also when there
// is none.
int beneath_remove(int folder, const char *name);
