// attn.c - splits a layer's attention over the lanes. All of it runs on lanes; nothing here allocates or waits.
#include "engine/blocks/attn.h"

#include <string.h>

enum {
    ATTN_ROWS = 36,      // rows of a prompt taken together
    ATTN_SEGMENTS = 256, // a row that sees more segments is split by heads only
    STORE_ROWS = 32,     // rows whose keys of one head are stored before the next head's: they share cache lines
};

static void turn(const struct attn *a, float *head, const float *norm, int row)
{
    const struct cpu_ops *ops = a->ops;
    if (norm)
        ops->rmsnorm(head, head, norm, a->head_dim, a->eps, 0);
    if (a->rotary) {
        size_t at = (size_t)row * (size_t)(a->rotary / 2);
        ops->rope(head, a->cos + at, a->sin + at, a->rotary, a->pairs);
    }
}

static void store(const struct attn *a, const struct batch_seq *s, int row, int head, float *k, const float *v)
{
    const struct kv_layout *l = a->layout;
    int pos = s->pos + row - s->row, slot = pos % KV_PAGE_TOKENS;
    uint8_t *page = s->kv->pages[pos / KV_PAGE_TOKENS];
    a->ops->kv_store(a->scratch, k, a->head_dim, l->type);
    kv_put_key(page + kv_k_offset(l, a->group, a->layer, head), slot, a->scratch, a->head_dim, l->type);
    size_t at = (size_t)slot * kv_row_bytes(l->type, a->head_dim);
    a->ops->kv_store(page + kv_v_offset(l, a->group, a->layer, head) + at, v, a->head_dim, l->type);
}

static const float *gated_head(const struct attn *a, int row, int h)
{
    return a->gated + (size_t)row * (size_t)a->ldgated + 2 * (size_t)h * (size_t)a->head_dim;
}

// One item is one head of q, or one head of k with its v, of one row. A KV head, which is more work, stands before the query
// heads of its group, so that every lane gets its share of both.
void attn_store(struct lane *lane, const struct attn *a)
{
    const struct batch *b = a->batch;
    int per_row = a->heads + a->kv_heads, group = 1 + a->heads / a->kv_heads, per_block = STORE_ROWS * per_row, lo, hi;
    lane_split(lane, b->rows * per_row, 1, &lo, &hi);
    const struct batch_seq *s = b->seqs;
    for (int i = lo; i < hi; i++) {
        int first = i / per_block * STORE_ROWS, rows = b->rows - first < STORE_ROWS ? b->rows - first : STORE_ROWS;
        int at = i % per_block / rows, row = first + i % per_block % rows, kv = at / group;
        bool is_key = at % group == 0;
        int h = is_key ? a->heads + kv : at - kv - 1;
        float *head = a->qkv + (size_t)row * (size_t)a->ldqkv + (size_t)h * (size_t)a->head_dim;
        if (a->gated && !is_key)
            memcpy(head, gated_head(a, row, h), (size_t)a->head_dim * sizeof *head);
        turn(a, head, is_key ? a->k_norm : a->q_norm, row);
        if (!is_key)
            continue;
        if (row < s->row)
            s = b->seqs;
        while (row >= s->row + s->rows)
            s++;
        store(a, s, row, kv, head, head + (size_t)a->kv_heads * (size_t)a->head_dim);
    }
}

// Keys that rows [r0, r1) of a sequence see, and a little for each row itself, times the query heads that read them. Reading a
// key costs about as much as two of them use it, which is much of the cost of a row alone and little of many together.
static long cost(const struct attn *a, const struct batch_seq *s, int r0, int r1)
{
    long keys = s->pos + (r0 + r1) / 2 + 1;
    if (a->window && keys > a->window)
        keys = a->window;
    return ((r1 - r0) * (a->heads / a->kv_heads) + 2) * (keys + 16);
}

static int chunk_end(const struct batch_seq *s, int r0)
{
    return r0 + ATTN_ROWS < s->rows ? r0 + ATTN_ROWS : s->rows;
}

static long total_cost(const struct attn *a)
{
    long total = 0;
    for (int i = 0; i < a->batch->nseqs; i++) {
        const struct batch_seq *s = &a->batch->seqs[i];
        for (int r = 0; r < s->rows; r = chunk_end(s, r))
            total += cost(a, s, r, chunk_end(s, r));
    }
    return total * a->heads;
}

static void gate(const struct attn *a, int row, int h0, int h1)
{
    for (int h = h0; a->gated && h < h1; h++)
        a->ops->sigmoid_mul(a->out + (size_t)row * (size_t)a->ldout + (size_t)h * (size_t)a->head_dim,
                            gated_head(a, row, h) + a->head_dim, a->head_dim);
}

// Query heads from h0 on, rows from r0 on of one sequence, whose keys begin at KV head kv.
static struct attn_args arguments(const struct attn *a, const struct batch_seq *s, int kv, int r0, int h0)
{
    size_t head = (size_t)h0 * (size_t)a->head_dim, row = (size_t)(s->row + r0);
    size_t k_off = kv_k_offset(a->layout, a->group, a->layer, kv);
    return (struct attn_args){
        .q = a->qkv + row * (size_t)a->ldqkv + head,
        .out = a->out + row * (size_t)a->ldout + head,
        .ldq = a->ldqkv,
        .ldo = a->ldout,
        .rows = 1,
        .group = a->heads / a->kv_heads,
        .head_dim = a->head_dim,
        .head_step = kv + 1 < a->kv_heads ? kv_k_offset(a->layout, a->group, a->layer, kv + 1) - k_off : 0,
        .pos0 = s->pos + r0,
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
        .pages = s->kv->pages,
        .page_tokens = KV_PAGE_TOKENS,
        .k_off = k_off,
        .v_off = kv_v_offset(a->layout, a->group, a->layer, kv),
        .kv = a->layout->type,
        .scratch = a->scratch,
    };
}

// Query heads [h0, h1) of one KV head, rows [r0, r1) of one sequence.
static void run(const struct attn *a, const struct batch_seq *s, int kv, int r0, int r1, int h0, int h1)
{
    struct attn_args args = arguments(a, s, kv, r0, h0);
    args.rows = r1 - r0;
    args.group = h1 - h0;
    a->ops->attn(&args);
    for (int r = s->row + r0; r < s->row + r1; r++)
        gate(a, r, h0, h1);
}

// The KV heads [kv0, kv1) of a single row.
static void run_heads(const struct attn *a, const struct batch_seq *s, int kv0, int kv1)
{
    int group = a->heads / a->kv_heads, most = attn_heads_max(group);
    for (int kv = kv0; kv < kv1; kv += most) {
        struct attn_args args = arguments(a, s, kv, 0, kv * group);
        args.heads = kv1 - kv < most ? kv1 - kv : most;
        a->ops->attn(&args);
    }
    gate(a, s->row, kv0 * group, kv1 * group);
}

// The work of all heads in order stands on a line of length `total`; a lane's share is [total * id / count, total * (id +
// 1) / count).
struct share {
    struct lane *lane;
    long total, at;  // at: where the work at hand begins
    bool split;      // some head is computed in parts: every lane knows it
    // The head this lane joins.
    const struct batch_seq *seq;
    int kv, segments;
};

static size_t part_floats(int group, int head_dim)
{
    return (size_t)group * (size_t)(head_dim + 2);
}

size_t attn_parts_floats(int lanes, int group, int head_dim)
{
    return lanes > 1 ? (size_t)(lanes - 1) * ATTN_SEGMENTS * part_floats(group, head_dim) : 0;
}

static long border(const struct share *sh, int lane)
{
    return sh->total * lane / sh->lane->count;
}

static int seen_keys(const struct attn *a, const struct batch_seq *s)  // by its first row
{
    return a->window && s->pos >= a->window ? a->window : s->pos + 1;
}

// A single row's segments.
struct segments {
    int first, n, key;  // key: the first that is seen
    long work;          // of one KV head
};

// Which segment is the first of lane `id` of a KV head whose work begins at sh->at: the border between segments, or, where
// a head is little work, between heads, that is nearest to the lane's own.
static int cut(const struct share *sh, const struct segments *g, int id, int keys)
{
    long into = border(sh, id) - sh->at;
    if (into <= 0 || into >= g->work)
        return into <= 0 ? 0 : g->n;
    if (g->n > ATTN_SEGMENTS || g->work * sh->lane->count * 8 < sh->total)
        return 2 * into < g->work ? 0 : g->n;
    int seg = (int)((g->key + into * keys / g->work + KV_SEGMENT / 2) / KV_SEGMENT) - g->first;
    return seg < 0 ? 0 : seg < g->n ? seg : g->n;
}

// The number of the head's parts among those of all split heads, or -1: its first border inside is that of lane result + 1.
static int slot_of(const struct share *sh, const struct segments *g, int keys)
{
    for (int id = (int)(sh->at * sh->lane->count / sh->total); id < sh->lane->count; id++) {
        int c = cut(sh, g, id, keys);
        if (c > 0 && c < g->n)
            return id - 1;
        if (c == g->n)
            break;
    }
    return -1;
}

// This lane's part of one row whose keys fill several segments.
static void run_row(const struct attn *a, const struct batch_seq *s, struct share *sh)
{
    int group = a->heads / a->kv_heads, keys = seen_keys(a, s), key = s->pos + 1 - keys;
    int whole = 0;  // whole: KV heads before the one at hand that are this lane's alone
    struct segments g = {.first = key / KV_SEGMENT, .n = s->pos / KV_SEGMENT - key / KV_SEGMENT + 1, .key = key,
                         .work = cost(a, s, 0, 1) * group};
    for (int kv = 0; kv < a->kv_heads; kv++, sh->at += g.work) {
        int from = cut(sh, &g, sh->lane->id, keys), to = cut(sh, &g, sh->lane->id + 1, keys), slot = slot_of(sh, &g, keys);
        if (from == 0 && to == g.n) {
            whole++;
            continue;
        }
        if (whole)
            run_heads(a, s, kv - whole, kv);
        whole = 0;
        sh->split |= slot >= 0;
        if (slot == sh->lane->id) {
            sh->seq = s;
            sh->kv = kv;
            sh->segments = g.n;
        }
        if (from >= to)
            continue;
        struct attn_args args = arguments(a, s, kv, 0, kv * group);
        args.parts = a->parts + ((size_t)slot * ATTN_SEGMENTS + (size_t)from) * part_floats(group, a->head_dim);
        args.seg0 = g.first + from;
        args.seg1 = g.first + to;
        a->ops->attn(&args);
    }
    if (whole)
        run_heads(a, s, a->kv_heads - whole, a->kv_heads);
}

static void join(const struct attn *a, const struct share *sh)
{
    int group = a->heads / a->kv_heads, ld = a->head_dim + 2;
    const float *parts = a->parts + (size_t)sh->lane->id * ATTN_SEGMENTS * part_floats(group, a->head_dim);
    float *out = a->out + (size_t)sh->seq->row * (size_t)a->ldout + (size_t)(sh->kv * group) * (size_t)a->head_dim;
    for (int h = 0; h < group; h++)
        a->ops->attn_join(out + h * a->head_dim, parts + h * ld, group * ld, sh->segments, a->head_dim);
    gate(a, sh->seq->row, sh->kv * group, sh->kv * group + group);
}

// A lane takes the heads whose middle lies in its share. Neighbouring heads of one KV head go to the kernel together.
static void run_rows(const struct attn *a, const struct batch_seq *s, struct share *sh)
{
    int group = a->heads / a->kv_heads;
    for (int kv = 0; kv < a->kv_heads; kv++) {
        for (int r0 = 0, r1; r0 < s->rows; r0 = r1) {
            r1 = chunk_end(s, r0);
            long c = cost(a, s, r0, r1);
            int first = -1, n = 0;
            for (int g = 0; g < group; g++, sh->at += c) {
                if ((sh->at + c / 2) * sh->lane->count / sh->total != sh->lane->id)
                    continue;
                first = first < 0 ? g : first;
                n++;
            }
            if (n)
                run(a, s, kv, r0, r1, kv * group + first, kv * group + first + n);
        }
    }
}

void attn_run(struct lane *lane, const struct attn *a)
{
    struct share sh = {.lane = lane, .total = total_cost(a)};
    for (int i = 0; i < a->batch->nseqs; i++) {
        const struct batch_seq *s = &a->batch->seqs[i];
        if (s->rows == 1 && (seen_keys(a, s) > 2 * KV_SEGMENT || lane->count == 1))
            run_row(a, s, &sh);
        else
            run_rows(a, s, &sh);
    }
    if (sh.split)
        lane_barrier(lane);
    if (sh.seq)
        join(a, &sh);
}
