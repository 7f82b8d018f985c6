// page.c - serves the files of web/, which the assembler reads in (Makefile: page.o depends on them).
//
// Browsers ask again every time and get a 304 while the file is the one they have. The policy lets the page load and ask
// nothing but this server; text from models is never parsed as HTML.
#include "server/page.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "server/request.h"
#include "server/server.h"

#define FILE(symbol, name, type)                                                                                     \
    __asm__(".pushsection .rodata\npage_" #symbol ":\n.incbin \"server/web/" name "\"\npage_" #symbol "_end:\n.byte 0\n" \
            ".popsection\n");                                                                                        \
    extern const char page_##symbol[], page_##symbol##_end[];
#include "server/page.def"
#undef FILE

static const struct {
    const char *name, *type, *start, *end;
} files[] = {
#define FILE(symbol, name, type) {name, type, page_##symbol, page_##symbol##_end},
#include "server/page.def"
#undef FILE
};

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
                             "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void send_file(struct request *r, const char *name)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(files[i].name, name) != 0 || server_settings(r->server)->no_page)
            continue;
        size_t len = (size_t)(files[i].end - files[i].start);
        char etag[24];
        snprintf(etag, sizeof etag, "\"%016llx\"", (unsigned long long)map_hash(files[i].start, len));
        const char *have = request_header(r, "If-None-Match");
        bool same = have && strstr(have, etag);
        request_set_header(r, "etag", etag);
        request_set_header(r, "cache-control", "no-cache");
        request_set_header(r, "content-security-policy", policy);
        request_set_header(r, "x-content-type-options", "nosniff");
        request_set_header(r, "referrer-policy", "no-referrer");
        reply_text(r, same ? 304 : 200, files[i].type, files[i].start, same ? 0 : len);
        return;
    }
    err e = {0};
    err_set(&e, ERR_NOT_FOUND, "Unknown request URL: %s %.200s. Please check the URL for typos.", r->method, r->path);
    reply_problem(r, 404, "invalid_request_error", "unknown_url", &e);
}

void page_index(struct request *r)
{
    send_file(r, "index.html");
}

void page_file(struct request *r)
{
    send_file(r, r->tail);
}
