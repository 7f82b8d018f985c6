// snac.c - speed of a SNAC decoder: build/bench/snac DIR [THREADS [ROWS]]; ROWS latent rows a step. One JSON line: the median
// and the least milliseconds of a frame by the wall clock, and the mean of the CPU time of all threads together.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/audio/snac.h"
#include "engine/blocks/packed.h"
#include "engine/weights/weights.h"

enum { STEPS = 200 };

struct bench {
    struct snac_stream stream;
    const int32_t *codes[SNAC_LEVELS];
    int rows;
    void *scratch;
    float *out;
};

static void step(struct lane *lane, void *arg)
{
    struct bench *b = arg;
    snac_step(&b->stream, lane, b->codes, b->rows, false, b->scratch, b->out);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(struct bench *b, struct team *team, const char *isa)
{
    const struct snac_shape *h = snac_shape(b->stream.snac);
    size_t rows = (size_t)b->rows * (STEPS + 8);
    static double ms[STEPS];
    for (int l = 0; l < h->levels; l++) {
        int32_t *codes = mem_new(rows * sizeof *codes);
        for (size_t i = 0; i < rows; i++)
            codes[i] = (int32_t)(rng_u64(1, (uint64_t)l, i) % (uint64_t)h->codebook_size);
        b->codes[l] = codes;
    }
    double cpu = 0;
    for (int i = -8; i < STEPS; i++) {
        cpu = i ? cpu : cpu_ms();
        double start = clock_s();
        team_run(team, step, b);
        if (i >= 0)
            ms[i] = (clock_s() - start) * 1e3 / b->rows * h->frame_rows;
    }
    cpu = (cpu_ms() - cpu) / STEPS / b->rows * h->frame_rows;
    qsort(ms, STEPS, sizeof *ms, by_value);
    double sound = 1e3 * h->hop * h->frame_rows / h->sample_rate;
    printf("{\"test\": \"snac\", \"threads\": %d, \"rows\": %d, \"isa\": \"%s\", \"ms_per_frame\": %.2f, \"least\": %.2f, "
           "\"cpu\": %.2f, \"frame_ms\": %.2f}\n", team_size(team), b->rows, isa, ms[STEPS / 2], ms[0], cpu, sound);
}

int main(int argc, char **argv)
{
    struct bench b = {.rows = argc > 3 ? atoi(argv[3]) : 4};
    struct weights *w = NULL;
    struct snac *s = NULL;
    struct team *team = NULL;
    const struct cpu_ops *ops = NULL;
    struct packed *packed = packed_new();
    err e = {0};
    if (argc < 2 || b.rows < 1 || b.rows > SNAC_STEP_ROWS || cpu_select(NULL, &ops, &e) || weights_open(argv[1], &w, &e) ||
        snac_open(w, ops, packed, &s, &e) || team_open(argc > 2 ? atoi(argv[2]) : 1, true, &team, &e)) {
        fprintf(stderr, "snac: %s\n", e.code ? e.text : "DIR [THREADS [ROWS 1 to 12]]");
        return 1;
    }
    b.stream = (struct snac_stream){.snac = s, .noise = SNAC_NOISE_DRAWN, .seed = 1};
    b.stream.state = mem_new(snac_state_floats(s) * sizeof(float));
    b.scratch = mem_try_pages(snac_scratch_bytes(s));
    b.out = mem_new((size_t)snac_shape(s)->hop * 64 * sizeof *b.out);
    snac_start(&b.stream);
    run(&b, team, ops->isa);
    return 0;
}
