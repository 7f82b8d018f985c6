// directory.h - the list of a model's tensors, while it is read from its files and after.
//
//     directory_add(&d, &t, &e);             // by the format readers; the name is copied
//     directory_seal(&d, names, &e);         // sorted; a name that appears twice is refused
//     directory_find(&d, "lm_head.weight");
//     directory_done(&d);
//
// A zeroed struct is an empty directory. Written by the thread that opens the model; read by any thread once sealed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/weights/weights.h"

enum {
    DIRECTORY_TENSORS = 1 << 20, // most tensors of a model
    DIRECTORY_NAME = 256,        // most bytes of a tensor's name
};

struct directory {
    struct arena names;
    struct tensor *all; // sorted once sealed
    size_t count, cap;
    const struct tensor **usable; // those of all whose type a kernel reads, in the same order
    size_t usable_count;
};

// A tensor's name from a file: 1 to DIRECTORY_NAME bytes of UTF-8 without control characters. i is for the message.
MUST_CHECK err_code directory_check_name(const char *file, const char *name, size_t len, size_t i, err *e);

// ERR_TOO_LARGE, ERR_MEMORY. t->name and t->dtype: the name is copied, the dtype must outlive the directory.
MUST_CHECK err_code directory_add(struct directory *d, const struct tensor *t, err *e);

// files[t.shard] is a file's name, for messages. ERR_CORRUPT when a name appears twice.
MUST_CHECK err_code directory_seal(struct directory *d, const char *const *files, err *e);

// Lists again which tensors of a sealed directory are usable: types were given, or tensors taken out, since.
void directory_list(struct directory *d);

const struct tensor *directory_find(const struct directory *d, const char *name); // of any dtype; NULL: there is none
void directory_done(struct directory *d);

// Text of a file as a message may show it: cut at a character border to room - 1 bytes, without control characters.
const char *directory_quote(const char *text, char *buf, size_t room);

// "[2, 3]" of a shape, cut to fit; returns buf.
const char *directory_shape(const int64_t *shape, int ndim, char *buf, size_t room);

// Elements of a shape; false when a dimension is negative or the product passes 2^63-1.
bool directory_elements(const int64_t *shape, int ndim, size_t *ret_elements);

// Refuses byte ranges that share bytes, and with `dense` also any byte of [0, total) outside all of them. Sorts spans.
struct directory_span {
    size_t begin, end;
    const char *name;
};
MUST_CHECK err_code directory_check_spans(const char *file, struct directory_span *spans, size_t count, bool dense,
                                          size_t total, err *e);
