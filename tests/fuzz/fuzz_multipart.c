// Any bytes as a form: the first byte says how the body is cut; what the sink is told must not depend on it, and calls
// must come in order. The boundary is "X", so that the fuzzer finds it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/multipart.h"
#include "server/upload.h"

struct told {
    struct buf text;
    int in_part;
};

static err_code on_part(void *ud, const struct multipart_part *p, err *e)
{
    struct told *t = ud;
    (void)e;
    if (t->in_part++)
        abort();
    buf_printf(&t->text, "[%s|%s|%s]", p->name, p->filename ? p->filename : "-", p->content_type);
    return ERR_OK;
}

static err_code on_data(void *ud, const char *data, size_t n, err *e)
{
    struct told *t = ud;
    (void)e;
    if (t->in_part != 1 || !n)
        abort();
    buf_add(&t->text, data, n);
    return ERR_OK;
}

static err_code on_end(void *ud, err *e)
{
    struct told *t = ud;
    (void)e;
    if (--t->in_part)
        abort();
    buf_add_char(&t->text, ';');
    return ERR_OK;
}

static const struct multipart_sink sink = {on_part, on_data, on_end};

static err_code parse(const char *body, size_t n, size_t step, struct told *t)
{
    err e = {0};
    *t = (struct told){0};
    buf_init(&t->text, 1 << 24);
    struct multipart *m = multipart_new("X", &sink, t);
    err_code rc = ERR_OK;
    for (size_t at = 0; at < n && !rc; at += step) {
        size_t k = n - at < step ? n - at : step;
        char *piece = malloc(k);  // of its own, so that reading past it is seen
        memcpy(piece, body + at, k);
        rc = multipart_feed(m, piece, k, &e);
        free(piece);
    }
    if (!rc)
        rc = multipart_finish(m, &e);
    if (rc && !*e.text)
        abort();
    multipart_free(m);
    return rc;
}

static void keep(const char *body, size_t n)
{
    struct arena a = {0};
    struct upload_limits limits = {4096, NULL};
    struct upload *u;
    const struct upload_file *f;
    const char *values[4];
    err e = {0};
    char out[64];
    if (upload_new(&a, "multipart/form-data; boundary=X", &limits, &u, &e))
        abort();
    if (!upload_add(u, body, n, &e) && !upload_finish(u, &e)) {
        (void)upload_list(u, "a", values, 4);
        if (upload_find(u, "file", &f))
            (void)upload_read(u, f, 0, out, sizeof out);
    }
    arena_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *body = (const char *)data + 1;
    struct told whole, cut;
    char boundary[MULTIPART_BOUNDARY_MAX + 1], type[256] = "multipart/form-data; ";
    err e = {0};
    err_code a = parse(body, size - 1, size, &whole), b = parse(body, size - 1, 1 + data[0] % 40u, &cut);
    if (a != b || (!a && (whole.text.len != cut.text.len || memcmp(whole.text.data ? whole.text.data : "",
                                                                  cut.text.data ? cut.text.data : "", whole.text.len))))
        abort();
    buf_done(&whole.text);
    buf_done(&cut.text);
    keep(body, size - 1);
    memcpy(type + 21, body, size - 1 < 200 ? size - 1 : 200);
    if (!multipart_boundary(type, boundary, &e) && (!*boundary || strlen(boundary) > MULTIPART_BOUNDARY_MAX))
        abort();
    return 0;
}
