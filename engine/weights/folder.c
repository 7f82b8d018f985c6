// folder.c - finds the files of a model from a path. Runs on the thread that opens a model; owns nothing.

#include "engine/weights/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/weights/directory.h"
#include "engine/weights/store.h"

enum { NAMES_MAX = 4096, SHOWN_MAX = 6 }; // most entries of a folder, most names in a message

// Weights by the name of their file, in the order they are looked for, and the file that describes them.
static const struct {
    const char *stem, *config;
} kinds[] = {
    {"model", "config.json"},
    {"diffusion_pytorch_model", "config.json"},
    {"adapter_model", "adapter_config.json"},
    {"pytorch_lora_weights", NULL},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

struct listing {
    char *names[NAMES_MAX];
    int count;
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

const char *folder_join(const char *folder, const char *file, struct arena *a)
{
    size_t n = strlen(folder);
    return arena_printf(a, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", file);
}

const char *folder_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool folder_plain_name(const char *name)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            return false;
    return name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') && !strstr(name, "..") && strlen(name) < 256 &&
           ends_with(name, ".safetensors");
}

static int digits5(const char *s)
{
    int n = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        n = n * 10 + s[i] - '0';
    }
    return n;
}

// Numbers of "X-00002-of-00005<suffix>": false for other names. *ret_stem is the length of X.
static bool split_name(const char *file, const char *suffix, int *ret_stem, int *ret_no, int *ret_of)
{
    const size_t tail = strlen("-00001-of-00002");
    size_t n = strlen(file), m = strlen(suffix);
    if (n <= tail + m || !ends_with(file, suffix))
        return false;
    const char *p = file + n - m - tail;
    int no = p[0] == '-' && memcmp(p + 6, "-of-", 4) == 0 ? digits5(p + 1) : -1;
    int of = no < 0 ? -1 : digits5(p + 10);
    if (no < 1 || of < no)
        return false;
    *ret_stem = (int)(p - file);
    *ret_no = no;
    *ret_of = of;
    return true;
}

const char *folder_config(const char *folder, const char *file, struct arena *a)
{
    const char *config = kinds[0].config;
    for (int i = 1; i < KINDS; i++) {
        size_t n = strlen(kinds[i].stem);
        if (strncmp(file, kinds[i].stem, n) == 0 && (file[n] == '.' || file[n] == '-'))
            config = kinds[i].config;
    }
    return config ? folder_join(folder, config, a) : NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void listing_done(struct listing *l)
{
    for (int i = 0; l && i < l->count; i++)
        free(l->names[i]);
    free(l);
}

static err_code list(const char *folder, struct listing **ret_listing, err *e)
{
    DIR *d = opendir(folder);
    if (!d)
        return err_set(e, ERR_IO, "cannot list '%s': %s", folder, strerror(errno));
    struct listing *l = mem_new(sizeof *l);
    for (struct dirent *it; (it = readdir(d)) && l->count < NAMES_MAX;)
        if (it->d_name[0] != '.')
            l->names[l->count++] = mem_strdup(it->d_name);
    closedir(d);
    qsort(l->names, (size_t)l->count, sizeof *l->names, by_name);
    *ret_listing = l;
    return ERR_OK;
}

// "a, b and 3 more" of the names that end in suffix ("" takes all).
static const char *shown(const struct listing *l, const char *suffix, struct arena *a)
{
    const char *text = "";
    int n = 0;
    char name[64];
    for (int i = 0; i < l->count; i++)
        if ((!*suffix || ends_with(l->names[i], suffix)) && ++n <= SHOWN_MAX)
            text = arena_printf(a, "%s%s%s", text, n > 1 ? ", " : "", directory_quote(l->names[i], name, sizeof name));
    if (n > SHOWN_MAX)
        text = arena_printf(a, "%s and %d more", text, n - SHOWN_MAX);
    return n ? text : "nothing";
}

static void one_file(struct folder_plan *p, const char *file, struct arena *a)
{
    p->files = arena_alloc(a, sizeof *p->files);
    p->files[0] = file;
    p->count = 1;
}

// A GGUF file, or all shards of the split one it belongs to.
static err_code plan_gguf(const char *file, struct arena *a, struct folder_plan *p, err *e)
{
    int stem, no, of;
    const char *name = folder_base(file);
    if (!split_name(name, ".gguf", &stem, &no, &of)) {
        one_file(p, file, a);
        return ERR_OK;
    }
    if (of > STORE_SHARDS)
        return err_set(e, ERR_TOO_LARGE, "%s: split into %d files, at most %d are read", name, of, STORE_SHARDS);
    p->files = arena_alloc(a, (size_t)of * sizeof *p->files);
    for (int i = 0; i < of; i++) {
        const char *part = arena_printf(a, "%.*s-%05d-of-%05d.gguf", stem, name, i + 1, of);
        p->files[i] = folder_join(p->folder, part, a);
        if (!file_exists(p->files[i]))
            return err_set(e, ERR_NOT_FOUND, "'%s' is missing: %s is split into %d files", p->files[i], name, of);
    }
    p->count = of;
    return ERR_OK;
}

// The safetensors model of a folder, under its plain name or as one stored in half precision beside which the other is
// absent: false when there is none.
static bool plan_safetensors(struct arena *a, struct folder_plan *p)
{
    for (int i = 0; i < 2 * KINDS; i++) {
        const char *stem = kinds[i % KINDS].stem, *half = i < KINDS ? "" : ".fp16";
        const char *file = folder_join(p->folder, arena_printf(a, "%s%s.safetensors", stem, half), a);
        const char *index = folder_join(p->folder, arena_printf(a, "%s.safetensors.index%s.json", stem, half), a);
        if (file_exists(file))
            one_file(p, file, a);
        else if (file_exists(index))
            p->index = index;
        else
            continue;
        return true;
    }
    return false;
}

static bool is_pickle_name(const char *name)
{
    static const char *const ends[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

// The one GGUF of a folder; parts of a split one count as their first.
static err_code plan_listing(const struct listing *l, struct arena *a, struct folder_plan *p, err *e)
{
    const char *found = NULL, *pickle = NULL;
    int models = 0, stem, no, of;
    for (int i = 0; i < l->count; i++) {
        const char *name = l->names[i];
        if (is_pickle_name(name))
            pickle = name;
        if (!ends_with(name, ".gguf"))
            continue;
        // Later parts of a set only matter when no other GGUF was found, so that a missing first part is reported.
        if (split_name(name, ".gguf", &stem, &no, &of) && no > 1) {
            found = found ? found : name;
            continue;
        }
        found = name;
        models++;
    }
    if (models > 1)
        return err_set(e, ERR_INVALID, "'%s' holds %d GGUF models, name one of them: %s", p->folder, models,
                       shown(l, ".gguf", a));
    if (found)
        return plan_gguf(folder_join(p->folder, found, a), a, p, e);
    if (pickle && !strcmp(pickle, "model.bin"))
        return err_set(e, ERR_UNSUPPORTED, "'%s' holds 'model.bin', as CTranslate2 (faster-whisper) writes it, which is not "
                       "supported: use the model's original files with safetensors", p->folder);
    if (pickle)
        return err_set(e, ERR_UNSUPPORTED, "'%s' holds '%s': pickle formats are not supported, use safetensors or GGUF",
                       p->folder, directory_quote(pickle, (char[64]){0}, 64));
    return err_set(e, ERR_NOT_FOUND,
                   "'%s' holds no weights: expected model.safetensors, model.safetensors.index.json or "
                   "one .gguf file, found %s",
                   p->folder, shown(l, "", a));
}

static err_code plan_folder(struct arena *a, struct folder_plan *p, err *e)
{
    if (plan_safetensors(a, p))
        return ERR_OK;
    const char *pipeline = folder_join(p->folder, "model_index.json", a);
    if (file_exists(pipeline)) {
        p->config = pipeline;
        return ERR_OK;
    }
    struct listing *l = NULL;
    err_code rc = list(p->folder, &l, e);
    if (rc)
        return rc;
    rc = plan_listing(l, a, p, e);
    listing_done(l);
    return rc;
}

static err_code plan_file(const char *path, struct arena *a, struct folder_plan *p, err *e)
{
    int stem, no, of;
    const char *name = folder_base(path);
    if (ends_with(name, ".safetensors.index.json")) {
        p->index = arena_strdup(a, path);
        return ERR_OK;
    }
    if (split_name(name, ".safetensors", &stem, &no, &of)) {
        p->index = folder_join(p->folder, arena_printf(a, "%.*s.safetensors.index.json", stem, name), a);
        if (!file_exists(p->index))
            return err_set(e, ERR_NOT_FOUND, "'%s' is missing: %s is one of %d shards", p->index, name, of);
        if (!file_exists(path))
            return err_set(e, ERR_NOT_FOUND, "there is no file '%s' beside '%s'", path, folder_base(p->index));
        return ERR_OK;
    }
    return plan_gguf(arena_strdup(a, path), a, p, e);
}

err_code folder_resolve(const char *path, struct arena *a, struct folder_plan *ret_plan, err *e)
{
    struct folder_plan p = {0};
    err_code rc;
    if (file_is_dir(path)) {
        p.folder = arena_strdup(a, path);
        rc = plan_folder(a, &p, e);
    } else {
        size_t n = (size_t)(folder_base(path) - path);
        p.folder = n == 0 ? "." : arena_strndup(a, path, n > 1 ? n - 1 : n);
        rc = plan_file(path, a, &p, e);
    }
    if (!rc)
        *ret_plan = p;
    return rc;
}
