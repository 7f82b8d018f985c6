// Reading and writing keys, and their digests. Hashes and random numbers come from GnuTLS, which libmicrohttpd brings
// into the process anyway.
#include "server/apikey.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/mem.h"

static const char *const classes[] = {
    [APIKEY_BATCH] = "batch", [APIKEY_NORMAL] = "normal", [APIKEY_INTERACTIVE] = "interactive"};

void apikey_init(struct apikey *k)
{
    *k = (struct apikey){.weight = 1, .best = APIKEY_NORMAL};
}

void apikey_done(struct apikey *k)
{
    free(k->models);
    k->models = NULL;
}

// ---- options

static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    return n && n <= APIKEY_NAME_MAX &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

err_code apikey_set_name(struct apikey *k, const char *name, err *e)
{
    if (!name_ok(name))
        return err_set(e, ERR_INVALID, "'%.80s' is no name of a key: expected 1 to %d letters, digits, '.', '_' or '-'",
                       name, APIKEY_NAME_MAX);
    strcpy(k->name, name);
    return ERR_OK;
}

static err_code wrong(const char *option, const char *value, const char *expected, err *e)
{
    return err_set_param(e, ERR_INVALID, option, "%s=%.80s: expected %s", option, value ? value : "", expected);
}

static err_code set_number(int64_t *ret_to, const char *option, const char *value, int64_t most, err *e)
{
    char *end, expected[64];
    long long v = strtoll(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || v < 1 || v > most) {
        snprintf(expected, sizeof expected, "a whole number from 1 to %lld", (long long)most);
        return wrong(option, value, expected, e);
    }
    *ret_to = v;
    return ERR_OK;
}

static err_code set_weight(struct apikey *k, const char *value, err *e)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || !(v >= 0.01 && v <= 100))
        return wrong("weight", value, "a number from 0.01 to 100", e);
    k->weight = v;
    return ERR_OK;
}

static err_code set_class(struct apikey *k, const char *value, err *e)
{
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, classes[i])) {
            k->best = (enum apikey_class)i;
            return ERR_OK;
        }
    return wrong("class", value, "batch, normal or interactive", e);
}

static err_code set_models(struct apikey *k, const char *value, err *e)
{
    if (!*value || strpbrk(value, " \t\r\n") || strlen(value) > 4096)
        return wrong("models", value, "names separated by commas", e);
    free(k->models);
    k->models = mem_strdup(value);
    return ERR_OK;
}

err_code apikey_set(struct apikey *k, const char *option, const char *value, err *e)
{
    if (!strcmp(option, "admin") && !value) {
        k->admin = true;
        return ERR_OK;
    }
    if (!value || !strcmp(option, "admin"))
        return err_set_param(e, ERR_INVALID, option, "'%.80s' is no option of a key, or lacks its value", option);
    if (!strcmp(option, "weight"))
        return set_weight(k, value, e);
    if (!strcmp(option, "class"))
        return set_class(k, value, e);
    if (!strcmp(option, "rpm"))
        return set_number(&k->rpm, option, value, APIKEY_RPM_MAX, e);
    if (!strcmp(option, "tpm"))
        return set_number(&k->tpm, option, value, APIKEY_TPM_MAX, e);
    if (!strcmp(option, "concurrent"))
        return set_number(&k->concurrent, option, value, INT_MAX, e);
    if (!strcmp(option, "expires"))
        return set_number(&k->expires_unix_s, option, value, INT64_MAX, e);
    if (!strcmp(option, "models"))
        return set_models(k, value, e);
    if (strcmp(option, "group") != 0)
        return err_set_param(e, ERR_INVALID, option, "'%.80s' is no option of a key", option);
    if (!name_ok(value))
        return wrong("group", value, "a name of letters, digits, '.', '_' and '-'", e);
    strcpy(k->group, value);
    return ERR_OK;
}

err_code apikey_set_all(struct apikey *k, const char *options, err *e)
{
    char *copy = mem_strdup(options), *save = NULL;
    err_code rc = ERR_OK;
    for (char *word = strtok_r(copy, " \t", &save); word && !rc; word = strtok_r(NULL, " \t", &save)) {
        char *equals = strchr(word, '=');
        if (equals)
            *equals = 0;
        rc = apikey_set(k, word, equals ? equals + 1 : NULL, e);
    }
    free(copy);
    return rc;
}

void apikey_options(const struct apikey *k, struct buf *out)
{
    if (fabs(k->weight - 1) > 0)
        buf_printf(out, " weight=%g", k->weight);
    if (k->best != APIKEY_NORMAL)
        buf_printf(out, " class=%s", classes[k->best]);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"rpm", k->rpm}, {"tpm", k->tpm}, {"concurrent", k->concurrent}, {"expires", k->expires_unix_s}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value)
            buf_printf(out, " %s=%lld", numbers[i].name, (long long)numbers[i].value);
    if (k->models)
        buf_printf(out, " models=%s", k->models);
    if (*k->group)
        buf_printf(out, " group=%s", k->group);
    if (k->admin)
        buf_add_str(out, " admin");
}

// ---- lines

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *s, unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(s[2 * i]), low = high < 0 ? -1 : hex_digit(s[2 * i + 1]);
        if (low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static void write_hex(const unsigned char *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static bool read_hash(struct apikey *k, const char *s)
{
    enum { SALT_AT = 7, DIGEST_AT = SALT_AT + 2 * APIKEY_SALT + 1, LEN = DIGEST_AT + 2 * APIKEY_DIGEST };
    return strlen(s) == LEN && !strncmp(s, "sha256:", SALT_AT) && read_hex(s + SALT_AT, k->salt, APIKEY_SALT) &&
           s[DIGEST_AT - 1] == ':' && read_hex(s + DIGEST_AT, k->digest, APIKEY_DIGEST);
}

err_code apikey_read_line(struct apikey *k, char *line, char **ret_plain, err *e)
{
    char *save = NULL, *name = strtok_r(line, " \t", &save), *hash = strtok_r(NULL, " \t", &save);
    *ret_plain = hash ? NULL : name;
    if (!hash)
        return name ? ERR_OK : err_set(e, ERR_INVALID, "an empty line");
    if (!read_hash(k, hash))
        return err_set(e, ERR_INVALID, "expected a key, or NAME sha256:SALT:DIGEST and options as 'oxinferd key add' writes");
    return apikey_set_name(k, name, e) ? e->code : apikey_set_all(k, save ? save : "", e);
}

void apikey_write_line(const struct apikey *k, struct buf *out)
{
    char salt[2 * APIKEY_SALT + 1], digest[2 * APIKEY_DIGEST + 1];
    write_hex(k->salt, APIKEY_SALT, salt);
    write_hex(k->digest, APIKEY_DIGEST, digest);
    buf_printf(out, "%s sha256:%s:%s", k->name, salt, digest);
    apikey_options(k, out);
    buf_add_char(out, '\n');
}

// ---- hashes

static void hmac(const void *secret, size_t secret_len, const void *p, size_t n, unsigned char *out)
{
    if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret, secret_len, p, n, out) < 0)
        abort();  // an algorithm that is always there
}

void apikey_digest(const unsigned char salt[APIKEY_SALT], const char *key, unsigned char ret_digest[APIKEY_DIGEST])
{
    hmac(salt, APIKEY_SALT, key, strlen(key), ret_digest);
}

void apikey_hmac_hex(const void *secret, size_t secret_len, const void *p, size_t n, char ret_hex[2 * APIKEY_DIGEST + 1])
{
    unsigned char digest[APIKEY_DIGEST];
    hmac(secret, secret_len, p, n, digest);
    write_hex(digest, sizeof digest, ret_hex);
}

void apikey_random(void *p, size_t n)
{
    if (getrandom(p, n, 0) != (ssize_t)n)
        abort();
}

void apikey_make(char ret_text[APIKEY_TEXT])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char raw[43];  // six bits of each: 258 bits
    apikey_random(raw, sizeof raw);
    char *out = ret_text + sprintf(ret_text, "sk-ox-");
    for (size_t i = 0; i < sizeof raw; i++)
        *out++ = letters[raw[i] & 63];
    *out = 0;
}

// ---- permissions

bool apikey_may_use(const struct apikey *k, const char *model)
{
    size_t n = strlen(model);
    if (!k || !k->models)
        return true;
    for (const char *at = k->models; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == n && !strncmp(at, model, n))
            return true;
    return false;
}

bool apikey_expired(const struct apikey *k, int64_t now_unix_s)
{
    return k->expires_unix_s && now_unix_s >= k->expires_unix_s;
}
