// How attention is shared out: every (row, head) is computed exactly once whatever the lanes and the batch, appended
// keys land where the layout says, and the shares are even.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/blocks/attn.h"

enum { HEADS = 9, KV_HEADS = 3, DIM = 8, WIDTH = (HEADS + 2 * KV_HEADS) * DIM, ROWS = 300, MAX_LANES = 16 };

static _Atomic long seen[ROWS * HEADS];  // keys each row and head was computed with
static _Atomic int joined;
static long work[MAX_LANES];  // keys used by a row and head, and twice that for reading them, which counts once for all of a call
static _Thread_local int lane_now;
static const float *qkv_base;

// Counts instead of computing.
static void count_attn(const struct attn_args *a)
{
    int kv_heads = a->heads > 1 ? a->heads : 1, heads = a->group * kv_heads, keys = 0;
    for (int r = 0; r < a->rows; r++) {
        for (int h = 0; h < heads; h++) {
            size_t at = (size_t)(a->q - qkv_base) + (size_t)r * WIDTH + (size_t)h * DIM;
            int from = a->parts ? a->seg0 * KV_SEGMENT : 0, to = a->pos0 + r + 1;
            if (a->parts && to > a->seg1 * KV_SEGMENT)
                to = a->seg1 * KV_SEGMENT;
            seen[at / WIDTH * HEADS + at % WIDTH / DIM] += keys = to - from;
            work[lane_now] += keys;
        }
    }
    work[lane_now] += 2L * keys * kv_heads;
    size_t head = (size_t)(a->q - qkv_base) % WIDTH / DIM;
    if (heads == a->group)
        assert_int_equal(head / (HEADS / KV_HEADS), (head + (size_t)a->group - 1) / (HEADS / KV_HEADS));
    assert_int_equal(a->k_off, 2 * (head / (HEADS / KV_HEADS)) * KV_PAGE_TOKENS * DIM * 4);
}

static void count_join(float *out, const float *parts, int ld, int n, int head_dim)
{
    (void)out;
    (void)parts;
    (void)ld;
    (void)n;
    (void)head_dim;
    joined++;
}

struct scene {
    struct kv_layout layout;
    struct batch batch;
    struct batch_seq seqs[8];
    struct kv_seq kv[8];
    struct kv_pool *pool;
    float *qkv, *out, *parts, *scratch[MAX_LANES];
};

static void add(struct scene *s, int pos, int rows)
{
    int i = s->batch.nseqs++;
    kv_seq_init(&s->kv[i], s->pool);
    assert_true(kv_seq_reserve(&s->kv[i], pos + rows));
    s->seqs[i] = (struct batch_seq){s->batch.rows, rows, pos, &s->kv[i]};
    s->batch.rows += rows;
}

static struct scene *make_scene(void)
{
    struct scene *s = calloc(1, sizeof *s);
    err e;
    s->layout = (struct kv_layout){.type = KV_F32, .ngroups = 1, .groups = {{1, KV_HEADS, DIM, 0}}};
    assert_int_equal(kv_pool_open(&s->layout, kv_page_bytes(&s->layout) * 100, &s->pool, &e), ERR_OK);
    s->batch.seqs = s->seqs;
    s->qkv = calloc((size_t)ROWS * WIDTH, sizeof *s->qkv);
    s->out = calloc((size_t)ROWS * HEADS * DIM, sizeof *s->out);
    s->parts = calloc(attn_parts_floats(MAX_LANES, HEADS / KV_HEADS, DIM), sizeof *s->parts);
    for (int i = 0; i < MAX_LANES; i++)
        s->scratch[i] = calloc((size_t)attn_scratch_floats(HEADS / KV_HEADS, DIM), sizeof(float));
    qkv_base = s->qkv;
    return s;
}

static void free_scene(struct scene *s)
{
    for (int i = 0; i < s->batch.nseqs; i++)
        kv_seq_done(&s->kv[i]);
    kv_pool_close(s->pool);
    for (int i = 0; i < MAX_LANES; i++)
        free(s->scratch[i]);
    free(s->parts);
    free(s->out);
    free(s->qkv);
    free(s);
}

static struct attn args(struct scene *s, const struct cpu_ops *ops)
{
    return (struct attn){.ops = ops, .batch = &s->batch, .layout = &s->layout, .heads = HEADS, .kv_heads = KV_HEADS,
                         .head_dim = DIM, .scale = 1, .qkv = s->qkv, .ldqkv = WIDTH, .out = s->out, .ldout = HEADS * DIM, .parts = s->parts};
}

struct job {
    struct scene *scene;
    const struct cpu_ops *ops;
};

static void store_lane(struct lane *lane, void *arg)
{
    struct job *j = arg;
    struct attn a = args(j->scene, j->ops);
    a.scratch = j->scene->scratch[lane->id];
    attn_store(lane, &a);
}

static void run_lane(struct lane *lane, void *arg)
{
    struct job *j = arg;
    struct attn a = args(j->scene, j->ops);
    a.scratch = j->scene->scratch[lane->id];
    lane_now = lane->id;
    attn_run(lane, &a);
}

static void run_team(int lanes, void (*f)(struct lane *, void *), struct job *j)
{
    struct team *team;
    err e;
    assert_int_equal(team_open(lanes, false, &team, &e), ERR_OK);
    team_run(team, f, j);
    team_close(team);
}

static void check_cover(struct scene *s, int lanes, double uneven)
{
    struct cpu_ops ops = {.attn = count_attn, .attn_join = count_join};
    memset((void *)seen, 0, sizeof seen);
    memset(work, 0, sizeof work);
    run_team(lanes, run_lane, &(struct job){s, &ops});
    for (int i = 0; i < s->batch.nseqs; i++) {
        const struct batch_seq *q = &s->seqs[i];
        for (int r = 0; r < q->rows; r++) {
            for (int h = 0; h < HEADS; h++)
                assert_int_equal(seen[(q->row + r) * HEADS + h], q->pos + r + 1);
        }
    }
    long total = 0, most = 0;
    for (int i = 0; i < lanes; i++) {
        total += work[i];
        most = work[i] > most ? work[i] : most;
    }
    assert_true((double)most <= (double)total / lanes * uneven);
}

static void test_every_head_once(void **state)
{
    (void)state;
    struct scene *s = make_scene();
    add(s, 700, 1);
    check_cover(s, 1, 1);
    check_cover(s, 2, 1.1);  // 3 KV heads on 2 lanes: one is split
    assert_int_equal(joined, HEADS / KV_HEADS);
    check_cover(s, 16, 2);    // more lanes than heads
    add(s, 0, 150);
    add(s, 40, 100);
    add(s, 3, 1);
    for (int lanes = 1; lanes <= MAX_LANES; lanes++)
        check_cover(s, lanes, 1.35);  // observed: at most 1.301, with 15 lanes; 1.009 with 2
    free_scene(s);
}

static void test_keys_land_in_their_pages(void **state)
{
    (void)state;
    const struct cpu_ops *ops;
    err e;
    assert_int_equal(cpu_select("scalar", &ops, &e), ERR_OK);
    for (int lanes = 1; lanes <= 5; lanes++) {
        struct scene *s = make_scene();
        add(s, 60, 10);
        add(s, 5, 3);
        for (int i = 0; i < s->batch.rows * WIDTH; i++)
            s->qkv[i] = (float)i;
        for (int l = 0; l < lanes; l++)
            store_lane(&(struct lane){NULL, l, lanes}, &(struct job){s, ops});
        for (int q = 0; q < 2; q++) {
            for (int r = 0; r < s->seqs[q].rows; r++) {
                int pos = s->seqs[q].pos + r, row = s->seqs[q].row + r;
                const uint8_t *page = s->kv[q].pages[pos / KV_PAGE_TOKENS];
                for (int h = 0; h < KV_HEADS; h++) {
                    size_t at = (size_t)(pos % KV_PAGE_TOKENS) * DIM * 4;
                    float k[DIM];
                    kv_get_key(page + kv_k_offset(&s->layout, 0, 0, h), pos % KV_PAGE_TOKENS, k, DIM, KV_F32);
                    const float *v = (const void *)(page + kv_v_offset(&s->layout, 0, 0, h) + at);
                    assert_true(k[1] == (float)(row * WIDTH + (HEADS + h) * DIM + 1));
                    assert_true(v[1] == (float)(row * WIDTH + (HEADS + KV_HEADS + h) * DIM + 1));
                }
            }
        }
        free_scene(s);
    }
}

// Whatever the number of lanes, the same bits: with long rows that are split by segments, short ones and prompts.
static void test_lanes_change_nothing(void **state)
{
    (void)state;
    const struct cpu_ops *ops;
    err e;
    assert_int_equal(cpu_select("auto", &ops, &e), ERR_OK);
    struct scene *s = make_scene();
    add(s, 1500, 1);
    add(s, 300, 1);
    add(s, 0, 40);
    add(s, 700, 1);
    for (int i = 0; i < s->batch.rows * WIDTH; i++)
        s->qkv[i] = (float)(i * 7919 % 1021 - 510) / 300;
    for (int i = 0; i < s->batch.nseqs; i++) {
        for (int p = 0; p < s->kv[i].npages; p++) {
            float *page = s->kv[i].pages[p];
            for (size_t k = 0; k < kv_page_bytes(&s->layout) / 4; k++)
                page[k] = (float)((int)k * 104729 % 2039 - 1019 + p) / 900;
        }
    }
    float *want = calloc((size_t)ROWS * HEADS * DIM, sizeof *want);
    for (int lanes = 1; lanes <= 7; lanes++) {
        memset(s->out, 0, (size_t)ROWS * HEADS * DIM * sizeof *s->out);
        run_team(lanes, store_lane, &(struct job){s, ops});
        run_team(lanes, run_lane, &(struct job){s, ops});
        if (lanes == 1)
            memcpy(want, s->out, (size_t)ROWS * HEADS * DIM * sizeof *want);
        assert_memory_equal(want, s->out, (size_t)ROWS * HEADS * DIM * sizeof *want);
    }
    free(want);
    free_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_head_once),
        cmocka_unit_test(test_keys_land_in_their_pages),
        cmocka_unit_test(test_lanes_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
