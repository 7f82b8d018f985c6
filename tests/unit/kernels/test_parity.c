// Every operation of every instruction set this machine runs against the scalar table, bit for bit: op x shape x rows
// taken together. And the scalar table against independent arithmetic, with tolerances. Matrices: test_mat_parity.c.
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
#include "kernels/cpu/ref.h"

enum { MAX_ISAS = 8 };

static const struct cpu_ops *isas[MAX_ISAS];  // [0] is scalar
static int nisas;
static bool small;  // fewer sizes: under emulation
static uint64_t drawn;

static float uniform(void)  // -1 .. 1
{
    return (float)(2 * rng_unit(7, drawn++, 0) - 1);
}

static int below(int n)
{
    return (int)(rng_u64(7, drawn++, 0) % (uint64_t)n);
}

// Equal bits, or both NaN (which NaN comes out of a fused operation is the hardware's choice).
static bool same(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (a != a && b != b);
}

static void check_same(const float *a, const float *b, int n, const char *what, const char *isa)
{
    for (int i = 0; i < n; i++) {
        if (!same(a[i], b[i]))
            fail_msg("%s on %s: element %d is %.9g, scalar %.9g", what, isa, i, (double)b[i], (double)a[i]);
    }
}

static int setup(void **state)
{
    (void)state;
    err e = {0};
    const char *sizes = getenv("TEST_SIZES");
    small = sizes && strcmp(sizes, "small") == 0;
    int n = 0;
    while (cpu_isa(n))
        n++;
    while (n-- > 0 && nisas < MAX_ISAS) {
        if (cpu_select(cpu_isa(n), &isas[nisas], &e) == ERR_OK)
            print_message("parity: %s\n", isas[nisas++]->isa);
        else
            print_message("parity: %s\n", e.text);
    }
    return 0;
}

// ---- vectors

static const float specials[] = {0, -0.0f, 1e-40f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 88.5f, -87.2f, 3.4e38f};

static void fill(float *x, int n, bool special)
{
    for (int i = 0; i < n; i++)
        x[i] = uniform() * 10;
    for (int i = 0; special && i < n; i += 5)
        x[i] = specials[below((int)(sizeof specials / sizeof *specials))];
}

static void check_vectors(int n, bool special)
{
    enum { MAX = 600 };
    static float x[MAX + 1], w[MAX + 1], b[MAX + 1], y[2][MAX + 1];
    assert_true(n <= MAX);
    fill(x, n, special);
    fill(w, n, false);
    fill(b, n, special);
    const struct cpu_ops *r = isas[0];
    for (int i = 1; i < nisas; i++) {
        const struct cpu_ops *o = isas[i];
        for (int weights = 0; weights < 2; weights++) {
            r->rmsnorm(y[0], x, weights ? w : NULL, n, 1e-5f, (float)weights);
            o->rmsnorm(y[1], x, weights ? w : NULL, n, 1e-5f, (float)weights);
            check_same(y[0], y[1], n, "rmsnorm", o->isa);
            r->layernorm(y[0], x, w, weights ? b : NULL, n, 1e-5f);
            o->layernorm(y[1], x, w, weights ? b : NULL, n, 1e-5f);
            check_same(y[0], y[1], n, "layernorm", o->isa);
        }
        r->silu_mul(y[0], x, b, n);
        o->silu_mul(y[1], x, b, n);
        check_same(y[0], y[1], n, "silu_mul", o->isa);
        memcpy(y[0], x, sizeof x);
        memcpy(y[1], x, sizeof x);
        r->sigmoid_mul(y[0], b, n);
        o->sigmoid_mul(y[1], b, n);
        check_same(y[0], y[1], n, "sigmoid_mul", o->isa);
        const float *xs[] = {x, b, x + 1, b + 1}, *ws[] = {w, x, w, b};
        r->conv_silu(y[0], xs, ws, 1 + n % 4, n);
        o->conv_silu(y[1], xs, ws, 1 + n % 4, n);
        check_same(y[0], y[1], n, "conv_silu", o->isa);
        r->silu(y[0], x, n);
        o->silu(y[1], x, n);
        check_same(y[0], y[1], n, "silu", o->isa);
        for (int kind = 0; kind < 3; kind++) {
            r->gelu(y[0], x, n, (enum gelu)kind);
            o->gelu(y[1], x, n, (enum gelu)kind);
            check_same(y[0], y[1], n, kind == GELU_ERF ? "gelu erf" : kind == GELU_TANH ? "gelu tanh" : "gelu quick", o->isa);
        }
        r->add(y[0], x, n);
        o->add(y[1], x, n);
        check_same(y[0], y[1], n, "add", o->isa);
        for (int p = 0; p < 2; p++) {
            memcpy(y[0], x, sizeof x);
            memcpy(y[1], x, sizeof x);
            r->rope(y[0], w, b, n / 2 * 2, (enum rope_pairs)p);
            o->rope(y[1], w, b, n / 2 * 2, (enum rope_pairs)p);
            check_same(y[0], y[1], n, p == ROPE_HALF ? "rope half" : "rope adjacent", o->isa);
        }
        float top = r->max(x, n);
        if (!same(top, o->max(x, n)) && !(top == 0 && o->max(x, n) == 0))
            fail_msg("max of %d on %s", n, o->isa);
        assert_int_equal(r->argmax(x, n), o->argmax(x, n));
        double s = r->sum_exp(x, n, 3), t = o->sum_exp(x, n, 3);
        if (memcmp(&s, &t, 8) && !(s != s && t != t))
            fail_msg("sum_exp of %d on %s: %.17g, scalar %.17g", n, o->isa, t, s);
        for (int k = 0; k < 3; k++) {
            static uint8_t row[2][8 * MAX];
            if (special && k != KV_F32)
                continue;  // a NaN's bits may differ
            r->kv_store(row[0], x, n, (enum kv_type)k);
            o->kv_store(row[1], x, n, (enum kv_type)k);
            assert_memory_equal(row[0], row[1], kv_row_bytes((enum kv_type)k, n));
        }
    }
}

static void test_vectors(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 7, 8, 9, 12, 20, 31, 36, 64, 88, 127, 576};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_vectors(sizes[i], false);
        check_vectors(sizes[i], true);
    }
}

// Columns and rows taken together or one after the other, on every instruction set: the same state and outputs.
static void check_gdn(int k_dim, int cols)
{
    enum { ROWS = 5, MAX = 130, LD = 150 };
    static float q[ROWS * LD], k[ROWS * LD], v[ROWS * LD], g[ROWS * 2], state[3][MAX * GDN_COLS], out[3][ROWS * LD];
    fill(q, ROWS * LD, false);
    fill(k, ROWS * LD, false);
    fill(v, ROWS * LD, false);
    for (int i = 0; i < ROWS * LD; i++)
        k[i] *= 0.02f;
    for (int i = 0; i < 2 * ROWS; i++)
        g[i] = 0.5f + 0.5f * uniform();
    memset(state, 0, sizeof state);
    for (int i = 0; i < k_dim; i++)
        for (int c = 0; c < cols; c++)
            state[0][i * GDN_COLS + c] = state[1][i * GDN_COLS + c] = state[2][i * GDN_COLS + c] = uniform();
    for (int i = 0; i < nisas; i++) {
        float *o = out[i ? 1 : 0], *s = state[i ? 1 : 0];
        if (i > 1)
            memcpy(s, state[2], sizeof state[2]);
        else if (i == 1)
            memcpy(out[1], out[0], sizeof out[0]);
        struct gdn_args a = {s, ROWS, k_dim, cols, q, k, v, g, g + 1, o, LD, LD, 2, LD};
        isas[i]->gdn(&a);
        check_same(out[0], o, ROWS * LD, "gdn", isas[i]->isa);
        check_same(state[0], s, MAX * GDN_COLS, "gdn state", isas[i]->isa);
        memcpy(state[1], state[2], sizeof state[2]);
        for (int row = 0; row < ROWS; row++) {
            a = (struct gdn_args){state[1], 1, k_dim, cols, q + row * LD, k + row * LD, v + row * LD, g + 2 * row,
                                  g + 2 * row + 1, out[2] + row * LD, LD, LD, 2, LD};
            isas[i]->gdn(&a);
            check_same(out[0] + row * LD, out[2] + row * LD, cols, "gdn by rows", isas[i]->isa);
        }
        check_same(state[0], state[1], MAX * GDN_COLS, "gdn state by rows", isas[i]->isa);
        memcpy(state[1], state[2], sizeof state[2]);
    }
}

// The definition against f64, written the way the paper has it (Yang et al. 2024, arXiv 2412.06464, equation 10).
static void test_gdn(void **state)
{
    (void)state;
    static const int cols[] = {1, 7, 8, 12, 16, 20, 24, 31, 32};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        check_gdn(128, cols[i]);
        check_gdn(5, cols[i]);
    }
    enum { K = 6 };
    float s[K * GDN_COLS] = {0}, q[K], k[K], v = 0.7f, decay = 0.9f, beta = 0.3f, out;
    double want[K], read = 0, o = 0;
    fill(q, K, false);
    fill(k, K, false);
    for (int i = 0; i < K; i++)
        want[i] = (double)(s[i * GDN_COLS] = uniform());
    struct gdn_args a = {s, 1, K, 1, q, k, &v, &decay, &beta, &out, K, 1, 1, 1};
    isas[0]->gdn(&a);
    for (int i = 0; i < K; i++)
        read += (double)decay * want[i] * (double)k[i];
    for (int i = 0; i < K; i++) {
        want[i] = (double)decay * want[i] + (double)beta * ((double)v - read) * (double)k[i];
        o += want[i] * (double)q[i];
        assert_true(fabs(want[i] - (double)s[i * GDN_COLS]) < 1e-5);  // observed 2.3e-6
    }
    assert_true(fabs(o - (double)out) < 1e-4);  // of 104; observed 1.2e-5
}

// Ties go to the first; a NaN never wins.
static void test_argmax(void **state)
{
    (void)state;
    float x[100];
    for (int i = 0; i < nisas; i++) {
        for (int j = 0; j < 100; j++)
            x[j] = (float)(j % 10);
        assert_int_equal(isas[i]->argmax(x, 100), 9);
        x[3] = NAN;
        x[57] = 10;
        x[58] = 10;
        assert_int_equal(isas[i]->argmax(x, 100), 57);
        for (int j = 0; j < 100; j++)
            x[j] = -5;
        assert_int_equal(isas[i]->argmax(x, 100), 0);
        for (int j = 0; j < 100; j++)
            x[j] = j % 7 ? -INFINITY : NAN;
        assert_int_equal(isas[i]->argmax(x, 100), 0);
    }
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -86.6f; x < 88.7f; x += 0.000731f) {
        double want = exp((double)x), got = (double)ref_exp(x);
        worst = fmax(worst, fabs(got - want) / want);
    }
    assert_true(worst < 1.2e-7);  // observed 7.9e-8
    assert_true(ref_exp(0) == 1 && ref_exp(-100) == 0 && ref_exp(-INFINITY) == 0);
    assert_true(isinf(ref_exp(89)) && isinf(ref_exp(INFINITY)) && isnan(ref_exp(NAN)));
}

static void test_activations(void **state)
{
    (void)state;
    double worst[4] = {0};
    for (float x = -20; x < 20; x += 0.000317f) {
        double d = (double)x, u = sqrt(2 / M_PI) * (d + 0.044715 * d * d * d);
        double want[4] = {d / 2 * erfc(-d / sqrt(2)), d / 2 * (1 + tanh(u)), d / (1 + exp(-1.702 * d)), d / (1 + exp(-d))};
        for (int k = 0; k < 4; k++) {
            float y;
            if (k < 3)
                isas[0]->gelu(&y, &x, 1, (enum gelu)k);
            else
                isas[0]->silu(&y, &x, 1);
            worst[k] = fmax(worst[k], fabs((double)y - want[k]) / fmax(1, fabs(want[k])));
        }
    }
    assert_true(worst[0] < 2e-7);  // observed 8.0e-8
    assert_true(worst[1] < 5e-7);  // observed 1.2e-7
    assert_true(worst[2] < 5e-7);  // observed 1.3e-7
    assert_true(worst[3] < 3e-7);  // observed 1.2e-7
    static const float ends[] = {-1e30f, 1e30f, -INFINITY, INFINITY};
    float y[4];
    isas[0]->gelu(y, ends, 4, GELU_ERF);
    assert_true(y[0] == 0 && y[1] == 1e30f && y[2] == 0 && y[3] == INFINITY);
}

// ---- attention

struct cache {
    void *pages[24];
    int page_tokens;
    size_t v_off;
};

// Pages hold NaN wherever nothing was stored.
static struct cache make_cache(const struct cpu_ops *ops, int n, int head_dim, enum kv_type kv, int page_tokens,
                               const float *k, const float *v)
{
    size_t row = kv_row_bytes(kv, head_dim), bytes = 2 * row * (size_t)page_tokens + 64;
    struct cache c = {.page_tokens = page_tokens, .v_off = row * (size_t)page_tokens};
    for (int p = 0; p * page_tokens < n; p++) {
        c.pages[p] = malloc(bytes);
        memset(c.pages[p], 0xff, bytes);
    }
    for (int i = 0; i < n; i++) {
        uint8_t *page = c.pages[i / page_tokens], key[1024], back[1024];
        ops->kv_store(key, k + i * head_dim, head_dim, kv);
        kv_put_key(page, i % page_tokens, key, head_dim, kv);
        ops->kv_store(page + c.v_off + (size_t)(i % page_tokens) * row, v + i * head_dim, head_dim, kv);
        memcpy(back, key, sizeof back);
        kv_get_key(page, i % page_tokens, back, head_dim, kv);
        assert_memory_equal(back, key, row);
    }
    return c;
}

struct attn_case {
    int head_dim, group, keys, window, page_tokens;
    int from;  // first row that is computed
    enum kv_type kv;
    float softcap;
};

// Rows pos0 .. pos0 + rows of the last queries, in one call.
static void run_attn(const struct cpu_ops *ops, const struct attn_case *c, const struct cache *cache, const float *q,
                     float *out, int pos0, int rows)
{
    int width = c->group * c->head_dim;
    float *scratch = malloc((size_t)attn_scratch_floats(c->group, c->head_dim) * 4);
    struct attn_args a = {
        .q = q + pos0 * width, .out = out + pos0 * width, .ldq = width, .ldo = width, .rows = rows, .group = c->group,
        .head_dim = c->head_dim, .pos0 = pos0, .window = c->window, .scale = 0.17f, .softcap = c->softcap,
        .pages = cache->pages, .page_tokens = c->page_tokens, .v_off = cache->v_off, .kv = c->kv, .scratch = scratch,
    };
    ops->attn(&a);
    free(scratch);
}

// One row, its segments computed in two calls and joined.
static void run_parts(const struct cpu_ops *ops, const struct attn_case *c, const struct cache *cache, const float *q,
                      float *out, int pos)
{
    int width = c->group * c->head_dim, ld = c->head_dim + 2, end = pos / KV_SEGMENT + 1;
    int first = c->window && pos >= c->window ? (pos - c->window + 1) / KV_SEGMENT : 0, cut = first + below(end - first + 1);
    float *scratch = malloc((size_t)attn_scratch_floats(c->group, c->head_dim) * 4);
    float *parts = malloc((size_t)((end - first) * c->group * ld) * 4);
    struct attn_args a = {
        .q = q + pos * width, .ldq = width, .rows = 1, .group = c->group, .head_dim = c->head_dim, .pos0 = pos,
        .window = c->window, .scale = 0.17f, .softcap = c->softcap, .pages = cache->pages, .page_tokens = c->page_tokens,
        .v_off = cache->v_off, .kv = c->kv, .scratch = scratch, .parts = parts, .seg0 = first, .seg1 = cut,
    };
    if (cut > first)
        ops->attn(&a);
    a.parts = parts + (cut - first) * c->group * ld;
    a.seg0 = cut;
    a.seg1 = end;
    if (end > cut)
        ops->attn(&a);
    for (int h = 0; h < c->group; h++)
        ops->attn_join(out + pos * width + h * c->head_dim, parts + h * ld, c->group * ld, end - first, c->head_dim);
    free(parts);
    free(scratch);
}

// Two KV heads in one call, the second being the first: its bits are those of a call of its own.
static void run_heads(const struct cpu_ops *ops, const struct attn_case *c, const struct cache *cache, const float *q,
                      const float *want)
{
    int width = c->group * c->head_dim, pos = c->keys - 1;
    if (2 * c->group > 64)
        return;
    float *scratch = malloc((size_t)attn_scratch_floats(c->group, c->head_dim) * 4);
    float *twice = malloc((size_t)(2 * width) * 4), *out = malloc((size_t)(2 * width) * 4);
    memcpy(twice, q + pos * width, (size_t)width * 4);
    memcpy(twice + width, q + pos * width, (size_t)width * 4);
    ops->attn(&(struct attn_args){
        .q = twice, .out = out, .rows = 1, .group = c->group, .heads = 2, .head_dim = c->head_dim, .pos0 = pos,
        .window = c->window, .scale = 0.17f, .softcap = c->softcap, .pages = cache->pages, .page_tokens = c->page_tokens,
        .v_off = cache->v_off, .kv = c->kv, .scratch = scratch,
    });
    check_same(want + pos * width, out, width, "first head", ops->isa);
    check_same(want + pos * width, out + width, width, "second head", ops->isa);
    free(twice);
    free(out);
    free(scratch);
}

// Softmax attention in f64 over the stored keys.
static void check_attn_close(const struct attn_case *c, const float *q, const float *k, const float *v, const float *out)
{
    for (int pos = c->from; pos < c->keys; pos += 13) {
        for (int h = 0; h < c->group; h++) {
            const float *qq = q + (pos * c->group + h) * c->head_dim;
            int lo = c->window && pos - c->window + 1 > 0 ? pos - c->window + 1 : 0;
            double sum = 0, acc[256] = {0};
            for (int j = lo; j <= pos; j++) {
                double s = 0;
                for (int d = 0; d < c->head_dim; d++)
                    s += (double)qq[d] * (double)k[j * c->head_dim + d];
                s *= 0.17;
                if (c->softcap != 0)
                    s = (double)c->softcap * tanh(s / (double)c->softcap);
                double p = exp(s);
                sum += p;
                for (int d = 0; d < c->head_dim; d++)
                    acc[d] += p * (double)v[j * c->head_dim + d];
            }
            double tolerance = c->kv == KV_F32 ? 2e-5 : c->kv == KV_F16 ? 2e-3 : 0.06;  // observed 2e-6, 6e-4, 0.02
            for (int d = 0; d < c->head_dim; d++)
                assert_true(fabs((double)out[(pos * c->group + h) * c->head_dim + d] - acc[d] / sum) < tolerance);
        }
    }
}

static void check_attn(const struct attn_case *c)
{
    int n = c->keys, width = c->group * c->head_dim;
    size_t kb = (size_t)(n * c->head_dim) * 4, qb = (size_t)(n * width) * 4;
    float *k = malloc(kb), *v = malloc(kb), *q = malloc(qb), *want = malloc(qb), *got = malloc(qb);
    for (int i = 0; i < n * c->head_dim; i++) {
        k[i] = uniform() * 2;
        v[i] = uniform();
    }
    for (int i = 0; i < n * width; i++)
        q[i] = uniform() * 2;
    struct cache cache = make_cache(isas[0], n, c->head_dim, c->kv, c->page_tokens, k, v);
    memset(want, 0, qb);
    run_attn(isas[0], c, &cache, q, want, c->from, n - c->from);
    check_attn_close(c, q, k, v, want);
    for (int i = 1; i < nisas; i++) {
        for (int chunk = 1; chunk <= n; chunk = chunk == 1 ? 7 : chunk == 7 ? 33 : chunk == 33 ? n : n + 1) {
            memset(got, 0, qb);
            for (int p = c->from; p < n; p += chunk)
                run_attn(isas[i], c, &cache, q, got, p, n - p < chunk ? n - p : chunk);
            check_same(want, got, n * width, "attention", isas[i]->isa);
        }
    }
    for (int i = 0; i < nisas; i++) {
        run_parts(isas[i], c, &cache, q, got, n - 1);
        check_same(want, got, n * width, "attention in parts", isas[i]->isa);
        run_heads(isas[i], c, &cache, q, want);
    }
    for (int p = 0; p < 24; p++)
        free(cache.pages[p]);
    free(k);
    free(v);
    free(q);
    free(want);
    free(got);
}

static void test_attention(void **state)
{
    (void)state;
    static const int dims[] = {12, 20, 36, 64, 72, 128, 8};
    static const int groups[] = {3, 1, 2, 3, 4, 8, 5};
    for (int kv = 0; kv < 3; kv++) {
        for (int i = 0; i < 7; i++) {
            struct attn_case c = {.head_dim = dims[i], .group = groups[i], .keys = 139, .page_tokens = i % 2 ? 64 : 128,
                                  .kv = (enum kv_type)kv};
            check_attn(&c);
            c.window = i % 2 ? 21 : 70;
            check_attn(&c);
            c.softcap = 2;
            check_attn(&c);
        }
        // Over several segments, without and with a window that begins inside one.
        struct attn_case c = {.head_dim = 64, .group = 3, .keys = 1100, .from = 1010, .page_tokens = 64, .kv = (enum kv_type)kv};
        check_attn(&c);
        c.window = 560;
        check_attn(&c);
    }
    check_attn(&(struct attn_case){.head_dim = 64, .group = 3, .keys = 301, .page_tokens = 64, .kv = KV_F16});
    check_attn(&(struct attn_case){.head_dim = 256, .group = 40, .keys = 40, .page_tokens = 64, .kv = KV_F16});
    check_attn(&(struct attn_case){.head_dim = 256, .group = 7, .keys = 90, .page_tokens = 64, .kv = KV_Q8});
}

// ---- attention of plain rows

struct mha_case {
    int rows, keys, head_dim, pos0;
    bool causal;
};

enum { MHA_GAP = 5 };  // floats between a row's end and the next row: they are NaN

static int mha_end(const struct mha_case *c, int row)
{
    return c->causal && c->pos0 + row + 1 < c->keys ? c->pos0 + row + 1 : c->keys;
}

static void check_mha_close(const struct mha_case *c, const float *q, const float *k, const float *v, const float *out)
{
    int ld = c->head_dim + MHA_GAP;
    for (int r = 0; r < c->rows; r += 1 + c->rows / 7) {
        double sum = 0, acc[512] = {0};
        for (int j = 0; j < mha_end(c, r); j++) {
            double s = 0;
            for (int d = 0; d < c->head_dim; d++)
                s += (double)q[r * ld + d] * (double)k[j * ld + d];
            double p = exp(s * 0.2);
            sum += p;
            for (int d = 0; d < c->head_dim; d++)
                acc[d] += p * (double)v[j * ld + d];
        }
        for (int d = 0; d < c->head_dim; d++)
            assert_true(fabs((double)out[r * ld + d] - acc[d] / sum) < 2e-5);  // observed 1.8e-6
    }
}

static float *mha_rows(int n, int head_dim, float scale)
{
    int ld = head_dim + MHA_GAP;
    float *x = malloc((size_t)(n * ld) * 4);
    for (int i = 0; i < n * ld; i++)
        x[i] = i % ld < head_dim ? uniform() * scale : NAN;
    return x;
}

// Rows in parts of `part`: what stands in one call does not matter.
static void run_mha(const struct cpu_ops *ops, const struct mha_case *c, int part, const float *q, const float *k,
                    const float *v, float *out)
{
    int ld = c->head_dim + MHA_GAP;
    float *scratch = malloc(attn_mha_floats(part, c->head_dim) * 4);
    memset(scratch, 0xff, attn_mha_floats(part, c->head_dim) * 4);
    for (int r = 0; r < c->rows; r += part) {
        struct mha_args a = {.q = q + r * ld, .k = k, .v = v, .out = out + r * ld, .ldq = ld, .ldk = ld, .ldv = ld, .ldo = ld,
                             .rows = c->rows - r < part ? c->rows - r : part, .keys = c->keys, .head_dim = c->head_dim,
                             .causal = c->causal, .pos0 = c->pos0 + r, .scale = 0.2f, .scratch = scratch};
        ops->mha(&a);
    }
    free(scratch);
}

static void check_mha(const struct mha_case *c, bool special)
{
    int ld = c->head_dim + MHA_GAP, n = c->rows * ld;
    float *q = mha_rows(c->rows, c->head_dim, 2), *k = mha_rows(c->keys, c->head_dim, 2);
    float *v = mha_rows(c->keys, c->head_dim, 1), *want = mha_rows(c->rows, c->head_dim, 0);
    float *got = malloc((size_t)n * 4);
    if (special) {
        k[c->keys / 2 * ld] = INFINITY;
        v[(c->keys - 1) * ld + c->head_dim - 1] = NAN;
    }
    run_mha(isas[0], c, c->rows, q, k, v, want);
    if (!special)
        check_mha_close(c, q, k, v, want);
    static const int parts[] = {1, 2, 3, 4, 5, 9, 13, 48, 61, 400};
    for (int i = 1; i < nisas; i++) {
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
            if (parts[j] < 4 && c->rows > 100)
                continue;
            memset(got, 0xff, (size_t)n * 4);  // what is not an output stays NaN, as in want
            run_mha(isas[i], c, parts[j], q, k, v, got);
            check_same(want, got, n, "mha", isas[i]->isa);
        }
    }
    free(q);
    free(k);
    free(v);
    free(want);
    free(got);
}

static void test_mha(void **state)
{
    (void)state;
    static const int dims[] = {1, 7, 8, 13, 24, 32, 40, 64, 72, 80, 160};
    static const int keys[] = {1, 7, 8, 15, 77, 128, 129, 300};
    for (int d = 0; d < 11; d += small ? 3 : 1) {
        for (int k = 0; k < 8; k++) {
            check_mha(&(struct mha_case){.rows = 23, .keys = keys[k], .head_dim = dims[d]}, false);
            check_mha(&(struct mha_case){.rows = keys[k], .keys = keys[k], .head_dim = dims[d], .causal = true}, false);
        }
        check_mha(&(struct mha_case){.rows = 31, .keys = 200, .head_dim = dims[d], .causal = true, .pos0 = 110}, false);
        check_mha(&(struct mha_case){.rows = 1, .keys = 500, .head_dim = dims[d]}, false);
        check_mha(&(struct mha_case){.rows = 14, .keys = 140, .head_dim = dims[d]}, true);
        check_mha(&(struct mha_case){.rows = 140, .keys = 140, .head_dim = dims[d], .causal = true}, true);
    }
    check_mha(&(struct mha_case){.rows = small ? 7 : 50, .keys = 260, .head_dim = 512}, false);
    check_mha(&(struct mha_case){.rows = 3, .keys = 1500, .head_dim = 64}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_gdn),     cmocka_unit_test(test_argmax),      cmocka_unit_test(test_exp),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_mha),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
