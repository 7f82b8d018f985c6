// quality.c - what a model's default arithmetic costs on a text: int8 activations and each KV type against f32 of both.
//
//     build/bench/quality --model FILE --text FILE [--tokens N] [--threads N] [--isa NAME] [--kinds] [--layers] [--layer N]
//
// A line of JSON each: the mean KL divergence of the next token's distribution from that of the reference, its median,
// 99th percentile and largest value in nats, how often the most likely token is the same, and both perplexities.
// --kinds: also with one kind of matrix at a time in f32 activations (all others int8), and one kind at a time in int8
// (all others f32); --layers: the same for layers; --layer N: instead of all that, each kind of that layer alone in int8.
// One thread does everything but the team's work; it owns the runner.
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/blocks/decoder.h"
#include "engine/tools/runner.h"
#include "engine/tokenizer/tokenizer.h"

enum { ROWS = 64 };  // of a step: bounds the memory of its logits
enum kind { QKV, O, GATE_UP, DOWN, HEAD, KINDS };
static const char *const kind_names[] = {"q k v", "o", "gate up", "down", "head"};

static struct tools_model options;
static const char *text_path;
static int max_tokens;
static bool any_bf16;  // weights

struct text {
    struct ids ids;
    int n, vocab;
    float *reference;  // [n, vocab] log probabilities
    size_t bytes;
};

struct score {
    double *kl;  // [n]
    double nll, reference_nll;
    int n, same, predicted;
};

// Which matrices have int8 activations; the others f32.
struct choice {
    const char *activations, *kv;
    int only_kind, but_kind, only_layer, but_layer;  // -1: no such limit
};

static bool chosen(const struct choice *c, int kind, int layer)
{
    return (c->only_kind < 0 || kind == c->only_kind) && (c->but_kind < 0 || kind != c->but_kind) &&
           (c->only_layer < 0 || layer == c->only_layer) && (c->but_layer < 0 || layer != c->but_layer);
}

// bf16 that meets bf16 is packed for it.
static void switch_matrix(struct mat *m, bool on)
{
    if (mat_uses_int8(m) && !on)
        m->math = MAT_F32;
}

// The packed weights serve both, so a matrix is switched after loading.
static void switch_matrices(struct runner *r, const struct choice *c)
{
    struct decoder *d = r->model->impl;
    for (int i = 0; i < d->dims.layers; i++) {
        struct decoder_layer *l = &d->layers[i];
        struct linear *const all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        static const enum kind kinds[] = {QKV, QKV, QKV, O, GATE_UP, GATE_UP, DOWN};
        for (int k = 0; k < 7; k++)
            switch_matrix(&all[k]->w, chosen(c, (int)kinds[k], i));
    }
    switch_matrix(&d->head.w, chosen(c, HEAD, d->dims.layers));
}

// Logits to log probabilities, in place.
static void normalise(float *x, int n)
{
    float most = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    double shift = most + log(sum);
    for (int i = 0; i < n; i++)
        x[i] = (float)(x[i] - shift);
}

static int best_of(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void judge(const struct text *t, int at, const float *row, struct score *s)
{
    const float *p = t->reference + (size_t)at * (size_t)t->vocab;
    double kl = 0;
    for (int i = 0; i < t->vocab; i++)
        kl += exp((double)p[i]) * ((double)p[i] - row[i]);
    s->kl[s->n++] = kl;
    s->same += best_of(p, t->vocab) == best_of(row, t->vocab);
    if (at + 1 < t->n) {
        s->nll -= row[t->ids.data[at + 1]];
        s->reference_nll -= p[t->ids.data[at + 1]];
        s->predicted++;
    }
}

// s NULL: the reference itself is made.
static err_code read_text(struct runner *r, struct text *t, struct score *s, err *e)
{
    struct kv_seq seq;
    kv_seq_init(&seq, r->pool);
    err_code code = ERR_OK;
    for (int at = 0, n; at < t->n && !code; at += n) {
        n = t->n - at < ROWS ? t->n - at : ROWS;
        code = runner_step(r, &(struct piece){&seq, t->ids.data + at, n, PIECE_ALL}, 1, e);
        for (int i = 0; i < n && !code; i++) {
            float *row = r->logits + (size_t)i * (size_t)t->vocab;
            normalise(row, t->vocab);
            if (s)
                judge(t, at + i, row, s);
            else
                memcpy(t->reference + (size_t)(at + i) * (size_t)t->vocab, row, (size_t)t->vocab * sizeof *row);
        }
    }
    kv_seq_done(&seq);
    return code;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_score(const char *what, const struct choice *c, struct score *s)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        sum += s->kl[i];
    qsort(s->kl, (size_t)s->n, sizeof *s->kl, by_value);
    const char *name = strrchr(options.path, '/');
    printf("{\"bench\": \"quality\", \"what\": \"%s\", \"activations\": \"%s\", \"kv\": \"%s\", \"tokens\": %d, "
           "\"kl_mean\": %.3e, \"kl_median\": %.3e, \"kl_p99\": %.3e, \"kl_max\": %.3e, \"top1\": %.5f, \"perplexity\": %.4f, "
           "\"perplexity_f32\": %.4f, \"model\": \"%s\"}\n",
           what, c->activations, c->kv, s->n, sum / s->n, s->kl[s->n / 2], s->kl[s->n - 1 - s->n / 100],
           s->kl[s->n - 1], (double)s->same / s->n, exp(s->nll / s->predicted), exp(s->reference_nll / s->predicted),
           name ? name + 1 : options.path);
    fflush(stdout);
}

static err_code open_runner(const struct choice *c, int positions, struct runner **ret_runner, err *e)
{
    options.activations = c->activations;
    options.kv = c->kv;
    return runner_open(&options, ROWS, 1, ROWS, (size_t)positions, true, ret_runner, e);
}

static err_code measure(struct text *t, const char *what, const struct choice *c, err *e)
{
    struct runner *r;
    struct score s = {.kl = mem_new((size_t)t->n * sizeof *s.kl)};
    err_code code = open_runner(c, t->n, &r, e);
    if (!code) {
        switch_matrices(r, c);
        code = read_text(r, t, &s, e);
        runner_close(r);
    }
    if (!code)
        print_score(what, c, &s);
    free(s.kl);
    return code;
}

static err_code make_reference(struct text *t, int *ret_layers, err *e)
{
    const struct choice plain = {"f32", "f32", -1, -1, -1, -1};
    struct runner *r;
    char *bytes;
    size_t len;
    err_code code = file_read(text_path, 1 << 24, &bytes, &len, e);
    if (code)
        return code;
    code = open_runner(&plain, max_tokens, &r, e);
    if (!code) {
        if (!r->model->tokenizer)
            code = err_set(e, ERR_UNSUPPORTED, "%s: no tokenizer", options.path);
        if (!code)
            code = tokenizer_encode(r->model->tokenizer, &(struct text_span){bytes, len, false}, 1, true, &t->ids, e);
        int fits = r->model->context < max_tokens ? r->model->context : max_tokens;
        t->n = (int)t->ids.len < fits ? (int)t->ids.len : fits;
        t->vocab = r->model->vocab;
        t->bytes = (size_t)t->n * (size_t)t->vocab * sizeof *t->reference;
        if (!code && !(t->reference = mem_try_pages(t->bytes)))
            code = err_set(e, ERR_MEMORY, "no %zu bytes for the reference", t->bytes);
        if (!code)
            code = read_text(r, t, NULL, e);
        *ret_layers = ((const struct decoder *)r->model->impl)->dims.layers;
        for (size_t i = 0; i < r->model->packed->nmatrices; i++)
            any_bf16 |= r->model->packed->matrices[i].type == QUANT_BF16;
        runner_close(r);
    }
    free(bytes);
    return code;
}

static err_code measure_layer(struct text *t, int layer, err *e)
{
    char what[64];
    err_code code = ERR_OK;
    for (int k = 0; k < HEAD && !code; k++) {
        snprintf(what, sizeof what, "int8 only %s of layer %d", kind_names[k], layer);
        code = measure(t, what, &(struct choice){"int8", "f32", k, -1, layer, -1}, e);
    }
    return code;
}

static err_code measure_all(struct text *t, bool kinds, int layers, err *e)
{
    static const struct {
        const char *what;
        struct choice c;
    } rows[] = {{"int8 activations", {"int8", "f32", -1, -1, -1, -1}}, {"kv f16", {"f32", "f16", -1, -1, -1, -1}},
                {"kv q8", {"f32", "q8", -1, -1, -1, -1}}, {"defaults", {"int8", "f16", -1, -1, -1, -1}}};
    char what[64];
    err_code code = ERR_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !code; i++)
        code = measure(t, rows[i].what, &rows[i].c, e);
    if (any_bf16 && !code)
        code = measure(t, "bf16 activations", &(struct choice){"bf16", "f32", -1, -1, -1, -1}, e);
    for (int k = 0; kinds && k < KINDS && !code; k++) {
        snprintf(what, sizeof what, "int8 but %s", kind_names[k]);
        code = measure(t, what, &(struct choice){"int8", "f32", -1, k, -1, -1}, e);
        snprintf(what, sizeof what, "int8 only %s", kind_names[k]);
        if (!code)
            code = measure(t, what, &(struct choice){"int8", "f32", k, -1, -1, -1}, e);
    }
    for (int l = 0; l < layers && !code; l++) {
        snprintf(what, sizeof what, "int8 but layer %d", l);
        code = measure(t, what, &(struct choice){"int8", "f32", -1, -1, -1, l}, e);
        snprintf(what, sizeof what, "int8 only layer %d", l);
        if (!code)
            code = measure(t, what, &(struct choice){"int8", "f32", -1, -1, l, -1}, e);
    }
    return code;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"model", 1, 0, 'm'}, {"text", 1, 0, 't'},  {"tokens", 1, 0, 'n'},
                                          {"threads", 1, 0, 'j'}, {"isa", 1, 0, 'i'}, {"kinds", 0, 0, 'k'},
                                          {"layers", 0, 0, 'l'}, {"layer", 1, 0, 'a'}, {0}};
    bool kinds = false, layers = false;
    struct text t = {0};
    int opt, nlayers = 0, layer = -1;
    err e = {0};
    max_tokens = 1 << 16;
    while ((opt = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (opt == 'm')
            options.path = optarg;
        else if (opt == 't')
            text_path = optarg;
        else if (opt == 'n')
            max_tokens = atoi(optarg);
        else if (opt == 'j')
            options.threads = atoi(optarg);
        else if (opt == 'i')
            options.isa = optarg;
        else if (opt == 'k')
            kinds = true;
        else if (opt == 'l')
            layers = true;
        else if (opt == 'a')
            layer = atoi(optarg);
        else
            return 2;
    }
    if (!options.path || !text_path || max_tokens < 2) {
        fputs("quality: --model and --text are needed, and at least 2 --tokens\n", stderr);
        return 2;
    }
    err_code code = make_reference(&t, &nlayers, &e);
    if (!code)
        code = layer >= 0 ? measure_layer(&t, layer, &e) : measure_all(&t, kinds, layers ? nlayers : 0, &e);
    if (code)
        fprintf(stderr, "quality: %s\n", e.text);
    mem_free_pages(t.reference, t.bytes);
    free(t.ids.data);
    return code ? 1 : 0;
}
