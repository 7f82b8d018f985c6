// apikey.h - one API key: how it is written down and what its owner may do.
//
//     NAME sha256:SALT:DIGEST [option]...     a line of api_key_file; SALT 32 and DIGEST 64 hex digits
//     KEY                                     a line with one word: the key itself
//
// options: weight=W (share of the engine, 1), class=batch|normal|interactive (the best class its requests may have,
// normal), rpm=N, tpm=N (requests and tokens a minute), concurrent=N, models=A,B (only these), group=G (shares cached
// prefixes with the other keys of G), expires=UNIX_SECONDS, admin.
//
// DIGEST is HMAC-SHA256 with SALT as its key: keys are 256 random bits, so nothing slower is needed. All keys of a file
// or store share one salt, which makes a look-up one hash whatever their number. Pure functions; any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    APIKEY_NAME_MAX = 64,
    APIKEY_SALT = 16,
    APIKEY_DIGEST = 32,
    APIKEY_TEXT = 50,          // of a new key, with its end
    APIKEY_RPM_MAX = 1000000,
    APIKEY_TPM_MAX = 1000000000,
};

enum apikey_class { APIKEY_BATCH, APIKEY_NORMAL, APIKEY_INTERACTIVE };  // from low to high

struct apikey {
    char name[APIKEY_NAME_MAX + 1];
    unsigned char salt[APIKEY_SALT], digest[APIKEY_DIGEST];
    double weight;
    enum apikey_class best;
    int64_t rpm, tpm, concurrent;  // 0: no limit
    bool admin;
    char group[APIKEY_NAME_MAX + 1];  // "": its own
    char *models;              // "a,b", owned; NULL: all
    int64_t expires_unix_s;    // 0: never
};

void apikey_init(struct apikey *k);  // defaults, no name
void apikey_done(struct apikey *k);

// Letters, digits, '.', '_', '-'.
MUST_CHECK err_code apikey_set_name(struct apikey *k, const char *name, err *e);
// One option; value NULL: none was given. ERR_INVALID names it.
MUST_CHECK err_code apikey_set(struct apikey *k, const char *option, const char *value, err *e);
// Options as in a line, separated by blanks.
MUST_CHECK err_code apikey_set_all(struct apikey *k, const char *options, err *e);
// Those that are not the default, as in a line.
void apikey_options(const struct apikey *k, struct buf *out);

// A line without its end. A line of one word is a plain key: *ret_plain points to it and k is not touched; else NULL.
MUST_CHECK err_code apikey_read_line(struct apikey *k, char *line, char **ret_plain, err *e);
void apikey_write_line(const struct apikey *k, struct buf *out);

void apikey_digest(const unsigned char salt[APIKEY_SALT], const char *key, unsigned char ret_digest[APIKEY_DIGEST]);
// HMAC-SHA256 as hex.
void apikey_hmac_hex(const void *secret, size_t secret_len, const void *p, size_t n, char ret_hex[2 * APIKEY_DIGEST + 1]);
void apikey_random(void *p, size_t n);  // from the operating system; aborts when there is none
void apikey_make(char ret_text[APIKEY_TEXT]);  // "sk-ox-" and 256 random bits

bool apikey_may_use(const struct apikey *k, const char *model);  // k NULL: yes
bool apikey_expired(const struct apikey *k, int64_t now_unix_s);
