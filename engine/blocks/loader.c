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
    struct mat *mat;
    const struct tensor *tensor;
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

// The tensor of this name and shape. Vectors are asked for with ndim 1.
static err_code find(struct loader *ld, const char *name, const int64_t *shape, int ndim,
                     const struct tensor **ret_tensor, err *e)
{
    const struct tensor *t = weights_find_raw(ld->weights, name);
    if (!t)
        return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' is missing", weights_path(ld->weights), name);
    if (t->type >= QUANT_COUNT)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor '%s' is stored as %s, which is not built",
                             weights_path(ld->weights), name, t->dtype);
    if (t->ndim != ndim || memcmp(t->shape, shape, (size_t)ndim * sizeof *shape)) {
        char found[128], expected[128];
        shape_text(found, sizeof found, t->shape, t->ndim);
        shape_text(expected, sizeof expected, shape, ndim);
        return err_set_param(e, ERR_CORRUPT, name, "%s: tensor '%s' has shape [%s], expected [%s]",
                             weights_path(ld->weights), name, found, expected);
    }
    packed_use(ld->packed, t);
    *ret_tensor = t;
    return ERR_OK;
}

static void add_item(struct loader *ld, struct mat *m, const struct tensor *t)
{
    if (ld->nitems == ld->cap) {
        ld->cap = ld->cap ? ld->cap * 2 : 64;
        ld->items = mem_resize(ld->items, ld->cap * sizeof *ld->items);
    }
    ld->items[ld->nitems++] = (struct item){.mat = m, .tensor = t};
}

err_code loader_matrix(struct loader *ld, const char *name, int rows, int cols, struct mat *m, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, name, (int64_t[]){rows, cols}, 2, &t, e);
    if (code)
        return code;
    struct mat plan;
    code = mat_plan(&plan, t->type, rows, cols, ld->math, e);
    if (code)
        return err_wrap(e, "%s: tensor '%s'", weights_path(ld->weights), name);
    *m = plan;
    if (m->layout == MAT_BORROWED)
        m->data = t->data;
    else
        add_item(ld, m, t);
    return ERR_OK;
}

bool loader_has(const struct loader *ld, const char *name)
{
    return weights_find_raw(ld->weights, name) != NULL;
}

err_code loader_table(struct loader *ld, const char *name, int rows, int cols, struct mat *ret_table, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, name, (int64_t[]){rows, cols}, 2, &t, e);
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

err_code loader_vector(struct loader *ld, const char *name, int n, const float **ret_vector, err *e)
{
    const struct tensor *t;
    err_code code = find(ld, name, (int64_t[]){n}, 1, &t, e);
    if (code)
        return code;
    const struct quant *q = quant_get(t->type);
    if (n % q->block)
        return err_set_param(e, ERR_CORRUPT, name, "tensor '%s' has %d elements of %s, expected a multiple of %d",
                             name, n, q->name, q->block);
    float *v = arena_alloc(&ld->packed->vectors, (size_t)n * sizeof *v);
    q->dequantize(t->data, v, (size_t)n);
    *ret_vector = v;
    return ERR_OK;
}

// ---- packing

struct packing {
    const struct weights *weights;
    const struct job *jobs;
    size_t njobs;
    atomic_size_t next;
};

static void *pack_worker(void *arg)
{
    struct packing *p = arg;
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->njobs;) {
        const struct job *j = &p->jobs[i];
        mat_pack(j->item->mat, (uint8_t *)j->item->mat->data, j->item->tensor->data, j->g0, j->g1);
        if (atomic_fetch_sub(&j->item->left, 1) == 1)
            weights_release(p->weights, j->item->tensor);
    }
    return NULL;
}

// Threads that cannot be had are done without: the caller's own always works.
static void pack_all(const struct weights *w, const struct job *jobs, size_t njobs, int threads)
{
    struct packing p = {.weights = w, .jobs = jobs, .njobs = njobs};
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

static struct job *make_jobs(struct loader *ld, size_t *ret_count)
{
    size_t n = 0, cap = ld->nitems + 64;
    struct job *jobs = mem_new(cap * sizeof *jobs);
    for (size_t i = 0; i < ld->nitems; i++) {
        const struct mat *m = ld->items[i].mat;
        int groups = mat_groups(m), step = (int)(PACK_BYTES / (m->bytes / (size_t)groups + 1)) + 1;
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
        if (!size_add(total, ld->items[i].mat->bytes + PACK_ALIGN - 1, &total))
            return err_set(e, ERR_TOO_LARGE, "%s: packed weights overflow memory", weights_path(ld->weights));
        total &= ~(size_t)(PACK_ALIGN - 1);
    }
    if (!total)
        return ERR_OK;
    ld->packed->map = mem_try_pages(total);
    if (!ld->packed->map)
        return err_set(e, ERR_MEMORY, "%s: no memory for %zu bytes of weights", weights_path(ld->weights), total);
    ld->packed->bytes = total;
    for (size_t i = 0; i < ld->nitems; i++)
        ld->items[i].mat->data = ld->packed->map + ld->items[i].offset;
    return ERR_OK;
}

err_code loader_run(struct loader *ld, int threads, err *e)
{
    err_code code = place(ld, e);
    if (code)
        return code;
    size_t njobs;
    struct job *jobs = make_jobs(ld, &njobs);
    pack_all(ld->weights, jobs, njobs, threads);
    free(jobs);
    return ERR_OK;
}
