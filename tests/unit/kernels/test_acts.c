// Activations made ready in parts, some columns and some tokens at a time, on every instruction set: the bits of the scalar
// table, which takes one token after the other.
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
#include "kernels/cpu/mat_ops.h"

enum { COLS = 192, TOKENS = 150, LDX = COLS + 5 };

static uint64_t drawn;

static int below(int n)
{
    return (int)(rng_u64(3, drawn++, 0) % (uint64_t)n);
}

static void fill(float *x)
{
    static const float specials[] = {0, -0.0f, 1e-40f, 1e-30f, 9e-31f, 1e30f, INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f};
    for (int i = 0; i < TOKENS * LDX; i++)
        x[i] = (float)(20 * rng_unit(3, drawn++, 0) - 10);
    for (int i = 0; i < TOKENS * LDX / 150; i++)
        x[below(TOKENS * LDX)] = specials[below((int)(sizeof specials / sizeof *specials))];
    for (int b = 0; b < 20; b++) {  // blocks of nothing, and of next to nothing
        float *at = x + below(TOKENS) * LDX + below(COLS / MAT_BLOCK) * MAT_BLOCK;
        for (int i = 0; i < MAT_BLOCK; i++)
            at[i] = b % 2 ? 0 : 9.9e-31f;
    }
}

static void *make(struct acts *a, int n)
{
    void *memory = aligned_alloc(64, (acts_bytes(TOKENS, COLS, MAT_INT8_BF16) + 63) / 64 * 64);
    memset(memory, 0x55, acts_bytes(TOKENS, COLS, MAT_INT8_BF16));
    acts_init(a, memory, TOKENS, COLS, MAT_INT8_BF16);
    a->n = n;
    return memory;
}

static bool same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, 4) && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    }
    return true;
}

static void check(const struct acts *want, const struct acts *got, const char *isa)
{
    size_t n = (size_t)want->n * (COLS / MAT_BLOCK);
    if (memcmp(want->q, got->q, 32 * n) || memcmp(want->sums, got->sums, 4 * n) ||
        !same_floats(want->d, got->d, n) || !same_floats(want->sx, got->sx, n))
        fail_msg("%d tokens on %s: other int8 than the scalar table's", want->n, isa);
    for (int t = 0; t < want->n; t++) {
        size_t at = (size_t)t * (size_t)acts_row16(COLS);
        if (memcmp(want->b + at, got->b + at, COLS * sizeof *want->b))
            fail_msg("%d tokens on %s: other bf16 than the scalar table's", want->n, isa);
    }
}

// What the instruction set has of its own must be what one token at a time gives.
static void check_own(const struct cpu_ops *ops, const struct acts *got, const float *x)
{
    size_t bytes = (size_t)ops->mat->wide_bytes * (size_t)got->n * (COLS / MAT_BLOCK);
    struct acts one;
    void *memory = make(&one, got->n);
    for (int t = 0; t < got->n; t++)
        acts_set(ops, &one, x, LDX, t, t + 1);
    assert_memory_equal(acts_pairs(&one), acts_pairs(got), 8 * (size_t)got->n * (COLS / MAT_BLOCK));
    free(memory);
    if (!ops->mat->widen || got->n <= 3)
        return;
    uint8_t *want = malloc(bytes);
    for (int t = 0; t < got->n; t++) {
        int tile = t / ACT_TILE;
        size_t at = acts_base(got, tile) + (size_t)(t % ACT_TILE);
        ops->mat->widen(got->q, at, COLS / MAT_BLOCK, acts_tile(got, tile), want);
    }
    assert_memory_equal(want, got->wide, bytes);
    free(want);
}

static void set_in_parts(const struct cpu_ops *ops, struct acts *a, const float *x)
{
    for (int t = 0, t1; t < a->n; t = t1) {
        t1 = t + 1 + below(a->n);
        t1 = t1 < a->n ? t1 : a->n;
        for (int c = 0, c1; c < COLS; c = c1) {
            c1 = c + MAT_BLOCK * (1 + below(3));
            c1 = c1 < COLS ? c1 : COLS;
            acts_set_part(ops, a, x + (size_t)t * LDX + c, LDX, t, t1, c, c1);
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 7, 8, 9, 16, 23, 63, 64, 65, 72, 100, 128, 150};
    float *x = malloc(sizeof(float) * TOKENS * LDX);
    const struct cpu_ops *ref, *ops;
    err e;
    assert_int_equal(cpu_select("scalar", &ref, &e), ERR_OK);
    for (int i = 0; cpu_isa(i); i++) {
        if (cpu_select(cpu_isa(i), &ops, &e))
            continue;
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            struct acts want, got;
            void *memory[] = {make(&want, counts[k]), make(&got, counts[k])};
            fill(x);
            for (int t = 0; t < counts[k]; t++)
                acts_set(ref, &want, x, LDX, t, t + 1);
            set_in_parts(ops, &got, x);
            check(&want, &got, ops->isa);
            check_own(ops, &got, x);
            acts_set(ops, &got, x, LDX, 0, counts[k]);
            check(&want, &got, ops->isa);
            free(memory[0]);
            free(memory[1]);
        }
    }
    free(x);
}

// Rows that are normalised together are those normalised alone, in place too.
static void test_norms_of_rows(void **state)
{
    (void)state;
    enum { ROWS = 11 };
    static const int sizes[] = {1, 5, 8, 64, 76, 128};
    float *x = malloc(sizeof(float) * TOKENS * LDX), w[128], want[ROWS * 130], got[ROWS * 130];
    const struct cpu_ops *ops, *ref;
    err e;
    assert_int_equal(cpu_select("scalar", &ref, &e), ERR_OK);
    for (int i = 0; cpu_isa(i); i++) {
        if (cpu_select(cpu_isa(i), &ops, &e))
            continue;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes * ROWS; k++) {
            int n = sizes[k / ROWS], rows = 1 + (int)(k % ROWS);
            fill(x);
            memset(want, 0, sizeof want);
            memset(got, 0, sizeof got);
            memcpy(w, x + 1000, sizeof w);
            const float *by = k % 3 ? w : NULL;
            for (int r = 0; r < rows; r++)
                ref->rmsnorm(want + r * 130, x + r * LDX, by, n, 1e-5f, (float)(k % 2));
            cpu_rmsnorm_rows(ops, got, 130, x, LDX, by, rows, n, 1e-5f, (float)(k % 2));
            assert_true(same_floats(want, got, ROWS * 130));
            cpu_rmsnorm_rows(ops, x, LDX, x, LDX, by, rows, n, 1e-5f, (float)(k % 2));
            for (int r = 0; r < rows; r++)
                assert_true(same_floats(want + r * 130, x + r * LDX, (size_t)n));
        }
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_norms_of_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
