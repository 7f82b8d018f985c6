// layers.c - the layers of image networks. layers_open_* runs while a model is loaded, the functions that add operations on
// the thread that plans a net; the static functions above them are the operations, one unit at a time, on any lane.
#include "engine/image/layers.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 256,          // pixels of a group norm's partial sums; part of the definition of its result
    TOKENS = 192,         // rows of a matrix product's unit: two tiles of the kernel
    WIDE_INPUT = 640,     // from this width on one tile, so that it stays in L2
    QUERIES = 192,
    ROWS = 32,            // of cheap row-wise operations
    TILES_LEAST = 64,     // of Winograd's run of tiles
    TILES_MOST = 96,
    STRIPE_BYTES = 8 << 20,  // of a frame
};

static const double run_floats = 2.2e6;  // of a transformed run of tiles: what stays in the last cache

static int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

// ---- opening

// Whether it is what is built: numbers by value, everything else by its text. A null is no default where there is a value:
// mid_block_type null is a network without that block.
static bool is_value(const json_t *found, const char *value)
{
    if (!found)
        return true;
    if (!value)
        return json_is_null(found) || json_is_false(found);
    json_t *wanted = json_loads(value, JSON_DECODE_ANY, NULL);
    bool same = json_is_number(found) && json_is_number(wanted)
                    ? fabs(json_number_value(found) - json_number_value(wanted)) < 1e-12
                    : json_equal(found, wanted);
    json_decref(wanted);
    return same;
}

err_code layers_check_options(const struct weights *w, const struct layers_option *options, size_t count, err *e)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *found = json_object_get(weights_config(w), options[i].key);
        if (is_value(found, options[i].value))
            continue;
        char *text = json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT);
        err_set_param(e, ERR_UNSUPPORTED, options[i].key, "%s: %s = %.80s is not built, expected %s", weights_path(w),
                      options[i].key, text ? text : "?", options[i].value ? options[i].value : "null or false");
        free(text);
        return ERR_UNSUPPORTED;
    }
    return ERR_OK;
}

err_code layers_config_int(const struct weights *w, const char *key, int fallback, int low, int high, int *ret_value,
                           err *e)
{
    int64_t v = fallback;
    if (meta_has(w, key) && !meta_null(w, key) && !meta_int(w, key, &v))
        return err_set_param(e, ERR_CORRUPT, key, "%s: %s is no whole number", weights_path(w), key);
    if (v < low || v > high)
        return err_set_param(e, ERR_CORRUPT, key, "%s: %s is %lld, expected %d to %d", weights_path(w), key, (long long)v,
                             low, high);
    *ret_value = (int)v;
    return ERR_OK;
}

err_code layers_open_norm(const struct layers_file *f, const char *name, int channels, struct layers_norm *ret_norm,
                          err *e)
{
    char text[256];
    struct layers_norm n = {.groups = f->groups, .eps = f->eps};
    if (channels % f->groups)
        return err_set_param(e, ERR_CORRUPT, name, "%s: %d channels in %d groups, expected a multiple", name, channels,
                             f->groups);
    snprintf(text, sizeof text, "%s.weight", name);
    err_code code = loader_vector(f->loader, text, channels, &n.w, e);
    snprintf(text, sizeof text, "%s.bias", name);
    if (!code)
        code = loader_vector(f->loader, text, channels, &n.b, e);
    if (!code)
        *ret_norm = n;
    return code;
}

err_code layers_open_conv(const struct layers_file *f, const char *name, int cout, int cin, struct layers_conv *c, err *e)
{
    char text[256];
    const float *bias;
    snprintf(text, sizeof text, "%s.bias", name);
    err_code code = loader_vector(f->loader, text, cout, &bias, e);
    snprintf(text, sizeof text, "%s.weight", name);
    if (!code)
        code = loader_conv(f->loader, text, cout, cin, &c->c, e);
    if (code)
        return code;
    float *padded = arena_alloc(f->arena, (size_t)conv_groups(&c->c) * CONV_WIDE * sizeof *padded);
    memcpy(padded, bias, (size_t)cout * sizeof *padded);
    c->bias = padded;
    return ERR_OK;
}

err_code layers_open_linear(const struct layers_file *f, const char *name, bool bias, int out, int in, struct linear *l,
                            err *e)
{
    char weight[512], vector[512];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(vector, sizeof vector, "%s.bias", name);
    if (bias && !loader_has(f->loader, vector))
        return err_set_param(e, ERR_CORRUPT, vector, "tensor '%s' is missing", vector);
    return linear_open(l, f->loader, weight, bias ? vector : NULL, out, in, e);
}

static err_code open_time(const struct layers_file *f, const char *name, int time, struct layers_resnet *r, err *e)
{
    char text[256];
    snprintf(text, sizeof text, "%s.time_emb_proj", name);
    err_code code = layers_open_linear(f, text, true, r->cout, time, &r->time, e);
    if (code)
        return code;
    float *bias = arena_alloc(f->arena, (size_t)r->cout * sizeof *bias);
    for (int i = 0; i < r->cout; i++)
        bias[i] = r->time.bias[i] + r->conv1.bias[i];
    r->time.bias = bias;
    return ERR_OK;
}

err_code layers_open_resnet(const struct layers_file *f, const char *name, int cin, int cout, int time,
                            struct layers_resnet *r, err *e)
{
    char text[256];
    *r = (struct layers_resnet){.cin = cin, .cout = cout};
    snprintf(text, sizeof text, "%s.norm1", name);
    err_code code = layers_open_norm(f, text, cin, &r->norm1, e);
    snprintf(text, sizeof text, "%s.conv1", name);
    if (!code)
        code = layers_open_conv(f, text, cout, cin, &r->conv1, e);
    snprintf(text, sizeof text, "%s.norm2", name);
    if (!code)
        code = layers_open_norm(f, text, cout, &r->norm2, e);
    snprintf(text, sizeof text, "%s.conv2", name);
    if (!code)
        code = layers_open_conv(f, text, cout, cout, &r->conv2, e);
    if (!code && time)
        code = open_time(f, name, time, r, e);
    snprintf(text, sizeof text, "%s.conv_shortcut", name);
    if (!code && cin != cout)
        code = layers_open_linear(f, text, true, cout, cin, &r->shortcut, e);
    r->has_shortcut = cin != cout;
    return code;
}

// ---- maps

static size_t map_floats(const struct net *n, int h, int w, int c)
{
    return (size_t)n->images * (size_t)h * (size_t)w * (size_t)c;
}

struct layers_map layers_new(struct net *n, int h, int w, int c)
{
    return (struct layers_map){net_take(n, map_floats(n, h, w, c)), h, w, c};
}

void layers_drop(struct net *n, struct layers_map m)
{
    net_drop(n, m.at);
}

// rows: pixels of an image, cols: channels, per_unit: pixels of a unit, split: units of an image
static void run_in(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->split, p0 = unit % op->split * op->per_unit;
    int p1 = p0 + op->per_unit < op->rows ? p0 + op->per_unit : op->rows;
    const float *x = n->x + (size_t)image * (size_t)op->rows * (size_t)op->cols;
    float *y = n->memory + op->y + (size_t)image * (size_t)op->rows * (size_t)op->cols;
    for (int p = p0; p < p1; p++)
        for (int c = 0; c < op->cols; c++)
            y[(size_t)p * (size_t)op->cols + (size_t)c] = x[(size_t)c * (size_t)op->rows + (size_t)p] * op->number.scale;
}

static void run_out(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->split, p0 = unit % op->split * op->per_unit;
    int p1 = p0 + op->per_unit < op->rows ? p0 + op->per_unit : op->rows;
    const float *x = n->memory + op->x + (size_t)image * (size_t)op->rows * (size_t)op->cols;
    float *y = n->out + (size_t)image * (size_t)op->rows * (size_t)op->cols;
    for (int c = 0; c < op->cols; c++)
        for (int p = p0; p < p1; p++)
            y[(size_t)c * (size_t)op->rows + (size_t)p] =
                x[(size_t)p * (size_t)op->cols + (size_t)c] * op->number.scale + op->number.shift;
}

static struct net_op *add_pixels(struct net *n, net_run *run, int pixels, int c)
{
    int per = 1024, split = ceil_div(pixels, per);
    struct net_op *op = net_add(n, run, n->images * split, 50.0 * per * c);
    op->rows = pixels;
    op->cols = c;
    op->per_unit = per;
    op->split = split;
    return op;
}

struct layers_map layers_in(struct net *n, int c, int h, int w, float scale)
{
    struct layers_map m = layers_new(n, h, w, c);
    struct net_op *op = add_pixels(n, run_in, h * w, c);
    op->y = m.at;
    op->number.scale = scale;
    return m;
}

void layers_out(struct net *n, struct layers_map m, float scale, float shift)
{
    struct net_op *op = add_pixels(n, run_out, m.h * m.w, m.c);
    op->x = m.at;
    op->number.scale = scale;
    op->number.shift = shift;
}

static void run_states(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)unit;
    (void)scratch;
    memcpy(n->memory + op->y, n->states, (size_t)op->rows * (size_t)op->cols * sizeof(float));
}

size_t layers_states(struct net *n, int rows, int cols)
{
    size_t at = net_take(n, (size_t)rows * (size_t)cols);
    struct net_op *op = net_add(n, run_states, 1, 10.0 * rows * cols);
    op->y = at;
    op->rows = rows;
    op->cols = cols;
    return at;
}

// ---- products

// A unit is per_unit rows of x and a split-th of the output's 32-row blocks.
static struct acts unit_acts(const struct net *n, const struct net_op *op, int unit, int in, int *ret_row, int *ret_rows)
{
    struct acts a;
    int row = unit / op->split * op->per_unit, left = op->rows - row;
    acts_init(&a, NULL, op->per_unit, in, MAT_F32);
    a.n = left < op->per_unit ? left : op->per_unit;
    a.x = n->memory + op->x + (size_t)row * (size_t)op->ldx;
    a.ldx = op->ldx;
    *ret_row = row;
    *ret_rows = a.n;
    return a;
}

enum { GROUPS = 4 };  // of 8 rows: what the kernel takes together

static void run_linear(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    const struct linear *l = op->w;
    int row, rows, blocks = ceil_div(mat_groups(&l->w), GROUPS), part = unit % op->split;
    struct acts a = unit_acts(n, op, unit, l->in, &row, &rows);
    int g0 = blocks * part / op->split * GROUPS, g1 = blocks * (part + 1) / op->split * GROUPS;
    g1 = g1 < mat_groups(&l->w) ? g1 : mat_groups(&l->w);
    linear_groups(n->ops, l, n->memory + op->y + (size_t)row * (size_t)op->ldy, op->ldy, &a, g0, g1,
                  op->flag ? MAT_ADD : MAT_STORE);
}

static struct net_op *add_product(struct net *n, net_run *run, const struct linear *l, int rows, int blocks)
{
    int tokens = l->in > WIDE_INPUT ? TOKENS / 2 : TOKENS;
    tokens = rows < tokens ? rows : tokens;
    int across = ceil_div(rows, tokens), split = ceil_div(8 * n->lanes, across);
    split = split < blocks ? split : blocks;
    struct net_op *op = net_add(n, run, across * split, 2.0 * tokens * l->in * l->out / split);
    op->w = l;
    op->rows = rows;
    op->per_unit = tokens;
    op->split = split;
    return op;
}

void layers_linear(struct net *n, const struct linear *l, size_t x, int ldx, size_t y, int ldy, int rows, bool add)
{
    struct net_op *op = add_product(n, run_linear, l, rows, ceil_div(mat_groups(&l->w), GROUPS));
    op->x = x;
    op->ldx = ldx;
    op->y = y;
    op->ldy = ldy;
    op->flag = add;
}

// Value and gate of 64 outputs at a time in scratch, then one row of the result after another.
static void run_geglu(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    const struct linear *l = op->w;
    int row, rows, inner = l->out / 2, groups = inner / MAT_GROUP, blocks = ceil_div(groups, 2 * GROUPS);
    struct acts a = unit_acts(n, op, unit, l->in, &row, &rows);
    int part = unit % op->split, b0 = blocks * part / op->split, b1 = blocks * (part + 1) / op->split;
    for (int b = b0; b < b1; b++) {
        int g0 = b * 2 * GROUPS, g1 = g0 + 2 * GROUPS < groups ? g0 + 2 * GROUPS : groups;
        int o0 = g0 * MAT_GROUP, width = (g1 - g0) * MAT_GROUP;
        linear_groups(n->ops, l, scratch, op->ldy, &a, g0, g1, MAT_STORE);
        linear_groups(n->ops, l, scratch, op->ldy, &a, groups + g0, groups + g1, MAT_STORE);
        for (int i = 0; i < rows; i++) {
            const float *value = scratch + (size_t)i * (size_t)op->ldy + o0;
            float *gate = scratch + (size_t)i * (size_t)op->ldy + inner + o0;
            float *y = n->memory + op->y + (size_t)(row + i) * (size_t)inner + o0;
            n->ops->gelu(gate, gate, width, GELU_ERF);
            for (int j = 0; j < width; j++)
                y[j] = value[j] * gate[j];
        }
    }
}

void layers_geglu(struct net *n, const struct linear *l, size_t x, size_t y, int rows)
{
    struct net_op *op = add_product(n, run_geglu, l, rows, ceil_div(l->out / 2 / MAT_GROUP, 2 * GROUPS));
    op->x = x;
    op->ldx = l->in;
    op->y = y;
    op->ldy = l->out + 16;  // rows a multiple of 4 KB apart would share cache lines
    net_want_scratch(n, (size_t)op->per_unit * (size_t)op->ldy);
}

// ---- rows

static int unit_rows(const struct net_op *op, int unit, int *ret_row)
{
    *ret_row = unit * op->per_unit;
    return op->rows - *ret_row < op->per_unit ? op->rows - *ret_row : op->per_unit;
}

static struct net_op *add_rows(struct net *n, net_run *run, int rows, int cols)
{
    int per = rows < ROWS * 4 * n->lanes ? ceil_div(rows, 4 * n->lanes) : ROWS;
    struct net_op *op = net_add(n, run, ceil_div(rows, per), 50.0 * per * cols);
    op->rows = rows;
    op->cols = cols;
    op->per_unit = per;
    return op;
}

static void run_layernorm(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int row, rows = unit_rows(op, unit, &row);
    const float *x = n->memory + op->x + (size_t)row * (size_t)op->cols;
    float *y = n->memory + op->y + (size_t)row * (size_t)op->cols;
    for (int i = 0; i < rows; i++, x += op->cols, y += op->cols)
        n->ops->layernorm(y, x, op->v, op->u, op->cols, op->norm.eps);
}

void layers_layernorm(struct net *n, const float *w, const float *b, float eps, size_t x, size_t y, int rows, int cols)
{
    struct net_op *op = add_rows(n, run_layernorm, rows, cols);
    op->x = x;
    op->y = y;
    op->v = w;
    op->u = b;
    op->norm.eps = eps;
}

static void run_act(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int row, rows = unit_rows(op, unit, &row);
    float *x = n->memory + op->x + (size_t)row * (size_t)op->cols;
    if (op->split == LAYERS_SILU)
        n->ops->silu(x, x, rows * op->cols);
    else
        n->ops->gelu(x, x, rows * op->cols, op->split == LAYERS_GELU ? GELU_ERF : GELU_QUICK);
}

void layers_act(struct net *n, enum layers_act act, size_t x, int rows, int cols)
{
    struct net_op *op = add_rows(n, run_act, rows, cols);
    op->x = x;
    op->split = (int)act;
}

// ---- attention: a unit is one head of one image and a block of queries

static void run_attend(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    int block = unit % op->split, head = unit / op->split % op->attn.heads, image = unit / op->split / op->attn.heads;
    int row = block * op->per_unit, left = op->rows - row, d = op->attn.head_dim;
    size_t q0 = (size_t)(image * op->rows + row), k0 = (size_t)image * (size_t)op->attn.keys, at = (size_t)(head * d);
    struct mha_args a = {
        .q = n->memory + op->x + q0 * (size_t)op->ldx + at,
        .k = n->memory + op->attn.k + k0 * (size_t)op->attn.ldk + at,
        .v = n->memory + op->attn.v + k0 * (size_t)op->attn.ldk + at,
        .out = n->memory + op->y + q0 * (size_t)op->ldy + at,
        .ldq = op->ldx, .ldk = op->attn.ldk, .ldv = op->attn.ldk, .ldo = op->ldy,
        .rows = left < op->per_unit ? left : op->per_unit, .keys = op->attn.keys, .head_dim = d,
        .causal = op->attn.causal, .pos0 = row, .scale = 1 / sqrtf((float)d), .scratch = scratch,
    };
    n->ops->mha(&a);
}

void layers_attend(struct net *n, const struct layers_attn *a)
{
    int rows = QUERIES;
    while (rows > 24 && n->images * a->heads * ceil_div(a->rows, rows) < 4 * n->lanes)
        rows /= 2;
    rows = a->rows < rows ? a->rows : rows;
    int split = ceil_div(a->rows, rows);
    struct net_op *op = net_add(n, run_attend, n->images * a->heads * split, 4.0 * rows * a->keys * a->head_dim + 1000);
    op->x = a->q;
    op->y = a->out;
    op->ldx = a->ldq;
    op->ldy = a->heads * a->head_dim;
    op->rows = a->rows;
    op->per_unit = rows;
    op->split = split;
    op->attn.k = a->k;
    op->attn.v = a->v;
    op->attn.keys = a->keys;
    op->attn.heads = a->heads;
    op->attn.head_dim = a->head_dim;
    op->attn.ldk = a->ldk;
    op->attn.causal = a->causal;
    net_want_scratch(n, attn_mha_floats(rows, a->head_dim));
}

// ---- group normalisation: partial sums of chunks of pixels, joined in f64, as one factor and addend a channel

static void run_moments(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->norm.chunks, chunk = unit % op->norm.chunks, p0 = chunk * CHUNK;
    int left = op->norm.pixels - p0;
    float *to = n->memory + op->y + (size_t)unit * 2 * (size_t)op->cols;
    n->ops->conv->moments(n->memory + op->x + ((size_t)image * (size_t)op->norm.pixels + (size_t)p0) * (size_t)op->cols,
                          left < CHUNK ? left : CHUNK, op->cols, to, to + op->cols);
}

// One group of one image. The spread of all is that inside the chunks and channels plus that of their means.
static void run_join(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->norm.groups, per = op->cols / op->norm.groups, c0 = unit % op->norm.groups * per;
    const float *from = n->memory + op->x + (size_t)image * (size_t)op->norm.chunks * 2 * (size_t)op->cols;
    double sum = 0, square = 0, count = (double)op->norm.pixels * per;
    for (int pass = 0; pass < 2; pass++) {
        double mean = sum / count;
        for (int k = 0; k < op->norm.chunks; k++) {
            const float *s = from + (size_t)k * 2 * (size_t)op->cols;
            int left = op->norm.pixels - k * CHUNK, pixels = left < CHUNK ? left : CHUNK;
            for (int c = c0; c < c0 + per; c++) {
                double d = (double)s[c] / pixels - mean;
                if (pass == 0)
                    sum += (double)s[c];
                else
                    square += (double)s[op->cols + c] + pixels * d * d;
            }
        }
    }
    double mean = sum / count, factor = 1 / sqrt(square / count + (double)op->norm.eps);
    float *to = n->memory + op->y + (size_t)image * 2 * (size_t)op->cols;
    for (int c = c0; c < c0 + per; c++) {
        to[c] = (float)(factor * (double)op->v[c]);
        to[op->cols + c] = (float)((double)op->u[c] - mean * factor * (double)op->v[c]);
    }
}

size_t layers_stats(struct net *n, const struct layers_norm *norm, struct layers_map m)
{
    int pixels = m.h * m.w, chunks = ceil_div(pixels, CHUNK);
    size_t sums = net_take(n, (size_t)n->images * (size_t)chunks * 2 * (size_t)m.c);
    size_t stats = net_take(n, (size_t)n->images * 2 * (size_t)m.c);
    struct net_op *op = net_add(n, run_moments, n->images * chunks, 30.0 * CHUNK * m.c);
    op->x = m.at;
    op->y = sums;
    op->cols = m.c;
    op->norm.chunks = chunks;
    op->norm.pixels = pixels;
    op = net_add(n, run_join, n->images * norm->groups, 200.0 * chunks * m.c / norm->groups);
    op->x = sums;
    op->y = stats;
    op->cols = m.c;
    op->v = norm->w;
    op->u = norm->b;
    op->norm.chunks = chunks;
    op->norm.pixels = pixels;
    op->norm.groups = norm->groups;
    op->norm.eps = norm->eps;
    net_drop(n, sums);
    return stats;
}

static void run_affine(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->split, p0 = unit % op->split * op->per_unit, left = op->rows - p0;
    size_t at = ((size_t)image * (size_t)op->rows + (size_t)p0) * (size_t)op->cols;
    const float *stats = n->memory + op->aux + (size_t)image * 2 * (size_t)op->cols;
    n->ops->conv->affine(n->memory + op->y + at, n->memory + op->x + at, stats, stats + op->cols,
                         left < op->per_unit ? left : op->per_unit, op->cols, false);
}

struct layers_map layers_affine(struct net *n, struct layers_map m, size_t stats)
{
    struct layers_map y = layers_new(n, m.h, m.w, m.c);
    int pixels = m.h * m.w, per = 64, split = ceil_div(pixels, per);
    struct net_op *op = net_add(n, run_affine, n->images * split, 30.0 * per * m.c);
    op->x = m.at;
    op->y = y.at;
    op->aux = stats;
    op->rows = pixels;
    op->cols = m.c;
    op->per_unit = per;
    op->split = split;
    return y;
}

// ---- convolution

// One row of a frame: zeros around what the map holds.
static void run_frame(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int image = unit / op->frame.rows, row = unit % op->frame.rows, c = op->frame.c;
    int y = op->frame.y0 * op->frame.stride - 1 + row, width = op->frame.width, inside = op->frame.to_w;
    float *to = n->memory + op->y + (size_t)unit * (size_t)width * (size_t)c;
    if (y < 0 || y >= op->frame.to_h) {
        memset(to, 0, (size_t)width * (size_t)c * sizeof *to);
        return;
    }
    int sy = (int)((long)y * op->frame.h / op->frame.to_h);
    const float *from = n->memory + op->x + ((size_t)image * (size_t)op->frame.h + (size_t)sy) * (size_t)op->frame.w * (size_t)c;
    memset(to, 0, (size_t)c * sizeof *to);
    to += c;
    if (inside > width - 1)
        inside = width - 1;
    if (op->frame.affine) {
        const float *stats = n->memory + op->aux + (size_t)image * 2 * (size_t)c;
        n->ops->conv->affine(to, from, stats, stats + c, inside, c, op->frame.silu);
    } else if (op->frame.to_w == op->frame.w) {
        memcpy(to, from, (size_t)inside * (size_t)c * sizeof *to);
    } else {
        for (int x = 0; x < inside; x++)
            memcpy(to + (size_t)x * (size_t)c, from + (size_t)((long)x * op->frame.w / op->frame.to_w) * (size_t)c,
                   (size_t)c * sizeof *to);
    }
    if (inside < width - 1)
        memset(to + (size_t)inside * (size_t)c, 0, (size_t)(width - 1 - inside) * (size_t)c * sizeof *to);
}

static struct conv_job job_of(const struct net *n, const struct net_op *op)
{
    const struct layers_conv *c = op->w;
    return (struct conv_job){
        .w = &c->c, .x = n->memory + op->conv.frame, .rows = op->conv.frame_rows, .width = op->conv.frame_width,
        .n = n->images, .stride = op->conv.stride, .y0 = op->conv.y0, .y1 = op->conv.y1, .h = op->conv.h,
        .wd = op->conv.wd, .y = n->memory + op->y, .add = op->has_add ? n->memory + op->add : NULL, .ldy = op->ldy,
        .bias = op->conv.bias ? op->conv.bias : n->memory + op->conv.bias_at,
    };
}

// Part `part` of `parts` of [0, n).
static int share(int n, int part, int parts)
{
    return (int)((long)n * part / parts);
}

static void run_direct(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    struct conv_job j = job_of(n, op);
    int groups = conv_groups(j.w), part = unit % op->split;
    conv_direct(n->ops, &j, unit / op->split, share(groups, part, op->split), share(groups, part + 1, op->split));
}

static void run_tiles_in(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    struct conv_job j = job_of(n, op);
    int t0 = unit * op->per_unit, t1 = t0 + op->per_unit;
    conv_input(n->ops, &j, op->conv.first, t0, t1 < op->conv.tiles ? t1 : op->conv.tiles, n->memory + op->conv.v,
               op->conv.plane);
}

static void run_tiles(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    struct conv_job j = job_of(n, op);
    int part = unit % op->split;
    conv_group(n->ops, &j, op->conv.first, share(op->conv.tiles, part, op->split),
               share(op->conv.tiles, part + 1, op->split), unit / op->split, n->memory + op->conv.v, op->conv.plane, scratch);
}

// What the operations of one stripe have in common; `like` is the first of them, as filled in so far.
static struct net_op *add_like(struct net *n, const struct net_op *like, net_run *run, int units, double cost)
{
    struct net_op copy = *like, *op = net_add(n, run, units, cost);
    copy.run = run;
    copy.units = units;
    copy.cost = cost;
    *op = copy;
    return op;
}

static void add_direct(struct net *n, const struct net_op *like, const struct conv *c)
{
    int rows = like->conv.y1 - like->conv.y0, groups = conv_groups(c);
    int blocks = ceil_div(n->images * rows * like->conv.wd, CONV_BLOCK), split = ceil_div(8 * n->lanes, blocks);
    split = split < groups ? split : groups;
    double cost = 18.0 * CONV_BLOCK * c->cin * groups * CONV_WIDE / split;
    add_like(n, like, run_direct, blocks * split, cost)->split = split;
}

static int run_of_tiles(int cin)
{
    int tiles = (int)(run_floats / (CONV_PLANES * (double)cin));
    return tiles < TILES_LEAST ? TILES_LEAST : tiles > TILES_MOST ? TILES_MOST : tiles;
}

static void add_winograd(struct net *n, const struct net_op *like, const struct conv *c)
{
    int down = ceil_div(like->conv.y1 - like->conv.y0, CONV_TILE), across = ceil_div(like->conv.wd, CONV_TILE);
    int all = n->images * down * across, runs = ceil_div(all, run_of_tiles(c->cin)), groups = conv_groups(c);
    size_t plane = conv_plane(ceil_div(all, runs), c->cin), v = net_take(n, plane * CONV_PLANES);
    for (int r = 0; r < runs; r++) {
        int first = share(all, r, runs), tiles = share(all, r + 1, runs) - first, per = ceil_div(tiles, 8 * n->lanes);
        struct net_op *op = add_like(n, like, run_tiles_in, ceil_div(tiles, per), 400.0 * per * c->cin);
        op->per_unit = per;
        op->conv.first = first;
        op->conv.tiles = tiles;
        op->conv.v = v;
        op->conv.plane = plane;
        struct net_op in = *op;
        int split = ceil_div(3 * n->lanes, groups);
        split = split < tiles ? split : tiles;
        op = add_like(n, &in, run_tiles, groups * split, 96.0 * tiles * c->cin * CONV_WIDE / split);
        op->split = split;
        net_want_scratch(n, conv_group_floats(ceil_div(tiles, split) + 1, c->cin));
    }
    net_drop(n, v);
}

// Output rows of a stripe: all, or as many whole tiles as keep the frame small.
static int stripe_rows(const struct net *n, int stride, int h, int w, int cin)
{
    size_t row = (size_t)n->images * (size_t)conv_frame_width(stride, w) * (size_t)cin * sizeof(float);
    int rows = (int)(STRIPE_BYTES / row) / stride / CONV_TILE * CONV_TILE;
    rows = rows < 4 * CONV_TILE ? 4 * CONV_TILE : rows;
    return rows < h ? rows : h;
}

void layers_convolve(struct net *n, const struct layers_conv *c, const struct layers_input *in, int stride,
                     const size_t *bias, const struct layers_map *add, struct layers_map out)
{
    int to_h = in->h ? in->h : in->map.h, to_w = in->w ? in->w : in->map.w, cin = c->c.cin;
    int step = stripe_rows(n, stride, out.h, out.w, cin);
    int width = conv_frame_width(stride, out.w), most = conv_frame_rows(stride, step);
    size_t frame = net_take(n, (size_t)n->images * (size_t)most * (size_t)width * (size_t)cin);
    for (int y0 = 0; y0 < out.h; y0 += step) {
        int y1 = y0 + step < out.h ? y0 + step : out.h, rows = conv_frame_rows(stride, y1 - y0);
        struct net_op *op = net_add(n, run_frame, n->images * rows, 60.0 * width * cin);
        op->x = in->map.at;
        op->y = frame;
        op->aux = in->stats;
        op->frame.h = in->map.h, op->frame.w = in->map.w, op->frame.c = cin;
        op->frame.to_h = to_h, op->frame.to_w = to_w;
        op->frame.y0 = y0, op->frame.stride = stride;
        op->frame.rows = rows, op->frame.width = width;
        op->frame.affine = op->frame.silu = in->norm;
        struct net_op like = {.w = c, .y = out.at, .ldy = out.c, .has_add = add != NULL, .add = add ? add->at : 0};
        like.conv.bias = bias ? NULL : c->bias;
        like.conv.bias_at = bias ? *bias : 0;
        like.conv.frame = frame;
        like.conv.stride = stride;
        like.conv.y0 = y0, like.conv.y1 = y1;
        like.conv.h = out.h, like.conv.wd = out.w;
        like.conv.frame_rows = rows, like.conv.frame_width = width;
        if (conv_winograd(&c->c, stride, out.h, out.w))
            add_winograd(n, &like, &c->c);
        else
            add_direct(n, &like, &c->c);
    }
    net_drop(n, frame);
}

struct layers_map layers_resnet(struct net *n, const struct layers_resnet *r, struct layers_map x, const size_t *time,
                                bool keep)
{
    struct layers_map t = layers_new(n, x.h, x.w, r->cout);
    size_t bias = 0, stats = layers_stats(n, &r->norm1, x);
    if (time) {
        bias = net_take(n, (size_t)conv_groups(&r->conv1.c) * CONV_WIDE);
        layers_linear(n, &r->time, *time, r->time.in, bias, r->cout, 1, false);
    }
    struct layers_input in = {.map = x, .norm = true, .stats = stats};
    layers_convolve(n, &r->conv1, &in, 1, time ? &bias : NULL, NULL, t);
    net_drop(n, stats);
    if (time)
        net_drop(n, bias);
    struct layers_map add = x, out = x;
    if (r->has_shortcut) {
        add = out = layers_new(n, x.h, x.w, r->cout);
        layers_linear(n, &r->shortcut, x.at, x.c, out.at, out.c, n->images * x.h * x.w, false);
        if (!keep)
            layers_drop(n, x);
    } else if (keep) {
        out = layers_new(n, x.h, x.w, r->cout);
    }
    stats = layers_stats(n, &r->norm2, t);
    in = (struct layers_input){.map = t, .norm = true, .stats = stats};
    layers_convolve(n, &r->conv2, &in, 1, NULL, &add, out);
    net_drop(n, stats);
    layers_drop(n, t);
    return out;
}

static void run_cat(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    int row, rows = unit_rows(op, unit, &row);
    size_t a = (size_t)op->ldx, b = (size_t)(op->cols - op->ldx);
    const float *x = n->memory + op->x + (size_t)row * a, *z = n->memory + op->add + (size_t)row * b;
    float *y = n->memory + op->y + (size_t)row * (a + b);
    for (int i = 0; i < rows; i++, x += a, z += b, y += a + b) {
        memcpy(y, x, a * sizeof *y);
        memcpy(y + a, z, b * sizeof *y);
    }
}

struct layers_map layers_cat(struct net *n, struct layers_map a, struct layers_map b)
{
    struct layers_map y = layers_new(n, a.h, a.w, a.c + b.c);
    struct net_op *op = add_rows(n, run_cat, n->images * a.h * a.w, y.c);
    op->x = a.at;
    op->add = b.at;
    op->y = y.at;
    op->ldx = a.c;
    layers_drop(n, a);
    layers_drop(n, b);
    return y;
}
