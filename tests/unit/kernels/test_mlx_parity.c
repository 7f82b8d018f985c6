// MLX tensors, whose rows lie in parts: every type x group x kind of numbers against independent arithmetic, then every
// instruction set against the scalar table, bit for bit.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/cpu.h"

enum { ROWS = 37, COLS = 384, MAX_TOKENS = 67 };

static const struct cpu_ops *isas[4];  // [0] is scalar
static int nisas;
static uint64_t drawn;

static uint64_t draw(void)
{
    return rng_u64(11, drawn++, 0);
}

static float uniform(void)
{
    return (float)(2 * rng_unit(11, drawn++, 0) - 1);
}

static int setup(void **state)
{
    (void)state;
    static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};
    err e = {0};
    for (int i = 0; i < 4; i++) {
        if (cpu_select(names[i], &isas[nisas], &e) == ERR_OK)
            nisas++;
        else
            print_message("mlx parity: %s\n", e.text);
    }
    return 0;
}

struct source {
    enum quant_type type;
    struct quant_parts parts;
    uint8_t *codes, *scales, *biases;
    float *values;  // [ROWS, COLS]
};

// Stores v in the kind of numbers; what it then is.
static float put_number(enum quant_number number, uint8_t *p, size_t i, float v)
{
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &v, 4);
    if (number == QUANT_NUMBER_F32) {
        memcpy(p + 4 * i, &v, 4);
        return v;
    }
    half = number == QUANT_NUMBER_F16 ? quant_f32_to_f16(v) : (uint16_t)(bits >> 16);
    memcpy(p + 2 * i, &half, 2);
    if (number == QUANT_NUMBER_F16)
        return quant_f16_to_f32(half);
    bits = (uint32_t)half << 16;
    memcpy(&v, &bits, 4);
    return v;
}

// pattern: 0 random codes, 1 all the largest, 2 all zero.
static struct source make(enum quant_type type, int bits, int group, enum quant_number number, int pattern)
{
    size_t groups = (size_t)ROWS * (size_t)(COLS / group);
    struct source s = {.type = type, .codes = calloc(1, (size_t)(ROWS * COLS * bits / 8)),
                       .scales = malloc(groups * 4), .biases = malloc(groups * 4),
                       .values = malloc(ROWS * COLS * sizeof(float))};
    for (size_t g = 0; g < groups; g++) {
        float d = put_number(number, s.scales, g, uniform() * 0.1f), m = put_number(number, s.biases, g, uniform());
        for (size_t i = 0; i < (size_t)group; i++) {
            size_t at = g * (size_t)group + i;
            uint32_t q = pattern == 1 ? (1u << bits) - 1 : pattern == 2 ? 0 : (uint32_t)(draw() % (1u << bits));
            for (size_t b = 0; b < (size_t)bits; b++) {
                size_t bit = at * (size_t)bits + b;
                s.codes[bit / 8] |= (uint8_t)((q >> b & 1) << bit % 8);
            }
            s.values[at] = d * (float)q + m;
        }
    }
    s.parts = (struct quant_parts){s.codes, s.scales, s.biases, group, number};
    return s;
}

static void done(struct source *s)
{
    free(s->codes);
    free(s->scales);
    free(s->biases);
    free(s->values);
}

static void check_same(const float *want, const float *got, int n, const char *type, const char *what, const char *isa)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&want[i], &got[i], 4))
            fail_msg("%s %s on %s: element %d is %.9g, expected %.9g", type, what, isa, i, (double)got[i], (double)want[i]);
}

static struct mat packed(const struct source *s, enum mat_math math)
{
    struct mat m;
    err e = {0};
    if (mat_plan_parts(&m, s->type, &s->parts, ROWS, COLS, math, &e))
        fail_msg("%s", e.text);
    uint8_t *p = aligned_alloc(64, (m.bytes + 63) / 64 * 64);
    mat_pack(&m, p, NULL, 2, mat_groups(&m));
    mat_pack(&m, p, NULL, 0, 2);
    m.data = p;
    return m;
}

static void check_rows(const struct source *s, const struct mat *m)
{
    struct mat file = *m;
    float row[COLS];
    const char *name = quant_get(s->type)->name;
    file.layout = MAT_BORROWED;
    file.data = NULL;
    for (int r = 0; r < ROWS; r++) {
        mat_row(m, r, row);
        check_same(s->values + r * COLS, row, COLS, name, "packed row", "any");
        mat_row(&file, r, row);
        check_same(s->values + r * COLS, row, COLS, name, "row of the file", "any");
    }
}

static void product(const struct cpu_ops *ops, const struct mat *m, const float *x, int n, enum mat_math math, int cut, float *y)
{
    struct acts a;
    void *memory = aligned_alloc(64, (acts_bytes(MAX_TOKENS, COLS, math) + 63) / 64 * 64);
    acts_init(&a, memory, MAX_TOKENS, COLS, math);
    a.n = n;
    acts_set(ops, &a, x, COLS, 0, n);
    mat_mul(ops, m, &a, y, ROWS, 0, cut, MAT_STORE);
    mat_mul(ops, m, &a, y, ROWS, cut, mat_groups(m), MAT_STORE);
    free(memory);
}

// What quantised activations allow: each number is off by at most half a step of its block.
static void check_near(const struct source *s, const float *x, const float *y)
{
    for (int r = 0; r < ROWS; r++) {
        double want = 0, slack = 1e-3;
        for (int b = 0; b < COLS; b += 32) {
            double amax = 0, sum = 0;
            for (int i = b; i < b + 32; i++) {
                amax = fmax(amax, fabs((double)x[i]));
                sum += fabs((double)s->values[r * COLS + i]);
                want += (double)s->values[r * COLS + i] * (double)x[i];
            }
            slack += sum * amax / 127 * 0.51;
        }
        if (fabs(want - (double)y[r]) > slack)
            fail_msg("%s row %d: %.9g, expected %.9g within %.3g", quant_get(s->type)->name, r, (double)y[r], want, slack);
    }
}

static void check(enum quant_type type, int bits, int group, enum quant_number number, int pattern)
{
    static const int counts[] = {1, 2, 3, 4, 7, 33, MAX_TOKENS};
    static float x[MAX_TOKENS * COLS], y[MAX_TOKENS * ROWS], want[MAX_TOKENS * ROWS];
    struct source s = make(type, bits, group, number, pattern);
    const char *name = quant_get(type)->name;
    for (int i = 0; i < MAX_TOKENS * COLS; i++)
        x[i] = pattern == 1 ? 1 : uniform();
    struct mat floats, m = packed(&s, MAT_INT8);
    err e = {0};
    check_rows(&s, &m);
    for (int t = 0; t < MAX_TOKENS; t++)
        product(isas[0], &m, x + t * COLS, 1, MAT_INT8, 2, want + t * ROWS);
    check_near(&s, x, want);
    for (int i = 0; i < nisas; i++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            product(isas[i], &m, x, counts[c], MAT_INT8, 1 + (int)(c % 3), y);
            check_same(want, y, counts[c] * ROWS, name, "int8", isas[i]->isa);
        }
    }
    // The float chain is that of the same weights as floats.
    free((void *)m.data);
    m = packed(&s, MAT_F32);
    assert_int_equal(mat_plan(&floats, QUANT_F32, ROWS, COLS, MAT_F32, &e), ERR_OK);
    uint8_t *p = aligned_alloc(64, (floats.bytes + 63) / 64 * 64);
    mat_pack(&floats, p, s.values, 0, mat_groups(&floats));
    floats.data = p;
    for (int i = 0; i < nisas; i++) {
        for (int n = 1; n <= 7; n += 6) {
            product(isas[0], &floats, x, n, MAT_F32, 4, want);
            product(isas[i], &m, x, n, MAT_F32, 4, y);
            check_same(want, y, n * ROWS, name, "f32", isas[i]->isa);
        }
    }
    free(p);
    free((void *)m.data);
    done(&s);
}

static void test_affine(void **state)
{
    (void)state;
    static const enum quant_type types[] = {QUANT_MLX2, QUANT_MLX3, QUANT_MLX4, QUANT_MLX5, QUANT_MLX6, QUANT_MLX8};
    static const int widths[] = {2, 3, 4, 5, 6, 8};
    for (int i = 0; i < 6; i++) {
        int bits = 0;
        assert_true(quant_has_parts(types[i], &bits));
        assert_int_equal(bits, widths[i]);
        for (int group = 32; group <= 128; group *= 2)
            for (int number = 0; number < 3; number++)
                check(types[i], bits, group, (enum quant_number)number, 0);
        check(types[i], bits, 64, QUANT_NUMBER_F16, 1);
        check(types[i], bits, 64, QUANT_NUMBER_F16, 2);
    }
}

// MLX's mxfp4 and nvfp4 hold the numbers of GGUF's types in another order.
static void test_float4(void **state)
{
    (void)state;
    static const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int kind = 0; kind < 2; kind++) {
        int group = kind ? 16 : 32, n = ROWS * COLS;
        uint8_t *codes = malloc((size_t)n / 2), *scales = malloc((size_t)(n / group));
        for (int i = 0; i < n / 2; i++)
            codes[i] = (uint8_t)draw();
        for (int i = 0; i < n / group; i++)
            scales[i] = (uint8_t)(kind ? draw() % 0x7F : 120 + draw() % 16);
        struct source s = {.type = kind ? QUANT_NVFP4 : QUANT_MXFP4, .values = malloc((size_t)n * 4)};
        s.parts = (struct quant_parts){.codes = codes, .scales = scales, .group = group};
        for (int i = 0; i < n; i++) {
            uint8_t u = codes[i / 2] >> 4 * (i % 2) & 15, e = scales[i / group];
            float scale = ldexpf(1, e - 127);
            if (kind)
                scale = e >> 3 ? ldexpf((float)(8 + e % 8), (e >> 3) - 10) : ldexpf((float)(e % 8), -9);
            s.values[i] = (u & 8 ? -1.0f : 1.0f) * levels[u & 7] * scale + 0.0f;
        }
        struct mat m = packed(&s, MAT_INT8);
        float row[COLS];
        for (int r = 0; r < ROWS; r++) {
            mat_row(&m, r, row);
            for (int k = 0; k < COLS; k++)
                assert_true(row[k] == s.values[r * COLS + k]);
        }
        free((void *)m.data);
        free(codes);
        free(scales);
        free(s.values);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        int cols, group;
    } bad[] = {{96, 64}, {512, 256}, {64, 16}, {64, 0}, {64, -32}, {48, 16}};
    err e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mat m;
        struct quant_parts p = {.group = bad[i].group};
        assert_int_not_equal(mat_plan_parts(&m, QUANT_MLX4, &p, 8, bad[i].cols, MAT_INT8, &e), ERR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_float4),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
