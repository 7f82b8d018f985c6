// snac_open.c - reads a SNAC decoder: config, weight norm folded, matrices packed. Runs on the thread that loads the
// model; the result is immutable.
//
// Weight norm (Salimans, Kingma 2016) stores w as a direction v and a length g for each index of the first dimension:
// w = g v / |v|. The transposed convolution's first dimension is its input.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/audio/snac_int.h"
#include "engine/blocks/packed.h"
#include "engine/weights/weights.h"

struct opening {
    struct snac *s;
    const struct weights *w;
    struct packed *packed;
    err *e;
};

// ---- config.json

static err_code read_int(const struct opening *o, const char *key, int min, int max, int *ret_value)
{
    int64_t v;
    if (!meta_int(o->w, key, &v) || v < min || v > max)
        return err_set_param(o->e, ERR_CORRUPT, key, "%s: '%s' is %s, expected an integer from %d to %d",
                             weights_path(o->w), key, meta_has(o->w, key) ? "wrong" : "missing", min, max);
    *ret_value = (int)v;
    return ERR_OK;
}

static err_code read_list(const struct opening *o, const char *key, int most, int *ret_values, int *ret_count)
{
    int64_t n = meta_array_length(o->w, key), v;
    if (n < 1 || n > most)
        return err_set_param(o->e, ERR_CORRUPT, key, "%s: '%s' has %lld numbers, expected 1 to %d", weights_path(o->w),
                             key, (long long)n, most);
    for (int i = 0; i < n; i++) {
        if (!meta_array_int(o->w, key, i, &v) || v < 1 || v > 64)
            return err_set_param(o->e, ERR_CORRUPT, key, "%s: '%s' has no number from 1 to 64 at %d", weights_path(o->w),
                                 key, i);
        ret_values[i] = (int)v;
    }
    *ret_count = (int)n;
    return ERR_OK;
}

// The switches; absent ones are the reference's defaults.
static err_code read_switches(const struct opening *o)
{
    struct snac *s = o->s;
    s->shape.noise = s->depthwise = true;
    (void)meta_bool(o->w, "noise", &s->shape.noise);
    (void)meta_bool(o->w, "depthwise", &s->depthwise);
    if (!meta_null(o->w, "attn_window_size"))
        return err_set_param(o->e, ERR_UNSUPPORTED, "attn_window_size",
                             "%s: a SNAC with attention (attn_window_size is not null) is not built", weights_path(o->w));
    return ERR_OK;
}

static err_code read_config(const struct opening *o)
{
    struct snac *s = o->s;
    struct snac_shape *h = &s->shape;
    int encoder_dim = 0, encoder_rates[SNAC_BLOCKS], n = 0;
    err_code code = read_switches(o);
    if (!code)
        code = read_int(o, "sampling_rate", 1000, 192000, &h->sample_rate);
    if (!code)
        code = read_int(o, "decoder_dim", 1, 1 << 16, &s->width);
    if (!code)
        code = read_int(o, "codebook_size", 1, 1 << 20, &h->codebook_size);
    if (!code)
        code = read_int(o, "codebook_dim", 1, 1024, &s->codebook_dim);
    if (!code)
        code = read_list(o, "decoder_rates", SNAC_BLOCKS, h->rates, &h->blocks);
    if (!code)
        code = read_list(o, "vq_strides", SNAC_LEVELS, h->strides, &h->levels);
    if (!code && meta_has(o->w, "latent_dim") && !meta_null(o->w, "latent_dim"))
        return read_int(o, "latent_dim", 1, 1 << 16, &s->latent);
    if (!code)
        code = read_int(o, "encoder_dim", 1, 1 << 12, &encoder_dim);
    if (!code)
        code = read_list(o, "encoder_rates", SNAC_BLOCKS, encoder_rates, &n);
    s->latent = encoder_dim << n;
    return code;
}

// What follows from the numbers; sizes stay far below overflow of an int.
static err_code check_shape(const struct opening *o)
{
    struct snac *s = o->s;
    struct snac_shape *h = &s->shape;
    h->hop = 1;
    for (int i = 0; i < h->blocks; i++)
        h->hop *= h->rates[i] <= 4096 / h->hop ? h->rates[i] : 4097;
    if (h->hop > 4096)
        return err_set_param(o->e, ERR_UNSUPPORTED, "decoder_rates", "%s: decoder_rates multiply to more than 4096",
                             weights_path(o->w));
    if (s->width >> h->blocks == 0)
        return err_set_param(o->e, ERR_CORRUPT, "decoder_dim", "%s: decoder_dim is %d, too small for %d halvings",
                             weights_path(o->w), s->width, h->blocks);
    h->frame_rows = h->strides[0];
    for (int i = 0; i < h->levels; i++) {
        if (h->frame_rows % h->strides[i])
            return err_set_param(o->e, ERR_UNSUPPORTED, "vq_strides", "%s: the first of vq_strides is no multiple of %d",
                                 weights_path(o->w), h->strides[i]);
    }
    return ERR_OK;
}

// ---- tensors

static const char *shape_text(char *out, size_t size, const int64_t *shape, int ndim)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, i ? ", %lld" : "%lld", (long long)shape[i]);
    return out;
}

// A tensor as f32, freed by the caller. Memory is asked for only once the file has that many numbers.
static err_code read_tensor(const struct opening *o, const char *name, const int64_t *shape, int ndim, float **ret)
{
    const struct tensor *t;
    char found[128], expected[128];
    if (weights_need(o->w, name, &t, o->e))
        return err_set_param(o->e, ERR_CORRUPT, name, "%s: tensor '%s' is missing or of no type that is read",
                             weights_path(o->w), name);
    if (t->ndim != ndim || memcmp(t->shape, shape, (size_t)ndim * sizeof *shape))
        return err_set_param(o->e, ERR_CORRUPT, name, "%s: tensor '%s' has shape [%s], expected [%s]",
                             weights_path(o->w), name, shape_text(found, sizeof found, t->shape, t->ndim),
                             shape_text(expected, sizeof expected, shape, ndim));
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= (size_t)shape[i];
    if (n % (size_t)quant_get(t->type)->block)
        return err_set_param(o->e, ERR_CORRUPT, name, "%s: tensor '%s' of %s is no whole number of blocks",
                             weights_path(o->w), name, t->dtype);
    err_code code = weights_finite(o->w, t, 0, t->data, t->bytes, o->e);
    if (code)
        return code;
    float *v = mem_try(n * sizeof *v);
    if (!v)
        return err_set(o->e, ERR_MEMORY, "%s: no memory for tensor '%s'", weights_path(o->w), name);
    quant_get(t->type)->dequantize(t->data, v, n);
    weights_release(o->w, t);
    packed_use(o->packed, t, PACKED_AS_PLAIN);
    *ret = v;
    return ERR_OK;
}

static void fold(float *v, const float *g, int n, size_t each)
{
    for (int i = 0; i < n; i++, v += each) {
        double sum = 0;
        for (size_t k = 0; k < each; k++)
            sum += (double)v[k] * (double)v[k];
        double scale = sum > 0 ? (double)g[i] / sqrt(sum) : 0;
        for (size_t k = 0; k < each; k++)
            v[k] = (float)((double)v[k] * scale);
    }
}

// The weight of a convolution, [d0][d1][d2]: in parts under one of two names, or folded already.
static err_code read_weight(const struct opening *o, const char *part, int d0, int d1, int d2, float **ret)
{
    static const char *const forms[][2] = {
        {"parametrizations.weight.original1", "parametrizations.weight.original0"}, {"weight_v", "weight_g"}, {"weight", NULL}};
    char name[192];
    const char *const *form = forms[0];
    for (int i = 0; i < 3; i++) {
        form = forms[i];
        snprintf(name, sizeof name, "%s.%s", part, form[0]);
        if (weights_find_raw(o->w, name))
            break;
    }
    float *v, *g;
    err_code code = read_tensor(o, name, (int64_t[]){d0, d1, d2}, 3, &v);
    if (!code && form[1]) {
        snprintf(name, sizeof name, "%s.%s", part, form[1]);
        code = read_tensor(o, name, (int64_t[]){d0, 1, 1}, 3, &g);
        if (code) {
            free(v);
            return code;
        }
        fold(v, g, d0, (size_t)d1 * (size_t)d2);
        free(g);
    }
    if (!code)
        *ret = v;
    return code;
}

static err_code read_vector(const struct opening *o, const char *part, const char *kind, int n, const float **ret)
{
    char name[192];
    float *v;
    snprintf(name, sizeof name, "%s.%s", part, kind);
    err_code code = read_tensor(o, name, (int64_t[]){n}, 1, &v);
    if (code)
        return code;
    arena_defer(&o->s->memory, free, v);
    *ret = v;
    return ERR_OK;
}

// Takes src [out][in], which is freed, into l.
static err_code pack(const struct opening *o, struct linear *l, float *src, int out, int in)
{
    struct snac *s = o->s;
    err_code code = mat_plan(&l->w, QUANT_F32, out, in, MAT_F32, o->e);
    void *p = code ? NULL : mem_try_pages(l->w.bytes);
    if (!code && !p)
        code = err_set(o->e, ERR_MEMORY, "%s: no memory for %zu bytes of weights", weights_path(o->w), l->w.bytes);
    if (!code) {
        if (s->npages == s->pages_cap) {
            s->pages_cap = s->pages_cap ? 2 * s->pages_cap : 64;
            s->pages = mem_resize(s->pages, (size_t)s->pages_cap * sizeof *s->pages);
        }
        s->pages[s->npages].p = p;
        s->pages[s->npages++].bytes = l->w.bytes;
        s->shape.bytes += l->w.bytes;
        mat_pack(&l->w, p, src, 0, mat_groups(&l->w));
        l->w.data = p;
        l->out = out;
        l->in = in;
    }
    free(src);
    return code;
}

static err_code open_mix(const struct opening *o, struct linear *l, const char *part, int out, int in, bool bias)
{
    float *v;
    err_code code = read_weight(o, part, out, in, 1, &v);
    if (code)
        return code;
    code = pack(o, l, v, out, in);
    return code || !bias ? code : read_vector(o, part, "bias", out, &l->bias);
}

// Depthwise [channels][1][7] turned to [7][channels].
static err_code open_depthwise(const struct opening *o, struct snac_conv7 *c, const char *part, int channels)
{
    float *v, *w;
    err_code code = read_weight(o, part, channels, 1, WAVE_TAPS, &v);
    if (code)
        return code;
    w = mem_new((size_t)channels * WAVE_TAPS * sizeof *w);
    arena_defer(&o->s->memory, free, w);
    for (int i = 0; i < channels; i++)
        for (int k = 0; k < WAVE_TAPS; k++)
            w[k * channels + i] = v[i * WAVE_TAPS + k];
    free(v);
    c->w = w;
    return read_vector(o, part, "bias", channels, &c->bias);
}

// Dense [out][in][7]: a matrix a tap.
static err_code open_dense(const struct opening *o, struct snac_conv7 *c, const char *part, int out, int in)
{
    float *v = NULL;
    err_code code = read_weight(o, part, out, in, WAVE_TAPS, &v);
    size_t n = (size_t)out * (size_t)in;
    for (int k = 0; k < WAVE_TAPS && !code; k++) {
        float *w = mem_try(n * sizeof *w);
        if (!w) {
            code = err_set(o->e, ERR_MEMORY, "no memory for tensor '%s'", part);
            break;
        }
        for (size_t i = 0; i < n; i++)
            w[i] = v[i * WAVE_TAPS + (size_t)k];
        code = pack(o, &c->tap[k], w, out, in);
        if (code)
            break;
    }
    if (!code)
        code = read_vector(o, part, "bias", out, &c->tap[WAVE_TAPS - 1].bias);
    free(v);
    return code;
}

static err_code open_conv7(const struct opening *o, struct snac_conv7 *c, const char *part, int out, int in, int dilation)
{
    c->depthwise = o->s->depthwise;
    c->dilation = dilation;
    return c->depthwise ? open_depthwise(o, c, part, in) : open_dense(o, c, part, out, in);
}

static err_code open_snake(const struct opening *o, struct snac_snake *k, const char *part, int channels)
{
    char name[192];
    float *v;
    snprintf(name, sizeof name, "%s.alpha", part);
    err_code code = read_tensor(o, name, (int64_t[]){1, channels, 1}, 3, &v);
    if (code)
        return code;
    arena_defer(&o->s->memory, free, v);
    float *inv = mem_new((size_t)channels * sizeof *inv);
    arena_defer(&o->s->memory, free, inv);
    for (int i = 0; i < channels; i++)
        inv[i] = 1 / (v[i] + 1e-9f);
    *k = (struct snac_snake){v, inv};
    return ERR_OK;
}

// [in][out][2 rate]: output rows i rate .. i rate + rate - 1 before the first are dropped see input row i through the taps
// 0 .. rate - 1 and row i - 1 through the others.
static err_code open_up(const struct opening *o, struct snac_block *b, const char *part)
{
    float *v;
    const float *bias = NULL;
    int s = b->rate, cols = 2 * b->in;
    err_code code = read_weight(o, part, b->in, b->out, 2 * s, &v);
    if (code)
        return code;
    size_t bytes;
    float *w = NULL;
    if (size_mul((size_t)(s * b->out), (size_t)cols * sizeof *w, &bytes))
        w = mem_try(bytes);
    if (!w) {
        free(v);
        return err_set(o->e, ERR_MEMORY, "no memory for tensor '%s'", part);
    }
    for (int i = 0; i < b->in; i++)
        for (int c = 0; c < b->out; c++)
            for (int j = 0; j < s; j++) {
                const float *from = v + ((size_t)i * (size_t)b->out + (size_t)c) * (size_t)(2 * s);
                float *to = w + (size_t)(j * b->out + c) * (size_t)cols;
                to[i] = from[j + s];
                to[b->in + i] = from[j];
            }
    free(v);
    code = pack(o, &b->up, w, s * b->out, cols);
    if (!code)
        code = read_vector(o, part, "bias", b->out, &bias);
    if (code)
        return code;
    float *repeated = mem_new((size_t)(s * b->out) * sizeof *repeated);
    arena_defer(&o->s->memory, free, repeated);
    for (int j = 0; j < s; j++)
        memcpy(repeated + j * b->out, bias, (size_t)b->out * sizeof *bias);
    b->up.bias = repeated;
    return ERR_OK;
}

// [1][channels][7] as one row over seven rows of channels.
static err_code open_last(const struct opening *o, const char *part, int channels)
{
    float *v;
    err_code code = read_weight(o, part, 1, channels, WAVE_TAPS, &v);
    if (code)
        return code;
    float *w = mem_new((size_t)channels * WAVE_TAPS * sizeof *w);
    for (int i = 0; i < channels; i++)
        for (int k = 0; k < WAVE_TAPS; k++)
            w[k * channels + i] = v[i * WAVE_TAPS + k];
    free(v);
    code = pack(o, &o->s->conv_out, w, 1, channels * WAVE_TAPS);
    return code ? code : read_vector(o, part, "bias", 1, &o->s->conv_out.bias);
}

// ---- the network, in the reference's order of modules

static size_t take_state(struct snac *s, int rows, int channels)
{
    size_t at = s->state_floats;
    s->state_floats += (size_t)rows * (size_t)channels;
    return at;
}

static err_code open_unit(const struct opening *o, struct snac_unit *u, const char *part, int channels, int dilation)
{
    char name[4][128];
    for (int i = 0; i < 4; i++)
        snprintf(name[i], sizeof name[i], "%s.block.%d", part, i);
    u->ext = take_state(o->s, 6 * dilation, channels);
    u->raw = take_state(o->s, 3 * dilation, channels);
    err_code code = open_snake(o, &u->before, name[0], channels);
    if (!code)
        code = open_conv7(o, &u->conv, name[1], channels, channels, dilation);
    if (!code)
        code = open_snake(o, &u->after, name[2], channels);
    if (!code)
        code = open_mix(o, &u->mix, name[3], channels, channels, true);
    return code;
}

static err_code open_block(const struct opening *o, int i, int module)
{
    static const int dilations[SNAC_UNITS] = {1, 3, 9};
    struct snac *s = o->s;
    struct snac_block *b = &s->blocks[i];
    char name[96];
    int at = 0;
    b->in = s->width >> i;
    b->out = s->width >> (i + 1);
    b->rate = s->shape.rates[i];
    b->pad = (b->rate + 1) / 2;
    b->row = take_state(s, 1, b->in);
    snprintf(name, sizeof name, "decoder.model.%d.block.%d", module, at++);
    err_code code = open_snake(o, &b->snake, name, b->in);
    snprintf(name, sizeof name, "decoder.model.%d.block.%d", module, at++);
    if (!code)
        code = open_up(o, b, name);
    if (s->shape.noise) {
        snprintf(name, sizeof name, "decoder.model.%d.block.%d.linear", module, at++);
        if (!code)
            code = open_mix(o, &b->noise, name, b->out, b->out, false);
    }
    for (int u = 0; u < SNAC_UNITS && !code; u++) {
        snprintf(name, sizeof name, "decoder.model.%d.block.%d", module, at++);
        code = open_unit(o, &b->units[u], name, b->out, dilations[u]);
    }
    return code;
}

static err_code open_decoder(const struct opening *o)
{
    struct snac *s = o->s;
    int module = 0, last = s->width >> s->shape.blocks;
    char name[64];
    s->ext_in = take_state(s, 6, s->latent);
    s->ext_out = take_state(s, 6, last);
    snprintf(name, sizeof name, "decoder.model.%d", module++);
    err_code code = open_conv7(o, &s->conv_in, name, s->width, s->latent, 1);
    if (s->depthwise) {
        snprintf(name, sizeof name, "decoder.model.%d", module++);
        if (!code)
            code = open_mix(o, &s->mix_in, name, s->width, s->latent, true);
    }
    for (int i = 0; i < s->shape.blocks && !code; i++)
        code = open_block(o, i, module++);
    snprintf(name, sizeof name, "decoder.model.%d", module++);
    if (!code)
        code = open_snake(o, &s->snake_out, name, last);
    snprintf(name, sizeof name, "decoder.model.%d", module);
    return code ? code : open_last(o, name, last);
}

static err_code open_levels(const struct opening *o)
{
    struct snac *s = o->s;
    char name[64];
    err_code code = ERR_OK;
    for (int i = 0; i < s->shape.levels && !code; i++) {
        float *v;
        snprintf(name, sizeof name, "quantizer.quantizers.%d.codebook.weight", i);
        code = read_tensor(o, name, (int64_t[]){s->shape.codebook_size, s->codebook_dim}, 2, &v);
        if (code)
            break;
        arena_defer(&s->memory, free, v);
        s->levels[i].codebook = v;
        snprintf(name, sizeof name, "quantizer.quantizers.%d.out_proj", i);
        code = open_mix(o, &s->levels[i].project, name, s->latent, s->codebook_dim, true);
    }
    return code;
}

err_code snac_open(const struct weights *w, const struct cpu_ops *ops, struct packed *packed, struct snac **ret_snac,
                   err *e)
{
    struct snac *s = mem_new(sizeof *s);
    struct opening o = {s, w, packed, e};
    s->ops = ops;
    err_code code = read_config(&o);
    if (!code)
        code = check_shape(&o);
    if (!code)
        code = open_levels(&o);
    if (!code)
        code = open_decoder(&o);
    if (code) {
        snac_close(s);
        return code;
    }
    *ret_snac = s;
    return ERR_OK;
}

void snac_close(struct snac *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->npages; i++)
        mem_free_pages(s->pages[i].p, s->pages[i].bytes);
    free(s->pages);
    arena_done(&s->memory);
    free(s);
}

const struct snac_shape *snac_shape(const struct snac *s)
{
    return &s->shape;
}
