// Loading and multiplying weights: any split over lanes gives what the row-by-row definition gives, biases are added
// once, and what does not fit is refused by name.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/blocks/linear.h"

enum { IN = 48, TOKENS = 5, ATTN = 48, KV = 24 };

struct scene {
    struct weights *weights;
    const struct cpu_ops *ops;
    struct packed *packed;
    struct linear q, k, v;
    float x[TOKENS * IN];
    uint8_t *acts;
};

static void open_scene(struct scene *s)
{
    err e = {0};
    memset(s, 0, sizeof *s);
    assert_int_equal(weights_open("tests/fixtures/models/llama-bias-f16", &s->weights, &e), ERR_OK);
    assert_int_equal(cpu_select("auto", &s->ops, &e), ERR_OK);
    struct loader *ld = loader_new(s->weights, MAT_INT8, s->ops);
    const char *p = "model.layers.0.self_attn.";
    char w[128], b[128];
    struct linear *all[] = {&s->q, &s->k, &s->v};
    for (int i = 0; i < 3; i++) {
        snprintf(w, sizeof w, "%s%c_proj.weight", p, "qkv"[i]);
        snprintf(b, sizeof b, "%s%c_proj.bias", p, "qkv"[i]);
        assert_int_equal(linear_open(all[i], ld, w, i == 2 ? NULL : b, i ? KV : ATTN, IN, &e), ERR_OK);
    }
    assert_int_equal(loader_run(ld, 3, &e), ERR_OK);
    s->packed = loader_take(ld);
    for (int i = 0; i < TOKENS * IN; i++)
        s->x[i] = sinf((float)i);
    s->acts = aligned_alloc(64, (acts_bytes(TOKENS, IN, MAT_F32) + 63) / 64 * 64);
}

static void close_scene(struct scene *s)
{
    free(s->acts);
    packed_free(s->packed);
    weights_close(s->weights);
}

// The definition: one chain of fused multiply-adds a row, then the bias.
static float expected(const struct linear *l, const float *x, int row)
{
    float w[IN], acc = 0;
    mat_row(&l->w, row, w);
    for (int k = 0; k < IN; k++)
        acc = fmaf(w[k], x[k], acc);
    return l->bias ? acc + l->bias[row] : acc;
}

static void check(const struct scene *s, const struct linear *l, const float *y, int ld, int row0)
{
    for (int t = 0; t < TOKENS; t++) {
        for (int r = 0; r < l->out; r++) {
            float want = expected(l, s->x + t * IN, r);
            assert_memory_equal(&y[t * ld + row0 + r], &want, sizeof want);
        }
    }
}

static void test_any_number_of_lanes(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    assert_non_null(s.q.bias);
    assert_null(s.v.bias);
    for (int lanes = 1; lanes <= 20; lanes += 3) {
        enum { LD = ATTN + 2 * KV };
        float y[TOKENS * LD] = {0};
        struct acts a;
        acts_init(&a, s.acts, TOKENS, IN, MAT_F32);
        a.n = TOKENS;
        acts_set(s.ops, &a, s.x, IN, 0, TOKENS);
        for (int i = 0; i < lanes; i++)
            linear_apply(&(struct lane){NULL, i, lanes}, s.ops, (const struct linear *[]){&s.q, &s.k, &s.v},
                         (float *[]){y, y + ATTN, y + ATTN + KV}, (int[]){LD, LD, LD}, 3, &a, MAT_STORE);
        check(&s, &s.q, y, LD, 0);
        check(&s, &s.k, y, LD, ATTN);
        check(&s, &s.v, y, LD, ATTN + KV);
    }
    close_scene(&s);
}

// What one lane of so many writes of the groups in the set, each compared with the definition; returns how many groups.
static int check_some(const struct scene *s, const struct acts *a, int lane, int lanes, uint64_t set, uint64_t *written)
{
    const float untouched = 12345;
    float y[TOKENS * ATTN];
    int n = 0;
    for (int i = 0; i < TOKENS * ATTN; i++)
        y[i] = untouched;
    linear_apply_some(&(struct lane){NULL, lane, lanes}, s->ops, &s->q, y, ATTN, a, &set);
    for (int g = 0; g < ATTN / MAT_GROUP; g++) {
        bool in = y[g * MAT_GROUP] != untouched;
        for (int i = 0; i < TOKENS * MAT_GROUP; i++) {
            int t = i / MAT_GROUP, r = g * MAT_GROUP + i % MAT_GROUP;
            float want = in ? expected(&s->q, s->x + t * IN, r) : untouched;
            assert_memory_equal(&y[t * ATTN + r], &want, sizeof want);
        }
        assert_false(in && *written >> g & 1);
        *written |= (uint64_t)in << g;
        n += in;
    }
    return n;
}

// Any set of row groups is shared out alike; each group is computed once, the others are left alone.
static void test_some_groups(void **state)
{
    (void)state;
    struct scene s;
    open_scene(&s);
    struct acts a;
    acts_init(&a, s.acts, TOKENS, IN, MAT_F32);
    a.n = TOKENS;
    acts_set(s.ops, &a, s.x, IN, 0, TOKENS);
    for (uint64_t set = 0; set < 1u << ATTN / MAT_GROUP; set++)
        for (int lanes = 1; lanes <= 7; lanes += 2) {
            uint64_t written = 0;
            int least = ATTN, most = 0;
            for (int i = 0; i < lanes; i++) {
                int n = check_some(&s, &a, i, lanes, set, &written);
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
            assert_true(written == set && most - least <= 1);
        }
    close_scene(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    struct scene s;
    struct linear l;
    const float *v;
    struct mat table;
    err e = {0};
    open_scene(&s);
    struct loader *ld = loader_new(s.weights, MAT_INT8, s.ops);
    assert_int_equal(linear_open(&l, ld, "model.norm.weight", NULL, IN, IN, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "'model.norm.weight' has shape [48], expected [48, 48]"));
    assert_int_equal(linear_open(&l, ld, "none.weight", NULL, IN, IN, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "'none.weight' is missing"));
    assert_int_equal(loader_vector(ld, "model.norm.weight", IN + 1, &v, &e), ERR_CORRUPT);
    assert_int_equal(loader_table(ld, "model.embed_tokens.weight", 509, IN + 1, &table, &e), ERR_CORRUPT);
    assert_int_equal(loader_table(ld, "model.embed_tokens.weight", 509, IN, &table, &e), ERR_OK);
    assert_int_equal(table.layout, MAT_BORROWED);
    loader_free(ld);
    assert_true(packed_uses(s.packed, weights_find(s.weights, "model.layers.0.self_attn.q_proj.bias")));
    assert_false(packed_uses(s.packed, weights_find(s.weights, "model.layers.0.self_attn.v_proj.bias")));
    close_scene(&s);
    loader_free(NULL);
    packed_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_lanes),
        cmocka_unit_test(test_some_groups),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
