// bench.c - the offline command bench: how fast a model is, and what the machine would allow at most.
//
// It runs the forward pass that is served, on the same team and the same KV pages, without a scheduler around it.
// Ceilings are measured by the same run on the same cores: reading for generation, around each repetition, and arithmetic
// for prompts.
#include "engine/tools.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/blocks/packed.h"
#include "engine/tools/runner.h"
#include "kernels/team.h"

enum { CHUNK = 512, MAX_REPS = 1000, MAX_PARALLEL = 4096 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

struct bench {
    struct runner *r;
    const struct tools_bench *b;
    const struct tools_model *m;
    struct cpu_speed speed;
    struct kv_seq *base, *seqs;  // [parallel]: at `depth` positions, and the copies that a repetition uses
    struct piece *pieces;
    int32_t *ids;                // [CHUNK] drawn tokens
    int chunk, reps;
    double *times;               // [reps] seconds, ascending after time_it
    struct cpu_meter *meter;
    double *reads;               // [reps] GB/s that could be read around each, in no order after time_it
    FILE *out;
};

// A line of output but for what all of them share.
struct figure {
    const char *test, *unit;
    int tokens;           // of each sequence
    double bytes_token;   // read for one token
    double rate, limit;   // in unit, rate is for the median time
    double share;
};

static err_code feed(struct bench *t, struct kv_seq *s, int tokens, enum piece_out last, err *e)
{
    err_code code = ERR_OK;
    for (int at = 0, n; at < tokens && !code; at += n) {
        n = least(t->chunk, tokens - at);
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

// Times of the repetitions, after one that is not counted, and how fast memory could be read just before and after each.
static err_code time_it(struct bench *t, err_code (*run)(struct bench *, err *), err *e)
{
    double before = 0;
    for (int i = -1; i < t->reps; i++) {
        err_code code = rewind_all(t, e);
        double start = clock_s();
        if (!code)
            code = run(t, e);
        if (code)
            return code;
        double took = clock_s() - start, after = cpu_meter_read_gb_s(t->meter);
        if (i >= 0) {
            t->times[i] = took;
            t->reads[i] = 0.5 * (before + after);
        }
        before = after;
    }
    return ERR_OK;
}

// Sorts; of an even number the upper one of the two in the middle.
static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

static void print_text(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\' || (unsigned char)*p < 32)
            fprintf(out, "\\u%04x", (unsigned char)*p);
        else
            fputc(*p, out);
    }
}

static void print_figure(const struct bench *t, const struct figure *f)
{
    double tokens = (double)f->tokens * t->b->parallel, speed = tokens / t->times[t->reps / 2];
    fprintf(t->out, "{\"test\": \"%s%d\", \"threads\": %d, \"depth\": %d, \"parallel\": %d, \"tok_s\": %.2f, ", f->test,
            f->tokens, team_size(t->r->team), t->b->depth, t->b->parallel, speed);
    fprintf(t->out, "\"gb_s\": %.2f, \"bytes_token\": %.0f, \"rate\": %.2f, \"limit\": %.2f, \"limit_unit\": \"%s\", ",
            f->bytes_token * speed * 1e-9, f->bytes_token, f->rate, f->limit, f->unit);
    fprintf(t->out, "\"share\": %.4f, ", f->share);
    fprintf(t->out, "\"samples\": [");
    for (int i = 0; i < t->reps; i++)
        fprintf(t->out, "%s%.2f", i ? ", " : "", tokens / t->times[t->reps - 1 - i]);
    fprintf(t->out, "], \"isa\": \"%s\", \"activations\": \"%s\", \"kv\": \"%s\", \"model\": \"", t->r->ops->isa,
            mat_math_name(t->r->model->options.math), kv_type_name(t->r->model->options.kv));
    print_text(t->out, t->m->path);
    fprintf(t->out, "\"}\n");
    fflush(t->out);
}

// How a type's products can be summed: |weight - zero point| * 127 * (products in a 16-bit lane) must stay below 2^15.
static enum int8_sums sums_of(enum quant_type type)
{
    switch (type) {
    case QUANT_Q8_0:
    case QUANT_Q8_1:
    case QUANT_IQ4_NL:
    case QUANT_IQ4_XS:
        return INT8_WIDE;
    case QUANT_IQ2_XXS:
    case QUANT_IQ2_XS:
    case QUANT_IQ2_S:
    case QUANT_IQ3_XXS:
        return INT8_SUM2;
    case QUANT_Q2_K:
    case QUANT_Q3_K:
    case QUANT_Q6_K:
    case QUANT_NVFP4:
        return INT8_SUM4;
    default:
        return INT8_SUM8;
    }
}

// The head multiplies only the last row of a prompt.
static bool is_head(const struct model *m, const struct packed_matrix *w)
{
    return w->rows == m->vocab && w->cols == m->hidden;
}

// Keys that tokens from position `from` on see, each itself included.
static double seen_keys(int from, int tokens, int window)
{
    double keys = 0;
    for (int i = from + 1; i <= from + tokens; i++)
        keys += window ? least(i, window) : i;
    return keys;
}

// Products of attention for one prompt: scores, and weights with values.
static double attention_products(const struct bench *t)
{
    double products = 0;
    for (int i = 0; i < 2; i++) {
        const struct model_attention *a = &t->r->model->attention[i];
        products += 2.0 * a->layers * a->width * seen_keys(t->b->depth, t->b->prompt, a->window);
    }
    return products;
}

// What a prompt has to compute, and the time that takes at least: every matrix at the speed of the densest pattern its type
// may use, attention at that of FMA.
struct work {
    double gop, seconds;
    const char *unit;  // of what most of it is
};

// A mixture's matrices are weighed as if every token met all of them; what it computes are those it meets.
static struct work prompt_work(const struct bench *t)
{
    const struct model *m = t->r->model;
    double products = 0, seconds = 0, of[MAT_BF16 + 1] = {0};
    for (size_t i = 0; i < m->packed->nmatrices; i++) {
        const struct packed_matrix *w = &m->packed->matrices[i];
        double n = is_head(m, w) ? 0 : (double)w->rows * w->cols;
        products += n;
        of[w->math] += n;
        double peak = w->math == MAT_INT8 ? t->speed.sums_gop_s[sums_of(w->type)] : w->math == MAT_BF16 ? t->speed.bf16_gflop_s : t->speed.fma_gflop_s;
        seconds += peak > 0 ? n / peak : 0;
    }
    double attention = 2e-9 * attention_products(t), matrices = 2e-9 * (double)m->token_macs * t->b->prompt;
    struct work w = {.gop = matrices + attention};
    w.seconds = products > 0 ? matrices * seconds / products : 0;
    w.seconds += t->speed.fma_gflop_s > 0 ? attention / t->speed.fma_gflop_s : 0;
    w.unit = of[MAT_INT8] > 0.5 * products ? "int8 GOP/s" : of[MAT_BF16] > 0.5 * products ? "bf16 GFLOP/s" : "f32 GFLOP/s";
    return w;
}

// A prompt is bound by arithmetic.
static err_code bench_prompt(struct bench *t, err *e)
{
    err_code code = time_it(t, run_prompt, e);
    if (code)
        return code;
    const struct model *m = t->r->model;
    int steps = (t->b->prompt + t->chunk - 1) / t->chunk;
    struct work w = prompt_work(t);
    double rate = w.gop * t->b->parallel / median(t->times, t->reps), limit = w.seconds > 0 ? w.gop / w.seconds : 0;
    print_figure(t, &(struct figure){"pp", w.unit, t->b->prompt, (double)m->token_bytes * steps / t->b->prompt, rate, limit,
                                     limit > 0 ? rate / limit : 0});
    return ERR_OK;
}

// Generation is bound by memory: each step reads the weights once, and every sequence its keys and values.
static err_code bench_generate(struct bench *t, err *e)
{
    err_code code = time_it(t, run_generate, e);
    if (code)
        return code;
    const struct model *m = t->r->model;
    double keys = t->b->depth + t->b->generate * 0.5;
    double token = (double)m->token_bytes / t->b->parallel + keys * (double)kv_token_bytes(kv_pool_layout(t->r->pool));
    double bytes = token * t->b->generate * t->b->parallel * 1e-9;
    double *shares = mem_new((size_t)t->reps * sizeof *shares);
    for (int i = 0; i < t->reps; i++)
        shares[i] = bytes / t->times[i] / t->reads[i];
    print_figure(t, &(struct figure){"tg", "GB/s", t->b->generate, token, bytes / median(t->times, t->reps),
                                     median(t->reads, t->reps), median(shares, t->reps)});
    free(shares);
    return ERR_OK;
}

static err_code prepare(struct bench *t, err *e)
{
    size_t n = (size_t)t->b->parallel;
    t->base = mem_new(n * sizeof *t->base);
    t->seqs = mem_new(n * sizeof *t->seqs);
    t->pieces = mem_new(n * sizeof *t->pieces);
    t->ids = mem_new(CHUNK * sizeof *t->ids);
    t->times = mem_new((size_t)t->reps * sizeof *t->times);
    t->reads = mem_new((size_t)t->reps * sizeof *t->reads);
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
                  {"parallel", b->parallel, 1, MAX_PARALLEL}, {"reps", b->reps, 1, MAX_REPS},
                  {"chunk", b->chunk, 0, CHUNK}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].value < fields[i].low || fields[i].value > fields[i].high)
            return err_set_param(e, ERR_INVALID, fields[i].name, "%s is %d, expected %d to %d", fields[i].name,
                                 fields[i].value, fields[i].low, fields[i].high);
    }
    if (!b->prompt && !b->generate)
        return err_set(e, ERR_INVALID, "pp and tg are both 0: there is nothing to measure");
    return ERR_OK;
}

err_code tools_bench(const struct tools_model *m, const struct tools_bench *b, FILE *out, err *e)
{
    err_code code = check_bench(b, e);
    if (code)
        return code;
    int rows = b->parallel > CHUNK ? b->parallel : CHUNK, longest = b->prompt > b->generate ? b->prompt : b->generate;
    size_t positions = 2 * (size_t)b->parallel * (size_t)(b->depth + longest + KV_PAGE_TOKENS);
    struct bench t = {.b = b, .m = m, .out = out, .chunk = b->chunk ? b->chunk : CHUNK, .reps = b->reps};
    code = runner_open(m, rows, b->parallel, b->parallel, positions, true, &t.r, e);
    if (code)
        return code;
    if (b->depth + longest > t.r->model->context)
        code = err_set(e, ERR_CONTEXT, "depth %d and %d tokens after it, the model's context is %d", b->depth, longest,
                       t.r->model->context);
    if (!code)
        code = cpu_measure_ops(t.r->ops, team_size(t.r->team), &t.speed, e);
    if (!code)
        code = cpu_meter_open(t.r->ops, t.r->team, &t.meter, e);
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
    free(t.times);
    free(t.reads);
    cpu_meter_close(t.meter);
    runner_close(t.r);
    return code;
}

