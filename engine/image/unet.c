// unet.c - diffusers' UNet2DConditionModel as Stable Diffusion 1.x and 2.x use it.
//
//     x -> conv_in -> down blocks ------------------------> mid -> up blocks -> norm, SiLU, conv_out
//                     [resnet (transformer)]* downsample           [cat skip, resnet (transformer)]* upsample
//          time embedding goes into every resnet, text states into every transformer's cross-attention
//
// Every output of conv_in, of a down block's pair and of a downsampler is a skip; up blocks take them in reverse order,
// behind the current map on the channels. An upsampler enlarges to the size of the next skip: for sizes that are no
// multiple of the downsampling that is one less than twice.
//
// unet_open runs on a loading thread, unet_plan and unet_start on the scheduler's; the operations on lanes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/image/layers.h"

enum { LEVELS = 8, PAIRS = 8, SKIPS = LEVELS * (PAIRS + 1) + 1, MOST_SIDE = 1024, MOST_IMAGES = 16 };

static const float transformer_eps = 1e-6f, layernorm_eps = 1e-5f;

struct rows_norm {
    const float *w, *b;
};

struct transformer_layer {
    struct rows_norm norm1, norm2, norm3;
    struct linear q1, k1, v1, o1, q2, k2, v2, o2, geglu, down;
};

struct transformer {
    struct layers_norm norm;
    struct linear in, out;
    struct transformer_layer *layers;
    int count, heads, dim;
};

struct block {
    struct layers_resnet resnets[PAIRS];
    struct transformer transformers[PAIRS];
    int count;
    bool attends, samples;
    struct layers_conv sample;  // down or up
};

struct unet {
    struct unet_info info;
    const struct cpu_ops *ops;
    struct arena arena;
    int levels, channels[LEVELS], pairs[LEVELS], heads[LEVELS], depth[LEVELS], time;
    bool down_attends[LEVELS], up_attends[LEVELS], flip;
    float freq_shift;
    struct linear time1, time2;
    struct layers_conv conv_in, conv_out;
    struct block down[LEVELS], mid, up[LEVELS];
    struct layers_norm norm_out;
};

// ---- configuration

static const struct layers_option options[] = {
    {"act_fn", "\"silu\""},
    {"addition_embed_type", NULL},
    {"attention_type", "\"default\""},
    {"center_input_sample", NULL},
    {"class_embed_type", NULL},
    {"conv_in_kernel", "3"},
    {"conv_out_kernel", "3"},
    {"cross_attention_norm", NULL},
    {"downsample_padding", "1"},
    {"dual_cross_attention", NULL},
    {"encoder_hid_dim", NULL},
    {"encoder_hid_dim_type", NULL},
    {"mid_block_only_cross_attention", NULL},
    {"mid_block_scale_factor", "1"},
    {"mid_block_type", "\"UNetMidBlock2DCrossAttn\""},
    {"num_attention_heads", NULL},
    {"num_class_embeds", NULL},
    {"only_cross_attention", NULL},
    {"resnet_out_scale_factor", "1"},
    {"resnet_skip_time_act", NULL},
    {"resnet_time_scale_shift", "\"default\""},
    {"reverse_transformer_layers_per_block", NULL},
    {"time_cond_proj_dim", NULL},
    {"time_embedding_act_fn", NULL},
    {"time_embedding_dim", NULL},
    {"time_embedding_type", "\"positional\""},
    {"timestep_post_act", NULL},
};

// One number for all levels, or a list of one a level.
static err_code read_levels(const struct weights *w, const char *key, int fallback, int high, int levels, int *ret, err *e)
{
    int64_t length = meta_array_length(w, key), v;
    if (length >= 0 && length != levels)
        return err_set_param(e, ERR_CORRUPT, key, "%s: %s has %lld entries, expected %d", weights_path(w), key,
                             (long long)length, levels);
    for (int i = 0; i < levels; i++) {
        if (length < 0) {
            err_code code = layers_config_int(w, key, fallback, 1, high, &ret[i], e);
            if (code)
                return code;
        } else if (!meta_array_int(w, key, i, &v) || v < 1 || v > high) {
            return err_set_param(e, ERR_CORRUPT, key, "%s: entry %d of %s is no number from 1 to %d", weights_path(w), i,
                                 key, high);
        } else {
            ret[i] = (int)v;
        }
    }
    return ERR_OK;
}

// Which blocks attend; other kinds of block are not built.
static err_code read_types(const struct weights *w, const char *key, const char *plain, const char *attends, int levels,
                           bool *ret_attends, err *e)
{
    int64_t length = meta_array_length(w, key);
    if (length != levels)
        return err_set_param(e, ERR_CORRUPT, key, "%s: %s has %lld entries, expected %d", weights_path(w), key,
                             (long long)length, levels);
    for (int i = 0; i < levels; i++) {
        const char *text;
        size_t len;
        if (!meta_array_string(w, key, i, &text, &len))
            return err_set_param(e, ERR_CORRUPT, key, "%s: entry %d of %s is no text", weights_path(w), i, key);
        ret_attends[i] = len == strlen(attends) && memcmp(text, attends, len) == 0;
        if (!ret_attends[i] && (len != strlen(plain) || memcmp(text, plain, len)))
            return err_set_param(e, ERR_UNSUPPORTED, key, "%s: block type '%.*s' is not built, expected %s or %s",
                                 weights_path(w), (int)(len < 80 ? len : 80), text, plain, attends);
    }
    return ERR_OK;
}

static err_code check_levels(const struct unet *u, const struct weights *w, err *e)
{
    for (int i = 0; i < u->levels; i++) {
        if (u->channels[i] % u->heads[i])
            return err_set_param(e, ERR_CORRUPT, "attention_head_dim", "%s: %d channels in %d heads, expected a multiple",
                                 weights_path(w), u->channels[i], u->heads[i]);
        if (u->channels[i] % 2)
            return err_set_param(e, ERR_UNSUPPORTED, "block_out_channels", "%s: %d channels, expected an even number",
                                 weights_path(w), u->channels[i]);
    }
    return ERR_OK;
}

static err_code read_config(struct unet *u, const struct weights *w, int *ret_groups, float *ret_eps, err *e)
{
    double number;
    int64_t levels = meta_array_length(w, "block_out_channels");
    if (weights_container(w) != WEIGHTS_HF || levels < 1 || levels > LEVELS)
        return err_set_param(e, ERR_CORRUPT, "block_out_channels", "%s: no config.json with 1 to %d block_out_channels",
                             weights_path(w), LEVELS);
    u->levels = (int)levels;
    err_code code = layers_check_options(w, options, sizeof options / sizeof options[0], e);
    if (!code)
        code = layers_config_int(w, "in_channels", 4, 1, 64, &u->info.in_channels, e);
    if (!code)
        code = layers_config_int(w, "out_channels", 4, 1, 64, &u->info.out_channels, e);
    if (!code)
        code = layers_config_int(w, "sample_size", 64, 1, MOST_SIDE, &u->info.sample_size, e);
    if (!code)
        code = layers_config_int(w, "cross_attention_dim", 1280, 1, 1 << 16, &u->info.context, e);
    if (!code)
        code = layers_config_int(w, "norm_num_groups", 32, 1, 1 << 16, ret_groups, e);
    if (!code)
        code = read_levels(w, "block_out_channels", 0, 1 << 16, u->levels, u->channels, e);
    if (!code)
        code = read_levels(w, "layers_per_block", 2, PAIRS - 1, u->levels, u->pairs, e);
    if (!code)
        code = read_levels(w, "attention_head_dim", 8, 1 << 12, u->levels, u->heads, e);
    if (!code)
        code = read_levels(w, "transformer_layers_per_block", 1, 64, u->levels, u->depth, e);
    if (!code)
        code = read_types(w, "down_block_types", "DownBlock2D", "CrossAttnDownBlock2D", u->levels, u->down_attends, e);
    if (!code)
        code = read_types(w, "up_block_types", "UpBlock2D", "CrossAttnUpBlock2D", u->levels, u->up_attends, e);
    if (!code)
        code = check_levels(u, w, e);
    if (code)
        return code;
    u->time = 4 * u->channels[0];
    *ret_eps = meta_float(w, "norm_eps", &number) ? (float)number : 1e-5f;
    u->freq_shift = meta_float(w, "freq_shift", &number) ? (float)number : 0;
    if (!meta_bool(w, "flip_sin_to_cos", &u->flip))
        u->flip = true;
    return ERR_OK;
}

// ---- weights

static err_code open_rows_norm(const struct layers_file *f, const char *layer, const char *name, int dim,
                               struct rows_norm *ret, err *e)
{
    char text[512];
    snprintf(text, sizeof text, "%s.%s.weight", layer, name);
    err_code code = loader_vector(f->loader, text, dim, &ret->w, e);
    snprintf(text, sizeof text, "%s.%s.bias", layer, name);
    return code ? code : loader_vector(f->loader, text, dim, &ret->b, e);
}

static err_code open_layer(const struct layers_file *f, const char *name, int dim, int context,
                           struct transformer_layer *l, err *e)
{
    const struct {
        const char *name;
        struct linear *l;
        int out, in;
        bool bias;
    } linears[] = {
        {"attn1.to_q", &l->q1, dim, dim, false},      {"attn1.to_k", &l->k1, dim, dim, false},
        {"attn1.to_v", &l->v1, dim, dim, false},      {"attn1.to_out.0", &l->o1, dim, dim, true},
        {"attn2.to_q", &l->q2, dim, dim, false},      {"attn2.to_k", &l->k2, dim, context, false},
        {"attn2.to_v", &l->v2, dim, context, false},  {"attn2.to_out.0", &l->o2, dim, dim, true},
        {"ff.net.0.proj", &l->geglu, 8 * dim, dim, true}, {"ff.net.2", &l->down, dim, 4 * dim, true},
    };
    err_code code = open_rows_norm(f, name, "norm1", dim, &l->norm1, e);
    if (!code)
        code = open_rows_norm(f, name, "norm2", dim, &l->norm2, e);
    if (!code)
        code = open_rows_norm(f, name, "norm3", dim, &l->norm3, e);
    for (size_t i = 0; i < sizeof linears / sizeof linears[0] && !code; i++) {
        char text[320];
        snprintf(text, sizeof text, "%s.%s", name, linears[i].name);
        code = layers_open_linear(f, text, linears[i].bias, linears[i].out, linears[i].in, linears[i].l, e);
    }
    return code;
}

static err_code open_transformer(const struct layers_file *f, const char *name, int dim, int heads, int depth, int context,
                                 struct transformer *t, err *e)
{
    char text[256];
    struct layers_file own = *f;
    own.eps = transformer_eps;
    t->dim = dim;
    t->heads = heads;
    t->count = depth;
    t->layers = arena_alloc(f->arena, (size_t)depth * sizeof *t->layers);
    snprintf(text, sizeof text, "%s.norm", name);
    err_code code = layers_open_norm(&own, text, dim, &t->norm, e);
    snprintf(text, sizeof text, "%s.proj_in", name);
    if (!code)
        code = layers_open_linear(f, text, true, dim, dim, &t->in, e);
    for (int i = 0; i < depth && !code; i++) {
        snprintf(text, sizeof text, "%s.transformer_blocks.%d", name, i);
        code = open_layer(f, text, dim, context, &t->layers[i], e);
    }
    snprintf(text, sizeof text, "%s.proj_out", name);
    return code ? code : layers_open_linear(f, text, true, dim, dim, &t->out, e);
}

struct opening {
    struct unet *u;
    struct layers_file file;
    int skips[SKIPS], nskips;  // channels
};

// The pairs of block `name`; cur is the channels that come in, those of a skip are added when up.
static err_code open_pairs(struct opening *o, const char *name, int level, int count, bool attends, bool up, int *cur,
                           struct block *b, err *e)
{
    char text[128];
    struct unet *u = o->u;
    int out = u->channels[level];
    err_code code = ERR_OK;
    b->count = count;
    b->attends = attends;
    for (int i = 0; i < count && !code; i++) {
        int in = *cur + (up ? o->skips[--o->nskips] : 0);
        snprintf(text, sizeof text, "%s.resnets.%d", name, i);
        code = layers_open_resnet(&o->file, text, in, out, u->time, &b->resnets[i], e);
        snprintf(text, sizeof text, "%s.attentions.%d", name, i);
        if (!code && attends)
            code = open_transformer(&o->file, text, out, u->heads[level], u->depth[level], u->info.context,
                                    &b->transformers[i], e);
        *cur = out;
        if (!up)
            o->skips[o->nskips++] = out;
    }
    return code;
}

static err_code open_down(struct opening *o, int *cur, err *e)
{
    char name[64], text[128];
    struct unet *u = o->u;
    err_code code = ERR_OK;
    for (int i = 0; i < u->levels && !code; i++) {
        struct block *b = &u->down[i];
        snprintf(name, sizeof name, "down_blocks.%d", i);
        code = open_pairs(o, name, i, u->pairs[i], u->down_attends[i], false, cur, b, e);
        b->samples = i + 1 < u->levels;
        snprintf(text, sizeof text, "%s.downsamplers.0.conv", name);
        if (!code && b->samples) {
            code = layers_open_conv(&o->file, text, *cur, *cur, &b->sample, e);
            o->skips[o->nskips++] = *cur;
        }
    }
    return code;
}

static err_code open_up(struct opening *o, int *cur, err *e)
{
    char name[64], text[128];
    struct unet *u = o->u;
    err_code code = ERR_OK;
    for (int i = 0; i < u->levels && !code; i++) {
        struct block *b = &u->up[i];
        int level = u->levels - 1 - i;
        snprintf(name, sizeof name, "up_blocks.%d", i);
        code = open_pairs(o, name, level, u->pairs[level] + 1, u->up_attends[i], true, cur, b, e);
        b->samples = i + 1 < u->levels;
        snprintf(text, sizeof text, "%s.upsamplers.0.conv", name);
        if (!code && b->samples)
            code = layers_open_conv(&o->file, text, *cur, *cur, &b->sample, e);
    }
    return code;
}

static err_code open_mid(struct opening *o, int cur, err *e)
{
    struct unet *u = o->u;
    struct block *b = &u->mid;
    int level = u->levels - 1;
    b->count = 2;
    err_code code = layers_open_resnet(&o->file, "mid_block.resnets.0", cur, cur, u->time, &b->resnets[0], e);
    if (!code)
        code = open_transformer(&o->file, "mid_block.attentions.0", cur, u->heads[level], u->depth[level], u->info.context,
                                &b->transformers[0], e);
    return code ? code : layers_open_resnet(&o->file, "mid_block.resnets.1", cur, cur, u->time, &b->resnets[1], e);
}

static err_code open_weights(struct opening *o, err *e)
{
    struct unet *u = o->u;
    int first = u->channels[0], cur = first;
    o->skips[o->nskips++] = first;
    err_code code = layers_open_conv(&o->file, "conv_in", first, u->info.in_channels, &u->conv_in, e);
    if (!code)
        code = layers_open_linear(&o->file, "time_embedding.linear_1", true, u->time, first, &u->time1, e);
    if (!code)
        code = layers_open_linear(&o->file, "time_embedding.linear_2", true, u->time, u->time, &u->time2, e);
    if (!code)
        code = open_down(o, &cur, e);
    if (!code)
        code = open_mid(o, cur, e);
    if (!code)
        code = open_up(o, &cur, e);
    if (!code)
        code = layers_open_norm(&o->file, "conv_norm_out", first, &u->norm_out, e);
    return code ? code : layers_open_conv(&o->file, "conv_out", u->info.out_channels, first, &u->conv_out, e);
}

err_code unet_open(const struct weights *w, const struct cpu_ops *ops, int load_threads, struct unet **ret_unet,
                   struct packed **ret_packed, err *e)
{
    struct unet *u = mem_new(sizeof *u);
    struct opening o = {.u = u};
    struct loader *ld = loader_new(w, MAT_F32, ops);
    u->ops = ops;
    o.file = (struct layers_file){.loader = ld, .arena = &u->arena};
    err_code code = read_config(u, w, &o.file.groups, &o.file.eps, e);
    if (!code)
        code = open_weights(&o, e);
    if (!code)
        code = loader_run(ld, load_threads, e);
    if (code) {
        loader_free(ld);
        unet_close(u);
        return code;
    }
    *ret_packed = loader_take(ld);
    *ret_unet = u;
    return ERR_OK;
}

void unet_close(struct unet *u)
{
    if (!u)
        return;
    arena_done(&u->arena);
    free(u);
}

const struct unet_info *unet_info(const struct unet *u)
{
    return &u->info;
}

// ---- forward

// Cosines and sines of the timestep times falling frequencies.
static void run_timestep(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)unit;
    (void)scratch;
    const struct unet *u = n->owner;
    int half = op->cols / 2;
    float *y = n->memory + op->y, *sine = u->flip ? y + half : y, *cosine = u->flip ? y : y + half;
    for (int i = 0; i < half; i++) {
        float exponent = (float)-log(10000.0) * (float)i / ((float)half - u->freq_shift);
        float angle = n->timestep * (float)exp((double)exponent);
        sine[i] = (float)sin((double)angle);
        cosine[i] = (float)cos((double)angle);
    }
}

struct planning {
    const struct unet *u;
    struct net *net;
    size_t time, states;
    int tokens;
    struct layers_map skips[SKIPS];
    int nskips;
};

static size_t plan_time(struct net *n, const struct unet *u)
{
    int dim = u->channels[0];
    size_t wave = net_take(n, (size_t)dim), hidden = net_take(n, (size_t)u->time), out = net_take(n, (size_t)u->time);
    struct net_op *op = net_add(n, run_timestep, 1, 1000.0 * dim);
    op->y = wave;
    op->cols = dim;
    layers_linear(n, &u->time1, wave, dim, hidden, u->time, 1, false);
    layers_act(n, LAYERS_SILU, hidden, 1, u->time);
    layers_linear(n, &u->time2, hidden, u->time, out, u->time, 1, false);
    layers_act(n, LAYERS_SILU, out, 1, u->time);
    net_drop(n, wave);
    net_drop(n, hidden);
    return out;
}

// h += o (attention (q t, k source, v source)); t is used for the result on the way.
static void plan_attention(struct net *n, const struct transformer *t, const struct linear *q, const struct linear *k,
                           const struct linear *v, const struct linear *o, size_t source, int keys, size_t tmp, size_t h,
                           int pixels)
{
    int dim = t->dim, rows = n->images * pixels, sources = n->images * keys;
    struct layers_attn a = {.out = tmp, .rows = pixels, .keys = keys, .heads = t->heads, .head_dim = dim / t->heads,
                            .ldq = dim, .ldk = dim};
    a.q = net_take(n, (size_t)rows * (size_t)dim);
    a.k = net_take(n, (size_t)sources * (size_t)dim);
    a.v = net_take(n, (size_t)sources * (size_t)dim);
    layers_linear(n, q, tmp, dim, a.q, dim, rows, false);
    layers_linear(n, k, source, k->in, a.k, dim, sources, false);
    layers_linear(n, v, source, v->in, a.v, dim, sources, false);
    layers_attend(n, &a);
    net_drop(n, a.q);
    net_drop(n, a.k);
    net_drop(n, a.v);
    layers_linear(n, o, tmp, dim, h, dim, rows, true);
}

// x += transformer(x)
static void plan_transformer(struct planning *p, const struct transformer *t, struct layers_map x)
{
    struct net *n = p->net;
    int pixels = x.h * x.w, rows = n->images * pixels, dim = t->dim;
    size_t stats = layers_stats(n, &t->norm, x), h = net_take(n, (size_t)rows * (size_t)dim);
    struct layers_map tmp = layers_affine(n, x, stats);
    net_drop(n, stats);
    layers_linear(n, &t->in, tmp.at, dim, h, dim, rows, false);
    for (int i = 0; i < t->count; i++) {
        const struct transformer_layer *l = &t->layers[i];
        layers_layernorm(n, l->norm1.w, l->norm1.b, layernorm_eps, h, tmp.at, rows, dim);
        plan_attention(n, t, &l->q1, &l->k1, &l->v1, &l->o1, tmp.at, pixels, tmp.at, h, pixels);
        layers_layernorm(n, l->norm2.w, l->norm2.b, layernorm_eps, h, tmp.at, rows, dim);
        plan_attention(n, t, &l->q2, &l->k2, &l->v2, &l->o2, p->states, p->tokens, tmp.at, h, pixels);
        layers_layernorm(n, l->norm3.w, l->norm3.b, layernorm_eps, h, tmp.at, rows, dim);
        size_t inner = net_take(n, (size_t)rows * 4 * (size_t)dim);
        layers_geglu(n, &l->geglu, tmp.at, inner, rows);
        layers_linear(n, &l->down, inner, 4 * dim, h, dim, rows, true);
        net_drop(n, inner);
    }
    layers_linear(n, &t->out, h, dim, x.at, dim, rows, true);
    net_drop(n, h);
    layers_drop(n, tmp);
}

// The current map is always the last skip here: nothing below may change it.
static void plan_down(struct planning *p)
{
    const struct unet *u = p->u;
    struct net *n = p->net;
    for (int i = 0; i < u->levels; i++) {
        const struct block *b = &u->down[i];
        for (int k = 0; k < b->count; k++) {
            struct layers_map x = layers_resnet(n, &b->resnets[k], p->skips[p->nskips - 1], &p->time, true);
            if (b->attends)
                plan_transformer(p, &b->transformers[k], x);
            p->skips[p->nskips++] = x;
        }
        if (b->samples) {
            struct layers_map x = p->skips[p->nskips - 1], half = layers_new(n, (x.h + 1) / 2, (x.w + 1) / 2, x.c);
            layers_convolve(n, &b->sample, &(struct layers_input){.map = x}, 2, NULL, NULL, half);
            p->skips[p->nskips++] = half;
        }
    }
}

static struct layers_map plan_up(struct planning *p, struct layers_map x)
{
    const struct unet *u = p->u;
    struct net *n = p->net;
    for (int i = 0; i < u->levels; i++) {
        const struct block *b = &u->up[i];
        for (int k = 0; k < b->count; k++) {
            x = layers_cat(n, x, p->skips[--p->nskips]);
            x = layers_resnet(n, &b->resnets[k], x, &p->time, false);
            if (b->attends)
                plan_transformer(p, &b->transformers[k], x);
        }
        if (b->samples) {
            struct layers_map next = p->skips[p->nskips - 1], y = layers_new(n, next.h, next.w, x.c);
            layers_convolve(n, &b->sample, &(struct layers_input){.map = x, .h = y.h, .w = y.w}, 1, NULL, NULL, y);
            layers_drop(n, x);
            x = y;
        }
    }
    return x;
}

static struct net *plan(const struct unet *u, int h, int w, int images, int tokens, int lanes)
{
    struct net *n = net_new(u->ops, u, images, lanes);
    struct planning p = {.u = u, .net = n, .tokens = tokens};
    p.time = plan_time(n, u);
    p.states = layers_states(n, images * tokens, u->info.context);
    struct layers_map in = layers_in(n, u->info.in_channels, h, w, 1), first = layers_new(n, h, w, u->channels[0]);
    layers_convolve(n, &u->conv_in, &(struct layers_input){.map = in}, 1, NULL, NULL, first);
    layers_drop(n, in);
    p.skips[p.nskips++] = first;
    plan_down(&p);
    struct layers_map x = layers_resnet(n, &u->mid.resnets[0], p.skips[p.nskips - 1], &p.time, true);
    plan_transformer(&p, &u->mid.transformers[0], x);
    x = layers_resnet(n, &u->mid.resnets[1], x, &p.time, false);
    x = plan_up(&p, x);
    size_t stats = layers_stats(n, &u->norm_out, x);
    struct layers_map out = layers_new(n, h, w, u->info.out_channels);
    layers_convolve(n, &u->conv_out, &(struct layers_input){.map = x, .norm = true, .stats = stats}, 1, NULL, NULL, out);
    layers_out(n, out, 1, 0);
    return n;
}

size_t unet_bytes(const struct unet *u, int h, int w, int n, int tokens, int lanes)
{
    struct net *net = plan(u, h, w, n, tokens, lanes);
    size_t bytes = net_bytes(net);
    net_free(net);
    return bytes;
}

err_code unet_plan(const struct unet *u, int h, int w, int n, int tokens, int lanes, struct net **ret_net, err *e)
{
    if (h < 1 || w < 1 || h > MOST_SIDE || w > MOST_SIDE || n < 1 || n > MOST_IMAGES)
        return err_set(e, ERR_INVALID, "latents of %d x %d x %d, expected 1 to %d images and sides of 1 to %d", n, h, w,
                       MOST_IMAGES, MOST_SIDE);
    struct net *net = plan(u, h, w, n, tokens, lanes);
    err_code code = net_allocate(net, e);
    if (code)
        net_free(net);
    else
        *ret_net = net;
    return code;
}

void unet_start(struct net *net, const float *x, float timestep, const float *states, float *out)
{
    net->x = x;
    net->timestep = timestep;
    net->states = states;
    net->out = out;
    net_restart(net);
}
