// tls.h - the server's certificate: checked when read, and read again without closing a connection.
//
// The files are read into an immutable credential. Each connection takes the one of its first moment and keeps it; a
// reload replaces the one that later connections take.
#pragma once

#include <stddef.h>

#include "base/err.h"

struct tls;
struct tls_credential;

// What MHD's connections may speak.
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

// Neither path: *ret_tls is NULL. Files in PEM form, the certificate with its chain, its own first. Errors name the setting: ERR_NOT_FOUND, ERR_IO,
// ERR_INVALID (one path only, no certificate, no key, an encrypted key, a key of another certificate). The paths are copied.
MUST_CHECK err_code tls_open(const char *cert_path, const char *key_path, struct tls **ret_tls, err *e);
void tls_close(struct tls *t);  // accepts NULL; credentials that are held live on
// Reads the files again; when that fails the credential of before stays. Any thread, but not the loop's.
MUST_CHECK err_code tls_reload(struct tls *t, err *e);
// What is wrong with the certificate without making it unusable (it has expired ...); "" when nothing is. Any thread.
void tls_warning(struct tls *t, char *ret_text, size_t size);

struct tls_credential *tls_take(struct tls *t);  // the current one, referenced; any thread
void tls_drop(struct tls_credential *c);         // accepts NULL; any thread
// For the start of a daemon: the texts as read.
void tls_texts(const struct tls_credential *c, const char **ret_cert, const char **ret_key);
// Makes a session that has not yet spoken use c, which must outlive it.
void tls_use(const struct tls_credential *c, void *session);
// Past MHD, on a connection whose handshake is over (else nothing is sent): the bytes, then the end of ours.
void tls_send_last(void *session, const void *p, size_t n);
