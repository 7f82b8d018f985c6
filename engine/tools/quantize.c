// quantize.c - `oxinferd quantize`: writes a model whose linears are blocks of integers in the kernels' own layout.
// Runs on the calling thread; a batch of rows is worked on by helper threads that are gone with it. Memory is bounded: a
// tensor is read, quantised and written in batches.
//
// The model's family is opened for a survey, which tells what each tensor is used as. Everything is written into a folder of
// another name beside the destination, which gets its name when all of it is on disk.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/blocks/packed.h"
#include "engine/model.h"
#include "engine/tools.h"
#include "engine/weights/folder.h"
#include "engine/weights/jsonfile.h"
#include "engine/weights/own.h"
#include "engine/weights/shard.h"
#include "engine/weights/store.h"
#include "engine/weights/weights.h"
#include "kernels/mat.h"
#include "kernels/quant/encode.h"

enum { BATCH_BYTES = 8 << 20, MAX_THREADS = 64, FOLDER_DEPTH = 3, FOLDER_ENTRIES = 10000 };

enum how { HOW_PACKED, HOW_ROWS, HOW_PLAIN };

struct entry {
    const struct tensor *t;
    enum how how;
    enum quant_type type;  // of HOW_PACKED and HOW_ROWS
    bool encode;           // into type; else the bytes are the source's
    struct shard_tensor out;
    char note[160];        // of the metadata; "": none
};

struct list {
    struct entry *entries;
    size_t n;
};

struct job {
    const struct tools_quantize *ask;
    struct model *model;
    enum quant_type type;
    struct arena arena;
    const char *part;      // the folder while it is written
    struct list lists[2];  // linears and the rest; tables that are only looked up
    size_t bytes, done;    // of all entries
    int shown;             // per cent, last
    err *e;
};

static err_code stopped(const struct job *j)
{
    if (j->ask->stop && *j->ask->stop)
        return err_set(j->e, ERR_CANCELLED, "stopped; nothing was written to '%s'", j->ask->dst);
    return ERR_OK;
}

static void progress(struct job *j, size_t bytes)
{
    j->done += bytes;
    int now = j->bytes ? (int)((double)j->done * 100 / (double)j->bytes) : 100;
    if (j->ask->progress && now / 5 != j->shown / 5) {
        fprintf(j->ask->progress, "quantize: %d %% of %.*f MB\n", now, j->bytes < 10000000, (double)j->bytes * 1e-6);
        fflush(j->ask->progress);
    }
    j->shown = now;
}

// ---- what becomes of each tensor

static int bits_of(enum packed_use use)
{
    return 1 << use;
}

static int uses_of(const struct packed *p, const struct tensor *t)
{
    int uses = 0;
    for (size_t i = 0; i < p->nused; i++)
        uses |= p->used[i] == t ? bits_of(p->uses[i]) : 0;
    return uses;
}

// A few rows that steer everything after them (gates, decays, routers) cost little and matter much: they stay as they are.
static bool is_gate(int rows, int cols)
{
    return rows < cols / 12;
}

// Rows and columns of a tensor as a matrix; false: it is none whose rows are blocks of 32.
static bool matrix_shape(const struct tensor *t, int *ret_rows, int *ret_cols)
{
    for (int i = 2; i < t->ndim; i++)
        if (t->shape[i] != 1)
            return false;
    if (t->ndim < 2 || t->shape[0] < 1 || t->shape[1] < 32 || t->shape[0] > INT_MAX || t->shape[1] > INT_MAX || t->shape[1] % 32)
        return false;
    *ret_rows = (int)t->shape[0];
    *ret_cols = (int)t->shape[1];
    return true;
}

static void note_shape(struct entry *n, const char *how, const int64_t *shape, int ndim)
{
    int at = snprintf(n->note, sizeof n->note, "%s %s", how, quant_get(n->type)->name);
    for (int i = 0; i < ndim && at < (int)sizeof n->note; i++)
        at += snprintf(n->note + at, sizeof n->note - (size_t)at, " %lld", (long long)shape[i]);
}

static void as_bytes(struct entry *n, size_t bytes)
{
    n->out.dtype = "U8";
    n->out.ndim = 1;
    n->out.shape[0] = (int64_t)bytes;
    n->out.bytes = bytes;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + OWN_PAGE - 1) & ~(size_t)(OWN_PAGE - 1);
}

static err_code plan_linear(const struct job *j, struct entry *n, int rows, int cols)
{
    struct mat m;
    // Four bits of a row for every token (the head, or a table that is both) would cost more than those of all layers.
    n->type = rows == j->model->vocab ? QUANT_Q8_0 : j->type;
    n->encode = true;
    err_code code = mat_plan(&m, n->type, rows, cols, MAT_INT8, j->e);
    if (code)
        return code;
    n->how = j->ask->rows ? HOW_ROWS : HOW_PACKED;
    note_shape(n, j->ask->rows ? "rows" : "packed", (int64_t[]){rows, cols}, 2);
    size_t bytes = whole_pages(m.bytes);
    if (j->ask->rows && !quant_bytes(n->type, (size_t)rows, (size_t)cols, &bytes))
        return err_set(j->e, ERR_TOO_LARGE, "tensor '%s' is too large", n->t->name);
    as_bytes(n, bytes);
    return ERR_OK;
}

// A tensor that stays what it is: floats under their own dtype, blocks as bytes.
static err_code plan_kept(const struct job *j, struct entry *n)
{
    const struct tensor *t = n->t;
    size_t elements = 1, bytes = t->bytes, cols = t->ndim ? (size_t)t->shape[t->ndim - 1] : 1;
    n->type = t->type;
    n->how = HOW_PLAIN;
    if (quant_get(t->type)->block == 1) {
        n->out.dtype = quant_get(t->type)->name;
        n->out.ndim = t->ndim;
        n->out.bytes = bytes;
        memcpy(n->out.shape, t->shape, sizeof t->shape);
        return ERR_OK;
    }
    for (int i = 0; i < t->ndim; i++)
        elements *= (size_t)t->shape[i];
    if (t->parts) {
        n->how = HOW_ROWS;
        if (!elements || !quant_bytes(t->type, elements / cols, cols, &bytes))
            return err_set_param(j->e, ERR_TOO_LARGE, t->name, "tensor '%s' has no whole blocks of %s", t->name, t->dtype);
    }
    note_shape(n, t->packed ? "packed" : "rows", t->shape, t->ndim);
    as_bytes(n, bytes);
    return ERR_OK;
}

static err_code add(struct job *j, const struct tensor *t, int uses)
{
    int rows, cols;
    struct entry n = {.t = t, .out = {.name = t->name}};
    bool linear = (uses & bits_of(PACKED_AS_MATRIX)) && !(uses & bits_of(PACKED_AS_PLAIN)) && matrix_shape(t, &rows, &cols) &&
                  !is_gate(rows, cols);
    err_code code = linear ? plan_linear(j, &n, rows, cols) : plan_kept(j, &n);
    if (code)
        return code;
    struct list *l = &j->lists[uses == bits_of(PACKED_AS_TABLE)];
    l->entries[l->n++] = n;
    j->bytes += n.out.bytes;
    return ERR_OK;
}

// Whole pages first, so that each packed tensor begins at one; then what has the larger elements.
static int rank_of(const struct entry *n)
{
    return n->out.bytes % OWN_PAGE == 0 && !strcmp(n->out.dtype, "U8") && !strncmp(n->note, "packed", 6) ? 0
           : !strcmp(n->out.dtype, "F32")                                                                ? 1
           : !strcmp(n->out.dtype, "U8")                                                                 ? 3
                                                                                                         : 2;
}

static void order(struct list *l)
{
    struct entry *sorted = mem_new((l->n + 1) * sizeof *sorted);
    size_t at = 0;
    for (int rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < l->n; i++)
            if (rank_of(&l->entries[i]) == rank)
                sorted[at++] = l->entries[i];
    free(l->entries);
    l->entries = sorted;
}

static err_code plan(struct job *j)
{
    const struct weights *w = j->model->weights;
    const struct packed *p = j->model->packed;
    size_t n = weights_count(w);
    bool *taken = mem_new((n + 1) * sizeof *taken);
    err_code code = ERR_OK;
    for (int i = 0; i < 2; i++)
        j->lists[i].entries = mem_new((n + 1) * sizeof *j->lists[i].entries);
    // In the order of use, which is that of a forward pass; then what is not used at all.
    for (size_t u = 0; u <= p->nused && !code; u++) {
        for (size_t i = 0; i < n && !code; i++) {
            const struct tensor *t = weights_at(w, i);
            if (taken[i] || (u < p->nused && p->used[u] != t))
                continue;
            taken[i] = true;
            code = add(j, t, uses_of(p, t));
        }
    }
    free(taken);
    for (int i = 0; i < 2; i++)
        order(&j->lists[i]);
    return code;
}

// ---- rows into blocks

struct batch {
    const struct job *job;
    const struct mat *from;
    const struct entry *entry;
    int g0, g1;          // groups of 8 rows
    size_t group_bytes;  // of the output
    uint8_t *out;
    atomic_int next, bad;  // a row with a number that has no place, + 1
};

static bool encode_row(enum quant_type type, const float *row, uint8_t *out, int cols)
{
    return type == QUANT_Q8_0 ? quant_encode_q8_0(row, out, (size_t)cols) : quant_encode_q4_1(row, out, (size_t)cols);
}

// Rows of one group, as blocks in the file's order: what HOW_ROWS writes.
static void encode_group(struct batch *b, int g, uint8_t *blocks, size_t row_bytes, float *row)
{
    int cols = b->from->cols, rows = b->from->rows;
    for (int r = g * MAT_GROUP; r < rows && r < (g + 1) * MAT_GROUP; r++, blocks += row_bytes) {
        if (b->entry->encode) {
            mat_row(b->from, r, row);
            if (!encode_row(b->entry->type, row, blocks, cols))
                atomic_store(&b->bad, r + 1);
        } else {
            quant_gather(b->entry->type, b->from->parts, cols, r, 0, cols, blocks);
        }
    }
}

static void *work(void *arg)
{
    struct batch *b = arg;
    int cols = b->from->cols;
    size_t row_bytes = (size_t)(cols / quant_get(b->entry->type)->block) * (size_t)quant_get(b->entry->type)->block_bytes;
    float *row = mem_new((size_t)cols * sizeof *row);
    uint8_t *blocks = mem_new(row_bytes * MAT_GROUP);
    for (int g; (g = atomic_fetch_add(&b->next, 1)) < b->g1;) {
        uint8_t *to = b->out + (size_t)(g - b->g0) * b->group_bytes;
        encode_group(b, g, b->entry->how == HOW_PACKED ? blocks : to, row_bytes, row);
        if (b->entry->how != HOW_PACKED)
            continue;
        struct mat m;
        int left = b->from->rows - g * MAT_GROUP;
        if (!mat_plan(&m, b->entry->type, left < MAT_GROUP ? left : MAT_GROUP, cols, MAT_INT8, NULL))
            mat_pack(&m, to, blocks, 0, 1);
    }
    free(row);
    free(blocks);
    return NULL;
}

static void run_batch(struct batch *b, int threads)
{
    pthread_t helper[MAX_THREADS];
    int started = 0;
    atomic_store(&b->next, b->g0);
    while (started < threads - 1 && started < MAX_THREADS && started < b->g1 - b->g0 - 1) {
        if (pthread_create(&helper[started], NULL, work, b))
            break;
        started++;
    }
    work(b);
    for (int i = 0; i < started; i++)
        pthread_join(helper[i], NULL);
}

// The tensor as rows to be read.
static err_code open_rows(const struct tensor *t, struct mat *m, err *e)
{
    size_t elements = 1;
    for (int i = 0; i < t->ndim; i++)
        elements *= (size_t)t->shape[i];
    // A 1x1 convolution's last dimensions are 1; of others the last are the columns.
    int rows, cols = (int)t->shape[t->ndim - 1];
    if (!matrix_shape(t, &rows, &cols))
        rows = (int)(elements / (size_t)cols);
    err_code code = t->parts ? mat_plan_parts(m, t->type, t->parts, rows, cols, MAT_F32, e)
                             : mat_plan(m, t->type, rows, cols, MAT_F32, e);
    if (code)
        return err_wrap(e, "tensor '%s'", t->name);
    m->layout = t->packed ? MAT_PACKED : MAT_BORROWED;
    m->data = t->data;
    return ERR_OK;
}

static err_code write_batches(struct job *j, struct shard *s, struct batch *b, int threads)
{
    int groups = mat_groups(b->from), step = (int)(BATCH_BYTES / b->group_bytes) + 1;
    size_t left = b->entry->out.bytes;
    err_code code = ERR_OK;
    b->out = mem_try((size_t)step * b->group_bytes);
    if (!b->out)
        return err_set(j->e, ERR_MEMORY, "no memory for %d rows of tensor '%s'", step * MAT_GROUP, b->entry->t->name);
    for (int g = 0; g < groups && !code; g += step) {
        b->g0 = g;
        b->g1 = g + step < groups ? g + step : groups;
        run_batch(b, threads);
        size_t n = (size_t)(b->g1 - b->g0) * b->group_bytes;
        n = n < left ? n : left;  // the last rows may be no whole group
        left -= n;
        if (atomic_load(&b->bad))
            code = err_set_param(j->e, ERR_CORRUPT, b->entry->t->name,
                                 "tensor '%s' has a number in row %d that is not finite or too large, expected at most 65504",
                                 b->entry->t->name, atomic_load(&b->bad) - 1);
        if (!code)
            code = stopped(j);
        if (!code)
            code = shard_write(s, b->out, n, j->e);
        progress(j, n);
    }
    static const uint8_t zeros[OWN_PAGE];
    if (!code && left)
        code = shard_write(s, zeros, left, j->e);
    progress(j, left);
    free(b->out);
    return code;
}

static err_code write_rows(struct job *j, struct shard *s, const struct entry *n)
{
    struct mat from, to;
    struct batch b = {.job = j, .from = &from, .entry = n};
    struct cpu_info c;
    cpu_probe(&c);
    err_code code = open_rows(n->t, &from, j->e);
    if (!code)
        code = mat_plan(&to, n->type, from.rows, from.cols, MAT_INT8, j->e);
    if (code)
        return code;
    const struct quant *q = quant_get(n->type);
    b.group_bytes = n->how == HOW_PACKED ? to.bytes / (size_t)mat_groups(&to)
                                         : MAT_GROUP * (size_t)(from.cols / q->block) * (size_t)q->block_bytes;
    return write_batches(j, s, &b, j->ask->threads > 0 ? j->ask->threads : c.usable);
}

static err_code write_plain(struct job *j, struct shard *s, const struct entry *n)
{
    err_code code = ERR_OK;
    for (size_t at = 0, k; at < n->out.bytes && !code; at += k) {
        k = n->out.bytes - at < BATCH_BYTES ? n->out.bytes - at : BATCH_BYTES;
        code = stopped(j);
        if (!code)
            code = shard_write(s, (const uint8_t *)n->t->data + at, k, j->e);
        progress(j, k);
    }
    return code;
}

// Says what came of it: matrices whose rows are no whole blocks, gates, norms and tables stay as they were.
static void summary(const struct job *j)
{
    size_t tensors = 0, packed = 0, bytes = 0;
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < j->lists[i].n; k++, tensors++) {
            const struct entry *n = &j->lists[i].entries[k];
            packed += n->encode;
            bytes += n->encode ? n->out.bytes : 0;
        }
    }
    if (j->ask->progress)
        fprintf(j->ask->progress, "quantize: %zu of %zu tensors, %.1f of %.1f MB, are %s now; the others stay as they were\n", packed,
                tensors, (double)bytes * 1e-6, (double)j->bytes * 1e-6, j->ask->type);
}

// ---- the folder

static json_t *metadata_of(const struct job *j, const struct list *l)
{
    char key[32], version[16];
    snprintf(version, sizeof version, "%d", MAT_PACK_LAYOUT);
    json_t *m = json_pack("{s:s, s:s, s:s}", "format", "pt", OWN_LAYOUT, version, OWN_PRECISION, j->ask->type);
    if (weights_container(j->model->weights) == WEIGHTS_GGUF)
        json_object_set_new(m, OWN_METADATA, json_string("gguf"));
    for (size_t i = 0; i < l->n; i++) {
        if (!l->entries[i].note[0])
            continue;
        char *name = mem_new(strlen(l->entries[i].t->name) + sizeof key);
        sprintf(name, OWN_TENSOR "%s", l->entries[i].t->name);
        json_object_set_new(m, name, json_string(l->entries[i].note));
        free(name);
    }
    return m;
}

static err_code write_list(struct job *j, const struct list *l, const char *file)
{
    struct shard s;
    struct shard_tensor *tensors = mem_new((l->n + 1) * sizeof *tensors);
    for (size_t i = 0; i < l->n; i++)
        tensors[i] = l->entries[i].out;
    json_t *metadata = metadata_of(j, l);
    err_code code = shard_open(&s, folder_join(j->part, file, &j->arena), metadata, tensors, l->n, j->e);
    for (size_t i = 0; i < l->n && !code; i++) {
        const struct entry *n = &l->entries[i];
        code = n->how == HOW_PLAIN ? write_plain(j, &s, n) : write_rows(j, &s, n);
        weights_release(j->model->weights, n->t);
    }
    if (!code)
        code = shard_close(&s, j->e);
    shard_abandon(&s);
    json_decref(metadata);
    free(tensors);
    return code;
}

static err_code write_json(const struct job *j, const char *file, json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2));
    err_code code = text ? shard_write_file(folder_join(j->part, file, (struct arena *)&j->arena), text, strlen(text), j->e)
                         : err_set(j->e, ERR_MEMORY, "no memory for '%s'", file);
    free(text);
    return code;
}

static err_code write_shards(struct job *j)
{
    static const char *const names[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    if (!j->lists[1].n)
        return write_list(j, &j->lists[0], "model.safetensors");
    json_t *map = json_object();
    err_code code = ERR_OK;
    for (int k = 0; k < 2 && !code; k++) {
        for (size_t i = 0; i < j->lists[k].n; i++)
            json_object_set_new(map, j->lists[k].entries[i].t->name, json_string(names[k]));
        code = write_list(j, &j->lists[k], names[k]);
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)j->bytes, "weight_map", map);
    if (!code)
        code = write_json(j, "model.safetensors.index.json", index);
    json_decref(index);
    return code;
}

static err_code copy_file(const struct job *j, const char *from, const char *to)
{
    struct file_map map;
    err_code code = file_map_open(from, &map, j->e);
    if (code)
        return code;
    code = shard_write_file(to, map.data, map.size, j->e);
    file_map_close(&map);
    return code;
}

static bool is_side_file(const char *name)
{
    static const char *const ends[] = {".json", ".txt", ".model", ".jinja", ".tiktoken", ".md"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n > m && !strcmp(name + n - m, ends[i]))
            return !strstr(name, ".safetensors.index.");
    }
    return false;
}

// Files of a folder: those that go with a model, or all of a module's.
static err_code copy_folder(struct job *j, const char *from, const char *to, bool all, int depth)
{
    DIR *d = opendir(from);
    if (!d)
        return err_set(j->e, ERR_IO, "cannot list '%s': %s", from, strerror(errno));
    err_code code = ERR_OK;
    int count = 0;
    for (struct dirent *it; !code && (it = readdir(d)) && count < FOLDER_ENTRIES; count++) {
        const char *source = folder_join(from, it->d_name, &j->arena), *target = folder_join(to, it->d_name, &j->arena);
        struct stat st;
        if (it->d_name[0] == '.' || stat(source, &st) || (!all && !strcmp(it->d_name, "config.json")))
            continue;
        if (S_ISREG(st.st_mode) && (all || (is_side_file(it->d_name) && st.st_size <= JSONFILE_SIDE)))
            code = copy_file(j, source, target);
        else if (S_ISDIR(st.st_mode) && all && depth < FOLDER_DEPTH)
            code = mkdir(target, 0755) ? err_set(j->e, ERR_IO, "cannot make '%s': %s", target, strerror(errno))
                                       : copy_folder(j, source, target, all, depth + 1);
    }
    closedir(d);
    return code;
}

static err_code copy_module(struct job *j, const char *name)
{
    const char *from = folder_join(weights_folder(j->model->weights), name, &j->arena), *to = folder_join(j->part, name, &j->arena);
    if (!file_is_dir(from) || file_exists(to))
        return ERR_OK;
    if (mkdir(to, 0755))
        return err_set(j->e, ERR_IO, "cannot make '%s': %s", to, strerror(errno));
    return copy_folder(j, from, to, true, 0);
}

// config.json no longer says how MLX had quantised it.
static err_code write_config(struct job *j)
{
    json_t *config = json_copy(weights_config(j->model->weights));
    static const char *const keys[] = {"quantization", "quantization_config"};
    for (size_t i = 0; i < 2; i++)
        json_object_del(config, keys[i]);
    err_code code = write_json(j, "config.json", config);
    json_decref(config);
    return code;
}

static err_code write_keys(struct job *j, const uint8_t *keys, size_t len)
{
    uint8_t *copy = mem_try(len);
    if (!copy)
        return err_set(j->e, ERR_MEMORY, "no memory for %zu bytes of metadata", len);
    memcpy(copy, keys, len);
    memset(copy + 8, 0, 8);  // tensors
    err_code code = shard_write_file(folder_join(j->part, STORE_KEYS, &j->arena), copy, len, j->e);
    free(copy);
    return code;
}

static err_code write_side_files(struct job *j)
{
    const struct weights *w = j->model->weights;
    const uint8_t *keys;
    size_t len, i;
    if (weights_keys(w, &keys, &len))
        return write_keys(j, keys, len);
    err_code code = copy_folder(j, weights_folder(w), j->part, false, 0);
    if (!code)
        code = write_config(j);
    json_t *modules = weights_json(w, "modules.json"), *module;
    json_array_foreach(modules, i, module) {
        const char *path = json_string_value(json_object_get(module, "path"));
        if (!code && path && *path)
            code = copy_module(j, path);
    }
    return code ? code : copy_module(j, "snac");
}

// ---- names and the end of it

static void remove_folder(const char *path, int depth)
{
    DIR *d = opendir(path);
    struct arena a = {0};
    for (struct dirent *it; d && (it = readdir(d));) {
        const char *name = folder_join(path, it->d_name, &a);
        if (!strcmp(it->d_name, ".") || !strcmp(it->d_name, ".."))
            continue;
        if (unlink(name) && depth < FOLDER_DEPTH)
            remove_folder(name, depth + 1);
    }
    if (d)
        closedir(d);
    arena_done(&a);
    rmdir(path);
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return d && n <= 2;
}

// The destination's parent as a real path, and its last part.
static err_code check_names(struct job *j, const char **ret_parent, const char **ret_base)
{
    char real[PATH_MAX], source[PATH_MAX];
    struct stat st;
    size_t n = strlen(j->ask->dst);
    while (n > 1 && j->ask->dst[n - 1] == '/')
        n--;
    const char *dst = arena_strndup(&j->arena, j->ask->dst, n), *base = folder_base(dst);
    const char *parent = base == dst ? "." : arena_strndup(&j->arena, dst, base - dst > 1 ? (size_t)(base - dst - 1) : 1);
    if (!*base || !strcmp(base, ".") || !strcmp(base, ".."))
        return err_set(j->e, ERR_INVALID, "'%s' is no name for a new folder", j->ask->dst);
    if (!lstat(dst, &st) && (!S_ISDIR(st.st_mode) || !is_empty(dst)))
        return err_set(j->e, ERR_INVALID, "'%s' exists and is %s: it is not overwritten", dst,
                       S_ISDIR(st.st_mode) ? "not empty" : "no folder");
    if (!realpath(parent, real) || !realpath(j->ask->src, source))
        return err_set(j->e, ERR_NOT_FOUND, "'%s': %s", file_is_dir(parent) ? j->ask->src : parent, strerror(errno));
    const char *whole = folder_join(real, base, &j->arena);
    size_t m = strlen(source);
    if (file_is_dir(source) && !strncmp(whole, source, m) && (whole[m] == '/' || !whole[m] || source[m - 1] == '/'))
        return err_set(j->e, ERR_INVALID, "'%s' is in its own source '%s'", dst, j->ask->src);
    *ret_parent = arena_strdup(&j->arena, real);
    *ret_base = base;
    return ERR_OK;
}

static err_code sync_folder(const char *path, err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err_code code = fd < 0 || fsync(fd) ? err_set(e, ERR_IO, "cannot write '%s': %s", path, strerror(errno)) : ERR_OK;
    if (fd >= 0)
        close(fd);
    return code;
}

static err_code write_folder(struct job *j, const char *parent, const char *base)
{
    j->part = arena_printf(&j->arena, "%s/.%s.partial-%ld", parent, base, (long)getpid());
    const char *to = folder_join(parent, base, &j->arena);
    if (mkdir(j->part, 0755))
        return err_set(j->e, ERR_IO, "cannot make '%s': %s", j->part, strerror(errno));
    err_code code = write_side_files(j);
    if (!code)
        code = write_shards(j);
    if (!code)
        code = sync_folder(j->part, j->e);
    if (!code)
        code = stopped(j);
    if (!code && rename(j->part, to))
        code = err_set(j->e, ERR_IO, "cannot name '%s': %s", to, strerror(errno));
    if (code)
        remove_folder(j->part, 0);
    return code ? code : sync_folder(parent, j->e);
}

static err_code check_source(const struct job *j)
{
    const struct model *m = j->model;
    if (weights_count(m->weights) && m->packed)
        return ERR_OK;
    return err_set(j->e, ERR_UNSUPPORTED, "%s: a pipeline of several models is not quantised; its parts' files can be", m->path);
}

err_code tools_quantize(const struct tools_quantize *q, err *e)
{
    struct job j = {.ask = q, .e = e};
    const struct cpu_ops *ops;
    const char *parent, *base;
    bool q8 = !strcmp(q->type, "q8");
    if (!q8 && strcmp(q->type, "q4"))
        return err_set_param(e, ERR_INVALID, "type", "type is '%.40s', expected q8 or q4", q->type);
    j.type = q8 ? QUANT_Q8_0 : QUANT_Q4_1;
    err_code code = check_names(&j, &parent, &base);
    if (!code)
        code = cpu_select(NULL, &ops, e);
    if (!code)
        code = model_open_survey(q->src, ops, &j.model, e);
    if (!code)
        code = check_source(&j);
    if (!code)
        code = plan(&j);
    if (!code)
        code = write_folder(&j, parent, base);
    if (!code)
        summary(&j);
    for (int i = 0; i < 2; i++)
        free(j.lists[i].entries);
    model_close(j.model);
    arena_done(&j.arena);
    return code;
}
