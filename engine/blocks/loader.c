// loader.c - finds, checks and packs the weights of one model.
//
// Runs on the thread that opens the model; loader_run adds helper threads of its own, which are gone when it returns
// (the compute team may be busy with other models). Everything packed lies in one mapping on huge pages: the matrices
// in the order they were asked for, which is the order a forward pass reads them in.
#include "engine/blocks/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { PACK_BYTES = 256 << 10, PACK_ALIGN = 64, PACK_MAX_THREADS = 64 };

struct item {
    struct mat *mat;    // one of the two
    struct conv *conv;
    const struct weights *weights;  // that the tensor is of; NULL: it is a copy
    const struct tensor *tensor;
    const uint8_t *data;  // of the tensor, or of the part of it that the matrix is
    size_t bytes;
    size_t offset;
    atomic_int left;  // jobs not done
};

struct job {
    struct item *item;
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
                     const struct tensor **ret_tensor, err *e)
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
    packed_use(ld->packed, t);
    *ret_tensor = t;
    return ERR_OK;
}

static struct item *add_item(struct loader *ld, struct mat *m, struct conv *c, const struct weights *w,
                             const struct tensor *t)
{
    if (ld->nitems == ld->cap) {
        ld->cap = ld->cap ? ld->cap * 2 : 64;
        ld->items = mem_resize(ld->items, ld->cap * sizeof *ld->items);
    }
    struct item *it = &ld->items[ld->nitems++];
    *it = (struct item){.mat = m, .conv = c, .weights = w, .tensor = t, .data = t->data, .bytes = t->bytes};
    return it;
}

static err_code matrix(struct loader *ld, const struct weights *w, const char *name, int rows, int cols, struct mat *m,
                       err *e)
{
    const struct tensor *t;
    err_code code = find(ld, w, name, (int64_t[]){rows, cols}, 2, &t, e);
    if (code)
        return code;
    struct mat plan;
    code = mat_plan(&plan, t->type, rows, cols, ld->math, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(w), name);
    *m = plan;
    packed_count(ld->packed, m);
    add_item(ld, m, NULL, w, t);
    return ERR_OK;
}

err_code loader_slice(struct loader *ld, const char *name, const struct loader_slice *s, struct mat *m, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, ld->weights, name, (int64_t[]){s->count, s->out, s->cols}, 3, &t, e);
    if (code)
        return code;
    struct mat plan;
    code = mat_plan(&plan, t->type, s->rows, s->cols, ld->math, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    size_t row = t->bytes / ((size_t)s->count * (size_t)s->out);
    const uint8_t *data = (const uint8_t *)t->data + ((size_t)s->index * (size_t)s->out + (size_t)s->first) * row;
    *m = plan;
    packed_count(ld->packed, m);
    struct item *it = add_item(ld, m, NULL, ld->weights, t);
    it->data = data;
    it->bytes = (size_t)s->rows * row;
    return ERR_OK;
}

err_code loader_conv(struct loader *ld, const char *name, int cout, int cin, struct conv *c, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, ld->weights, name, (int64_t[]){cout, cin, 3, 3}, 4, &t, e);
    struct conv plan;
    if (!code && (code = conv_plan(&plan, t->type, cout, cin, e)))
        err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    if (code)
        return code;
    *c = plan;
    add_item(ld, NULL, c, ld->weights, t);
    return ERR_OK;
}

err_code loader_matrix(struct loader *ld, const char *name, int rows, int cols, struct mat *m, err *e)
{
    return matrix(ld, ld->weights, name, rows, cols, m, e);
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

// As matrix, of a copy whose rows and columns stand in another order.
static err_code reordered(struct loader *ld, const struct weights *w, const char *name, int rows, int cols,
                          const int32_t *row_order, const int32_t *col_order, struct mat *m, err *e)
{
    const struct tensor *t;
    if (!row_order && !col_order)
        return matrix(ld, w, name, rows, cols, m, e);
    err_code code = find(ld, w, name, (int64_t[]){rows, cols}, 2, &t, e);
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
    struct tensor *made = loader_alloc(ld, sizeof *made);
    *made = *t;
    made->type = QUANT_F32;
    made->data = copy;
    add_item(ld, m, NULL, NULL, made);
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
    err_code code = find(ld, w, copy, (int64_t[]){out, in}, 2, &t, e);
    if (code || !base || quant_get(base->type)->block > 1 || quant_get(t->type)->block > 1)
        return code;
    float *x = mem_new(2 * (size_t)in * sizeof *x);
    int row = 0;
    while (row < out && same_row(t, base, row, in, x, x + in))
        row++;
    free(x);
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
    err_code code = find(ld, ld->weights, name, (int64_t[]){rows, cols}, 2, &t, e);
    if (code)
        return code;
    struct mat m;
    code = mat_plan(&m, t->type, rows, cols, MAT_F32, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    m.layout = MAT_BORROWED;
    m.bytes = 0;
    m.data = t->data;
    *ret_table = m;
    return ERR_OK;
}

err_code loader_floats(struct loader *ld, const char *name, const int64_t *shape, int ndim, float **ret_floats, err *e)
{
    const struct tensor *t;
    size_t n = 1;
    err_code code = find(ld, ld->weights, name, shape, ndim, &t, e);
    if (code)
        return code;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    const struct quant *q = quant_get(t->type);
    if (n % (size_t)q->block)
        return err_set_param(e, ERR_CORRUPT, name, "tensor '%s' has %zu elements of %s, expected a multiple of %d",
                             name, n, q->name, q->block);
    float *v = loader_alloc(ld, n * sizeof *v);
    q->dequantize(t->data, v, n);
    *ret_floats = v;
    return ERR_OK;
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
    size_t njobs;
    atomic_size_t next;
};

static void release(const struct item *i)
{
    if (!i->weights)
        return;
    struct tensor part = *i->tensor;
    part.data = i->data;
    part.bytes = i->bytes;
    weights_release(i->weights, &part);
}

static void *pack_worker(void *arg)
{
    struct packing *p = arg;
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->njobs;) {
        const struct job *j = &p->jobs[i];
        const struct item *it = j->item;
        if (it->conv)
            conv_pack(it->conv, (uint8_t *)it->conv->data, it->data, j->g0, j->g1);
        else
            mat_pack(it->mat, (uint8_t *)it->mat->data, it->data, j->g0, j->g1);
        if (atomic_fetch_sub(&j->item->left, 1) == 1)
            release(j->item);
    }
    return NULL;
}

// Threads that cannot be had are done without: the caller's own always works.
static void pack_all(const struct job *jobs, size_t njobs, int threads)
{
    struct packing p = {.jobs = jobs, .njobs = njobs};
    pthread_t helper[PACK_MAX_THREADS];
    int started = 0;
    if (threads <= 0)
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    while (started < threads - 1 && started < PACK_MAX_THREADS && (size_t)started < njobs) {
        if (pthread_create(&helper[started], NULL, pack_worker, &p))
            break;
        started++;
    }
    pack_worker(&p);
    for (int i = 0; i < started; i++)
        pthread_join(helper[i], NULL);
}

static size_t item_bytes(const struct item *it)
{
    return it->conv ? it->conv->bytes : it->mat->bytes;
}

static struct job *make_jobs(struct loader *ld, size_t *ret_count)
{
    size_t n = 0, cap = ld->nitems + 64;
    struct job *jobs = mem_new(cap * sizeof *jobs);
    for (size_t i = 0; i < ld->nitems; i++) {
        const struct item *it = &ld->items[i];
        int groups = it->conv ? conv_groups(it->conv) : mat_groups(it->mat);
        int step = (int)(PACK_BYTES / (item_bytes(it) / (size_t)groups + 1)) + 1;
        atomic_init(&ld->items[i].left, (groups + step - 1) / step);
        for (int g = 0; g < groups; g += step) {
            if (n == cap)
                jobs = mem_resize(jobs, (cap *= 2) * sizeof *jobs);
            jobs[n++] = (struct job){&ld->items[i], g, g + step < groups ? g + step : groups};
        }
    }
    *ret_count = n;
    return jobs;
}

// Gives every matrix its place; the sum is checked because shapes come from a file.
static err_code place(struct loader *ld, err *e)
{
    size_t total = 0;
    for (size_t i = 0; i < ld->nitems; i++) {
        ld->items[i].offset = total;
        if (!size_add(total, item_bytes(&ld->items[i]) + PACK_ALIGN - 1, &total))
            return err_set(e, ERR_TOO_LARGE, "%s: packed weights overflow memory", weights_path(ld->weights));
        total &= ~(size_t)(PACK_ALIGN - 1);
    }
    if (!total)
        return ERR_OK;
    ld->packed->map = mem_try_pages(total);
    if (!ld->packed->map)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu bytes of weights", weights_path(ld->weights), total);
    ld->packed->bytes = total;
    for (size_t i = 0; i < ld->nitems; i++) {
        const uint8_t *at = ld->packed->map + ld->items[i].offset;
        if (ld->items[i].conv)
            ld->items[i].conv->data = at;
        else
            ld->items[i].mat->data = at;
    }
    return ERR_OK;
}

err_code loader_run(struct loader *ld, int threads, err *e)
{
    err_code code = place(ld, e);
    if (code)
        return code;
    size_t njobs;
    struct job *jobs = make_jobs(ld, &njobs);
    pack_all(jobs, njobs, threads);
    free(jobs);
    return ERR_OK;
}
