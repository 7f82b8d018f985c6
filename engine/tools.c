// tools.c - the offline commands logits, bench, show and devices. They run on the thread that calls them.
#include "engine/tools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/blocks/packed.h"
#include "engine/family/family.h"
#include "engine/runner.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"
#include "gpu/gpu.h"
#include "kernels/team.h"

enum { CHUNK = 512, ALL_ROWS = 64, MAX_REPS = 1000, MAX_PARALLEL = 4096 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

// ---- logits

static err_code run_chunks(struct runner *r, const int32_t *ids, int nids, bool all, int chunk, FILE *out, err *e)
{
    struct kv_seq s;
    kv_seq_init(&s, r->pool);
    err_code code = ERR_OK;
    for (int at = 0, n; at < nids && !code; at += n) {
        n = least(chunk, nids - at);
        bool last = at + n == nids;
        code = runner_step(r, &(struct piece){&s, ids + at, n, all ? PIECE_ALL : last ? PIECE_LAST : PIECE_NONE}, 1, e);
        size_t want = code ? 0 : (size_t)r->nout * (size_t)r->model->vocab;
        if (want && fwrite(r->logits, sizeof *r->logits, want, out) != want)
            code = err_set(e, ERR_IO, "cannot write logits: %s", strerror(errno));
    }
    kv_seq_done(&s);
    return code;
}

// Rows of logits are large: with `all` a step is cut so that they stay in bounded memory.
err_code tools_logits(const struct tools_model *m, const int32_t *ids, size_t nids, bool all, int chunk, FILE *out,
                      err *e)
{
    if (nids < 1 || nids > INT32_MAX)
        return err_set_param(e, ERR_INVALID, "ids", "%zu token ids, expected 1 or more", nids);
    int rows = least(chunk > 0 ? chunk : CHUNK, (int)nids);
    if (all)
        rows = least(rows, ALL_ROWS);
    struct runner *r;
    err_code code = runner_open(m, rows, 1, all ? rows : 1, nids, true, &r, e);
    if (code)
        return code;
    code = run_chunks(r, ids, (int)nids, all, rows, out, e);
    runner_close(r);
    return code;
}

// ---- bench

struct bench {
    struct runner *r;
    const struct tools_bench *b;
    const struct tools_model *m;
    struct cpu_speed speed;
    struct kv_seq *base, *seqs;  // [parallel]: at `depth` positions, and the copies that a repetition uses
    struct piece *pieces;
    int32_t *ids;                // [CHUNK] drawn tokens
    FILE *out;
};

static err_code feed(struct bench *t, struct kv_seq *s, int tokens, enum piece_out last, err *e)
{
    err_code code = ERR_OK;
    for (int at = 0, n; at < tokens && !code; at += n) {
        n = least(CHUNK, tokens - at);
        code = runner_step(t->r, &(struct piece){s, t->ids, n, at + n == tokens ? last : PIECE_NONE}, 1, e);
    }
    return code;
}

static void drop(struct bench *t, struct kv_seq *seqs)
{
    for (int i = 0; i < t->b->parallel; i++)
        kv_seq_done(&seqs[i]);
}

// Every sequence goes back to `depth` positions.
static err_code rewind_all(struct bench *t, err *e)
{
    drop(t, t->seqs);
    for (int i = 0; i < t->b->parallel; i++) {
        if (!kv_seq_fork(&t->base[i], &t->seqs[i]))
            return err_set(e, ERR_MEMORY, "the KV cache of %d pages is full", kv_pool_pages(t->r->pool));
    }
    return ERR_OK;
}

static err_code run_prompt(struct bench *t, err *e)
{
    err_code code = ERR_OK;
    for (int i = 0; i < t->b->parallel && !code; i++)
        code = feed(t, &t->seqs[i], t->b->prompt, PIECE_LAST, e);
    return code;
}

static err_code run_generate(struct bench *t, err *e)
{
    err_code code = ERR_OK;
    for (int k = 0; k < t->b->generate && !code; k++) {
        for (int i = 0; i < t->b->parallel; i++)
            t->pieces[i] = (struct piece){&t->seqs[i], &t->ids[(k + i) % CHUNK], 1, PIECE_LAST};
        code = runner_step(t->r, t->pieces, t->b->parallel, e);
    }
    return code;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median seconds of the repetitions, after one that is not counted.
static err_code time_it(struct bench *t, err_code (*run)(struct bench *, err *), double *ret_s, err *e)
{
    double s[MAX_REPS];
    int reps = t->b->reps > 0 ? least(t->b->reps, MAX_REPS) : 5;
    for (int i = -1; i < reps; i++) {
        err_code code = rewind_all(t, e);
        double start = clock_s();
        if (!code)
            code = run(t, e);
        if (code)
            return code;
        if (i >= 0)
            s[i] = clock_s() - start;
    }
    qsort(s, (size_t)reps, sizeof *s, by_value);
    *ret_s = s[reps / 2];
    return ERR_OK;
}

static void print_figure(const struct bench *t, const char *test, int tokens, double seconds, double gb_s, double limit,
                         double share, const char *unit)
{
    fprintf(t->out,
            "{\"test\": \"%s%d\", \"threads\": %d, \"depth\": %d, \"parallel\": %d, \"tok_s\": %.2f, \"gb_s\": %.2f, "
            "\"limit\": %.2f, \"limit_unit\": \"%s\", \"share\": %.4f, \"isa\": \"%s\", \"model\": \"",
            test, tokens, team_size(t->r->team), t->b->depth, t->b->parallel, tokens * t->b->parallel / seconds, gb_s,
            limit, unit, share, t->r->ops->isa);
    for (const char *p = t->m->path; *p; p++) {
        if (*p == '"' || *p == '\\' || (unsigned char)*p < 32)
            fprintf(t->out, "\\u%04x", (unsigned char)*p);
        else
            fputc(*p, t->out);
    }
    fprintf(t->out, "\"}\n");
    fflush(t->out);
}

// A prompt is bound by arithmetic: share is of the integer or float peak, whichever its weights use.
static err_code bench_prompt(struct bench *t, err *e)
{
    double s;
    err_code code = time_it(t, run_prompt, &s, e);
    if (code)
        return code;
    const struct model *m = t->r->model;
    double tokens = (double)t->b->prompt * t->b->parallel;
    double steps = (double)t->b->parallel * ((t->b->prompt + CHUNK - 1) / CHUNK);
    double peak = m->options.math == MAT_INT8 ? t->speed.int8_gop_s : t->speed.fma_gflop_s;
    double done = 2 * (double)m->token_macs * tokens / s * 1e-9;
    print_figure(t, "pp", t->b->prompt, s, (double)m->token_bytes * steps / s * 1e-9, peak, peak > 0 ? done / peak : 0,
                 m->options.math == MAT_INT8 ? "int8 GOP/s" : "f32 GFLOP/s");
    return ERR_OK;
}

// Generation is bound by memory: each step reads the weights once, and every sequence its keys and values.
static err_code bench_generate(struct bench *t, err *e)
{
    double s;
    err_code code = time_it(t, run_generate, &s, e);
    if (code)
        return code;
    const struct model *m = t->r->model;
    double keys = t->b->depth + t->b->generate * 0.5;
    double step = (double)m->token_bytes + keys * (double)kv_token_bytes(kv_pool_layout(t->r->pool)) * t->b->parallel;
    double gb_s = step * t->b->generate / s * 1e-9, limit = t->speed.read_gb_s;
    print_figure(t, "tg", t->b->generate, s, gb_s, limit, limit > 0 ? gb_s / limit : 0, "GB/s");
    return ERR_OK;
}

static err_code prepare(struct bench *t, err *e)
{
    size_t n = (size_t)t->b->parallel;
    t->base = mem_new(n * sizeof *t->base);
    t->seqs = mem_new(n * sizeof *t->seqs);
    t->pieces = mem_new(n * sizeof *t->pieces);
    t->ids = mem_new(CHUNK * sizeof *t->ids);
    for (int i = 0; i < CHUNK; i++)
        t->ids[i] = (int32_t)(rng_u64(1, (uint64_t)i, 0) % (uint64_t)t->r->model->vocab);
    for (size_t i = 0; i < n; i++) {
        kv_seq_init(&t->base[i], t->r->pool);
        kv_seq_init(&t->seqs[i], t->r->pool);
    }
    for (size_t i = 0; i < n; i++) {
        err_code code = feed(t, &t->base[i], t->b->depth, PIECE_NONE, e);
        if (code)
            return code;
    }
    return ERR_OK;
}

static err_code check_bench(const struct tools_bench *b, err *e)
{
    const struct {
        const char *name;
        int value, low, high;
    } fields[] = {{"pp", b->prompt, 0, 1 << 24}, {"tg", b->generate, 0, 1 << 24}, {"depth", b->depth, 0, 1 << 24},
                  {"parallel", b->parallel, 1, MAX_PARALLEL}, {"reps", b->reps, 0, MAX_REPS}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].value < fields[i].low || fields[i].value > fields[i].high)
            return err_set_param(e, ERR_INVALID, fields[i].name, "%s is %d, expected %d to %d", fields[i].name,
                                 fields[i].value, fields[i].low, fields[i].high);
    }
    return ERR_OK;
}

err_code tools_bench(const struct tools_model *m, const struct tools_bench *b, FILE *out, err *e)
{
    err_code code = check_bench(b, e);
    if (code)
        return code;
    int rows = b->parallel > CHUNK ? b->parallel : CHUNK, longest = b->prompt > b->generate ? b->prompt : b->generate;
    size_t positions = 2 * (size_t)b->parallel * (size_t)(b->depth + longest + KV_PAGE_TOKENS);
    struct bench t = {.b = b, .m = m, .out = out};
    code = runner_open(m, rows, b->parallel, b->parallel, positions, true, &t.r, e);
    if (code)
        return code;
    code = cpu_measure(team_size(t.r->team), &t.speed, e);
    if (!code)
        code = prepare(&t, e);
    if (!code && b->prompt)
        code = bench_prompt(&t, e);
    if (!code && b->generate)
        code = bench_generate(&t, e);
    if (t.seqs) {
        drop(&t, t.seqs);
        drop(&t, t.base);
    }
    free(t.base);
    free(t.seqs);
    free(t.pieces);
    free(t.ids);
    runner_close(t.r);
    return code;
}

// ---- devices

static void show_gpus(FILE *out)
{
    struct gpu_info gpus[GPU_MAX];
    const char *why;
    int n = gpu_probe(gpus, GPU_MAX, &why);
    if (n == 0)
        fprintf(out, "gpu          none: %s\n", why);
    for (int i = 0; i < n && i < GPU_MAX; i++)
        fprintf(out, "gpu %-8d %s, %.1f GB, compute capability %d.%d; not used yet\n", i, gpus[i].name,
                (double)gpus[i].memory * 1e-9, gpus[i].major, gpus[i].minor);
}

err_code tools_devices(FILE *out, err *e)
{
    struct cpu_info c;
    struct cpu_speed s;
    struct team *team;
    cpu_probe(&c);
    err_code code = team_open(0, false, &team, e);
    if (code)
        return code;
    int threads = team_size(team);
    team_close(team);
    code = cpu_measure(threads, &s, e);
    if (code)
        return code;
    fprintf(out, "cpu          %s\nfeatures     %s\nkernels      %s\n", c.model, c.features, c.isa);
    fprintf(out, "cores        %d online, %d usable", c.cores, c.usable);
    if (c.quota > 0)
        fprintf(out, ", quota of %.2f", c.quota);
    fprintf(out, "; %d used\n", threads);
    fprintf(out, "caches       L1d %zu KB, L2 %zu KB, L3 %zu KB\n", c.l1d >> 10, c.l2 >> 10, c.l3 >> 10);
    fprintf(out, "memory       %.1f GB\n", (double)c.memory * 1e-9);
    fprintf(out, "measured     %.1f GB/s read, %.0f GFLOP/s f32, %.0f GOP/s int8 on %d threads\n", s.read_gb_s,
            s.fma_gflop_s, s.int8_gop_s, threads);
    show_gpus(out);
    return ERR_OK;
}
