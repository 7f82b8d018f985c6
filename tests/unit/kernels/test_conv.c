// test_conv.c - 3x3 convolution and group normalisation: every instruction set equals the scalar definition bit for bit,
// any split gives the same bits, and all of it is a convolution by a naive sum in f64.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/conv.h"
#include "kernels/cpu.h"
#include "kernels/cpu/conv_ops.h"

struct layer {
    enum quant_type type;
    int cin, cout, n, h, w, stride, oh, ow;
    struct conv conv;
    uint8_t *packed;
    float *weights;  // as the file's type has them, [cout][cin][9]
    float *x;        // [n][h][w][cin]
    float *bias, *add;
};

static float number(uint64_t seed, uint64_t i)
{
    double u = rng_unit(seed, i, 1) + rng_unit(seed, i, 2) + rng_unit(seed, i, 3) - 1.5;
    return (float)(2 * u);
}

static void store(enum quant_type type, void *to, size_t i, float v, float *ret_kept)
{
    uint32_t bits;
    uint16_t h;
    memcpy(&bits, &v, 4);
    if (type == QUANT_F32) {
        memcpy((uint8_t *)to + 4 * i, &v, 4);
        *ret_kept = v;
        return;
    }
    h = type == QUANT_F16 ? quant_f32_to_f16(v) : (uint16_t)(bits >> 16);
    memcpy((uint8_t *)to + 2 * i, &h, 2);
    bits = (uint32_t)h << 16;
    memcpy(&v, &bits, 4);
    *ret_kept = type == QUANT_F16 ? quant_f16_to_f32(h) : v;
}

static void make(struct layer *l, uint64_t seed)
{
    err e = {0};
    size_t nw = (size_t)l->cout * (size_t)l->cin * 9, nx = (size_t)l->n * (size_t)l->h * (size_t)l->w * (size_t)l->cin;
    uint8_t *file = malloc(nw * 4);
    l->weights = malloc(nw * sizeof(float));
    for (size_t i = 0; i < nw; i++)
        store(l->type, file, i, number(seed, i) / sqrtf((float)l->cin * 9), &l->weights[i]);
    l->x = malloc(nx * sizeof(float));
    for (size_t i = 0; i < nx; i++) {  // as after SiLU: a positive mean
        float v = number(seed + 1, i);
        l->x[i] = v / (1 + expf(-v));
    }
    l->oh = (l->h - 1) / l->stride + 1;
    l->ow = (l->w - 1) / l->stride + 1;
    assert_int_equal(conv_plan(&l->conv, l->type, l->cout, l->cin, &e), ERR_OK);
    l->packed = aligned_alloc(64, (l->conv.bytes + 63) / 64 * 64);
    conv_pack(&l->conv, l->packed, file, 0, conv_groups(&l->conv));
    l->conv.data = l->packed;
    size_t nbias = (size_t)conv_groups(&l->conv) * CONV_WIDE, ny = (size_t)l->n * (size_t)l->oh * (size_t)l->ow;
    l->bias = malloc(nbias * sizeof(float));
    for (size_t i = 0; i < nbias; i++)
        l->bias[i] = number(seed + 2, i);
    ny *= (size_t)l->cout;
    l->add = malloc(ny * sizeof(float));
    for (size_t i = 0; i < ny; i++)
        l->add[i] = number(seed + 3, i);
    free(file);
}

static void drop(struct layer *l)
{
    free(l->packed);
    free(l->weights);
    free(l->x);
    free(l->bias);
    free(l->add);
}

static float *frame(const struct layer *l, struct conv_job *j)
{
    j->rows = conv_frame_rows(l->stride, j->y1 - j->y0);
    j->width = conv_frame_width(l->stride, l->ow);
    float *f = calloc((size_t)l->n * (size_t)j->rows * (size_t)j->width * (size_t)l->cin, sizeof *f);
    for (int i = 0; i < l->n; i++)
        for (int r = 0; r < j->rows; r++)
            for (int c = 0; c < j->width; c++) {
                int y = j->y0 * l->stride - 1 + r, x = c - 1;
                if (y >= 0 && y < l->h && x >= 0 && x < l->w)
                    memcpy(f + ((i * j->rows + r) * j->width + c) * l->cin, l->x + ((i * l->h + y) * l->w + x) * l->cin,
                           (size_t)l->cin * sizeof *f);
            }
    return f;
}

// Stripes of `stripe` rows, runs of `run` tiles (Winograd), groups one by one from the last.
static float *run_layer(const struct cpu_ops *ops, const struct layer *l, bool winograd, bool add, int stripe, int run)
{
    float *y = malloc((size_t)l->n * (size_t)l->oh * (size_t)l->ow * (size_t)l->cout * sizeof *y);
    for (int y0 = 0; y0 < l->oh; y0 += stripe) {
        struct conv_job j = {.w = &l->conv, .n = l->n, .stride = l->stride, .y0 = y0, .h = l->oh, .wd = l->ow, .y = y,
                             .add = add ? l->add : NULL, .ldy = l->cout, .bias = l->bias};
        j.y1 = y0 + stripe < l->oh ? y0 + stripe : l->oh;
        float *f = frame(l, &j);
        j.x = f;
        for (int b = 0; b < conv_blocks(&j) && !winograd; b++)
            for (int g = conv_groups(&l->conv) - 1; g >= 0; g--)
                conv_direct(ops, &j, b, g, g + 1);
        for (int first = 0; first < conv_tiles(&j) && winograd; first += run) {
            int n = conv_tiles(&j) - first < run ? conv_tiles(&j) - first : run;
            size_t plane = conv_plane(n, l->cin);
            float *v = malloc(plane * CONV_PLANES * sizeof *v), *s = malloc(conv_group_floats(n, l->cin) * sizeof *s);
            conv_input(ops, &j, first, 0, n / 2, v, plane);
            conv_input(ops, &j, first, n / 2, n, v, plane);
            for (int g = conv_groups(&l->conv) - 1; g >= 0; g--) {
                conv_group(ops, &j, first, n / 3, n, g, v, plane, s);
                conv_group(ops, &j, first, 0, n / 3, g, v, plane, s);
            }
            free(v);
            free(s);
        }
        free(f);
    }
    return y;
}

static double naive(const struct layer *l, int image, int y, int x, int o)
{
    double sum = 0;
    for (int t = 0; t < 9; t++) {
        int iy = y * l->stride - 1 + t / 3, ix = x * l->stride - 1 + t % 3;
        if (iy < 0 || iy >= l->h || ix < 0 || ix >= l->w)
            continue;
        for (int c = 0; c < l->cin; c++)
            sum += (double)l->weights[(o * l->cin + c) * 9 + t] *
                   (double)l->x[((image * l->h + iy) * l->w + ix) * l->cin + c];
    }
    return sum + (double)l->bias[o];
}

static void check_naive(const struct layer *l, const float *y, bool add, double limit)
{
    double worst = 0, square = 0;
    size_t i = 0;
    for (int n = 0; n < l->n; n++)
        for (int r = 0; r < l->oh; r++)
            for (int c = 0; c < l->ow; c++)
                for (int o = 0; o < l->cout; o++, i++) {
                    double want = naive(l, n, r, c, o) + (add ? (double)l->add[i] : 0), d = fabs((double)y[i] - want);
                    worst = d > worst ? d : worst;
                    square += want * want;
                }
    worst /= sqrt(square / (double)i);
    print_message("%d -> %d, %dx%d stride %d: worst error %.1e of the rms\n", l->cin, l->cout, l->h, l->w, l->stride, worst);
    assert_true(worst < limit);
}

static const struct layer layers[] = {
    {QUANT_F32, 4, 12, 2, 7, 9, 1, .oh = 0},     {QUANT_F16, 20, 40, 1, 13, 6, 2, .oh = 0},
    {QUANT_BF16, 330, 24, 1, 5, 5, 1, .oh = 0},  {QUANT_F16, 8, 3, 2, 18, 15, 1, .oh = 0},
    {QUANT_F32, 24, 20, 1, 9, 14, 2, .oh = 0},   {QUANT_BF16, 136, 36, 2, 10, 17, 1, .oh = 0},
    {QUANT_F16, 264, 16, 1, 12, 12, 1, .oh = 0}, {QUANT_F32, 40, 17, 1, 1, 1, 1, .oh = 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

static void one_layer(const struct layer *shape, uint64_t seed, bool winograd)
{
    struct layer l = *shape;
    make(&l, seed);
    size_t bytes = (size_t)l.n * (size_t)l.oh * (size_t)l.ow * (size_t)l.cout * sizeof(float);
    float *want[2] = {NULL, NULL};
    for (int i = 0; cpu_isa(i); i++) {
        const struct cpu_ops *ops;
        if (cpu_select(cpu_isa(i), &ops, NULL))
            continue;
        for (int add = 0; add < 2; add++) {
            float *y = run_layer(ops, &l, winograd, add, 1 << 20, 1 << 20);
            if (!want[add]) {
                check_naive(&l, y, add, winograd ? 2e-5 : 5e-6);  // seen: 3.2e-6, 7.4e-7
                want[add] = y;
                continue;
            }
            assert_memory_equal(y, want[add], bytes);
            free(y);
        }
        float *y = run_layer(ops, &l, winograd, true, 4, 5);
        assert_memory_equal(y, want[1], bytes);
        free(y);
    }
    free(want[0]);
    free(want[1]);
    drop(&l);
}

static void test_direct(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++)
        one_layer(&layers[i], 10 + (uint64_t)i, false);
}

static void test_winograd(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++)
        if (layers[i].cin % 8 == 0 && layers[i].stride == 1)
            one_layer(&layers[i], 30 + (uint64_t)i, true);
}

static void test_norm_slots(void **state)
{
    (void)state;
    enum { N = 37, C = 77 };
    float x[N * C], scale[C], shift[C], sum[2][C], square[2][C], y[2][N * C];
    for (int i = 0; i < N * C; i++)
        x[i] = 3 * number(5, (uint64_t)i) + 1;
    x[3] = 200, x[5] = -200, x[7] = 0;
    for (int i = 0; i < C; i++)
        scale[i] = number(6, (uint64_t)i), shift[i] = number(7, (uint64_t)i);
    const struct cpu_ops *ref, *ops;
    assert_int_equal(cpu_select("scalar", &ref, NULL), ERR_OK);
    assert_int_equal(cpu_select("auto", &ops, NULL), ERR_OK);
    for (int c = 1; c <= C; c += 19) {
        ref->conv->moments(x, N, c, sum[0], square[0]);
        ops->conv->moments(x, N, c, sum[1], square[1]);
        assert_memory_equal(sum[0], sum[1], (size_t)c * sizeof(float));
        assert_memory_equal(square[0], square[1], (size_t)c * sizeof(float));
        for (int silu = 0; silu < 2; silu++) {
            ref->conv->affine(y[0], x, scale, shift, N, c, silu);
            ops->conv->affine(y[1], x, scale, shift, N, c, silu);
            assert_memory_equal(y[0], y[1], (size_t)(N * c) * sizeof(float));
        }
    }
    double want = 0;
    for (int i = 0; i < N; i++)
        want += (double)x[i * C];
    assert_true(fabs(want - (double)sum[0][0]) < 1e-3);  // seen 2e-5
}

static void test_bad_plan(void **state)
{
    (void)state;
    struct conv c;
    err e = {0};
    assert_int_equal(conv_plan(&c, QUANT_Q4_0, 8, 8, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "Q4_0"));
    assert_int_equal(conv_plan(&c, QUANT_F32, 0, 8, &e), ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_winograd),
        cmocka_unit_test(test_norm_slots),
        cmocka_unit_test(test_bad_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
