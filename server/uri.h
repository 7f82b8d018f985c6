// uri.h - a request target taken apart, and values from its query.
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct uri {
    const char *path;       // percent-decoded UTF-8 without control characters, runs of '/' made one; "*" for OPTIONS *
    const char *query;      // still encoded, without '?'; "" when absent
    const char *authority;  // of an absolute target ("http://host:port/..."); NULL otherwise
};

// Errors: ERR_INVALID (no leading '/', bad escape, control character, not UTF-8).
MUST_CHECK err_code uri_parse(struct arena *a, const char *target, struct uri *ret_uri, err *e);
// Decoded ('+' is a space); NULL: absent or badly encoded.
const char *uri_query(struct arena *a, const char *query, const char *name);
