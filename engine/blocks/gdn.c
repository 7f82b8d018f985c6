// gdn.c - opens and runs a Gated DeltaNet layer. gdn_open runs while a model loads, gdn_run on every lane.
//
// A row of step.mixer is [qkv | z | b | a | convolved qkv]; heads write what they yield over the first part of qkv, which
// is free once it is convolved. Two barriers of its own: after the convolution, and after the heads.
#include "engine/blocks/gdn.h"

#include <math.h>
#include <string.h>

static const float length_eps = 1e-6f;

static int blocks(const struct gdn_dims *d)
{
    return (d->v_dim + GDN_COLS - 1) / GDN_COLS;
}

static int values(const struct gdn_dims *d)
{
    return d->v_heads * d->v_dim;
}

int gdn_channels(const struct gdn_dims *d)
{
    return 2 * d->k_heads * d->k_dim + values(d);
}

int gdn_row_floats(const struct gdn_dims *d)
{
    return 2 * gdn_channels(d) + values(d) + 2 * d->v_heads;
}

static size_t head_floats(const struct gdn_dims *d)
{
    return (size_t)blocks(d) * (size_t)d->k_dim * GDN_COLS;
}

size_t gdn_state_bytes(const struct gdn_dims *d)
{
    size_t floats = (size_t)(d->taps - 1) * (size_t)gdn_channels(d) + (size_t)d->v_heads * head_floats(d);
    return (floats * sizeof(float) + 63) & ~(size_t)63;
}

err_code gdn_check(const struct gdn_dims *d, const char *path, err *e)
{
    if (d->v_heads % d->k_heads)
        return err_set(e, ERR_CORRUPT, "%s: %d value heads and %d key heads of linear attention, expected a multiple", path,
                       d->v_heads, d->k_heads);
    if (d->taps < 2 || d->taps > GDN_TAPS)
        return err_set(e, ERR_UNSUPPORTED, "%s: a convolution of %d taps, 2 to %d are built", path, d->taps, GDN_TAPS);
    return ERR_OK;
}

// x / sqrt(sum + eps) = rmsnorm(x, eps / n) / sqrt(n), and q is divided by sqrt(n) once more.
void gdn_units(struct gdn_dims *d, float *memory)
{
    for (int i = 0; i < d->k_dim; i++) {
        memory[i] = 1 / (float)d->k_dim;
        memory[d->k_dim + i] = (float)(1 / sqrt((double)d->k_dim));
    }
    d->q_unit = memory;
    d->k_unit = memory + d->k_dim;
}

// ---- opening

static err_code open_conv(struct gdn *l, const struct gdn_dims *d, const struct decoder_opening *o,
                          const struct gdn_names *names)
{
    char name[160];
    float *w;
    int channels = gdn_channels(d), ndim = names->conv_is_3d ? 3 : 2;
    int64_t shape[3] = {channels, names->conv_is_3d ? 1 : d->taps, d->taps};
    decoder_name(o, name, sizeof name, names->conv, "weight");
    err_code code = loader_floats(o->ld, name, shape, ndim, &w, o->e);
    if (code)
        return code;
    float *t = loader_alloc(o->ld, (size_t)channels * (size_t)d->taps * sizeof *t);
    for (int j = 0; j < d->taps; j++) {
        for (int c = 0; c < channels; c++)
            t[(size_t)j * (size_t)channels + (size_t)c] = w[(size_t)c * (size_t)d->taps + (size_t)j];
        l->taps[j] = t + (size_t)j * (size_t)channels;
    }
    return ERR_OK;
}

static err_code open_vector(const struct decoder_opening *o, const char *part, int n, float **ret_vector)
{
    char name[160];
    decoder_name(o, name, sizeof name, part, NULL);
    return loader_floats(o->ld, name, (int64_t[]){n}, 1, ret_vector, o->e);
}

// Tiled value heads stand in another order than in the checkpoint an adapter was trained on: the file's head
// r * k_heads + k is its head k * (v_heads / k_heads) + r.
static const int32_t *head_order(const struct gdn_dims *d, const struct decoder_opening *o, int before, int size)
{
    if (!d->tiled || !o->m->adapter)
        return NULL;
    int n = before + d->v_heads * size, per = d->v_heads / d->k_heads;
    int32_t *order = loader_alloc(o->ld, (size_t)n * sizeof *order);
    for (int i = 0; i < n; i++) {
        int head = (i - before) / size;
        int from = head % d->k_heads * per + head / d->k_heads;
        order[i] = i < before ? i : before + from * size + (i - before) % size;
    }
    return order;
}

static err_code matrix(const struct decoder_opening *o, struct linear *l, const char *part, int out, int in,
                       const int32_t *rows, const int32_t *cols)
{
    loader_set_order(o->ld, &(struct lora_order){rows, cols});
    return decoder_matrix(o, l, part, out, in, false);
}

err_code gdn_open(struct gdn *l, const struct gdn_dims *d, const struct decoder_opening *o, const struct gdn_names *names,
                  size_t state)
{
    int hidden = o->d->dims.hidden;
    float *rate = NULL, *bias = NULL, *norm = NULL;
    const int32_t *of_qkv = head_order(d, o, 2 * d->k_heads * d->k_dim, d->v_dim), *of_v = head_order(d, o, 0, d->v_dim);
    const int32_t *of_heads = head_order(d, o, 0, 1);
    err_code code = matrix(o, &l->qkv, names->qkv, gdn_channels(d), hidden, of_qkv, NULL);
    if (!code)
        code = matrix(o, &l->z, names->z, values(d), hidden, of_v, NULL);
    if (!code)
        code = matrix(o, &l->b, names->b, d->v_heads, hidden, of_heads, NULL);
    if (!code)
        code = matrix(o, &l->a, names->a, d->v_heads, hidden, of_heads, NULL);
    if (!code)
        code = open_conv(l, d, o, names);
    if (!code)
        code = open_vector(o, names->rate, d->v_heads, &rate);
    if (!code)
        code = open_vector(o, names->dt_bias, d->v_heads, &bias);
    if (!code)
        code = open_vector(o, names->norm, d->v_dim, &norm);
    if (!code)
        code = matrix(o, &l->out, names->out, hidden, values(d), NULL, of_v);
    if (code)
        return code;
    for (int i = 0; i < d->v_heads && names->rate_is_log; i++)
        rate[i] = -expf(rate[i]);
    l->rate = rate;
    l->dt_bias = bias;
    l->norm = norm;
    l->state = state;
    return ERR_OK;
}

// ---- running

struct scene {
    const struct gdn *l;
    const struct gdn_dims *d;
    const struct step *s;
    int ld, z, b, a, conv;  // floats of a row, and where its parts begin
};

static float *row_at(const struct scene *c, int row, int part)
{
    return c->s->mixer + (size_t)row * (size_t)c->ld + (size_t)part;
}

static float *state_of(const struct scene *c, const struct batch_seq *s)
{
    return (float *)(void *)((char *)s->kv->state + c->l->state);
}

// Units of work of all sequences, `per` each and as heavy as the sequence has rows, stand on a line; a lane takes those
// whose middle lies in its share.
typedef void unit_fn(const struct scene *c, const struct batch_seq *s, int unit);

static void run_units(const struct scene *c, int per, unit_fn *fn)
{
    const struct batch *b = c->s->batch;
    const struct lane *lane = c->s->lane;
    long total = (long)b->rows * per, at = 0;
    for (int i = 0; i < b->nseqs; i++) {
        const struct batch_seq *s = &b->seqs[i];
        for (int u = 0; u < per; u++, at += s->rows) {
            if ((2 * at + s->rows) * lane->count / (2 * total) == lane->id)
                fn(c, s, u);
        }
    }
}

// What precedes row r of the sequence by taps - 1 - j rows: from the rows themselves, or from the state.
static const float *tap(const struct scene *c, const struct batch_seq *s, int r, int j, int from)
{
    int at = r + j - (c->d->taps - 1);
    if (at >= 0)
        return row_at(c, s->row + at, from);
    return state_of(c, s) + (size_t)(r + j) * (size_t)gdn_channels(c->d) + (size_t)from;
}

// The inputs the next step begins with. Going up, a row of the state is read before it is written over.
static void keep(const struct scene *c, const struct batch_seq *s, int from, int n)
{
    for (int j = 0; j < c->d->taps - 1; j++) {
        float *to = state_of(c, s) + (size_t)j * (size_t)gdn_channels(c->d) + (size_t)from;
        memcpy(to, tap(c, s, s->rows, j, from), (size_t)n * sizeof *to);
    }
}

// Channels [from, from + n): one head of q, k or v. unit: the norm's weight for q and k, NULL for v.
static void convolve(const struct scene *c, const struct batch_seq *s, int from, int n, const float *unit)
{
    const struct cpu_ops *ops = c->s->m->ops;
    int taps = c->d->taps;
    const float *x[GDN_TAPS], *w[GDN_TAPS];
    for (int j = 0; j < taps; j++)
        w[j] = c->l->taps[j] + from;
    for (int r = 0; r < s->rows; r++) {
        float *y = row_at(c, s->row + r, c->conv + from);
        for (int j = 0; j < taps; j++)
            x[j] = tap(c, s, r, j, from);
        ops->conv_silu(y, x, w, taps, n);
        if (unit)
            ops->rmsnorm(y, y, unit, n, length_eps / (float)n, 0);
    }
    keep(c, s, from, n);
}

// b becomes beta and a the decay, in place. Few numbers: libm's functions, the same on every instruction set.
static void gates(const struct scene *c, const struct batch_seq *s)
{
    for (int r = s->row; r < s->row + s->rows; r++) {
        float *a = row_at(c, r, c->a), *b = row_at(c, r, c->b);
        for (int h = 0; h < c->d->v_heads; h++) {
            float x = a[h] + c->l->dt_bias[h];
            a[h] = expf(c->l->rate[h] * (x > 20 ? x : log1pf(expf(x))));
            b[h] = 1 / (1 + expf(-b[h]));
        }
    }
}

static void convolve_unit(const struct scene *c, const struct batch_seq *s, int unit)
{
    const struct gdn_dims *d = c->d;
    int k = d->k_heads;
    if (unit < 2 * k)
        convolve(c, s, unit * d->k_dim, d->k_dim, unit < k ? d->q_unit : d->k_unit);
    else if (unit < 2 * k + d->v_heads)
        convolve(c, s, 2 * k * d->k_dim + (unit - 2 * k) * d->v_dim, d->v_dim, NULL);
    else
        gates(c, s);
}

static void head_unit(const struct scene *c, const struct batch_seq *s, int h)
{
    const struct cpu_ops *ops = c->s->m->ops;
    const struct gdn_dims *d = c->d;
    int k = d->tiled ? h % d->k_heads : h / (d->v_heads / d->k_heads), v = h * d->v_dim;
    int q = c->conv + k * d->k_dim, width = d->k_heads * d->k_dim;
    float *state = state_of(c, s) + (size_t)(d->taps - 1) * (size_t)gdn_channels(d) + (size_t)h * head_floats(d);
    for (int at = 0; at < d->v_dim; at += GDN_COLS, state += (size_t)d->k_dim * GDN_COLS) {
        ops->gdn(&(struct gdn_args){
            .state = state, .rows = s->rows, .k_dim = d->k_dim, .cols = d->v_dim - at < GDN_COLS ? d->v_dim - at : GDN_COLS,
            .q = row_at(c, s->row, q), .k = row_at(c, s->row, q + width), .v = row_at(c, s->row, c->conv + 2 * width + v + at),
            .decay = row_at(c, s->row, c->a + h), .beta = row_at(c, s->row, c->b + h), .out = row_at(c, s->row, v + at),
            .ldqk = c->ld, .ldv = c->ld, .ldg = c->ld, .ldo = c->ld,
        });
    }
    for (int r = s->row; r < s->row + s->rows; r++) {
        float *o = row_at(c, r, v);
        ops->rmsnorm(o, o, c->l->norm, d->v_dim, d->eps, 0);
        ops->silu_mul(o, row_at(c, r, c->z + v), o, d->v_dim);
    }
}

void gdn_run(struct step *s, const struct gdn *l, const struct gdn_dims *d, const float *attn_norm)
{
    const struct decoder_dims *n = &s->d->dims;
    int channels = gdn_channels(d), z = channels, b = z + values(d), a = b + d->v_heads, conv = a + d->v_heads;
    struct scene c = {l, d, s, conv + channels, z, b, a, conv};
    struct acts x;
    decoder_input(s, &x, s->x, n->hidden, n->hidden, s->batch->rows, attn_norm, NULL);
    linear_apply(s->lane, s->m->ops, (const struct linear *[]){&l->qkv, &l->z, &l->b, &l->a},
                 (float *[]){s->mixer, s->mixer + z, s->mixer + b, s->mixer + a}, (int[]){c.ld, c.ld, c.ld, c.ld}, 4, &x,
                 MAT_STORE);
    lane_barrier(s->lane);
    run_units(&c, 2 * d->k_heads + d->v_heads + 1, convolve_unit);
    lane_barrier(s->lane);
    run_units(&c, d->v_heads, head_unit);
    lane_barrier(s->lane);
    decoder_input(s, &x, s->mixer, c.ld, values(d), s->batch->rows, NULL, NULL);
    decoder_multiply(s, &l->out, s->x, n->hidden, &x, MAT_ADD);
}
