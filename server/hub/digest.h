// digest.h - what a file is known by, computed while its bytes pass: SHA-256, and the name Git gives a file of such
// bytes (SHA-1 of "blob SIZE\0" and the bytes), which is all that a hub says of files outside Git LFS.
//
//     struct digest *d = digest_new(true, size);
//     digest_add(d, bytes, n);  ...
//     digest_take(d, sha256, blob);
//     digest_free(d);
//
// One thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { DIGEST_SHA256 = 65, DIGEST_BLOB = 41 };  // lower-case hexadecimal with its NUL

struct digest;

struct digest *digest_new(bool blob, uint64_t size);  // blob: Git's name too, for which the whole file's size is needed
void digest_free(struct digest *d);     // accepts NULL
void digest_restart(struct digest *d);  // as if nothing had been added
void digest_add(struct digest *d, const void *bytes, size_t n);
void digest_take(const struct digest *d, char ret_sha256[DIGEST_SHA256],
                 char ret_blob[DIGEST_BLOB]); // of what was added; "": no blob
// Adds what an open file holds from its start, at most n bytes; leaves its position there. stop: NULL, or ends it
// early.
MUST_CHECK err_code digest_add_file(struct digest *d, int fd, uint64_t n, bool (*stop)(void *ud), void *ud, err *e);

// SHA-256 of a text.
void digest_text(const char *text, char ret_sha256[DIGEST_SHA256]);

// Whether s is n lower-case hexadecimal digits and nothing else.
bool digest_is_hex(const char *s, size_t n);
