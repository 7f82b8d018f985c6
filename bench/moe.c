// moe.c - micro-benchmark of a mixture of experts beside a dense MLP of as many multiply-adds: JSON lines with microseconds,
// GOP/s, GB/s of expert weights read, and the share of the dense figure.
//
//     build/bench/moe [--threads N] [--isa NAME] [--type Q4_0] [--hidden 1024] [--experts 64] [--ffn 768] [--quick]
//
// 8 experts a token; the dense MLP has 8 times an expert's width. Every run has other tokens, so other experts; the dense
// weights are rotated over copies beyond the caches. Both are timed in turns, in CPU time of the slowest lane; the figure is
// the smallest of the times.
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/blocks/moe.h"

enum { TOP_K = 8, MAX_TOKENS = 512, ROWS = 4096, LANES = 256, COPIES = 16, BLOCK = 256 << 20 };

static const struct cpu_ops *ops;
static struct team *team;
static bool quick;
static struct moe_dims dims = {.hidden = 1024, .experts = 64, .top_k = TOP_K, .ffn = 768, .normalise = true};

struct dense {
    struct linear gate, up, down;
};

struct bench {
    struct moe moe;
    struct dense dense[COPIES];
    float *x, *y, *mid, *up;
    uint8_t *acts, *mid_acts, *scratch;
    int tokens, first, copy;
    double seconds[LANES];
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *pages(size_t bytes)
{
    void *p = mem_try_pages(bytes);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

// All weights lie in one mapping on huge pages, as a loader puts them.
static uint8_t *next_weight(size_t bytes)
{
    static uint8_t *block;
    static size_t left;
    bytes = (bytes + 63) & ~(size_t)63;
    if (bytes > left) {
        left = (size_t)(bytes > BLOCK ? bytes : BLOCK);
        block = pages(left);
    }
    uint8_t *p = block;
    block += bytes;
    left -= bytes;
    return p;
}

static void make(struct linear *l, enum quant_type type, int out, int in)
{
    static uint32_t seed = 12345;
    err e = {0};
    size_t bytes;
    *l = (struct linear){.out = out, .in = in};
    if (mat_plan(&l->w, type, out, in, MAT_INT8, &e) || !quant_bytes(type, (size_t)out, (size_t)in, &bytes)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    uint8_t *p = next_weight(l->w.bytes ? l->w.bytes : bytes);
    for (size_t i = 0; i < (l->w.bytes ? l->w.bytes : bytes); i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (uint8_t)(seed >> 24) & 0xb3;  // no infinite, NaN or large number in it
    }
    l->w.data = p;
}

static float normal(uint64_t i)
{
    return (float)(rng_unit(3, i, 0) + rng_unit(3, i, 1) + rng_unit(3, i, 2) - 1.5) * 2;
}

static struct bench *open_bench(enum quant_type type)
{
    struct bench *b = mem_new(sizeof *b);
    size_t hidden = (size_t)dims.hidden, wide = (size_t)dims.ffn * TOP_K;
    int lanes = team_size(team);
    b->moe.dims = dims;
    b->moe.gate = mem_new((size_t)dims.experts * sizeof *b->moe.gate);
    b->moe.up = mem_new((size_t)dims.experts * sizeof *b->moe.up);
    b->moe.down = mem_new((size_t)dims.experts * sizeof *b->moe.down);
    make(&b->moe.router, QUANT_F32, dims.experts, dims.hidden);
    float *router = pages(b->moe.router.w.bytes);
    for (size_t i = 0; i < b->moe.router.w.bytes / sizeof *router; i++)
        router[i] = normal(i) * 0.1f;
    b->moe.router.w.data = (const uint8_t *)router;
    for (int i = 0; i < dims.experts; i++) {
        make(&b->moe.gate[i], type, dims.ffn, dims.hidden);
        make(&b->moe.up[i], type, dims.ffn, dims.hidden);
        make(&b->moe.down[i], type, dims.hidden, dims.ffn);
    }
    for (int i = 0; i < COPIES; i++) {
        make(&b->dense[i].gate, type, (int)wide, dims.hidden);
        make(&b->dense[i].up, type, (int)wide, dims.hidden);
        make(&b->dense[i].down, type, dims.hidden, (int)wide);
    }
    b->x = pages(ROWS * hidden * sizeof(float));
    for (size_t i = 0; i < ROWS * hidden; i++)
        b->x[i] = normal(i);
    b->y = pages(MAX_TOKENS * hidden * sizeof(float));
    b->mid = pages(MAX_TOKENS * wide * sizeof(float));
    b->up = pages(MAX_TOKENS * wide * sizeof(float));
    b->acts = pages(acts_bytes(MAX_TOKENS, dims.hidden, MAT_INT8));
    b->mid_acts = pages(acts_bytes(MAX_TOKENS, (int)wide, MAT_INT8));
    b->scratch = pages(moe_scratch_bytes(&dims, MAT_INT8, MAX_TOKENS, lanes));
    return b;
}

static void run_moe(struct lane *lane, void *arg)
{
    struct bench *b = arg;
    struct acts a;
    struct moe_step s;
    lane_barrier(lane);
    double start = now();
    acts_init(&a, b->acts, b->tokens, dims.hidden, MAT_INT8);
    linear_input(lane, ops, &a, b->x + (size_t)b->first * (size_t)dims.hidden, dims.hidden, b->tokens);
    moe_begin(&s, &b->moe, ops, lane, MAT_INT8, b->tokens, b->scratch);
    moe_route(&s, &a);
    moe_experts(&s, &a, b->y, dims.hidden);
    b->seconds[lane->id] = now() - start;
}

static void run_dense(struct lane *lane, void *arg)
{
    struct bench *b = arg;
    const struct dense *d = &b->dense[b->copy];
    struct acts a;
    int wide = d->gate.out, lo, hi;
    float *y = b->y;
    lane_barrier(lane);
    double start = now();
    acts_init(&a, b->acts, b->tokens, dims.hidden, MAT_INT8);
    linear_input(lane, ops, &a, b->x + (size_t)b->first * (size_t)dims.hidden, dims.hidden, b->tokens);
    lane_split(lane, wide, MAT_GROUP, &lo, &hi);
    linear_groups(ops, &d->gate, b->mid, wide, &a, lo / MAT_GROUP, hi / MAT_GROUP, MAT_STORE);
    linear_groups(ops, &d->up, b->up, wide, &a, lo / MAT_GROUP, hi / MAT_GROUP, MAT_STORE);
    for (int t = 0; t < b->tokens; t++) {
        float *to = b->mid + (size_t)t * (size_t)wide + lo;
        ops->silu_mul(to, to, b->up + (size_t)t * (size_t)wide + lo, hi - lo);
    }
    lane_barrier(lane);
    acts_init(&a, b->mid_acts, b->tokens, wide, MAT_INT8);
    linear_input(lane, ops, &a, b->mid, wide, b->tokens);
    linear_apply(lane, ops, (const struct linear *[]){&d->down}, &y, &dims.hidden, 1, &a, MAT_ADD);
    lane_barrier(lane);
    b->seconds[lane->id] = now() - start;
}

static double once(struct bench *b, team_fn *fn)
{
    double worst = 0;
    team_run(team, fn, b);
    for (int i = 0; i < team_size(team); i++)
        worst = b->seconds[i] > worst ? b->seconds[i] : worst;
    return worst;
}

static void measure(struct bench *b, enum quant_type type, int tokens)
{
    double moe = 1e9, dense = 1e9, start = clock_s();
    b->tokens = tokens;
    for (int i = 0; i < 400 && (i < 5 || clock_s() - start < (quick ? 1 : 4)); i++) {
        b->first = (int)((unsigned)i * 521u % (unsigned)(ROWS - tokens));
        b->copy = i % COPIES;
        double t = once(b, run_moe);
        moe = t < moe ? t : moe;
        t = once(b, run_dense);
        dense = t < dense ? t : dense;
    }
    double macs = 3.0 * dims.hidden * dims.ffn * TOP_K * tokens;
    double bytes = (double)(b->dense[0].gate.w.bytes * 2 + b->dense[0].down.w.bytes);
    printf("{\"test\": \"moe\", \"type\": \"%s\", \"tokens\": %d, \"threads\": %d, \"isa\": \"%s\", \"us\": %.1f, \"dense_us\": %.1f, "
           "\"gop_s\": %.1f, \"share_of_dense\": %.3f",
           quant_get(type)->name, tokens, team_size(team), ops->isa, moe * 1e6, dense * 1e6, 2e-9 * macs / moe, dense / moe);
    if (tokens == 1)
        printf(", \"gb_s\": %.1f, \"dense_gb_s\": %.1f", bytes / moe * 1e-9, bytes / dense * 1e-9);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"threads", 1, NULL, 't'}, {"isa", 1, NULL, 'i'}, {"type", 1, NULL, 'y'},
                                            {"hidden", 1, NULL, 'h'}, {"experts", 1, NULL, 'e'}, {"ffn", 1, NULL, 'f'},
                                            {"quick", 0, NULL, 'q'}, {0}};
    static const int tokens[] = {1, 8, 64, MAX_TOKENS};
    const char *isa = NULL;
    enum quant_type type = QUANT_Q4_0;
    int threads = 0;
    err e = {0};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 't')
            threads = atoi(optarg);
        else if (c == 'i')
            isa = optarg;
        else if (c == 'h')
            dims.hidden = atoi(optarg);
        else if (c == 'e')
            dims.experts = atoi(optarg);
        else if (c == 'f')
            dims.ffn = atoi(optarg);
        else if (c == 'q')
            quick = true;
        else if (c != 'y' || !quant_from_name(optarg, &type))
            return 2;
    }
    if (moe_check(&dims, "bench", &e) || cpu_select(isa, &ops, &e) || team_open(threads, true, &team, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct bench *b = open_bench(type);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        measure(b, type, tokens[i]);
    team_close(team);
    return 0;
}
