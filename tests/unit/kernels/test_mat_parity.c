// Multiplying by a weight matrix: every storage type x activations x instruction set x tokens x lanes against the scalar
// table, bit for bit; and the scalar table against f64, with tolerances, or exactly where every number is a whole one.
//
// Types come from quants.def, their blocks from tests/helpers/blocks.def.
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
#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/team.h"
#include "tests/helpers/blocks.h"

enum { MAX_TOKENS = 257, MAX_ISAS = 8, GAP = 3 };  // GAP: floats between a token's end and the next

static const struct cpu_ops *isas[MAX_ISAS];  // [0] is scalar
static int nisas;
static int most_tokens = MAX_TOKENS;
static struct team *teams[2];  // of one lane, of two or as many as there are
static uint64_t drawn;

static float uniform(void)  // -1 .. 1
{
    return (float)(2 * rng_unit(8, drawn++, 0) - 1);
}

static int below(int n)
{
    return (int)(rng_u64(8, drawn++, 0) % (uint64_t)n);
}

static int setup(void **state)
{
    (void)state;
    err e = {0};
    const char *sizes = getenv("TEST_SIZES");
    if (sizes && strcmp(sizes, "small") == 0)
        most_tokens = 70;  // under emulation
    int n = 0;
    while (cpu_isa(n))
        n++;
    while (n-- > 0 && nisas < MAX_ISAS) {
        if (cpu_select(cpu_isa(n), &isas[nisas], &e) == ERR_OK)
            print_message("parity: %s\n", isas[nisas++]->isa);
        else
            print_message("parity: %s\n", e.text);
    }
    for (int i = 0; i < 2; i++) {
        if (team_open(i + 1, false, &teams[i], &e) && (i == 0 || team_open(1, false, &teams[i], &e)))
            return -1;
    }
    return 0;
}

// Those that are not one for this type.
static const enum mat_math maths[] = {MAT_F32, MAT_INT8, MAT_INT8_BF16};
static int maths_of(enum quant_type type)
{
    return type == QUANT_BF16 ? 3 : 2;
}

static int teardown(void **state)
{
    (void)state;
    team_close(teams[0]);
    team_close(teams[1]);
    return 0;
}

// Equal bits, or both NaN (which NaN comes out of a fused operation is the hardware's choice).
static bool same(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (a != a && b != b);
}

// ---- weights

struct weights {
    enum quant_type type;
    int rows, cols;
    uint8_t *file;
    size_t bytes;
};

static const char *name_of(const struct weights *w)
{
    return quant_get(w->type)->name;
}

// BLOCKS_PATTERNS: random.
static struct weights make_weights(enum quant_type type, int rows, int cols, enum blocks_pattern pattern)
{
    struct weights w = {.type = type, .rows = rows, .cols = cols};
    assert_true(quant_bytes(type, (size_t)rows, (size_t)cols, &w.bytes));
    size_t blocks = w.bytes / (size_t)quant_get(type)->block_bytes;
    w.file = malloc(w.bytes);
    if (pattern == BLOCKS_PATTERNS)
        blocks_random(type, w.file, blocks, drawn++, -2);
    else
        blocks_extreme(type, w.file, blocks, pattern);
    return w;
}

static void file_row(const struct weights *w, int r, float *dst)
{
    quant_get(w->type)->dequantize(w->file + (size_t)r * (w->bytes / (size_t)w->rows), dst, (size_t)w->cols);
}

// Group ranges are packed out of order: they stand alone.
static struct mat pack(const struct weights *w, enum mat_math math)
{
    struct mat m;
    err e = {0};
    if (mat_plan(&m, w->type, w->rows, w->cols, math, &e))
        fail_msg("%s", e.text);
    uint8_t *p = aligned_alloc(64, (m.bytes + 63) / 64 * 64);
    int groups = mat_groups(&m);
    mat_pack(&m, p, w->file, groups / 2, groups);
    mat_pack(&m, p, w->file, 0, groups / 2);
    m.data = p;
    return m;
}

static void unpack(struct mat *m)
{
    free((void *)m->data);
}

static void check_rows(const struct weights *w, const struct mat *m)
{
    float *want = malloc((size_t)w->cols * 4), *got = malloc((size_t)w->cols * 4);
    for (int r = 0; r < w->rows; r++) {
        file_row(w, r, want);
        mat_row(m, r, got);
        for (int k = 0; k < w->cols; k++) {
            if (m->math == MAT_BF16 && fabsf(want[k]) < 0x1p-56f)
                want[k] = 0;
            if (!same(want[k], got[k]) && !(want[k] == 0 && got[k] == 0))
                fail_msg("%s row %d element %d: %.9g, dequantised %.9g", name_of(w), r, k, (double)got[k],
                         (double)want[k]);
        }
    }
    free(want);
    free(got);
}

// ---- products

struct job {
    const struct cpu_ops *ops;
    const struct mat *m;
    struct acts acts;
    const float *x;
    float *y;
    enum mat_write write;
};

static void multiply(struct lane *lane, void *arg)
{
    struct job *j = arg;
    struct acts *a = &j->acts;
    int lo, hi;
    lane_split(lane, a->n, 1, &lo, &hi);
    acts_set(j->ops, a, j->x, a->cols, lo, hi);
    lane_barrier(lane);
    lane_split(lane, mat_groups(j->m), 1, &lo, &hi);
    int cut = lo + (hi - lo) / 3;
    mat_mul(j->ops, j->m, a, j->y, j->m->rows + GAP, cut, hi, j->write);
    mat_mul(j->ops, j->m, a, j->y, j->m->rows + GAP, lo, cut, j->write);
}

static bool fine;  // activations of two rows a token

// y [n, rows + GAP], 0.25 everywhere before.
static float *product(struct team *team, const struct cpu_ops *ops, const struct mat *m, const float *x, int n,
                      enum mat_math math, enum mat_write write)
{
    struct job j = {.ops = ops, .m = m, .x = x, .write = write};
    void *memory = aligned_alloc(64, (acts_bytes(2 * (n + GAP), m->cols, math) + 63) / 64 * 64);
    if (fine)
        acts_init_fine(&j.acts, memory, n + GAP, m->cols, math);
    else
        acts_init(&j.acts, memory, n + GAP, m->cols, math);
    j.acts.n = n;
    int ldy = m->rows + GAP;
    j.y = malloc((size_t)ldy * (size_t)n * 4);
    for (int i = 0; i < ldy * n; i++)
        j.y[i] = 0.25f;
    team_run(team, multiply, &j);
    free(memory);
    return j.y;
}

static void check_same(const struct weights *w, const float *want, const float *got, int n, const char *isa)
{
    int ldy = w->rows + GAP;
    for (int i = 0; i < n * ldy; i++) {
        if (!same(want[i], got[i]))
            fail_msg("%s %dx%d, %d tokens on %s: row %d token %d is %.9g, scalar %.9g", name_of(w), w->rows, w->cols, n, isa,
                     i % ldy, i / ldy, (double)got[i], (double)want[i]);
    }
}

// Some tokens of a matrix on every instruction set, with one lane and with two. Scalar against itself takes few: it is
// slow, and they show that a token stands alone.
static void check_isas(const struct weights *w, const struct mat *m, const float *x, const float *want, int most,
                       enum mat_math math, enum mat_write write)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 33, 70, MAX_TOKENS};
    for (int i = 0; i < nisas; i++) {
        for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) {
            int n = tokens[j];
            for (int t = 0; t < 2 && n <= (i ? most : 3); t++) {
                float *got = product(teams[t], isas[i], m, x, n, math, write);
                check_same(w, want, got, n, isas[i]->isa);
                free(got);
            }
        }
    }
}

// As the bf16 path takes a number: the nearest of 8 bits, the even one of two, below 2^-56 0.
static float to_bf16(float x)
{
    int e;
    double m = frexp((double)x, &e);
    float r = isfinite(x) ? (float)ldexp(rint(ldexp(m, 8)), e - 8) : x;
    return fabsf(r) < 0x1p-56f ? 0 : r;
}

static float pairs_chain(const float *row, const float *x, int cols)
{
    float acc = 0;
    for (int k = 0; k < cols; k += 2) {
        for (int i = k + 1 < cols ? k + 1 : k; i >= k; i--)
            acc = fmaf(to_bf16(row[i]), to_bf16(x[i]), acc);
    }
    return acc;
}

// Floats: the definition itself, the chain over what the dequantiser makes of the file's rows.
static void check_chain(const struct weights *w, const struct mat *m, const float *x, const float *want, int n,
                        enum mat_write write)
{
    float *row = malloc((size_t)w->cols * 4);
    for (int r = 0; r < w->rows && !mat_uses_int8(m); r++) {
        file_row(w, r, row);
        for (int t = 0; t < n && t < 8; t++) {
            float acc = 0;
            for (int k = 0; k < w->cols && m->math == MAT_F32; k++)
                acc = fmaf(row[k], x[t * w->cols + k], acc);
            if (m->math == MAT_BF16)
                acc = pairs_chain(row, x + t * w->cols, w->cols);
            float got = want[t * (w->rows + GAP) + r];
            if (!same(write == MAT_ADD ? 0.25f + acc : acc, got))
                fail_msg("%s row %d token %d: %.9g, the chain gives %.9g", name_of(w), r, t, (double)got, (double)acc);
        }
    }
    free(row);
}

// ---- random weights

// |error| of a product against f64 on the dequantised weights, relative to the norms.
static void check_close(const struct weights *w, const float *x, const float *y, int n, double tolerance)
{
    float *row = malloc((size_t)w->cols * 4);
    for (int r = 0; r < w->rows; r++) {
        file_row(w, r, row);
        for (int t = 0; t < n; t++) {
            double want = 0, ww = 0, xx = 0;
            for (int k = 0; k < w->cols; k++) {
                double a = (double)row[k], b = (double)x[t * w->cols + k];
                want += a * b;
                ww += a * a;
                xx += b * b;
            }
            double got = (double)y[t * (w->rows + GAP) + r], error = fabs(got - want) / (sqrt(ww * xx) + 1e-30);
            if (!(error < tolerance))
                fail_msg("%s row %d token %d: %g, expected %g (error %g)", name_of(w), r, t, got, want, error);
        }
    }
    free(row);
}

static const float specials[] = {0, -0.0f, 1e-40f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 88.5f, -87.2f, 3.4e38f};

// n tokens; special: infinities, NaN and the like here and there, and a token of zeros.
static float *draw(int n, int cols, bool special)
{
    float *x = malloc((size_t)cols * (size_t)n * 4);
    for (int i = 0; i < cols * n; i++)
        x[i] = uniform() * (float)(1 + i % 3);
    for (int i = 0; special && i < cols * n; i += 1 + below(200))
        x[i] = specials[below((int)(sizeof specials / sizeof *specials))];
    memset(x + cols, 0, special ? (size_t)cols * 4 : 0);
    return x;
}

static void check_random(enum quant_type type, int rows, int cols, int n, bool special)
{
    struct weights w = make_weights(type, rows, cols, BLOCKS_PATTERNS);
    for (int i = 0; i < maths_of(type); i++) {
        enum mat_math math = maths[i];
        struct mat m = pack(&w, math);
        enum mat_write write = special ? MAT_ADD : MAT_STORE;
        float *x = draw(n, cols, special), *want = product(teams[0], isas[0], &m, x, n, math, write);
        check_rows(&w, &m);
        if (!special)
            check_close(&w, x, want, 5, m.math ? 0.01 : 2e-6);  // observed 3.9e-3, 1.3e-7
        check_isas(&w, &m, x, want, n, math, write);
        check_chain(&w, &m, x, want, n, write);
        free(want);
        free(x);
        unpack(&m);
    }
    free(w.file);
}

static void test_random(void **state)
{
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        int block = quant_get((enum quant_type)type)->block, wide = block < 32 ? 32 : block;
        if (!blocks_known((enum quant_type)type))
            print_message("parity: no line for %s in tests/helpers/blocks.def\n", quant_get((enum quant_type)type)->name);
        check_random((enum quant_type)type, 43, 2 * wide, most_tokens, false);
        check_random((enum quant_type)type, 7, wide, 33, true);
        check_random((enum quant_type)type, 1, 3 * wide, 33, false);
        check_random((enum quant_type)type, 105, wide, 12, false);
    }
}

// Two rows a token: 16 bits of activations, in tiles that end inside a step.
static void test_fine(void **state)
{
    (void)state;
    fine = true;
    for (int type = 0; type < QUANT_COUNT; type++) {
        int block = quant_get((enum quant_type)type)->block, cols = block < 32 ? 64 : 3 * block, n = 70;
        struct weights w = make_weights((enum quant_type)type, 75, cols, BLOCKS_PATTERNS);
        struct mat m = pack(&w, MAT_INT8);
        float *x = draw(n, cols, false), *want = product(teams[0], isas[0], &m, x, n, MAT_INT8, MAT_ADD);
        check_isas(&w, &m, x, want, n, MAT_INT8, MAT_ADD);
        free(want);
        want = product(teams[0], isas[0], &m, x, n, MAT_INT8, MAT_STORE);
        check_close(&w, x, want, 5, 2e-5);  // observed 4e-6 to 1e-5
        check_isas(&w, &m, x, want, n, MAT_INT8, MAT_STORE);
        free(want);
        free(x);
        unpack(&m);
        free(w.file);
    }
    fine = false;
}

static void check_least(int rows, int cols)
{
    int n = 33;
    struct weights w = {.type = QUANT_BF16, .rows = rows, .cols = cols, .bytes = (size_t)(2 * rows * cols)};
    w.file = malloc(w.bytes);
    for (int i = 0; i < rows * cols; i++) {
        uint16_t h = (uint16_t)(below(2) << 15 | (127 - 58 + below(5)) << 7 | below(128));
        memcpy(w.file + 2 * i, &h, 2);
    }
    struct mat m = pack(&w, MAT_INT8_BF16);
    float *x = malloc((size_t)(n * cols) * sizeof *x);
    for (int i = 0; i < n * cols; i++)
        x[i] = ldexpf(uniform(), -54 - below(4));
    float *want = product(teams[0], isas[0], &m, x, n, MAT_INT8_BF16, MAT_STORE);
    check_rows(&w, &m);
    check_isas(&w, &m, x, want, n, MAT_INT8_BF16, MAT_STORE);
    check_chain(&w, &m, x, want, n, MAT_STORE);
    for (int i = 0; i < n * (rows + GAP); i++)
        assert_true(want[i] == 0 || fabsf(want[i]) >= 0x1p-126f);
    free(want);
    free(x);
    unpack(&m);
    free(w.file);
}

// The smallest numbers that count, where sums cancel: a subnormal sum would be 0 to VDPBF16PS alone.
static void test_bf16_least(void **state)
{
    (void)state;
    check_least(64, 2);
    check_least(43, 7);
    check_least(32, 64);
}

static void check_rounding(float x)
{
    float in[9], want = to_bf16(x);
    uint16_t got[10];
    for (int i = 0; i < 9; i++)
        in[i] = x;
    for (int i = 0; i < nisas; i++) {
        isas[i]->mat->to_bf16(in, 9, got);
        assert_int_equal(got[9], 0);
        for (int k = 0; k < 9; k += 8) {  // a vector's and the rest's
            uint32_t bits = (uint32_t)got[k] << 16;
            float value;
            memcpy(&value, &bits, 4);
            if (!same(value, want) && !(value == 0 && want == 0))
                fail_msg("%.9g is %.9g in bf16 on %s, expected %.9g", (double)x, (double)value, isas[i]->isa, (double)want);
        }
    }
}

static void test_to_bf16(void **state)
{
    (void)state;
    static const uint32_t ends[] = {0, 0x7fff, 0x8000, 0x8001, 0xffff};  // around a tie
    for (uint32_t high = 0; high < 0x10000; high += 17) {
        for (int i = 0; i < 5; i++) {
            uint32_t bits = high << 16 | ends[i];
            float x;
            memcpy(&x, &bits, 4);
            check_rounding(x);
        }
    }
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        check_rounding(specials[i]);
    check_rounding(0x1p-56f);
    check_rounding(0x1.fefffep-57f);
    check_rounding(0x1.ffp-57f);
}

// Scales of every size a file may hold: results overflow or vanish, equally everywhere.
static void test_any_scale(void **state)
{
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++) {
        int block = quant_get((enum quant_type)type)->block, cols = block < 32 ? 64 : 2 * block, n = 33;
        struct weights w = make_weights((enum quant_type)type, 21, cols, BLOCKS_PATTERNS);
        blocks_any(w.type, w.file, w.bytes / (size_t)quant_get(w.type)->block_bytes, drawn++);
        float *x = draw(n, cols, false);
        for (int i = 0; i < maths_of(w.type); i++) {
            enum mat_math math = maths[i];
            struct mat m = pack(&w, math);
            check_rows(&w, &m);
            float *want = product(teams[0], isas[0], &m, x, n, math, MAT_STORE);
            check_isas(&w, &m, x, want, n, math, MAT_STORE);
            check_chain(&w, &m, x, want, n, MAT_STORE);
            free(want);
            unpack(&m);
        }
        free(x);
        free(w.file);
    }
}

// Rows of floats need no whole blocks.
static void test_float_columns(void **state)
{
    (void)state;
    static const int shapes[][2] = {{5, 13}, {12, 88}, {40, 176}, {44, 600}, {101, 33}};
    for (int type = 0; type < QUANT_COUNT; type++) {
        for (int s = 0; s < 5 && quant_get((enum quant_type)type)->block == 1; s++) {
            check_random((enum quant_type)type, shapes[s][0], shapes[s][1], most_tokens, false);
            check_random((enum quant_type)type, shapes[s][0], shapes[s][1], 33, true);
        }
    }
}

// ---- weights and activations at the ends of their range

// Token t has numbers in one block of 32 only, so its scale is 1 and every product and sum a whole number of the type's
// units below 2^24: the result is exact. They are all 127, -127 and 127 in turn, random, or of the signs of a row's
// weights: the largest sum there is.
static float *draw_blocks(const struct weights *w, int n)
{
    float *x = calloc((size_t)w->cols * (size_t)n, 4), *row = malloc((size_t)w->cols * 4);
    for (int t = 0; t < n; t++) {
        int width = w->cols < 32 ? w->cols : 32, first = t % (w->cols / width) * width, how = t / (w->cols / width) % 4;
        file_row(w, t % w->rows, row);
        for (int k = first; k < first + width; k++) {
            bool negative = how == 1 ? k % 2 : how == 2 ? below(2) : how == 3 ? row[k] < 0 : false;
            x[t * w->cols + k] = negative ? -127 : 127;
        }
    }
    free(row);
    return x;
}

static void check_exact(const struct weights *w, const float *x, const float *y, int n)
{
    float *row = malloc((size_t)w->cols * 4);
    for (int r = 0; r < w->rows; r++) {
        file_row(w, r, row);
        for (int t = 0; t < n; t++) {
            double want = 0, got = (double)y[t * (w->rows + GAP) + r];
            for (int k = 0; k < w->cols; k++)
                want += (double)row[k] * (double)x[t * w->cols + k];
            if (want != got)
                fail_msg("%s row %d token %d: %.12g, exactly %.12g", name_of(w), r, t, got, want);
        }
    }
    free(row);
}

static void check_extreme(enum quant_type type, enum blocks_pattern pattern)
{
    int block = quant_get(type)->block, cols = block < 32 ? 64 : 2 * block, n = 4 * cols / 32 + 1;
    struct weights w = make_weights(type, 13, cols, pattern);
    float *x = draw_blocks(&w, n);
    for (int k = 0; k < maths_of(type); k++) {
        enum mat_math math = maths[k];
        struct mat m = pack(&w, math);
        check_rows(&w, &m);
        float *want = product(teams[0], isas[0], &m, x, n, math, MAT_STORE);
        if (blocks_known(type))
            check_exact(&w, x, want, n);
        for (int i = 1; i < nisas; i++) {
            float *all = product(teams[1], isas[i], &m, x, n, math, MAT_STORE);
            check_same(&w, want, all, n, isas[i]->isa);
            free(all);
            for (int t = 0; t < n; t += 2) {
                int pair = n - t < 2 ? 1 : 2;
                float *some = product(teams[0], isas[i], &m, x + t * cols, pair, math, MAT_STORE);
                check_same(&w, want + t * (w.rows + GAP), some, pair, isas[i]->isa);
                free(some);
            }
        }
        free(want);
        unpack(&m);
    }
    free(x);
    free(w.file);
}

static void test_extremes(void **state)
{
    (void)state;
    for (int type = 0; type < QUANT_COUNT; type++)
        for (int pattern = 0; pattern < BLOCKS_PATTERNS; pattern++)
            check_extreme((enum quant_type)type, (enum blocks_pattern)pattern);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    struct mat m;
    err e = {0};
    assert_int_equal(mat_plan(&m, QUANT_Q4_0, 8, 40, MAT_INT8, &e), ERR_INVALID);
    assert_int_equal(mat_plan(&m, QUANT_F32, 0, 40, MAT_F32, &e), ERR_INVALID);
    for (int type = 0; type < QUANT_COUNT; type++) {
        int block = quant_get((enum quant_type)type)->block;
        if (block > 1)
            assert_int_equal(mat_plan(&m, (enum quant_type)type, 8, 3 * block / 2, MAT_INT8, &e), ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_fine), cmocka_unit_test(test_any_scale),    cmocka_unit_test(test_float_columns),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_plan_refuses), cmocka_unit_test(test_bf16_least),
        cmocka_unit_test(test_to_bf16),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
