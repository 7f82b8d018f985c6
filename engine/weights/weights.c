// weights.c - opens a model: finds its files, maps and reads them, seals the directory of tensors, then reads the JSON
// files beside them. Runs on the thread that opens; the result is immutable and read by any thread. struct weights owns
// the mappings, the directory, the metadata and the JSON.

#include "engine/weights/weights.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/weights/folder.h"
#include "engine/weights/format.h"
#include "engine/weights/jsonfile.h"
#include "engine/weights/mlx.h"
#include "engine/weights/store.h"

static const char *const side_files[] = {
    "added_tokens.json",
    "chat_template.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "modules.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
};

// ---- shards

// A split GGUF says in each file which part it is.
static err_code check_split(const struct meta *m, const char *name, int shard, int of, err *e)
{
    int64_t count = 1, no = 0;
    bool said = meta_value_int(meta_find(m, "split.count"), &count);
    meta_value_int(meta_find(m, "split.no"), &no);
    if (said && count > 1 && of == 1)
        return err_set(e, ERR_INVALID,
                       "%s: part %lld of %lld of a split GGUF, expected a name like "
                       "X-00001-of-%05lld.gguf",
                       name, (long long)no + 1, (long long)count, (long long)count);
    if (of > 1 && (count != of || no != shard))
        return err_set(e, ERR_CORRUPT, "%s: says it is part %lld of %lld, expected part %d of %d", name,
                       (long long)no + 1, (long long)count, shard + 1, of);
    return ERR_OK;
}

// Reads shard number w->shard_count, already in w->shards, out of `of`.
static err_code read_shard(struct weights *w, const struct format *format, int of, err *e)
{
    int i = w->shard_count;
    struct format_file f = {w->names[i], w->shards[i].map.data, w->shards[i].map.size, i};
    struct meta part = {0};
    w->shard_count++;
    err_code rc = format->read(&f, &w->directory, &part, e);
    if (!rc && !format->has_config)
        rc = check_split(&part, f.name, i, of, e);
    if (!rc && i == 0) {
        w->meta = part;
        part = (struct meta){0};
    }
    meta_done(&part);
    return rc;
}

static err_code take_shard(struct weights *w, const char *name, struct store_shard shard, int of, err *e)
{
    const struct format *format;
    int i = w->shard_count;
    char shown[256];
    w->names[i] = arena_strdup(&w->arena, directory_quote(name, shown, sizeof shown));
    w->shards[i] = shard;
    struct format_file f = {w->names[i], shard.map.data, shard.map.size, i};
    err_code rc = format_of(&f, &format, e);
    enum weights_container container = rc || !format->has_config ? WEIGHTS_GGUF : WEIGHTS_HF;
    if (!rc && i && container != w->container)
        rc = err_set(e, ERR_CORRUPT, "%s is %s, unlike %s", f.name, format->name, w->names[0]);
    w->container = container;
    if (rc) {
        w->shard_count++;
        return rc;
    }
    return read_shard(w, format, of, e);
}

static err_code open_shards(struct weights *w, const struct folder_plan *plan, err *e)
{
    for (int i = 0; i < plan->count; i++) {
        struct store_shard s = {.mapped = true};
        err_code rc = file_map_open(plan->files[i], &s.map, e);
        if (!rc)
            rc = take_shard(w, folder_base(plan->files[i]), s, plan->count, e);
        if (rc)
            return rc;
        if (s.map.size)  // the head has been read; the tensors are read in another way
            madvise((void *)s.map.data, s.map.size, MADV_DONTNEED);
    }
    return ERR_OK;
}

static err_code check_split_total(const struct weights *w, err *e)
{
    int64_t total;
    if (w->container != WEIGHTS_GGUF || !meta_value_int(meta_find(&w->meta, "split.tensors.count"), &total))
        return ERR_OK;
    if (total < 0 || (uint64_t)total != w->directory.count)
        return err_set(e, ERR_CORRUPT, "%s: its parts hold %zu tensors, key 'split.tensors.count' says %lld",
                       w->names[0], w->directory.count, (long long)total);
    return ERR_OK;
}

// ---- the index of a sharded safetensors model

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The distinct files of the index, sorted, as paths.
static err_code shards_of(struct weights *w, json_t *map, struct folder_plan *plan, err *e)
{
    const char *tensor, **names = mem_try((json_object_size(map) + 1) * sizeof *names);
    const char *index = folder_base(plan->index);
    json_t *value;
    size_t n = 0;
    char shown[96];
    err_code rc = ERR_OK;
    if (!names)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu names", index, json_object_size(map));
    json_object_foreach(map, tensor, value) {
        const char *file = json_string_value(value);
        if (!file || !folder_plain_name(file)) {
            rc = err_set(e, ERR_CORRUPT,
                         "%s: a shard is called '%s', expected a plain file name that ends in .safetensors", index,
                         directory_quote(file ? file : "", shown, sizeof shown));
            goto out;
        }
        names[n++] = file;
    }
    qsort(names, n, sizeof *names, by_text);
    plan->files = arena_alloc(&w->arena, STORE_SHARDS * sizeof *plan->files);
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(names[i], names[i - 1]) == 0)
            continue;
        if (plan->count == STORE_SHARDS) {
            rc = err_set(e, ERR_TOO_LARGE, "%s: more than %d shards", index, STORE_SHARDS);
            goto out;
        }
        plan->files[plan->count++] = folder_join(plan->folder, names[i], &w->arena);
    }
    if (plan->count == 0)
        rc = err_set(e, ERR_CORRUPT, "%s: 'weight_map' is empty", index);
out:
    free(names);
    return rc;
}

static err_code check_index(const struct weights *w, const char *index, json_t *map, err *e)
{
    const char *tensor;
    json_t *value;
    char shown[96];
    json_object_foreach(map, tensor, value) {
        const struct tensor *t = directory_find(&w->directory, tensor);
        const char *file = json_string_value(value);
        directory_quote(tensor, shown, sizeof shown);
        if (!t)
            return err_set_param(e, ERR_CORRUPT, shown, "%s: tensor '%s' is not in %s", index, shown, file);
        if (strcmp(w->names[t->shard], file))
            return err_set_param(e, ERR_CORRUPT, shown, "%s: tensor '%s' is said to be in %s, found in %s", index,
                                 shown, file, w->names[t->shard]);
    }
    return ERR_OK;
}

// Opens plan->files, or the files its index names.
static err_code open_plan(struct weights *w, struct folder_plan *plan, err *e)
{
    json_t *index = NULL, *map = NULL;
    err_code rc = ERR_OK;
    if (plan->index) {
        rc = jsonfile_read(plan->index, JSONFILE_STRICT, &index, e);
        map = rc ? NULL : json_object_get(index, "weight_map");
        if (!rc && !json_is_object(map))
            rc = err_set(e, ERR_CORRUPT, "%s: no object 'weight_map'", folder_base(plan->index));
        if (!rc)
            rc = shards_of(w, map, plan, e);
    }
    if (!rc)
        rc = open_shards(w, plan, e);
    if (!rc)
        rc = directory_seal(&w->directory, w->names, e);
    if (!rc && map)
        rc = check_index(w, folder_base(plan->index), map, e);
    if (!rc)
        rc = check_split_total(w, e);
    json_decref(index);
    return rc;
}

// ---- JSON beside the weights

static err_code load_config(struct weights *w, err *e)
{
    const char *path = folder_config(w->folder, w->names[0], &w->arena);
    if (!path) {
        w->meta.config = json_object();
        return ERR_OK;
    }
    err_code rc = jsonfile_read(path, JSONFILE_LENIENT, &w->meta.config, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "'%s' is missing: %s is read together with it", path, w->names[0]);
    return rc;
}

static err_code load_side(struct weights *w, const char *file, err *e)
{
    const char *path = folder_join(w->folder, file, &w->arena);
    if (!file_exists(path))
        return ERR_OK;
    if (w->side_count == STORE_SIDES)
        return err_set(e, ERR_TOO_LARGE, "'%s': more than %d JSON files beside the weights", path, STORE_SIDES);
    json_t *j;
    err_code rc = jsonfile_read(path, JSONFILE_ANY, &j, e);
    if (!rc)
        w->sides[w->side_count++] = (struct store_side){arena_strdup(&w->arena, file), j};
    return rc;
}

// The folders of a sentence-transformers model, each with a config.json; their names come from modules.json.
static err_code load_modules(struct weights *w, err *e)
{
    json_t *modules = weights_json(w, "modules.json"), *module;
    size_t i;
    err_code rc = ERR_OK;
    json_array_foreach(modules, i, module) {
        const char *path = json_string_value(json_object_get(module, "path"));
        if (!path || !*path)
            continue;
        char shown[96];
        if (*path == '.' || strchr(path, '/') || strchr(path, '\\') || strlen(path) > 255)
            return err_set(e, ERR_CORRUPT, "modules.json: a module's path is '%s', expected a plain folder name",
                           directory_quote(path, shown, sizeof shown));
        rc = load_side(w, arena_printf(&w->arena, "%s/config.json", path), e);
        if (rc)
            return rc;
    }
    return rc;
}

static err_code load_json(struct weights *w, err *e)
{
    err_code rc = load_config(w, e);
    for (size_t i = 0; i < sizeof side_files / sizeof *side_files && !rc; i++)
        rc = load_side(w, side_files[i], e);
    return rc ? rc : load_modules(w, e);
}

// Metadata of a GGUF that was written out as safetensors. Its file stays mapped as a shard without tensors.
static err_code load_keys(struct weights *w, err *e)
{
    struct directory none = {0};
    int i = w->shard_count;
    const char *path = folder_join(w->folder, STORE_KEYS, &w->arena);
    if (i == STORE_SHARDS)
        return err_set(e, ERR_TOO_LARGE, "%s: more than %d shards", w->names[0], STORE_SHARDS - 1);
    w->names[i] = STORE_KEYS;
    w->shards[i] = (struct store_shard){.mapped = true};
    err_code rc = file_map_open(path, &w->shards[i].map, e);
    if (rc)
        return rc;
    w->shard_count++;
    struct format_file f = {STORE_KEYS, w->shards[i].map.data, w->shards[i].map.size, i};
    const struct format *format;
    rc = format_of(&f, &format, e);
    if (!rc && format->has_config)
        rc = err_set(e, ERR_CORRUPT, "%s is %s, expected GGUF", f.name, format->name);
    meta_done(&w->meta);
    if (!rc)
        rc = format->read(&f, &none, &w->meta, e);
    if (!rc && none.count)
        rc = err_set(e, ERR_CORRUPT, "%s: has %zu tensors, expected none", f.name, none.count);
    directory_done(&none);
    w->container = WEIGHTS_GGUF;
    return rc;
}

// ---- the model

static const char *text_of(const struct weights *w, const char *key)
{
    const char *text;
    size_t n;
    bool found = meta_string(w, key, &text, &n);
    if (!found)
        found = meta_array_string(w, key, 0, &text, &n);
    return found ? text : NULL;
}

// GGUF texts may hold anything: a name is short and plain.
static err_code set_arch(struct weights *w, err *e)
{
    const char *text;
    size_t n;
    w->arch = "";
    if (w->container == WEIGHTS_HF) {
        static const char *const keys[] = {"architectures", "model_type", "_class_name"};
        for (int i = 0; i < 3 && !*w->arch; i++)
            w->arch = text_of(w, keys[i]) ? text_of(w, keys[i]) : "";
        return ERR_OK;
    }
    if (!meta_string(w, "general.architecture", &text, &n))
        return ERR_OK;
    for (size_t i = 0; i < n && n <= 64; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7F)
            n = SIZE_MAX;
    if (n > 64)
        return err_set_param(e, ERR_CORRUPT, "general.architecture",
                             "%s: key 'general.architecture' is no name of at most "
                             "64 letters",
                             w->names[0]);
    w->arch = arena_strndup(&w->arena, text, n);
    return ERR_OK;
}

// A pipeline has no tensors itself: its family opens the folders of its parts.
static err_code open_pipeline(struct weights *w, const char *config, err *e)
{
    w->container = WEIGHTS_HF;
    err_code rc = directory_seal(&w->directory, w->names, e);
    return rc ? rc : jsonfile_read(config, JSONFILE_LENIENT, &w->meta.config, e);
}

err_code weights_open(const char *path, struct weights **ret_weights, err *e)
{
    struct weights *w = mem_new(sizeof *w);
    struct folder_plan plan = {0};
    w->path = arena_strdup(&w->arena, path);
    err_code rc = folder_resolve(path, &w->arena, &plan, e);
    if (rc)
        goto out;
    w->folder = plan.folder;
    rc = plan.config ? open_pipeline(w, plan.config, e) : open_plan(w, &plan, e);
    if (!rc && w->meta.gguf_beside)
        rc = load_keys(w, e);
    else if (!rc && w->container == WEIGHTS_HF && !plan.config)
        rc = load_json(w, e);
    if (!rc && w->container == WEIGHTS_HF)
        rc = mlx_join(w, e);
    if (!rc)
        rc = set_arch(w, e);
    if (rc)
        goto out;
    *ret_weights = w;
    return ERR_OK;
out:
    weights_close(w);
    return rc;
}

err_code weights_open_memory(const char *name, const void *data, size_t size, struct weights **ret_weights, err *e)
{
    struct weights *w = mem_new(sizeof *w);
    struct store_shard s = {.map = {data, size, -1}};
    w->path = arena_strdup(&w->arena, name);
    w->folder = ".";
    err_code rc = take_shard(w, name, s, 1, e);
    if (!rc)
        rc = directory_seal(&w->directory, w->names, e);
    if (!rc)
        rc = check_split_total(w, e);
    if (!rc && w->container == WEIGHTS_HF)
        w->meta.config = json_object();
    if (!rc)
        rc = set_arch(w, e);
    if (rc) {
        weights_close(w);
        return rc;
    }
    *ret_weights = w;
    return ERR_OK;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->side_count; i++)
        json_decref(w->sides[i].json);
    meta_done(&w->meta);
    directory_done(&w->directory);
    for (int i = 0; i < w->shard_count; i++)
        if (w->shards[i].mapped)
            file_map_close(&w->shards[i].map);
    arena_done(&w->arena);
    free(w);
}

enum weights_container weights_container(const struct weights *w)
{
    return w->container;
}

const char *weights_path(const struct weights *w)
{
    return w->path;
}

const char *weights_folder(const struct weights *w)
{
    return w->folder;
}

const char *weights_arch(const struct weights *w)
{
    return w->arch;
}

const struct tensor *weights_find_raw(const struct weights *w, const char *name)
{
    return directory_find(&w->directory, name);
}

const struct tensor *weights_find(const struct weights *w, const char *name)
{
    const struct tensor *t = directory_find(&w->directory, name);
    return t && t->type < QUANT_COUNT ? t : NULL;
}

err_code weights_need(const struct weights *w, const char *name, const struct tensor **ret_tensor, err *e)
{
    const struct tensor *t = directory_find(&w->directory, name);
    if (!t)
        return err_set_param(e, ERR_NOT_FOUND, name, "'%s' has no tensor '%s'", w->path, name);
    if (t->type >= QUANT_COUNT)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is stored as %s, which is not supported",
                             w->names[t->shard], name, t->dtype);
    if (t->parts || t->packed)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is quantised as %s %s, expected plain rows",
                             w->names[t->shard], name, t->parts ? "MLX" : "packed", quant_get(t->type)->name);
    *ret_tensor = t;
    return ERR_OK;
}

const struct tensor *weights_at(const struct weights *w, size_t i)
{
    return i < w->directory.usable_count ? w->directory.usable[i] : NULL;
}

size_t weights_count(const struct weights *w)
{
    return w->directory.usable_count;
}

static size_t bytes_of(const struct tensor *t)
{
    return t->bytes + (t->parts ? (t->parts->biases ? 2u : 1u) * mlx_numbers_bytes(t) : 0);
}

size_t weights_bytes(const struct weights *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->directory.usable_count; i++)
        sum += bytes_of(w->directory.usable[i]);
    return sum;
}

bool weights_keys(const struct weights *w, const uint8_t **ret_keys, size_t *ret_len)
{
    if (!w->meta.keys)
        return false;
    *ret_keys = w->meta.keys;
    *ret_len = w->meta.keys_len;
    return true;
}

void weights_set_survey(struct weights *w)
{
    w->survey = true;
}

err_code weights_read(const struct weights *w, const struct tensor *t, size_t begin, void *dst, size_t n, err *e)
{
    const struct store_shard *s = &w->shards[t->shard];
    size_t done = 0, at = (size_t)((const uint8_t *)t->data - s->map.data) + begin;
    if (!s->mapped) {
        memcpy(dst, (const uint8_t *)t->data + begin, n);
        return ERR_OK;
    }
    while (done < n) {
        ssize_t got = pread(s->map.fd, (uint8_t *)dst + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_param(e, ERR_IO, t->name, "%s: tensor '%s' cannot be read: %s", w->names[t->shard], t->name,
                                 strerror(errno));
        if (got == 0)
            return err_set_param(e, ERR_CORRUPT, t->name,
                                 "%s: the file ends at byte %zu inside tensor '%s', it had %zu bytes: it was changed while it was read", w->names[t->shard], at + done, t->name, s->map.size);
        done += (size_t)got;
    }
    return ERR_OK;
}

err_code weights_finite(const struct weights *w, const struct tensor *t, size_t begin, const void *bytes, size_t n, err *e)
{
    const struct quant *q = quant_get(t->type);
    size_t block = (size_t)q->block, block_bytes = (size_t)q->block_bytes, cols = 1;
    struct quant_flaw flaw;
    if (quant_check(t->type, bytes, n / block_bytes * block, &flaw))
        return ERR_OK;
    for (int d = t->ndim > 1; d < t->ndim; d++)
        cols *= (size_t)t->shape[d];
    size_t at = begin / block_bytes * block + flaw.at;
    return err_set_param(e, ERR_CORRUPT, t->name,
                         "%s: tensor '%s' of %s has a %s of %s in row %zu, column %zu, expected finite numbers", w->path,
                         t->name, t->dtype, flaw.what, flaw.value, at / cols, at % cols);
}

static void drop_pages(const void *p, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)p + page - 1) & ~(page - 1), end = ((uintptr_t)p + bytes) & ~(page - 1);
    if (p && end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

// Only whole pages of the tensor: its neighbours on the edge pages may be in use.
void weights_release(const struct weights *w, const struct tensor *t)
{
    if (!w->shards[t->shard].mapped)
        return;
    drop_pages(t->data, t->bytes);
    if (t->parts) {
        drop_pages(t->parts->scales, mlx_numbers_bytes(t));
        drop_pages(t->parts->biases, mlx_numbers_bytes(t));
    }
}

struct json_t *weights_config(const struct weights *w)
{
    return w->meta.config;
}

struct json_t *weights_json(const struct weights *w, const char *file)
{
    for (int i = 0; i < w->side_count; i++)
        if (strcmp(w->sides[i].file, file) == 0)
            return w->sides[i].json;
    return NULL;
}

void weights_drop_json(struct weights *w, const char *file)
{
    for (int i = 0; i < w->side_count; i++)
        if (strcmp(w->sides[i].file, file) == 0) {
            json_decref(w->sides[i].json);
            w->sides[i] = w->sides[--w->side_count];
            return;
        }
}
