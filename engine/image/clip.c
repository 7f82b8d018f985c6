// clip.c - transformers' CLIPTextModel: the text encoder of Stable Diffusion 1.x (CLIP ViT-L) and 2.x (OpenCLIP ViT-H).
//
//     token + position -> layers of x += attention(norm x), x += fc2(act(fc1(norm x))) -> final_layer_norm
//
// Attention is causal over all positions, padding included. Names begin with "text_model." in most files, not in all.
//
// clip_open runs on a loading thread, clip_plan and clip_start on the scheduler's; the operations on lanes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/image/layers.h"

enum { LAYERS = 128, MOST_TEXTS = 64 };

struct clip_layer {
    const float *norm1_w, *norm1_b, *norm2_w, *norm2_b;
    struct linear q, k, v, o, fc1, fc2;
};

struct clip {
    struct clip_info info;
    const struct cpu_ops *ops;
    struct mat tokens, positions;
    int layers, heads, inner;
    enum layers_act act;
    float eps;
    const float *norm_w, *norm_b;
    struct clip_layer layer[LAYERS];
};

static err_code read_act(struct clip *c, const struct weights *w, err *e)
{
    const char *text = "quick_gelu";
    size_t len = strlen(text);
    meta_string(w, "hidden_act", &text, &len);
    if (len == 4 && memcmp(text, "gelu", 4) == 0)
        c->act = LAYERS_GELU;
    else if (len == 10 && memcmp(text, "quick_gelu", 10) == 0)
        c->act = LAYERS_QUICK;
    else
        return err_set_param(e, ERR_UNSUPPORTED, "hidden_act", "%s: hidden_act '%.*s' is not built, expected gelu or quick_gelu",
                             weights_path(w), (int)(len < 80 ? len : 80), text);
    return ERR_OK;
}

static err_code read_config(struct clip *c, const struct weights *w, err *e)
{
    double eps;
    const struct {
        const char *key;
        int fallback, low, high;
        int *to;
    } ints[] = {
        {"hidden_size", 512, 1, 1 << 16, &c->info.dim},
        {"max_position_embeddings", 77, 1, 4096, &c->info.positions},
        {"vocab_size", 49408, 1, 1 << 24, &c->info.vocab},
        {"num_hidden_layers", 12, 1, LAYERS, &c->layers},
        {"num_attention_heads", 8, 1, 1024, &c->heads},
        {"intermediate_size", 2048, 1, 1 << 20, &c->inner},
        {"bos_token_id", 49406, 0, 1 << 24, &c->info.bos},
        {"eos_token_id", 49407, 0, 1 << 24, &c->info.eos},
        {"pad_token_id", 1, 0, 1 << 24, &c->info.pad},
    };
    if (weights_container(w) != WEIGHTS_HF)
        return err_set(e, ERR_UNSUPPORTED, "%s: a text encoder is a folder with config.json", weights_path(w));
    err_code code = read_act(c, w, e);
    for (size_t i = 0; i < sizeof ints / sizeof ints[0] && !code; i++)
        code = layers_config_int(w, ints[i].key, ints[i].fallback, ints[i].low, ints[i].high, ints[i].to, e);
    if (!code && c->info.dim % c->heads)
        return err_set_param(e, ERR_CORRUPT, "num_attention_heads", "%s: %d numbers in %d heads, expected a multiple",
                             weights_path(w), c->info.dim, c->heads);
    c->eps = meta_float(w, "layer_norm_eps", &eps) ? (float)eps : 1e-5f;
    return code;
}

static err_code open_vector(struct loader *ld, const char *layer, const char *name, int n, const float **ret, err *e)
{
    char text[256];
    snprintf(text, sizeof text, "%s.%s", layer, name);
    return loader_vector(ld, text, n, ret, e);
}

static err_code open_layer(struct clip *c, const struct layers_file *f, const char *name, struct clip_layer *l, err *e)
{
    int dim = c->info.dim;
    const struct {
        const char *name;
        struct linear *l;
        int out, in;
    } linears[] = {
        {"self_attn.q_proj", &l->q, dim, dim},   {"self_attn.k_proj", &l->k, dim, dim},
        {"self_attn.v_proj", &l->v, dim, dim},   {"self_attn.out_proj", &l->o, dim, dim},
        {"mlp.fc1", &l->fc1, c->inner, dim},     {"mlp.fc2", &l->fc2, dim, c->inner},
    };
    err_code code = open_vector(f->loader, name, "layer_norm1.weight", dim, &l->norm1_w, e);
    if (!code)
        code = open_vector(f->loader, name, "layer_norm1.bias", dim, &l->norm1_b, e);
    if (!code)
        code = open_vector(f->loader, name, "layer_norm2.weight", dim, &l->norm2_w, e);
    if (!code)
        code = open_vector(f->loader, name, "layer_norm2.bias", dim, &l->norm2_b, e);
    for (size_t i = 0; i < sizeof linears / sizeof linears[0] && !code; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s.%s", name, linears[i].name);
        code = layers_open_linear(f, text, true, linears[i].out, linears[i].in, linears[i].l, e);
    }
    return code;
}

static err_code open_weights(struct clip *c, const struct layers_file *f, err *e)
{
    char text[128];
    bool prefixed = loader_has(f->loader, "text_model.embeddings.token_embedding.weight");
    const char *prefix = prefixed ? "text_model." : "";
    snprintf(text, sizeof text, "%sembeddings.token_embedding.weight", prefix);
    err_code code = loader_table(f->loader, text, c->info.vocab, c->info.dim, &c->tokens, e);
    snprintf(text, sizeof text, "%sembeddings.position_embedding.weight", prefix);
    if (!code)
        code = loader_table(f->loader, text, c->info.positions, c->info.dim, &c->positions, e);
    for (int i = 0; i < c->layers && !code; i++) {
        snprintf(text, sizeof text, "%sencoder.layers.%d", prefix, i);
        code = open_layer(c, f, text, &c->layer[i], e);
    }
    snprintf(text, sizeof text, "%sfinal_layer_norm", prefix);
    if (!code)
        code = open_vector(f->loader, text, "weight", c->info.dim, &c->norm_w, e);
    return code ? code : open_vector(f->loader, text, "bias", c->info.dim, &c->norm_b, e);
}

err_code clip_open(const struct weights *w, const struct cpu_ops *ops, int load_threads, struct clip **ret_clip,
                   struct packed **ret_packed, err *e)
{
    struct clip *c = mem_new(sizeof *c);
    struct loader *ld = loader_new(w, MAT_F32, ops);
    struct layers_file file = {.loader = ld};
    c->ops = ops;
    err_code code = read_config(c, w, e);
    if (!code)
        code = open_weights(c, &file, e);
    if (!code)
        code = loader_run(ld, load_threads, e);
    if (code) {
        loader_free(ld);
        clip_close(c);
        return code;
    }
    *ret_packed = loader_take(ld);
    *ret_clip = c;
    return ERR_OK;
}

void clip_close(struct clip *c)
{
    free(c);
}

const struct clip_info *clip_info(const struct clip *c)
{
    return &c->info;
}

// ---- forward

static void run_embed(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    const struct clip *c = n->owner;
    float *x = n->memory + op->x + (size_t)unit * (size_t)c->info.dim;
    mat_row(&c->tokens, n->ids[unit], x);
    mat_row(&c->positions, unit % c->info.positions, scratch);
    n->ops->add(x, scratch, c->info.dim);
}

static void run_states_out(const struct net *n, const struct net_op *op, int unit, float *scratch)
{
    (void)scratch;
    size_t at = (size_t)unit * (size_t)op->cols;
    memcpy(n->out + at, n->memory + op->x + at, (size_t)op->cols * sizeof *n->out);
}

// x += attention(norm1 x) and x += fc2(act(fc1(norm2 x))); t is of x's size.
static void plan_layer(struct net *n, const struct clip *c, const struct clip_layer *l, size_t x, size_t t)
{
    int dim = c->info.dim, rows = n->images * c->info.positions;
    struct layers_attn a = {.out = t, .rows = c->info.positions, .keys = c->info.positions, .heads = c->heads,
                            .head_dim = dim / c->heads, .ldq = dim, .ldk = dim, .causal = true};
    layers_layernorm(n, l->norm1_w, l->norm1_b, c->eps, x, t, rows, dim);
    a.q = net_take(n, (size_t)rows * (size_t)dim);
    a.k = net_take(n, (size_t)rows * (size_t)dim);
    a.v = net_take(n, (size_t)rows * (size_t)dim);
    layers_linear(n, &l->q, t, dim, a.q, dim, rows, false);
    layers_linear(n, &l->k, t, dim, a.k, dim, rows, false);
    layers_linear(n, &l->v, t, dim, a.v, dim, rows, false);
    layers_attend(n, &a);
    layers_linear(n, &l->o, t, dim, x, dim, rows, true);
    net_drop(n, a.q);
    net_drop(n, a.k);
    net_drop(n, a.v);
    layers_layernorm(n, l->norm2_w, l->norm2_b, c->eps, x, t, rows, dim);
    size_t inner = net_take(n, (size_t)rows * (size_t)c->inner);
    layers_linear(n, &l->fc1, t, dim, inner, c->inner, rows, false);
    layers_act(n, c->act, inner, rows, c->inner);
    layers_linear(n, &l->fc2, inner, c->inner, x, dim, rows, true);
    net_drop(n, inner);
}

static struct net *plan(const struct clip *c, int texts, int lanes)
{
    struct net *n = net_new(c->ops, c, texts, lanes);
    int dim = c->info.dim, rows = texts * c->info.positions;
    size_t x = net_take(n, (size_t)rows * (size_t)dim), t = net_take(n, (size_t)rows * (size_t)dim);
    net_add(n, run_embed, rows, 10.0 * dim)->x = x;
    net_want_scratch(n, (size_t)dim);
    for (int i = 0; i < c->layers; i++)
        plan_layer(n, c, &c->layer[i], x, t);
    layers_layernorm(n, c->norm_w, c->norm_b, c->eps, x, t, rows, dim);
    struct net_op *op = net_add(n, run_states_out, rows, 10.0 * dim);
    op->x = t;
    op->cols = dim;
    return n;
}

err_code clip_plan(const struct clip *c, int n, int lanes, struct net **ret_net, err *e)
{
    if (n < 1 || n > MOST_TEXTS)
        return err_set(e, ERR_INVALID, "%d texts, expected 1 to %d", n, MOST_TEXTS);
    struct net *net = plan(c, n, lanes);
    err_code code = net_allocate(net, e);
    if (code)
        net_free(net);
    else
        *ret_net = net;
    return code;
}

void clip_start(struct net *net, const int32_t *ids, float *out)
{
    net->ids = ids;
    net->out = out;
    net_restart(net);
}
