// The mixture of experts against its formula in doubles, with every option; and the exactness rule: any company, lanes and
// instruction set, every type of weight in any mixture. Experts that no token chose are not read.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/blocks/moe.h"
#include "kernels/cpu/mat_ops.h"

enum { MAX_ROWS = 200, OWNED = 1024 };

struct scene {
    struct moe m;
    enum mat_math math;
    void *owned[OWNED];
    int nowned;
    int rows;
    float *x, *y;
};

static const struct cpu_ops *ops;
static uint64_t drawn;

static float normal(void)  // about
{
    drawn++;
    return (float)(rng_unit(5, drawn, 0) + rng_unit(5, drawn, 1) + rng_unit(5, drawn, 2) - 1.5) * 2;
}

static void *own(struct scene *s, size_t bytes)
{
    assert_in_range(s->nowned, 0, OWNED - 1);
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return s->owned[s->nowned++] = p;
}

static void close_scene(struct scene *s)
{
    for (int i = 0; i < s->nowned; i++)
        free(s->owned[i]);
    free(s);
}

// Numbers for floats; for blocks random bytes in which no scale is large, infinite or NaN.
static void fill(uint8_t *p, size_t n, enum quant_type type, int cols)
{
    for (size_t i = 0; type == QUANT_F32 && i < n / 4; i++)
        ((float *)(void *)p)[i] = normal() / sqrtf((float)cols);
    for (size_t i = 0; type == QUANT_F16 && i < n / 2; i++)
        ((uint16_t *)(void *)p)[i] = quant_f32_to_f16(normal() / sqrtf((float)cols));
    for (size_t i = 0; type != QUANT_F32 && type != QUANT_F16 && i < n; i++)
        p[i] = (uint8_t)rng_u64(5, drawn++, 1) & (type == QUANT_BF16 ? 0xbd : 0x3b);
}

static void make(struct scene *s, struct linear *l, enum quant_type type, int out, int in)
{
    err e = {0};
    size_t bytes;
    *l = (struct linear){.out = out, .in = in};
    assert_int_equal(mat_plan(&l->w, type, out, in, s->math, &e), ERR_OK);
    assert_true(quant_bytes(type, (size_t)out, (size_t)in, &bytes));
    uint8_t *file = own(s, bytes), *packed = l->w.layout == MAT_PACKED ? own(s, l->w.bytes) : NULL;
    fill(file, bytes, type, in);
    if (packed)
        mat_pack(&l->w, packed, file, 0, mat_groups(&l->w));
    l->w.data = packed ? packed : file;
}

struct kinds {
    enum quant_type gate, up, down;
};

static struct scene *open_scene(const struct moe_dims *d, const struct kinds *k, enum mat_math math, int rows)
{
    struct scene *s = calloc(1, sizeof *s);
    int n = d->experts + (d->shared_ffn > 0);
    s->math = math;
    s->m.dims = *d;
    s->m.gate = own(s, (size_t)n * sizeof *s->m.gate);
    s->m.up = own(s, (size_t)n * sizeof *s->m.up);
    s->m.down = own(s, (size_t)n * sizeof *s->m.down);
    make(s, &s->m.router, QUANT_F32, d->experts, d->hidden);
    if (d->shared_switch)
        make(s, &s->m.shared_switch, QUANT_F32, 1, d->hidden);
    for (int i = 0; i < n; i++) {
        int ffn = i < d->experts ? d->ffn : d->shared_ffn;
        make(s, &s->m.gate[i], k->gate, ffn, d->hidden);
        make(s, &s->m.up[i], k->up, ffn, d->hidden);
        make(s, &s->m.down[i], k->down, d->hidden, ffn);
    }
    s->rows = rows;
    s->x = own(s, (size_t)rows * (size_t)d->hidden * sizeof(float));
    s->y = own(s, (size_t)rows * (size_t)d->hidden * sizeof(float));
    for (int i = 0; i < rows * d->hidden; i++) {
        s->x[i] = normal();
        s->y[i] = normal();
    }
    return s;
}

// ---- running

struct job {
    struct scene *s;
    const struct cpu_ops *ops;
    int t0, rows;
    void *acts, *scratch;
    float *y;
    int32_t *ids;  // NULL, or where the choice of lane 0 goes
    bool route_only;
};

static void work(struct lane *lane, void *arg)
{
    struct job *j = arg;
    const struct moe_dims *d = &j->s->m.dims;
    struct acts a;
    struct moe_step step;
    acts_init(&a, j->acts, j->rows, d->hidden, j->s->math);
    linear_input(lane, j->ops, &a, j->s->x + (size_t)j->t0 * (size_t)d->hidden, d->hidden, j->rows);
    moe_begin(&step, &j->s->m, j->ops, lane, j->s->math, j->rows, j->scratch);
    moe_route(&step, &a);
    if (lane->id == 0 && j->ids)
        memcpy(j->ids, step.ids, (size_t)(j->rows * d->top_k) * sizeof *j->ids);
    if (!j->route_only)
        moe_experts(&step, &a, j->y, d->hidden);
}

// y of tokens t0 .. t0 + rows, on top of what s->y has.
static void run(struct job j, int lanes, float *y)
{
    struct team *team;
    err e = {0};
    const struct moe_dims *d = &j.s->m.dims;
    size_t n = (size_t)j.rows * (size_t)d->hidden;
    size_t scratch = moe_scratch_bytes(d, j.s->math, j.rows, lanes), acts = acts_bytes(j.rows, d->hidden, j.s->math);
    assert_int_equal(scratch % 64, 0);
    j.scratch = aligned_alloc(64, scratch);
    j.acts = aligned_alloc(64, (acts + 63) / 64 * 64);
    j.y = y;
    memset(j.scratch, 0xff, scratch);  // NaN, wherever a number is read that was not written
    memcpy(y, j.s->y + (size_t)j.t0 * (size_t)d->hidden, n * sizeof *y);
    assert_int_equal(team_open(lanes, false, &team, &e), ERR_OK);
    team_run(team, work, &j);
    team_close(team);
    free(j.scratch);
    free(j.acts);
}

static float *run_all(struct scene *s, const struct cpu_ops *with, int lanes, int chunk)
{
    size_t hidden = (size_t)s->m.dims.hidden;
    float *y = calloc((size_t)s->rows * hidden, sizeof *y);
    for (int t = 0; t < s->rows; t += chunk) {
        int n = s->rows - t < chunk ? s->rows - t : chunk;
        run((struct job){.s = s, .ops = with, .t0 = t, .rows = n}, lanes, y + (size_t)t * hidden);
    }
    return y;
}

// ---- the formula

static double dot(const struct mat *m, int row, const double *x)
{
    float w[512];
    double sum = 0;
    assert_in_range(m->cols, 1, 512);
    mat_row(m, row, w);
    for (int k = 0; k < m->cols; k++)
        sum += (double)w[k] * x[k];
    return sum;
}

static double act(enum moe_act kind, double v)
{
    return kind == MOE_SILU ? v / (1 + exp(-v)) : v / 2 * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

static void add_expert(const struct moe *m, int e, double w, const double *x, double *y)
{
    double mid[512];
    for (int r = 0; r < m->gate[e].out; r++)
        mid[r] = act(m->dims.act, dot(&m->gate[e].w, r, x)) * dot(&m->up[e].w, r, x);
    for (int r = 0; r < m->dims.hidden; r++)
        y[r] += w * dot(&m->down[e].w, r, mid);
}

static void formula(const struct moe *m, const double *x, double *y)
{
    const struct moe_dims *d = &m->dims;
    double p[64], sum = 0, chosen = 0;
    bool in[64] = {false};
    for (int e = 0; e < d->experts; e++)
        sum += p[e] = exp(dot(&m->router.w, e, x));
    for (int n = 0; n < d->top_k; n++) {
        int best = -1;
        for (int e = 0; e < d->experts; e++)
            best = !in[e] && (best < 0 || p[e] > p[best]) ? e : best;
        in[best] = true;
        chosen += p[best];
    }
    for (int e = 0; e < d->experts; e++) {
        if (in[e])
            add_expert(m, e, p[e] / (d->normalise ? chosen : sum), x, y);
    }
    if (d->shared_ffn)
        add_expert(m, d->experts, d->shared_switch ? 1 / (1 + exp(-dot(&m->shared_switch.w, 0, x))) : 1, x, y);
}

static const struct moe_dims shapes[] = {
    {.hidden = 52, .experts = 5, .top_k = 2, .ffn = 24},
    {.hidden = 33, .experts = 7, .top_k = 3, .ffn = 40, .normalise = true},
    {.hidden = 64, .experts = 4, .top_k = 4, .ffn = 9, .shared_ffn = 70, .normalise = true},
    {.hidden = 20, .experts = 60, .top_k = 4, .ffn = 8, .shared_ffn = 12, .shared_switch = true},
    {.hidden = 96, .experts = 1, .top_k = 1, .ffn = 33, .act = MOE_GELU_TANH},
    {.hidden = 40, .experts = 6, .top_k = 1, .ffn = 16, .shared_ffn = 16, .shared_switch = true, .act = MOE_GELU_TANH},
};

// Observed: 2.9e-07 of the largest number. Allowed: 3e-6.
static void test_formula(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct moe_dims *d = &shapes[i];
        struct scene *s = open_scene(d, &(struct kinds){QUANT_F32, QUANT_F16, QUANT_F32}, MAT_F32, 70);
        float *got = run_all(s, ops, 2, s->rows);
        double top = 0, off = 0;
        for (int t = 0; t < s->rows; t++) {
            double x[128], y[128];
            for (int k = 0; k < d->hidden; k++) {
                x[k] = (double)s->x[t * d->hidden + k];
                y[k] = (double)s->y[t * d->hidden + k];
            }
            formula(&s->m, x, y);
            for (int k = 0; k < d->hidden; k++) {
                top = fmax(top, fabs(y[k]));
                off = fmax(off, fabs(y[k] - (double)got[t * d->hidden + k]));
                assert_false(isnan(got[t * d->hidden + k]));
            }
        }
        worst = fmax(worst, off / top);
        free(got);
        close_scene(s);
    }
    print_message("largest difference %.1e of the largest number\n", worst);
    assert_true(worst < 3e-6);
}

// ---- the same bits

static void same(const struct scene *s, const float *want, float *got, const char *what)
{
    for (int i = 0; i < s->rows * s->m.dims.hidden; i++) {
        bool nans = want[i] != want[i] && got[i] != got[i];
        if (memcmp(&want[i], &got[i], sizeof *got) && !nans)
            fail_msg("%s, %s %s %s: element %d is %.9g, expected %.9g", what, quant_get(s->m.gate->w.type)->name,
                     quant_get(s->m.up->w.type)->name, quant_get(s->m.down->w.type)->name, i, (double)got[i],
                     (double)want[i]);
    }
    free(got);
}

static void check_bits(const struct moe_dims *d, const struct kinds *k, enum mat_math math, int rows)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512", "neon"};
    struct scene *s = open_scene(d, k, math, rows);
    float *want = run_all(s, ops, 1, rows);
    same(s, want, run_all(s, ops, 2, rows), "two lanes");
    same(s, want, run_all(s, ops, 1, 1), "alone");
    same(s, want, run_all(s, ops, 2, 1), "alone on two lanes");
    same(s, want, run_all(s, ops, 2, 4), "four on two lanes");
    same(s, want, run_all(s, ops, 2, 7), "seven on two lanes");
    for (int i = 0; i < 4; i++) {
        const struct cpu_ops *other;
        err e = {0};
        if (cpu_select(isas[i], &other, &e) == ERR_OK && other != ops)
            same(s, want, run_all(s, other, 2, 67), isas[i]);
    }
    free(want);
    close_scene(s);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_bits(&shapes[i], &(struct kinds){QUANT_F16, QUANT_F32, QUANT_BF16}, MAT_INT8, 40);
    struct moe_dims d = {.hidden = 64, .experts = 5, .top_k = 2, .ffn = 96, .shared_ffn = 32, .shared_switch = true};
    check_bits(&d, &(struct kinds){QUANT_Q4_0, QUANT_Q8_0, QUANT_Q5_1}, MAT_INT8, MAX_ROWS);
    check_bits(&d, &(struct kinds){QUANT_F16, QUANT_Q4_1, QUANT_F32}, MAT_INT8, 140);
    check_bits(&d, &(struct kinds){QUANT_Q4_1, QUANT_Q5_0, QUANT_Q8_0}, MAT_F32, 70);
    check_bits(&d, &(struct kinds){QUANT_BF16, QUANT_BF16, QUANT_BF16}, MAT_INT8_BF16, 140);
    check_bits(&d, &(struct kinds){QUANT_BF16, QUANT_Q4_1, QUANT_BF16}, MAT_INT8_BF16, 70);
    check_bits(&d, &(struct kinds){QUANT_F32, QUANT_BF16, QUANT_Q8_0}, MAT_INT8_BF16, 70);
}

// Every type there is, with itself and with its neighbour in the list.
static void test_types(void **state)
{
    (void)state;
    struct moe_dims d = {.hidden = 256, .experts = 3, .top_k = 2, .ffn = 256};
    for (int i = 0; i < QUANT_COUNT; i++) {
        enum quant_type t = (enum quant_type)i, next = (enum quant_type)((i + 1) % QUANT_COUNT);
        check_bits(&d, &(struct kinds){t, next, t}, MAT_INT8, 11);
    }
}

// ---- which experts

static void test_ties(void **state)
{
    (void)state;
    struct moe_dims d = {.hidden = 32, .experts = 9, .top_k = 3, .ffn = 8};
    for (int lanes = 1; lanes <= 2; lanes++) {
        struct scene *s = open_scene(&d, &(struct kinds){QUANT_F32, QUANT_F32, QUANT_F32}, MAT_F32, 6);
        int32_t ids[18];
        float y[6 * 32];
        memset(s->x, 0, 6 * 32 * sizeof *s->x);
        run((struct job){.s = s, .ops = ops, .rows = 6, .ids = ids, .route_only = true}, lanes, y);
        for (int i = 0; i < 18; i++)
            assert_int_equal(ids[i], i % 3);
        close_scene(s);
    }
}

// A router that yields NaN chooses some experts, and nothing is read outside.
static void test_nan(void **state)
{
    (void)state;
    struct moe_dims d = {.hidden = 32, .experts = 9, .top_k = 3, .ffn = 8, .normalise = true};
    struct scene *s = open_scene(&d, &(struct kinds){QUANT_F32, QUANT_F32, QUANT_F32}, MAT_F32, 6);
    for (int i = 0; i < 32; i++) {
        s->x[i] = NAN;
        s->x[32 + i] = i % 2 ? INFINITY : 1;
    }
    float *y = run_all(s, ops, 2, 6), *alone = run_all(s, ops, 1, 1);
    assert_true(isnan(y[0]));
    assert_memory_equal(y + 64, alone + 64, 4 * 32 * sizeof *y);
    free(y);
    free(alone);
    close_scene(s);
}

static void test_others_are_not_read(void **state)
{
    (void)state;
    struct moe_dims d = {.hidden = 64, .experts = 128, .top_k = 8, .ffn = 32};
    for (int lanes = 1; lanes <= 2; lanes++) {
        struct scene *s = open_scene(&d, &(struct kinds){QUANT_Q4_0, QUANT_Q4_0, QUANT_Q8_0}, MAT_INT8, 1);
        int32_t ids[8];
        float y[64];
        bool chosen[128] = {false};
        run((struct job){.s = s, .ops = ops, .rows = 1, .ids = ids, .route_only = true}, lanes, y);
        for (int i = 0; i < 8; i++)
            chosen[ids[i]] = true;
        float *want = run_all(s, ops, lanes, 1);
        for (int i = 0; i < 128; i++)
            if (!chosen[i])
                s->m.gate[i].w.data = s->m.up[i].w.data = s->m.down[i].w.data = NULL;
        same(s, want, run_all(s, ops, lanes, 1), "without the others");
        free(want);
        close_scene(s);
    }
}

// ---- activations

static void check_gather(const struct cpu_ops *with, int rows, int n)
{
    enum { COLS = 96 };
    float *x = calloc((size_t)rows * COLS, sizeof *x), *picked = calloc((size_t)n * COLS, sizeof *picked);
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    size_t bytes = (acts_bytes(rows, COLS, MAT_INT8) + 63) / 64 * 64;
    uint8_t *memory[3];
    struct acts a[3];
    for (int i = 0; i < rows * COLS; i++)
        x[i] = normal();
    for (int i = 0; i < n; i++) {
        tokens[i] = i * rows / n;
        memcpy(picked + i * COLS, x + tokens[i] * COLS, COLS * sizeof *x);
    }
    for (int i = 0; i < 3; i++) {
        memory[i] = aligned_alloc(64, bytes);
        memset(memory[i], 0x55, bytes);
        acts_init(&a[i], memory[i], i ? n : rows, COLS, MAT_INT8);
        a[i].n = i ? n : rows;
    }
    acts_set(with, &a[0], x, COLS, 0, rows);
    acts_set(with, &a[1], picked, COLS, 0, n);
    acts_gather(with, &a[2], &a[0], tokens, n);
    assert_memory_equal(memory[1], memory[2], acts_bytes(n, COLS, MAT_INT8));
    for (int i = 0; i < 3; i++)
        free(memory[i]);
    free(x);
    free(picked);
    free(tokens);
}

static void test_gather(void **state)
{
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    static const int sizes[][2] = {{1, 1}, {3, 2}, {5, 3}, {5, 4}, {64, 64}, {65, 5}, {150, 64}, {150, 70}};
    for (int i = 0; i < 3; i++) {
        const struct cpu_ops *with;
        err e = {0};
        if (cpu_select(isas[i], &with, &e))
            continue;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            check_gather(with, sizes[k][0], sizes[k][1]);
    }
}

static void test_dims_are_checked(void **state)
{
    (void)state;
    err e = {0};
    struct moe_dims d = {.hidden = 8, .experts = 4, .top_k = 5, .ffn = 8};
    assert_int_equal(moe_check(&d, "m", &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "m: 5 experts a token, expected 1 to the number of experts, 4"));
    d.top_k = 0;
    assert_int_equal(moe_check(&d, "m", &e), ERR_CORRUPT);
    d.top_k = 4;
    assert_int_equal(moe_check(&d, "m", &e), ERR_OK);
    d.experts = MOE_EXPERTS + 1;
    assert_int_equal(moe_check(&d, "m", &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "4097 experts, expected 1 to 4096"));
    assert_int_equal(moe_macs(&(struct moe_dims){.hidden = 8, .experts = 4, .top_k = 2, .ffn = 3, .shared_ffn = 5}),
                     8 * (4 + 3 * (2 * 3 + 5)));
}

int main(void)
{
    err e = {0};
    if (cpu_select("auto", &ops, &e))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),      cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_types),        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_nan),          cmocka_unit_test(test_others_are_not_read),
        cmocka_unit_test(test_gather),       cmocka_unit_test(test_dims_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
