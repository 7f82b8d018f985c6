// whisper_net.c - see whisper_net.h. Every function here is called by all lanes side by side.
//
// The encoder's parts: blocks of rows through the convolutions, then for each layer all blocks through norm and q, k,
// v, then all blocks through attention and MLP (which need the whole layer's keys but only their own rows), at the end the
// norm and the decoder's keys and values. A convolution of three taps over rows that lie one after another is a product
// with rows of three times the width that overlap.
#include "engine/audio/whisper_net.h"

#include <math.h>
#include <string.h>

#include "engine/audio/whisper.h"
#include "engine/blocks/mha.h"
#include "engine/model.h"

enum { BLOCK = 288, ALIGN = 64 };  // rows of a part: three of the matrix kernel's tiles
enum stage { CONV1, CONV2, QKV, LAYER, FINAL, CROSS };

static const float eps = 1e-5f;

// ---- memory

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    return here;
}

struct state_plan {
    size_t mel, x, qkv, cross, kv, logits, total;
};

static struct state_plan plan_state(const struct whisper *w)
{
    const struct whisper_dims *d = &w->dims;
    struct state_plan p = {0};
    size_t f = sizeof(float), hidden = (size_t)d->hidden, rows = (size_t)d->positions;
    p.mel = take(&p.total, (2 * rows + 2) * (size_t)d->mels * f);
    p.x = take(&p.total, rows * hidden * f);
    p.qkv = take(&p.total, (3 * rows + 2) * hidden * f);
    p.cross = take(&p.total, (size_t)d->dec_layers * rows * 2 * hidden * f);
    p.kv = take(&p.total, (size_t)d->dec_layers * (size_t)d->context * 2 * hidden * f);
    p.logits = take(&p.total, (size_t)d->vocab * f);
    return p;
}

size_t whisper_net_bytes(const struct whisper *w)
{
    return plan_state(w).total;
}

void whisper_net_init(struct whisper_net *n, const struct model *m, void *memory)
{
    const struct whisper *w = m->impl;
    struct state_plan p = plan_state(w);
    uint8_t *base = memory;
    *n = (struct whisper_net){.model = m, .w = w};
    n->mel = (float *)(void *)(base + p.mel);
    n->x = (float *)(void *)(base + p.x);
    n->qkv = (float *)(void *)(base + p.qkv);
    n->cross = (float *)(void *)(base + p.cross);
    n->kv = (float *)(void *)(base + p.kv);
    n->logits = (float *)(void *)(base + p.logits);
}

struct scratch_plan {
    size_t h, att, mlp, x, acts, mha, total;
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static struct scratch_plan plan_scratch(const struct whisper *w, int lanes)
{
    const struct whisper_dims *d = &w->dims;
    struct scratch_plan p = {0};
    size_t f = sizeof(float), hidden = (size_t)d->hidden;
    int heads = d->enc_heads < d->dec_heads ? d->enc_heads : d->dec_heads, head = d->hidden / heads;
    int ffn = larger(larger(d->enc_ffn, d->dec_ffn), d->hidden);
    p.h = take(&p.total, BLOCK * hidden * f);
    p.att = take(&p.total, BLOCK * hidden * f);
    p.mlp = take(&p.total, BLOCK * (size_t)ffn * f);
    p.x = take(&p.total, WHISPER_ROWS * hidden * f);
    size_t narrow = acts_bytes(BLOCK, d->hidden, w->math), wide = acts_bytes(BLOCK, ffn, w->math);
    p.acts = take(&p.total, narrow > wide ? narrow : wide);
    p.mha = take(&p.total, mha_scratch_floats(larger(d->positions, d->context), head, lanes) * f);
    return p;
}

size_t whisper_net_scratch(const struct whisper *w, int lanes)
{
    return plan_scratch(w, lanes).total;
}

// ---- pieces both stacks are made of

struct pass {
    const struct whisper_net *n;
    const struct whisper *w;
    const struct cpu_ops *ops;
    struct lane *lane;
    int hidden;
    float *h, *att, *mlp, *x;
    void *acts;
    float *mha;
};

static struct pass begin(const struct whisper_net *n, struct lane *lane, void *scratch)
{
    struct scratch_plan p = plan_scratch(n->w, lane->count);
    uint8_t *base = scratch;
    return (struct pass){
        .n = n, .w = n->w, .ops = n->model->ops, .lane = lane, .hidden = n->w->dims.hidden,
        .h = (float *)(void *)(base + p.h), .att = (float *)(void *)(base + p.att),
        .mlp = (float *)(void *)(base + p.mlp), .x = (float *)(void *)(base + p.x), .acts = base + p.acts,
        .mha = (float *)(void *)(base + p.mha),
    };
}

static float *row(float *rows, int r, int width)
{
    return rows + (size_t)r * (size_t)width;
}

// Makes rows ready to be multiplied; ends with a barrier.
static void input(const struct pass *p, struct acts *a, const float *x, int cols, int rows)
{
    acts_init(a, p->acts, rows, cols, p->w->math);
    linear_input(p->lane, p->ops, a, x, cols, rows);
}

// The same, normalised first.
static void input_norm(const struct pass *p, struct acts *a, const float *x, const struct whisper_norm *norm, int rows)
{
    int lo, hi;
    lane_split(p->lane, rows, 1, &lo, &hi);
    for (int r = lo; r < hi; r++)
        p->ops->layernorm(p->h + (size_t)r * (size_t)p->hidden, x + (size_t)r * (size_t)p->hidden, norm->w, norm->b,
                          p->hidden, eps);
    input(p, a, p->h, p->hidden, rows);
}

static void multiply(const struct pass *p, const struct linear *l, float *y, const struct acts *a, enum mat_write write)
{
    linear_apply(p->lane, p->ops, &l, &y, &l->out, 1, a, write);
    lane_barrier(p->lane);
}

// y = gelu(l x): a lane takes the function of the numbers it computed, with no wait between.
static void multiply_gelu(const struct pass *p, const struct linear *l, float *y, const struct acts *a)
{
    int lo, hi;
    lane_split(p->lane, l->out, MAT_GROUP, &lo, &hi);
    linear_groups(p->ops, l, y, l->out, a, lo / MAT_GROUP, (hi + MAT_GROUP - 1) / MAT_GROUP, MAT_STORE);
    for (int t = 0; t < a->n && lo < hi; t++) {
        float *v = row(y, t, l->out) + lo;
        p->ops->gelu(v, v, hi - lo, GELU_ERF);
    }
    lane_barrier(p->lane);
}

// Attention of rows at q over keys and values that lie side by side; then through the output matrix onto x.
static void attend(const struct pass *p, const struct whisper_attn *l, int heads, const struct mha_item *item, int ldq,
                   int ldkv, bool causal, float *x)
{
    struct mha a = {.ops = p->ops, .heads = heads, .head_dim = p->hidden / heads, .ldq = ldq, .ldk = ldkv, .ldv = ldkv,
                    .ldo = p->hidden, .scale = 1 / sqrtf((float)p->hidden / (float)heads), .causal = causal,
                    .scratch = p->mha};
    struct acts acts;
    mha_run(p->lane, &a, item, 1);
    lane_barrier(p->lane);
    input(p, &acts, p->att, p->hidden, item->rows);
    multiply(p, &l->o, x, &acts, MAT_ADD);
}

static void feed_forward(const struct pass *p, const struct whisper_block *l, float *x, int rows)
{
    struct acts a;
    input_norm(p, &a, x, &l->norm, rows);
    multiply_gelu(p, &l->fc1, p->mlp, &a);
    input(p, &a, p->mlp, l->fc1.out, rows);
    multiply(p, &l->fc2, x, &a, MAT_ADD);
}

// ---- encoder

// Rows r .. r + rows of a convolution's output. x: the row the first tap of output row 0 meets; width: channels; step:
// input rows from one output row to the next.
static void convolve(const struct pass *p, const struct linear *conv, float *x, int width, int step, float *y, int r,
                     int rows)
{
    struct acts a;
    acts_init(&a, p->acts, rows, 3 * width, MAT_F32);
    linear_input(p->lane, p->ops, &a, row(x, r, step * width), step * width, rows);
    multiply_gelu(p, conv, row(y, r, p->hidden), &a);
}

static void conv1(const struct pass *p, int r, int rows)
{
    const struct whisper_dims *d = &p->w->dims;
    size_t bytes = (size_t)d->hidden * sizeof(float);
    if (r == 0 && p->lane->id == 0) {  // the rows before the first and after the last frame
        memset(p->n->mel, 0, (size_t)d->mels * sizeof(float));
        memset(row(p->n->mel, 2 * d->positions + 1, d->mels), 0, (size_t)d->mels * sizeof(float));
        memset(p->n->qkv, 0, bytes);
        memset(row(p->n->qkv, 2 * d->positions + 1, d->hidden), 0, bytes);
    }
    lane_barrier(p->lane);
    convolve(p, &p->w->conv1, p->n->mel, d->mels, 1, p->n->qkv + d->hidden, r, rows);
}

static void conv2(const struct pass *p, int r, int rows)
{
    int lo, hi;
    convolve(p, &p->w->conv2, p->n->qkv, p->hidden, 2, p->n->x, r, rows);
    lane_split(p->lane, rows, 1, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        float *position = row(p->h, i, p->hidden);
        mat_row(&p->w->enc_positions, r + i, position);
        p->ops->add(row(p->n->x, r + i, p->hidden), position, p->hidden);
    }
    lane_barrier(p->lane);
}

static void project(const struct pass *p, const struct whisper_block *l, int r, int rows)
{
    struct acts a;
    int wide = 3 * p->hidden;
    float *q = row(p->n->qkv, r, wide);
    input_norm(p, &a, row(p->n->x, r, p->hidden), &l->self.norm, rows);
    linear_apply(p->lane, p->ops, (const struct linear *[]){&l->self.q, &l->self.k, &l->self.v},
                 (float *[]){q, q + p->hidden, q + 2 * p->hidden}, (int[]){wide, wide, wide}, 3, &a, MAT_STORE);
    lane_barrier(p->lane);
}

static void layer(const struct pass *p, const struct whisper_block *l, int r, int rows)
{
    float *x = row(p->n->x, r, p->hidden), *qkv = p->n->qkv;
    struct mha_item item = {.q = row(qkv, r, 3 * p->hidden), .k = qkv + p->hidden, .v = qkv + 2 * p->hidden,
                            .out = p->att, .rows = rows, .keys = p->w->dims.positions};
    attend(p, &l->self, p->w->dims.enc_heads, &item, 3 * p->hidden, 3 * p->hidden, false, x);
    feed_forward(p, l, x, rows);
}

static void final_norm(const struct pass *p, int r, int rows)
{
    int lo, hi;
    lane_split(p->lane, rows, 1, &lo, &hi);
    for (int i = r + lo; i < r + hi; i++) {
        float *x = row(p->n->x, i, p->hidden);
        p->ops->layernorm(x, x, p->w->enc_norm.w, p->w->enc_norm.b, p->hidden, eps);
    }
    lane_barrier(p->lane);
}

// Rows of a decoder layer's share of `cross` or `kv`.
static float *pair_rows(const struct pass *p, float *all, int l, int rows, int r)
{
    return all + ((size_t)l * (size_t)rows + (size_t)r) * 2 * (size_t)p->hidden;
}

static void cross_keys(const struct pass *p, int l, int r, int rows)
{
    const struct whisper_attn *c = &p->w->dec[l].cross;
    struct acts a;
    float *k = pair_rows(p, p->n->cross, l, p->w->dims.positions, r);
    input(p, &a, row(p->n->x, r, p->hidden), p->hidden, rows);
    linear_apply(p->lane, p->ops, (const struct linear *[]){&c->k, &c->v}, (float *[]){k, k + p->hidden},
                 (int[]){2 * p->hidden, 2 * p->hidden}, 2, &a, MAT_STORE);
    lane_barrier(p->lane);
}

// Moves to the next part: rows, then layers, then stages. True at the end.
static bool advance(struct whisper_cursor *at, const struct whisper_dims *d, int total, int rows)
{
    at->row += rows;
    if (at->row < total)
        return false;
    at->row = 0;
    if (at->stage == QKV) {
        at->stage = LAYER;
    } else if (at->stage == LAYER && ++at->layer < d->enc_layers) {
        at->stage = QKV;
    } else if (at->stage != CROSS || ++at->layer == d->dec_layers) {
        at->stage++;
        at->layer = 0;
    }
    return at->stage > CROSS;
}

bool whisper_net_encode(const struct whisper_net *n, struct whisper_cursor *at, struct lane *lane, void *scratch)
{
    struct pass p = begin(n, lane, scratch);
    const struct whisper_dims *d = &n->w->dims;
    int total = at->stage == CONV1 ? 2 * d->positions : d->positions;
    int r = at->row, rows = total - r < BLOCK ? total - r : BLOCK;
    switch ((enum stage)at->stage) {
    case CONV1:
        conv1(&p, r, rows);
        break;
    case CONV2:
        conv2(&p, r, rows);
        break;
    case QKV:
        project(&p, &n->w->enc[at->layer], r, rows);
        break;
    case LAYER:
        layer(&p, &n->w->enc[at->layer], r, rows);
        break;
    case FINAL:
        final_norm(&p, r, rows);
        break;
    case CROSS:
        cross_keys(&p, at->layer, r, rows);
    }
    return advance(at, d, total, rows);
}

// ---- decoder

static void embed(const struct pass *p, const int32_t *ids, int rows)
{
    const struct mat *table = p->w->tied ? &p->w->head.w : &p->w->embed;
    int lo, hi;
    lane_split(p->lane, rows, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *position = row(p->h, r, p->hidden), *x = row(p->x, r, p->hidden);
        mat_row(table, ids[r], x);
        mat_row(&p->w->dec_positions, p->n->length + r, position);
        p->ops->add(x, position, p->hidden);
    }
    lane_barrier(p->lane);
}

static void self_attention(const struct pass *p, int l, int rows)
{
    const struct whisper_attn *s = &p->w->dec[l].self;
    const struct whisper_dims *d = &p->w->dims;
    struct acts a;
    int wide = 2 * p->hidden;
    float *all = pair_rows(p, p->n->kv, l, d->context, 0), *k = row(all, p->n->length, wide);
    input_norm(p, &a, p->x, &s->norm, rows);
    linear_apply(p->lane, p->ops, (const struct linear *[]){&s->q, &s->k, &s->v},
                 (float *[]){p->mlp, k, k + p->hidden}, (int[]){p->hidden, wide, wide}, 3, &a, MAT_STORE);
    lane_barrier(p->lane);
    struct mha_item item = {.q = p->mlp, .k = all, .v = all + p->hidden, .out = p->att, .rows = rows,
                            .keys = p->n->length + rows, .pos0 = p->n->length};
    attend(p, s, d->dec_heads, &item, p->hidden, wide, true, p->x);
}

static void cross_attention(const struct pass *p, int l, int rows)
{
    const struct whisper_attn *c = &p->w->dec[l].cross;
    const struct whisper_dims *d = &p->w->dims;
    struct acts a;
    input_norm(p, &a, p->x, &c->norm, rows);
    multiply(p, &c->q, p->mlp, &a, MAT_STORE);
    const float *k = pair_rows(p, p->n->cross, l, d->positions, 0);
    struct mha_item item = {.q = p->mlp, .k = k, .v = k + p->hidden, .out = p->att, .rows = rows,
                            .keys = d->positions};
    attend(p, c, d->dec_heads, &item, p->hidden, 2 * p->hidden, false, p->x);
}

void whisper_net_decode(const struct whisper_net *n, struct lane *lane, void *scratch, const int32_t *ids, int rows,
                        bool logits)
{
    struct pass p = begin(n, lane, scratch);
    embed(&p, ids, rows);
    for (int l = 0; l < n->w->dims.dec_layers; l++) {
        self_attention(&p, l, rows);
        cross_attention(&p, l, rows);
        feed_forward(&p, &n->w->dec[l], p.x, rows);
    }
    if (!logits)
        return;
    struct acts a;
    input_norm(&p, &a, row(p.x, rows - 1, p.hidden), &n->w->dec_norm, 1);
    multiply(&p, &n->w->head, n->logits, &a, MAT_STORE);
}
