// attn.c - splits a layer's attention over the lanes. All of it runs on lanes; nothing here allocates or waits.
#include "engine/blocks/attn.h"

#include <string.h>

enum {
    ATTN_ROWS = 36,      // rows of a prompt taken together
    ATTN_SEGMENTS = 256, // a row that sees more segments is split by heads only
    STORE_ROWS = 32,     // rows whose keys of one head are stored before the next head's: they share cache lines
};

// One head of n rows.
static void turn(const struct attn *a, float *head, const float *norm, int row, int n)
{
    const struct cpu_ops *ops = a->ops;
    if (norm)
        cpu_rmsnorm_rows(ops, head, a->ldqkv, head, a->ldqkv, norm, n, a->head_dim, a->eps, 0);
    for (int r = 0; r < n && a->rotary; r++) {
        size_t at = (size_t)(row + r) * (size_t)(a->rotary / 2);
        ops->rope(head + (size_t)r * (size_t)a->ldqkv, a->cos + at, a->sin + at, a->rotary, a->pairs);
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

// The same head of n rows from `row` on, in any sequences.
static void store_rows(const struct attn *a, int row, int n, int kv, float *head)
{
    const struct batch_seq *s = a->batch->seqs;
    for (int r = row; r < row + n; r++, head += a->ldqkv) {
        while (r >= s->row + s->rows)
            s++;
        store(a, s, r, kv, head, head + (size_t)a->kv_heads * (size_t)a->head_dim);
    }
}

// Heads [h0, h1) of q.
static void turn_queries(const struct attn *a, int row, int n, int h0, int h1)
{
    for (int h = h0; h < h1; h++) {
        float *head = a->qkv + (size_t)row * (size_t)a->ldqkv + (size_t)h * (size_t)a->head_dim;
        for (int r = 0; r < n && a->gated; r++)
            memcpy(head + (size_t)r * (size_t)a->ldqkv, gated_head(a, row + r, h), (size_t)a->head_dim * sizeof *head);
        turn(a, head, a->q_norm, row, n);
    }
}

// Several lanes may read the queries of a row that is alone, which are therefore made ready before; those of other rows are
// when they are used, by the one lane that does.
static bool is_alone(const struct batch_seq *s)
{
    return s->rows == 1;
}

static void store_queries(struct lane *lane, const struct attn *a)
{
    const struct batch *b = a->batch;
    int alone = 0, lo, hi, at = 0;
    for (int i = 0; i < b->nseqs; i++)
        alone += is_alone(&b->seqs[i]);
    lane_split(lane, alone * a->heads, 1, &lo, &hi);
    for (int i = 0; i < b->nseqs && at < hi; i++) {
        const struct batch_seq *s = &b->seqs[i];
        if (!is_alone(s))
            continue;
        int first = lo > at ? lo - at : 0, last = hi - at < a->heads ? hi - at : a->heads;
        turn_queries(a, s->row, 1, first, last);
        at += a->heads;
    }
}

// One item is one head of k with its v, of one row; a head's rows are taken together.
void attn_store(struct lane *lane, const struct attn *a)
{
    const struct batch *b = a->batch;
    int per_block = STORE_ROWS * a->kv_heads, lo, hi;
    store_queries(lane, a);
    lane_split(lane, b->rows * a->kv_heads, 1, &lo, &hi);
    for (int i = lo, n; i < hi; i += n) {
        int first = i / per_block * STORE_ROWS, rows = b->rows - first < STORE_ROWS ? b->rows - first : STORE_ROWS;
        int kv = i % per_block / rows, in = i % per_block % rows, row = first + in;
        float *head = a->qkv + (size_t)row * (size_t)a->ldqkv + (size_t)(a->heads + kv) * (size_t)a->head_dim;
        n = rows - in < hi - i ? rows - in : hi - i;
        turn(a, head, a->k_norm, row, n);
        store_rows(a, row, n, kv, head);
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

// Query heads [h0, h1) of rows [r0, r1) of the batch have been computed.
static void finish(const struct attn *a, int r0, int r1, int h0, int h1)
{
    float *out = a->out + (size_t)r0 * (size_t)a->ldout;
    for (int r = r0; a->gated && r < r1; r++, out += a->ldout) {
        for (int h = h0; h < h1; h++)
            a->ops->sigmoid_mul(out + (size_t)h * (size_t)a->head_dim, gated_head(a, r, h) + a->head_dim, a->head_dim);
    }
    int c0 = h0 * a->head_dim, c1 = h1 * a->head_dim;
    if (a->into)
        acts_set_part(a->ops, a->into, a->out + (size_t)r0 * (size_t)a->ldout + c0, a->ldout, r0, r1, c0, c1);
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
    if (!is_alone(s))
        turn_queries(a, s->row + r0, r1 - r0, h0, h1);
    a->ops->attn(&args);
    finish(a, s->row + r0, s->row + r1, h0, h1);
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
    finish(a, s->row, s->row + 1, kv0 * group, kv1 * group);
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
    finish(a, sh->seq->row, sh->seq->row + 1, sh->kv * group, sh->kv * group + group);
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
