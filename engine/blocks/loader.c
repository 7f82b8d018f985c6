// loader.c - finds, checks and packs the weights of one model.
//
// Runs on the thread that opens the model; loader_run adds helper threads of its own, which are gone when it returns
// (the compute team may be busy with other models). Everything packed lies in one mapping on huge pages: the matrices
// in the order they were asked for, which is the order a forward pass reads them in, and among them the tables.
//
// The file's numbers are read, not touched in its mapping: a piece into a buffer that stays in the cache, there looked
// through for what is not finite, then packed. So loading needs no memory beside what it makes, and a file that is cut
// while it is read, or afterwards, is an error and not the end of the process.
#include "engine/blocks/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "engine/weights/mlx.h"
#include "kernels/host.h"

enum {
    PACK_ALIGN = 64,
    PACK_MAX_THREADS = 32,
    PIECE_BYTES = 256 << 10,       // read at once: fits L2 together with what is made of it
    JOB_BYTES = 2 << 20,           // taken by a thread at once: a huge page
    TABLE_MAX = 512 << 20,         // a larger table stays in the file
};

// A table is copied, LOOK is one that is only checked; so is what the file has PACKED. PARTS is a matrix of MLX.
enum item_kind { ITEM_MATRIX, ITEM_CONV, ITEM_TABLE, ITEM_LOOK, ITEM_PACKED, ITEM_PARTS };

struct item {
    enum item_kind kind;
    struct mat *mat;
    struct conv *conv;
    const struct weights *weights;  // the tensor's, also for messages
    const struct tensor *tensor;
    bool made;      // the tensor is memory of ours
    size_t begin, size;  // the item's part of the tensor
    size_t offset;  // in the packed memory
    size_t bytes;   // there
    int groups;     // steps it can be cut into, and the file's bytes of each
    size_t group_bytes;
};

struct job {
    const struct item *item;
    int g0, g1;
};

struct loader {
    const struct weights *weights;
    enum mat_math math;
    const struct cpu_ops *ops;
    struct item *items;
    size_t nitems, cap;
    struct packed *packed;
    struct lora *adapter;
    struct lora_order order;  // of the next pair
};

struct loader *loader_new(const struct weights *w, enum mat_math math, const struct cpu_ops *ops)
{
    struct loader *ld = mem_new(sizeof *ld);
    *ld = (struct loader){.weights = w, .math = math, .ops = ops, .packed = packed_new()};
    return ld;
}

void loader_free(struct loader *ld)
{
    if (!ld)
        return;
    packed_free(ld->packed);
    free(ld->items);
    free(ld);
}

struct packed *loader_take(struct loader *ld)
{
    struct packed *p = ld->packed;
    ld->packed = NULL;
    loader_free(ld);
    return p;
}

static void shape_text(char *out, size_t size, const int64_t *shape, int ndim)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, i ? ", %lld" : "%lld", (long long)shape[i]);
}

// A 1x1 convolution's [out, in, 1, 1] is the matrix [out, in].
static int dims(const struct tensor *t, int wanted)
{
    int n = t->ndim;
    while (n > wanted && wanted == 2 && t->shape[n - 1] == 1)
        n--;
    return n;
}

static bool fits(const struct tensor *t, const int64_t *shape, int ndim)
{
    if (ndim == 2 && shape[0] == 1 && t->ndim == 1)
        return t->shape[0] == shape[1];  // a matrix of one row, as GGUF may have it
    return dims(t, ndim) == ndim && !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape);
}

// The tensor of this name and shape. Vectors are asked for with ndim 1.
static err_code find(struct loader *ld, const struct weights *w, const char *name, const int64_t *shape, int ndim,
                     enum packed_use use, const struct tensor **ret_tensor, err *e)
{
    const struct tensor *t = weights_find_raw(w, name);
    if (!t)
        return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' is missing", weights_path(w), name);
    if (t->type >= QUANT_COUNT)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is stored as %s, which is not built",
                             weights_path(w), name, t->dtype);
    if (!fits(t, shape, ndim)) {
        char found[128], expected[128];
        shape_text(found, sizeof found, t->shape, t->ndim);
        shape_text(expected, sizeof expected, shape, ndim);
        return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' has shape [%s], expected [%s]", weights_path(w), name,
                             found, expected);
    }
    if ((t->packed || t->parts) && use == PACKED_AS_PLAIN)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is quantised as %s, expected plain rows", weights_path(w),
                             name, t->dtype);
    packed_use(ld->packed, t, use);
    *ret_tensor = t;
    return ERR_OK;
}

// As the tensor's rows lie.
static err_code plan(struct mat *m, const struct tensor *t, int rows, int cols, enum mat_math math, err *e)
{
    return t->parts ? mat_plan_parts(m, t->type, t->parts, rows, cols, math, e) : mat_plan(m, t->type, rows, cols, math, e);
}

static struct item *add_item(struct loader *ld, enum item_kind kind, const struct weights *w, const struct tensor *t)
{
    if (ld->nitems == ld->cap) {
        ld->cap = ld->cap ? ld->cap * 2 : 64;
        ld->items = mem_resize(ld->items, ld->cap * sizeof *ld->items);
    }
    struct item *it = &ld->items[ld->nitems++];
    *it = (struct item){.kind = kind, .weights = w, .tensor = t, .size = t->bytes};
    return it;
}

static void add_part(struct loader *ld, struct mat *m, const struct weights *w, const struct tensor *t, size_t begin,
                     size_t size)
{
    bool packed = m->layout == MAT_PACKED;
    struct item *it = add_item(ld, packed ? ITEM_MATRIX : ITEM_TABLE, w, t);
    it->mat = m;
    it->begin = begin;
    it->size = size;
    it->bytes = packed ? m->bytes : size;
    it->groups = mat_groups(m);
    it->group_bytes = size / (size_t)m->rows * MAT_GROUP;
    m->data = (const uint8_t *)t->data + begin;  // until it has its place
}

static void add_matrix(struct loader *ld, struct mat *m, const struct weights *w, const struct tensor *t)
{
    add_part(ld, m, w, t, 0, t->bytes);
    struct item *it = &ld->items[ld->nitems - 1];
    if (t->packed) {
        it->kind = ITEM_PACKED;
        it->size = m->bytes;
        it->bytes = 0;
        it->group_bytes = m->bytes / (size_t)it->groups;
        ld->packed->mapped += m->bytes;
    } else if (t->parts) {
        it->kind = ITEM_PARTS;
        it->group_bytes += MAT_GROUP * (mlx_row_bytes(t, 0) + mlx_row_bytes(t, 1));
    }
}

static err_code matrix(struct loader *ld, const struct weights *w, const char *name, int rows, int cols, enum mat_math math,
                       struct mat *m, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, w, name, (int64_t[]){rows, cols}, 2, PACKED_AS_MATRIX, &t, e);
    if (code)
        return code;
    struct mat planned;
    code = plan(&planned, t, rows, cols, math, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(w), name);
    *m = planned;
    packed_count(ld->packed, m);
    add_matrix(ld, m, w, t);
    return ERR_OK;
}

err_code loader_slice(struct loader *ld, const char *name, const struct loader_slice *s, struct mat *m, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, ld->weights, name, (int64_t[]){s->count, s->out, s->cols}, 3, PACKED_AS_PLAIN, &t, e);
    if (code)
        return code;
    struct mat planned;
    code = mat_plan(&planned, t->type, s->rows, s->cols, ld->math, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    size_t row = t->bytes / ((size_t)s->count * (size_t)s->out);
    *m = planned;
    packed_count(ld->packed, m);
    add_part(ld, m, ld->weights, t, ((size_t)s->index * (size_t)s->out + (size_t)s->first) * row, (size_t)s->rows * row);
    return ERR_OK;
}

err_code loader_conv(struct loader *ld, const char *name, int cout, int cin, struct conv *c, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, ld->weights, name, (int64_t[]){cout, cin, 3, 3}, 4, PACKED_AS_PLAIN, &t, e);
    struct conv planned;
    if (!code && (code = conv_plan(&planned, t->type, cout, cin, e)))
        err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    if (code)
        return code;
    *c = planned;
    struct item *it = add_item(ld, ITEM_CONV, ld->weights, t);
    it->conv = c;
    it->bytes = c->bytes;
    it->groups = conv_groups(c);
    it->group_bytes = c->bytes / (size_t)it->groups;
    return ERR_OK;
}

err_code loader_matrix(struct loader *ld, const char *name, int rows, int cols, struct mat *m, err *e)
{
    return matrix(ld, ld->weights, name, rows, cols, ld->math, m, e);
}

void loader_set_adapter(struct loader *ld, struct lora *adapter)
{
    ld->adapter = adapter;
}

void *loader_alloc(struct loader *ld, size_t bytes)
{
    return arena_alloc(&ld->packed->vectors, bytes);
}

void loader_set_order(struct loader *ld, const struct lora_order *order)
{
    ld->order = *order;
}

// As matrix, of a copy whose rows and columns stand in another order. Pairs of an adapter multiply f32 (linear.c).
static err_code reordered(struct loader *ld, const struct weights *w, const char *name, int rows, int cols,
                          const int32_t *row_order, const int32_t *col_order, struct mat *m, err *e)
{
    const struct tensor *t;
    if (!row_order && !col_order)
        return matrix(ld, w, name, rows, cols, ld->math & MAT_INT8, m, e);
    err_code code = find(ld, w, name, (int64_t[]){rows, cols}, 2, PACKED_AS_PLAIN, &t, e);
    const struct quant *q = code ? NULL : quant_get(t->type);
    if (!code && q->block > 1)
        code = err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is quantised, expected floats", weights_path(w), name);
    if (!code)
        code = mat_plan(m, QUANT_F32, rows, cols, MAT_F32, e);
    if (code)
        return code;
    size_t n = (size_t)cols;
    float *row = mem_new(n * sizeof *row), *copy = loader_alloc(ld, (size_t)rows * n * sizeof *copy);
    for (int r = 0; r < rows; r++) {
        size_t from = (size_t)(row_order ? row_order[r] : r);
        q->dequantize((const uint8_t *)t->data + from * n * (size_t)q->block_bytes, row, n);
        for (size_t c = 0; c < n; c++)
            copy[(size_t)r * n + c] = row[col_order ? (size_t)col_order[c] : c];
    }
    free(row);
    weights_release(w, t);
    struct tensor *made = loader_alloc(ld, sizeof *made);
    *made = *t;
    made->type = QUANT_F32;
    made->data = copy;
    made->bytes = (size_t)rows * n * sizeof *copy;
    add_matrix(ld, m, w, made);
    ld->items[ld->nitems - 1].made = true;
    return ERR_OK;
}

static bool same_row(const struct tensor *a, const struct tensor *b, int row, int cols, float *x, float *y)
{
    const struct quant *qa = quant_get(a->type), *qb = quant_get(b->type);
    size_t n = (size_t)cols;
    qa->dequantize((const uint8_t *)a->data + (size_t)row * n * (size_t)qa->block_bytes, x, n);
    qb->dequantize((const uint8_t *)b->data + (size_t)row * n * (size_t)qb->block_bytes, y, n);
    return !memcmp(x, y, n * sizeof *x);
}

// An adapter with another head than the model's would be trained on another model. A base in integer blocks cannot be
// compared: it is near the original only.
static err_code check_copy(struct loader *ld, const char *copy, const char *name, int out, int in, err *e)
{
    const struct weights *w = lora_weights(ld->adapter);
    const struct tensor *t, *base = weights_find(ld->weights, name);
    err_code code = find(ld, w, copy, (int64_t[]){out, in}, 2, PACKED_AS_PLAIN, &t, e);
    if (code || !base || quant_get(base->type)->block > 1 || quant_get(t->type)->block > 1)
        return code;
    float *x = mem_new(2 * (size_t)in * sizeof *x);
    int row = 0;
    while (row < out && same_row(t, base, row, in, x, x + in))
        row++;
    free(x);
    weights_release(w, t);
    weights_release(ld->weights, base);
    if (row < out)
        return err_set_param(e, ERR_CORRUPT, copy, "%s: tensor '%s' differs from '%s' of %s at row %d, expected a copy",
                             weights_path(w), copy, name, weights_path(ld->weights), row);
    return ERR_OK;
}

err_code loader_pair(struct loader *ld, const char *module, const char *name, int out, int in,
                     const struct lora_pair **ret_pair, err *e)
{
    struct lora_source s;
    struct lora_order order = ld->order;
    ld->order = (struct lora_order){0};
    if (!ld->adapter || !lora_take(ld->adapter, module, &s)) {
        *ret_pair = NULL;
        return ERR_OK;
    }
    const struct weights *w = lora_weights(ld->adapter);
    struct lora_pair *p = loader_alloc(ld, sizeof *p);
    p->rank = s.rank;
    p->scale = s.scale;
    err_code code = reordered(ld, w, s.a, s.rank, in, NULL, order.cols, &p->a, e);
    if (!code)
        code = reordered(ld, w, s.b, out, s.rank, order.rows, NULL, &p->b, e);
    if (!code && s.base)
        code = check_copy(ld, s.base, name, out, in, e);
    if (!code && (mat_uses_int8(&p->a) || mat_uses_int8(&p->b)))
        code = err_set_param(e, ERR_UNSUPPORTED, s.a, "%s: tensor '%s' is quantised, expected floats", weights_path(w), s.a);
    if (!code)
        *ret_pair = p;
    return code;
}

bool loader_has(const struct loader *ld, const char *name)
{
    return weights_find_raw(ld->weights, name) != NULL;
}

err_code loader_table(struct loader *ld, const char *name, int rows, int cols, struct mat *ret_table, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, ld->weights, name, (int64_t[]){rows, cols}, 2, PACKED_AS_TABLE, &t, e);
    if (code)
        return code;
    struct mat m;
    code = plan(&m, t, rows, cols, MAT_F32, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    m.layout = t->packed ? MAT_PACKED : MAT_BORROWED;
    m.bytes = 0;
    m.data = t->data;
    *ret_table = m;
    if (t->packed || t->parts)
        return ERR_OK;
    add_matrix(ld, ret_table, ld->weights, t);
    struct item *it = &ld->items[ld->nitems - 1];
    if (t->bytes > TABLE_MAX) {
        it->kind = ITEM_LOOK;
        it->bytes = 0;
    }
    return ERR_OK;
}

err_code loader_floats(struct loader *ld, const char *name, const int64_t *shape, int ndim, float **ret_floats, err *e)
{
    const struct tensor *t;
    size_t n = 1;
    err_code code = find(ld, ld->weights, name, shape, ndim, PACKED_AS_PLAIN, &t, e);
    if (code)
        return code;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    const struct quant *q = quant_get(t->type);
    if (n % (size_t)q->block)
        return err_set_param(e, ERR_CORRUPT, name, "tensor '%s' has %zu elements of %s, expected a multiple of %d",
                             name, n, q->name, q->block);
    uint8_t *bytes = mem_try(t->bytes);
    code = bytes ? weights_read(ld->weights, t, 0, bytes, t->bytes, e)
                 : err_set(e, ERR_MEMORY, "no memory for tensor '%s'", name);
    if (!code)
        code = weights_finite(ld->weights, t, 0, bytes, t->bytes, e);
    if (!code) {
        float *v = loader_alloc(ld, n * sizeof *v);
        q->dequantize(bytes, v, n);
        *ret_floats = v;
    }
    free(bytes);
    return code;
}

err_code loader_vector(struct loader *ld, const char *name, int n, const float **ret_vector, err *e)
{
    float *v;
    err_code code = loader_floats(ld, name, (int64_t[]){n}, 1, &v, e);
    if (!code)
        *ret_vector = v;
    return code;
}

// ---- packing

struct packing {
    const struct job *jobs;
    size_t njobs, piece_bytes;
    atomic_size_t next;
    atomic_bool stop;
    pthread_mutex_t lock;  // of the two below
    size_t failed;         // the first job that did; njobs: none
    err why;
};

// The file's bytes of groups g0 .. g1 of an item: the last may have fewer.
static size_t span(const struct item *it, int g0, int g1)
{
    size_t begin = (size_t)g0 * it->group_bytes, end = (size_t)g1 * it->group_bytes;
    return (end < it->size ? end : it->size) - begin;
}

// bytes: the file's of these groups alone. The packers count from row 0, which is where it would be; they read none of
// the rows before.
static void place_groups(const struct item *it, int g0, int g1, const uint8_t *bytes, size_t n)
{
    const void *row0 = (const void *)((uintptr_t)bytes - (size_t)g0 * it->group_bytes);
    if (it->kind == ITEM_CONV)
        conv_pack(it->conv, (uint8_t *)it->conv->data, row0, g0, g1);
    else if (it->kind == ITEM_MATRIX)
        mat_pack(it->mat, (uint8_t *)it->mat->data, row0, g0, g1);
    else if (it->kind == ITEM_TABLE)
        memcpy((uint8_t *)it->mat->data + (size_t)g0 * it->group_bytes, bytes, n);
}

// Rows r0.. of a matrix in parts: codes, scales and offsets one after another in the buffer. As above, the pointers are those
// of row 0.
static err_code pack_parts(const struct item *it, int g0, int g1, uint8_t *buffer, err *e)
{
    const struct tensor *t = it->tensor;
    struct quant_parts parts = *t->parts;
    struct mat m = *it->mat;
    size_t r0 = (size_t)g0 * MAT_GROUP, r1 = (size_t)g1 * MAT_GROUP;
    size_t n = (r1 < (size_t)m.rows ? r1 : (size_t)m.rows) - r0, row = t->bytes / (size_t)m.rows;
    const uint8_t **arrays[] = {&parts.codes, &parts.scales, &parts.biases};
    err_code code = ERR_OK;
    for (int i = 0; i < 3 && *arrays[i] && !code; i++, buffer += n * row, row = i < 3 ? mlx_row_bytes(t, i - 1) : 0) {
        const struct tensor *from = i ? &t->numbers[i - 1] : t;
        code = weights_read(it->weights, from, r0 * row, buffer, n * row, e);
        if (!code && from->type < QUANT_COUNT && i)
            code = weights_finite(it->weights, from, r0 * row, buffer, n * row, e);
        *arrays[i] = (const uint8_t *)((uintptr_t)buffer - r0 * row);
    }
    m.parts = &parts;
    if (!code)
        mat_pack(&m, (uint8_t *)it->mat->data, NULL, g0, g1);
    return code;
}

// What the file has packed is used where it is mapped: only its numbers are looked at, which also brings it into memory.
static err_code check_packed(const struct item *it, int g0, int g1, err *e)
{
    int row, col;
    if (mat_pack_finite(it->mat, g0, g1, &row, &col))
        return ERR_OK;
    return err_set_param(e, ERR_CORRUPT, it->tensor->name,
                         "%s: tensor '%s' of %s has a scale that is not finite in row %d, column %d, expected finite numbers",
                         weights_path(it->weights), it->tensor->name, it->tensor->dtype, row, col);
}

static err_code do_job(const struct job *j, size_t piece_bytes, uint8_t *buffer, err *e)
{
    const struct item *it = j->item;
    int step = (int)(piece_bytes / it->group_bytes);
    if (it->kind == ITEM_PACKED)
        return check_packed(it, j->g0, j->g1, e);
    for (int g = j->g0; it->kind == ITEM_PARTS && g < j->g1; g += step) {
        err_code code = pack_parts(it, g, g + step < j->g1 ? g + step : j->g1, buffer, e);
        if (code)
            return code;
    }
    if (it->kind == ITEM_PARTS)
        return ERR_OK;
    for (int g = j->g0; g < j->g1; g += step) {
        int end = g + step < j->g1 ? g + step : j->g1;
        size_t begin = it->begin + (size_t)g * it->group_bytes, n = span(it, g, end);
        const uint8_t *bytes = it->made ? (const uint8_t *)it->tensor->data + begin : buffer;
        err_code code = it->made ? ERR_OK : weights_read(it->weights, it->tensor, begin, buffer, n, e);
        if (!code)
            code = weights_finite(it->weights, it->tensor, begin, bytes, n, e);
        if (code)
            return code;
        place_groups(it, g, end, bytes, n);
    }
    return ERR_OK;
}

// Jobs are taken in order, so of several that fail the first one always does: the message does not depend on chance.
static void fail(struct packing *p, size_t job, const err *e)
{
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    if (job < p->failed) {
        p->failed = job;
        p->why = *e;
    }
    pthread_mutex_unlock(&p->lock);
}

static void *pack_worker(void *arg)
{
    struct packing *p = arg;
    uint8_t *buffer = mem_try(p->piece_bytes);
    err e = {0};
    if (!buffer) {
        err_set(&e, ERR_MEMORY, "no memory for %zu bytes to read weights into", p->piece_bytes);
        fail(p, 0, &e);
    }
    for (size_t i; !atomic_load(&p->stop) && (i = atomic_fetch_add(&p->next, 1)) < p->njobs;) {
        if (do_job(&p->jobs[i], p->piece_bytes, buffer, &e))
            fail(p, i, &e);
    }
    free(buffer);
    return NULL;
}

static int default_threads(void)
{
    return host_cores_for(host_cpus(NULL, 0), host_quota());
}

// Threads that cannot be had are done without: the caller's own always works.
static err_code pack_all(struct packing *p, int threads, err *e)
{
    pthread_t helper[PACK_MAX_THREADS];
    int started = 0;
    if (threads <= 0)
        threads = default_threads();
    while (started < threads - 1 && started < PACK_MAX_THREADS - 1 && (size_t)started + 1 < p->njobs) {
        if (pthread_create(&helper[started], NULL, pack_worker, p))
            break;
        started++;
    }
    pack_worker(p);
    for (int i = 0; i < started; i++)
        pthread_join(helper[i], NULL);
    if (p->failed == p->njobs)
        return ERR_OK;
    *e = p->why;
    return e->code;
}

// Threads make different huge pages: a job ends with the group that reaches into the next one. Of two that touch a
// fresh one at a time, both would clear it and one in vain.
static int job_end(const struct item *it, int g)
{
    size_t each = it->bytes ? it->bytes / (size_t)it->groups : it->group_bytes;
    size_t begin = it->offset + (size_t)g * each, next = (begin / JOB_BYTES + 1) * JOB_BYTES;
    size_t groups = (next - begin + each - 1) / each;
    return groups < (size_t)(it->groups - g) ? g + (int)groups : it->groups;
}

static struct job *make_jobs(struct loader *ld, size_t *ret_count, size_t *ret_piece)
{
    size_t n = 0, cap = ld->nitems + 64, piece = PIECE_BYTES;
    struct job *jobs = mem_new(cap * sizeof *jobs);
    for (size_t i = 0; i < ld->nitems; i++) {
        const struct item *it = &ld->items[i];
        piece = it->group_bytes > piece ? it->group_bytes : piece;
        for (int g = 0, end; g < it->groups; g = end) {
            end = job_end(it, g);
            if (n == cap)
                jobs = mem_resize(jobs, (cap *= 2) * sizeof *jobs);
            jobs[n++] = (struct job){it, g, end};
        }
    }
    *ret_count = n;
    *ret_piece = piece;
    return jobs;
}

// Gives every matrix its place; the sum is checked because shapes come from a file.
static err_code place(struct loader *ld, err *e)
{
    size_t total = 0;
    for (size_t i = 0; i < ld->nitems; i++) {
        ld->items[i].offset = total;
        if (!size_add(total, ld->items[i].bytes + PACK_ALIGN - 1, &total))
            return err_set(e, ERR_TOO_LARGE, "%s: packed weights overflow memory", weights_path(ld->weights));
        total &= ~(size_t)(PACK_ALIGN - 1);
    }
    if (!total)
        return ERR_OK;
    ld->packed->map = mem_try_pages(total);
    char text[BYTES_TEXT];
    if (!ld->packed->map)
        return err_set(e, ERR_MEMORY, "%s: no memory for weights of %s", weights_path(ld->weights), bytes_text(total, text));
    ld->packed->bytes = total;
    for (size_t i = 0; i < ld->nitems; i++) {
        const struct item *it = &ld->items[i];
        const uint8_t *at = ld->packed->map + it->offset;
        if (it->kind == ITEM_CONV)
            it->conv->data = at;
        else if (it->kind != ITEM_LOOK && it->kind != ITEM_PACKED)
            it->mat->data = at;
    }
    return ERR_OK;
}

err_code loader_run(struct loader *ld, int threads, err *e)
{
    err_code code = place(ld, e);
    struct packing p = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct job *jobs = make_jobs(ld, &p.njobs, &p.piece_bytes);
    p.jobs = jobs;
    p.failed = p.njobs;
    if (p.njobs)
        code = pack_all(&p, threads, e);
    free(jobs);
    return code;
}
