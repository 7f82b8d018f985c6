// kernels.c - micro-benchmark of the matrix kernels and attention: JSON lines with GB/s and GOP/s, and the share of the
// ceilings that were measured in the same run.
//
//     build/bench/kernels [--threads N] [--isa NAME] [--type Q4_1|attn|mha] [--activations int8|f32|bf16] [--quick]
//
// Weights are rotated over copies that exceed the caches. The figure is the lower quartile of times.
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/team.h"

enum { MAX_TOKENS = 512, COPIES = 400 };

static const struct cpu_ops *ops;
static struct team *team;
static struct cpu_speed peak;
static bool quick;
static enum mat_math math = MAT_INT8;

struct job {
    struct mat m;
    const uint8_t *copies[COPIES];
    int ncopies, at, reps;
    double seconds[256];  // of each lane
    struct acts a;
    float *y;
};

// Each lane counts its own CPU time, so that a busy neighbour is not measured.
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void multiply(struct lane *lane, void *arg)
{
    struct job *j = arg;
    struct mat m = j->m;
    int lo, hi;
    lane_split(lane, mat_groups(&m), 1, &lo, &hi);
    lane_barrier(lane);
    double start = now();
    for (int r = 0; r < j->reps; r++) {
        m.data = j->copies[(j->at + r) % j->ncopies];
        mat_mul(ops, &m, &j->a, j->y, m.rows, lo, hi, MAT_STORE);
    }
    j->seconds[lane->id] = now() - start;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds of the slowest lane for one product.
static double once(struct job *j)
{
    double worst = 0;
    team_run(team, multiply, j);
    j->at = (j->at + j->reps) % j->ncopies;
    for (int l = 0; l < team_size(team); l++)
        worst = j->seconds[l] > worst ? j->seconds[l] : worst;
    return worst / j->reps;
}

static double lower_quartile(struct job *j, double budget)
{
    double times[400], start = clock_s();
    int n = 0;
    j->reps = 1;
    double first = once(j);
    j->reps = first < 1e-4 ? 8 : 1;
    while (n < 400 && (n < 5 || clock_s() - start < budget))
        times[n++] = once(j);
    qsort(times, (size_t)n, sizeof *times, by_value);
    return times[n / 4];
}

static void fill_random(uint8_t *p, size_t n)
{
    uint32_t s = 12345;
    for (size_t i = 0; i < n; i++) {
        s = s * 1664525 + 1013904223;
        p[i] = (uint8_t)(s >> 24) & 0xbb;  // no infinite or NaN f16, bf16 or f32 in it
    }
}

static void bench_matrix(enum quant_type type, int rows, int cols)
{
    static const int tokens[] = {1, 2, 4, 8, 32, 512};
    struct job *j = mem_new(sizeof *j);
    err e = {0};
    if (mat_plan(&j->m, type, rows, cols, math, &e)) {
        free(j);
        return;
    }
    size_t bytes = j->m.bytes ? j->m.bytes : (size_t)rows * (size_t)cols;
    size_t stride = (bytes + 63) & ~(size_t)63;
    j->ncopies = (int)(((size_t)160 << 20) / stride) + 1;
    j->ncopies = j->ncopies > COPIES ? COPIES : j->ncopies;
    size_t total = stride * (size_t)j->ncopies, act_bytes = acts_bytes(MAX_TOKENS, cols, math);
    uint8_t *w = mem_try_pages(total), *am = mem_try_pages(act_bytes);
    float *x = mem_try_pages((size_t)cols * MAX_TOKENS * 4);
    j->y = mem_try_pages((size_t)rows * MAX_TOKENS * 4);
    if (!w || !am || !x || !j->y)
        exit(1);
    fill_random(w, bytes);
    for (int i = 0; i < j->ncopies; i++) {
        j->copies[i] = w + stride * (size_t)i;
        if (i)
            memcpy(w + stride * (size_t)i, w, bytes);
    }
    for (int i = 0; i < cols * MAX_TOKENS; i++)
        x[i] = (float)(i % 8191 * 7919 % 255 - 127) / 64;
    double limit = j->m.math == MAT_INT8 ? peak.int8_gop_s : j->m.math == MAT_BF16 ? peak.bf16_gflop_s : peak.fma_gflop_s;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        int n = tokens[i];
        if (quick && n != 1 && n != 8 && n != 512)
            continue;
        if (n > 8 && rows > 10000)
            continue;
        acts_init(&j->a, am, MAX_TOKENS, cols, math);
        j->a.n = n;
        acts_set(ops, &j->a, x, cols, 0, n);
        double s = lower_quartile(j, quick ? 0.08 : 0.25);
        double gb = (double)bytes / s * 1e-9, gop = 2.0 * rows * cols * n / s * 1e-9;
        printf("{\"bench\": \"mat\", \"type\": \"%s\", \"rows\": %d, \"cols\": %d, \"n\": %d, \"threads\": %d, "
               "\"isa\": \"%s\", \"activations\": \"%s\", \"us\": %.1f, \"gb_s\": %.1f, \"read_share\": %.2f, \"gop_s\": %.0f, \"op_share\": %.2f}\n",
               quant_get(type)->name, rows, cols, n, team_size(team), ops->isa, mat_math_name(j->m.math), s * 1e6, gb, gb / peak.read_gb_s, gop,
               gop / limit);
        fflush(stdout);
    }
    mem_free_pages(w, total);
    mem_free_pages(am, act_bytes);
    mem_free_pages(x, (size_t)cols * MAX_TOKENS * 4);
    mem_free_pages(j->y, (size_t)rows * MAX_TOKENS * 4);
    free(j);
}

enum { PAGE = 64, ATTN_ROWS = 36 };

// One head's cache out of several that lie as a KV pool has them: a page holds `heads` heads' keys and values.
struct cache {
    uint8_t *memory;
    size_t bytes, head;  // head: of a page
    int heads, npages;
    void **pages;
};

static struct cache make_cache(int head_dim, int depth, int heads, enum kv_type kv)
{
    size_t row = kv_row_bytes(kv, head_dim);
    struct cache c = {.head = 2 * row * PAGE, .heads = heads, .npages = (depth + PAGE - 1) / PAGE};
    c.bytes = c.head * (size_t)heads * (size_t)c.npages;
    c.memory = mem_try_pages(c.bytes);
    c.pages = mem_new(sizeof *c.pages * (size_t)c.npages);
    float x[512];
    uint8_t key[2048];
    for (int i = 0; i < head_dim; i++)
        x[i] = (float)(i % 17 - 8) / 8;
    ops->kv_store(key, x, head_dim, kv);
    for (int p = 0; p < PAGE; p++) {
        kv_put_key(c.memory, p, key, head_dim, kv);
        ops->kv_store(c.memory + row * (size_t)(PAGE + p), x, head_dim, kv);
    }
    for (int i = 1; i < heads * c.npages; i++)
        memcpy(c.memory + c.head * (size_t)i, c.memory, c.head);
    for (int i = 0; i < c.npages; i++)
        c.pages[i] = c.memory + c.head * (size_t)(i * heads);
    return c;
}

// One lane; the last `rows` of depth positions, in the chunks the engine takes. With one row, all `together` KV heads of a
// layer are taken in one call, and layers are rotated so that nothing stays in a cache.
static void bench_attn(int head_dim, int group, int together, int depth, int rows, enum kv_type kv)
{
    int width = together * group * head_dim;
    size_t row = kv_row_bytes(kv, head_dim);
    int layers = rows > 1 ? 1 : (int)(((size_t)96 << 20) / (2 * row * (size_t)(depth * together))) + 1, heads = layers * together;
    struct cache c = make_cache(head_dim, depth, heads, kv);
    float *q = mem_new(sizeof(float) * (size_t)(rows * width)), *out = mem_new(sizeof(float) * (size_t)(rows * width));
    float *scratch = mem_new(sizeof(float) * (size_t)attn_scratch_floats(group, head_dim));
    for (int i = 0; i < rows * width; i++)
        q[i] = (float)(i % 17 - 8) / 8;
    double times[400], start = clock_s();
    int n = 0;
    for (; n < 400 && (n < 5 || clock_s() - start < 0.25); n++) {
        struct attn_args a = {
            .ldq = width, .ldo = width, .group = group, .head_dim = head_dim, .scale = 0.1f, .pages = c.pages,
            .page_tokens = PAGE, .k_off = c.head * (size_t)(n % layers * together), .kv = kv, .scratch = scratch,
            .heads = together, .head_step = c.head,
        };
        a.v_off = a.k_off + row * PAGE;
        double t = now();
        for (int r = 0; r < rows; r += ATTN_ROWS) {
            a.q = q + r * width;
            a.out = out + r * width;
            a.rows = rows - r < ATTN_ROWS ? rows - r : ATTN_ROWS;
            a.pos0 = depth - rows + r;
            ops->attn(&a);
        }
        times[n] = now() - t;
    }
    qsort(times, (size_t)n, sizeof *times, by_value);
    double s = times[n / 4], flop = 4.0 * width * ((double)rows * (depth - rows) + 0.5 * rows * (rows + 1));
    double gb = 2.0 * (double)row * together * depth / s * 1e-9;
    printf("{\"bench\": \"attn\", \"kv\": \"%s\", \"head_dim\": %d, \"group\": %d, \"heads\": %d, \"depth\": %d, \"rows\": %d, "
           "\"isa\": \"%s\", \"us\": %.1f, \"gb_s\": %.1f, \"read_share\": %.2f, \"gflop_s\": %.1f, \"fma_share\": %.2f}\n",
           kv_type_name(kv), head_dim, group, together, depth, rows, ops->isa, s * 1e6, gb, gb * team_size(team) / peak.read_gb_s,
           flop / s * 1e-9, flop / s * 1e-9 * team_size(team) / peak.fma_gflop_s);
    fflush(stdout);
    mem_free_pages(c.memory, c.bytes);
    free(c.pages);
    free(q);
    free(out);
    free(scratch);
}

static void bench_attention(void)
{
    static const int decode[][4] = {{64, 3, 3, 2048},  {64, 4, 8, 2048},  {128, 1, 8, 2048}, {128, 2, 8, 2048},
                                    {128, 2, 4, 8192}, {128, 4, 8, 2048}, {128, 8, 4, 2048}, {256, 4, 2, 2048},
                                    {80, 1, 8, 2048},  {96, 1, 8, 2048}};
    static const int prefill[][3] = {{64, 3, 512}, {128, 2, 512}, {64, 3, 4096}, {64, 1, 4096}, {128, 2, 4096},
                                     {128, 4, 4096}, {128, 8, 4096}};
    for (size_t i = 0; i < sizeof decode / sizeof *decode; i++) {
        for (int kv = 0; kv < 3; kv++) {
            if (kv == KV_F16 || i == 0 || i == 3)
                bench_attn(decode[i][0], decode[i][1], decode[i][2], decode[i][3], 1, (enum kv_type)kv);
        }
    }
    for (size_t i = 0; i < sizeof prefill / sizeof *prefill; i++)
        bench_attn(prefill[i][0], prefill[i][1], 1, prefill[i][2], 512, KV_F16);
    bench_attn(128, 2, 1, 4096, 512, KV_F32);
    bench_attn(128, 2, 1, 4096, 512, KV_Q8);
}

// One lane, all heads, a unit of rows at a time as engine/blocks/mha.c cuts them.
static void bench_mha(int rows, int keys, int heads, int head_dim)
{
    int width = heads * head_dim, unit = 192;
    float *q = mem_try_pages(sizeof(float) * (size_t)(rows * width)), *k = mem_try_pages(sizeof(float) * (size_t)(keys * width));
    float *v = mem_try_pages(sizeof(float) * (size_t)(keys * width)), *out = mem_try_pages(sizeof(float) * (size_t)(rows * width));
    float *scratch = mem_new(sizeof(float) * attn_mha_floats(unit, head_dim));
    if (!q || !k || !v || !out)
        exit(1);
    for (int i = 0; i < rows * width; i++)
        q[i] = (float)(i % 17 - 8) / 8;
    for (int i = 0; i < keys * width; i++)
        k[i] = v[i] = (float)(i % 23 - 11) / 8;
    double best = 1e9, flop = 4.0 * rows * keys * width;
    for (int i = 0; i < 20 && (i < 3 || flop < 4e9); i++) {
        double t = now();
        for (int h = 0; h < heads; h++) {
            for (int r = 0; r < rows; r += unit) {
                struct mha_args a = {
                    .q = q + r * width + h * head_dim, .k = k + h * head_dim, .v = v + h * head_dim,
                    .out = out + r * width + h * head_dim, .ldq = width, .ldk = width, .ldv = width, .ldo = width,
                    .rows = rows - r < unit ? rows - r : unit, .keys = keys, .head_dim = head_dim, .scale = 0.1f,
                    .scratch = scratch,
                };
                ops->mha(&a);
            }
        }
        t = now() - t;
        best = t < best ? t : best;
    }
    printf("{\"bench\": \"mha\", \"rows\": %d, \"keys\": %d, \"heads\": %d, \"head_dim\": %d, \"isa\": \"%s\", \"us\": %.1f, "
           "\"gflop_s\": %.1f, \"fma_share\": %.2f}\n", rows, keys, heads, head_dim, ops->isa, best * 1e6, flop / best * 1e-9,
           flop / best * 1e-9 * team_size(team) / peak.fma_gflop_s);
    mem_free_pages(q, sizeof(float) * (size_t)(rows * width));
    mem_free_pages(k, sizeof(float) * (size_t)(keys * width));
    mem_free_pages(v, sizeof(float) * (size_t)(keys * width));
    mem_free_pages(out, sizeof(float) * (size_t)(rows * width));
    free(scratch);
}

static void bench_elements(void)
{
    static const char *const names[] = {"gelu erf", "gelu tanh", "gelu quick", "silu", "layernorm"};
    enum { N = 1536, REPS = 2000 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 97 - 48) / 12;
    for (int kind = 0; kind < 5; kind++) {
        double best = 1e9;
        for (int i = 0; i < 10; i++) {
            double t = now();
            for (int r = 0; r < REPS; r++) {
                if (kind < 3)
                    ops->gelu(y, x, N, (enum gelu)kind);
                else if (kind == 3)
                    ops->silu(y, x, N);
                else
                    ops->layernorm(y, x, x, x, N, 1e-5f);
            }
            t = now() - t;
            best = t < best ? t : best;
        }
        printf("{\"bench\": \"%s\", \"isa\": \"%s\", \"ns_per_element\": %.3f}\n", names[kind], ops->isa, best / REPS / N * 1e9);
    }
}

static void barriers(struct lane *lane, void *arg)
{
    for (int i = 0; i < *(int *)arg; i++)
        lane_barrier(lane);
}

static void bench_team(void)
{
    int n = 20000;
    double t = clock_s();
    team_run(team, barriers, &n);
    printf("{\"bench\": \"barrier\", \"threads\": %d, \"ns\": %.0f}\n", team_size(team), (clock_s() - t) / n * 1e9);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"threads", 1, 0, 't'}, {"isa", 1, 0, 'i'}, {"type", 1, 0, 'y'},
                                            {"quick", 0, 0, 'q'}, {"activations", 1, 0, 'a'}, {0}};
    int threads = 0, opt;
    const char *isa = "auto", *only = NULL;
    err e = {0};
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == 't')
            threads = atoi(optarg);
        else if (opt == 'i')
            isa = optarg;
        else if (opt == 'y')
            only = optarg;
        else if (opt == 'a' && mat_math_from_name(optarg, &math))
            ;
        else if (opt == 'q')
            quick = true;
        else
            return 2;
    }
    if (cpu_select(isa, &ops, &e) || cpu_measure(threads, &peak, &e) || team_open(threads, true, &team, &e)) {
        fprintf(stderr, "kernels: %s\n", e.text);
        return 1;
    }
    printf("{\"bench\": \"ceilings\", \"threads\": %d, \"read_gb_s\": %.1f, \"fma_gflop_s\": %.0f, "
           "\"bf16_gflop_s\": %.0f, \"int8_gop_s\": %.0f}\n",
           team_size(team), peak.read_gb_s, peak.fma_gflop_s, peak.bf16_gflop_s, peak.int8_gop_s);
    bench_team();
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant_type type = (enum quant_type)i;
        if (only && strcmp(only, quant_get(type)->name))
            continue;
        bench_matrix(type, 4096, 4096);
        if (type == QUANT_Q4_1) {
            bench_matrix(type, 576, 576);
            bench_matrix(type, 1536, 576);
            bench_matrix(type, 576, 1536);
        } else if (type == QUANT_Q8_0) {
            bench_matrix(type, 49152, 576);
        }
    }
    if (!only || !strcmp(only, "attn"))
        bench_attention();
    if (!only || !strcmp(only, "mha")) {
        static const int shapes[][4] = {{4096, 4096, 8, 40}, {1024, 1024, 8, 80}, {256, 256, 8, 160}, {4096, 77, 8, 40},
                                        {1024, 77, 8, 80}, {1500, 1500, 8, 64}, {4096, 4096, 1, 512}, {256, 256, 12, 32},
                                        {64, 64, 12, 32}, {16, 16, 12, 32}, {1, 1500, 8, 64}, {5, 1500, 8, 64}};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            bench_mha(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        bench_elements();
    }
    team_close(team);
    return 0;
}
