// samebits.c - feeds one prompt to a model in many ways and compares all logits. A test's thread.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/cpu.h"
#include "kernels/mat.h"
#include "tests/helpers/models.h"
#include "tests/helpers/samebits.h"

enum { MOST = 1000, DEEP = 600 };

struct runner *samebits_open(const struct samebits *s)
{
    const char *path = strchr(s->model, '/') ? s->model : models_path(s->model);
    struct tools_model t = {.path = path, .activations = s->activations, .kv = s->kv, .isa = s->isa,
                            .threads = s->threads};
    struct runner *r;
    err e = {0};
    if (runner_open(&t, SAMEBITS_ROWS, SAMEBITS_SEQS, SAMEBITS_ROWS, SAMEBITS_SEQS * 1024, false, &r, &e)) {
        if (s->isa && e.code == ERR_UNSUPPORTED)
            return NULL;
        fail_msg("%s: %s", s->model, e.text);
    }
    return r;
}

void samebits_draw(int32_t *ids, int n, int vocab, int salt)
{
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(3, (uint64_t)i, (uint64_t)salt) % (uint64_t)vocab);
}

static void run(struct runner *r, const struct piece *p, int n)
{
    err e = {0};
    if (runner_step(r, p, n, &e))
        fail_msg("%s", e.text);
}

float *samebits_logits(struct runner *r, const int32_t *ids, int tokens, int chunk)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc((size_t)tokens * vocab, sizeof *out);
    struct kv_seq s;
    assert_non_null(out);
    kv_seq_init(&s, r->pool);
    for (int at = 0, n; at < tokens; at += n) {
        n = tokens - at < chunk ? tokens - at : chunk;
        run(r, &(struct piece){&s, ids + at, n, PIECE_ALL}, 1);
        memcpy(out + (size_t)at * vocab, r->logits, (size_t)n * vocab * sizeof *out);
    }
    kv_seq_done(&s);
    return out;
}

// Up to n rows of another sequence, which starts again when it is long.
static struct piece other_piece(struct kv_seq *s, struct runner *r, const int32_t *ids, int n, enum piece_out out)
{
    if (s->len + n > (r->model->context < MOST ? r->model->context : MOST)) {
        kv_seq_done(s);
        kv_seq_init(s, r->pool);
    }
    return (struct piece){s, ids + s->len, n, out};
}

// The same prompt while three others are prefilled and decoded beside it, in uneven pieces; deep in it one by one.
static float *logits_in_company(struct runner *r, const int32_t *ids, int tokens)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc((size_t)tokens * vocab, sizeof *out);
    struct kv_seq s[SAMEBITS_SEQS];
    int32_t other[SAMEBITS_SEQS][MOST];
    assert_non_null(out);
    for (int i = 0; i < SAMEBITS_SEQS; i++) {
        kv_seq_init(&s[i], r->pool);
        samebits_draw(other[i], MOST, r->model->vocab, 10 + i);
    }
    for (int at = 0, n, round = 0; at < tokens; at += n, round++) {
        n = at >= DEEP ? 1 : 1 + round * 7 % 29;
        n = n < tokens - at ? n : tokens - at;
        struct piece p[SAMEBITS_SEQS] = {
            other_piece(&s[1], r, other[1], 1 + round % 2 * 70, PIECE_LAST),
            other_piece(&s[2], r, other[2], 1, PIECE_NONE),
            {&s[0], ids + at, n, PIECE_ALL},
            other_piece(&s[3], r, other[3], 9, PIECE_NONE),
        };
        run(r, p, SAMEBITS_SEQS);
        memcpy(out + (size_t)at * vocab, r->logits + vocab, (size_t)n * vocab * sizeof *out);
    }
    for (int i = 0; i < SAMEBITS_SEQS; i++)
        kv_seq_done(&s[i]);
    return out;
}

// A prompt in large pieces whose last tokens come one by one, as they do when they are generated.
static float *logits_to_the_end(struct runner *r, const int32_t *ids, int tokens)
{
    size_t vocab = (size_t)r->model->vocab;
    float *out = calloc((size_t)tokens * vocab, sizeof *out);
    struct kv_seq s;
    assert_non_null(out);
    kv_seq_init(&s, r->pool);
    for (int at = 0, n; at < tokens; at += n) {
        n = at >= DEEP ? 1 : DEEP - at < SAMEBITS_ROWS ? DEEP - at : SAMEBITS_ROWS;
        n = n < tokens - at ? n : tokens - at;
        run(r, &(struct piece){&s, ids + at, n, PIECE_ALL}, 1);
        memcpy(out + (size_t)at * vocab, r->logits, (size_t)n * vocab * sizeof *out);
    }
    kv_seq_done(&s);
    return out;
}

static void same(const struct samebits *s, const char *what, const float *want, float *got, int vocab)
{
    size_t n = (size_t)s->tokens * (size_t)vocab;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&want[i], &got[i], sizeof *got) != 0)
            fail_msg("%s, %s activations, %s KV, %d lanes, %s: row %zu column %zu is %.9g, expected %.9g", s->model,
                     s->activations, s->kv ? s->kv : "f16", s->threads, what, i / (size_t)vocab, i % (size_t)vocab,
                     (double)got[i], (double)want[i]);
    }
    free(got);
}

// Some row groups of the head: those are the same, others are not touched.
static void check_groups(const struct samebits *s, struct runner *r, const int32_t *ids, const float *want)
{
    enum { TOKENS = 9 };
    int vocab = r->model->vocab, groups = (vocab + MAT_GROUP - 1) / MAT_GROUP, tokens = s->tokens < TOKENS ? s->tokens : TOKENS;
    uint64_t *set = calloc((size_t)groups / 64 + 1, sizeof *set);
    const float untouched = 12345;
    assert_non_null(set);
    for (int way = 0; way < 6; way++) {  // none, a few, half of them, long runs, all but a few, all
        static const int chunks[] = {1, 7, 64, 3, 1, 64};
        for (int g = 0; g < groups; g++) {
            uint64_t draw = rng_u64(11, (uint64_t)(way == 3 ? g / 9 : g), (uint64_t)way) % 100;
            bool in = draw < (const uint64_t[]){0, 5, 50, 50, 95, 100}[way];
            set[g / 64] = (set[g / 64] & ~(1ull << g % 64)) | (uint64_t)in << g % 64;
        }
        for (int i = 0; i < r->max_out * vocab; i++)
            r->logits[i] = untouched;
        r->out_groups = set;
        float *got = samebits_logits(r, ids, tokens, chunks[way]);
        r->out_groups = NULL;
        for (int i = 0; i < tokens * vocab; i++) {
            int g = i % vocab / MAT_GROUP;
            float w = set[g / 64] >> g % 64 & 1 ? want[i] : untouched;
            if (memcmp(&w, &got[i], sizeof w) != 0)
                fail_msg("%s, %d lanes, groups %d: row %d column %d is %.9g, expected %.9g", s->model, s->threads, way,
                         i / vocab, i % vocab, (double)got[i], (double)w);
        }
        free(got);
    }
    free(set);
}

static void check_lanes(struct samebits *s, const int32_t *ids, const float *want)
{
    static const int chunks[] = {1, 7, 64, SAMEBITS_ROWS};
    struct runner *r = samebits_open(s);
    int vocab = r->model->vocab;
    for (size_t c = s->tokens > DEEP; c < sizeof chunks / sizeof *chunks; c++) {
        char what[32];
        snprintf(what, sizeof what, "chunks of %d", chunks[c]);
        same(s, what, want, samebits_logits(r, ids, s->tokens, chunks[c]), vocab);
    }
    if (s->tokens > DEEP)
        same(s, "the end one by one", want, logits_to_the_end(r, ids, s->tokens), vocab);
    same(s, "in company", want, logits_in_company(r, ids, s->tokens), vocab);
    check_groups(s, r, ids, want);
    assert_int_equal(kv_pool_free_pages(r->pool), kv_pool_pages(r->pool));
    runner_close(r);
}

void samebits_check(struct samebits s)
{
    int32_t ids[MOST];
    assert_in_range(s.tokens, 1, MOST);
    s.threads = 1;
    struct runner *r = samebits_open(&s);
    samebits_draw(ids, s.tokens, r->model->vocab, 0);
    float *want = samebits_logits(r, ids, s.tokens, 29);
    int vocab = r->model->vocab;
    runner_close(r);
    for (s.threads = 1; s.threads <= 2; s.threads++)
        check_lanes(&s, ids, want);
    s.threads = 2;
    for (int i = 0; cpu_isa(i); i++) {
        s.isa = cpu_isa(i);
        r = samebits_open(&s);
        if (r)
            same(&s, s.isa, want, samebits_logits(r, ids, s.tokens, 61), vocab);
        runner_close(r);
    }
    free(want);
}
