// tools.c - the offline commands logits and devices. They run on the thread that calls them.
#include "engine/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/family/family.h"
#include "engine/runner.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"
#include "gpu/gpu.h"
#include "kernels/team.h"

enum { CHUNK = 512, ALL_ROWS = 64 };

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
