// See the header. libcurl makes one request at a time; redirects are followed here, so that each is looked at and none
// carries the token along.
#include "server/hub/fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/hub/address.h"
#include "server/version.h"

enum { CONNECT_S = 30, PAUSE_MS = 250, PAUSE_MAX_MS = 30000, ERROR_BODY = 64 << 10, URL_MAX = 16384 };

struct origin {
    bool tls;
    char host[256];  // lower case, IPv6 without brackets
    char port[8];
};

struct fetch {
    const struct fetch_config *c;
    CURL *curl;
    struct origin hub;
    bool hub_is_address;  // written as one, or localhost: its operator knows where it is
    char authorization[FETCH_TOKEN_MAX + 32];

    // Of the request that runs.
    struct origin at;
    struct fetch_part *part;  // one of the two
    struct buf *text;
    size_t header_bytes;
    bool body_began, asked_range;
    uint64_t range_from;      // of a 206
    uint64_t range_total;
    char refused[64];         // the address that was not connected to
    err error;                // set by a callback that ended the transfer
    bool error_passes;        // it is worth another try
    int64_t heard_ns;         // when the last bytes came
    bool silent;              // too long ago

    // Of the last answer.
    long status;
    char code[64], etag[FETCH_ETAG], linked_etag[FETCH_ETAG], plain_etag[FETCH_ETAG];
    long wait_s;              // what a 429 or 503 asked for; -1: nothing
    char curl_text[CURL_ERROR_SIZE];
};

// ---- URLs

static bool url_part(CURLU *u, CURLUPart what, unsigned flags, char *out, size_t size)
{
    char *s = NULL;
    bool ok = !curl_url_get(u, what, &s, flags) && s && strlen(s) < size;
    if (ok)
        strcpy(out, s);
    curl_free(s);
    return ok;
}

static bool has_part(CURLU *u, CURLUPart what)
{
    char *s = NULL;
    bool has = !curl_url_get(u, what, &s, 0);
    curl_free(s);
    return has;
}

static err_code read_origin(const char *url, struct origin *ret_origin, err *e)
{
    struct origin o = {0};
    char scheme[16] = "";
    CURLU *u = curl_url();
    err_code rc = ERR_OK;
    if (!u || strlen(url) >= URL_MAX || curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) ||
        !url_part(u, CURLUPART_SCHEME, 0, scheme, sizeof scheme))
        rc = err_set(e, ERR_INVALID, "no URL");
    else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        rc = err_set(e, ERR_INVALID, "a URL of '%s:', only https is taken", scheme);
    else if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD) || has_part(u, CURLUPART_ZONEID))
        rc = err_set(e, ERR_INVALID, "a URL with a user's name or an address's zone");
    else if (!url_part(u, CURLUPART_HOST, 0, o.host, sizeof o.host) ||
             !url_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o.port, sizeof o.port))
        rc = err_set(e, ERR_INVALID, "a URL without a host");
    curl_url_cleanup(u);
    if (rc)
        return rc;
    o.tls = strcmp(scheme, "https") == 0;
    size_t n = strlen(o.host);
    if (o.host[0] == '[' && n > 2) {
        memmove(o.host, o.host + 1, n - 2);
        o.host[n - 2] = 0;
    } else if (n > 1 && o.host[n - 1] == '.') {
        o.host[n - 1] = 0;
    }
    for (char *p = o.host; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
    *ret_origin = o;
    return ERR_OK;
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return a->tls == b->tls && !strcmp(a->host, b->host) && !strcmp(a->port, b->port);
}

// The host and port of the hub, or of the list.
static bool is_listed(const struct fetch *f, const struct origin *o)
{
    for (int i = 0; i < f->c->nprivate; i++) {
        const char *item = f->c->private_hosts[i];
        size_t n = strlen(o->host);
        bool bracket = item[0] == '[' && strncasecmp(item + 1, o->host, n) == 0 && item[1 + n] == ']';
        const char *rest = bracket ? item + n + 2 : item + n;
        if (!bracket && strncasecmp(item, o->host, n) != 0)
            continue;
        if (!*rest || (*rest == ':' && !strcmp(rest + 1, o->port)))
            return true;
    }
    return false;
}

static bool literal_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool is_localhost(const char *host)
{
    size_t n = strlen(host), m = strlen(".localhost");
    return !strcmp(host, "localhost") || (n > m && !strcmp(host + n - m, ".localhost"));
}

// ---- what may be connected to

static bool may_connect(const struct fetch *f, const struct sockaddr *a)
{
    if (address_public(a) || f->c->proxy || is_listed(f, &f->at))
        return true;
    // A name that suddenly leads inside is not what the operator wrote; 169.254 is nobody's hub.
    return f->hub_is_address && same_origin(&f->at, &f->hub) && !address_link_local(a);
}

static curl_socket_t on_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct fetch *f = ud;
    (void)purpose;
    if (!may_connect(f, &a->addr)) {
        address_text(&a->addr, f->refused);
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

// A redirect, or the first URL.
static err_code check_url(struct fetch *f, const char *url, const struct origin *from, err *e)
{
    struct origin o;
    if (read_origin(url, &o, e))
        return e->code;
    if (from && from->tls && !o.tls)
        return err_set(e, ERR_INVALID, "from https to plain http on %s, which is refused", o.host);
    if (!o.tls && !same_origin(&o, &f->hub) && (f->hub.tls || !is_listed(f, &o)))
        return err_set(e, ERR_INVALID, "to plain http on %s, which is refused", o.host);
    if (f->c->proxy && is_localhost(o.host) && !is_listed(f, &o) && !same_origin(&o, &f->hub))
        return err_set(e, ERR_INVALID, "to %s, which is no public address", o.host);
    if (f->c->proxy && literal_address(o.host)) {  // it would not be looked at when the connection is made
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        bool is4 = inet_pton(AF_INET, o.host, &v4.sin_addr) == 1;
        if (!is4)
            inet_pton(AF_INET6, o.host, &v6.sin6_addr);
        if (!address_public(is4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6) && !is_listed(f, &o) &&
            !same_origin(&o, &f->hub))
            return err_set(e, ERR_INVALID, "to %s, which is no public address", o.host);
    }
    f->at = o;
    return ERR_OK;
}

// ---- headers

static bool is_header(const char *line, size_t n, const char *name, const char **ret_value, size_t *ret_len)
{
    size_t len = strlen(name);
    if (n <= len || line[len] != ':' || strncasecmp(line, name, len) != 0)
        return false;
    const char *v = line + len + 1, *end = line + n;
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *ret_value = v;
    *ret_len = (size_t)(end - v);
    return true;
}

// Printable ASCII only, as far as it fits.
static void keep(char *out, size_t size, const char *v, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n && k + 1 < size; i++)
        if (v[i] > ' ' && v[i] < 127)
            out[k++] = v[i];
    out[k] = 0;
}

// An ETag that does not fit is none.
static void keep_etag(char *out, const char *v, size_t n)
{
    keep(out, FETCH_ETAG, v, n < FETCH_ETAG ? n : 0);
}

static void read_range(struct fetch *f, const char *v, size_t n)
{
    char text[96];
    unsigned long long from, to, total;
    snprintf(text, sizeof text, "%.*s", (int)n, v);
    if (sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &total) == 3 && from <= to && to < total) {
        f->range_from = from;
        f->range_total = total;
    }
}

// RateLimit: "api";r=0;t=55
static void read_rate(struct fetch *f, const char *v, size_t n)
{
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)n, v);
    const char *left = strstr(text, ";r="), *wait = strstr(text, ";t=");
    if (left && wait && atol(left + 3) == 0)
        f->wait_s = atol(wait + 3);
}

static void forget_answer(struct fetch *f)
{
    f->code[0] = f->etag[0] = f->linked_etag[0] = 0;
    f->wait_s = -1;
    f->range_from = f->range_total = FETCH_SIZE_UNKNOWN;
}

static size_t on_header(char *line, size_t one, size_t n, void *ud)
{
    struct fetch *f = ud;
    const char *v;
    size_t len;
    (void)one;
    f->header_bytes += n;
    f->heard_ns = clock_ns();
    if (f->header_bytes > FETCH_HEADERS) {
        err_set(&f->error, ERR_TOO_LARGE, "%s sends more than %d bytes of headers", f->at.host, FETCH_HEADERS);
        return 0;
    }
    if (n > 5 && !strncmp(line, "HTTP/", 5))
        forget_answer(f);
    else if (is_header(line, n, "etag", &v, &len))
        keep_etag(f->etag, v, len);
    else if (is_header(line, n, "x-linked-etag", &v, &len))
        keep_etag(f->linked_etag, v, len);
    else if (is_header(line, n, "x-error-code", &v, &len))
        keep(f->code, sizeof f->code, v, len);
    else if (is_header(line, n, "content-range", &v, &len))
        read_range(f, v, len);
    else if (is_header(line, n, "ratelimit", &v, &len))
        read_rate(f, v, len);
    return n;
}

// ---- bodies

static err_code start_again(struct fetch_part *p, err *e)
{
    if (ftruncate(p->fd, 0) || lseek(p->fd, 0, SEEK_SET))
        return err_set(e, ERR_IO, "cannot write: %s", strerror(errno));
    p->have = 0;
    p->pieced = false;
    digest_restart(p->digest);
    return ERR_OK;
}

// A page of a proxy or of an error in the place of the file shows by its length, before anything is written.
static err_code check_length(struct fetch *f, err *e)
{
    curl_off_t length = -1;
    char *type = NULL, shown[64] = "";
    uint64_t size = f->part->size;
    curl_easy_getinfo(f->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    curl_easy_getinfo(f->curl, CURLINFO_CONTENT_TYPE, &type);
    if (length < 0 || size == FETCH_SIZE_UNKNOWN || (uint64_t)length == size)
        return ERR_OK;
    if (type)
        keep(shown, sizeof shown, type, strcspn(type, ";"));
    f->error_passes = true;
    return err_set(e, ERR_CORRUPT, "%s sends %lld bytes%s%s instead of the file's %llu", f->at.host, (long long)length,
                   *shown ? " of " : "", shown, (unsigned long long)size);
}

// Before the first byte of a file, also of an empty one.
static err_code begin_file(struct fetch *f, err *e)
{
    struct fetch_part *p = f->part;
    bool partial = f->status == 206;
    f->body_began = true;
    if (partial && (!f->asked_range || f->range_from != p->have ||
                    (p->size != FETCH_SIZE_UNKNOWN && f->range_total != p->size))) {
        f->error_passes = f->asked_range && !start_again(p, e);
        p->etag[0] = 0;
        return err_set(e, ERR_CORRUPT, "%s answered with another range of the file than was asked for", f->at.host);
    }
    if (!partial && (check_length(f, e) || (p->have && start_again(p, e))))
        return e->code;
    if (partial) {
        p->pieced = true;
        return ERR_OK;
    }
    const char *etag = strncmp(f->etag, "W/", 2) ? f->etag : "";  // a weak one does not stand for the bytes
    strcpy(p->etag, etag);
    return p->keep_etag ? p->keep_etag(p->ud, etag, e) : ERR_OK;
}

static err_code write_file(struct fetch_part *p, const char *bytes, size_t n, err *e)
{
    if (p->size != FETCH_SIZE_UNKNOWN && n > p->size - p->have)
        return err_set(e, ERR_CORRUPT, "more than the %llu bytes that the hub's listing says",
                       (unsigned long long)p->size);
    for (size_t done = 0; done < n;) {
        ssize_t k = write(p->fd, bytes + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, ERR_IO, "cannot write: %s%s", k ? strerror(errno) : "nothing was written",
                           k && (errno == ENOSPC || errno == EDQUOT)
                               ? "; what arrived is kept, the pull goes on when there is room"
                               : "");
        digest_add(p->digest, bytes + done, (size_t)k);
        p->have += (uint64_t)k;
        done += (size_t)k;
    }
    if (p->progress)
        p->progress(p->ud, p->have, p->size);
    return ERR_OK;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *ud)
{
    struct fetch *f = ud;
    err_code rc = ERR_OK;
    (void)one;
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->status);
    if (f->status / 100 != 2)
        rc = (f->header_bytes += n) > ERROR_BODY ? ERR_TOO_LARGE : ERR_OK;  // read for the connection, never shown
    else if (f->text && !buf_add(f->text, bytes, n))
        rc = err_set(&f->error, ERR_TOO_LARGE, "the answer of %s has more than %zu bytes", f->at.host, f->text->max);
    else if (f->part && !f->body_began)
        rc = begin_file(f, &f->error);
    if (!rc && f->part && f->status / 100 == 2)
        rc = write_file(f->part, bytes, n, &f->error);
    f->heard_ns = clock_ns();  // a slow disk is no silence
    return rc ? 0 : n;
}

static int on_progress(void *ud, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct fetch *f = ud;
    (void)a, (void)b, (void)c, (void)d;
    f->silent = clock_ns() - f->heard_ns > f->c->stall_s * 1000000000LL;
    return f->silent || (f->c->stop && f->c->stop(f->c->ud));
}

// ---- one request

static void set_request(struct fetch *f, const char *url, struct curl_slist *headers)
{
    CURL *c = f->curl;
    curl_easy_reset(c);  // options only; connections stay open
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROXY, f->c->proxy ? f->c->proxy : "");  // "": not the environment's either
    curl_easy_setopt(c, CURLOPT_NOPROXY, "");
    curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "oxinferd/" VERSION);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->curl_text);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, f);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (f->c->ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, f->c->ca_file);
}

static struct curl_slist *headers_of(struct fetch *f)
{
    struct curl_slist *h = NULL;
    char line[FETCH_ETAG + 64];
    if (same_origin(&f->at, &f->hub) && f->authorization[0])
        h = curl_slist_append(h, f->authorization);
    f->asked_range = f->part && f->part->have;
    if (f->asked_range) {
        snprintf(line, sizeof line, "Range: bytes=%llu-", (unsigned long long)f->part->have);
        h = curl_slist_append(h, line);
    }
    if (f->asked_range && f->part->etag[0]) {
        snprintf(line, sizeof line, "If-Range: %s", f->part->etag);
        h = curl_slist_append(h, line);
    }
    return h;
}

static CURLcode request(struct fetch *f, const char *url)
{
    struct curl_slist *headers = headers_of(f);
    set_request(f, url, headers);
    f->header_bytes = 0;
    f->body_began = false;
    f->refused[0] = f->curl_text[0] = 0;
    f->error = (err){0};
    f->error_passes = f->silent = false;
    f->heard_ns = clock_ns();
    f->status = 0;
    forget_answer(f);
    if (f->text)
        buf_clear(f->text);
    CURLcode code = curl_easy_perform(f->curl);
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->status);
    curl_off_t wait = 0;
    if (!curl_easy_getinfo(f->curl, CURLINFO_RETRY_AFTER, &wait) && wait > 0)
        f->wait_s = wait > 1000000 ? 1000000 : (long)wait;
    curl_slist_free_all(headers);
    return code;
}

// ---- one try: a request and its redirects

static bool may_pass(long status)
{
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

// For who expects the environment's proxy to be used.
static const char *proxy_hint(const struct fetch *f, CURLcode code)
{
    bool unreached = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                     code == CURLE_OPERATION_TIMEDOUT;
    bool set = getenv("https_proxy") || getenv("HTTPS_PROXY") || getenv("all_proxy") || getenv("ALL_PROXY");
    return unreached && set && !f->c->proxy ? " (the environment's proxy is not used: set hub_proxy)" : "";
}

static err_code transfer_error(struct fetch *f, CURLcode code, bool *ret_again, err *e)
{
    if (f->c->stop && f->c->stop(f->c->ud))
        return err_set(e, ERR_CANCELLED, "interrupted");
    if (f->error.code) {
        *e = f->error;
        *ret_again = f->error_passes;
        return e->code;
    }
    if (f->refused[0])
        return err_set_param(
            e, ERR_INVALID, "hub_allow_private",
            "%s has the address %s, which is not public; a hub of your own is allowed by hub_allow_private = %s",
            f->at.host, f->refused, f->at.host);
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return err_set(e, ERR_INVALID, "the certificate of %s is not trusted: %s", f->at.host,
                       *f->curl_text ? f->curl_text : curl_easy_strerror(code));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
        return err_set(e, ERR_INVALID, "%s: %s", f->at.host, curl_easy_strerror(code));
    default:
        *ret_again = true;
        if (f->silent)
            return err_set(e, ERR_IO, "%s sent nothing for %d s", f->at.host, f->c->stall_s);
        return err_set(e, ERR_IO, "%s: %s%s", f->at.host, *f->curl_text ? f->curl_text : curl_easy_strerror(code),
                       proxy_hint(f, code));
    }
}

static err_code status_error(struct fetch *f, bool *ret_again, err *e)
{
    // An address with a signature in it that ran out: the hub gives a new one.
    bool ran_out = !same_origin(&f->at, &f->hub) && (f->status == 403 || f->status == 410);
    *ret_again = may_pass(f->status) || ran_out;
    if (f->status == 429)
        return err_set(e, ERR_BUSY, "%s refuses more requests for now (429)", f->at.host);
    return err_set(e, f->status == 404 ? ERR_NOT_FOUND : ERR_IO, "%s answers %ld%s%s", f->at.host, f->status,
                   *f->code ? " " : "", f->code);
}

// Whatever is there is no beginning of the file that the server has.
static err_code range_refused(struct fetch *f, bool *ret_again, err *e)
{
    *ret_again = true;
    f->wait_s = 0;
    if (start_again(f->part, e))
        return e->code;
    f->part->etag[0] = 0;
    return err_set(e, ERR_IO, "%s has no such range of the file", f->at.host);
}

static err_code finish(struct fetch *f, bool *ret_again, err *e)
{
    struct fetch_part *p = f->part;
    if (!p)
        return ERR_OK;
    if (!f->body_began && begin_file(f, e)) {
        *ret_again = f->error_passes;
        return e->code;
    }
    if (p->size != FETCH_SIZE_UNKNOWN && p->have != p->size) {
        *ret_again = true;
        return err_set(e, ERR_IO, "%s ended the file after %llu of %llu bytes", f->at.host, (unsigned long long)p->have,
                       (unsigned long long)p->size);
    }
    p->size = p->have;
    return ERR_OK;
}

static err_code try_once(struct fetch *f, const char *url, bool *ret_again, err *e)
{
    char linked[FETCH_ETAG] = "", *here = mem_strdup(url);
    err_code rc = check_url(f, url, NULL, e);
    *ret_again = false;
    for (int redirects = 0; !rc; redirects++) {
        CURLcode code = request(f, here);
        if (f->linked_etag[0])
            strcpy(linked, f->linked_etag);
        if (code) {
            rc = transfer_error(f, code, ret_again, e);
            break;
        }
        char *next = NULL;
        curl_easy_getinfo(f->curl, CURLINFO_REDIRECT_URL, &next);
        if (f->status / 100 == 3 && next) {
            struct origin from = f->at;
            if (redirects == FETCH_REDIRECTS)
                rc = err_set(e, ERR_INVALID, "%s: more than %d redirects", from.host, FETCH_REDIRECTS);
            else if ((rc = check_url(f, next, &from, e)))
                err_wrap(e, "%s redirects", from.host);
            char *copy = mem_strdup(next);
            free(here);
            here = copy;
            continue;
        }
        if (f->status == 416 && f->part && f->part->have)
            rc = range_refused(f, ret_again, e);
        else if (f->status != 200 && f->status != 206)
            rc = status_error(f, ret_again, e);
        else
            rc = finish(f, ret_again, e);
        break;
    }
    strcpy(f->linked_etag, linked);
    free(here);
    return rc;
}

// ---- again and again

static bool wait_ms(struct fetch *f, int64_t ms)
{
    int64_t end = clock_ns() + ms * 1000000;
    while (clock_ns() < end) {
        if (f->c->stop && f->c->stop(f->c->ud))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return true;
}

// false: not worth it, or told to stop; *e says which.
static bool try_later(struct fetch *f, int tries, err *e)
{
    int64_t ms = PAUSE_MS;
    for (int i = 1; i < tries && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    if (f->wait_s > FETCH_WAIT_MAX_S) {
        char text[sizeof e->text];
        snprintf(text, sizeof text, "%.400s", e->text);
        err_set_retry(e, e->code, (int)(f->wait_s < 2000000 ? f->wait_s * 1000 : 0), "%s; it asks to wait %ld s", text,
                      f->wait_s);
        return false;
    }
    if (f->wait_s >= 0)
        ms = f->wait_s * 1000;
    ms = ms < PAUSE_MAX_MS || f->wait_s >= 0 ? ms : PAUSE_MAX_MS;
    if (f->c->say) {
        char text[640];
        snprintf(text, sizeof text, "%s; trying again%s", e->text, ms < 1000 ? "" : " in ");
        if (ms >= 1000)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%lld s", (long long)(ms + 500) / 1000);
        f->c->say(f->c->ud, text);
    }
    if (wait_ms(f, ms))
        return true;
    err_set(e, ERR_CANCELLED, "interrupted");
    return false;
}

static err_code fetch_any(struct fetch *f, const char *url, err *e)
{
    uint64_t most = f->part ? f->part->have : 0;  // what is fetched again and again is no progress
    for (int tries = 0;;) {
        bool again;
        err_code rc = try_once(f, url, &again, e);
        if (!rc || !again)
            return rc;
        if (f->part && f->part->have > most) {
            most = f->part->have;
            tries = 0;
        }
        if (++tries > f->c->retries || !try_later(f, tries, e))
            return e->code;
    }
}

err_code fetch_text(struct fetch *f, const char *url, size_t max, char **ret_text, size_t *ret_len, err *e)
{
    struct buf text;
    buf_init(&text, max);
    f->text = &text;
    f->part = NULL;
    err_code rc = fetch_any(f, url, e);
    f->text = NULL;
    if (!rc) {
        *ret_len = text.len;
        *ret_text = buf_take(&text);
    }
    buf_done(&text);
    return rc;
}

err_code fetch_file(struct fetch *f, const char *url, struct fetch_part *part, err *e)
{
    if (lseek(part->fd, (off_t)part->have, SEEK_SET) < 0)
        return err_set(e, ERR_IO, "cannot write: %s", strerror(errno));
    f->part = part;
    err_code rc = fetch_any(f, url, e);
    f->part = NULL;
    return rc;
}

// ---- opening

static void init_curl(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        abort();  // out of memory: see mem.h
}

static err_code set_token(struct fetch *f, err *e)
{
    const char *t = f->c->token;
    if (!t)
        return ERR_OK;
    size_t n = strlen(t);
    if (n == 0 || n > FETCH_TOKEN_MAX)
        return err_set(e, ERR_INVALID, "the hub's token has %zu characters, expected 1 to %d", n, FETCH_TOKEN_MAX);
    for (size_t i = 0; i < n; i++)
        if (t[i] <= ' ' || t[i] >= 127)
            return err_set(e, ERR_INVALID, "the hub's token has a character that no token has");
    if (!f->hub.tls && !f->hub_is_address && !is_listed(f, &f->hub))
        return err_set_param(e, ERR_INVALID, "hub_url",
                             "a token is set, and plain http would show it to others on its way to %s: "
                             "use https, or name the host in hub_allow_private",
                             f->hub.host);
    snprintf(f->authorization, sizeof f->authorization, "Authorization: Bearer %s", t);
    return ERR_OK;
}

err_code fetch_open(const struct fetch_config *c, struct fetch **ret_fetch, err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
    struct fetch *f = mem_new(sizeof *f);
    f->c = c;
    err_code rc = read_origin(c->hub_url, &f->hub, e);
    if (rc)
        err_wrap(e, "hub_url '%.200s'", c->hub_url);
    f->hub_is_address = literal_address(f->hub.host) || !strcmp(f->hub.host, "localhost");
    if (!rc)
        rc = set_token(f, e);
    if (rc) {
        fetch_close(f);
        return rc;
    }
    f->curl = curl_easy_init();
    if (!f->curl)
        abort();  // out of memory: see mem.h
    *ret_fetch = f;
    return ERR_OK;
}

void fetch_close(struct fetch *f)
{
    if (!f)
        return;
    curl_easy_cleanup(f->curl);
    memset(f->authorization, 0, sizeof f->authorization);
    free(f);
}

long fetch_status(const struct fetch *f)
{
    return same_origin(&f->at, &f->hub) ? f->status : 0;
}

const char *fetch_error_code(const struct fetch *f)
{
    return f->code;
}

const char *fetch_etag(struct fetch *f)
{
    const char *s = f->linked_etag[0] ? f->linked_etag : f->etag;
    s += strncmp(s, "W/", 2) ? 0 : 2;
    size_t n = strlen(s);
    bool quoted = n > 1 && s[0] == '"' && s[n - 1] == '"';
    snprintf(f->plain_etag, sizeof f->plain_etag, "%.*s", (int)(quoted ? n - 2 : n), s + quoted);
    return f->plain_etag;
}
