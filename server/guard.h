// guard.h - what a request's header lines must look like before anything else reads them. libmicrohttpd 0.9.75 accepts
// lines on which two servers can disagree about where a request ends; those are refused here and the connection closed.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct header {
    const char *name, *value;
    size_t name_len, value_len;  // as counted by the parser: longer than strlen when the line had a NUL
};

// 0, or the HTTP status to refuse with (400, 417, 431) and *e filled. max: bytes of all lines together.
int guard_headers(const struct header *h, int n, bool http_1_1, size_t max, err *e);
const char *guard_find(const struct header *h, int n, const char *name);  // first one; NULL: absent
// "application/json; charset=utf-8" and "application/x+json" are.
bool guard_is_json(const char *content_type);
