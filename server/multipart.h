// multipart.h - multipart/form-data (RFC 7578, RFC 2046 §5.1) as it arrives: a push parser that keeps no content.
//
//     char boundary[MULTIPART_BOUNDARY_MAX + 1];
//     if (multipart_boundary(content_type, boundary, &e)) ...
//     struct multipart *m = multipart_new(boundary, &sink, ud);
//     while (bytes come) if (multipart_feed(m, data, n, &e)) ...      // any cut gives the same calls, but for the sizes
//     if (multipart_finish(m, &e)) ...                                // of the pieces of content
//     multipart_free(m);
//
// Errors are ERR_INVALID, or what the sink returned; after one nothing more may be fed. One thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70,   // RFC 2046
    MULTIPART_HEADER_MAX = 8192,   // bytes of one part's header lines
    MULTIPART_PARTS_MAX = 256,
};

struct multipart_part {
    const char *name;          // UTF-8 as it came; "": the part has none
    const char *filename;      // NULL: not a file. Never a path of ours; "" is a file without a name
    const char *content_type;  // "": none
};

// part, then data any number of times, then end; for each part.
struct multipart_sink {
    err_code (*part)(void *ud, const struct multipart_part *p, err *e);  // strings live until it returns
    err_code (*data)(void *ud, const char *data, size_t n, err *e);
    err_code (*end)(void *ud, err *e);
};

struct multipart;

// The boundary of a header "multipart/form-data; boundary=...", quoted or not.
MUST_CHECK err_code multipart_boundary(const char *content_type, char ret_boundary[MULTIPART_BOUNDARY_MAX + 1], err *e);

struct multipart *multipart_new(const char *boundary, const struct multipart_sink *sink, void *ud);
void multipart_free(struct multipart *m);
MUST_CHECK err_code multipart_feed(struct multipart *m, const char *data, size_t n, err *e);
MUST_CHECK err_code multipart_finish(struct multipart *m, err *e);  // a body without its last boundary is an error
