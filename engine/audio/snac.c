// snac.c - runs the SNAC decoder, all lanes on one stream. Rows are time, [row][channel] everywhere.
//
// How many rows a stage has had before a step is a function of the latent rows fed before it: a convolution that looks r
// rows ahead has given max(0, in - r), an up-convolution in * rate - pad. So a stream keeps one counter and its rows, and
// every lane works out the same plan. At the end each convolution is fed its own r zero rows: zeros fed at the top
// would have picked up biases on their way.
//
// Lanes own channels (whole groups of 8) from a unit's first snake to its last addition and meet once a unit, before
// the 1x1 product that reads all channels; its input is double-buffered. The transposed convolution is one product
// over overlapping pairs of rows.
#include "engine/audio/snac.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/audio/snac_int.h"

enum {
    TILE = 128,  // rows whose snakes and taps are computed while they are in the cache
    LEAD = 39,   // rows the units of a block hold back: 3 + 9 + 27
    SIDE = 3,    // rows a convolution of 7 taps looks to each side, times its dilation
};

struct buffers {
    float *codes, *latent, *pair, *wide, *x, *z[2], *ext, *noise;
};

struct run {
    const struct snac *s;
    struct snac_stream *st;
    struct lane *lane;
    const struct cpu_ops *ops;
    struct buffers b;
    bool last;
    int turn;     // z to be written next
    float *x;     // rows of the present stage, this lane's channels
    long before;  // rows the stage has had before this step
    int n;        // rows it gets now
};

// ---- plans

static long ahead(long in, int r, bool last)
{
    return last ? in : in > r ? in - r : 0;
}

// Rows of a window of radius r that come out now; *ret_held of those before are still inside.
static int window_rows(long before, int n, int r, bool last, int *ret_held)
{
    long given = ahead(before, r, false);
    *ret_held = (int)(before - given);
    return (int)(ahead(before + n, r, last) - given);
}

static long up_given(const struct snac_block *b, long before)
{
    return before > 0 ? before * b->rate - b->pad : 0;
}

static int up_rows(const struct snac_block *b, long before, int n, bool last)
{
    if (last)
        return (int)((before + n) * b->rate - up_given(b, before));
    return (int)(up_given(b, before + n) - up_given(b, before));
}

static void pass_window(long *before, int *n, int r, bool last)
{
    int held, m = window_rows(*before, *n, r, last, &held);
    *before -= held;
    *n = m;
}

int snac_samples(const struct snac_stream *st, int rows, bool last)
{
    const struct snac *s = st->snac;
    long before = st->fed;
    int n = rows;
    pass_window(&before, &n, SIDE, last);
    for (int i = 0; i < s->shape.blocks; i++) {
        const struct snac_block *b = &s->blocks[i];
        int m = up_rows(b, before, n, last);
        before = up_given(b, before);
        n = m;
        for (int u = 0; u < SNAC_UNITS; u++)
            pass_window(&before, &n, SIDE * b->units[u].conv.dilation, last);
    }
    pass_window(&before, &n, SIDE, last);
    return n;
}

// ---- memory

static float *take(float **at, size_t n)
{
    float *p = *at;
    *at += (n + 15) & ~(size_t)15;
    return p;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Lays the buffers out from `at`; returns its end. Sizes are those of the longest step, which is also the last one.
static float *lay_out(const struct snac *s, struct buffers *b, float *at)
{
    size_t n = SNAC_STEP_ROWS, latent = (size_t)s->latent, pair = 0, wide = 0, noise = 0;
    size_t x = (n + SIDE) * (size_t)s->width, z = (n + SIDE) * latent, ext = (n + 3 * SIDE) * latent;
    b->codes = take(&at, n * (size_t)(s->shape.levels * s->codebook_dim));
    b->latent = take(&at, n * latent);
    n += SIDE;
    for (int i = 0; i < s->shape.blocks; i++) {
        const struct snac_block *k = &s->blocks[i];
        size_t out = (size_t)k->out;
        pair = larger(pair, (n + 2) * (size_t)k->in);
        n = (n + 1) * (size_t)k->rate;
        wide = larger(wide, n * out);
        noise = larger(noise, n);
        x = larger(x, (LEAD + n) * out);
        n += LEAD;
        z = larger(z, n * out);
        ext = larger(ext, (n + 3 * LEAD) * out);
    }
    b->pair = take(&at, pair);
    b->wide = take(&at, wide);
    b->x = take(&at, x);
    b->z[0] = take(&at, z);
    b->z[1] = take(&at, z);
    b->ext = take(&at, ext);
    b->noise = take(&at, noise);
    return at;
}

size_t snac_scratch_bytes(const struct snac *s)
{
    struct buffers b;
    return (size_t)((char *)lay_out(s, &b, (float *)64) - (char *)64);
}

size_t snac_state_floats(const struct snac *s)
{
    return s->state_floats;
}

void snac_start(struct snac_stream *st)
{
    memset(st->state, 0, st->snac->state_floats * sizeof *st->state);
    st->fed = 0;
}

// ---- pieces; c0 .. c1 are the lane's channels of `width`

static void copy_rows(float *to, const float *from, int rows, int width, int c0, int c1)
{
    for (int t = 0; t < rows && c0 < c1; t++)
        memcpy(to + (size_t)t * (size_t)width + c0, from + (size_t)t * (size_t)width + c0, (size_t)(c1 - c0) * sizeof *to);
}

static void zero_rows(float *to, int rows, int width, int c0, int c1)
{
    for (int t = 0; t < rows && c0 < c1; t++)
        memset(to + (size_t)t * (size_t)width + c0, 0, (size_t)(c1 - c0) * sizeof *to);
}

static struct acts rows_of(const float *x, int ldx, int cols, int n)
{
    struct acts a;
    acts_init(&a, NULL, n, cols, MAT_F32);
    a.n = n;
    a.x = x;
    a.ldx = ldx;
    return a;
}

// The lane's rows of y = l x, or y += l x.
static void product(const struct run *r, const struct linear *l, const float *x, int ldx, int n, float *y,
                    enum mat_write write)
{
    int c0, c1;
    lane_split(r->lane, l->out, MAT_GROUP, &c0, &c1);
    struct acts a = rows_of(x, ldx, l->in, n);
    if (n > 0)
        linear_groups(r->ops, l, y, l->out, &a, c0 / MAT_GROUP, (c1 + MAT_GROUP - 1) / MAT_GROUP, write);
}

static void snake(const struct run *r, const struct snac_snake *k, float *y, const float *x, int rows, int width, int c0,
                  int c1)
{
    if (rows > 0 && c0 < c1)
        r->ops->snake(y + c0, width, x + c0, width, k->alpha + c0, k->inv + c0, rows, c1 - c0);
}

// ---- a window: seven taps over rows that are kept

struct window {
    const struct snac_conv7 *conv;  // NULL: the caller multiplies the seven rows itself
    const struct snac_snake *before, *after;
    int width, radius, held, m;
    float *state;
};

// Rows t0 .. t1 of ext behind the kept ones: x through the first snake.
static void extend(const struct run *r, const struct window *w, int t0, int t1, int c0, int c1)
{
    size_t width = (size_t)w->width;
    float *to = r->b.ext + (size_t)(w->radius + w->held + t0) * width;
    const float *from = r->x + (size_t)t0 * width;
    if (w->before)
        snake(r, w->before, to, from, t1 - t0, w->width, c0, c1);
    else
        copy_rows(to, from, t1 - t0, w->width, c0, c1);
}

static void taps(const struct run *r, const struct window *w, int t0, int t1, int c0, int c1, float *z)
{
    const struct snac_conv7 *c = w->conv;
    float *to = z + (size_t)t0 * (size_t)w->width;
    r->ops->depthwise(to + c0, w->width, r->b.ext + (size_t)t0 * (size_t)w->width + c0, w->width, c->w + c0, w->width,
                      c->bias + c0, c->dilation, t1 - t0, c1 - c0);
    if (w->after)
        snake(r, w->after, to, to, t1 - t0, w->width, c0, c1);
}

// Fills ext with the kept rows, the new ones and at the end zeros, and keeps what later rows need. With a depthwise
// convolution also z, its output after the second snake.
static void fill_window(const struct run *r, const struct window *w, float *z)
{
    int c0, c1, kept = w->radius + w->held, have = 0, need = 0;
    lane_split(r->lane, w->width, MAT_GROUP, &c0, &c1);
    copy_rows(r->b.ext, w->state, kept, w->width, c0, c1);
    if (r->last)
        zero_rows(r->b.ext + (size_t)(kept + r->n) * (size_t)w->width, w->radius, w->width, c0, c1);
    bool depthwise = w->conv && w->conv->depthwise && c0 < c1;
    for (int t = 0, end; depthwise && t < w->m; t = end, have = need) {
        end = t + TILE < w->m ? t + TILE : w->m;
        need = end + 2 * w->radius - kept;
        need = need < have ? have : need > r->n ? r->n : need;
        extend(r, w, have, need, c0, c1);
        taps(r, w, t, end, c0, c1, z);
    }
    extend(r, w, have, r->n, c0, c1);
    if (!r->last)
        copy_rows(w->state, r->b.ext + (size_t)w->m * (size_t)w->width, kept + r->n - w->m, w->width, c0, c1);
}

// A dense convolution: one product a tap, each added when its sum is complete.
static void dense(const struct run *r, const struct window *w, float *y)
{
    for (int k = 0; k < WAVE_TAPS; k++) {
        const float *from = r->b.ext + (size_t)(k * w->conv->dilation) * (size_t)w->width;
        product(r, &w->conv->tap[k], from, w->width, w->m, y, k ? MAT_ADD : MAT_STORE);
    }
}

static struct window window_of(const struct run *r, const struct snac_conv7 *c, const struct snac_snake *before,
                               const struct snac_snake *after, int width, size_t state)
{
    struct window w = {.conv = c, .before = before, .after = after, .width = width,
                       .radius = SIDE * (c ? c->dilation : 1), .state = r->st->state + state};
    w.m = window_rows(r->before, r->n, w.radius, r->last, &w.held);
    return w;
}

static void passed(struct run *r, const struct window *w)
{
    r->before -= w->held;
    r->n = w->m;
}

// ---- stages

static void look_up(struct run *r, const int32_t *const *codes)
{
    const struct snac *s = r->s;
    size_t dim = (size_t)s->codebook_dim;
    int t0, t1, c0, c1;
    lane_split(r->lane, r->n, 1, &t0, &t1);
    for (int l = 0; l < s->shape.levels; l++) {
        float *to = r->b.codes + (size_t)l * SNAC_STEP_ROWS * dim;
        for (int t = t0; t < t1; t++) {
            size_t code = (size_t)codes[l][(r->before + t) / s->shape.strides[l]];
            memcpy(to + (size_t)t * dim, s->levels[l].codebook + code * dim, dim * sizeof *to);
        }
    }
    lane_barrier(r->lane);
    lane_split(r->lane, s->latent, MAT_GROUP, &c0, &c1);
    for (int l = 0; l < s->shape.levels; l++)
        product(r, &s->levels[l].project, r->b.codes + (size_t)l * SNAC_STEP_ROWS * dim, s->codebook_dim, r->n, r->b.latent,
                l ? MAT_ADD : MAT_STORE);
}

static void begin(struct run *r)
{
    const struct snac *s = r->s;
    r->x = r->b.latent;
    struct window w = window_of(r, &s->conv_in, NULL, NULL, s->latent, s->ext_in);
    float *z = r->b.z[r->turn];
    r->turn ^= 1;
    fill_window(r, &w, z);
    lane_barrier(r->lane);
    r->x = r->b.x;
    if (s->depthwise)
        product(r, &s->mix_in, z, s->latent, w.m, r->x, MAT_STORE);
    else
        dense(r, &w, r->x);
    passed(r, &w);
}

float snac_draw(uint64_t seed, int block, uint64_t row)
{
    double u = 1 - rng_unit(seed, (uint64_t)block, 2 * row), v = rng_unit(seed, (uint64_t)block, 2 * row + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

// Noise of the rows given, given + 1 .. of a block's output. Lanes fill different rows.
static void draw(const struct run *r, int block, long given, int m)
{
    const struct snac_stream *st = r->st;
    uint64_t first = st->first;
    int t0, t1;
    for (int i = 0; i <= block; i++)
        first *= (uint64_t)r->s->blocks[i].rate;
    lane_split(r->lane, m, 1, &t0, &t1);
    for (int t = t0; t < t1; t++)
        r->b.noise[t] = snac_draw(st->seed, block, first + (uint64_t)given + (uint64_t)t);
}

static void add_noise(const struct run *r, const struct snac_block *b, const float *y, const float *noise)
{
    int c0, c1;
    lane_split(r->lane, b->out, MAT_GROUP, &c0, &c1);
    if (!noise) {
        copy_rows(r->x, y, r->n, b->out, c0, c1);
        return;
    }
    product(r, &b->noise, y, b->out, r->n, r->x, MAT_STORE);
    for (int t = 0; t < r->n; t++) {
        float *x = r->x + (size_t)t * (size_t)b->out;
        const float *from = y + (size_t)t * (size_t)b->out, v = noise[t];
        for (int c = c0; c < c1; c++)
            x[c] = from[c] + v * x[c];
    }
}

// x of b->in channels to x of b->out channels, noise included.
static void up(struct run *r, int block)
{
    const struct snac_block *b = &r->s->blocks[block];
    float *pair = r->b.pair, *row = r->st->state + b->row;
    int c0, c1, pairs = r->n + r->last, skip = r->before > 0 ? 0 : b->pad;
    long given = up_given(b, r->before);
    int m = up_rows(b, r->before, r->n, r->last);
    lane_split(r->lane, b->in, MAT_GROUP, &c0, &c1);
    copy_rows(pair, row, 1, b->in, c0, c1);
    snake(r, &b->snake, pair + b->in, r->x, r->n, b->in, c0, c1);
    if (r->last)
        zero_rows(pair + (size_t)(r->n + 1) * (size_t)b->in, 1, b->in, c0, c1);
    copy_rows(row, pair + (size_t)r->n * (size_t)b->in, 1, b->in, c0, c1);
    bool noisy = r->s->shape.noise && r->st->noise != SNAC_NOISE_OFF;
    if (noisy && r->st->noise == SNAC_NOISE_DRAWN)
        draw(r, block, given, m);
    lane_barrier(r->lane);
    product(r, &b->up, pair, b->in, pairs, r->b.wide, MAT_STORE);
    lane_barrier(r->lane);
    r->x = r->b.x + (size_t)LEAD * (size_t)b->out;
    r->before = given;
    r->n = m;
    const float *noise = r->st->noise == SNAC_NOISE_GIVEN ? r->st->given[block] + given : r->b.noise;
    add_noise(r, b, r->b.wide + (size_t)skip * (size_t)b->out, noisy ? noise : NULL);
}

// x += mix(snake(conv(snake x))), delayed by the rows the convolution looks ahead.
static void unit(struct run *r, const struct snac_unit *u, int width)
{
    struct window w = window_of(r, &u->conv, &u->before, &u->after, width, u->ext);
    float *z = r->b.z[r->turn], *raw = r->st->state + u->raw;
    int c0, c1, left = w.held + r->n - w.m;
    r->turn ^= 1;
    lane_split(r->lane, width, MAT_GROUP, &c0, &c1);
    fill_window(r, &w, z);
    r->x -= (size_t)w.held * (size_t)width;
    copy_rows(r->x, raw, w.held, width, c0, c1);
    copy_rows(raw, r->x + (size_t)w.m * (size_t)width, left, width, c0, c1);
    lane_barrier(r->lane);
    if (!u->conv.depthwise) {
        dense(r, &w, z);
        snake(r, &u->after, z, z, w.m, width, c0, c1);
        lane_barrier(r->lane);
    }
    product(r, &u->mix, z, width, w.m, r->x, MAT_ADD);
    passed(r, &w);
}

static void end(struct run *r, float *out)
{
    const struct snac *s = r->s;
    int width = s->width >> s->shape.blocks, t0, t1;
    struct window w = window_of(r, NULL, &s->snake_out, NULL, width, s->ext_out);
    fill_window(r, &w, NULL);
    lane_barrier(r->lane);
    lane_split(r->lane, w.m, 1, &t0, &t1);
    struct acts a = rows_of(r->b.ext + (size_t)t0 * (size_t)width, width, WAVE_TAPS * width, t1 - t0);
    if (t0 < t1)
        linear_groups(r->ops, &s->conv_out, out + t0, 1, &a, 0, 1, MAT_STORE);
    for (int t = t0; t < t1; t++)
        out[t] = tanhf(out[t]);
}

void snac_step(struct snac_stream *st, struct lane *lane, const int32_t *const *codes, int rows, bool last, void *scratch,
               float *out)
{
    const struct snac *s = st->snac;
    struct run r = {.s = s, .st = st, .lane = lane, .ops = s->ops, .last = last, .before = st->fed, .n = rows};
    lay_out(s, &r.b, scratch);
    look_up(&r, codes);
    begin(&r);
    for (int i = 0; i < s->shape.blocks; i++) {
        up(&r, i);
        for (int u = 0; u < SNAC_UNITS; u++)
            unit(&r, &s->blocks[i].units[u], s->blocks[i].out);
    }
    end(&r, out);
    if (lane->id == 0)
        st->fed += rows;
    lane_barrier(lane);
}
