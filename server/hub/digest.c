// See the header. The hashes are GnuTLS's, which the process has anyway for its own TLS.
#include "server/hub/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/mem.h"

enum { PIECE = 1 << 18 };

struct digest {
    gnutls_hash_hd_t sha256, blob;
    bool with_blob;
    uint64_t size;
};

static void start(struct digest *d)
{
    char head[40];
    if (gnutls_hash_init(&d->sha256, GNUTLS_DIG_SHA256) ||
        (d->with_blob && gnutls_hash_init(&d->blob, GNUTLS_DIG_SHA1)))
        abort();  // out of memory: see mem.h
    if (!d->with_blob)
        return;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)d->size);
    gnutls_hash(d->blob, head, (size_t)n + 1);
}

static void stop(struct digest *d)
{
    gnutls_hash_deinit(d->sha256, NULL);
    if (d->with_blob)
        gnutls_hash_deinit(d->blob, NULL);
}

struct digest *digest_new(bool blob, uint64_t size)
{
    struct digest *d = mem_new(sizeof *d);
    d->with_blob = blob;
    d->size = size;
    start(d);
    return d;
}

void digest_free(struct digest *d)
{
    if (!d)
        return;
    stop(d);
    free(d);
}

void digest_restart(struct digest *d)
{
    stop(d);
    start(d);
}

void digest_add(struct digest *d, const void *bytes, size_t n)
{
    gnutls_hash(d->sha256, bytes, n);
    if (d->with_blob)
        gnutls_hash(d->blob, bytes, n);
}

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

static void take(gnutls_hash_hd_t h, size_t n, char *out)
{
    uint8_t bytes[32];
    gnutls_hash_hd_t copy = gnutls_hash_copy(h);
    if (!copy)
        abort();
    gnutls_hash_deinit(copy, bytes);
    hex(bytes, n, out);
}

void digest_take(const struct digest *d, char ret_sha256[DIGEST_SHA256], char ret_blob[DIGEST_BLOB])
{
    take(d->sha256, 32, ret_sha256);
    ret_blob[0] = 0;
    if (d->with_blob)
        take(d->blob, 20, ret_blob);
}

err_code digest_add_file(struct digest *d, int fd, uint64_t n, bool (*stopped)(void *ud), void *ud, err *e)
{
    err_code rc = ERR_OK;
    uint8_t *piece = mem_new(PIECE);
    if (lseek(fd, 0, SEEK_SET) < 0)
        rc = err_set(e, ERR_IO, "cannot read again what was written: %s", strerror(errno));
    while (n && !rc) {
        ssize_t got = read(fd, piece, n < PIECE ? (size_t)n : PIECE);
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got <= 0)
            rc = err_set(e, ERR_IO, "cannot read again what was written: %s", got ? strerror(errno) : "it is shorter");
        if (!rc && got > 0)
            digest_add(d, piece, (size_t)got);
        n -= got > 0 ? (uint64_t)got : 0;
        if (!rc && stopped && stopped(ud))
            rc = err_set(e, ERR_CANCELLED, "interrupted");
    }
    free(piece);
    return rc;
}

void digest_text(const char *text, char ret_sha256[DIGEST_SHA256])
{
    uint8_t bytes[32];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, strlen(text), bytes))
        abort();
    hex(bytes, sizeof bytes, ret_sha256);
}

bool digest_is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}
