// See the header.
#include "server/hub/manifest.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"

enum { FORMAT = 1 };

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static err_code read_file(const json_t *o, struct manifest *m, err *e)
{
    struct manifest_file *f = &m->files[m->nfiles];
    const char *path = text_of(o, "path"), *sha256 = text_of(o, "sha256"), *blob = text_of(o, "blob");
    json_int_t size = json_integer_value(json_object_get(o, "size"));
    if (modelref_check_path(path, e))
        return e->code;
    if (size < 0 || !digest_is_hex(sha256, 64) || (*blob && !digest_is_hex(blob, 40)))
        return err_set(e, ERR_CORRUPT, "size or digests of '%s' are none", path);
    f->path = arena_strdup(&m->arena, path);
    f->size = (uint64_t)size;
    strcpy(f->sha256, sha256);
    strcpy(f->blob, blob);
    m->nfiles++;
    return ERR_OK;
}

static err_code read_all(const json_t *root, struct manifest *m, err *e)
{
    const json_t *files = json_object_get(root, "files");
    size_t n = json_array_size(files), i;
    json_t *file;
    if (json_integer_value(json_object_get(root, "format")) != FORMAT)
        return err_set(e, ERR_CORRUPT, "'format' is not %d", FORMAT);
    if (modelref_parse(text_of(root, "name"), &m->ref, e))
        return e->code;
    if (n == 0 || n > MANIFEST_MAX_FILES)
        return err_set(e, ERR_CORRUPT, "%zu files, expected 1 to %d", n, MANIFEST_MAX_FILES);
    m->hub = arena_strdup(&m->arena, text_of(root, "hub"));
    m->commit = arena_strdup(&m->arena, text_of(root, "commit"));
    m->type = arena_strdup(&m->arena, text_of(root, "type"));
    m->serve = arena_strdup(&m->arena, text_of(root, "serve"));
    m->pulled_unix_s = json_integer_value(json_object_get(root, "pulled"));
    m->files = arena_alloc(&m->arena, n * sizeof *m->files);
    if (*m->serve && modelref_check_path(m->serve, e))
        return e->code;
    json_array_foreach(files, i, file)
        if (read_file(file, m, e))
            return e->code;
    return ERR_OK;
}

err_code manifest_read(const char *json, size_t len, struct manifest *ret_manifest, err *e)
{
    struct manifest m = {0};
    json_error_t at;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &at);
    err_code rc = root ? read_all(root, &m, e) : err_set(e, ERR_CORRUPT, "no JSON: %s", at.text);
    json_decref(root);
    if (rc) {
        e->code = ERR_CORRUPT;
        manifest_done(&m);
        return ERR_CORRUPT;
    }
    *ret_manifest = m;
    return ERR_OK;
}

void manifest_write(const struct manifest *m, struct buf *out)
{
    char name[MODELREF_TEXT];
    json_t *files = json_array();
    for (int i = 0; i < m->nfiles; i++)
        json_array_append_new(files, json_pack("{ss sI ss ss}", "path", m->files[i].path, "size",
                                               (json_int_t)m->files[i].size, "sha256", m->files[i].sha256, "blob",
                                               m->files[i].blob));
    json_t *root = json_pack("{si ss ss ss ss ss sI sI so}", "format", FORMAT, "name", modelref_text(&m->ref, name),
                             "hub", m->hub, "commit", m->commit, "type", m->type, "serve", m->serve, "pulled",
                             (json_int_t)m->pulled_unix_s, "size", (json_int_t)manifest_bytes(m), "files", files);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text)
        abort();  // out of memory: see mem.h; all texts in it were checked to be UTF-8
    buf_add_str(out, text);
    buf_add_char(out, '\n');
    free(text);
    json_decref(root);
}

void manifest_done(struct manifest *m)
{
    arena_done(&m->arena);
    *m = (struct manifest){0};
}

uint64_t manifest_bytes(const struct manifest *m)
{
    uint64_t n = 0;
    for (int i = 0; i < m->nfiles; i++)
        n += m->files[i].size;
    return n;
}
