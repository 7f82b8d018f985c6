// qwen35.c - Qwen3.5, dense; the text part of those that see.
//
//   ids -> embed -> [ norm -> gated delta net (3 of 4 layers) or attention -> + ;
//                     norm -> silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: only some layers have keys and values; the others keep a state of fixed size (blocks/gdn.h). Attention's q
// matrix gives each head its query and then a gate, by whose sigmoid what the head yields is multiplied. q and k heads are
// normalised, and a part of each turns (M-RoPE, whose three positions are one and the same in text). All norms but the
// delta net's own are stored around zero. A GGUF has 1 added to them, -exp(A_log) worked out, and the value heads of the
// delta net in another order, so that head j goes with key head j mod k_heads.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/blocks/decoder.h"
#include "engine/blocks/gdn.h"

static const char *const archs[] = {"qwen35", "qwen3_5", "qwen3_5_text", "Qwen3_5ForCausalLM",
                                    "Qwen3_5ForConditionalGeneration", NULL};

struct qwen35 {
    struct decoder base;
    struct gdn_dims dims;
    int inner;         // GGUF: value heads * their size
    struct gdn *gdn;   // [layers]; those of attention are not used
    float *units;
};

static const struct hyper hypers[] = {
    DECODER_HYPERS(32768, 4, 256),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, o_bias), false, 0, 0, 1, 0},
};

#define FIELD(name) offsetof(struct qwen35, name)
static const struct hyper own_hypers[] = {
    {"linear_num_key_heads", "ssm.group_count", HYPER_INT, FIELD(dims.k_heads), false, 16, 1, 1024, 16},
    {"linear_num_value_heads", "ssm.time_step_rank", HYPER_INT, FIELD(dims.v_heads), false, 32, 1, 1024, 32},
    {"linear_key_head_dim", "ssm.state_size", HYPER_INT, FIELD(dims.k_dim), false, 128, 1, 1024, 128},
    {"linear_value_head_dim", NULL, HYPER_INT, FIELD(dims.v_dim), false, 128, 1, 1024, 128},
    {NULL, "ssm.inner_size", HYPER_INT, FIELD(inner), false, 0, 0, 1 << 20, 0},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", HYPER_INT, FIELD(dims.taps), false, 4, 1, 64, 4},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, FIELD(dims.eps), false, 1e-6, 0, 1, 1e-6},
};

static const struct decoder_names inner_names = {
    .embed = "model.language_model.embed_tokens", .norm = "model.language_model.norm", .head = "lm_head",
    .layer = "model.language_model.layers.%d.",
    .attn_norm = "input_layernorm", .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",
    .o = "self_attn.o_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm",
    .ffn_norm = "post_attention_layernorm", .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj",
};

static const struct decoder_names gguf_names = {
    .embed = "token_embd", .norm = "output_norm", .head = "output", .layer = "blk.%d.",
    .attn_norm = "attn_norm", .q = "attn_q", .k = "attn_k", .v = "attn_v",
    .o = "attn_output", .q_norm = "attn_q_norm", .k_norm = "attn_k_norm",
    .ffn_norm = "post_attention_norm", .gate = "ffn_gate", .up = "ffn_up", .down = "ffn_down",
};

static const struct gdn_names gdn_hf = {
    .qkv = "linear_attn.in_proj_qkv", .z = "linear_attn.in_proj_z", .b = "linear_attn.in_proj_b",
    .a = "linear_attn.in_proj_a", .out = "linear_attn.out_proj", .conv = "linear_attn.conv1d",
    .rate = "linear_attn.A_log", .dt_bias = "linear_attn.dt_bias", .norm = "linear_attn.norm.weight", .rate_is_log = true, .conv_is_3d = true,
};

static const struct gdn_names gdn_gguf = {
    .qkv = "attn_qkv", .z = "attn_gate", .b = "ssm_beta", .a = "ssm_alpha", .out = "ssm_out", .conv = "ssm_conv1d",
    .rate = "ssm_a", .dt_bias = "ssm_dt.bias", .norm = "ssm_norm.weight",
};

// ---- which layers attend

static err_code listed(const struct weights *w, int layer, bool *ret_own, err *e)
{
    const char *s;
    size_t n;
    if (!meta_array_string(w, "layer_types", layer, &s, &n))
        return err_set_param(e, ERR_CORRUPT, "layer_types", "%s: 'layer_types' has no text at %d", weights_path(w), layer);
    bool full = n == 14 && !memcmp(s, "full_attention", n), linear = n == 16 && !memcmp(s, "linear_attention", n);
    if (!full && !linear)
        return err_set_param(e, ERR_UNSUPPORTED, "layer_types",
                             "%s: layer type '%.*s' is not built; there are full_attention and linear_attention",
                             weights_path(w), n > 40 ? 40 : (int)n, s);
    *ret_own = linear;
    return ERR_OK;
}

static err_code mark_layers(struct qwen35 *q, const struct weights *w, err *e)
{
    int64_t every = 4, count = meta_array_length(w, "layer_types");
    int layers = q->base.dims.layers, attending = 0;
    char key[80];
    snprintf(key, sizeof key, "%s.full_attention_interval", weights_arch(w));
    meta_int(w, weights_container(w) == WEIGHTS_GGUF ? key : "full_attention_interval", &every);
    if (every < 1)
        return err_set(e, ERR_CORRUPT, "%s: full_attention_interval is %lld", weights_path(w), (long long)every);
    if (count >= 0 && count != layers)
        return err_set_param(e, ERR_CORRUPT, "layer_types", "%s: 'layer_types' has %lld items, expected %d",
                             weights_path(w), (long long)count, layers);
    for (int i = 0; i < layers; i++) {
        bool *own = &q->base.layers[i].own;
        *own = (i + 1) % every != 0;
        if (count >= 0 && listed(w, i, own, e))
            return e->code;
        attending += !*own;
    }
    if (!attending)
        return err_set(e, ERR_UNSUPPORTED, "%s: no layer of %d attends, one or more are built", weights_path(w), layers);
    return ERR_OK;
}

// ---- opening

// In config.json the part of a head that turns is a fraction of it.
static void set_rotary(struct decoder *d, const struct weights *w)
{
    double part = 0.25;
    if (weights_container(w) == WEIGHTS_GGUF)
        return;
    meta_float(w, "partial_rotary_factor", &part);
    meta_float(w, "rope_parameters.partial_rotary_factor", &part);
    d->dims.rotary = part > 0 && part <= 1 ? (int)(d->dims.head_dim * part) : 0;
}

static err_code prepare(struct model *m, err *e)
{
    struct qwen35 *q = m->impl;
    struct gdn_dims *d = &q->dims;
    const struct weights *w = m->weights;
    err_code code = hyper_read(w, own_hypers, sizeof own_hypers / sizeof *own_hypers, q, e);
    if (!code)
        code = mark_layers(q, w, e);
    if (code)
        return code;
    d->tiled = weights_container(w) == WEIGHTS_GGUF;
    if (d->tiled)
        d->v_dim = q->inner > 0 && q->inner % d->v_heads == 0 ? q->inner / d->v_heads : d->k_dim;
    code = gdn_check(d, weights_path(w), e);
    if (code)
        return code;
    set_rotary(&q->base, w);
    q->units = mem_new(2 * (size_t)d->k_dim * sizeof *q->units);
    gdn_units(d, q->units);
    q->gdn = mem_new((size_t)q->base.dims.layers * sizeof *q->gdn);
    q->base.mixer_floats = gdn_row_floats(d);
    q->base.mixer_cols = d->v_heads * d->v_dim;
    return ERR_OK;
}

static err_code open_mixer(const struct decoder_opening *o, int layer)
{
    struct qwen35 *q = o->m->impl;
    size_t *state = &q->base.layout.state_bytes, at = *state;
    const struct gdn_names *names = q->dims.tiled ? &gdn_gguf : &gdn_hf;
    *state += gdn_state_bytes(&q->dims);
    return gdn_open(&q->gdn[layer], &q->dims, o, names, at);
}

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .hf_inner = &inner_names,
    .gguf = &gguf_names,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_HALF,
    .qk_norm = true,
    .gated = true,
    .hf_norm_add = 1,
    .impl_bytes = sizeof(struct qwen35),
    .prepare = prepare,
    .open_mixer = open_mixer,
};

// A model that sees has the keys of its text part in text_config; whether the head is the embedding it says outside.
static err_code open(struct model *m, err *e)
{
    struct decoder_spec s = spec;
    bool tied = false;
    meta_bool(m->weights, "tie_word_embeddings", &tied);
    if (meta_scope(m->weights, "text_config"))
        s.tied = tied;
    err_code code = decoder_open(m, &s, e);
    if (code)
        return code;
    struct qwen35 *q = m->impl;
    for (int i = 0; i < q->base.dims.layers; i++) {
        const struct gdn *l = &q->gdn[i];
        const struct linear *all[] = {&l->qkv, &l->z, &l->b, &l->a, &l->out};
        for (int k = 0; k < 5; k++)
            m->token_macs += (size_t)all[k]->in * (size_t)all[k]->out;
    }
    return ERR_OK;
}

static void close(struct model *m)
{
    struct qwen35 *q = m->impl;
    if (q) {
        free(q->gdn);
        free(q->units);
    }
    decoder_close(m);
}

// ---- running

static void forward(const struct model *m, const struct batch *b, struct lane *lane)
{
    const struct qwen35 *q = m->impl;
    struct step s;
    decoder_begin(&s, m, b, lane);
    for (int i = 0; i < q->base.dims.layers; i++) {
        if (q->base.layers[i].own)
            gdn_run(&s, &q->gdn[i], &q->dims, q->base.layers[i].attn_norm);
        else
            decoder_attention(&s, i);
        decoder_mlp(&s, i);
    }
    decoder_logits(&s);
}

static const struct gen_ops gen = {decoder_kv_layout, decoder_scratch_bytes, forward, decoder_head_row};

const struct family family_qwen35 = {.name = "qwen35", .archs = archs, .open = open, .close = close, .gen = &gen};
