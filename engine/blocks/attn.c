// attn.c - splits a layer's attention over the lanes. All of it runs on lanes; nothing here allocates or waits.
#include "engine/blocks/attn.h"

#include <string.h>

enum { ATTN_ROWS = 32 };  // rows of a prompt taken together

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
    int pos = s->pos + row - s->row;
    uint8_t *page = s->kv->pages[pos / KV_PAGE_TOKENS];
    size_t at = (size_t)(pos % KV_PAGE_TOKENS) * kv_row_bytes(l->type, a->head_dim);
    a->ops->kv_store(page + kv_k_offset(l, a->group, a->layer, head) + at, k, a->head_dim, l->type);
    a->ops->kv_store(page + kv_v_offset(l, a->group, a->layer, head) + at, v, a->head_dim, l->type);
}

static const float *gated_head(const struct attn *a, int row, int h)
{
    return a->gated + (size_t)row * (size_t)a->ldgated + 2 * (size_t)h * (size_t)a->head_dim;
}

// One item is one head of q, or one head of k with its v.
void attn_store(struct lane *lane, const struct attn *a)
{
    const struct batch *b = a->batch;
    int per_row = a->heads + a->kv_heads, lo, hi;
    lane_split(lane, b->rows * per_row, 1, &lo, &hi);
    const struct batch_seq *s = b->seqs;
    for (int i = lo; i < hi; i++) {
        int row = i / per_row, h = i % per_row, kv = h - a->heads;
        float *head = a->qkv + (size_t)row * (size_t)a->ldqkv + (size_t)h * (size_t)a->head_dim;
        if (a->gated && kv < 0)
            memcpy(head, gated_head(a, row, h), (size_t)a->head_dim * sizeof *head);
        turn(a, head, kv < 0 ? a->q_norm : a->k_norm, row);
        if (kv < 0)
            continue;
        while (row >= s->row + s->rows)
            s++;
        store(a, s, row, kv, head, head + (size_t)a->kv_heads * (size_t)a->head_dim);
    }
}

// Keys that rows [r0, r1) of a sequence see, and a little for each row itself.
static long cost(const struct attn *a, const struct batch_seq *s, int r0, int r1)
{
    long keys = s->pos + (r0 + r1) / 2 + 1;
    if (a->window && keys > a->window)
        keys = a->window;
    return (r1 - r0) * (keys + 16);
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

// Query heads [h0, h1) of one KV head, rows [r0, r1) of one sequence.
static void run(const struct attn *a, const struct batch_seq *s, int kv, int r0, int r1, int h0, int h1)
{
    size_t head = (size_t)h0 * (size_t)a->head_dim, row = (size_t)(s->row + r0);
    a->ops->attn(&(struct attn_args){
        .q = a->qkv + row * (size_t)a->ldqkv + head,
        .out = a->out + row * (size_t)a->ldout + head,
        .ldq = a->ldqkv,
        .ldo = a->ldout,
        .rows = r1 - r0,
        .group = h1 - h0,
        .head_dim = a->head_dim,
        .pos0 = s->pos + r0,
        .window = a->window,
        .scale = a->scale,
        .softcap = a->softcap,
        .pages = s->kv->pages,
        .page_tokens = KV_PAGE_TOKENS,
        .k_off = kv_k_offset(a->layout, a->group, a->layer, kv),
        .v_off = kv_v_offset(a->layout, a->group, a->layer, kv),
        .kv = a->layout->type,
        .scratch = a->scratch,
    });
    for (int r = s->row + r0; a->gated && r < s->row + r1; r++) {
        for (int h = h0; h < h1; h++)
            a->ops->sigmoid_mul(a->out + (size_t)r * (size_t)a->ldout + (size_t)h * (size_t)a->head_dim,
                                gated_head(a, r, h) + a->head_dim, a->head_dim);
    }
}

// The work of all heads in order stands on a line of length `total`; a lane takes the heads whose middle lies in its
// share. Neighbouring heads of one KV head go to the kernel together.
void attn_run(struct lane *lane, const struct attn *a)
{
    int group = a->heads / a->kv_heads;
    long total = total_cost(a), at = 0;
    for (int i = 0; i < a->batch->nseqs; i++) {
        const struct batch_seq *s = &a->batch->seqs[i];
        for (int kv = 0; kv < a->kv_heads; kv++) {
            for (int r0 = 0, r1; r0 < s->rows; r0 = r1) {
                r1 = chunk_end(s, r0);
                long c = cost(a, s, r0, r1);
                int first = -1, n = 0;
                for (int g = 0; g < group; g++, at += c) {
                    if ((at + c / 2) * lane->count / total != lane->id)
                        continue;
                    first = first < 0 ? g : first;
                    n++;
                }
                if (n)
                    run(a, s, kv, r0, r1, kv * group + first, kv * group + first + n);
            }
        }
    }
}
