// auth.h - who may ask: API keys, names the server answers to, web origins.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct auth {
    const char *const *keys;
    int nkeys;
    const char *const *origins;
    int norigins;
    const char *const *hosts;
    int nhosts;
};

// ERR_INVALID: an empty key.
MUST_CHECK err_code auth_check(const struct auth *a, err *e);

// The number of the key that matches, counted from 0; -1: none. Time depends on the keys' lengths only.
int auth_find_key(const struct auth *a, const char *key);
// "Bearer KEY" -> KEY; NULL: another scheme.
const char *auth_bearer(const char *authorization);

// True for loopback names and addresses, with or without a port, and the configured names: what a page that made its
// own name point at 127.0.0.1 (DNS rebinding) cannot send.
bool auth_host_ok(const struct auth *a, const char *host);
bool auth_origin_ok(const struct auth *a, const char *origin);
// "127.0.0.1", "127.8.8.8", "::1", "localhost", "x.localhost"; n bytes, without brackets or port.
bool auth_is_loopback(const char *host, size_t n);
