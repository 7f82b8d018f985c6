// What a hub says: a listing, and an index or list of parts that it names; what the store finds in a manifest;
// references.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/hub/choice.h"
#include "server/hub/hub.h"
#include "server/hub/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rest {
    const char *text;
    size_t len;
};

static err_code read_rest(void *ud, int file, char **ret_text, size_t *ret_len, err *e)
{
    const struct rest *r = ud;
    (void)file;
    (void)e;
    *ret_text = mem_strndup(r->text, r->len);
    *ret_len = r->len;
    return ERR_OK;
}

// Nothing that leads out of a folder may come through.
static void check_path(const char *path)
{
    err e;
    if (path[0] == '/' || strstr(path, "..") == path || strstr(path, "/../") || strchr(path, '\\') ||
        modelref_check_path(path, &e))
        abort();
}

static void check_listing(const char *text, size_t n, const struct rest *rest)
{
    struct hub_listing l;
    struct modelref r = {.repo = "a/b"};
    struct choice *c = mem_new(sizeof *c);
    err e = {0};
    if (hub_parse(text, n, &l, &e))
        goto out;
    for (int i = 0; i < l.nfiles; i++)
        check_path(l.files[i].path);
    if (!choice_gguf(&l, &r, c, &e) && !c->gguf)
        (void)!choice_folder(&l, &r, read_rest, (void *)rest, c, &e);
    for (int i = 0; i < c->nfiles; i++)
        if (c->files[i] < 0 || c->files[i] >= l.nfiles)
            abort();
    hub_listing_done(&l);
out:
    free(c);
}

static void check_reference(const char *text)
{
    struct modelref r, same;
    char folder[MODELREF_FOLDER], again[MODELREF_FOLDER], out[MODELREF_TEXT];
    err e = {0};
    if (modelref_parse(text, &r, &e) || modelref_folder(&r, folder, &e))
        return;
    if (strchr(folder, '/') || folder[0] == '.' || modelref_parse(modelref_text(&r, out), &same, &e) ||
        modelref_folder(&same, again, &e) || strcmp(folder, again) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_new(size + 1);
    struct manifest m;
    err e = {0};
    memcpy(text, data, size);
    const char *end = memchr(text, 0, size);  // two texts: a listing, and whatever file it makes us read
    size_t n = end ? (size_t)(end - text) : size;
    struct rest rest = {text + n + (end != NULL), size - n - (end != NULL)};
    check_listing(text, n, &rest);
    if (!manifest_read(text, n, &m, &e)) {
        for (int i = 0; i < m.nfiles; i++)
            check_path(m.files[i].path);
        manifest_done(&m);
    }
    check_reference(text);
    free(text);
    return 0;
}
