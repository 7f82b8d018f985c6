// See the header.
#include "server/hub/choice.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "base/buf.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcasecmp(s + n - m, end) == 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int by_path(const void *path, const void *file)
{
    return strcmp(path, ((const struct hub_file *)file)->path);
}

static int find(const struct hub_listing *l, const char *path)
{
    const struct hub_file *f = bsearch(path, l->files, (size_t)l->nfiles, sizeof *l->files, by_path);
    return f ? (int)(f - l->files) : -1;
}

static err_code add(struct choice *c, int file, err *e)
{
    for (int i = 0; i < c->nfiles; i++)
        if (c->files[i] == file)
            return ERR_OK;
    if (c->nfiles == CHOICE_MAX)
        return err_set(e, ERR_TOO_LARGE, "the model has more than %d files", CHOICE_MAX);
    c->files[c->nfiles++] = file;
    return ERR_OK;
}

// ---- names of GGUF files

// Five digits; 0: others.
static int part_number(const char *s)
{
    int n = 0;
    for (int i = 0; i < 5; i++)
        if (!isdigit((unsigned char)s[i]))
            return 0;
        else
            n = 10 * n + (s[i] - '0');
    return n;
}

// The length of NAME in NAME.gguf or NAME-00001-of-00003.gguf.
static size_t stem_of(const char *path, int *ret_no, int *ret_of)
{
    size_t n = strlen(path) - strlen(".gguf");
    *ret_no = *ret_of = 1;
    if (n <= 15 || path[n - 15] != '-' || memcmp(path + n - 9, "-of-", 4) != 0)
        return n;
    int no = part_number(path + n - 14), of = part_number(path + n - 5);
    if (no < 1 || of < no)  // part of nothing
        return n;
    *ret_no = no;
    *ret_of = of;
    return n - 15;
}

// Whether s[0..n) is the name of a quantisation: Q4_K_M, IQ2_XXS, TQ1_0, F16, BF16, MXFP4_MOE ...
static bool is_quant(const char *s, size_t n)
{
    static const char *const plain[] = {"F16", "F32", "BF16", "FP16", "FP32", "MXFP4", "NVFP4"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        size_t len = strlen(plain[i]);
        if (n >= len && !strncasecmp(s, plain[i], len) && (n == len || s[len] == '_'))
            return true;
    }
    size_t k = n > 1 && strchr("iItT", s[0]) && strchr("qQ", s[1]) ? 1 : 0;
    return n > k + 1 && strchr("qQ", s[k]) && isdigit((unsigned char)s[k + 1]) && (n == k + 2 || s[k + 2] == '_');
}

const char *choice_label(const char *path, char out[CHOICE_LABEL])
{
    const char *name = base_of(path);
    int no, of;
    size_t n = stem_of(name, &no, &of), at = 0, len = 0;
    out[0] = 0;
    for (size_t i = 0; i < n;) {  // the last part that says one, from its first place that does
        size_t end = i;
        while (end < n && !strchr("-.", name[end]))
            end++;
        for (size_t k = i; k < end; k++)
            if ((k == i || name[k - 1] == '_') && is_quant(name + k, end - k)) {
                at = k;
                len = end - k;
                break;
            }
        i = end + 1;
    }
    if (len && at >= 3 && !strncasecmp(name + at - 3, "UD-", 3) && (at == 3 || strchr("-._", name[at - 4]))) {
        at -= 3;
        len += 3;
    }
    if (len >= CHOICE_LABEL)
        return out;
    for (size_t i = 0; i < len; i++)
        out[i] = (char)toupper((unsigned char)name[at + i]);
    out[len] = 0;
    return out;
}

static bool is_model(const char *path)
{
    char lower[MODELREF_PATH];
    int no, of;
    if (!ends_with(path, ".gguf"))
        return false;
    stem_of(path, &no, &of);
    size_t n = 0;
    for (const char *s = base_of(path); *s; s++)
        lower[n++] = (char)tolower((unsigned char)*s);
    lower[n] = 0;
    return no == 1 && !strstr(lower, "mmproj") && !strstr(lower, "imatrix");
}

// What comes behind the reference's folder; NULL: the file is not in it.
static const char *below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    if (n == 0)
        return path;
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

// Whether the name, or a folder on the way to it, says this quantisation.
static bool says(const char *path, const char *quant)
{
    int no, of;
    size_t n = stem_of(path, &no, &of), m = strlen(quant);
    const char *before = is_quant(quant, m) ? "-._/" : "-./";  // not the 0 of Q4_0
    for (size_t i = 0; i + m <= n; i++)
        if ((i == 0 || strchr(before, path[i - 1])) && !strncasecmp(path + i, quant, m) &&
            (i + m == n || strchr("-./", path[i + m])))
            return true;
    return false;
}

// ---- of GGUF files

struct candidates {
    int files[CHOICE_MAX], n;
};

static void narrow(const struct hub_listing *l, const struct candidates *all, const char *quant, bool exact,
                   struct candidates *out, const char *folder)
{
    char label[CHOICE_LABEL];
    out->n = 0;
    for (int i = 0; i < all->n; i++) {
        const char *path = l->files[all->files[i]].path;
        if (exact ? !strcasecmp(choice_label(path, label), quant) : says(below(path, folder), quant))
            out->files[out->n++] = all->files[i];
    }
}

// Of a quantisation: those whose name says just it, else those that say it among other things (UD-Q4_K_XL).
static void of_quant(const struct hub_listing *l, const struct candidates *all, const char *quant,
                     struct candidates *out, const char *folder)
{
    narrow(l, all, quant, true, out, folder);
    if (out->n == 0)
        narrow(l, all, quant, false, out, folder);
}

// "A, B and 3 more": quantisations, or names where these say none or the same.
static void names_of(const struct hub_listing *l, const struct candidates *c, bool labels, struct buf *b)
{
    char label[CHOICE_LABEL];
    int shown = 0, left = 0;
    for (int i = 0; i < c->n; i++) {
        const char *path = l->files[c->files[i]].path;
        const char *text = labels && *choice_label(path, label) ? label : path;
        if (b->len + strlen(text) < 260) {
            buf_printf(b, "%s%s", shown++ ? ", " : "", text);
        } else {
            left++;
        }
    }
    if (left)
        buf_printf(b, " and %d more", left);
}

static err_code refuse(const struct hub_listing *l, const struct modelref *r, const struct candidates *all,
                       const struct candidates *fit, err *e)
{
    struct buf b;
    buf_init(&b, 600);
    names_of(l, fit->n ? fit : all, !fit->n, &b);
    err_code rc;
    if (fit->n)
        rc = err_set(e, ERR_INVALID, "%s has several files of this kind, name one as %s/FILE: %s", r->repo, r->repo,
                     b.data);
    else if (*r->quant)
        rc = err_set(e, ERR_NOT_FOUND, "%s has no GGUF of %s; it has %s", r->repo, r->quant, b.data);
    else
        rc = err_set(e, ERR_INVALID, "%s has several GGUF models, name one as %s:QUANT: %s", r->repo, r->repo, b.data);
    buf_done(&b);
    return rc;
}

static err_code add_parts(const struct hub_listing *l, int first, struct choice *c, err *e)
{
    const char *path = l->files[first].path;
    char part[MODELREF_PATH + 32];
    int no, of;
    size_t stem = stem_of(path, &no, &of);
    err_code rc = of == 1 ? add(c, first, e) : ERR_OK;
    for (int i = 1; of > 1 && i <= of && !rc; i++) {
        snprintf(part, sizeof part, "%.*s-%05d-of-%05d%s", (int)stem, path, i, of, path + strlen(path) - 5);
        int file = find(l, part);
        rc = file < 0 ? err_set(e, ERR_NOT_FOUND, "the hub has not '%.200s', a part of a split model", part)
                      : add(c, file, e);
    }
    return rc;
}

static err_code take(const struct hub_listing *l, int file, struct choice *c, err *e)
{
    c->gguf = true;
    choice_label(l->files[file].path, c->quant);
    snprintf(c->serve, sizeof c->serve, "%s", l->files[file].path);
    return add_parts(l, file, c, e);
}

err_code choice_gguf(const struct hub_listing *l, const struct modelref *r, struct choice *ret, err *e)
{
    static const char *const usual[] = {"Q4_K_M", "Q4_0"};
    struct candidates all = {.n = 0}, fit = {.n = 0};
    *ret = (struct choice){0};
    if (ends_with(r->subdir, ".gguf")) {
        int file = find(l, r->subdir);
        return file < 0 ? err_set(e, ERR_NOT_FOUND, "%s has no file '%s'", r->repo, r->subdir) : take(l, file, ret, e);
    }
    for (int i = 0; i < l->nfiles && all.n < CHOICE_MAX; i++)
        if (is_model(l->files[i].path) && below(l->files[i].path, r->subdir))
            all.files[all.n++] = i;
    if (all.n == 0)
        return !*r->quant ? ERR_OK
                          : err_set(e, ERR_NOT_FOUND, "%s has no GGUF files%s%s", r->repo, *r->subdir ? " in " : "",
                                    r->subdir);
    if (*r->quant)
        of_quant(l, &all, r->quant, &fit, r->subdir);
    else if (all.n == 1)
        fit = all;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !*r->quant && fit.n == 0; i++)
        of_quant(l, &all, usual[i], &fit, r->subdir);
    return fit.n == 1 ? take(l, fit.files[0], ret, e) : refuse(l, r, &all, &fit, e);
}

// ---- of a folder

struct folder_choice {
    const struct hub_listing *l;
    struct choice *c;
    choice_read *read;
    void *ud;
    int weights;
};

static int find_in(const struct hub_listing *l, const char *folder, const char *name, const char *more)
{
    char path[MODELREF_PATH + 64];
    snprintf(path, sizeof path, "%s%s%s%s", folder, *folder ? "/" : "", name, more);
    return find(l, path);
}

static err_code read_json(struct folder_choice *f, int file, json_t **ret_json, err *e)
{
    char *text = NULL;
    size_t len;
    json_error_t at;
    err_code rc = f->read(f->ud, file, &text, &len, e);
    if (rc)
        return rc;
    json_t *j = json_loadb(text, len, 0, &at);
    free(text);
    if (!j)
        return err_set(e, ERR_CORRUPT, "'%s' is no JSON: %s", f->l->files[file].path, at.text);
    *ret_json = j;
    return ERR_OK;
}

static err_code add_shards(struct folder_choice *f, const char *folder, int index, err *e)
{
    json_t *j, *value;
    const char *tensor;
    if (add(f->c, index, e) || read_json(f, index, &j, e))
        return e->code;
    err_code rc = ERR_OK;
    json_object_foreach(json_object_get(j, "weight_map"), tensor, value) {
        const char *name = json_string_value(value);
        err why;
        if (!name || modelref_check_path(name, &why) || strchr(name, '/') || !ends_with(name, ".safetensors")) {
            rc = err_set(e, ERR_CORRUPT, "'%s' names a shard that is no plain .safetensors file",
                         f->l->files[index].path);
            break;
        }
        int file = find_in(f->l, folder, name, "");
        rc = file < 0
                 ? err_set(e, ERR_NOT_FOUND, "the hub has not '%s', which '%s' names", name, f->l->files[index].path)
                 : add(f->c, file, e);
        if (rc)
            break;
        f->weights++;
    }
    json_decref(j);
    return rc;
}

// In the order in which the loader looks (engine/weights/folder.c).
static err_code add_weights(struct folder_choice *f, const char *folder, err *e)
{
    static const char *const stems[] = {"model", "diffusion_pytorch_model", "adapter_model", "pytorch_lora_weights"};
    for (int i = 0; i < 8; i++) {
        char name[64], index[64];
        const char *half = i < 4 ? "" : ".fp16";
        snprintf(name, sizeof name, "%s%s.safetensors", stems[i % 4], half);
        snprintf(index, sizeof index, "%s.safetensors.index%s.json", stems[i % 4], half);
        int file = find_in(f->l, folder, name, ""), list = find_in(f->l, folder, index, "");
        if (file >= 0) {
            f->weights++;
            return add(f->c, file, e);
        }
        if (list >= 0)
            return add_shards(f, folder, list, e);
    }
    return ERR_OK;
}

static bool is_text(const char *name)
{
    static const char *const ends[] = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".spm"};
    static const char *const starts[] = {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY"};
    static const char *const no[] = {"trainer_state.json", "requirements.txt"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (!strcmp(name, no[i]))
            return false;
    if (name[0] == '.' || strstr(name, ".safetensors.index"))
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (!strncmp(name, starts[i], strlen(starts[i])))
            return true;
    return false;
}

static err_code add_folder(struct folder_choice *f, const char *folder, err *e)
{
    err_code rc = add_weights(f, folder, e);
    for (int i = 0; i < f->l->nfiles && !rc; i++) {
        const char *name = below(f->l->files[i].path, folder);
        if (name && !strchr(name, '/') && is_text(name))
            rc = add(f->c, i, e);
    }
    return rc;
}

// A folder that model_index.json or modules.json names; it is no harm when it has nothing.
static err_code add_part(struct folder_choice *f, const char *root, const char *name, err *e)
{
    char folder[2 * MODELREF_PATH];
    err ignored;
    if (!name || !*name || modelref_check_path(name, &ignored))
        return ERR_OK;
    snprintf(folder, sizeof folder, "%s%s%s", root, *root ? "/" : "", name);
    return strlen(folder) < MODELREF_PATH ? add_folder(f, folder, e) : ERR_OK;
}

static err_code add_pipeline(struct folder_choice *f, const char *root, int file, err *e)
{
    json_t *j, *value;
    const char *name;
    if (read_json(f, file, &j, e))
        return e->code;
    err_code rc = ERR_OK;
    json_object_foreach(j, name, value) {
        bool unread = !strcmp(name, "safety_checker") || !strcmp(name, "feature_extractor");  // by any family here
        if (!rc && json_is_array(value) && !unread)
            rc = add_part(f, root, name, e);
    }
    json_decref(j);
    return rc;
}

static err_code add_modules(struct folder_choice *f, const char *root, int file, err *e)
{
    json_t *j, *value;
    size_t i;
    if (read_json(f, file, &j, e))
        return e->code;
    err_code rc = ERR_OK;
    json_array_foreach(j, i, value)
        if (!rc)
            rc = add_part(f, root, json_string_value(json_object_get(value, "path")), e);
    json_decref(j);
    return rc;
}

// The first folder of a repository that holds weights, as a hint; "" when there is none.
static void folder_hint(const struct hub_listing *l, const struct modelref *r, char *out, size_t size)
{
    out[0] = 0;
    for (int i = 0; i < l->nfiles && !*r->subdir && !*out; i++) {
        const char *path = l->files[i].path, *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
        if (slash && dot && (!strcmp(dot, ".gguf") || !strcmp(dot, ".safetensors")))
            snprintf(out, size, "; name the folder, such as %s/%.*s", r->repo, (int)(slash - path), path);
    }
}

static err_code no_weights(const struct hub_listing *l, const struct modelref *r, err *e)
{
    struct buf b;
    int left = 0;
    char hint[400];
    folder_hint(l, r, hint, sizeof hint);
    buf_init(&b, 600);
    for (int i = 0; i < l->nfiles; i++) {
        const char *name = below(l->files[i].path, r->subdir);
        if (!name || name[0] == '.')
            continue;
        if (b.len + strlen(name) < 200)
            buf_printf(&b, "%s%s", b.len ? ", " : "", name);
        else
            left++;
    }
    if (left)
        buf_printf(&b, " and %d more", left);
    err_code rc = err_set(e, ERR_UNSUPPORTED,
                          "%s%s%s has neither GGUF nor safetensors, and other weights are not supported; it has %s%s",
                          r->repo, *r->subdir ? "/" : "", r->subdir, b.len ? b.data : "nothing", hint);
    buf_done(&b);
    return rc;
}

err_code choice_folder(const struct hub_listing *l, const struct modelref *r, choice_read *read, void *ud,
                       struct choice *ret, err *e)
{
    struct folder_choice f = {l, ret, read, ud, 0};
    *ret = (struct choice){0};
    snprintf(ret->serve, sizeof ret->serve, "%s", r->subdir);
    int pipeline = find_in(l, r->subdir, "model_index.json", ""), modules = find_in(l, r->subdir, "modules.json", "");
    err_code rc = add_folder(&f, r->subdir, e);
    if (!rc && pipeline >= 0)
        rc = add_pipeline(&f, r->subdir, pipeline, e);
    if (!rc && modules >= 0)
        rc = add_modules(&f, r->subdir, modules, e);
    if (!rc)
        rc = add_part(&f, r->subdir, "snac", e);
    return !rc && !f.weights ? no_weights(l, r, e) : rc;
}
