// See the header. Credentials are reference counted; the current one is swapped under a lock.
#include "server/tls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/file.h"
#include "base/mem.h"

enum { PEM_MAX = 1 << 20 };

struct tls_credential {
    atomic_int refs;
    gnutls_certificate_credentials_t gnutls;
    char *cert, *key;  // PEM
    time_t from, until;
};

struct tls {
    char *cert_path, *key_path;
    pthread_mutex_t lock;  // guards current
    struct tls_credential *current;
};

void tls_drop(struct tls_credential *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (c->gnutls)
        gnutls_certificate_free_credentials(c->gnutls);
    if (c->key)
        explicit_bzero(c->key, strlen(c->key));
    free(c->cert);
    free(c->key);
    free(c);
}

// ---- reading

static err_code read_pem(const char *setting, const char *path, char **ret_text, err *e)
{
    size_t len;
    if (!file_read(path, PEM_MAX, ret_text, &len, e))
        return ERR_OK;
    snprintf(e->param, sizeof e->param, "%s", setting);
    return err_wrap(e, "%s", setting);
}

static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

static err_code read_certificate(struct tls_credential *c, const char *path, err *e)
{
    gnutls_x509_crt_t *list = NULL;
    unsigned n = 0;
    gnutls_datum_t pem = datum(c->cert);
    int rc = gnutls_x509_crt_list_import2(&list, &n, &pem, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0)
        return err_set_param(e, ERR_INVALID, "tls_cert", "tls_cert '%s' is not a PEM certificate: %s", path,
                             gnutls_strerror(rc));
    c->from = gnutls_x509_crt_get_activation_time(list[0]);
    c->until = gnutls_x509_crt_get_expiration_time(list[0]);
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
    return ERR_OK;
}

static err_code check_key(const struct tls_credential *c, const char *path, err *e)
{
    gnutls_x509_privkey_t key;
    gnutls_datum_t pem = datum(c->key);
    if (gnutls_x509_privkey_init(&key) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the key");
    int rc = gnutls_x509_privkey_import2(key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_x509_privkey_deinit(key);
    if (rc == GNUTLS_E_DECRYPTION_FAILED || (rc < 0 && strstr(c->key, "ENCRYPTED")))
        return err_set_param(e, ERR_INVALID, "tls_key", "tls_key '%s' is encrypted; expected a key without a password", path);
    return rc < 0 ? err_set_param(e, ERR_INVALID, "tls_key", "tls_key '%s' is not a PEM private key: %s", path,
                                  gnutls_strerror(rc))
                  : ERR_OK;
}

static err_code join(struct tls_credential *c, const char *cert_path, const char *key_path, err *e)
{
    gnutls_datum_t cert = datum(c->cert), key = datum(c->key);
    if (gnutls_certificate_allocate_credentials(&c->gnutls) < 0)
        return err_set(e, ERR_MEMORY, "no memory for the certificate");
    int rc = gnutls_certificate_set_x509_key_mem(c->gnutls, &cert, &key, GNUTLS_X509_FMT_PEM);
    if (rc == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return err_set_param(e, ERR_INVALID, "tls_key", "tls_key '%s' does not belong to the certificate '%s'", key_path,
                             cert_path);
    return rc < 0 ? err_set_param(e, ERR_INVALID, "tls_cert", "tls_cert '%s': %s", cert_path, gnutls_strerror(rc)) : ERR_OK;
}

static err_code read_credential(const char *cert_path, const char *key_path, struct tls_credential **ret, err *e)
{
    err local = {0};
    struct tls_credential *c = mem_new(sizeof *c);
    atomic_init(&c->refs, 1);
    if (!read_pem("tls_cert", cert_path, &c->cert, &local) && !read_pem("tls_key", key_path, &c->key, &local) &&
        !read_certificate(c, cert_path, &local) && !check_key(c, key_path, &local) &&
        !join(c, cert_path, key_path, &local)) {
        *ret = c;
        return ERR_OK;
    }
    tls_drop(c);
    if (e)
        *e = local;
    return local.code;
}

// ---- the current one

err_code tls_open(const char *cert_path, const char *key_path, struct tls **ret_tls, err *e)
{
    struct tls_credential *c;
    if (!cert_path && !key_path) {
        *ret_tls = NULL;
        return ERR_OK;
    }
    if (!cert_path || !key_path) {
        const char *missing = cert_path ? "tls_key" : "tls_cert";
        return err_set_param(e, ERR_INVALID, missing, "tls_cert and tls_key belong together; %s is not set", missing);
    }
    err_code rc = read_credential(cert_path, key_path, &c, e);
    if (rc)
        return rc;
    struct tls *t = mem_new(sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    t->cert_path = mem_strdup(cert_path);
    t->key_path = mem_strdup(key_path);
    t->current = c;
    *ret_tls = t;
    return ERR_OK;
}

void tls_close(struct tls *t)
{
    if (!t)
        return;
    tls_drop(t->current);
    pthread_mutex_destroy(&t->lock);
    free(t->cert_path);
    free(t->key_path);
    free(t);
}

err_code tls_reload(struct tls *t, err *e)
{
    struct tls_credential *fresh;
    err_code rc = read_credential(t->cert_path, t->key_path, &fresh, e);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    struct tls_credential *old = t->current;
    t->current = fresh;
    pthread_mutex_unlock(&t->lock);
    tls_drop(old);
    return ERR_OK;
}

struct tls_credential *tls_take(struct tls *t)
{
    pthread_mutex_lock(&t->lock);
    struct tls_credential *c = t->current;
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&t->lock);
    return c;
}

void tls_warning(struct tls *t, char *ret_text, size_t size)
{
    struct tls_credential *c = tls_take(t);
    time_t now = time(NULL);
    char day[32];
    struct tm tm;
    *ret_text = 0;
    bool late = now >= c->until;
    if (late || now < c->from) {
        strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(late ? &c->until : &c->from, &tm));
        snprintf(ret_text, size, "the certificate '%s' %s %s", t->cert_path, late ? "expired on" : "is not valid before", day);
    }
    tls_drop(c);
}

// ---- sessions

void tls_texts(const struct tls_credential *c, const char **ret_cert, const char **ret_key)
{
    *ret_cert = c->cert;
    *ret_key = c->key;
}

void tls_use(const struct tls_credential *c, void *session)
{
    (void)gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->gnutls);
}

void tls_send_last(void *session, const void *p, size_t n)
{
    if (gnutls_record_send(session, p, n) >= 0)
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
}
