// See the header.
#include "server/hub/hub.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/hub/fetch.h"

// ---- URLs

// '/' stays unless it must not.
static void add_escaped(struct buf *b, const char *s, bool slash)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("-._~", c);
        if (plain || (c == '/' && slash))
            buf_add_char(b, (char)c);
        else
            buf_printf(b, "%%%02X", c);
    }
}

static void begin_url(struct buf *b, const char *hub_url)
{
    size_t n = strlen(hub_url);
    while (n && hub_url[n - 1] == '/')
        n--;
    buf_init(b, 16384);
    buf_add(b, hub_url, n);
}

char *hub_file_url(const char *hub_url, const struct modelref *r, const char *commit, const char *path)
{
    struct buf b;
    begin_url(&b, hub_url);
    buf_printf(&b, "/%s/resolve/", r->repo);
    add_escaped(&b, commit, false);
    buf_add_char(&b, '/');
    add_escaped(&b, path, true);
    return buf_take(&b);
}

static char *listing_url(const char *hub_url, const struct modelref *r)
{
    struct buf b;
    begin_url(&b, hub_url);
    buf_printf(&b, "/api/models/%s/revision/", r->repo);
    add_escaped(&b, *r->revision ? r->revision : "main", false);
    buf_add_str(&b, "?blobs=true");
    return buf_take(&b);
}

// ---- the listing

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static err_code read_file(const json_t *o, struct hub_listing *l, err *e)
{
    struct hub_file *f = &l->files[l->nfiles];
    const json_t *name = json_object_get(o, "rfilename"), *size = json_object_get(o, "size"),
                 *lfs = json_object_get(o, "lfs");
    const char *path = json_string_value(name), *blob = text_of(o, "blobId"), *sha256 = text_of(lfs, "sha256");
    if (!path || strlen(path) != json_string_length(name))
        return err_set(e, ERR_CORRUPT, "it has a file without a name, or with a NUL in it");
    if (modelref_check_path(path, e))
        return e->code;
    if (*sha256 && !digest_is_hex(sha256, 64))
        return err_set(e, ERR_CORRUPT, "the SHA-256 of '%.100s' is none", path);
    if (*blob && !digest_is_hex(blob, 40))
        return err_set(e, ERR_CORRUPT, "the blobId of '%.100s' is none", path);
    if (json_is_object(lfs))
        size = json_object_get(lfs, "size") ? json_object_get(lfs, "size") : size;
    if ((size && !json_is_null(size) && !json_is_integer(size)) || json_integer_value(size) < 0)
        return err_set(e, ERR_CORRUPT, "the size of '%.100s' is none", path);
    f->path = arena_strdup(&l->arena, path);
    f->size = json_is_integer(size) ? (uint64_t)json_integer_value(size) : HUB_SIZE_UNKNOWN;
    strcpy(f->sha256, sha256);
    if (!json_is_object(lfs))
        strcpy(f->blob, blob);  // of a file in LFS it is the pointer's
    l->nfiles++;
    return ERR_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

static err_code read_all(const json_t *root, struct hub_listing *l, err *e)
{
    const json_t *files = json_object_get(root, "siblings"), *gated = json_object_get(root, "gated");
    const char *commit = text_of(root, "sha");
    size_t n = json_array_size(files), i;
    json_t *file;
    if (!json_is_array(files))
        return err_set(e, ERR_CORRUPT, "it has no list 'siblings'");
    if (n > HUB_FILES_MAX)
        return err_set(e, ERR_TOO_LARGE, "it has %zu files, at most %d are taken", n, HUB_FILES_MAX);
    if (!digest_is_hex(commit, 40) && !digest_is_hex(commit, 64))
        return err_set(e, ERR_CORRUPT, "its 'sha' is no commit");
    l->commit = arena_strdup(&l->arena, commit);
    l->gated = gated && !json_is_false(gated) && !json_is_null(gated);
    l->files = arena_alloc(&l->arena, (n + 1) * sizeof *l->files);
    json_array_foreach(files, i, file)
        if (read_file(file, l, e))
            return e->code;
    qsort(l->files, (size_t)l->nfiles, sizeof *l->files, by_path);
    for (int k = 1; k < l->nfiles; k++)
        if (!strcmp(l->files[k].path, l->files[k - 1].path))
            return err_set(e, ERR_CORRUPT, "it has '%.100s' twice", l->files[k].path);
    return ERR_OK;
}

err_code hub_parse(const char *json, size_t len, struct hub_listing *ret_listing, err *e)
{
    struct hub_listing l = {0};
    json_error_t at;
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, &at);
    err_code rc = json_is_object(root)
                      ? read_all(root, &l, e)
                      : err_set(e, ERR_CORRUPT, "it is no JSON object%s%s", root ? "" : ": ", root ? "" : at.text);
    json_decref(root);
    if (rc) {
        err_wrap(e, "the hub's listing is refused");
        hub_listing_done(&l);
        return rc;
    }
    *ret_listing = l;
    return ERR_OK;
}

void hub_listing_done(struct hub_listing *l)
{
    arena_done(&l->arena);
    *l = (struct hub_listing){0};
}

// ---- refusals

err_code hub_explain(const struct fetch *f, const char *hub_url, const struct modelref *r, bool has_token, err *e)
{
    long status = fetch_status(f);
    const char *code = fetch_error_code(f);
    bool gated = !strcmp(code, "GatedRepo");
    size_t owner = strcspn(r->repo, "/");
    const char *hint = memchr(r->repo, '.', owner) ? " (a host is not part of a name: OWNER/NAME alone)" : "";
    if (!e->code || (status != 401 && status != 403 && status != 404))
        return e->code;
    if (!strcmp(code, "RevisionNotFound"))
        return err_set(e, ERR_NOT_FOUND, "%s has no revision '%s'", r->repo, *r->revision ? r->revision : "main");
    if (!strcmp(code, "EntryNotFound"))
        return err_set(e, ERR_NOT_FOUND, "%s has not a file that its own listing names", r->repo);
    if (gated && has_token)
        return err_set(e, ERR_INVALID, "%s is gated, and the token that is set has no access: ask for it at %s/%s",
                       r->repo, hub_url, r->repo);
    if (gated || status == 403)
        return err_set(e, ERR_INVALID,
                       "%s is %s: ask for access at %s/%s, then give a token with HF_TOKEN or hub_token_file", r->repo,
                       gated ? "gated" : "not open to everybody", hub_url, r->repo);
    if (status == 401 && has_token)
        return err_set(e, ERR_INVALID, "%s knows no model %s that the token may see, or not the token", hub_url,
                       r->repo);
    if (status == 401)
        return err_set(e, ERR_NOT_FOUND,
                       "%s has no model %s%s, or only for those who are let in: for a private or gated one give a "
                       "token with HF_TOKEN or hub_token_file",
                       hub_url, r->repo, hint);
    return err_set(e, ERR_NOT_FOUND, "%s has no model %s%s", hub_url, r->repo, hint);
}

err_code hub_list(struct fetch *f, const char *hub_url, const struct modelref *r, struct hub_listing *ret_listing,
                  err *e)
{
    char *url = listing_url(hub_url, r), *text = NULL;
    size_t len;
    err_code rc = fetch_text(f, url, HUB_LISTING_MAX, &text, &len, e);
    if (!rc)
        rc = hub_parse(text, len, ret_listing, e);
    free(text);
    free(url);
    return rc;
}
