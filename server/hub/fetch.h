// fetch.h - texts and files over HTTP from a hub, with distrust.
//
//     struct fetch *f;
//     fetch_open(&config, &f, &e);
//     fetch_text(f, url, max, &text, &len, &e);
//     fetch_file(f, url, &part, &e);            // goes on where it was cut off, also within the call
//     fetch_close(f);
//
// What is never done, whatever the hub, a redirect or the name service say: a connection to an address that is not
// public (address.h), looked at when it is made, unless it is the hub's own, written as an address, or a host of
// private_hosts; another protocol than http and https; http where the hub's own URL is https, or to another host
// (private_hosts excepted); the token to another scheme, host or port than the hub's; a proxy that only the environment
// names; more than FETCH_REDIRECTS redirects, FETCH_HEADERS of headers, or of a body than was expected. Certificates
// are verified.
//
// Failures that may pass (no connection, a cut or silent one, 408, 425, 429, 5xx) are tried again, after Retry-After or
// with growing pauses; a try that brought bytes starts the count again. Nothing limits the time of a whole file.
// Error texts name hosts, never a query (it may be a signature) or the token. One thread; blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "server/hub/digest.h"

enum {
    FETCH_REDIRECTS = 8, FETCH_HEADERS = 64 << 10, FETCH_WAIT_MAX_S = 300, FETCH_ETAG = 256, FETCH_TOKEN_MAX = 1024
};

struct fetch_config {
    const char *hub_url;               // http(s)://HOST[:PORT][/PATH]
    const char *token;                 // NULL: none
    const char *ca_file;               // PEM of the authorities to trust; NULL: the system's
    const char *proxy;                 // URL; NULL: none. Names are then looked up by the proxy
    const char *const *private_hosts;  // HOST or HOST:PORT that may have an address that is not public
    int nprivate;
    int retries, stall_s;              // a connection that brings nothing for stall_s is cut
    bool (*stop)(void *ud);            // ends everything with ERR_CANCELLED
    void (*say)(void *ud, const char *text);  // why something is tried again, and when; may be NULL
    void *ud;
};

struct fetch;

// ERR_INVALID: the URL, a token that is none, or one that plain http would carry.
MUST_CHECK err_code fetch_open(const struct fetch_config *c, struct fetch **ret_fetch, err *e);
void fetch_close(struct fetch *f);  // accepts NULL

// *ret_text is freed by free(). ERR_TOO_LARGE: more than max bytes.
MUST_CHECK err_code fetch_text(struct fetch *f, const char *url, size_t max, char **ret_text, size_t *ret_len, err *e);

struct fetch_part {
    int fd;                 // its bytes from 0 to have are there
    uint64_t have, size;    // size: of the whole, or FETCH_SIZE_UNKNOWN
    char etag[FETCH_ETAG];  // of what is there; "": not known
    struct digest *digest;  // of what is there
    bool pieced;            // set when an answer began behind what was there
    void (*progress)(void *ud, uint64_t have, uint64_t size);  // often; may be NULL
    err_code (*keep_etag)(void *ud, const char *etag, err *e); // before the first byte of a new content
    void *ud;
};
#define FETCH_SIZE_UNKNOWN UINT64_MAX

// On success the file is whole: have == size. Otherwise what arrived is kept in fd, and part says how much.
MUST_CHECK err_code fetch_file(struct fetch *f, const char *url, struct fetch_part *part, err *e);

// Of the last answer: its status (0: none came from the hub itself), and the hub's X-Error-Code such as GatedRepo.
long fetch_status(const struct fetch *f);
const char *fetch_error_code(const struct fetch *f);
const char *fetch_etag(struct fetch *f);  // X-Linked-Etag of the hub, else ETag, without quotes; "" when none
