// vae.c - the decoder of diffusers' AutoencoderKL.
//
//     latents / scaling_factor -> post_quant_conv -> conv_in -> mid [resnet, attention, resnet] -> up blocks -> norm, SiLU,
//     conv_out -> * 0.5 + 0.5
//
// An up block is layers_per_block + 1 resnets and, but for the last, an enlargement to twice the size with a convolution.
// The attention has one head over all pixels; older files call its matrices query, key, value and proj_attn, and some
// store them as 1x1 convolutions. What is large is one map in and one out of a block: convolutions take their normalised
// and enlarged input a stripe at a time (layers.c).
//
// vae_open runs on a loading thread, vae_plan and vae_start on the scheduler's; the operations on lanes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/image/layers.h"

enum { LEVELS = 8, RESNETS = 8, MOST_SIDE = 1024 };

static const float vae_eps = 1e-6f;

struct up_block {
    struct layers_resnet resnets[RESNETS];
    int count;
    bool samples;
    struct layers_conv sample;
};

struct vae {
    struct vae_info info;
    const struct cpu_ops *ops;
    struct arena arena;
    int levels, channels[LEVELS], resnets;
    bool post_quant, attends;
    struct linear post, q, k, v, o;
    struct layers_norm attn_norm, norm_out;
    struct layers_conv conv_in, conv_out;
    struct layers_resnet mid1, mid2;
    struct up_block up[LEVELS];
};

static const struct layers_option options[] = {
    {"act_fn", "\"silu\""},
    {"latents_mean", NULL},
    {"latents_std", NULL},
    {"shift_factor", NULL},
};

static err_code read_channels(struct vae *v, const struct weights *w, err *e)
{
    int64_t levels = meta_array_length(w, "block_out_channels"), value, types = meta_array_length(w, "up_block_types");
    const char *text;
    size_t len;
    if (weights_container(w) != WEIGHTS_HF || levels < 1 || levels > LEVELS)
        return err_set_param(e, ERR_CORRUPT, "block_out_channels", "%s: no config.json with 1 to %d block_out_channels",
                             weights_path(w), LEVELS);
    v->levels = (int)levels;
    for (int i = 0; i < v->levels; i++) {
        if (!meta_array_int(w, "block_out_channels", i, &value) || value < 1 || value > 1 << 16)
            return err_set_param(e, ERR_CORRUPT, "block_out_channels",
                                 "%s: entry %d of block_out_channels is no number from 1 to 65536", weights_path(w), i);
        v->channels[i] = (int)value;
    }
    for (int i = 0; i < types; i++) {
        if (!meta_array_string(w, "up_block_types", i, &text, &len) || len != 16 || memcmp(text, "UpDecoderBlock2D", 16))
            return err_set_param(e, ERR_UNSUPPORTED, "up_block_types",
                                 "%s: entry %d of up_block_types is not built, expected UpDecoderBlock2D", weights_path(w),
                                 i);
    }
    return ERR_OK;
}

static err_code read_config(struct vae *v, const struct weights *w, int *ret_groups, err *e)
{
    double number;
    err_code code = read_channels(v, w, e);
    if (!code)
        code = layers_check_options(w, options, sizeof options / sizeof options[0], e);
    if (!code)
        code = layers_config_int(w, "latent_channels", 4, 1, 64, &v->info.latent_channels, e);
    if (!code)
        code = layers_config_int(w, "out_channels", 3, 1, 64, &v->info.out_channels, e);
    if (!code)
        code = layers_config_int(w, "layers_per_block", 1, 1, RESNETS - 1, &v->resnets, e);
    if (!code)
        code = layers_config_int(w, "norm_num_groups", 32, 1, 1 << 16, ret_groups, e);
    if (code)
        return code;
    v->resnets++;
    v->info.factor = 1 << (v->levels - 1);
    v->info.scaling_factor = meta_float(w, "scaling_factor", &number) ? (float)number : 0.18215f;
    if (!(v->info.scaling_factor > 0))
        return err_set_param(e, ERR_CORRUPT, "scaling_factor", "%s: scaling_factor is not above 0", weights_path(w));
    if (!meta_bool(w, "mid_block_add_attention", &v->attends))
        v->attends = true;
    if (!meta_bool(w, "use_post_quant_conv", &v->post_quant))
        v->post_quant = true;
    return ERR_OK;
}

// ---- weights

static err_code open_attention(struct vae *v, const struct layers_file *f, int dim, err *e)
{
    static const char *const names[2][4] = {{"to_q", "to_k", "to_v", "to_out.0"},
                                            {"query", "key", "value", "proj_attn"}};
    struct linear *linears[] = {&v->q, &v->k, &v->v, &v->o};
    const char *at = "decoder.mid_block.attentions.0";
    char text[128];
    snprintf(text, sizeof text, "%s.query.weight", at);
    const char *const *set = names[loader_has(f->loader, text)];
    snprintf(text, sizeof text, "%s.group_norm", at);
    err_code code = layers_open_norm(f, text, dim, &v->attn_norm, e);
    for (int i = 0; i < 4 && !code; i++) {
        snprintf(text, sizeof text, "%s.%s", at, set[i]);
        code = layers_open_linear(f, text, true, dim, dim, linears[i], e);
    }
    return code;
}

static err_code open_up(struct vae *v, const struct layers_file *f, int *cur, err *e)
{
    char text[128];
    err_code code = ERR_OK;
    for (int i = 0; i < v->levels && !code; i++) {
        struct up_block *b = &v->up[i];
        int out = v->channels[v->levels - 1 - i];
        b->count = v->resnets;
        for (int k = 0; k < b->count && !code; k++) {
            snprintf(text, sizeof text, "decoder.up_blocks.%d.resnets.%d", i, k);
            code = layers_open_resnet(f, text, *cur, out, 0, &b->resnets[k], e);
            *cur = out;
        }
        b->samples = i + 1 < v->levels;
        snprintf(text, sizeof text, "decoder.up_blocks.%d.upsamplers.0.conv", i);
        if (!code && b->samples)
            code = layers_open_conv(f, text, out, out, &b->sample, e);
    }
    return code;
}

static err_code open_weights(struct vae *v, const struct layers_file *f, err *e)
{
    int latent = v->info.latent_channels, cur = v->channels[v->levels - 1];
    err_code code = ERR_OK;
    if (v->post_quant)
        code = layers_open_linear(f, "post_quant_conv", true, latent, latent, &v->post, e);
    if (!code)
        code = layers_open_conv(f, "decoder.conv_in", cur, latent, &v->conv_in, e);
    if (!code)
        code = layers_open_resnet(f, "decoder.mid_block.resnets.0", cur, cur, 0, &v->mid1, e);
    if (!code && v->attends)
        code = open_attention(v, f, cur, e);
    if (!code)
        code = layers_open_resnet(f, "decoder.mid_block.resnets.1", cur, cur, 0, &v->mid2, e);
    if (!code)
        code = open_up(v, f, &cur, e);
    if (!code)
        code = layers_open_norm(f, "decoder.conv_norm_out", cur, &v->norm_out, e);
    return code ? code : layers_open_conv(f, "decoder.conv_out", v->info.out_channels, cur, &v->conv_out, e);
}

err_code vae_open(const struct weights *w, const struct cpu_ops *ops, int load_threads, struct vae **ret_vae,
                  struct packed **ret_packed, err *e)
{
    struct vae *v = mem_new(sizeof *v);
    struct loader *ld = loader_new(w, MAT_F32, ops);
    struct layers_file file = {.loader = ld, .arena = &v->arena, .eps = vae_eps};
    v->ops = ops;
    err_code code = read_config(v, w, &file.groups, e);
    if (!code)
        code = open_weights(v, &file, e);
    if (!code)
        code = loader_run(ld, load_threads, e);
    if (code) {
        loader_free(ld);
        vae_close(v);
        return code;
    }
    *ret_packed = loader_take(ld);
    *ret_vae = v;
    return ERR_OK;
}

void vae_close(struct vae *v)
{
    if (!v)
        return;
    arena_done(&v->arena);
    free(v);
}

const struct vae_info *vae_info(const struct vae *v)
{
    return &v->info;
}

// ---- forward

// x += o (attention (norm x))
static void plan_attention(struct net *n, const struct vae *v, struct layers_map x)
{
    int rows = x.h * x.w, dim = x.c;
    size_t stats = layers_stats(n, &v->attn_norm, x), floats = (size_t)rows * (size_t)dim;
    struct layers_map t = layers_affine(n, x, stats);
    struct layers_attn a = {.out = t.at, .rows = rows, .keys = rows, .heads = 1, .head_dim = dim, .ldq = dim, .ldk = dim};
    a.q = net_take(n, floats);
    a.k = net_take(n, floats);
    a.v = net_take(n, floats);
    layers_linear(n, &v->q, t.at, dim, a.q, dim, rows, false);
    layers_linear(n, &v->k, t.at, dim, a.k, dim, rows, false);
    layers_linear(n, &v->v, t.at, dim, a.v, dim, rows, false);
    layers_attend(n, &a);
    layers_linear(n, &v->o, t.at, dim, x.at, dim, rows, true);
    net_drop(n, stats);
    net_drop(n, a.q);
    net_drop(n, a.k);
    net_drop(n, a.v);
    layers_drop(n, t);
}

static struct layers_map plan_in(struct net *n, const struct vae *v, int h, int w)
{
    int latent = v->info.latent_channels;
    struct layers_map z = layers_in(n, latent, h, w, 1 / v->info.scaling_factor), x;
    if (v->post_quant) {
        struct layers_map post = layers_new(n, h, w, latent);
        layers_linear(n, &v->post, z.at, latent, post.at, latent, h * w, false);
        layers_drop(n, z);
        z = post;
    }
    x = layers_new(n, h, w, v->channels[v->levels - 1]);
    layers_convolve(n, &v->conv_in, &(struct layers_input){.map = z}, 1, NULL, NULL, x);
    layers_drop(n, z);
    return x;
}

static struct net *plan(const struct vae *v, int h, int w, int lanes)
{
    struct net *n = net_new(v->ops, v, 1, lanes);
    struct layers_map x = plan_in(n, v, h, w);
    x = layers_resnet(n, &v->mid1, x, NULL, false);
    if (v->attends)
        plan_attention(n, v, x);
    x = layers_resnet(n, &v->mid2, x, NULL, false);
    for (int i = 0; i < v->levels; i++) {
        const struct up_block *b = &v->up[i];
        for (int k = 0; k < b->count; k++)
            x = layers_resnet(n, &b->resnets[k], x, NULL, false);
        if (b->samples) {
            struct layers_map y = layers_new(n, 2 * x.h, 2 * x.w, x.c);
            layers_convolve(n, &b->sample, &(struct layers_input){.map = x, .h = y.h, .w = y.w}, 1, NULL, NULL, y);
            layers_drop(n, x);
            x = y;
        }
    }
    size_t stats = layers_stats(n, &v->norm_out, x);
    struct layers_map out = layers_new(n, x.h, x.w, v->info.out_channels);
    layers_convolve(n, &v->conv_out, &(struct layers_input){.map = x, .norm = true, .stats = stats}, 1, NULL, NULL, out);
    layers_out(n, out, 0.5f, 0.5f);
    return n;
}

size_t vae_bytes(const struct vae *v, int h, int w, int lanes)
{
    struct net *net = plan(v, h, w, lanes);
    size_t bytes = net_bytes(net);
    net_free(net);
    return bytes;
}

err_code vae_plan(const struct vae *v, int h, int w, int lanes, struct net **ret_net, err *e)
{
    if (h < 1 || w < 1 || h > MOST_SIDE || w > MOST_SIDE)
        return err_set(e, ERR_INVALID, "latents of %d x %d, expected sides of 1 to %d", h, w, MOST_SIDE);
    struct net *net = plan(v, h, w, lanes);
    err_code code = net_allocate(net, e);
    if (code)
        net_free(net);
    else
        *ret_net = net;
    return code;
}

void vae_start(struct net *net, const float *latents, float *pixels)
{
    net->x = latents;
    net->out = pixels;
    net_restart(net);
}
